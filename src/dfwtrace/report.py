"""A run as one page that people can pass on."""

from __future__ import annotations

import base64
import hashlib
import math
import os
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime
from functools import partial
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
from dfwtrace.validation import describe

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Report", "Worst", "require_report", "write_report"]

MOST_WORST = 50  # rows of the table of classes or tasks, at most
_LONGEST_NAME = 160
_MANY_EPOCHS = 100  # from here on their axis is logarithmic: steps become small with time
_BLOCKS = 300  # of epochs that a line is drawn by: more could not be seen
_STYLES = {"certified": 0, "estimated": 1}  # the same colour and marker in all charts
_PACKAGES = ("dfwtrace", "numpy", "scipy", "numba", "scikit-learn", "pyspark")


def number(value: SupportsFloat | None, digits: int = 4) -> str:
    """Return a number in a few digits; a dash where there is none."""
    if value is None or value != value:
        return "—"
    if isinstance(value, int | np.integer):
        return f"{int(value):,}".replace("-", "−")
    value = float(value)
    text = f"{value:,.{digits}g}".replace("inf", "∞")
    mantissa, _, exponent = text.partition("e")
    if exponent and 1.0 <= abs(value) < 1e9:
        text = f"{value:,.0f}"
    elif exponent:
        text = f"{mantissa}×10{str(int(exponent)).translate(plotting.RAISED)}"
    return text.replace("-", "−")


def counted(count: int, noun: str) -> str:
    """Return a count and its noun, such as "1 epoch" or "2,000 epochs"."""
    return f"{number(count)} {noun}" + ("" if count == 1 else "s")


def duration(seconds: float) -> str:
    """Return seconds as people say them, such as "4.2 ms" or "1 h 2 min"."""
    if not math.isfinite(seconds):
        return number(seconds)
    if 0.0 != seconds < 0.9995e-3:
        return f"{number(1e6 * seconds, 3)} µs"
    if 0.0 != seconds < 0.9995:
        return f"{number(1e3 * seconds, 3)} ms"
    if seconds < 59.95:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60:,} h {minutes % 60} min"


def size(n_bytes: float) -> str:
    """Return bytes in the unit that fits, such as "1.5 KiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if n_bytes < 1024.0:
            return f"{n_bytes:.3g} {unit}"
        n_bytes /= 1024.0
    return f"{number(float(n_bytes), 3)} TiB"


def name(text: object) -> str:
    """Return a name that can be shown: one line, not endless, U+FFFD for what HTML forbids."""
    forbidden = ("Cc", "Cs", "Cn")  # control characters, halves of surrogate pairs, noncharacters
    shown = re.sub(r"\s", " ", str(text))
    shown = shown if len(shown) <= _LONGEST_NAME else shown[: _LONGEST_NAME - 1] + "…"
    return "".join("\ufffd" if category(one) in forbidden else one for one in shown).strip()


def machine_here() -> dict[str, str]:
    """Return what this machine is; neither its name nor its user's, since reports are passed on."""
    machine = {
        "System": f"{platform.system()} {platform.release()}",
        "Processor": platform.machine(),
        "Cores": str(os.cpu_count() or "unknown"),
    }
    with suppress(AttributeError, OSError, ValueError):  # not on every system
        machine["Memory"] = size(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return machine


def versions_here() -> dict[str, str]:
    """Return the versions of Python and of the installed packages that a result depends on."""
    versions = {"Python": platform.python_version()}
    for package in _PACKAGES:
        with suppress(PackageNotFoundError):  # an extra that is not installed
            versions[package] = version(package)
    return versions


def _now() -> str:
    return datetime.now().astimezone().isoformat(sep=" ", timespec="minutes").replace("+", " +")


@dataclass(frozen=True)
class Worst:
    """A class or task with a large error.

    Parameters
    ----------
    name : str
    count : int
        Its number of rows.
    error : float

    Examples
    --------
    >>> Worst("transfer", 30, 0.2).error
    0.2
    """

    name: str
    count: int
    error: float


@dataclass(frozen=True, eq=False)
class Report:
    """All that a report page shows.

    Parameters
    ----------
    result : Result
        What `solve` returned.
    task : {"classification", "regression"}
    radius : float
        Bound of the trace norm.
    title : str or None, default=None
        Heading of the page; None makes one.
    solver, engine, source : str, default=""
        How and from what it was learned.
    tol : float or None, default=None
        Relative gap that was asked for.
    path : Path or None, default=None
        Shown if it has validation losses.
    where : sequence of (str, str), default=()
        What was done, and where it ran.
    scores : mapping of str to float, default={}
        Scores of the model, by name.
    worst : sequence of Worst, default=()
        The classes or tasks with the largest errors, the worst first.
    when : str
        Time of the run; by default now.
    versions, machine : mapping of str to str
        By default those here.

    Examples
    --------
    >>> import dfwtrace as dt
    >>> X, y, _ = dt.datasets.make_multiclass(n=200, d=10, m=4, rank=2, seed=0)
    >>> result = dt.solve(dt.Multinomial(), X, y, radius=5.0, epochs=5)
    >>> dt.report.Report(result, task="classification", radius=5.0).task
    'classification'
    """

    result: Result
    _: KW_ONLY
    task: Literal["classification", "regression"]
    radius: float
    title: str | None = None
    solver: str = ""
    engine: str = ""
    source: str = ""
    tol: float | None = None
    path: Path | None = None
    where: Sequence[tuple[str, str]] = ()
    scores: Mapping[str, float] = field(default_factory=dict)
    worst: Sequence[Worst] = ()
    when: str = field(default_factory=_now)
    versions: Mapping[str, str] = field(default_factory=versions_here)
    machine: Mapping[str, str] = field(default_factory=machine_here)

    def __post_init__(self) -> None:
        if not isinstance(self.result, Result):
            raise TypeError(f"result must be a Result, got {describe(self.result)}.")
        if self.task not in ("classification", "regression"):
            task = describe(self.task)
            raise ValueError(f'task must be "classification" or "regression", got {task}.')
        if not isinstance(self.path, Path | None):
            raise TypeError(f"path must be a Path or None, got {describe(self.path)}.")

    @classmethod
    def of_result(cls, result: Result, **facts: Any) -> Report:
        """Make the report of a run; `facts` are the other parameters of `Report`."""
        return cls(result, **facts)


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

    Examples
    --------
    >>> import tempfile
    >>> import dfwtrace as dt
    >>> X, Y, _ = dt.datasets.make_multitask(n=200, d=10, m=4, rank=2, seed=0)
    >>> result = dt.solve(dt.LeastSquares(), X, Y, radius=1.0, epochs=5)
    >>> with tempfile.NamedTemporaryFile(suffix=".html") as page:
    ...     write_report(page.name, Report(result, task="regression", radius=1.0))
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
    environment.filters.update(number=number, duration=duration, size=size, shown=name)
    environment.filters["digest"] = _digest
    history = content.result.history
    seconds = float(history[-1]["seconds"]) if history else math.nan
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # the page does not depend on the style of the caller's pictures
        matplotlib.rcParams["font.size"] = 11.0
        return environment.get_template("report.html.jinja").render(
            report=content,
            seconds=seconds,
            colours=plotting.page_colours(),
            most_worst=MOST_WORST,
            convergence=_convergence(content, seconds),
            spectrum=_spectrum(content.result.W.singular_values),
            traffic=_traffic(history),
            radii=_radii(content.path),
        )


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _chart(caption: str, description: str, draw: Callable[[Axes], object]) -> dict[str, Any]:
    """Return a picture with its caption."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.6, 3.5), layout="constrained")
    draw(figure.subplots())
    svg = plotting.to_svg(figure, title=caption, description=description)
    return {"caption": caption, "svg": svg}


def _thinned(label: str, x: FloatArray, y: FloatArray, x_log: bool) -> Series:
    """Return a line of at most twice as many points as blocks: peaks and valleys stay."""
    known = np.flatnonzero(drawable(y))
    if known.size > 2 * _BLOCKS:
        edges = (np.geomspace if x_log else np.linspace)(1, known.size, _BLOCKS + 1)
        blocks = np.split(known, np.unique(edges.astype(int)))
        ends = {(part[y[part].argmin()], part[y[part].argmax()]) for part in blocks if part.size}
        known = np.unique(np.array(list(ends)))
    return Series(label, x[known], y[known], style=_STYLES.get(label))


def _against(
    by: str,
    history: History,
    columns: Mapping[str, FloatArray],
    tol: float | None = None,
    **options: Any,
) -> Callable[[Axes], object]:
    """Return what draws columns against epochs or seconds."""
    x, x_log = column(history, by), by == "epoch" and len(history) >= _MANY_EPOCHS
    series = [_thinned(label, x, y, x_log) for label, y in columns.items()]
    if tol is not None:  # below the others: a gap that reaches it must be seen
        series.insert(0, Series("tolerance", x[[0, -1]], [tol, tol], dashed=True, style=2))
    return partial(plotting.draw_lines, series=series, x_label=by, x_log=x_log, **options)


def _convergence(report: Report, seconds: float) -> list[dict[str, Any]]:
    """Draw objective and gap against epochs and seconds, where the run recorded them."""
    result, history = report.result, report.result.history
    scale = abs(result.objective_at_zero)  # as for `relative_gap`
    scale = scale if drawable(np.array(scale), log=True) else 1.0
    gaps = {
        label: gap
        for label, key in (("estimated", "gap_estimate"), ("certified", "gap"))
        if drawable(gap := column(history, key) / scale, log=True).any()
    }
    objective = column(history, "objective")
    columns, shown = {"objective": objective}, objective[drawable(objective)]
    wide = bool(shown.size) and 0.0 < 30.0 * shown.min() < shown.max()
    last = "not known" if math.isnan(result.gap) else number(result.relative_gap)
    extents = ("epoch", counted(len(history), "epoch")), ("seconds", duration(seconds))
    objectives, relative_gaps = [], []
    for by, extent in extents:
        caption = "by epochs" if by == "epoch" else "by seconds"
        if shown.size:
            described = f"From {number(shown[0])} to {number(shown[-1])} in {extent}."
            draw = _against(by, history, columns, y_label="objective F(W)", y_log=wide)
            objectives.append(_chart(f"Objective, {caption}", described, draw))
        if gaps:
            described = f"The certified gap is {last} after {extent}."
            draw = _against(by, history, gaps, report.tol, y_label="gap / |F(0)|", y_log=True)
            relative_gaps.append(_chart(f"Relative gap, {caption}", described, draw))
    return objectives + relative_gaps


def _spectrum(values: FloatArray) -> dict[str, Any] | None:
    """Draw the singular values of W, and count those that make up most of it; None if W = 0."""
    values = values[drawable(values, log=True)]
    if values.size == 0:
        return None
    described = f"from {number(values.max())} to {number(values.min())}."
    described = f"{counted(values.size, 'singular value')}, {described}"
    display = plotting.SpectrumDisplay(values)
    leading = 1 + int(np.searchsorted(np.cumsum(values), 0.9 * values.sum()))
    return _chart("Singular values of W", described, display.plot) | {"leading": leading}


def _traffic(history: History) -> dict[str, Any] | None:
    """Draw the numbers sent in each epoch; None if none was."""
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
        _against("epoch", history, sent, y_label="numbers sent")(ax)
        ax.set_ylim(bottom=0.0)

    return _chart("Numbers sent in each epoch", described, draw)


def _radii(path: Path | None) -> dict[str, Any] | None:
    """Draw validation losses against radii; None if none is a number."""
    if path is None or path.validation is None:
        return None
    known = drawable(path.validation).all(axis=1) & drawable(path.radii, log=True)
    if not known.any():
        return None
    radii, losses = path.radii[known], path.validation[known]
    best, least = radii[losses.mean(axis=1).argmin()], losses.mean(axis=1).min()
    described = f"Least, {number(least)}, at a radius of {number(best)}."
    draw = plotting.PathDisplay(Path(radii, [], losses)).plot
    facts = {"radii": radii, "losses": losses, "best": best, "least": least}
    return _chart("Validation loss against the radius", described, draw) | facts
