"""Every experiment at a toy scale: its rows, what is drawn from them, and what is said of them."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.browser import BROWSER, Browser
from tests.cli.commands import COMMAND, call, done, environment, told

import dfwtrace as dt
from dfwtrace.experiments import figure1, figure2, figure3, figure4, table1, theorem
from dfwtrace.experiments.exhibits import NONE, Setting
from dfwtrace.experiments.features import find_intents
from dfwtrace.experiments.methods import ACCELERATED, COMPARED, PAPER
from dfwtrace.experiments.page import part_of
from dfwtrace.experiments.provenance import ROOT
from dfwtrace.experiments.reproduction import EXPERIMENTS, Progress, choose, measure, write
from dfwtrace.experiments.runs import Row, Run, of_experiment
from dfwtrace.experiments.store import Rows

SETTING = Setting("toy", "local", dt.LocalEngine, find_intents())


def raising(name: str, error: BaseException) -> None:
    raise error


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All experiments, measured and drawn."""
    folder = tmp_path_factory.mktemp("toy")
    rows = Rows(folder)
    for _ in measure(SETTING, choose([]), rows, lambda step: None, raising):
        pass
    write(folder, list(rows), "toy")
    return folder


@pytest.fixture(scope="module")
def rows(folder: Path) -> list[Row]:
    return list(Rows(folder))


def test_every_run_left_a_row_that_says_where_it_was_made(rows: list[Row]) -> None:
    runs = [run for experiment in EXPERIMENTS.values() for run in experiment.runs(SETTING)]
    assert len(rows) == len(runs)
    assert {row["experiment"] for row in rows} == set(EXPERIMENTS)
    for row in rows:
        assert {"commit", "date", "versions", "cpu", "cores", "blas", "seconds"} <= set(row)
        assert row["values"]
        assert {"seed", "seeds"} & set(row["settings"])


def test_what_is_there_is_not_measured_again(folder: Path) -> None:
    before = (folder / "rows.jsonl").read_bytes()
    seen: list[Progress] = []
    for _ in measure(SETTING, choose([]), Rows(folder), seen.append, raising):
        pass
    assert all(step.known for step in seen)
    assert (folder / "rows.jsonl").read_bytes() == before


def test_other_settings_are_other_runs(folder: Path) -> None:
    on_spark = Setting("toy", "spark", dt.LocalEngine)
    rows = Rows(folder)
    assert all(rows.find(run) is None for run in figure1.runs(on_spark))


@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_every_experiment_shows_something_and_judges_claims(name: str, rows: list[Row]) -> None:
    own = of_experiment(rows, name)
    shown = EXPERIMENTS[name].exhibit(own)
    assert shown.panels or shown.tables
    for panel in shown.panels:
        assert panel.lines
        for x, y in panel.lines.values():
            assert len(x) == len(y) > 0
            assert np.isfinite([*x, *y]).all()
    for panels in (shown.panels, shown.beyond):
        assert len({panel.title for panel in panels}) == len(panels)  # each says what it shows
    for table in shown.tables:
        assert all(len(cells) == len(table.columns) for cells in table.rows)
        names = [tuple(cells[: table.names]) for cells in table.rows]
        assert len(set(names)) == len(names)  # and no two rows have one name
    claims = EXPERIMENTS[name].claims(own)
    assert claims
    for claim in claims:
        assert claim.text.endswith(".")
        assert claim.measured.endswith(".")
        assert claim.reason or claim.holds is not False  # what does not hold has its reason told


def test_the_figures_compare_all_methods(rows: list[Row]) -> None:
    for name in ("figure 1", "figure 2", "figure 3"):
        for panel in EXPERIMENTS[name].exhibit(of_experiment(rows, name)).panels:
            assert list(panel.lines) == list(PAPER)
        for panel in EXPERIMENTS[name].exhibit(of_experiment(rows, name)).beyond:
            assert list(panel.lines) == list(COMPARED)


def test_a_row_tells_what_solve_gives(rows: list[Row]) -> None:
    row = of_experiment(rows, "figure 1", method="DFW-2", d=10)[0]
    settings = row["settings"]
    X, Y, truth = dt.datasets.make_multitask(600, 10, 10, rank=10, seed=0, dtype=np.float32)
    result = dt.solve(
        dt.LeastSquares(),
        X,
        Y,
        radius=1.0,
        lmo="power-2",
        step="linesearch",
        epochs=settings["epochs"],
        engine=dt.LocalEngine(settings["shards"]),
    )
    expected = result.history.column("objective") / result.objective_at_zero
    np.testing.assert_array_equal(row["values"]["objective"], expected)
    error = (result.W - truth).frobenius_norm / truth.frobenius_norm
    assert row["values"]["errors"]["frobenius"]["error"][-1] == pytest.approx(error, rel=1e-6)
    assert row["values"]["errors"]["frobenius"]["epoch"] == row["values"]["epoch"]


def test_accelerated_is_certified(rows: list[Row]) -> None:
    for row in rows:
        if row["settings"].get("method") == ACCELERATED:
            assert row["values"]["status"] == "optimal"
            assert row["values"]["relative_gap"] <= 1e-4


def test_what_can_be_known_beforehand_holds(rows: list[Row]) -> None:
    """Counts are exact at any size, and the theorem is one."""
    assert table1.claims(of_experiment(rows, "table 1"))[0].holds is True
    assert theorem.claims(of_experiment(rows, "theorem"))[0].holds is True


def test_stand_ins_are_called_so(rows: list[Row]) -> None:
    own = of_experiment(rows, "figure 3")
    names = {row["settings"]["data"] for row in own}
    assert names == {figure3.INTENTS, figure3.SYNTHETIC}
    assert all(name.startswith("stand-in") for name in names)
    assert figure3.claims(own)[0].verdict == "not measured"


def test_features_of_imagenet_take_the_stand_ins_place(tmp_path: Path) -> None:
    X, y, _ = dt.datasets.make_multiclass(n=80, d=9, m=5, rank=3, seed=0, dtype=np.float32)
    for part, some in (("train", slice(0, 60)), ("val", slice(60, 80))):
        np.save(tmp_path / f"X_{part}.npy", X[some])
        np.save(tmp_path / f"y_{part}.npy", y[some])
    setting = Setting("toy", "local", dt.LocalEngine, imagenet=tmp_path)
    made = [run for run in figure3.runs(setting) if run.settings["data"] == figure3.REAL]
    assert {run.settings["radius"] for run in made} == {30.0}
    store = Rows(tmp_path / "out")
    own = [store.of(run) for run in made]
    assert {(row["values"]["n"], row["values"]["d"]) for row in own} == {(60, 9)}
    judged = [claim for claim in figure3.claims(own) if figure3.REAL in claim.text]
    assert len(judged) == 2
    assert all(claim.holds is not None for claim in judged)


def test_a_limit_of_time_is_kept_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(figure3._SYNTHETIC_SECONDS, "toy", 1e-9)
    runs = figure3.runs(replace(SETTING, intents=None))
    assert {run.settings["seconds"] for run in runs} == {1e-9}
    store = Rows(tmp_path)
    own = [store.of(run) for run in runs]
    assert {len(row["values"]["epoch"]) for row in own} == {1}
    assert {row["values"]["status"] for row in own} == {"stopped"}
    cut = figure3.exhibit(own).notes[-1]
    assert cut == f"Ended by the limit of 1e-09 seconds: {', '.join(COMPARED)}."
    assert part_of(figure3, own) is not None
    # It is for data that the library makes; a user's own take as long as they take.
    others = [run for run in figure3.runs(SETTING) if run.settings["data"] == figure3.INTENTS]
    assert others
    assert not any("seconds" in run.settings for run in others)


def test_without_spark_the_figure_says_so(rows: list[Row]) -> None:
    own = of_experiment(rows, "figure 4")
    assert {row["settings"]["engine"] for row in own} == {"in process"}
    assert "no rows of Spark" in figure4.exhibit(own).notes[0]
    assert figure4.claims(own)[-1].verdict == "not measured"


def test_what_is_not_counted_is_no_zero(rows: list[Row]) -> None:
    (table,) = table1.exhibit(of_experiment(rows, "table 1")).tables
    cells = {row[0]: row[3:] for row in table.rows}
    assert set(cells.pop(ACCELERATED)) == {NONE}
    assert all(cell not in (NONE, "0") for own in cells.values() for cell in own)


def test_files_are_the_same_for_the_same_rows(
    folder: Path, tmp_path: Path, rows: list[Row]
) -> None:
    write(tmp_path, rows, "toy")
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [
        "claims.md",
        *(f"figure-{k}{end}.svg" for k in range(1, 4) for end in ("-accelerated", "")),
        "figure-4.svg",
        "report.html",
        "spectrum.svg",
        "starts.svg",
        "theorem.svg",
    ]
    for name in names:
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()


# Figures that are broken over several lines.
BROKEN = """
[...document.querySelectorAll(".figure")].filter(e => {
  const text = document.createRange();
  text.selectNodeContents(e);
  return text.getClientRects().length > 1;
}).map(e => e.textContent)
"""
# The least room that what was measured has beside, or below, its claim.
NARROWEST = "Math.min(...[...document.querySelectorAll('.measured')].map(e => e.clientWidth))"
# Tables that are wider than their box, and scroll in it.
SCROLLING = """
[...document.querySelectorAll(".scroll")].filter(e => e.scrollWidth > e.clientWidth).length
"""


def test_the_page_opens_in_a_browser(folder: Path, tmp_path: Path) -> None:
    program = subprocess.run([BROWSER, "check"], capture_output=True, text=True)
    if program.returncode:
        pytest.skip("no Chromium (tools/browser.sh says what to do)")
    browser = Browser(program.stdout.strip(), tmp_path)
    try:
        for width, dark in ((360, True), (1200, False)):
            browser.open(folder / "report.html", width, dark)
            assert browser.evaluate("document.documentElement.scrollWidth") <= width
            assert browser.evaluate("document.querySelectorAll('figure svg polyline').length") > 100
            assert browser.evaluate("document.querySelectorAll('.claims tbody tr').length") >= 20
            assert browser.evaluate(BROKEN) == []
            assert browser.evaluate(NARROWEST) >= 190
            assert (browser.evaluate(SCROLLING) > 3) == (width == 360)
            assert browser.complaints() == []
        browser.open(folder / "figure-1.svg", 1000, dark=False)
        assert browser.evaluate("document.querySelectorAll('.chart').length") == 8
        assert browser.complaints() == []
    finally:
        browser.close()


def test_what_is_half_done_is_left_out_and_said(folder: Path, tmp_path: Path) -> None:
    lines = (folder / "rows.jsonl").read_text("utf-8").splitlines(keepends=True)
    kept = [line for line in lines if '"figure 2"' not in line or '"DFW-1"' not in line]
    assert len(kept) < len(lines)
    (tmp_path / "rows.jsonl").write_text("".join(kept), "utf-8")
    ended = done("reproduce", "--scale", "toy", "--draw-only", "--out", tmp_path)
    assert "Warning: figure 2: not all of its rows are there" in ended.stderr
    assert "Figure 1" in ended.stdout
    assert "Figure 2" not in ended.stdout
    assert not (tmp_path / "figure-2.svg").exists()


#: Rows with which an experiment can be shown, where not all are needed: one set of data each.
WHOLE_FROM = {"figure 3": len(COMPARED), "spectrum": 1}


@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_what_was_interrupted_is_shown_or_left_out(name: str, rows: list[Row]) -> None:
    own = of_experiment(rows, name)
    shown = [part_of(EXPERIMENTS[name], own[:count]) for count in range(len(own) + 1)]
    assert shown[0] is None
    assert shown[-1] is not None
    assert [part for part in shown[: WHOLE_FROM.get(name, len(own))] if part is not None] == []


def test_an_experiments_own_mistake_is_not_taken_for_missing_rows(rows: list[Row]) -> None:
    broken = [{**row, "values": {}} for row in of_experiment(rows, "figure 1")]
    with pytest.raises(KeyError):
        part_of(EXPERIMENTS["figure 1"], broken)


@pytest.mark.parametrize("dropped", ["Naive", "DFW-log", ACCELERATED])
@pytest.mark.parametrize("name", ["figure 1", "figure 2", "figure 3"])
def test_a_figure_needs_all_of_its_methods(name: str, dropped: str, rows: list[Row]) -> None:
    own = of_experiment(rows, name)
    some = [row for row in own if row["settings"]["method"] != dropped]
    assert part_of(EXPERIMENTS[name], some) is None


def test_a_figure_needs_all_of_its_problems(rows: list[Row]) -> None:
    assert part_of(figure1, of_experiment(rows, "figure 1", d=10)) is None
    assert part_of(figure2, of_experiment(rows, "figure 2", radius=10.0)) is None


@pytest.mark.parametrize("scale", ["small", "paper"])
def test_what_is_kept_is_what_its_rows_give(scale: str, tmp_path: Path) -> None:
    kept = ROOT / "experiments" / "results" / scale
    parts = write(tmp_path, list(Rows(kept)), scale)
    assert parts
    names = {path.name for path in tmp_path.iterdir()}
    assert {path.name for path in kept.iterdir()} == {*names, "rows.jsonl"}
    for name in names:
        assert (tmp_path / name).read_bytes() == (kept / name).read_bytes(), name
    page = (ROOT / "docs" / "reproducing.md").read_text("utf-8")
    assert (kept / "claims.md").read_text("utf-8") in page


def test_one_experiment_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    rows, failed = Rows(tmp_path), []
    _, *others = table1.runs(SETTING)

    def broken() -> dict[str, object]:
        raise ConnectionError("a worker was lost")

    class Broken:
        NAME = "figure 1"

        @staticmethod
        def runs(setting: Setting) -> list[Run]:
            return [Run("figure 1", {}, broken), *others]

    def fail(name: str, error: BaseException) -> None:
        failed.append((name, type(error)))

    some = [Broken, EXPERIMENTS["theorem"]]
    steps: list[Progress] = []
    for _ in measure(SETTING, some, rows, steps.append, fail):
        pass
    assert failed == [("figure 1", ConnectionError)]
    assert {row["experiment"] for row in rows} == {"theorem"}
    assert steps[-1].number == steps[-1].of == len(others) + 1 + len(theorem.runs(SETTING))


def test_what_is_wrong_with_the_rows_ends_all(tmp_path: Path) -> None:
    """Or each experiment would measure its first run, and lose it."""
    rows = Rows(tmp_path)

    def damaging() -> dict[str, object]:
        (tmp_path / "rows.jsonl").write_text("damaged meanwhile")
        return {}

    class Damaging:
        NAME = "figure 1"

        @staticmethod
        def runs(setting: Setting) -> list[Run]:
            return [Run("figure 1", {}, damaging)]

    with pytest.raises(ValueError, match="line 1 is no row"):
        list(measure(SETTING, [Damaging], rows, lambda step: None, lambda name, error: None))
    assert (tmp_path / "rows.jsonl").read_text() == "damaged meanwhile"


class TestCommand:
    """``dfwtrace reproduce`` on rows that are there, so that it takes no time."""

    def test_says_what_became_of_every_claim(self, folder: Path, rows: list[Row]) -> None:
        ended = done("reproduce", "--scale", "toy", "--only", "figure 1", "--out", folder)
        assert "[1/13] figure 1: Naive, n 600, d 10" in ended.stderr
        assert ended.stderr.count("(known)") == 13
        for claim in _claims(rows):
            assert claim in ended.stdout
        assert "report.html were written." in ended.stdout

    def test_tells_programs(self, folder: Path, rows: list[Row]) -> None:
        seen = told("reproduce", "--scale", "toy", "--draw-only", "--out", folder)
        assert seen["rows"] == len(rows)
        assert [claim["claim"] for claim in seen["claims"]] == _claims(rows)
        assert {claim["kind"] for claim in seen["claims"]} <= {"paper", "stand-in", "beyond"}

    def test_rows_of_another_scale_or_engine_are_not_mixed_in(self, folder: Path) -> None:
        before = (folder / "report.html").read_bytes()
        ended = done("reproduce", "--scale", "small", "--draw-only", "--out", folder, code=2)
        assert "holds rows of figure 1 with n 600, not 20000; name another." in ended.stderr
        words = ("--scale", "toy", "--engine", "spark", "--draw-only")
        ended = done("reproduce", *words, "--out", folder, code=2)
        assert "holds rows of figure 1 with engine local, not spark" in ended.stderr
        assert (folder / "report.html").read_bytes() == before

    def test_makes_what_is_missing(self, tmp_path: Path) -> None:
        done("reproduce", "--scale", "toy", "--only", "table 1", "--out", tmp_path, "--quiet")
        rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
        assert {row["experiment"] for row in rows} == {"table 1"}
        assert "<h2>Table 1: communication of an epoch</h2>" in (
            tmp_path / "report.html"
        ).read_text("utf-8")

    def test_ctrl_c_keeps_the_rows(self, tmp_path: Path) -> None:
        words = [*COMMAND, "reproduce", "--only", "figure 2", "--out", str(tmp_path)]
        with subprocess.Popen(
            words, env=environment(), stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stderr is not None
            watchdog = threading.Timer(120.0, process.kill)
            watchdog.start()
            for line in process.stderr:
                if line.startswith("[2/"):  # the first run is made, the second under way
                    process.send_signal(signal.SIGINT)
                    break
            said = process.stderr.read()
            watchdog.cancel()
        assert process.returncode == 130
        assert f"Interrupted: rows in {tmp_path}: 1; the same command goes on." in said
        (row,) = Rows(tmp_path)
        (first, *_) = EXPERIMENTS["figure 2"].runs(replace(SETTING, scale="small"))
        assert Rows(tmp_path).find(first) == row

    @pytest.mark.parametrize(
        ("words", "sentence"),
        [
            (["--only", "figure 9"], "--only: there is no experiment 'figure 9'; there are figure"),
            (["--only", "theorem", "--master", "local[1]"], "--master: only figure 4 and --engine"),
            (["--imagenet", "nowhere"], "--imagenet: nowhere does not exist."),
            (["--clinc150", "nowhere"], "--clinc150: nowhere does not exist."),
            (["--imagenet", ROOT], "there are neither the folders train and val nor X_train.npy"),
            (["--clinc150", ROOT / "README.md"], "README.md: it is no .npz file."),
            (["--draw-only"], "there are no rows to draw."),
        ],
    )
    def test_refuses(self, tmp_path: Path, words: list[object], sentence: str) -> None:
        ended = call("reproduce", *words, "--out", tmp_path / "new")
        assert ended.exit_code == 2
        assert sentence in ended.stderr
        assert "Traceback" not in ended.stderr
        assert not (tmp_path / "new").exists()  # nothing was measured, and nothing is left behind

    @pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="no folder that nobody may write")
    def test_a_folder_that_cannot_be_written_to(self) -> None:
        ended = call("reproduce", "--scale", "toy", "--out", "/proc/self")
        assert ended.exit_code == 2
        assert "--out: /proc/self cannot be written to: " in ended.stderr

    def test_bad_features_are_found_before_anything_is_measured(self, tmp_path: Path) -> None:
        X, y, _ = dt.datasets.make_multiclass(n=80, d=9, m=5, rank=3, seed=0, dtype=np.float32)
        X[70, 3] = np.nan
        for part, some in (("train", slice(0, 60)), ("val", slice(60, 80))):
            np.save(tmp_path / f"X_{part}.npy", X[some])
            np.save(tmp_path / f"y_{part}.npy", y[some])
        words = ("--scale", "toy", "--imagenet", tmp_path, "--out", tmp_path / "new")
        ended = call("reproduce", *words)
        assert ended.exit_code == 2
        assert "--imagenet: column '3' of X_val.npy has no value in row 11" in ended.stderr
        assert not (tmp_path / "new").exists()

    def test_an_experiment_named_twice_is_made_once(self, folder: Path) -> None:
        words = ("--scale", "toy", "--only", "figure 1", "--only", "figure 1", "--out", folder)
        assert "[13/13]" in done("reproduce", *words).stderr

    def test_a_file_is_no_folder_for_rows(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("mine")
        ended = call("reproduce", "--scale", "toy", "--out", tmp_path / "file")
        assert ended.exit_code == 2
        assert f"--out: {tmp_path / 'file'} is not a folder." in ended.stderr
        assert (tmp_path / "file").read_text() == "mine"

    def test_says_beforehand_that_no_page_can_be_written(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("dfwtrace.experiments.page.find_spec", lambda name: None)
        ended = call("reproduce", "--scale", "toy", "--out", tmp_path / "new")
        assert "the page needs jinja2: pip install 'dfwtrace[report]'." in ended.stderr
        assert ended.exit_code != 0
        assert not (tmp_path / "new").exists()


def _claims(rows: Sequence[Row]) -> list[str]:
    return [
        claim.text
        for name, experiment in EXPERIMENTS.items()
        for claim in experiment.claims(of_experiment(rows, name))
    ]
