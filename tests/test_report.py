"""The report page: true to the run, unharmed by what names hold, and good to read in a browser."""

from __future__ import annotations

import itertools
import math
import re
import sys
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tests.reports import HOSTILE, hostile_report, report_of, solved

import dfwtrace as dt
from dfwtrace.report import Radii, Report, Worst, write_report
from dfwtrace.report.chart import HEIGHT, WIDTH, Chart, Series, to_svg
from dfwtrace.report.numbers import duration, name, number, size
from dfwtrace.report.page import MOST_WORST, render
from dfwtrace.report.scales import linear, logarithmic


class Reader(HTMLParser):
    """Elements, attributes and text of a page; unclosed or crossed elements are an error."""

    EMPTY = ("meta",)

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self.ids: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, key, value) for key, value in attrs]
        self.ids += [value for key, value in attrs if key == "id"]
        if tag not in self.EMPTY:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag
        self.text += " " if tag in ("td", "th", "dt", "dd", "p", "title") else ""

    def handle_data(self, data: str) -> None:
        self.text += data if self._open and self._open[-1] != "style" else ""


def points_of(page: str, key: str) -> list[tuple[float, float]]:
    """The points of the last line of a chart."""
    svg = next(s for s in re.findall(r"<svg.*?</svg>", page, re.S) if f'id="{key}-title"' in s)
    drawn = re.findall(r'<polyline points="([^"]*)"', svg)[-1]
    return [tuple(map(float, point.split(","))) for point in drawn.split()]  # type: ignore[misc]


# What the page tells


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize("solver", ["dfw", "accelerated"])
def test_a_page_tells_how_the_run_went(task: Any, solver: str, tmp_path: Path) -> None:
    result = solved(task, solver=solver, epochs=20, certify_every=5, tol=1e-3)
    scores = {"accuracy": 0.875, "R²": 0.25}
    path = tmp_path / "report.html"
    write_report(path, report_of(result, task, tol=1e-3, solver=solver, scores=scores))
    page = path.read_text("utf-8")
    read = Reader(page)
    text = " ".join(read.text.split())
    assert f"dfwtrace · {task} · " in text
    assert result.message in text
    assert number(result.objective, 7) in text
    assert number(result.objective_at_zero, 7) in text
    for shown in ("0.875", "0.25", "R²", solver, "dense float64", dt.__version__):
        assert shown in text
    assert f"Rank {result.W.rank} Trace norm {number(result.W.trace_norm)} Radius 3 " in text
    kinds = ("objective-epoch", "objective-seconds", "gap-epoch", "gap-seconds", "spectrum")
    for key in kinds:
        assert read.ids.count(f"{key}-title") == read.ids.count(f"{key}-desc") == 1
    assert len(read.ids) == len(set(read.ids))
    numbers = sum(made["numbers_sent"] for made in result.rounds)
    assert f"In all {len(result.rounds):,} {numbers:,} " in text


def test_curves_go_through_the_values_of_the_history() -> None:
    result = solved("regression", epochs=25)
    points = points_of(render(report_of(result)), "objective-epoch")
    objective = result.history.column("objective")
    assert len(points) == 25
    x, y = np.array(points).T
    # A place on the page is a straight function of the value, and up is more.
    for values, places, direction in ((np.arange(1, 26), x, 1.0), (objective, y, -1.0)):
        slope, offset = np.polyfit(values, places, 1)
        assert slope * direction > 0.0
        assert np.all(np.abs(slope * values + offset - places) < 0.1)


def test_a_long_run_keeps_its_peaks_and_its_page_small() -> None:
    history = dt.History()
    for epoch in range(1, 20_001):
        gap = 1.0 / epoch * (5.0 if epoch == 12_345 else 1.0)
        history.append({"epoch": epoch, "objective": gap, "gap": gap, "seconds": 0.01 * epoch})
    content = report_of(solved("regression", epochs=1))
    page = render(Report(**{**vars(content), "history": history}))
    assert len(page) < 120_000
    (_, start), *rest = points_of(page, "gap-epoch")
    heights = [y for _, y in rest]
    assert min(heights) >= start  # falls
    assert any(after < before - 10.0 for before, after in itertools.pairwise(heights))


def test_validation_losses_are_drawn_with_their_best_radius() -> None:
    X, Y, _ = dt.datasets.make_multitask(n=90, d=7, m=5, rank=2, noise=0.4, seed=0)
    path = dt.path(dt.LeastSquares(), X, Y, radii=[3.0, 0.1, 1.0], folds=3)
    page = render(report_of(path.results[path.best], path=path))
    assert f"at a radius of {number(path.radii[path.best])}." in page
    assert len(points_of(page, "radii")) == 3
    without = dt.path(dt.LeastSquares(), X, Y, radii=[1.0])
    assert "Choice of the radius" not in render(report_of(without.results[0], path=without))


def test_worst_classes_come_in_their_order_and_not_without_end() -> None:
    worst = [Worst(f"class {k}", 7, 0.5 / (k + 1)) for k in range(MOST_WORST + 3)]
    page = render(report_of(solved("classification", epochs=2), "classification", worst=worst))
    found = re.findall(r"<bdi>class (\d+)</bdi>", page)
    assert found == [str(k) for k in range(MOST_WORST)]
    assert "And 3 more." in page
    assert 'rect width="100.0"' in page
    assert 'rect width="50.0"' in page


# Runs with little to tell


def test_gaps_that_are_not_known_are_left_out() -> None:
    result = solved("regression", epochs=10)  # certified at its end alone
    assert np.isnan(result.history.column("gap")).sum() == 9
    page = render(report_of(result))
    assert "nan" not in Reader(page).text.lower()
    assert "certified" in page
    for record in result.history:
        record["gap"] = record["gap_estimate"] = record["objective"] = math.nan
    page = render(report_of(result))
    assert "The run recorded neither objective nor gap." in page
    assert "gap-epoch" not in page


def test_an_interrupted_run_has_an_unknown_gap() -> None:
    def interrupt(W: dt.LowRankMatrix, record: dict[str, Any]) -> None:
        if record["epoch"] == 3:
            raise KeyboardInterrupt

    result = solved("regression", epochs=10, callback=interrupt)
    assert (result.status, math.isnan(result.gap)) == ("interrupted", True)
    page = render(report_of(result))
    assert "interrupted</span>" in page
    assert "The certified gap is not known after 3 epochs." in page


def test_no_epochs_and_rank_zero() -> None:
    result = solved("regression", epochs=0)
    page = render(report_of(result))
    assert "No epoch was run" in page
    assert "W = 0: there are no singular values to show." in page
    assert "<polyline" not in page


def test_one_epoch_and_rank_one() -> None:
    result = solved("classification", epochs=1)
    assert result.W.rank == 1
    page = render(report_of(result, "classification"))
    Reader(page)
    assert "<polyline" not in page  # a point is a dot
    assert "1 singular value, " in page
    assert "in 1 epoch." in page


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 0.0, -5.0, 1e308, 5e-324])
def test_no_number_is_too_odd_for_a_page(value: float) -> None:
    content = report_of(solved("regression", epochs=4), tol=1e-3)
    for record in content.history:
        record.update(objective=value, gap=value, gap_estimate=value, seconds=value)
    outcome = content.outcome._replace(
        objective=value, gap=value, relative_gap=value, objective_at_zero=value, seconds=value
    )
    changes: dict[str, Any] = {
        "outcome": outcome,
        "settings": content.settings._replace(tol=value, radius=value),
        "spectrum": np.array([value]),
        "scores": {"score": value},
        "worst": [Worst("a", 1, value), Worst("b", 1, 1.0)],
        "path": Radii(np.array([1.0, 2.0]), np.array([[value, value], [value, value]])),
    }
    page = render(Report(**{**vars(content), **changes}))
    for svg in re.findall(r"<svg.*?</svg>", page, re.S):
        assert not re.search(r'"[^"]*\b(nan|inf)\b', svg)
    Reader(page)


# Charts

ANY = st.floats(width=64)
FEW = arrays(np.float64, st.integers(1, 12), elements=ANY)


@given(FEW, st.booleans(), st.booleans())
def test_axes_hold_all_that_can_be_drawn(values: Any, log: bool, from_zero: bool) -> None:
    scale = logarithmic(values) if log else linear(values, from_zero)
    places = [tick.value for tick in scale.ticks]
    assert 2 <= len(places) <= 11
    assert np.all(np.diff(places) > 0.0)
    assert len({tick.label for tick in scale.ticks}) == len(places)
    can = (np.abs(values) < 1e250) & ((values > 1e-250) | (not log))
    slack = 1e-8 * (scale.high - scale.low)
    assert np.all(values[can] >= scale.low * (1.0 - 1e-8 * log) - slack)
    assert np.all(values[can] <= scale.high + slack)
    if from_zero and not log:
        assert scale.low <= 0.0 <= scale.high


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        (0.023, 3.3, ["0.02", "0.1", "1", "5"]),
        (0.06, 7.0, ["0.1", "1", "10"]),  # 0.05 would be written over 0.1
        (1.0, 384.0, ["1", "10", "100", "500"]),
        (1.0, 130.0, ["1", "10", "100"]),  # and 200 over 100
        (3e-9, 2e-6, ["10⁻⁸", "10⁻⁷", "10⁻⁶"]),  # powers take too much room
        (2.5, 8.0, ["2", "5", "10"]),
    ],
)
def test_a_logarithmic_axis_tells_its_ends_where_there_is_room(
    low: float, high: float, labels: list[str]
) -> None:
    scale = logarithmic(np.array([low, high]))
    assert [tick.label for tick in scale.ticks] == labels


@given(FEW, st.booleans(), st.sampled_from(["line", "dots", "bars"]), st.text(), st.text())
def test_any_chart_is_well_formed_and_inside_its_frame(
    values: Any, log: bool, mark: Any, label: str, series: str
) -> None:
    x = np.arange(1.0, values.size + 1.0)
    y_scale = logarithmic(values) if log else linear(values)
    drawn = [Series(series, x, values, mark)]
    level = (label, float(values[0]))
    svg = to_svg(Chart("k", label, label, label, label, linear(x), y_scale, drawn, level))
    root = ET.fromstring(svg)
    for element in root.iter():
        for key, value in element.attrib.items():
            if key in ("x", "x1", "x2", "cx"):
                assert -15.0 <= float(value) <= WIDTH
            if key in ("y", "y1", "y2", "cy"):
                assert 0.0 <= float(value) <= HEIGHT
    assert root.findtext("title") == name(label)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (number(0), "0"),
        (number(-1234.5), "−1,234"),
        (number(12345.678), "12,346"),
        (number(123456.7, 7), "123,456.7"),
        (number(1e12), "1×10¹²"),
        (number(True), "1"),
        (number(np.float32(0.5)), "0.5"),
        (number(None), "—"),
        (duration(0.0), "0 s"),
        (duration(2e-6), "2 µs"),
        (duration(59.99), "1 min 0 s"),
        (duration(math.nan), "—"),
        (size(2**60), "1,048,576 TiB"),
        (name(" a\u2028b "), "a b"),
    ],
)
def test_numbers_are_written_for_people(made: str, expected: str) -> None:
    assert made == expected


# Bad calls


def test_bad_content_is_refused_in_one_sentence(tmp_path: Path) -> None:
    content = report_of(solved("regression", epochs=1))
    path = tmp_path / "page.html"
    with pytest.raises(TypeError, match=r"^content must be a Report, got 3\.$"):
        write_report(path, 3)  # type: ignore[arg-type]
    bad: dict[str, Any] = {
        "task": "clustering",
        "history": [],
        "spectrum": np.ones((2, 2)),
        "path": Radii(np.ones(2), np.ones((3, 2))),
    }
    for field, value in bad.items():
        with pytest.raises((TypeError, ValueError), match=rf"^{field} must [^\n]*\.$"):
            Report(**{**vars(content), field: value})
    with pytest.raises(TypeError, match="colour"):
        report_of(solved("regression", epochs=1), colour="red")
    assert not path.exists()


def test_without_jinja2_a_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(
        ImportError, match=r"^a report needs jinja2: pip install 'dfwtrace\[report\]'\.$"
    ):
        write_report(tmp_path / "page.html", report_of(solved("regression", epochs=1)))
    assert list(tmp_path.iterdir()) == []


def test_an_old_page_stays_whole_when_the_new_one_fails(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("old")
    content = report_of(solved("regression", epochs=1), where=[("only one",)])
    with pytest.raises(ValueError, match="unpack"):
        write_report(path, content)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


# Hostile names


def test_hostile_names_stay_text() -> None:
    page = render(hostile_report())
    read = Reader(page.encode("utf-8").decode("utf-8"))
    assert not {"script", "img", "iframe", "link", "object", "base", "a"} & set(read.tags)
    assert read.tags.count("style") == 1
    assert not [key for _, key, _ in read.attributes if key.startswith("on") or key == "style"]
    assert not [key for _, key, _ in read.attributes if key in ("src", "href", "xlink:href")]
    for shown in (HOSTILE[0], HOSTILE[2], HOSTILE[6], HOSTILE[8], "(no name)", "an ordinary one"):
        assert shown in read.text
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ufffe\uffff]", page)
    assert "x" * 200 not in page


# In a browser
