"""The pictures of a report for notebooks, as scikit-learn's displays are: data first, then a plot.

A display is made from a result, an estimator or a path; `plot` draws it again, elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from dfwtrace._typing import FloatArray
from dfwtrace.result import History, Path, Result
from dfwtrace.validation import check_positive, describe

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection
    from matplotlib.container import BarContainer
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.lines import Line2D

# Up to so many singular values are drawn as bars.
_MOST_BARS = 120
# From this ratio of the largest singular value to the smallest on, the axis is logarithmic.
_WIDE = 1000.0


class _Display:
    """What all displays have once they are drawn."""

    figure_: Figure | SubFigure
    ax_: Axes

    def _draw_on(self, ax: Axes | None) -> Axes:
        """The axes to draw on: those given, or those of a figure of its own."""
        if ax is None:
            try:
                from matplotlib import pyplot
            except ImportError as error:
                raise ImportError(
                    "plots need matplotlib: pip install 'dfwtrace[plots]'."
                ) from error
            _, ax = pyplot.subplots()
        self.ax_, self.figure_ = ax, ax.figure
        return ax


class ConvergenceDisplay(_Display):
    """Duality gap or objective of a run, by epochs or by seconds.

    Parameters
    ----------
    history : History
    against : {"epoch", "seconds"}
    what : {"gap", "objective"}
        With "gap", the certified gap, which is an upper bound of F(W) - F*, and the oracle's
        estimate of it.

    Attributes
    ----------
    line_ : Line2D
        The certified gap or the objective.
    estimate_line_ : Line2D or None
        The estimated gap.
    ax_ : Axes
    figure_ : Figure

    Examples
    --------
    >>> import dfwtrace as dt
    >>> from dfwtrace.plots import ConvergenceDisplay
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
        """Of a `Result`; `options` are those of the class."""
        return cls(result.history, **options).plot(ax)

    @classmethod
    def from_estimator(cls, estimator: Any, ax: Axes | None = None, **options: Any) -> Self:
        """Of a fitted estimator; `options` are those of the class."""
        return cls(_fitted(estimator, "history_"), **options).plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw on `ax`, or on a figure of its own."""
        ax = self._draw_on(ax)
        self.estimate_line_ = None
        if self.what == "objective":
            self.line_ = self._curve(ax, "objective", "objective", color="C0")
        else:
            self.estimate_line_ = self._curve(
                ax, "gap_estimate", "estimated gap", color="C1", linewidth=1.0
            )
            self.line_ = self._curve(ax, "gap", "certified gap", color="C0", marker=".")
            ax.set_yscale("log", nonpositive="mask")
            ax.legend()
        ax.set(xlabel=self.against, ylabel=self.what)
        return self

    def _curve(self, ax: Axes, column: str, label: str, **style: Any) -> Line2D:
        """A column where it is known, joined across the epochs where it is not."""
        x, y = (_column(self.history, name) for name in (self.against, column))
        known = np.isfinite(y)
        if self.what == "gap":  # an estimate may be negative, which no logarithm knows
            known &= y > 0.0
        (line,) = ax.plot(x[known], y[known], label=label, **style)
        return line


class SpectrumDisplay(_Display):
    """The singular values of W.

    Parameters
    ----------
    singular_values : array

    Attributes
    ----------
    bars_ : BarContainer or None
        For up to 120 values.
    line_ : Line2D or None
        For more.
    ax_ : Axes
    figure_ : Figure

    Examples
    --------
    >>> import dfwtrace as dt
    >>> from dfwtrace.plots import SpectrumDisplay
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
        """Of a `Result`."""
        return cls(result.W.singular_values).plot(ax)

    @classmethod
    def from_estimator(cls, estimator: Any, ax: Axes | None = None) -> Self:
        """Of a fitted estimator."""
        return cls(_fitted(estimator, "low_rank_").singular_values).plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw on `ax`, or on a figure of its own."""
        ax = self._draw_on(ax)
        values = self.singular_values
        place = np.arange(1, values.size + 1)
        self.bars_ = self.line_ = None
        if values.size <= _MOST_BARS:
            self.bars_ = ax.bar(place, values)
        else:
            (self.line_,) = ax.plot(place, values)
        if values.size and 0.0 < _WIDE * values.min() < values.max():
            ax.set_yscale("log")
        ax.locator_params(axis="x", integer=True)
        ax.set(xlabel="place", ylabel="singular value")
        return self


class PathDisplay(_Display):
    """Validation losses along the radii; without folds, the objectives.

    Parameters
    ----------
    path : Path
    best : float, optional
        The radius to mark; by default, that with the least mean.

    Attributes
    ----------
    line_ : Line2D
        The mean over the folds, or the objectives.
    folds_ : PathCollection or None
        A dot for each fold.
    best_line_ : Line2D or None
        At the radius that was chosen.
    ax_ : Axes
    figure_ : Figure

    Examples
    --------
    >>> import dfwtrace as dt
    >>> from dfwtrace.plots import PathDisplay
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
        """Of a `Path`."""
        return cls(path).plot(ax)

    @classmethod
    def from_estimator(cls, estimator: Any, ax: Axes | None = None) -> Self:
        """Of a fitted estimator that has chosen its radius, maybe not by the loss."""
        path, radius = (_fitted(estimator, name) for name in ("path_", "radius_"))
        return cls(path, best=radius).plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw on `ax`, or on a figure of its own."""
        ax = self._draw_on(ax)
        order = np.argsort(self.path.radii, kind="stable")
        radii, validation = self.path.radii[order], self.path.validation
        self.folds_ = self.best_line_ = None
        ax.set_xscale("log")
        if validation is None:
            objectives = [self.path.results[place].objective for place in order]
            (self.line_,) = ax.plot(radii, objectives, marker=".")
            ax.set(xlabel="radius", ylabel="objective")
            return self
        losses = validation[order]
        at = np.repeat(radii, losses.shape[1])
        self.folds_ = ax.scatter(at, losses.ravel(), s=9, color="C1", label="each fold")
        (self.line_,) = ax.plot(radii, losses.mean(axis=1), color="C0", marker=".", label="mean")
        best = self.path.radii[self.path.best] if self.best is None else self.best
        self.best_line_ = ax.axvline(best, color="C2", linestyle="--", label="best")
        ax.legend()
        ax.set(xlabel="radius", ylabel="validation loss")
        return self


def _column(history: History, name: str) -> FloatArray:
    if name not in history.columns:
        return np.full(len(history), np.nan)
    return np.asarray(history.column(name), dtype=np.float64)


def _fitted(estimator: Any, attribute: str) -> Any:
    """An attribute that fitting gives."""
    try:
        return getattr(estimator, attribute)
    except AttributeError as error:
        raise TypeError(
            f"estimator must be fitted and have {attribute}, which {describe(estimator)} has not."
        ) from error
