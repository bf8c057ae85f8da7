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
from dfwtrace._typing import FloatArray
from dfwtrace.files.atomic import atomic_write
from dfwtrace.plotting import Series, column, drawable
from dfwtrace.result import History, Path, Result
from dfwtrace.tasks.planning import duration_text, size_text
from dfwtrace.validation import describe

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    Draw = Callable[[Axes], object]
    Columns = Mapping[str, FloatArray]
    Chart = dict[str, object]

__all__ = ["Report", "require_report", "write_report"]

MOST_WORST = 50  # rows of the table of classes or tasks, at most
_LONGEST_NAME = 160
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


def name(text: object) -> str:
    """Return a name that can be shown: one line, not endless, U+FFFD for what HTML forbids."""
    forbidden = ("Cc", "Cs", "Cn")  # control characters, halves of surrogate pairs, noncharacters
    shown = re.sub(r"\s", " ", str(text))
    shown = shown if len(shown) <= _LONGEST_NAME else shown[: _LONGEST_NAME - 1] + "…"
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
# the oracle and of the rest, losses of shape (radii,) or (radii, folds), a class and its error.
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
Radii = namedtuple("Radii", "radii validation")
Worst = namedtuple("Worst", "name count error")


@dataclass(frozen=True, eq=False)
class Report:
    """All that a report page shows; `of_result` makes it from a run.

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
    scores : mapping of str to float, default={}
        Scores of the model, by name.
    worst : sequence of Worst, default=()
        The classes or tasks with the largest errors, the worst first.
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
    scores: Mapping[str, float] = field(default_factory=dict)
    worst: Sequence[Worst] = ()
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
        validation = None if path is None else path.validation
        return cls(
            f"Low-rank {task}" if title is None else title,
            task,
            DataFacts(w.n, w.d, w.m, dtype, source),
            Settings(radius, solver, tol, engine, result.plan.representation, w.n_shards),
            Outcome(*ended, *gaps, result.W.rank, seconds, len(history)),
            history,
            result.W.s,
            Communication(len(oracle), numbers[0], len(rest), numbers[1], on_wires),
            path=None if path is None or validation is None else Radii(path.radii, validation),
            **more,
        )


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

    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.loader = jinja2.PackageLoader("dfwtrace")
    environment.undefined = jinja2.StrictUndefined
    environment.filters.update(number=number, duration=duration_text, size=size_text, shown=name)
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # the page does not depend on the style of the caller's pictures
        matplotlib.rcParams["font.size"] = 11.0
        return environment.get_template("report.html.jinja").render(
            report=content,
            colours=plotting.page_colours(),
            most_worst=MOST_WORST,
            convergence=_convergence(content),
            spectrum=_spectrum(content.spectrum),
            traffic=_traffic(content.history),
            radii=_radii(content.path),
        )


def _chart(caption: str, description: str, draw: Draw, **facts: object) -> Chart:
    """Return a picture with its caption, and facts for the text beside it."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.6, 3.5), layout="constrained")
    draw(figure.subplots())
    svg = plotting.to_svg(figure, title=caption, description=description)
    return {"caption": caption, "svg": svg, **facts}


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


def _radii(path: Radii | None) -> Chart | None:
    """Draw validation losses against radii; None if none is a number."""
    if path is None:
        return None
    radii, losses = np.asarray(path.radii), np.reshape(path.validation, (len(path.radii), -1))
    known = drawable(losses).all(axis=1) & drawable(radii, log=True)
    if not known.any():
        return None
    found = Path(radii[known], [], losses[known])
    best, least = found.radii[found.best], losses[known].mean(axis=1).min()
    described = f"Least, {number(least)}, at a radius of {number(best)}."
    facts = {"radii": found.radii, "folds": losses.shape[1], "best": best, "least": least}
    draw = plotting.PathDisplay(found).plot
    return _chart("Validation loss against the radius", described, draw, **facts)
