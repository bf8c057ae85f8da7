"""What the page of the experiments counts, draws and tells, from contents that are made up."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from dfwtrace.experiments.drawing import groups
from dfwtrace.experiments.exhibits import NONE, Claim, Exhibit, Panel, Table
from dfwtrace.experiments.page import Part, render
from dfwtrace.experiments.picture_file import to_file
from dfwtrace.experiments.places import places
from dfwtrace.experiments.runs import Row
from dfwtrace.experiments.tallies import tallies
from dfwtrace.experiments.unbroken import unbroken
from dfwtrace.report.chart import WIDTH

CLAIMS = [
    Claim("A.", "1.", True),
    Claim("B.", "2.", False, "Because."),
    Claim("C.", "It is not here.", None),
    Claim("D.", "3.", True, kind="stand-in"),
    Claim("E.", "4.", False, kind="beyond"),
]
MANY = list(range(1, 101))


def row(commit: str, date: str, seconds: float, other_work: float) -> Row:
    return {
        "commit": commit,
        "date": date,
        "seconds": seconds,
        "other_work": other_work,
        "versions": {"python": "3.12", "numpy": "2.0"},
        "cpu": "a processor",
        "cores": 2,
        "blas": ["openblas 0.3"],
    }


def page(claims: list[Claim], tables: list[Table]) -> str:
    shown = Exhibit(tables=tables, notes=["A note."])
    part = Part("figure-1", "Figure 1: made up", "About it.", [], shown, claims)
    return render([part], [row("abc", "2026-11-17T14:18:05+00:00", 1.0, 0.0)], "toy")


def test_claims_are_counted_apart_by_whose_they_are() -> None:
    assert [tuple(tally)[1:] for tally in tallies(CLAIMS)] == [(1, 2, 1), (1, 1, 0), (0, 1, 0)]
    text = page(CLAIMS, [])
    counts = re.findall(r"<dt>(.*?)</dt><dd>(\d+ of \d+) hold here", text)
    assert counts == [
        ("The paper’s claims", "1 of 2"),
        ("Its claims, said of a stand-in", "1 of 1"),
        ("Claims beyond the paper", "0 of 1"),
    ]
    assert text.count("1 could not be measured") == 1


def test_a_kind_without_claims_is_not_counted() -> None:
    assert [tally.name for tally in tallies(CLAIMS[:3])] == ["The paper’s claims"]
    assert "none measured" in page([CLAIMS[2]], [])


def test_a_claim_says_whose_it_is() -> None:
    cells = re.findall(r'role="rowheader">(.)\.<.*?</a>(.*?)</span>', page(CLAIMS, []))
    told = [("A", ""), ("B", ""), ("C", ""), ("D", " · said of a stand-in")]
    assert cells == [*told, ("E", " · beyond the paper")]


def test_what_was_measured_is_whole_and_stays_text() -> None:
    said = "Seconds to <b>0.5</b> & more: Naive 0.635, DFW-1 0.169; a sentence of 25 words, never."
    cell = ET.fromstring(f"<td>{unbroken(said)}</td>")
    assert "".join(cell.itertext()) == said
    assert [span.text for span in cell] == ["Naive 0.635,", "DFW-1 0.169;"]
    assert '<span class="whole">1.</span>' in page(CLAIMS, [])


def test_figures_are_aligned_and_rows_are_named() -> None:
    rows = [["d = 1", "SVA", "2 ms", "× 1.2"], ["d = 1", "Naive", NONE, "× 1.3"]]
    table = Table("At the end", ["problem", "method", "an epoch", "growth"], rows, names=2)
    assert table.figures == [False, False, True, True]
    text = page(CLAIMS, [table])
    assert text.count('<th scope="row">d = 1</th>') == 2
    assert '<th scope="row">SVA</th><td class="figure">2 ms</td>' in text
    assert f'<td class="figure">{NONE}</td>' in text
    assert '<th scope="col" class="figure">an epoch</th>' in text
    assert '<th scope="col">method</th>' in text


def test_rows_of_one_commit_are_told_together() -> None:
    first = row("abc", "2026-11-17T14:18:05+00:00", 1.0, 0.0)
    later = row("abc", "2026-11-17T16:00:00+00:00", 3.0, 0.5)
    found = places([first, later, row("def", "2026-11-18T09:00:00+00:00", 1.0, 0.0)])
    assert [place.title for place in found] == ["Commit abc", "Commit def"]
    facts = found[0].facts
    assert (facts["Runs"], facts["From"]) == ("2", "2026-11-17 14:18 UTC")
    assert facts["To"] == "2026-11-17 16:00 UTC"
    assert list(facts.values())[-1] == "37.5%"


def panel(*names: str, dashed: tuple[str, ...] = (), title: str = "F") -> Panel:
    """Lines that are all the same."""
    lines = {name: (MANY, [1.0 / k for k in MANY]) for name in names}
    return Panel(title, "epochs", "F", lines, log_x=True, log_y=True, dashed=dashed)


def test_charts_without_a_common_line_have_legends_of_their_own() -> None:
    shown = [panel("SVA", "Naive"), panel("SVA", "bound"), panel("1 core", "2 cores")]
    first, second = groups(shown, "k")
    assert [key.name for key in first.legend] == ["SVA", "Naive", "bound"]
    assert [key.name for key in second.legend] == ["1 core", "2 cores"]
    assert (len(first.pictures), len(second.pictures)) == (2, 1)


def markers(svg: str) -> list[set[str]]:
    """Where the markers of every line are."""
    paths = [path.get("d", "") for path in ET.fromstring(svg).iter("path")]
    return [set(re.findall(r"M[\d.]+ [\d.]+", path)) for path in paths]


def test_lines_that_coincide_show_in_turn() -> None:
    ((picture,), _), *_ = groups([panel("Naive", "SVA", "DFW-1", "DFW-2", "DFW-log")], "k")
    places = markers(picture.svg)
    assert len(places) == 5
    for own in places:
        others = set[str]().union(*(other for other in places if other is not own))
        assert len(own - others) >= 2


def test_a_line_of_few_points_shows_them_all() -> None:
    lines = {"in process": ([1, 2], [0.2, 0.1]), "Spark": ([1], [0.3])}
    ((picture,), _), *_ = groups([Panel("F", "cores", "seconds", lines)], "k")
    assert [len(own) for own in markers(picture.svg)] == [2, 1]


def test_what_was_not_measured_has_dashes_and_no_markers() -> None:
    dashed = ("simulation", "perfect")
    (group,) = groups([panel("SVA", *dashed, dashed=dashed)], "k")
    styles = {key.name: key.style.split()[2:] for key in group.legend}
    assert styles == {"SVA": [], "simulation": ["dashed"], "perfect": ["dotted"]}
    assert [bool(key.marker) for key in group.legend] == [True, False, False]
    assert len(markers(group.pictures[0].svg)) == 1


def test_many_lines_can_all_be_told_apart() -> None:
    names = [f"{count} cores" for count in range(20)]
    (group,) = groups([panel("SVA", *names)], "k")
    assert len({(key.style, key.marker) for key in group.legend}) == 21


def test_a_method_looks_the_same_everywhere() -> None:
    looks = [
        {key.name: (key.style, key.marker) for key in groups([panel(*names)], "k")[0].legend}
        for names in (("Naive", "DFW-2"), ("a new one", "DFW-2"))
    ]
    assert looks[0]["DFW-2"] == looks[1]["DFW-2"] != looks[1]["a new one"]


def test_charts_are_named_by_what_they_show() -> None:
    (group,) = groups([panel("SVA", title="d = 3: objective by epochs")], "k")
    title = ET.fromstring(group.pictures[0].svg).findtext("title")
    assert title == "d = 3: objective by epochs (F against epochs)"


@pytest.mark.parametrize(("words", "lines"), [(3, 1), (14, 2), (25, 3)])
def test_long_titles_stay_above_their_chart(words: int, lines: int) -> None:
    title = "words " * words
    svg = ET.fromstring(to_file([panel("SVA", title=title), panel("SVA", title=title)], "k"))
    name = "{http://www.w3.org/2000/svg}text"
    titles = [text for text in svg.iter(name) if text.get("class") == "title"]
    assert len(titles) == 2 * lines
    assert all(7.5 * len(text.text or "") <= WIDTH for text in titles)
    tops = [float(chart.get("y", 0)) for chart in svg if chart.get("class") == "chart"]
    assert max(float(text.get("y", 0)) for text in titles) < tops[0] == tops[1]
