"""A run as one page that people can pass on."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import math
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from dfwtrace._typing import FloatArray
from dfwtrace.files.atomic import atomic_write
from dfwtrace.plotting import (
    PathDisplay,
    Series,
    SpectrumDisplay,
    column,
    draw_lines,
    drawable,
    page_colours,
    to_svg,
)
from dfwtrace.report.numbers import counted, duration, name, number, size
from dfwtrace.result import History, Path, Result
from dfwtrace.validation import describe

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "Communication",
    "DataFacts",
    "Outcome",
    "Radii",
    "Report",
    "Settings",
    "Worst",
    "require_report",
    "write_report",
]

# From this ratio of the largest to the smallest objective on, its axis is logarithmic.
_WIDE = 30.0
# From this number of epochs on, their axis is logarithmic: steps become small with time.
_MANY_EPOCHS = 100
# A line has one colour and marker in all charts.
_STYLES = {"certified": 0, "estimated": 1}
# Blocks of epochs that a line is drawn by: more could not be seen.
_BLOCKS = 300
# Rows of the table of classes or tasks, at the most.
MOST_WORST = 50
_PACKAGES = ("dfwtrace", "numpy", "scipy", "numba", "scikit-learn", "pyspark")

TaskName = Literal["classification", "regression"]


class DataFacts(NamedTuple):
    """What was learned from; `targets` is the number of classes or of regression tasks."""

    rows: int
    features: int
    targets: int
    dtype: str = ""
    source: str = ""


class Settings(NamedTuple):
    """How it was learned; what is None or empty is left out of the page."""

    radius: float
    solver: str = ""
    tol: float | None = None
    engine: str = ""
    representation: str = ""
    shards: int | None = None


class Outcome(NamedTuple):
    """How the run ended; see `dfwtrace.Result`."""

    status: str
    message: str
    objective: float
    objective_at_zero: float
    gap: float
    relative_gap: float
    rank: int
    seconds: float
    epochs: int


class Communication(NamedTuple):
    """Totals of a run: rounds and numbers of the oracle, those of the rest, bytes on all wires."""

    rounds: int
    numbers: int
    other_rounds: int
    other_numbers: int
    bytes_on_wire: int


@dataclass(frozen=True)
class Worst:
    """A class or task with a large error: its name, its number of rows and its error."""

    name: str
    count: int
    error: float


class Radii(NamedTuple):
    """Validation losses of several radii, of shape (radii,) or (radii, folds)."""

    radii: FloatArray
    validation: FloatArray


def machine_here() -> dict[str, str]:
    """Return what this machine is; neither its name nor its user's, since reports are passed on.

    Examples
    --------
    >>> list(machine_here())[:2]
    ['System', 'Processor']
    """
    machine = {
        "System": f"{platform.system()} {platform.release()}",
        "Processor": platform.machine(),
        "Cores": str(os.cpu_count() or "unknown"),
    }
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not on every system
        return machine
    return {**machine, "Memory": size(memory)}


def versions_here() -> dict[str, str]:
    """Return the versions of Python and of the installed packages that a result depends on.

    Examples
    --------
    >>> list(versions_here())[:3]
    ['Python', 'dfwtrace', 'numpy']
    """
    versions = {"Python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:  # an extra that is not installed
            continue
    return versions


def _now() -> str:
    return datetime.now().astimezone().isoformat(sep=" ", timespec="minutes").replace("+", " +")


@dataclass(frozen=True, eq=False)
class Report:
    """All that a report page shows.

    Attributes
    ----------
    title : str
        Heading of the page.
    task : {"classification", "regression"}
        What was learned.
    data : DataFacts
        What it was learned from.
    settings : Settings
        How it was learned.
    outcome : Outcome
        How the run ended.
    history : History
        A record for each epoch, as of `dfwtrace.Result`.
    spectrum : array of shape (rank,)
        Singular values of W.
    communication : Communication or None, default=None
        What was sent.
    where : sequence of (str, str), default=()
        What was done, and where it ran.
    scores : mapping of str to float, default={}
        Scores of the model, by name.
    worst : sequence of Worst, default=()
        The classes or tasks with the largest errors, the worst first.
    path : Radii or None, default=None
        Validation losses of other radii.
    when : str
        Time of the run; by default now.
    versions, machine : mapping of str to str
        By default those here.

    Examples
    --------
    >>> import dfwtrace as dt
    >>> from dfwtrace.report import Report
    >>> X, y, _ = dt.datasets.make_multiclass(n=200, d=10, m=4, rank=2, seed=0)
    >>> result = dt.solve(dt.Multinomial(), X, y, radius=5.0, epochs=5)
    >>> report = Report.of_result(result, task="classification", radius=5.0)
    >>> report.data.rows, report.outcome.epochs, report.outcome.status
    (200, 5, 'max_epochs')
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
    when: str = field(default_factory=_now)
    versions: Mapping[str, str] = field(default_factory=versions_here)
    machine: Mapping[str, str] = field(default_factory=machine_here)

    def __post_init__(self) -> None:
        if self.task not in ("classification", "regression"):
            raise ValueError(
                f'task must be "classification" or "regression", got {describe(self.task)}.'
            )
        if not isinstance(self.history, History):
            raise TypeError(f"history must be a History, got {describe(self.history)}.")
        spectrum = np.asarray(self.spectrum, dtype=np.float64)
        if spectrum.ndim != 1:
            raise ValueError(f"spectrum must be one list of numbers, got shape {spectrum.shape}.")
        object.__setattr__(self, "spectrum", spectrum)  # a plain list will do
        if self.path is not None:
            radii, validation = np.asarray(self.path.radii), np.asarray(self.path.validation)
            if radii.ndim != 1 or validation.ndim not in (1, 2) or len(radii) != len(validation):
                raise ValueError(
                    "path must have validation losses for each radius, got radii of shape "
                    f"{radii.shape} and losses of shape {validation.shape}."
                )

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
        """Make the report of a run.

        Parameters
        ----------
        result : Result
            What `solve` returned.
        task : {"classification", "regression"}
            What was learned.
        radius : float
            Bound of the trace norm.
        title : str or None, default=None
            Heading; None makes one.
        solver, engine, source : str, default=""
            As in `Settings` and `DataFacts`.
        tol : float or None, default=None
            Relative gap that was asked for.
        path : Path or None, default=None
            Shown if it has validation losses.
        **more
            Further attributes of `Report`: where, scores, worst, when, versions, machine.

        Returns
        -------
        Report
            Content for `write_report`.
        """
        w = result.plan.workload
        kind = "sparse" if w.sparse else "dense"
        radii = None
        if path is not None and path.validation is not None:
            radii = Radii(path.radii, path.validation)
        seconds = float(result.history[-1]["seconds"]) if result.history else math.nan
        outcome = Outcome(
            result.status,
            result.message,
            result.objective,
            result.objective_at_zero,
            result.gap,
            result.relative_gap,
            result.W.rank,
            seconds,
            len(result.history),
        )
        return cls(
            title=f"Low-rank {task}" if title is None else title,
            task=task,
            data=DataFacts(w.n, w.d, w.m, f"{kind} float{8 * w.itemsize}", source),
            settings=Settings(radius, solver, tol, engine, result.plan.representation, w.n_shards),
            outcome=outcome,
            history=result.history,
            spectrum=result.W.singular_values,
            communication=_communication(result.rounds),
            path=radii,
            **more,
        )


def _communication(rounds: History) -> Communication:
    oracle = [made for made in rounds if made["oracle"]]
    numbers, of_oracle = (
        sum(int(made["numbers_sent"]) for made in some) for some in (rounds, oracle)
    )
    n_bytes = sum(int(made["bytes_on_wire"]) for made in rounds)
    others = len(rounds) - len(oracle)
    return Communication(len(oracle), of_oracle, others, numbers - of_oracle, n_bytes)


def require_report() -> None:
    """Raise an error that names what to install if a package for reports is missing.

    Raises
    ------
    ImportError
        Jinja or matplotlib is missing.

    Examples
    --------
    >>> from dfwtrace.report import require_report
    >>> require_report()
    """
    packages = ("jinja2", "matplotlib")
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    if missing:
        raise ImportError(
            f"a report needs {' and '.join(missing)}: pip install 'dfwtrace[report]'."
        )


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

    Raises
    ------
    ImportError
        Jinja or matplotlib is missing.
    OSError
        The file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import dfwtrace as dt
    >>> from dfwtrace.report import Report, write_report
    >>> X, Y, _ = dt.datasets.make_multitask(n=200, d=10, m=4, rank=2, seed=0)
    >>> result = dt.solve(dt.LeastSquares(), X, Y, radius=1.0, epochs=5)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = Path(folder) / "report.html"
    ...     write_report(page, Report.of_result(result, task="regression", radius=1.0))
    ...     page.read_text("utf-8").startswith("<!doctype html>")
    True
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
    from markupsafe import Markup

    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(
        number=number, duration=duration, size=size, shown=name, digest=_digest
    )
    own = files("dfwtrace.report").joinpath("report.html.jinja")
    template = environment.from_string(own.read_text("utf-8"))
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # the page does not depend on the style of the caller's pictures
        matplotlib.rcParams["font.size"] = 11.0
        charts = {
            "convergence": _convergence(content),
            "spectrum": _spectrum(content.spectrum),
            "traffic": _traffic(content.history),
            "radii": None if content.path is None else _radii(content.path),
        }
    return template.render(
        report=content,
        **charts,
        # Made by this package and escaped there: the only text that is taken as it is.
        draw=lambda chart: Markup(chart.svg),
        colours=Markup(page_colours()),
        most_worst=MOST_WORST,
        trace_norm=float(content.spectrum.sum()),
        leading=_leading(content.spectrum),
    )


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _leading(spectrum: FloatArray) -> str:
    """Say how many singular values make up nine tenths of their sum, if that says anything."""
    total = spectrum.sum()
    if spectrum.size < 2 or not (np.isfinite(total) and total > 0.0):
        return ""
    count = 1 + int(np.searchsorted(np.cumsum(spectrum), 0.9 * total))
    return f"in the first {count}" if count > 1 else "in the first one"


class _Chart(NamedTuple):
    """A picture with its caption, and the numbers of a table beside it."""

    caption: str
    svg: str
    facts: Mapping[str, str]


def _chart(
    caption: str,
    description: str,
    draw: Callable[[Axes], object],
    facts: Mapping[str, str] | None = None,
) -> _Chart:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.6, 3.5), layout="constrained")
    draw(figure.subplots())
    return _Chart(caption, to_svg(figure, title=caption, description=description), facts or {})


def _thinned(label: str, x: FloatArray, y: FloatArray, x_log: bool) -> Series:
    """Return a line of at most twice as many points as blocks: peaks and valleys stay."""
    known = np.flatnonzero(drawable(y))
    if known.size > 2 * _BLOCKS:
        edges = (np.geomspace if x_log else np.linspace)(1, known.size, _BLOCKS + 1)
        blocks = np.split(known, np.unique(edges.astype(int)))
        ends = {(part[y[part].argmin()], part[y[part].argmax()]) for part in blocks if part.size}
        known = np.unique(np.array(list(ends)))
    return Series(label, x[known], y[known], style=_STYLES.get(label))


def _convergence(report: Report) -> list[_Chart]:
    """Draw objective and gap against epochs and seconds, where the run recorded them."""
    history, outcome, tol = report.history, report.outcome, report.settings.tol
    objective = column(history, "objective")
    shown = objective[drawable(objective)]
    wide = bool(shown.size) and 0.0 < _WIDE * shown.min() < shown.max()
    scale = abs(outcome.objective_at_zero)  # as for `Result.relative_gap`
    relative = scale if drawable(np.array(scale), log=True) else 1.0
    gaps = {
        label: gap
        for label, key in (("estimated", "gap_estimate"), ("certified", "gap"))
        if drawable(gap := column(history, key) / relative, log=True).any()
    }
    last = "not known" if math.isnan(outcome.relative_gap) else number(outcome.relative_gap)
    objectives, relative_gaps = [], []
    for key, extent in (
        ("epoch", counted(len(history), "epoch")),
        ("seconds", duration(outcome.seconds)),
    ):
        x = column(history, key)
        x_log = key == "epoch" and len(history) >= _MANY_EPOCHS
        draw = partial(draw_lines, x_label=key, x_log=x_log)
        by = "by epochs" if key == "epoch" else "by seconds"
        if shown.size:
            series = [_thinned("objective", x, objective, x_log)]
            described = f"From {number(shown[0])} to {number(shown[-1])} in {extent}."
            lines = partial(draw, series=series, y_label="objective F(W)", y_log=wide)
            objectives.append(_chart(f"Objective, {by}", described, lines))
        if gaps:
            series = [_thinned(label, x, gap, x_log) for label, gap in gaps.items()]
            if tol is not None:  # below the others: a gap that reaches it must be seen
                wanted = Series("tolerance", x[[0, -1]], [tol, tol], dashed=True, style=2)
                series = [wanted, *series]
            described = f"The certified gap is {last} after {extent}."
            lines = partial(draw, series=series, y_label="gap / |F(0)|", y_log=True)
            relative_gaps.append(_chart(f"Relative gap, {by}", described, lines))
    return objectives + relative_gaps


def _spectrum(values: FloatArray) -> _Chart | None:
    """Draw the singular values of W; None if W = 0."""
    values = values[drawable(values, log=True)]
    if values.size == 0:
        return None
    described = f"from {number(values.max())} to {number(values.min())}."
    described = f"{counted(values.size, 'singular value')}, {described}"
    return _chart("Singular values of W", described, SpectrumDisplay(values).plot)


def _traffic(history: History) -> _Chart | None:
    """Draw the numbers sent in each epoch; None if none was."""
    x = column(history, "epoch")
    sent = {
        label: numbers
        for label, key in (("oracle", "numbers_sent"), ("the rest", "other_numbers"))
        if np.nansum(numbers := column(history, key)) > 0.0
    }
    if not sent:
        return None
    total = int(sum(np.nansum(numbers) for numbers in sent.values()))
    described = f"{number(total)} numbers in {counted(len(history), 'epoch')}."

    def draw(ax: Axes) -> None:
        many = len(history) >= _MANY_EPOCHS
        series = [_thinned(label, x, numbers, many) for label, numbers in sent.items()]
        draw_lines(ax, series, x_label="epoch", y_label="numbers sent", x_log=many)
        ax.set_ylim(bottom=0.0)

    return _chart("Numbers sent in each epoch", described, draw)


def _radii(path: Radii) -> _Chart | None:
    """Draw validation losses against radii; None if none is a number."""
    radii = np.asarray(path.radii, dtype=np.float64)
    losses = np.asarray(path.validation, dtype=np.float64).reshape(len(radii), -1)
    shown = drawable(losses).all(axis=1) & drawable(radii, log=True)
    if not shown.any():
        return None
    radii, losses = radii[shown], losses[shown]
    mean = losses.mean(axis=1)
    best = int(np.argmin(mean))
    display = PathDisplay(Path(radii, [], losses), best=radii[best])
    facts = {
        "Best radius": number(radii[best]),
        "Its validation loss": number(mean[best]),
        "Radii tried": number(len(path.radii)),
        "From": number(radii.min()),
        "To": number(radii.max()),
        "Folds": number(losses.shape[1]),
    }
    described = f"Least, {number(mean[best])}, at a radius of {number(radii[best])}."
    return _chart("Validation loss against the radius", described, display.plot, facts)
