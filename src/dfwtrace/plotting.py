"""Draw runs with matplotlib: lines that differ without their colours, displays, SVG for pages."""

from __future__ import annotations

import hashlib
import io
import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import numpy.typing as npt

from dfwtrace._typing import FloatArray
from dfwtrace.result import History, Path, Result
from dfwtrace.validation import check_positive, describe

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.collections import PathCollection
    from matplotlib.container import BarContainer
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.lines import Line2D

__all__ = [
    *("ConvergenceDisplay", "PathDisplay", "SpectrumDisplay"),
    *("Series", "draw_lines", "to_svg"),
]

#: Colours in the light and in the dark, far apart also for readers who confuse red and green.
COLOURS = {
    "tone1": ("#1f5fae", "#7fb2f5"),
    "tone2": ("#b2590d", "#f0a35e"),
    "tone3": ("#0b7566", "#2fd6ae"),
    "tone4": ("#a531c9", "#c95fe0"),
    "tone5": ("#171b1f", "#f3f5f9"),
    "tone6": ("#9c1b38", "#f0504a"),
    "tone7": ("#6e9e08", "#e8ec5a"),
    "tone8": ("#df62af", "#7b858f"),
    "rule": ("#dde2e8", "#303a46"),
    "sheet": ("#ffffff", "#1a2028"),
}
TONES = tuple(light for name, (light, _) in COLOURS.items() if name.startswith("tone"))
# Nine shapes and eight colours: no two of 72 lines have both in common.
MARKERS = "osD^xv+P*"
#: Digits as exponents; unlike mathtext they become plain text in an SVG.
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

# Of more points than this, some have a marker, evenly along the line.
_FEW = 12
# Larger or smaller numbers are left out: ratios of the others do not overflow.
_LARGEST, _SMALLEST = 1e250, 1e-250
_MOST_BARS = 120
# From this ratio of the largest to the smallest singular value on, their axis is logarithmic.
_WIDE = 1000.0


def require_matplotlib() -> None:
    """Raise an error that names what to install if matplotlib is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install 'dfwtrace[plots]'.") from error


@dataclass(frozen=True, eq=False)
class Series:
    """A line of a chart.

    Parameters
    ----------
    label : str
        Its name in the legend.
    x, y : array-like of shape (n,)
        Points; those that are not finite, or that a logarithmic axis cannot show, are left out.
    dashed : bool, default=False
        For what was not measured: a bound, a tolerance, a simulation.
    style : int or None, default=None
        Which colour and marker to take, from 0; None takes the place in the list of lines.

    Examples
    --------
    >>> from dfwtrace.plotting import Series
    >>> Series("tolerance", [1, 100], [1e-3, 1e-3], dashed=True).label
    'tolerance'
    """

    label: str
    x: npt.ArrayLike
    y: npt.ArrayLike
    _: KW_ONLY
    dashed: bool = False
    style: int | None = None


def draw_lines(
    ax: Axes,
    series: Sequence[Series],
    *,
    x_label: str,
    y_label: str,
    title: str | None = None,
    x_log: bool = False,
    y_log: bool = False,
) -> list[Line2D]:
    """Draw lines that differ in colour and marker, with a legend if the axes show several.

    Parameters
    ----------
    ax : Axes
        Where to draw.
    series : sequence of Series
        The lines, the first one below the others.
    x_label, y_label : str
        Names of the axes.
    title : str or None, default=None
        Title above the axes.
    x_log, y_log : bool, default=False
        Whether an axis is logarithmic.

    Returns
    -------
    list of Line2D
        One for each series; without points if none can be shown.

    Examples
    --------
    >>> from dfwtrace.plotting import Series, draw_lines
    >>> from matplotlib.figure import Figure
    >>> gaps = Series("gap", [1, 2, 3], [0.1, 0.0, 0.01])
    >>> (line,) = draw_lines(Figure().subplots(), [gaps], x_label="x", y_label="y", y_log=True)
    >>> line.get_xdata()
    array([1., 3.])
    """
    lines, whole = [], True
    for place, one in enumerate(series):
        x, y = np.asarray(one.x, dtype=np.float64), np.asarray(one.y, dtype=np.float64)
        shown = drawable(x, log=x_log) & drawable(y, log=y_log)
        style = place if one.style is None else one.style
        lines += ax.plot(
            x[shown],
            y[shown],
            label=one.label,
            color=TONES[style % len(TONES)],
            linestyle="--" if one.dashed else "-",
            linewidth=1.6,
            marker=MARKERS[style % len(MARKERS)],
            markersize=4.5,
            # Each line begins elsewhere: lines that coincide show their markers in turn.
            markevery=None if shown.sum() <= _FEW else (0.03 * (place % 5), 0.15),
        )
        whole = whole and not np.any(x[shown] % 1.0)
    _set_scale(ax.xaxis, x_log, whole)
    _set_scale(ax.yaxis, y_log)
    ax.set(xlabel=x_label, ylabel=y_label)
    if title is not None:
        ax.set_title(title, loc="left")
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="y", color=COLOURS["rule"][0], linewidth=0.8)
    ax.set_axisbelow(True)
    if len(ax.get_legend_handles_labels()[0]) > 1:
        ax.legend(loc="best", edgecolor="none")
    return lines


def drawable(values: FloatArray, *, log: bool = False) -> npt.NDArray[np.bool_]:
    """Return which values an axis can show."""
    size = np.abs(values)
    return (values > _SMALLEST) & (size < _LARGEST) if log else size < _LARGEST


def _set_scale(axis: Axis, log: bool, whole: bool = False) -> None:
    """Give an axis few ticks, at round numbers."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

    if not log:
        axis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10], integer=whole))
        return
    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    low, high = axis.get_data_interval()
    subs: tuple[float, ...] = (1.0, 2.0, 3.0, 5.0, 7.0)
    if high > 10.0 * low:
        subs = (1.0, 2.0, 5.0) if high < 100.0 * low else (1.0,)
    axis.set_major_locator(LogLocator(subs=subs, numticks=6))
    axis.set_major_formatter(lambda value, _: _tick_label(value))
    axis.set_minor_formatter(NullFormatter())


def _tick_label(value: float) -> str:
    mantissa, _, exponent = f"{value:g}".partition("e")
    power = f"×10{str(int(exponent)).translate(RAISED)}" if exponent else ""
    return (mantissa + power).removeprefix("1×")


def to_svg(figure: Figure, *, title: str = "", description: str = "") -> str:
    """Return a figure as an ``<svg>`` element for an HTML page.

    The same figure gives the same text. Words stay text in the page's font; black becomes the text
    colour of the page, and the colours of `COLOURS` become CSS variables such as ``--tone1``, with
    the light colour where a page has none (`page_colours` gives it both). There are no style
    attributes and no scripts. Names inside the element are its own, so that a page can hold many.

    Parameters
    ----------
    figure : Figure
        What was drawn.
    title : str, default=""
        What the picture shows, for screen readers; by default the titles of its axes.
    description : str, default=""
        More about it, also for screen readers.

    Returns
    -------
    str
        The element, without an XML prolog.

    Examples
    --------
    >>> from dfwtrace.plotting import SpectrumDisplay, to_svg
    >>> from matplotlib.figure import Figure
    >>> figure = Figure()
    >>> _ = SpectrumDisplay([3.0, 1.0]).plot(figure.subplots())
    >>> svg = to_svg(figure, title="a < b")
    >>> svg.startswith("<svg"), "a &lt; b</title>" in svg, "var(--tone1, #1f5fae)" in svg
    (True, True, True)
    """
    from matplotlib import rc_context

    file = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "dfwtrace"}):
        figure.savefig(file, format="svg", metadata={"Date": None}, transparent=True)
    text = file.getvalue()
    titles = [ax.get_title(loc) for ax in figure.axes for loc in ("left", "center", "right")]
    title = title or ", ".join(filter(None, titles)) or "Chart"
    key = "p" + hashlib.sha256(f"{title}\n{description}\n{text}".encode()).hexdigest()[:10]
    referred = dict.fromkeys(re.findall(r'(?:href="|url\()#(\w+)', text))
    ids = {own: f"{key}-{place}" for place, own in enumerate(referred)}
    drawn = ET.fromstring(text)
    svg = ET.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "class": "chart"})
    svg.attrib |= {"viewBox": drawn.attrib["viewBox"], "role": "img", "fill": "currentColor"}
    svg.attrib |= {"stroke-linejoin": "round", "aria-labelledby": f"{key}-title {key}-desc"}
    ET.SubElement(svg, "title", id=f"{key}-title").text = title
    ET.SubElement(svg, "desc", id=f"{key}-desc").text = description
    for part in drawn:
        # The first definitions are a style sheet, which would apply to the whole page.
        if not part.tag.endswith("metadata") and part.find("{*}style") is None:
            for element in part.iter():
                _adapt(element, ids)
            svg.append(part)
    return ET.tostring(svg, encoding="unicode")


def _adapt(element: ET.Element, ids: dict[str, str]) -> None:
    """Turn styles into attributes, shorten numbers, and replace colours and ids."""
    element.tag = element.tag.rpartition("}")[2]
    element.text = element.text if element.tag in ("text", "tspan") else None
    element.tail = None
    attributes = {name.rpartition("}")[2]: text for name, text in element.attrib.items()}
    for declaration in filter(None, attributes.pop("style", "").split("; ")):
        name, _, text = declaration.partition(": ")
        if name == "font":  # of matplotlib 3.9: size and families in one
            name, text = "font-size", re.findall(r"[\d.]+px", text)[0]
        if name != "font-family":
            attributes[name] = _PAGE_COLOURS.get(text, text)
    for name in {"d", "x", "y", "width", "height", "transform"} & attributes.keys():
        rounded = re.sub(r"-?\d+\.\d+", lambda at: f"{float(at[0]):.2f}", attributes[name])
        attributes[name] = " ".join(rounded.split())
    for name in {"href", "clip-path"} & attributes.keys():
        attributes[name] = re.sub(r"#(\w+)", lambda at: "#" + ids[at[1]], attributes[name])
    own = attributes.pop("id", "")
    element.attrib = attributes | ({"id": ids[own]} if own in ids else {})


_PAGE_COLOURS = {light: f"var(--{name}, {light})" for name, (light, _) in COLOURS.items()}
_PAGE_COLOURS["#000000"] = "currentColor"


def page_colours() -> str:
    """Return the CSS that gives a page the colours of its pictures, light and dark."""
    light, dark = (
        " ".join(f"--{name}: {pair[theme]};" for name, pair in COLOURS.items()) for theme in (0, 1)
    )
    return (
        f":root {{ color-scheme: light dark; {light} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"
        f"@media print {{ :root {{ {light} }} }}\n"
    )


class _Display:
    figure_: Figure | SubFigure
    ax_: Axes

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw on `ax`, or in a new figure, as often as wanted."""
        if ax is None:
            require_matplotlib()
            from matplotlib import pyplot

            _, ax = pyplot.subplots()
        self.ax_, self.figure_ = ax, ax.figure
        self._draw(ax)
        return self

    def _draw(self, ax: Axes) -> None:
        raise NotImplementedError


class ConvergenceDisplay(_Display):
    """Duality gap or objective of a run, by epochs or by seconds.

    Parameters
    ----------
    history : History
        Records of the run.
    against : {"epoch", "seconds"}, default="epoch"
        The horizontal axis.
    what : {"gap", "objective"}, default="gap"
        With "gap", the certified gap, which is an upper bound of F(W) - F*, and the oracle's
        estimate of it.

    Attributes
    ----------
    line_, estimate_line_ : Line2D, Line2D or None
        The certified gap or the objective, and the estimated gap.
    ax_, figure_ : Axes, Figure
        What was drawn on.

    Examples
    --------
    >>> import dfwtrace as dt
    >>> from matplotlib.figure import Figure
    >>> X, Y, _ = dt.datasets.make_multitask(n=200, d=10, m=8, rank=2, noise=0.3, seed=0)
    >>> result = dt.solve(dt.LeastSquares(), X, Y, radius=1.0, epochs=20, certify_every=5)
    >>> display = dt.plotting.ConvergenceDisplay.from_result(result, ax=Figure().subplots())
    >>> display.line_.get_xdata()
    array([ 5., 10., 15., 20.])
    """

    line_: Line2D
    estimate_line_: Line2D | None

    def __init__(
        self,
        history: History,
        *,
        against: Literal["epoch", "seconds"] = "epoch",
        what: Literal["gap", "objective"] = "gap",
    ) -> None:
        if not isinstance(history, History):
            raise TypeError(f"history must be a History, got {describe(history)}.")
        if against not in ("epoch", "seconds"):
            raise ValueError(f'against must be "epoch" or "seconds", got {describe(against)}.')
        if what not in ("gap", "objective"):
            raise ValueError(f'what must be "gap" or "objective", got {describe(what)}.')
        self.history, self.against, self.what = history, against, what

    @classmethod
    def from_result(cls, result: Result, ax: Axes | None = None, **options: Any) -> Self:
        """Draw what `solve` returned; `options` are `against` and `what`."""
        return cls(result.history, **options).plot(ax)

    @classmethod
    def from_estimator(cls, estimator: object, ax: Axes | None = None, **options: Any) -> Self:
        """Draw the run of a fitted estimator; `options` are `against` and `what`."""
        return cls(_fitted(estimator, "history_"), **options).plot(ax)

    def _draw(self, ax: Axes) -> None:
        labels = {"gap_estimate": "estimated gap", "gap": "certified gap"}
        if self.what == "objective":
            labels = {"objective": "objective"}
        x = column(self.history, self.against)
        series = [Series(label, x, column(self.history, name)) for name, label in labels.items()]
        *estimate, self.line_ = draw_lines(
            ax, series, x_label=self.against, y_label=self.what, y_log=self.what == "gap"
        )
        self.estimate_line_ = estimate[0] if estimate else None


class SpectrumDisplay(_Display):
    """The singular values of W.

    Parameters
    ----------
    singular_values : array-like of shape (rank,)
        The values.

    Attributes
    ----------
    bars_, line_ : BarContainer or None, Line2D or None
        Bars for up to 120 values, a line for more.
    ax_, figure_ : Axes, Figure
        What was drawn on.

    Examples
    --------
    >>> from dfwtrace.plotting import SpectrumDisplay
    >>> from matplotlib.figure import Figure
    >>> display = SpectrumDisplay([3.0, 1.0]).plot(Figure().subplots())
    >>> len(display.bars_)
    2
    """

    bars_: BarContainer | None
    line_: Line2D | None

    def __init__(self, singular_values: npt.ArrayLike) -> None:
        self.singular_values: FloatArray = np.asarray(singular_values, dtype=np.float64)
        if self.singular_values.ndim != 1:
            shape = self.singular_values.shape
            raise ValueError(f"singular_values must be one list, got shape {shape}.")

    @classmethod
    def from_result(cls, result: Result, ax: Axes | None = None) -> Self:
        """Draw the singular values of what `solve` returned."""
        return cls(result.W.singular_values).plot(ax)

    @classmethod
    def from_estimator(cls, estimator: object, ax: Axes | None = None) -> Self:
        """Draw the singular values of a fitted estimator."""
        return cls(_fitted(estimator, "low_rank_").singular_values).plot(ax)

    def _draw(self, ax: Axes) -> None:
        values = self.singular_values
        index = np.arange(1, values.size + 1)
        log = values.size > 0 and 0.0 < _WIDE * values.min() < values.max()
        many = values.size > _MOST_BARS
        self.bars_ = None if many else ax.bar(index, values, color=TONES[0])
        series = [Series("singular value", index, values)] if many else []
        lines = draw_lines(ax, series, x_label="index", y_label="singular value", y_log=log)
        self.line_ = lines[0] if many else None


class PathDisplay(_Display):
    """Validation losses along the radii; without folds, the objectives.

    Parameters
    ----------
    path : Path
        Solutions along radii.
    best : float or None, default=None
        The radius to mark; None marks that with the least mean.

    Attributes
    ----------
    line_ : Line2D
        The mean over the folds, or the objectives.
    folds_, best_line_ : PathCollection or None, Line2D or None
        A dot for each fold, and a line at the radius that was chosen.
    ax_, figure_ : Axes, Figure
        What was drawn on.

    Examples
    --------
    >>> import dfwtrace as dt
    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> path = dt.Path(np.array([1.0, 3.0]), [], validation=np.array([[0.5, 0.7], [0.4, 0.3]]))
    >>> display = dt.plotting.PathDisplay.from_path(path, ax=Figure().subplots())
    >>> float(display.best_line_.get_xdata()[0])
    3.0
    """

    line_: Line2D
    folds_: PathCollection | None
    best_line_: Line2D | None

    def __init__(self, path: Path, *, best: float | None = None) -> None:
        if not isinstance(path, Path):
            raise TypeError(f"path must be a Path, got {describe(path)}.")
        self.path = path
        self.best = None if best is None else check_positive("best", best)

    @classmethod
    def from_path(cls, path: Path, ax: Axes | None = None) -> Self:
        """Draw what `path` returned."""
        return cls(path).plot(ax)

    @classmethod
    def from_estimator(cls, estimator: object, ax: Axes | None = None) -> Self:
        """Draw the path of a fitted estimator and mark its radius, chosen by its own score."""
        path, radius = (_fitted(estimator, name) for name in ("path_", "radius_"))
        return cls(path, best=radius).plot(ax)

    def _draw(self, ax: Axes) -> None:
        order = np.argsort(self.path.radii, kind="stable")
        radii, validation = self.path.radii[order], self.path.validation
        self.folds_ = self.best_line_ = None
        label = "objective" if validation is None else "validation loss"
        if validation is None:
            y = np.array([self.path.results[place].objective for place in order])
        else:
            losses = validation[order]
            y, at = losses.mean(axis=1), np.repeat(radii, losses.shape[1])
            shown = drawable(losses.ravel())
            self.folds_ = ax.scatter(
                at[shown], losses.ravel()[shown], s=9, color=TONES[1], label="each fold"
            )
            best = self.path.radii[self.path.best] if self.best is None else self.best
            self.best_line_ = ax.axvline(best, color=TONES[2], linestyle="--", label="best")
        series = [Series("mean", radii, y)]
        (self.line_,) = draw_lines(ax, series, x_label="radius", y_label=label, x_log=True)


def column(history: History, name: str) -> FloatArray:
    """Return a column of a history as floats; NaN everywhere if no record has it."""
    if name not in history.columns:
        return np.full(len(history), np.nan)
    return np.asarray(history.column(name), dtype=np.float64)


def _fitted(estimator: object, attribute: str) -> Any:
    try:
        return getattr(estimator, attribute)
    except AttributeError as error:
        raise TypeError(
            f"estimator must be fitted and have {attribute}, which {describe(estimator)} has not."
        ) from error
