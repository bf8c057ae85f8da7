"""Files as they come: ids, dates, text and missing values, from fit to predictions."""

from __future__ import annotations

import csv
import datetime
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cli.commands import done, told

import dfwtrace as dt
from dfwtrace.files.container import read_container, write_container

NAMES = ["id", "joined", "age", "bill", "city", "note", "product"]
PRODUCTS = ("basic", "fibre", "tv")
HOW = ("--keep", "id,note", "--drop", "joined", "--categorical", "city", "--impute", "median")
FIT = ("-t", "product", "--radius", 20, "--tol", 1e-3)


def customers(n: int = 120, seed: int = 0, missing: float = 0.1) -> list[dict[str, str]]:
    """Rows in which the city and the age decide."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        kind, old = int(rng.integers(3)), bool(rng.integers(2))
        rows.append({
            "id": f"00{i}" if i % 7 else f"=1+{i}",
            "joined": f"2024-01-{1 + i % 28:02d}",
            "age": "" if rng.random() < missing else f"{70 if old else 30}",
            "bill": "NA" if rng.random() < missing else f"{rng.normal(5.0):.2f}",
            "city": ("Lyon", "Oslo", "Rome")[kind],
            "note": "called,\ntwice" if i == 1 else "",
            "product": PRODUCTS[0 if old and kind == 0 else kind],
        })  # fmt: skip
    return rows


def save(path: Path, rows: list[dict[str, str]], names: list[str] | None = None) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, names or list(rows[0]), extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows, and a model of them."""
    folder = tmp_path_factory.mktemp("messy")
    save(folder / "train.csv", customers())
    save(folder / "test.csv", customers(seed=1))
    done("fit", folder / "train.csv", *FIT, *HOW, "-o", folder / "model")
    return folder


def test_predictions_of_a_file_with_other_columns_in_another_order(
    folder: Path, tmp_path: Path
) -> None:
    rows = customers(40, seed=2, missing=0.0)
    for row in rows:
        row["more"] = "?"
    new = save(tmp_path / "new.csv", rows, ["more", "note", "city", "bill", "id", "age"])
    out = tmp_path / "p.csv"
    facts = told("predict", folder / "model", new, "-o", out)
    assert facts["columns"] == ["id", "note", "prediction"]
    assert "warnings" not in facts
    with out.open(newline="") as file:
        found = list(csv.DictReader(file))
    # Ids as they are but for those that a spreadsheet would run; a line end within a cell.
    quoted = [row["id"].replace("=", "'=") for row in rows]
    assert [row["id"] for row in found] == quoted
    assert found[1]["note"] == "called,\ntwice"
    right = [ours["prediction"] == row["product"] for ours, row in zip(found, rows, strict=True)]
    assert np.mean(right) > 0.9
    # What Python makes of the features that the model names.
    model = dt.load(folder / "model")
    names = ["age", "bill", "city=Lyon", "city=Oslo", "city=Rome"]
    assert list(model.feature_names_in_) == names
    cities = [[row["city"] == city for city in ("Lyon", "Oslo", "Rome")] for row in rows]
    numbers = [[float(row["age"]), float(row["bill"])] for row in rows]
    X = pd.DataFrame(np.hstack([numbers, cities]), columns=names)
    assert model.predict(X).tolist() == [ours["prediction"] for ours in found]


def test_missing_values_and_new_categories_are_predicted(folder: Path, tmp_path: Path) -> None:
    rows = customers(3, seed=3, missing=0.0)
    rows[0]["age"], rows[1]["city"], rows[2]["city"] = "", "Bern", ""
    new = save(tmp_path / "new.csv", rows, NAMES[:-1])
    shown = done("predict", folder / "model", new, "--proba")
    assert shown.stderr == (
        "Warning: 2 rows of new.csv hold categories that the model does not know, such as "
        "'city=Bern': they count as none of those it knows.\n"
    )
    lines = shown.stdout.splitlines()
    assert lines[0] == "id,note,p_basic,p_fibre,p_tv"
    # The same as with the median of the training rows in the place of what is missing.
    ages = [float(row["age"]) for row in customers() if row["age"]]
    rows[0]["age"] = str(np.median(ages))
    save(new, rows, NAMES[:-1])
    assert done("predict", folder / "model", new, "--proba").stdout.splitlines() == lines


def test_scores_are_those_of_prepared_rows(folder: Path, tmp_path: Path) -> None:
    words = ("fit", folder / "train.csv", *FIT, *HOW, "-o", tmp_path / "m")
    scores = told(*words, "--test", folder / "test.csv")["scores"]
    assert scores["test"]["accuracy"] > 0.9
    found = told("evaluate", tmp_path / "m", folder / "test.csv")
    assert found["scores"] == pytest.approx(scores["test"])


def test_kept_columns_in_other_formats(folder: Path, tmp_path: Path) -> None:
    new = folder / "test.csv"
    done("predict", folder / "model", new, "-o", tmp_path / "p.parquet")
    table = pq.read_table(tmp_path / "p.parquet")
    assert table.column_names == ["id", "note", "prediction"]
    assert table["id"].to_pylist() == [row["id"] for row in customers(seed=1)]
    facts = told("predict", folder / "model", new, "-o", tmp_path / "p.npy")
    assert facts["columns"] == ["prediction"]
    assert "has no kept columns" in facts["warnings"][0]
    assert np.load(tmp_path / "p.npy").tolist() == table["prediction"].to_pylist()


def test_typed_columns_are_kept_with_their_types(tmp_path: Path) -> None:
    n = 30
    when = [datetime.datetime(2024, 1, 1 + k, 12) for k in range(n)]
    held = {
        "key": pa.array(range(n)),
        "when": pa.array([None, *when[1:]], pa.timestamp("ns")),
        "a": np.arange(n) % 3 + 0.5,
        "y": np.arange(n) % 3 + 0.25,
    }
    pq.write_table(pa.table(held), tmp_path / "t.parquet")
    words = ("fit", tmp_path / "t.parquet", "-t", "y", "--keep", "key,when", "--radius", 5)
    done(*words, "-o", tmp_path / "m")
    done("predict", tmp_path / "m", tmp_path / "t.parquet", "-o", tmp_path / "p.parquet")
    found = pq.read_table(tmp_path / "p.parquet")
    assert found.column_names == ["key", "when", "y"]
    assert found.schema.types[:2] == [pa.int64(), pa.timestamp("ns")]
    lines = done("predict", tmp_path / "m", tmp_path / "t.parquet").stdout.splitlines()
    assert lines[1].startswith("0,,")
    assert lines[2].startswith("1,2024-01-02 12:00:00,")


def test_kept_columns_that_are_not_there_or_in_the_way(folder: Path, tmp_path: Path) -> None:
    rows = customers(3, missing=0.0)
    new = save(tmp_path / "new.csv", rows, ["age", "bill", "city", "note"])
    facts = told("predict", folder / "model", new, "-o", tmp_path / "p.csv")
    assert facts["columns"] == ["note", "prediction"]
    assert facts["warnings"] == ["new.csv has no column 'id' to keep: the predictions go without."]
    (tmp_path / "t.csv").write_text("a,prediction,y\n" + "1,x,0\n2,z,1\n" * 5)
    words = ("fit", tmp_path / "t.csv", "-t", "y", "--keep", "prediction", "--radius", 1)
    done(*words, "-o", tmp_path / "m")
    facts = told("predict", tmp_path / "m", tmp_path / "t.csv", "-o", tmp_path / "p.csv")
    assert facts["columns"] == ["prediction"]
    assert facts["warnings"] == [
        "the column 'prediction' of t.csv is not kept: predictions have that name."
    ]
    assert (tmp_path / "p.csv").read_text().splitlines()[1] in ("0", "1")


def test_inspect_shows_what_is_done(folder: Path) -> None:
    rows = dict(
        line.split("  ", 1) for line in done("inspect", folder / "model").stdout.splitlines()
    )
    shown = {name.strip(): fact.strip() for name, fact in rows.items()}
    assert shown["drop"] == "joined"
    assert shown["keep"] == "id, note"
    assert shown["categorical"] == "city (Lyon, Oslo, Rome)"
    assert shown["impute"].startswith("median: age ")
    found = told("inspect", folder / "model")["preparation"]
    assert found["categories"] == {"city": ["Lyon", "Oslo", "Rome"]}
    assert (found["impute"], list(found["fill"])) == ("median", ["age", "bill"])


def test_a_model_whose_preparation_is_damaged_is_refused(folder: Path, tmp_path: Path) -> None:
    header, arrays = read_container(folder / "model", "model")
    notes: Any = header["notes"]
    notes["preparation"]["fill"] = ["age"]
    write_container(tmp_path / "m", "model", header, arrays)
    error = told("inspect", tmp_path / "m", code=2)["error"]
    assert error.endswith("is not a whole model: its preparation is of other types.")


def test_path_and_plan_take_the_same_options(folder: Path) -> None:
    words = (folder / "train.csv", "-t", "product", *HOW)
    found = told("plan", *words)
    assert (found["rows"], found["features"], found["classes"]) == (120, 5, 3)
    found = told("path", *words, "--radii", "1,20", "--tol", 1e-2)
    assert found["best_radius"] >= 20.0


def test_arrays_are_imputed(tmp_path: Path) -> None:
    X, y, _ = dt.datasets.make_multiclass(n=80, d=4, m=3, rank=2, random_state=0)
    holed = X.copy()
    holed[::9, 1] = np.nan
    np.savez(tmp_path / "t.npz", X=holed, y=y)
    words = ("fit", tmp_path / "t.npz", "--radius", 9, "-o", tmp_path / "m")
    assert "--impute mean" in told(*words, code=2)["error"]
    told(*words, "--impute", "mean")
    done("predict", tmp_path / "m", tmp_path / "t.npz", "-o", tmp_path / "p.npy")
    filled = np.where(np.isnan(holed), np.nanmean(holed, axis=0), holed)
    assert np.array_equal(np.load(tmp_path / "p.npy"), dt.load(tmp_path / "m").predict(filled))


def test_an_id_is_pointed_out(tmp_path: Path) -> None:
    rows = "".join(f"{k},{k % 5}.5,{k % 2}\n" for k in range(40))
    (tmp_path / "t.csv").write_text(f"row,a,y\n{rows}")
    words = ("fit", tmp_path / "t.csv", "-t", "y", "--radius", 1, "-o", tmp_path / "m")
    (warning,) = told(*words)["warnings"]
    assert warning == (
        "column 'row' holds another whole number in nearly every row, like an id: leave it out "
        "with --drop row, or carry it into the predictions with --keep row."
    )
    assert "warnings" not in told(*words, "--keep", "row")


def test_whole_numbers_of_many_values_ask_for_the_task(tmp_path: Path) -> None:
    rows = "".join(f"{k % 7}.5,{k % 21},{k % 20},c{k % 30}\n" for k in range(210))
    data = tmp_path / "t.csv"
    data.write_text(f"a,price,kind,code\n{rows}")
    how = ("--features", "a", "--radius", 1, "--tol", 0.1, "-o", tmp_path / "m")
    for command, more in (("fit", how), ("plan", how[:2]), ("path", how[:2])):
        assert told(command, data, "-t", "price", *more, code=2)["error"] == (
            "target 'price' holds 21 distinct whole numbers: "
            "say --task classification or --task regression."
        )
    for task in ("classification", "regression"):
        assert told("fit", data, "-t", "price", *how, "--task", task)["task"] == task
    for target, classes in (("kind", 20), ("code", 30)):
        shown = done("fit", data, "-t", target, *how).stdout
        assert f"\nClassification into {classes} classes with radius 1.\n" in shown


@pytest.mark.parametrize("option", ["--drop", "--keep", "--categorical", "--impute"])
def test_spark_prepares_its_columns_itself(option: str, folder: Path) -> None:
    value = "mean" if option == "--impute" else "id"
    words = ("fit", folder / "train.csv", "-t", "product", "--radius", 1, "--engine", "spark")
    assert told(*words, option, value, code=2)["error"] == (
        f"{option} belongs to --engine local: prepare the columns with Spark."
    )


def test_the_help_shows_no_types_of_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERMINAL_WIDTH", "80")
    for command in ([], ["fit"], ["predict"], ["evaluate"], ["path"], ["inspect"], ["plan"]):
        shown = done(*command, "--help").stdout
        assert "--help" in shown
        for noise in ("<bool>", "BOOLEAN", "<float>", "<int"):
            assert noise not in shown, shown
    shown = done("fit", "--help").stdout
    panels = ["Data", "Model", "Run", "Output"]
    places = [shown.index(f"─ {panel} ─") for panel in panels]
    assert places == sorted(places)
    assert "─ Options ─" not in shown  # every option has its panel


def test_nothing_in_the_model_could_run(folder: Path) -> None:
    notes = read_container(folder / "model", "model").header["notes"]
    assert json.loads(json.dumps(notes)) == notes
