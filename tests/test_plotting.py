"""Pictures: what they show is what the run recorded, and they fit into any page."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib import pyplot
from matplotlib.figure import Figure

import dfwtrace as dt
from dfwtrace.plotting import (
    COLOURS,
    ConvergenceDisplay,
    PathDisplay,
    Series,
    SpectrumDisplay,
    draw_lines,
    page_colours,
    to_svg,
)

Data = tuple[Any, Any]


@pytest.fixture(autouse=True)
def no_window() -> Iterator[None]:
    """Figures without a screen, and none left behind."""
    with mpl.rc_context({"backend": "agg"}):
        yield
        pyplot.close("all")


@pytest.fixture(scope="module")
def result(multitask: Data) -> dt.Result:
    return dt.solve(
        dt.LeastSquares(), *multitask, radius=1.0, solver="dfw", max_iter=20, certify_every=5
    )


@pytest.fixture(scope="module")
def path(multitask: Data) -> dt.Path:
    return dt.path(dt.LeastSquares(), *multitask, radii=[3.0, 0.2, 1.0], cv=4)


def estimator_of(result: dt.Result, **more: Any) -> Any:
    """What an estimator has after fitting, as far as displays look at it."""
    return SimpleNamespace(
        history_=result.history, low_rank_=result.W, duality_gap_=result.gap, **more
    )


def axes() -> Any:
    return Figure().subplots()


def legend_of(ax: Any) -> list[str]:
    legend = ax.get_legend()
    return [] if legend is None else [text.get_text() for text in legend.get_texts()]


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
    assert legend_of(display.ax_) == ["estimated gap", "certified gap"]
    assert display.figure_ is display.ax_.figure
    display.figure_.canvas.draw()


def test_objectives_against_seconds(result: dt.Result) -> None:
    ax = axes()
    display = ConvergenceDisplay.from_estimator(
        estimator_of(result), ax=ax, against="seconds", what="objective"
    )
    assert display.ax_ is ax
    for drawn, name in zip(display.line_.get_data(), ("seconds", "objective"), strict=True):
        np.testing.assert_array_equal(drawn, result.history.column(name))
    assert display.estimate_line_ is None
    assert legend_of(ax) == []
    assert ax.get_xlabel() == "seconds"


def test_a_run_without_epochs_or_with_unknown_gaps_can_be_drawn() -> None:
    unknown = dt.History()
    unknown.append({"epoch": 1, "gap": float("nan"), "gap_estimate": -1.0})
    for history in (dt.History(), unknown):
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
        np.testing.assert_allclose(heights, result.W.singular_values, rtol=1e-12)
        assert display.line_ is None


@pytest.mark.parametrize(
    ("values", "scale"),
    [
        ([], "linear"),
        ([2.0], "linear"),
        ([1.0, 1e-5], "log"),
        (np.linspace(2.0, 1.0, 300), "linear"),
    ],
)
def test_spectra_of_any_rank(values: Any, scale: str) -> None:
    display = SpectrumDisplay(values).plot()
    if len(values) <= 120:
        assert display.bars_ is not None
        assert len(display.bars_) == len(values)
    else:
        assert display.bars_ is None
        assert display.line_ is not None
        np.testing.assert_array_equal(display.line_.get_ydata(), values)
    assert display.ax_.get_yscale() == scale
    display.figure_.canvas.draw()


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
        assert legend_of(display.ax_) == ["each fold", "best", "mean"]
        display.figure_.canvas.draw()


def test_the_radius_that_an_estimator_has_chosen_is_marked(path: dt.Path) -> None:
    chosen = path.radii[(path.best + 1) % 3]  # by another score than the loss
    estimator = estimator_of(path.results[0], path_=path, radius_=chosen)
    display = PathDisplay.from_estimator(estimator, axes())
    for drawn in (display, display.plot(axes())):
        assert drawn.best_line_ is not None
        assert np.asarray(drawn.best_line_.get_xdata())[0] == chosen


def test_a_path_without_folds_shows_objectives(path: dt.Path) -> None:
    display = PathDisplay.from_path(dt.Path(path.radii, path.results), axes())
    objectives = [path.results[place].objective for place in (1, 2, 0)]
    np.testing.assert_array_equal(display.line_.get_ydata(), objectives)
    assert display.folds_ is None
    assert display.best_line_ is None
    assert (display.ax_.get_ylabel(), legend_of(display.ax_)) == ("objective", [])


def test_a_display_can_be_drawn_again_elsewhere(result: dt.Result) -> None:
    display = ConvergenceDisplay.from_result(result, axes())
    first, elsewhere = display.ax_, axes()
    assert display.plot(elsewhere) is display
    assert display.ax_ is elsewhere
    assert len(first.lines) == len(elsewhere.lines) == 2


def figure_of(*series: Series, **options: Any) -> Figure:
    figure = Figure(figsize=(5.6, 3.4), layout="constrained")
    draw_lines(figure.subplots(), series, x_label="epoch", y_label="gap", **options)
    return figure


def test_lines_differ_without_their_colours() -> None:
    x = np.arange(1.0, 40.0)
    series = [Series(f"line {k}", x, x**-k) for k in range(20)]
    lines = draw_lines(axes(), series, x_label="epoch", y_label="gap", y_log=True)
    looks = {(line.get_marker(), line.get_color()) for line in lines}
    assert len(looks) == 20
    assert len({line.get_marker() for line in lines[:9]}) == 9
    assert len({line.get_markevery() for line in lines[:5]}) == 5  # seen where they coincide


def test_a_line_keeps_its_style_and_its_dashes() -> None:
    here, there = (Series("a", [1, 2], [1, 2], style=4, dashed=dashed) for dashed in (True, False))
    (first,) = draw_lines(axes(), [here], x_label="x", y_label="y")
    *_, last = draw_lines(axes(), [Series("b", [], []), there], x_label="x", y_label="y")
    assert (first.get_marker(), first.get_color()) == (last.get_marker(), last.get_color())
    assert (first.get_linestyle(), last.get_linestyle()) == ("--", "-")


@pytest.mark.parametrize(("x_log", "y_log", "shown"), [(0, 0, 5), (0, 1, 3), (1, 0, 4), (1, 1, 2)])
def test_points_that_an_axis_cannot_show_are_left_out(x_log: int, y_log: int, shown: int) -> None:
    x = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, np.nan]
    y = [1.0, 2.0, -1.0, 0.0, np.inf, 1e300, 5.0, 1.0]
    (line,) = draw_lines(
        axes(), [Series("a", x, y)], x_label="x", y_label="y", x_log=bool(x_log), y_log=bool(y_log)
    )
    assert len(np.asarray(line.get_xdata())) == shown


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        (1.0, 1000.0, ["1", "10", "100", "1000"]),
        (1e-8, 1e-5, ["10⁻⁸", "10⁻⁷", "10⁻⁶", "10⁻⁵"]),
        (1.0, 20.0, ["1", "2", "5", "10", "20"]),
        (2.0, 7.0, ["2", "3", "5", "7"]),
    ],
)
def test_logarithmic_axes_have_plain_labels(low: float, high: float, labels: list[str]) -> None:
    svg = to_svg(figure_of(Series("a", [1, 2], [low, high]), y_log=True))
    assert re.findall(r'text-anchor="end"[^>]*>([^<]*)<', svg) == labels


def test_an_svg_belongs_to_the_page_around_it() -> None:
    pair = Series("<first>", [1, 2], [2.0, 1.0]), Series("second", [1, 2], [1.0, 2.0])
    svg = to_svg(figure_of(*pair, title="a < b & c"), description="It falls.")
    assert svg == to_svg(figure_of(*pair, title="a < b & c"), description="It falls.")
    root = ET.fromstring(svg)
    assert svg.startswith("<svg ")
    assert root.attrib["role"] == "img"
    names = root.attrib["aria-labelledby"].split()
    found = {element.attrib.get("id"): element.text for element in root.iter()}
    assert [found[name] for name in names] == ["a < b & c", "It falls."]
    words = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert {"epoch", "gap", "<first>", "second"} <= set(words)  # text, and not outlines of it
    # Colours are the page's, whatever it is: nothing is fixed to black or white.
    assert not re.search(r'"#[0-9a-f]{3,6}"|style=|<style|<!|font-family|DejaVu', svg)
    assert {"var(--tone1, #1f5fae)", "currentColor"} <= set(re.findall(r'="([^"]*)"', svg))


def test_ids_are_apart_on_one_page(path: dt.Path) -> None:
    dots = Figure()
    PathDisplay(path).plot(dots.subplots())
    lines = [figure_of(Series("a", [1, 2], [1.0, end])) for end in (2.0, 3.0)]
    pictures = [to_svg(figure) for figure in (*lines, dots)]
    ids = re.findall(r' id="([^"]*)"', "".join(pictures))
    assert len(ids) == len(set(ids)) > 6
    for svg in pictures:
        referred = re.findall(r'href="#([^"]*)"|url\(#([^)]*)\)', svg)
        assert referred
        assert {a or b for a, b in referred} <= set(re.findall(r' id="([^"]*)"', svg))


def test_a_page_gets_both_colours_of_all_lines() -> None:
    css = page_colours()
    for name, (light, dark) in COLOURS.items():
        assert re.findall(rf"--{name}: (#\w+);", css) == [light, dark]
    assert "@media screen and (prefers-color-scheme: dark)" in css  # paper is white


@settings(max_examples=15)
@given(st.lists(st.floats(width=64), min_size=1, max_size=8), st.booleans())
def test_any_numbers_can_be_drawn(values: list[float], log: bool) -> None:
    svg = to_svg(figure_of(Series("a", range(len(values)), values), y_log=log))
    ET.fromstring(svg)
    assert not re.search(r"\b(nan|inf)\b", svg)


def test_the_former_name_still_works() -> None:
    for name in ("dfwtrace", "dfwtrace.plots"):
        sys.modules.pop("dfwtrace.plots", None)
        vars(dt).pop("plots", None)
        with pytest.warns(DeprecationWarning, match=r"use dfwtrace\.plotting\.$"):
            module = import_module("dfwtrace.plots") if name == "dfwtrace.plots" else dt.plots
        assert module.PathDisplay is PathDisplay
    assert "plots" not in dt.__all__


def test_bad_input_is_refused_in_one_sentence(result: dt.Result, path: dt.Path) -> None:
    refused: list[tuple[Any, str]] = [
        (lambda: ConvergenceDisplay([1]), "history must"),  # type: ignore[arg-type]
        (lambda: ConvergenceDisplay(result.history, against="day"), "against must"),
        (lambda: ConvergenceDisplay(result.history, what="loss"), "what must"),
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
