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

# Of more points than this, some have a marker, evenly along the line.
_FEW = 12
# Larger or smaller numbers are left out: ratios of the others do not overflow.
_LARGEST, _SMALLEST = 1e250, 1e-250
_MOST_BARS = 120
# From this ratio of the largest to the smallest singular value on, their axis is logarithmic.
_WIDE = 1000.0
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


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
    """Draw lines that differ in colour and marker, with a legend if there are several.

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
    >>> ax = Figure().subplots()
    >>> gaps = Series("gap", [1, 2, 3], [0.1, 0.0, 0.01])
    >>> (line,) = draw_lines(ax, [gaps], x_label="epoch", y_label="gap", y_log=True)
    >>> line.get_xdata()
    array([1., 3.])
    """
    lines, shown_x = [], [np.empty(0)]
    for place, one in enumerate(series):
        x, y = np.asarray(one.x, dtype=np.float64), np.asarray(one.y, dtype=np.float64)
        shown = drawable(x, log=x_log) & drawable(y, log=y_log)
        style = place if one.style is None else one.style
        (line,) = ax.plot(
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
        lines.append(line)
        shown_x.append(x[shown])
    _set_scale(ax.xaxis, x_log, whole=not np.any(np.concatenate(shown_x) % 1.0))
    _set_scale(ax.yaxis, y_log)
    ax.set(xlabel=x_label, ylabel=y_label)
    if title is not None:
        ax.set_title(title, loc="left")
    _finish(ax, legend=len(lines) > 1)
    return lines


def drawable(values: FloatArray, *, log: bool = False) -> npt.NDArray[np.bool_]:
    """Return which values an axis can show."""
    size = np.abs(values)
    return (values > _SMALLEST) & (size < _LARGEST) if log else size < _LARGEST


def _set_scale(axis: Axis, log: bool, whole: bool = False) -> None:
    """Few ticks, labelled with plain characters: mathtext does not become text in an SVG."""
    from matplotlib.axis import XAxis
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

    if not log:
        axis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10], integer=whole))
        return
    (axis.axes.set_xscale if isinstance(axis, XAxis) else axis.axes.set_yscale)("log")
    low, high = axis.get_data_interval()
    subs: tuple[float, ...] = (1.0, 2.0, 3.0, 5.0, 7.0)
    if high > 10.0 * low:
        subs = (1.0, 2.0, 5.0) if high < 100.0 * low else (1.0,)
    axis.set_major_locator(LogLocator(subs=subs, numticks=6))
    axis.set_major_formatter(lambda value, _: _short(value))
    axis.set_minor_formatter(NullFormatter())


def _finish(ax: Axes, legend: bool = False) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="y", color=COLOURS["rule"][0], linewidth=0.8)
    ax.set_axisbelow(True)
    if legend:
        ax.legend(loc="best", edgecolor="none")


def _short(value: float) -> str:
    text = f"{value:g}"
    if "e" not in text:
        return text
    mantissa, exponent = text.split("e")
    power = "10" + str(int(exponent)).translate(_RAISED)
    return power if mantissa == "1" else f"{mantissa}×{power}"


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
    >>> from dfwtrace.plotting import Series, draw_lines, to_svg
    >>> from matplotlib.figure import Figure
    >>> figure = Figure(figsize=(5.6, 3.4), layout="constrained")
    >>> line = Series("F", [1, 2], [3.0, 1.0])
    >>> _ = draw_lines(figure.subplots(), [line], x_label="epoch", y_label="F", title="a < b")
    >>> svg = to_svg(figure)
    >>> svg.startswith("<svg"), "a &lt; b</title>" in svg, "var(--tone1, #1f5fae)" in svg
    (True, True, True)
    """
    from matplotlib import rc_context

    file = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "dfwtrace"}):
        figure.savefig(file, format="svg", metadata={"Date": None}, transparent=True)
    drawn = ET.fromstring(file.getvalue())
    svg = ET.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "class": "chart"})
    svg.attrib |= {"viewBox": drawn.attrib["viewBox"], "role": "img", "fill": "currentColor"}
    svg.attrib |= {"stroke-linejoin": "round", "aria-labelledby": "@title @desc"}
    titles = [ax.get_title(loc) for ax in figure.axes for loc in ("left", "center", "right")]
    named = title or ", ".join(filter(None, titles)) or "Chart"
    ET.SubElement(svg, "title", id="@title").text = named
    ET.SubElement(svg, "desc", id="@desc").text = description
    referred = dict.fromkeys(re.findall(r'(?:href="|url\()#(\w+)', file.getvalue()))
    ids = {own: f"@{place}" for place, own in enumerate(referred)}
    for part in drawn:
        # The first definitions are a style sheet, which would apply to the whole page.
        if not part.tag.endswith("metadata") and part.find("{*}style") is None:
            for element in part.iter():
                _adapt(element, ids)
            svg.append(part)
    key = "p" + hashlib.sha256(ET.tostring(svg)).hexdigest()[:10] + "-"
    for element in svg.iter():
        for name in {"id", "href", "clip-path", "aria-labelledby"} & element.attrib.keys():
            element.attrib[name] = element.attrib[name].replace("@", key)
    return ET.tostring(svg, encoding="unicode")


def _adapt(element: ET.Element, ids: dict[str, str]) -> None:
    """Make attributes of styles, shorten numbers, and replace colours and ids."""
    element.tag = element.tag.rpartition("}")[2]
    element.text = element.text if element.tag in ("text", "tspan") else None
    element.tail = None
    attributes = {name.rpartition("}")[2]: text for name, text in element.attrib.items()}
    for declaration in filter(None, attributes.pop("style", "").split("; ")):
        name, _, text = declaration.partition(": ")
        if name == "font":  # of matplotlib 3.9: size and families in one
            name, text = "font-size", re.findall(r"[\d.]+px", text)[0]
        if name != "font-family":
            attributes[name] = _page_colour(text)
    for name in {"d", "x", "y", "width", "height", "transform"} & attributes.keys():
        rounded = re.sub(r"-?\d+\.\d+", lambda at: f"{float(at[0]):.2f}", attributes[name])
        attributes[name] = " ".join(rounded.split())
    for name in {"href", "clip-path"} & attributes.keys():
        attributes[name] = re.sub(r"#(\w+)", lambda at: "#" + ids[at[1]], attributes[name])
    own = attributes.pop("id", "")
    element.attrib = attributes | ({"id": ids[own]} if own in ids else {})


def _page_colour(text: str) -> str:
    if text == "#000000":
        return "currentColor"
    name = next((name for name, (light, _) in COLOURS.items() if text == light), None)
    return text if name is None else f"var(--{name}, {text})"


def page_colours() -> str:
    """Return the CSS that gives a page the colours of its pictures, light and dark.

    Returns
    -------
    str
        Rules for ``:root``.

    Examples
    --------
    >>> from dfwtrace.plotting import page_colours
    >>> page_colours().splitlines()[0][:40]
    ':root { color-scheme: light dark; --tone'
    """
    light, dark = (
        " ".join(f"--{name}: {pair[theme]};" for name, pair in COLOURS.items()) for theme in (0, 1)
    )
    return (
        f":root {{ color-scheme: light dark; {light} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"
        f"@media print {{ :root {{ {light} }} }}\n"
    )


class _Display:
    """What all displays have once they are drawn."""

    figure_: Figure | SubFigure
    ax_: Axes

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw, as often and wherever wanted.

        Parameters
        ----------
        ax : Axes or None, default=None
            Where to draw; None makes a figure.

        Returns
        -------
        display
            This display.
        """
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
    line_ : Line2D
        The certified gap or the objective.
    estimate_line_ : Line2D or None
        The estimated gap.
    ax_ : Axes
        Axes that were drawn on.
    figure_ : Figure
        Their figure.

    Examples
    --------
    >>> import dfwtrace as dt
    >>> from dfwtrace.plotting import ConvergenceDisplay
    >>> from matplotlib.figure import Figure
    >>> X, Y, _ = dt.datasets.make_multitask(n=200, d=10, m=8, rank=2, noise=0.3, seed=0)
    >>> result = dt.solve(dt.LeastSquares(), X, Y, radius=1.0, epochs=20, certify_every=5)
    >>> display = ConvergenceDisplay.from_result(result, ax=Figure().subplots())
    >>> display.ax_.get_xlabel(), len(display.line_.get_xdata())
    ('epoch', 4)
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
        """Draw a run.

        Parameters
        ----------
        result : Result
            What `solve` returned.
        ax : Axes or None, default=None
            Where to draw; None makes a figure.
        **options
            `against` and `what`.

        Returns
        -------
        ConvergenceDisplay
            The display, drawn.
        """
        return cls(result.history, **options).plot(ax)

    @classmethod
    def from_estimator(cls, estimator: object, ax: Axes | None = None, **options: Any) -> Self:
        """Draw the run of a fitted estimator.

        Parameters
        ----------
        estimator : estimator
            Fitted.
        ax : Axes or None, default=None
            Where to draw; None makes a figure.
        **options
            `against` and `what`.

        Returns
        -------
        ConvergenceDisplay
            The display, drawn.
        """
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
    singular_values : array of shape (rank,)
        The values.

    Attributes
    ----------
    bars_ : BarContainer or None
        For up to 120 values.
    line_ : Line2D or None
        For more.
    ax_ : Axes
        Axes that were drawn on.
    figure_ : Figure
        Their figure.

    Examples
    --------
    >>> import dfwtrace as dt
    >>> from dfwtrace.plotting import SpectrumDisplay
    >>> from matplotlib.figure import Figure
    >>> X, Y, _ = dt.datasets.make_multitask(n=200, d=10, m=8, rank=2, noise=0.3, seed=0)
    >>> result = dt.solve(dt.LeastSquares(), X, Y, radius=1.0, solver="accelerated")
    >>> display = SpectrumDisplay.from_result(result, ax=Figure().subplots())
    >>> len(display.bars_) == result.W.rank
    True
    """

    bars_: BarContainer | None
    line_: Line2D | None

    def __init__(self, singular_values: FloatArray) -> None:
        values = np.asarray(singular_values, dtype=np.float64)
        if values.ndim != 1:
            raise ValueError(f"singular_values must be one list, got shape {values.shape}.")
        self.singular_values = values

    @classmethod
    def from_result(cls, result: Result, ax: Axes | None = None) -> Self:
        """Draw the spectrum of a solution.

        Parameters
        ----------
        result : Result
            What `solve` returned.
        ax : Axes or None, default=None
            Where to draw; None makes a figure.

        Returns
        -------
        SpectrumDisplay
            The display, drawn.
        """
        return cls(result.W.singular_values).plot(ax)

    @classmethod
    def from_estimator(cls, estimator: object, ax: Axes | None = None) -> Self:
        """Draw the spectrum of a fitted estimator.

        Parameters
        ----------
        estimator : estimator
            Fitted.
        ax : Axes or None, default=None
            Where to draw; None makes a figure.

        Returns
        -------
        SpectrumDisplay
            The display, drawn.
        """
        return cls(_fitted(estimator, "low_rank_").singular_values).plot(ax)

    def _draw(self, ax: Axes) -> None:
        values = self.singular_values
        index = np.arange(1, values.size + 1)
        self.bars_ = self.line_ = None
        log = values.size > 0 and 0.0 < _WIDE * values.min() < values.max()
        if values.size <= _MOST_BARS:
            self.bars_ = ax.bar(index, values, color=TONES[0])
            _set_scale(ax.xaxis, log=False, whole=True)
            _set_scale(ax.yaxis, log)
            ax.set(xlabel="index", ylabel="singular value")
            _finish(ax)
        else:
            series = [Series("singular value", index, values)]
            (self.line_,) = draw_lines(
                ax, series, x_label="index", y_label="singular value", y_log=log
            )


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
    folds_ : PathCollection or None
        A dot for each fold.
    best_line_ : Line2D or None
        At the radius that was chosen.
    ax_ : Axes
        Axes that were drawn on.
    figure_ : Figure
        Their figure.

    Examples
    --------
    >>> import dfwtrace as dt
    >>> from dfwtrace.plotting import PathDisplay
    >>> from matplotlib.figure import Figure
    >>> X, Y, _ = dt.datasets.make_multitask(n=200, d=10, m=8, rank=2, noise=0.3, seed=0)
    >>> path = dt.path(dt.LeastSquares(), X, Y, radii=[0.1, 1.0, 3.0], folds=3)
    >>> display = PathDisplay.from_path(path, ax=Figure().subplots())
    >>> display.best_line_.get_xdata()[0] == path.radii[path.best]
    np.True_
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
        """Draw a path.

        Parameters
        ----------
        path : Path
            What `path` returned.
        ax : Axes or None, default=None
            Where to draw; None makes a figure.

        Returns
        -------
        PathDisplay
            The display, drawn.
        """
        return cls(path).plot(ax)

    @classmethod
    def from_estimator(cls, estimator: object, ax: Axes | None = None) -> Self:
        """Draw the path of a fitted estimator and mark its radius, chosen by its own score.

        Parameters
        ----------
        estimator : estimator
            Fitted, with a choice of radii.
        ax : Axes or None, default=None
            Where to draw; None makes a figure.

        Returns
        -------
        PathDisplay
            The display, drawn.
        """
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
        (self.line_,) = draw_lines(
            ax, [Series("mean", radii, y)], x_label="radius", y_label=label, x_log=True
        )
        _finish(ax, legend=validation is not None)


def column(history: History, name: str) -> FloatArray:
    """Return a column of a history as floats; NaN everywhere if no record has it."""
    if name not in history.columns:
        return np.full(len(history), np.nan)
    return np.asarray(history.column(name), dtype=np.float64)


def _fitted(estimator: object, attribute: str) -> Any:
    """Return an attribute that fitting sets."""
    try:
        return getattr(estimator, attribute)
    except AttributeError as error:
        raise TypeError(
            f"estimator must be fitted and have {attribute}, which {describe(estimator)} has not."
        ) from error
