"""Displays: what they draw is what the run recorded."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.figure import Figure

import dfwtrace as dt
from dfwtrace.plotting import ConvergenceDisplay, PathDisplay, SpectrumDisplay

Data = tuple[Any, Any]


@pytest.fixture(autouse=True)
def no_window() -> Iterator[None]:
    """Figures without a screen, and none left behind."""
    with mpl.rc_context({"backend": "agg"}):
        yield
        pyplot.close("all")


@pytest.fixture(scope="module")
def result(multitask: Data) -> dt.Result:
    return dt.solve(dt.LeastSquares(), *multitask, radius=1.0, epochs=20, certify_every=5)


@pytest.fixture(scope="module")
def path(multitask: Data) -> dt.Path:
    return dt.path(dt.LeastSquares(), *multitask, radii=[3.0, 0.2, 1.0], folds=4)


def estimator_of(result: dt.Result, **more: Any) -> Any:
    """What an estimator has after fitting, as far as displays look at it."""
    return SimpleNamespace(
        history_=result.history, low_rank_=result.W, duality_gap_=result.gap, **more
    )


def axes() -> Any:
    return Figure().subplots()


def test_gaps_are_drawn_where_they_are_known(result: dt.Result) -> None:
    display = ConvergenceDisplay.from_result(result)
    gap = result.history.column("gap")
    np.testing.assert_array_equal(display.line_.get_xdata(), [5, 10, 15, 20])
    np.testing.assert_array_equal(display.line_.get_ydata(), gap[~np.isnan(gap)])
    assert display.estimate_line_ is not None
    estimate = result.history.column("gap_estimate")
    np.testing.assert_array_equal(display.estimate_line_.get_ydata(), estimate)
    assert display.ax_.get_yscale() == "log"
    assert (display.ax_.get_xlabel(), display.ax_.get_ylabel()) == ("epoch", "gap")
    legend = display.ax_.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["estimated gap", "certified gap"]
    assert display.figure_ is display.ax_.figure
    display.figure_.canvas.draw()


def test_objectives_against_seconds(result: dt.Result) -> None:
    ax = axes()
    display = ConvergenceDisplay.from_estimator(
        estimator_of(result), ax=ax, against="seconds", what="objective"
    )
    assert display.ax_ is ax
    for drawn, column in (
        (display.line_.get_xdata(), "seconds"),
        (display.line_.get_ydata(), "objective"),
    ):
        np.testing.assert_array_equal(drawn, result.history.column(column))
    assert display.estimate_line_ is None
    assert ax.get_xlabel() == "seconds"


def test_a_run_without_epochs_or_with_unknown_gaps_can_be_drawn(multitask: Data) -> None:
    nothing = dt.solve(dt.LeastSquares(), *multitask, radius=1.0, epochs=0)
    display = ConvergenceDisplay.from_result(nothing)
    assert len(np.asarray(display.line_.get_xdata())) == 0
    display.figure_.canvas.draw()
    history = dt.History()
    history.append({"epoch": 1, "gap": float("nan"), "gap_estimate": -1.0})
    display = ConvergenceDisplay(history).plot()
    assert len(np.asarray(display.line_.get_xdata())) == 0
    display.figure_.canvas.draw()


def test_a_spectrum_has_a_bar_for_each_singular_value(result: dt.Result) -> None:
    for display in (
        SpectrumDisplay.from_result(result),
        SpectrumDisplay.from_estimator(estimator_of(result)),
    ):
        assert display.bars_ is not None
        heights = [bar.get_height() for bar in display.bars_]
        np.testing.assert_array_equal(heights, result.W.singular_values)
        assert display.line_ is None


@pytest.mark.parametrize(
    ("values", "scale"), [([], "linear"), ([2.0], "linear"), ([1.0, 1e-5], "log")]
)
def test_spectra_of_any_rank(values: list[float], scale: str) -> None:
    display = SpectrumDisplay(np.array(values)).plot()
    assert display.bars_ is not None
    assert len(display.bars_) == len(values)
    assert display.ax_.get_yscale() == scale
    display.figure_.canvas.draw()


def test_a_long_spectrum_is_a_line() -> None:
    values = np.linspace(2.0, 1.0, 300)
    display = SpectrumDisplay(values).plot(axes())
    assert display.bars_ is None
    assert display.line_ is not None
    np.testing.assert_array_equal(display.line_.get_ydata(), values)


def test_a_path_shows_folds_mean_and_best(path: dt.Path) -> None:
    assert path.validation is not None
    for display in (
        PathDisplay.from_path(path),
        PathDisplay.from_estimator(
            estimator_of(path.results[0], path_=path, radius_=path.radii[path.best])
        ),
    ):
        np.testing.assert_array_equal(display.line_.get_xdata(), [0.2, 1.0, 3.0])
        mean = path.validation.mean(axis=1)
        np.testing.assert_array_equal(display.line_.get_ydata(), mean[[1, 2, 0]])
        assert display.folds_ is not None
        dots = np.asarray(display.folds_.get_offsets())
        assert sorted(dots[:, 1]) == sorted(path.validation.ravel())
        assert display.best_line_ is not None
        assert np.asarray(display.best_line_.get_xdata())[0] == path.radii[path.best]
        display.figure_.canvas.draw()


def test_the_radius_that_an_estimator_has_chosen_is_marked(path: dt.Path) -> None:
    chosen = path.radii[(path.best + 1) % 3]  # by another score than the loss
    estimator = estimator_of(path.results[0], path_=path, radius_=chosen)
    display = PathDisplay.from_estimator(estimator, axes())
    for _ in range(2):
        assert display.best_line_ is not None
        assert np.asarray(display.best_line_.get_xdata())[0] == chosen
        display.plot(axes())


def test_a_path_without_folds_shows_objectives(path: dt.Path) -> None:
    display = PathDisplay.from_path(dt.Path(path.radii, path.results), axes())
    objectives = [path.results[place].objective for place in (1, 2, 0)]
    np.testing.assert_array_equal(display.line_.get_ydata(), objectives)
    assert display.folds_ is None
    assert display.best_line_ is None
    assert display.ax_.get_ylabel() == "objective"


def test_a_display_can_be_drawn_again_elsewhere(result: dt.Result) -> None:
    display = ConvergenceDisplay.from_result(result, axes())
    first, elsewhere = display.ax_, axes()
    assert display.plot(elsewhere) is display
    assert display.ax_ is elsewhere
    assert len(first.lines) == len(elsewhere.lines) == 2


def test_bad_input_is_refused_in_one_sentence(result: dt.Result, path: dt.Path) -> None:
    refused: list[tuple[Any, str]] = [
        (lambda: ConvergenceDisplay([1]), "history must"),  # type: ignore[arg-type]
        (lambda: ConvergenceDisplay(result.history, against="day"), "against must"),  # type: ignore[arg-type]
        (lambda: ConvergenceDisplay(result.history, what="loss"), "what must"),  # type: ignore[arg-type]
        (lambda: SpectrumDisplay(np.ones((2, 2))), "singular_values must"),
        (lambda: PathDisplay(result), "path must"),  # type: ignore[arg-type]
        (lambda: PathDisplay(path, best=-1.0), "best must"),
        (lambda: ConvergenceDisplay.from_estimator(3), "estimator must be fitted"),
        (lambda: SpectrumDisplay.from_estimator(None), "estimator must be fitted"),
        (lambda: PathDisplay.from_estimator(estimator_of(result)), "estimator must be fitted"),
    ]
    for call, beginning in refused:
        with pytest.raises((TypeError, ValueError), match=rf"^{beginning}[^\n]*\.$"):
            call()
    assert pyplot.get_fignums() == []


def test_without_matplotlib_a_sentence_says_what_to_install(
    result: dt.Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "matplotlib.pyplot")
    with pytest.raises(ImportError, match=r"^plots need matplotlib: pip install 'dfwtrace\[plots"):
        SpectrumDisplay.from_result(result)
