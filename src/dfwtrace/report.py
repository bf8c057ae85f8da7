"""A run as one page that people can pass on."""

from __future__ import annotations

import math
import os
import platform
import re
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, SupportsFloat
from unicodedata import category

import numpy as np

from dfwtrace import plotting
from dfwtrace._typing import Data, FloatArray
from dfwtrace.estimators.advice import concerns
from dfwtrace.files.atomic import atomic_write
from dfwtrace.plotting import Series, column, drawable
from dfwtrace.result import History, Path, Result
from dfwtrace.tasks.planning import duration_text, size_text
from dfwtrace.validation import describe

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from dfwtrace.evaluation import Evaluation, Weights

    Draw = Callable[[Axes], object]
    Columns = Mapping[str, FloatArray]
    Chart = dict[str, object]

__all__ = ["Report", "require_report", "write_report"]

MOST_PARTS = {"classification": 10, "regression": 50}  # rows of the table of errors, at most
_LONGEST_NAME = 160
_LONGEST_IN_TITLE = 60
_MANY_EPOCHS = 100  # from here on their axis is logarithmic: steps become small with time
_BY = {"epoch": "by epochs", "seconds": "by seconds"}
_STYLES = {"certified": 0, "estimated": 1, "tolerance": 2}  # the same in all charts
TaskName = Literal["classification", "regression"]
_PACKAGES = ("dfwtrace", "numpy", "scipy", "numba", "scikit-learn", "pyspark")


def number(value: SupportsFloat | None, digits: int = 4) -> str:
    """Return a number in a few digits; a dash where there is none."""
    if value is None or value != value:
        return "—"
    if isinstance(value, int | np.integer):
        return f"{int(value):,}".replace("-", "−")
    value = float(value)
    text = f"{value:,.{digits}g}".replace("inf", "∞")
    if "e" in text and 1.0 <= abs(value) < 1e9:
        text = f"{value:,.0f}"
    return plotting.power_of_ten(text).replace("-", "−")


def counted(count: int, noun: str) -> str:
    """Return a count and its noun, such as "1 epoch" or "2,000 epochs"."""
    return f"{number(count)} {noun}" + ("" if count == 1 else "s")


def name(text: object, longest: int = _LONGEST_NAME) -> str:
    """Return a name that can be shown: one line, not endless, U+FFFD for what HTML forbids."""
    forbidden = ("Cc", "Cs", "Cn")  # control characters, halves of surrogate pairs, noncharacters
    shown = re.sub(r"\s", " ", str(text))
    shown = shown if len(shown) <= longest else shown[: longest - 1] + "…"
    return "".join("\ufffd" if category(one) in forbidden else one for one in shown).strip()


def machine_here() -> dict[str, str]:
    """Return what this machine is; neither its name nor its user's, since reports are passed on."""
    machine = {"System": f"{platform.system()} {platform.release()}"}
    machine |= {"Processor": platform.machine(), "Cores": str(os.cpu_count())}
    with suppress(AttributeError, OSError, ValueError):  # not on every system
        machine["Memory"] = size_text(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return machine


def versions_here() -> dict[str, str]:
    """Return the versions of Python and of the installed packages that a result depends on."""
    versions = {"Python": platform.python_version()}
    for package in _PACKAGES:
        with suppress(PackageNotFoundError):  # an extra that is not installed
            versions[package] = version(package)
    return versions


# Parts of a report: what was learned from, how, how it ended (as in `dfwtrace.Result`), totals of
# the oracle and of the rest, losses of shape (radii,) or (radii, folds).
DataFacts = namedtuple("DataFacts", "rows features targets dtype source", defaults=("", ""))
Settings = namedtuple(
    "Settings", "radius solver tol engine representation shards", defaults=("", None, "", "", None)
)
Outcome = namedtuple(
    "Outcome", "status message objective objective_at_zero gap relative_gap rank seconds epochs"
)
Communication = namedtuple(
    "Communication", "rounds numbers other_rounds other_numbers bytes_on_wire"
)
Radii = namedtuple("Radii", "radii validation warning", defaults=(None,))


@dataclass(frozen=True, eq=False)
class Report:
    """All that a report page shows; `of_estimator` makes it from a model, `of_result` from a run.

    Parameters
    ----------
    title : str
        Heading of the page.
    task : {"classification", "regression"}
    data, settings, outcome : DataFacts, Settings and Outcome
        What was learned from, how, and how the run ended.
    history : History
        A record for each epoch.
    spectrum : array-like of shape (rank,)
        Singular values of W.
    communication : Communication or None, default=None
        Totals of the run.
    where : sequence of (str, str), default=()
        What was done, and where it ran.
    evaluations : mapping of str to Evaluation, default={}
        What the model is worth on "test" rows, in "cross-validation" or another "search" for the
        radius, and on "training" rows.
    weights : sequence of Weights, default=()
        The largest weights of classes or targets, as `dfwtrace.evaluation.largest_weights` does.
    scaled : bool, default=False
        Whether weights are multiplied by the standard deviations of their features.
    warnings : sequence of str, default=()
        Sentences on what may be wrong.
    path : Radii or None, default=None
        Validation losses of several radii.
    when : str
        Time of the run; by default now.
    versions, machine : mapping of str to str
        By default those here.

    Examples
    --------
    >>> import dfwtrace as dt
    >>> X, y, _ = dt.datasets.make_multiclass(n=200, d=10, m=4, rank=2, random_state=0)
    >>> result = dt.solve(dt.Multinomial(), X, y, radius=5.0, max_iter=5)
    >>> report = dt.report.Report.of_result(result, task="classification", radius=5.0)
    >>> report.data.rows, report.outcome.epochs
    (200, 5)
    """

    title: str
    task: TaskName
    data: DataFacts
    settings: Settings
    outcome: Outcome
    history: History
    spectrum: FloatArray
    communication: Communication | None = None
    where: Sequence[tuple[str, str]] = ()
    evaluations: Mapping[str, Evaluation] = field(default_factory=dict)
    weights: Sequence[Weights] = ()
    scaled: bool = False
    warnings: Sequence[str] = ()
    path: Radii | None = None
    when: str = field(default_factory=lambda: f"{datetime.now().astimezone():%Y-%m-%d %H:%M %z}")
    versions: Mapping[str, str] = field(default_factory=versions_here)
    machine: Mapping[str, str] = field(default_factory=machine_here)

    def __post_init__(self) -> None:
        if self.task not in ("classification", "regression"):
            task = describe(self.task)
            raise ValueError(f'task must be "classification" or "regression", got {task}.')
        if not isinstance(self.history, History):
            raise TypeError(f"history must be a History, got {describe(self.history)}.")
        object.__setattr__(self, "spectrum", np.asarray(self.spectrum, dtype=np.float64))

    @classmethod
    def of_estimator(
        cls,
        estimator: Any,
        X: Data = None,
        y: Data = None,
        *,
        sample_weight: Data = None,
        test: tuple[Data, Data] | None = None,
        file: str = "",
        feature_names: Sequence[str] | None = None,
        target_names: Sequence[str] | None = None,
        **more: Any,
    ) -> Report:
        """Make the report of a fitted estimator.

        Parameters
        ----------
        estimator : TraceNormClassifier, TraceNormRegressor, or one with cross-validation
            What is reported on.
        X, y, sample_weight : object
            What it was fitted to; without X and y there is less to show.
        test : (X, y) or None, default=None
            Rows that it has not seen.
        file : str, default=""
            What the data are called; it begins the title.
        feature_names, target_names : sequence of str or None, default=None
            By default, the names that the estimator knows, and none.
        **more
            As for `of_result`.

        Returns
        -------
        Report

        Examples
        --------
        >>> import dfwtrace as dt
        >>> X, y, _ = dt.datasets.make_multiclass(n=300, d=10, m=4, rank=2, random_state=0)
        >>> model = dt.TraceNormClassifier(radius=5.0).fit(X[:200], y[:200])
        >>> test = X[200:], y[200:]
        >>> report = dt.report.Report.of_estimator(model, X[:200], y[:200], test=test, file="a.csv")
        >>> report.title, list(report.evaluations)
        ('a.csv: classification, 4 classes', ['test', 'training'])
        """
        from dfwtrace import evaluation  # only here: it imports this module

        result, known = plotting._fitted(estimator, "result_"), vars(estimator)
        task: TaskName = "classification" if "classes_" in known else "regression"
        if feature_names is None:
            feature_names = known.get("feature_names_in_")
        found = evaluation.evaluations(estimator, X, y, sample_weight, test, target_names)
        heard = [sentence for _, sentence in concerns(estimator, result, X)]
        heard += [f"{kind} rows: {one.warning}" for kind, one in found.items() if one.warning]
        names = feature_names, target_names
        facts = {
            "warnings": heard,
            "solver": getattr(estimator, "solver", "accelerated"),
            "tol": estimator.tol,
            "title": _title(file, task, target_names, estimator.low_rank_.shape[1]),
            "evaluations": found,
            "weights": evaluation.largest_weights(estimator, X, y, *names),
            "scaled": X is not None or evaluation.scale_of(estimator) is not None,
            "path": evaluation.searched(estimator),
        }
        radius = float(estimator.radius_)
        return cls.of_result(result, task=task, radius=radius, **facts | more)

    @classmethod
    def of_result(
        cls,
        result: Result,
        *,
        task: TaskName,
        radius: float,
        title: str | None = None,
        solver: str = "",
        tol: float | None = None,
        engine: str = "",
        source: str = "",
        path: Path | None = None,
        **more: Any,
    ) -> Report:
        """Make the report of a run; `path` is shown if it has validation losses.

        `solver`, `tol` and `engine` are as in `Settings`, `source` as in `DataFacts`, and `more` as
        in `Report`.
        """
        if not isinstance(result, Result):
            raise TypeError(f"result must be a Result, got {describe(result)}.")
        if not isinstance(path, Path | None):
            raise TypeError(f"path must be a Path or None, got {describe(path)}.")
        w, history = result.plan.workload, result.history
        seconds = float(column(history, "seconds")[-1]) if history else math.nan
        ended = result.status, result.message, result.objective, result.objective_at_zero
        gaps = result.gap, result.relative_gap
        dtype = f"{'sparse' if w.sparse else 'dense'} float{8 * w.itemsize}"
        oracle = [made for made in result.rounds if made["oracle"]]
        rest = [made for made in result.rounds if not made["oracle"]]
        numbers = [sum(int(made["numbers_sent"]) for made in some) for some in (oracle, rest)]
        on_wires = sum(int(made["bytes_on_wire"]) for made in result.rounds)
        radii = None
        if path is not None and path.validation is not None and path.validation.size:
            with np.errstate(over="ignore"):
                radii = Radii(path.radii, path.validation, path.warning)
        return cls(
            f"Low-rank {task}" if title is None else title,
            task,
            DataFacts(w.n, w.d, w.m, dtype, source),
            Settings(radius, solver, tol, engine, result.plan.representation, w.n_shards),
            Outcome(*ended, *gaps, result.W.rank, seconds, len(history)),
            history,
            result.W.s,
            Communication(len(oracle), numbers[0], len(rest), numbers[1], on_wires)
            if result.rounds
            else None,
            path=radii,
            **more,
        )


def _title(file: str, task: str, target_names: Sequence[str] | None, m: int) -> str:
    """Return what was learned from which file, such as "a.csv: regression of 40 targets"."""

    file = name(file, _LONGEST_IN_TITLE)
    what = ""
    if target_names is not None and len(target_names) == 1:
        what = f" of “{name(target_names[0], _LONGEST_IN_TITLE)}”"
    if task == "classification":
        what += f", {number(m)} classes"
    elif m > 1:
        what = f" of {number(m)} targets"
    return f"{file}: {task}{what}" if file else f"{task.capitalize()}{what}"


def require_report() -> None:
    """Raise an error that names what to install if a package for reports is missing.

    Examples
    --------
    >>> require_report()
    """
    missing = " and ".join(one for one in ("jinja2", "matplotlib") if find_spec(one) is None)
    if missing:
        raise ImportError(f"a report needs {missing}: pip install 'dfwtrace[report]'.")


def write_report(path: str | os.PathLike[str], content: Report) -> None:
    """Write a report as one HTML page that needs nothing else.

    The page loads nothing and runs nothing: its pictures and styles are inside it, and its
    Content-Security-Policy forbids all else. It appears whole or not at all.

    Parameters
    ----------
    path : str or path-like
        A file; what it held is replaced.
    content : Report
        What the page shows.

    Examples
    --------
    >>> import tempfile
    >>> import dfwtrace as dt
    >>> X, Y, _ = dt.datasets.make_multitask(n=200, d=10, m=4, rank=2, random_state=0)
    >>> result = dt.solve(dt.LeastSquares(), X, Y, radius=1.0, max_iter=5)
    >>> with tempfile.NamedTemporaryFile(suffix=".html") as page:
    ...     write_report(page.name, Report.of_result(result, task="regression", radius=1.0))
    """
    text = render(content)
    with atomic_write(path) as file:
        file.write(text.encode("utf-8"))


def render(content: Report) -> str:
    """Return the page as text."""
    if not isinstance(content, Report):
        raise TypeError(f"content must be a Report, got {describe(content)}.")
    require_report()
    import jinja2
    import matplotlib

    from dfwtrace.evaluation import worth  # only here: it imports this module

    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.loader = jinja2.PackageLoader("dfwtrace")
    environment.undefined = jinja2.StrictUndefined
    environment.filters.update(number=number, duration=duration_text, size=size_text, shown=name)
    environment.filters["percent"] = lambda share: f"{100.0 * share:.1f} %"
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # the page does not depend on the style of the caller's pictures
        matplotlib.rcParams["font.size"] = 11.0
        return environment.get_template("report.html.jinja").render(
            report=content,
            colours=plotting.page_colours(),
            most_parts=MOST_PARTS[content.task],
            worth=worth(content.evaluations),
            predictions=_predictions(content.evaluations),
            convergence=_convergence(content),
            spectrum=_spectrum(content.spectrum),
            traffic=_traffic(content.history),
            radii=_radii(content.path, content.settings.radius),
        )


def _chart(caption: str, description: str, draw: Draw, **facts: object) -> Chart:
    """Return a picture with its caption, and facts for the text beside it."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.6, 3.5), layout="constrained")
    draw(figure.subplots())
    svg = plotting.to_svg(figure, title=caption, description=description)
    return {"caption": caption, "svg": svg, **facts}


def _predictions(evaluations: Mapping[str, Evaluation]) -> Chart | None:
    """Draw predicted against true values of a single target; None for several."""
    from dfwtrace.evaluation import rows_of

    scored = ((kind, one) for kind, one in evaluations.items() if one.points is not None)
    kind, one = next(scored, ("", None))
    points = np.empty((0, 2)) if one is None or one.points is None else one.points
    points = points[drawable(points).all(axis=1)]
    if one is None or not points.size:
        return None
    some = "" if len(points) == one.rows else f"{number(len(points))} of "
    (low, low_predicted), (high, high_predicted) = points.min(axis=0), points.max(axis=0)
    described = f"From {number(low)} to {number(high)}, predicted from "
    described += f"{number(low_predicted)} to {number(high_predicted)}."
    caption = f"Predicted against true, {some}{rows_of(kind, one)}"
    return _chart(caption, described, lambda ax: plotting.draw_predictions(ax, *points.T))


def _against(by: str, history: History, columns: Columns, y_label: str, y_log: bool) -> Draw:
    """Return what draws columns against epochs or seconds; a tolerance is a dashed line."""
    x, x_log, series = column(history, by), by == "epoch" and len(history) >= _MANY_EPOCHS, []
    for label, y in columns.items():
        dashed = label == "tolerance"
        at = x[[0, -1]] if dashed else x
        series.append(Series(label, at, y, dashed=dashed, style=_STYLES.get(label)))
    labels = {"x_label": by, "y_label": y_label}
    return lambda ax: plotting.draw_lines(ax, series, **labels, x_log=x_log, y_log=y_log)


def _convergence(report: Report) -> list[Chart]:
    """Draw objective and gap against epochs and seconds, where the run recorded them."""
    history, outcome, tol = report.history, report.outcome, report.settings.tol
    extents = {"epoch": counted(len(history), "epoch"), "seconds": duration_text(outcome.seconds)}
    charts = []
    objective = column(history, "objective")
    shown = objective[drawable(objective)]
    for by, extent in extents.items() if shown.size else ():
        described = f"From {number(shown[0])} to {number(shown[-1])} in {extent}."
        wide = 0.0 < 30.0 * shown.min() < shown.max()
        draw = _against(by, history, {"objective": objective}, "objective F(W)", wide)
        charts.append(_chart(f"Objective, {_BY[by]}", described, draw))
    scale = abs(outcome.objective_at_zero)  # as for `relative_gap`
    scale = scale if drawable(np.array(scale), log=True) else 1.0
    gaps = {"estimated": column(history, "gap_estimate"), "certified": column(history, "gap")}
    gaps = {key: y / scale for key, y in gaps.items() if drawable(y / scale, log=True).any()}
    last = "not known" if math.isnan(outcome.gap) else number(outcome.relative_gap)
    # Below the others: a gap that reaches it must be seen.
    columns = gaps if tol is None else {"tolerance": np.array([tol, tol]), **gaps}
    for by, extent in extents.items() if gaps else ():
        described = f"The certified gap is {last} after {extent}."
        draw = _against(by, history, columns, "gap / |F(0)|", y_log=True)
        charts.append(_chart(f"Relative gap, {_BY[by]}", described, draw))
    return charts


def _spectrum(values: FloatArray) -> Chart | None:
    """Draw the singular values of W, and count those that make up most of it; None if W = 0."""
    values = values[drawable(values, log=True)]
    if values.size == 0:
        return None
    described = f"from {number(values.max())} to {number(values.min())}."
    described = f"{counted(values.size, 'singular value')}, {described}"
    leading = 1 + int(np.searchsorted(np.cumsum(values), 0.9 * values.sum()))
    draw = plotting.SpectrumDisplay(values).plot
    return _chart("Singular values of W", described, draw, leading=leading)


def _traffic(history: History) -> Chart | None:
    """Draw the numbers sent in each epoch; None if none was."""
    sent = {"oracle": column(history, "numbers_sent"), "the rest": column(history, "other_numbers")}
    sent = {label: numbers for label, numbers in sent.items() if np.nansum(numbers) > 0.0}
    if not sent:
        return None
    total = int(sum(np.nansum(numbers) for numbers in sent.values()))
    described = f"{number(total)} numbers in {counted(len(history), 'epoch')}."

    def draw(ax: Axes) -> None:
        _against("epoch", history, sent, "numbers sent", y_log=False)(ax)
        ax.set_ylim(bottom=0.0)

    return _chart("Numbers sent in each epoch", described, draw)


def _radii(path: Radii | None, chosen: float) -> Chart | None:
    """Draw validation losses against radii, and mark the chosen one; None if none is a number."""
    if path is None:
        return None
    radii, losses = np.asarray(path.radii), np.reshape(path.validation, (len(path.radii), -1))
    known = drawable(losses).all(axis=1) & drawable(radii, log=True)
    if not known.any():
        return None
    found = Path(radii[known], [], losses[known])
    means = losses[known].mean(axis=1)
    nearest = int(np.argmin(np.abs(found.radii - chosen)))  # chosen perhaps by another score
    best = nearest if np.isclose(found.radii[nearest], chosen) else found.best
    radius, least = float(found.radii[best]), float(means[best])
    described = f"Chosen: a radius of {number(radius)}, with a loss of {number(least)}."
    facts = {"radii": found.radii, "folds": losses.shape[1], "best": radius, "least": least}
    draw = plotting.PathDisplay(found, best=radius).plot
    return _chart("Validation loss against the radius", described, draw, **facts)
