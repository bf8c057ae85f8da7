"""Draw runs with matplotlib: lines that differ without their colours, displays, SVG for pages."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from html import escape
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from dfwtrace._typing import FloatArray
from dfwtrace.result import History, Path, Result
from dfwtrace.validation import check_positive, describe

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

__all__ = ["ConvergenceDisplay", "PathDisplay", "Series", "SpectrumDisplay", "draw_lines", "to_svg"]

_NAMES = [*(f"tone{place}" for place in range(1, 9)), "rule", "sheet"]
_LIGHT = "#1f5fae #b2590d #0b7566 #a531c9 #171b1f #9c1b38 #6e9e08 #df62af #dde2e8 #ffffff"
_DARK = "#7fb2f5 #f0a35e #2fd6ae #c95fe0 #f3f5f9 #f0504a #e8ec5a #7b858f #303a46 #1a2028"
#: Colours in the light and in the dark, far apart also for readers who confuse red and green.
COLOURS = dict(zip(_NAMES, zip(_LIGHT.split(), _DARK.split(), strict=True), strict=True))
_IN_PAGES = {light: f"var(--{name}, {light})" for name, (light, _) in COLOURS.items()}
_IN_PAGES["#000000"] = "currentColor"
TONES = _LIGHT.split()[:8]
# Nine shapes and eight colours: no two of 72 lines have both in common.
MARKERS = "osD^xv+P*"
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_GAPS = {"gap_estimate": "estimated gap", "gap": "certified gap"}


def require_matplotlib() -> None:
    """Raise an error that names what to install if matplotlib is missing."""
    if find_spec("matplotlib") is None:
        raise ImportError("plots need matplotlib: pip install 'dfwtrace[plots]'.")


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
        Labels of the axes.
    title : str or None, default=None
        Title of the axes; None keeps the one they have.
    x_log, y_log : bool, default=False
        Whether an axis is logarithmic.

    Returns
    -------
    list of Line2D
        One for each series; without points if none can be shown.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> gaps = Series("gap", [1, 2, 3], [0.1, 0.0, 0.01])
    >>> (line,) = draw_lines(Figure().subplots(), [gaps], x_label="x", y_label="y", y_log=True)
    >>> line.get_xdata()
    array([1., 3.])
    """
    lines: list[Line2D] = []
    for place, one in enumerate(series):
        x, y = np.asarray(one.x, dtype=np.float64), np.asarray(one.y, dtype=np.float64)
        shown = drawable(x, log=x_log) & drawable(y, log=y_log)
        style = place if one.style is None else one.style
        lines += ax.plot(x[shown], y[shown], "--" if one.dashed else "-", lw=1.6, ms=4.5)
        lines[-1].set(label=one.label, color=TONES[style % 8], marker=MARKERS[style % 9])
        if shown.sum() > 12:  # few markers, each line's elsewhere: those that coincide are seen
            lines[-1].set_markevery((0.03 * (place % 5), 0.15))
    ax.set(xlabel=x_label, xscale="log" if x_log else "linear")
    ax.set(ylabel=y_label, yscale="log" if y_log else "linear")
    _set_ticks(ax.xaxis, x_log, not any(np.any(np.asarray(line.get_xdata()) % 1) for line in lines))
    _set_ticks(ax.yaxis, y_log)
    ax.set_title(ax.get_title("left") if title is None else title, loc="left")
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="y", color=COLOURS["rule"][0], linewidth=0.8)
    ax.set_axisbelow(True)
    if len(ax.get_legend_handles_labels()[0]) > 1:
        ax.legend(loc="best", edgecolor="none")
    return lines


def draw_predictions(ax: Axes, true: FloatArray, predicted: FloatArray) -> None:
    """Draw a dot for each row, and the line on which a prediction is right."""
    ends = np.array([min(true.min(), predicted.min()), max(true.max(), predicted.max())])
    right = [Series("right", ends, ends, dashed=True, style=2)]
    (line,) = draw_lines(ax, right, x_label="true", y_label="predicted")
    line.set_marker("none")
    ax.plot(true, predicted, "o", ms=3.0, mew=0.0, alpha=0.6, color=TONES[0], label="a row")
    _set_ticks(ax.xaxis, log=False)
    ax.legend(loc="best", edgecolor="none")


def drawable(values: FloatArray, *, log: bool = False) -> npt.NDArray[np.bool_]:
    """Return which values an axis can show; ratios of these do not overflow."""
    return (np.abs(values) < 1e250) & ((values > 1e-250) | (not log))


def _set_ticks(axis: Axis, log: bool, whole: bool = False) -> None:
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

    if not log:
        axis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10], integer=whole))
        return
    low, high = axis.get_data_interval()
    digits = "1" if high >= 100.0 * low else "125" if high > 10.0 * low else "12357"
    axis.set_major_locator(LogLocator(subs=[float(digit) for digit in digits], numticks=6))
    axis.set_major_formatter(lambda value, _: power_of_ten(f"{value:g}").removeprefix("1×"))
    axis.set_minor_formatter(NullFormatter())


def power_of_ten(text: str) -> str:
    """Return a number such as 2e-07 as 2×10⁻⁷, in digits that stay plain text in an SVG."""
    mantissa, _, exponent = text.partition("e")
    return f"{mantissa}×10{str(int(exponent)).translate(_RAISED)}" if exponent else text


def to_svg(figure: Figure, *, title: str = "", description: str = "") -> str:
    """Return a figure as an ``<svg>`` element for an HTML page.

    The same figure gives the same text, without scripts or style attributes, and with ids of its
    own. Words stay text. Black becomes the page's text colour, and the colours of `COLOURS` become
    CSS variables such as ``--tone1``, light where a page has none (`page_colours` gives it both).

    Parameters
    ----------
    figure : Figure
        What to convert.
    title, description : str, default=""
        What screen readers read; by default, the title is that of the axes.

    Returns
    -------
    str
        The element, without an XML prolog.

    Examples
    --------
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
    titles = [ax.get_title(loc) for ax in figure.axes for loc in ("left", "center", "right")]
    title = title or ", ".join(filter(None, titles)) or "Chart"
    drawn = file.getvalue()
    key = "p" + hashlib.sha256(f"{title}{description}{drawn}".encode()).hexdigest()[:10]
    (box,) = re.findall('viewBox="[^"]*"', drawn)
    # What comes before the figure is a style sheet, which would apply to the whole page.
    shown = re.sub(r"\s*<[^>]+>", lambda tag: _adapted(tag[0], key), drawn[drawn.index("<g ") :])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" {box} role="img" '
        f'fill="currentColor" stroke-linejoin="round" aria-labelledby="{key}-title {key}-desc">'
        f'<title id="{key}-title">{escape(title, quote=False)}</title>'
        f'<desc id="{key}-desc">{escape(description, quote=False)}</desc>{shown}'
    )


def _adapted(tag: str, key: str) -> str:
    """Turn styles into attributes, shorten numbers, and make colours and ids those of a page."""
    # Fonts are the page's, and nothing refers to groups.
    tag = re.sub('font-family: [^;]*; |xlink:|(?<=<g) id="[^"]*"', "", " ".join(tag.split()))
    for css in re.findall('style="(.*?)"', tag):
        tag = tag.replace(f'style="{css}"', re.sub(r"([\w-]+): ([^;]+);?", r'\1="\2"', css))
    tag = re.sub("#[0-9a-f]{6}", lambda colour: _IN_PAGES.get(colour[0], colour[0]), tag)
    tag = re.sub(r"\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}", tag)
    return re.sub(r' id="|href="#|url\(#', rf"\g<0>{key}-", tag)


def page_colours() -> str:
    """Return the CSS that gives a page the colours of its pictures, light and dark."""
    light = "".join(f" --{name}: {colour};" for name, (colour, _) in COLOURS.items())
    dark = "".join(f" --{name}: {colour};" for name, (_, colour) in COLOURS.items())
    on_dark = f"@media screen and (prefers-color-scheme: dark) {{ :root {{{dark} }} }}"
    return f":root {{ color-scheme: light dark;{light} }}\n{on_dark}\n"


class _Display:
    def plot(self, ax: Axes | None = None) -> Self:
        """Draw on `ax`, or in a new figure; `ax_` and `figure_` are what was drawn on last."""
        if ax is None:
            require_matplotlib()
            from matplotlib import pyplot

            _, ax = pyplot.subplots()
        self.ax_, self.figure_ = ax, ax.figure
        self._draw(ax)
        return self

    def _draw(self, ax: Axes) -> None: ...


class ConvergenceDisplay(_Display):
    """Duality gap or objective of a run, by epochs or by seconds.

    Parameters
    ----------
    history : History
        Records of a run.
    against : {"epoch", "seconds"}, default="epoch"
    what : {"gap", "objective"}, default="gap"
        The certified gap, `line_`, is an upper bound of F(W) - F*; `estimate_line_` is not.

    Examples
    --------
    >>> import dfwtrace as dt
    >>> from matplotlib.figure import Figure
    >>> X, Y, _ = dt.datasets.make_multitask(n=200, d=10, m=8, rank=2, noise=0.3, random_state=0)
    >>> result = dt.solve(dt.LeastSquares(), X, Y, radius=1.0, solver="dfw", max_iter=20,
    ...                   certify_every=5)
    >>> display = dt.plotting.ConvergenceDisplay.from_result(result, ax=Figure().subplots())
    >>> display.line_.get_xdata()
    array([ 5., 10., 15., 20.])
    """

    def __init__(self, history: History, *, against: str = "epoch", what: str = "gap") -> None:
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
        x, log = column(self.history, self.against), self.what == "gap"
        labels = _GAPS if log else {"objective": "objective"}
        series = [Series(label, x, column(self.history, name)) for name, label in labels.items()]
        lines = draw_lines(ax, series, x_label=self.against, y_label=self.what, y_log=log)
        self.line_, self.estimate_line_ = lines[-1], lines[0] if log else None


class SpectrumDisplay(_Display):
    """The singular values of W: `bars_`, or from 121 values on a `line_`.

    Where features were standardised, those of diag(scale) W, which the radius bounds.

    Parameters
    ----------
    singular_values : array-like of shape (rank,)
        Largest first.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> len(SpectrumDisplay([3.0, 1.0]).plot(Figure().subplots()).bars_)
    2
    """

    def __init__(self, singular_values: npt.ArrayLike) -> None:
        self.singular_values: FloatArray = np.asarray(singular_values, dtype=np.float64)
        if self.singular_values.ndim != 1:
            shape = self.singular_values.shape
            raise ValueError(f"singular_values must be one list, got shape {shape}.")

    @classmethod
    def from_result(cls, result: Result, ax: Axes | None = None) -> Self:
        """Draw the singular values of what `solve` returned."""
        return cls(result.W.s).plot(ax)

    @classmethod
    def from_estimator(cls, estimator: object, ax: Axes | None = None) -> Self:
        """Draw the singular values of a fitted estimator."""
        return cls(_fitted(estimator, "low_rank_").s).plot(ax)

    def _draw(self, ax: Axes) -> None:
        values, many = self.singular_values, self.singular_values.size > 120
        index = np.arange(1, values.size + 1)
        log = values.size > 0 and 0.0 < 1000.0 * values.min() < values.max()
        self.bars_ = None if many else ax.bar(index, values, color=TONES[0])
        series = [Series("singular value", index, values)] if many else []
        lines = draw_lines(ax, series, x_label="index", y_label="singular value", y_log=log)
        self.line_ = lines[0] if many else None


class PathDisplay(_Display):
    """Mean validation losses along the radii, `line_`; without folds, the objectives.

    Parameters
    ----------
    path : Path
        Solutions along radii; `folds_` has a dot for each fold.
    best : float or None, default=None
        The radius to mark with `best_line_`; None marks that with the least mean.

    Examples
    --------
    >>> import dfwtrace as dt
    >>> from matplotlib.figure import Figure
    >>> path = dt.Path(np.array([1.0, 3.0]), [], validation=np.array([[0.5, 0.7], [0.4, 0.3]]))
    >>> PathDisplay.from_path(path, ax=Figure().subplots()).line_.get_ydata()
    array([0.6 , 0.35])
    """

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
        return cls(_fitted(estimator, "path_"), best=_fitted(estimator, "radius_")).plot(ax)

    def _draw(self, ax: Axes) -> None:
        order = np.argsort(self.path.radii, kind="stable")
        radii, validation = self.path.radii[order], self.path.validation
        self.folds_ = self.best_line_ = None
        if validation is None:
            label, y = "objective", np.array([self.path.results[k].objective for k in order])
        else:
            label, y = "validation loss", validation[order].mean(axis=1)
            at, losses = np.repeat(radii, validation.shape[1]), validation[order].ravel()
            at, losses = at[drawable(losses)], losses[drawable(losses)]
            self.folds_ = ax.scatter(at, losses, s=9, color=TONES[1], label="each fold")
            best = self.path.radii[self.path.best] if self.best is None else self.best
            self.best_line_ = ax.axvline(best, color=TONES[2], linestyle="--", label="best")
            at_best = y[np.argmin(np.abs(radii - best))]
            ax.plot(best, at_best, "o", ms=12.0, mew=1.8, mfc="none", mec=TONES[2])
            ax.set_title(f"best: {best:.4g}", loc="right", fontsize="medium")
        mean = [Series("mean", radii, y)]
        (self.line_,) = draw_lines(ax, mean, x_label="radius", y_label=label, x_log=True)


def column(history: History, name: str) -> FloatArray:
    """Return a column of a history as floats, with NaN for records that do not have it."""
    return np.array([record.get(name, np.nan) for record in history], dtype=np.float64)


def _fitted(estimator: object, attribute: str) -> Any:
    if (value := getattr(estimator, attribute, None)) is None:
        raise TypeError(f"estimator must be fitted with {attribute}, got {describe(estimator)}.")
    return value
