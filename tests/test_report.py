"""The report page: true to the run, unharmed by what names hold."""

from __future__ import annotations

import math
import re
import sys
from dataclasses import replace
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib import rcParams
from tests.reports import HOSTILE, hostile_report, no_epochs, report_of, reports, solved

import dfwtrace as dt
from dfwtrace.evaluation import Evaluation, Part, Weights
from dfwtrace.report import (
    MOST_PARTS,
    Communication,
    DataFacts,
    Outcome,
    Radii,
    Report,
    Settings,
    name,
    number,
    render,
    write_report,
)
from dfwtrace.tasks.planning import duration_text, size_text


class Reader(HTMLParser):
    """Elements, attributes and text of a page; unclosed or crossed elements are an error."""

    EMPTY = ("meta", "br")

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
        self.text = " ".join(self.text.split())

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


def charts_of(page: str) -> dict[str, str]:
    """The SVG of each chart, by its title."""
    found = re.findall(r'(<svg [^>]*class="chart".*?</svg>)', page, re.S)
    return {re.findall(r"<title[^>]*>(.*?)</title>", svg)[0]: svg for svg in found}


def curve_of(svg: str) -> Any:
    """The points of a chart's first line, upwards."""
    drawn = re.findall(r'd="(M [^"]*)" clip-path="[^"]*" fill="none" stroke="var\(--tone1', svg)[0]
    points = np.array(re.findall(r"[ML] (\S+) (\S+)", drawn), dtype=float)
    return points * [1.0, -1.0]


def described(svg: str) -> str:
    return str(re.findall(r"<desc[^>]*>(.*?)</desc>", svg)[0])


CONVERGENCE = [
    *("Objective, by epochs", "Objective, by seconds"),
    *("Relative gap, by epochs", "Relative gap, by seconds"),
]


# What the page shows


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize("solver", ["dfw", "accelerated"])
def test_a_page_shows_how_the_run_went(task: Any, solver: str, tmp_path: Path) -> None:
    result = solved(task, solver=solver, max_iter=20, certify_every=5, tol=1e-3)
    found = {"test": Evaluation(100, {"accuracy": 0.875, "R²": 0.25})}
    path = tmp_path / "report.html"
    write_report(path, report_of(result, task, tol=1e-3, solver=solver, evaluations=found))
    page = path.read_text("utf-8")
    read = Reader(page)
    assert f"dfwtrace · {task} · " in read.text
    assert result.message in read.text
    assert number(result.objective, 7) in read.text
    assert number(result.objective_at_zero, 7) in read.text
    for shown in ("87.5 %", "0.25", "R²", solver, "dense float64", dt.__version__):
        assert shown in read.text
    assert f"Rank {result.W.rank} Trace norm {number(result.W.trace_norm)} Radius 3 " in read.text
    charts = charts_of(page)
    assert list(charts) == [*CONVERGENCE, "Singular values of W", "Numbers sent in each epoch"]
    assert len(read.ids) == len(set(read.ids))
    assert not {"script", "img", "link"} & set(read.tags)
    numbers = sum(made["numbers_sent"] for made in result.rounds)
    assert f"In all {len(result.rounds):,} {numbers:,} " in read.text
    assert "Nothing went over a wire." in read.text
    for fact in ("System", "Processor", "Cores", "Memory"):  # of the machine; all are on Linux
        assert f" {fact} " in read.text


def test_curves_go_through_the_values_of_the_history() -> None:
    result = solved("regression", max_iter=25)
    points = curve_of(charts_of(render(report_of(result)))["Objective, by epochs"])
    objective = result.history.column("objective")
    # Places are straight functions of values. A curve may leave out what is straight anyway.
    x = np.linspace(points[0, 0], points[-1, 0], 25)
    y = np.interp(x, *points.T)
    slope, offset = np.polyfit(objective, y, 1)
    assert slope > 0.0
    np.testing.assert_allclose(slope * objective + offset, y, atol=0.3)


def test_a_long_run_keeps_its_peak_and_its_page_small() -> None:
    history = dt.History()
    for epoch in range(1, 20_001):
        gap = 1.0 / epoch * (50.0 if epoch == 12_345 else 1.0)
        history.append({"epoch": epoch, "objective": gap, "gap": gap, "seconds": 0.01 * epoch})
    page = render(report_of(replace(solved("regression", max_iter=1), history=history)))
    assert len(page) < 150_000
    for title in CONVERGENCE:
        heights = curve_of(charts_of(page)[title])[:, 1]
        assert np.diff(heights).max() > 20.0


def test_a_page_of_a_path_has_its_losses_and_the_best_radius() -> None:
    X, Y, _ = dt.datasets.make_multitask(n=90, d=7, m=5, rank=2, noise=0.4, random_state=0)
    path = dt.path(dt.LeastSquares(), X, Y, radii=[3.0, 0.1, 1.0], cv=3)
    page = render(report_of(path.results[path.best], path=path))
    best = number(path.radii[path.best])
    svg = charts_of(page)["Validation loss against the radius"]
    assert described(svg).startswith(f"Chosen: a radius of {best}, ")
    assert f">best: {best}</text>" in svg
    assert len(curve_of(svg)) == 3
    assert f"Chosen radius {best} " in Reader(page).text
    assert "Radii tried 3 From 0.1 To 3 Folds 3" in Reader(page).text
    without = dt.path(dt.LeastSquares(), X, Y, radii=[1.0])
    assert "Choice of the radius" not in render(report_of(without.results[0], path=without))


def test_a_page_of_a_cluster_shows_what_was_sent_and_where() -> None:
    rounds = dt.History()
    for oracle, numbers in ((True, 1200), (True, 34), (False, 21)):
        rounds.append({"oracle": oracle, "numbers_sent": numbers, "bytes_on_wire": 2**20})
    content = report_of(
        replace(solved("regression", max_iter=3), rounds=rounds),
        engine="spark local[2]",
        where=[("Solver", "this process"), ("8 shards", "spark local[2], 2 processors")],
    )
    text = Reader(render(content)).text
    assert "Oracle 2 1,234 The rest 1 21 In all 3 1,255 " in text
    assert "3 MiB went over a wire." in text
    assert "8 shards spark local[2], 2 processors" in text
    assert "Engine spark local[2]" in text


def test_a_page_can_be_put_together_by_hand() -> None:
    """As of a run of another program: what is not known is not shown."""
    content = Report(
        "By hand",
        "regression",
        DataFacts(100, 5, 2),
        Settings(3.0),
        Outcome("optimal", "Done.", 1.0, 4.0, 0.1, 0.025, 2, 7.0, 0),
        dt.History(),
        [2.0, 1.0],  # type: ignore[arg-type]  # a plain list will do
        path=Radii(np.array([1.0, 3.0]), np.array([0.5, 0.25])),
    )
    page = render(content)
    text = Reader(page).text
    for shown in ("By hand", "Done.", "7 s", "Shape 5 × 2", "Trace norm 3", "Chosen radius 3 "):
        assert shown in text
    assert "Folds 1" in text
    assert "Rounds" not in text
    assert "Shards" not in text
    sent = render(replace(content, communication=Communication(1, 20, 3, 4, 0)))
    assert "Oracle 1 20 The rest 3 4 In all 4 24 " in Reader(sent).text


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_the_worst_parts_come_in_their_order_and_not_without_end(task: Any) -> None:
    most = MOST_PARTS[task]
    parts = [Part(f"part {k}", 7, 0.5 / (k + 1), r2=0.5 / (k + 1)) for k in range(most + 3)]
    found = {"test": Evaluation(100, {"accuracy": 0.9}, parts=parts)}
    page = render(report_of(solved(task, max_iter=2), task, evaluations=found))
    assert re.findall(r"<bdi>part (\d+)</bdi>", page) == [str(k) for k in range(most)]
    assert "And 3 more." in page
    assert 'rect width="50.0"' in page
    assert 'rect width="25.0"' in page


def test_a_page_does_not_depend_on_the_style_of_other_pictures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    content = report_of(solved("regression", max_iter=2))
    page = render(content)
    monkeypatch.setitem(rcParams, "text.color", "red")
    monkeypatch.setitem(rcParams, "font.size", 30.0)
    assert render(content) == page
    assert rcParams["font.size"] == 30.0


# What an analyst looks for


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return {kind: render(content) for kind, content in reports().items()}


KINDS = [
    *("few classes", "two classes", "many classes", "searched", "one target", "targets"),
    *("unknown rows", "of a result", "empty"),
]
WORTH, WEIGHTS, RADII = "What the model is worth", "What it looks at", "Choice of the radius"
REST = ["Convergence", "The matrix W", "Communication", "Facts"]


def headings(page: str) -> list[str]:
    return re.findall(r"<h2[^>]*>(.*?)</h2>", page)


def test_the_sections_come_in_the_order_of_an_analysts_questions(pages: dict[str, str]) -> None:
    expected = {
        "few classes": [WORTH, WEIGHTS, *REST],
        "searched": [WORTH, "What to check", WEIGHTS, RADII, *REST],
        "one target": [WORTH, "What to check", WEIGHTS, RADII, *REST],
        "unknown rows": [WEIGHTS, *REST],
        "of a result": REST,
    }
    assert {kind: headings(pages[kind]) for kind in expected} == expected


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_on_a_page_is_empty_or_endless(kind: str, pages: dict[str, str]) -> None:
    page = pages[kind]
    read = Reader(page)
    assert len(read.ids) == len(set(read.ids))
    assert len(page) < 200_000
    assert "nan" not in read.text.lower()
    # Every section has more than its heading and an explanation: a table, a chart or a list.
    for section in re.findall(r"<section.*?</section>", page, re.S):
        assert re.search(r"<tr>|<svg|<li>|<div><dt>", section), section[:300]
    for table in re.findall(r"<table.*?</table>", page, re.S):
        body = table[table.index("<tbody>") :]
        assert len(re.findall(r"<td[^>]*>\s*[^<\s]|<td[^>]*>\s*<(?:svg|bdi)", body)) > 0, table
    for group in re.findall(r"<(?:dl|ul|div class=.(?:pair|cards).)[^>]*>\s*</", page):
        pytest.fail(group)
    for title in re.findall(r"<(?:h1|h2|h3|caption|figcaption)[^>]*>(.*?)</", page, re.S):
        assert title.strip()


def test_what_is_worth_knowing_is_said_first_in_words(pages: dict[str, str]) -> None:
    def lead(kind: str) -> str:
        return Reader(re.findall(r'<p class="lead">(.*?)</p>', pages[kind])[0]).text

    few = reports()["few classes"].evaluations["test"]
    right, base = (f"{100 * some['accuracy']:.1f}" for some in (few.scores, few.baseline))
    sentence = f"It gets {right} % of 100 test rows right; always answering the most frequent class"
    assert lead("few classes") == f"{sentence} would get {base} %."
    assert lead("searched").startswith("Its log loss on rows left out in cross-validation is ")
    assert lead("one target").startswith("It explains ")
    assert "(R²); always answering the mean would explain none." in lead("one target")
    assert lead("many classes").startswith("It gets ")
    for kind, learned in (("few classes", False), ("many classes", True), ("searched", True)):
        assert ("It has learned from the training rows" in pages[kind]) == learned
        assert ("Test it on rows that it has not seen" in pages[kind]) == (kind == "many classes")


def test_the_title_names_the_file_and_what_was_learned(pages: dict[str, str]) -> None:
    titles = {kind: Reader(re.findall("<h1>.*?</h1>", pages[kind])[0]).text for kind in KINDS}
    assert titles["few classes"] == "a.csv: classification, 4 classes"
    assert titles["many classes"] == "b.npz: classification of “intent”, 40 classes"
    assert titles["one target"] == "Regression of “price”"
    assert titles["targets"] == "Regression of 30 targets"
    X, y, _ = dt.datasets.make_multiclass(n=60, d=4, m=3, rank=2, random_state=0)
    model = dt.TraceNormClassifier(5.0, tol=0.1).fit(X, y)
    for hostile in HOSTILE:
        names = {"file": hostile, "target_names": [hostile]}
        assert len(Report.of_estimator(model, X, y, **names).title) < 200
    names = {"file": HOSTILE[1], "target_names": HOSTILE[:1], "feature_names": HOSTILE[:4]}
    page = Reader(render(Report.of_estimator(model, X, y, **names)))
    assert not {"script", "img", "iframe"} & set(page.tags)
    assert HOSTILE[3] in page.text


def test_only_a_fit_without_a_warning_is_green(pages: dict[str, str]) -> None:
    def dress(page: str) -> str:
        return str(re.findall(r'class="status (\w+)">optimal<', page)[0])

    assert {kind: dress(pages[kind]) for kind in ("few classes", "searched", "one target")} == {
        "few classes": "good",
        "searched": "other",  # there is a warning
        "one target": "other",  # the best radius is the largest
    }
    sentence = "The best radius, 1, is the largest of the 2 tried: larger ones may do better."
    assert pages["one target"].count(sentence) == 2  # in "What to check", and beside the curve
    content = reports()["few classes"]
    poor = {"test": Evaluation(9, {"accuracy": 0.1}, {"accuracy": 0.3})}
    page = render(replace(content, evaluations=poor))
    assert dress(page) == "other"
    assert "So the model is no better than ignoring the features." in page


def test_weights_are_told_with_their_features(pages: dict[str, str]) -> None:
    text = Reader(pages["two classes"]).text
    assert "True rather than False" in text
    assert "one standard deviation more" in text
    assert "one unit more" in Reader(pages["unknown rows"]).text
    assert "the first 4 classes" not in Reader(pages["unknown rows"]).text
    assert "largest weights for the 12 most frequent classes" in Reader(pages["many classes"]).text
    assert "The weights of the other 28 classes" in pages["many classes"]
    assert "largest weights for the first 12 targets" in Reader(pages["targets"]).text


# Runs with little to show


def test_gaps_that_are_not_known_are_left_out() -> None:
    result = solved("regression", max_iter=10)  # certified at its end alone
    assert np.isnan(result.history.column("gap")).sum() == 9
    page = render(report_of(result))
    assert "nan" not in Reader(page).text.lower()
    assert ">certified</text>" in page
    for record in result.history:
        record["gap"] = record["gap_estimate"] = record["objective"] = math.nan
    page = render(report_of(result))
    assert "The run recorded neither objective nor gap." in page
    assert not set(CONVERGENCE) & charts_of(page).keys()


def test_an_interrupted_run_has_an_unknown_gap() -> None:
    def interrupt(W: dt.LowRankMatrix, record: dict[str, Any]) -> None:
        if record["epoch"] == 3:
            raise KeyboardInterrupt

    result = solved("regression", max_iter=10, callback=interrupt)
    assert (result.status, math.isnan(result.gap)) == ("interrupted", True)
    page = render(report_of(result))
    assert "interrupted</span>" in page
    gap = charts_of(page)["Relative gap, by epochs"]
    assert described(gap) == "The certified gap is not known after 3 epochs."


def test_no_epochs_and_rank_zero() -> None:
    page = render(report_of(no_epochs()))
    assert "No epoch was run" in page
    assert "W = 0: there are no singular values to show." in page
    assert charts_of(page) == {}


def test_one_epoch_and_rank_one() -> None:
    result = solved("classification", max_iter=1)
    assert result.W.rank == 1
    charts = charts_of(render(report_of(result, "classification", tol=1e-3)))
    assert described(charts["Singular values of W"]).startswith("1 singular value, ")
    assert described(charts["Objective, by epochs"]).endswith("in 1 epoch.")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 0.0, -5.0, 1e308, 5e-324])
def test_no_number_is_too_odd_for_a_page(value: float) -> None:
    result = solved("regression", max_iter=4)
    for record in result.history:
        record.update(objective=value, gap=value, gap_estimate=value, seconds=value)
    result = replace(result, objective=value, gap=value, objective_at_zero=value)
    page = render(
        report_of(
            result,
            radius=value,
            tol=value,
            evaluations={
                "test": Evaluation(
                    2,
                    {"accuracy": value, "R²": value, "own": 1.0},
                    {"accuracy": value},
                    [Part("a", 1, value, value, value), Part("b", 1, 1.0)],
                    points=np.array([[value, 1.0], [1.0, 2.0]]),
                )
            },
            weights=[Weights("a", None, [("x", 1.0), ("y", 0.5)])],
            path=dt.Path(np.array([1.0, 2.0]), [], np.full((2, 2), value)),
        )
    )
    for svg in re.findall(r"<svg.*?</svg>", page, re.S):
        assert not re.search(r'"[^"]*\b(nan|inf)\b', svg)
    Reader(page)


@pytest.mark.parametrize(
    ("write", "values", "expected"),
    [
        (number, [0, 1234567, True, None], "0 | 1,234,567 | 1 | —"),
        (number, [0.98765, np.float32(0.5), 2.5e-7, 1e12], "0.9877 | 0.5 | 2.5×10⁻⁷ | 1×10¹²"),
        (number, [-1234.5, 12345.678, -math.inf, math.nan], "−1,234 | 12,346 | −∞ | —"),
        (partial(number, digits=7), [123456.7], "123,456.7"),
        (duration_text, [0.0, 2e-6, 0.0042, 12.34, math.nan], "0 s | 2 µs | 4.2 ms | 12.3 s | —"),
        (duration_text, [59.99, 3725.0], "1 min 0 s | 1 h 2 min"),
        (size_text, [0, 1536, 2**41], "0 B | 1.5 KiB | 2 TiB"),
        (name, [" a\u2028b ", "a\x00b\nc", 7, ""], "a b | a\ufffdb c | 7 | "),
        (name, ["x" * 200], "x" * 159 + "…"),
    ],
)
def test_numbers_and_names_are_written_for_people(
    write: Any, values: list[Any], expected: str
) -> None:
    assert " | ".join(map(write, values)) == expected


# Bad calls


def test_bad_content_is_refused_in_one_sentence(tmp_path: Path) -> None:
    path, result = tmp_path / "page.html", solved("regression", max_iter=1)
    with pytest.raises(TypeError, match=r"^content must be a Report, got 3\.$"):
        write_report(path, 3)  # type: ignore[arg-type]
    for field, value in (("task", "clustering"), ("history", [])):
        with pytest.raises((TypeError, ValueError), match=rf"^{field} must [^\n]*\.$"):
            replace(report_of(result), **{field: value})
    for field, call in (
        ("result", lambda: report_of(3)),  # type: ignore[arg-type]
        ("path", lambda: report_of(result, path=[1.0])),
        ("estimator", lambda: Report.of_estimator(dt.TraceNormRegressor())),
    ):
        with pytest.raises(TypeError, match=rf"^{field} must [^\n]*\.$"):
            call()
    with pytest.raises(TypeError, match="colour"):
        report_of(result, colour="red")
    assert not path.exists()


@pytest.mark.parametrize("missing", [["jinja2"], ["matplotlib"], ["jinja2", "matplotlib"]])
def test_a_sentence_says_what_to_install(
    missing: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sentence = f"a report needs {' and '.join(missing)}: pip install 'dfwtrace[report]'."
    for package in missing:
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"^{re.escape(sentence)}$"):
        write_report(tmp_path / "page.html", report_of(solved("regression", max_iter=1)))
    assert list(tmp_path.iterdir()) == []


def test_an_old_page_stays_whole_when_the_new_one_fails(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("old")
    content = report_of(solved("regression", max_iter=1), where=[("only one",)])
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
    links = [value for _, key, value in read.attributes if key in ("src", "href", "xlink:href")]
    assert all(value.startswith("#") for value in links)  # markers within a chart
    for shown in (HOSTILE[0], HOSTILE[2], HOSTILE[6], HOSTILE[8], "(no name)", "an ordinary one"):
        assert shown in read.text
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ufffe\uffff]", page)
    assert "x" * 200 not in page
