"""Columns that are dropped, kept, encoded or filled in, against scikit-learn's transformers."""

from __future__ import annotations

import datetime
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder
from tests.data.writers import write

from dfwtrace.data.files import read_features, read_table, survey
from dfwtrace.data.preparation import NO_VALUE, Preparation, warn_of_ids
from dfwtrace.data.table import DataFileError, Table

ROWS = 60


def columns(seed: int = 0, cities: int = 3) -> dict[str, list[Any]]:
    """Numbers of which some are missing, text of which some is, and labels."""
    rng = np.random.default_rng(seed)

    def holed(values: list[Any]) -> list[Any]:
        return [None if rng.random() < 0.2 else value for value in values]

    return {
        "age": holed(rng.integers(18, 90, ROWS).tolist()),
        "city": holed([f"c{k}" for k in rng.integers(0, cities, ROWS)]),
        "pay": holed(np.round(rng.normal(3000.0, 500.0, ROWS), 2).tolist()),
        "code": rng.integers(1, 4, ROWS).tolist(),
        "when": [datetime.date(2024, 1, 1 + k % 28) for k in range(ROWS)],
        "y": [("no", "yes")[k] for k in rng.integers(0, 2, ROWS)],
    }


def csv(path: Path, held: dict[str, list[Any]], separator: str = ",") -> Path:
    rows = zip(*held.values(), strict=True)
    lines = [separator.join("" if cell is None else str(cell) for cell in row) for row in rows]
    path.write_text("\n".join([separator.join(held), *lines]) + "\n")
    return path


def dense(X: Any) -> Any:
    return X.toarray() if sp.issparse(X) else np.asarray(X)


def expected(held: dict[str, list[Any]], train: dict[str, list[Any]], how: str) -> Any:
    """The same columns by scikit-learn."""
    sides = []
    for name in ("age", "city", "pay", "code"):
        here, there = (
            np.array([NO_VALUE if cell is None else cell for cell in rows[name]])[:, None]
            if name in ("city", "code")
            else np.array(rows[name], dtype=np.float64)[:, None]
            for rows in (held, train)
        )
        if name in ("city", "code"):
            step: Any = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
            here, there = here.astype(str), there.astype(str)
        else:
            step = SimpleImputer(strategy=how)
        sides.append(step.fit(there).transform(here))
    return np.hstack(sides)


OPTIONS: dict[str, Any] = {"target": "y", "drop": "when", "categorical": "city,code"}


@pytest.mark.parametrize("how", ["mean", "median"])
@pytest.mark.parametrize("suffix", ["csv", "parquet", "arrow"])
@pytest.mark.parametrize("cities", [3, 40])
def test_columns_are_prepared_as_scikit_learn_does(
    suffix: str, how: str, cities: int, tmp_path: Path
) -> None:
    train, new = columns(cities=cities), columns(seed=1, cities=cities + 2)
    save = csv if suffix == "csv" else write
    table = read_table(save(tmp_path / f"t.{suffix}", train), impute=how, **OPTIONS)
    assert sp.issparse(table.X) is (cities == 40)
    np.testing.assert_allclose(dense(table.X), expected(train, train, how), rtol=1e-12)
    names = table.feature_names or []
    assert names[:2] == ["age", f"city={NO_VALUE}"]
    assert names[-4:] == ["pay", "code=1", "code=2", "code=3"]
    # In another order, with a column more, and without one that is not needed.
    other = {"extra": ["?"] * ROWS} | {n: new[n] for n in ("pay", "code", "city", "age")}
    preparation = Preparation.from_plain(json.loads(json.dumps(through(table))))
    again = read_features(
        save(tmp_path / f"new.{suffix}", other), names, len(names), preparation=preparation
    )
    assert sp.issparse(again.X) is (cities == 40)
    np.testing.assert_allclose(dense(again.X), expected(new, train, how), rtol=1e-12)
    known = set(train["city"])
    strange = [city not in known for city in new["city"]]
    (warning,) = again.warnings
    assert warning.startswith(f"{sum(strange)} rows of new.{suffix} hold categories")
    assert f"'city={new['city'][strange.index(True)]}'" in warning


def through(table: Table) -> Any:
    assert table.preparation is not None
    return table.preparation.to_plain()


def test_features_that_are_spilled_are_filled_in_too(tmp_path: Path) -> None:
    path = csv(tmp_path / "t.csv", columns())
    plain = read_table(path, impute="median", **OPTIONS)
    room = tmp_path / "room"
    room.mkdir()
    spilled = read_table(path, impute="median", **OPTIONS, spill=room)
    assert isinstance(spilled.X, np.memmap)
    assert np.array_equal(plain.X, spilled.X)
    wide = csv(tmp_path / "wide.csv", columns(cities=50))
    with pytest.raises(DataFileError, match="--spill is not for these data: most of the one-hot"):
        read_table(wide, impute="median", **OPTIONS, spill=room)


def test_arrays_are_filled_in_and_files_of_the_user_stay(tmp_path: Path) -> None:
    X = np.arange(12.0).reshape(6, 2)
    X[[1, 4], [0, 1]] = np.nan
    np.save(tmp_path / "X.npy", X)
    np.savez(tmp_path / "X.npz", X=X, y=np.arange(6.0))
    before = (tmp_path / "X.npy").read_bytes()
    for name in ("X.npy", "X.npz"):
        found = read_table(tmp_path / name, target=None, impute="mean")
        truth = SimpleImputer(strategy="mean").fit(X)
        np.testing.assert_allclose(found.X, truth.transform(X))
        holed = np.full((2, 2), np.nan)
        np.savez(tmp_path / "new.npz", X=holed)
        how = {"preparation": found.preparation}
        again = read_features(tmp_path / "new.npz", None, 2, **how)  # type: ignore[arg-type]
        np.testing.assert_allclose(again.X, truth.transform(holed))
    assert (tmp_path / "X.npy").read_bytes() == before


def test_kept_columns_are_carried_as_they_are(tmp_path: Path) -> None:
    held = {"id": ["007", "=1+1", " x "], "a": [1, 2, 3], "y": [0.5, 1.5, 2.5]}
    table = read_table(csv(tmp_path / "t.csv", held), target="y", keep="id")
    assert table.feature_names == ["a"]
    found = read_features(tmp_path / "t.csv", ["a"], 1, preparation=table.preparation)
    assert found.kept is not None
    assert found.kept["id"].to_pylist() == held["id"]
    typed = {"id": pa.array([datetime.date(2024, 2, 3)] * 3), "a": [1, 2, 3]}
    write(tmp_path / "t.parquet", typed)
    found = read_features(tmp_path / "t.parquet", ["a"], 1, preparation=table.preparation)
    assert found.kept is not None
    assert found.kept["id"].type == pa.date32()
    (tmp_path / "none.csv").write_text("a\n1\n")
    without = read_features(tmp_path / "none.csv", ["a"], 1, preparation=table.preparation)
    assert without.kept == {}


@pytest.mark.parametrize(
    ("cells", "categories"),
    [
        (["red", "", " blue ", '"a\nb"'], [NO_VALUE, "a\nb", "blue", "red"]),
        (["NA", "none", "x", "y"], ["NA", "none", "x", "y"]),  # text may well mean it
        (["1", "01", "1.0", "2"], ["01", "1", "1.0", "2"]),
        (["true", "False", "true", "true"], ["False", "true"]),
        ([NO_VALUE, "", "x", "x"], [NO_VALUE, "x"]),
        (["2024-01-02", "2024-01-03"] * 2, ["2024-01-02", "2024-01-03"]),
    ],
)
def test_cells_of_csv_as_categories(
    cells: list[str], categories: list[str], tmp_path: Path
) -> None:
    lines = "\n".join(f"{k},{cell},{k}.5" for k, cell in enumerate(cells))
    (tmp_path / "t.csv").write_text(f"a,c,y\n{lines}\n")
    table = read_table(tmp_path / "t.csv", target="y", categorical="c")
    assert table.feature_names == ["a", *(f"c={name}" for name in categories)]
    plain = [NO_VALUE if not cell.strip() else cell.strip().strip('"') for cell in cells]
    assert dense(table.X)[:, 1:].argmax(axis=1).tolist() == [categories.index(p) for p in plain]
    assert dense(table.X)[:, 1:].sum(axis=1).tolist() == [1.0] * len(cells)


def test_other_types_as_categories(tmp_path: Path) -> None:
    held = {
        "flag": [True, None, False],
        "number": [1.0, math.nan, 2.5],
        "whole": [7, None, 8],
        "word": pa.array(["b", None, ""]).dictionary_encode(),
    }
    write(tmp_path / "t.parquet", {**held, "y": [0.5, 1.5, 2.5]})
    table = read_table(tmp_path / "t.parquet", target="y", categorical="*")
    assert table.feature_names == [
        f"flag={NO_VALUE}", "flag=false", "flag=true",
        f"number={NO_VALUE}", "number=1", "number=2.5",
        f"whole={NO_VALUE}", "whole=7", "whole=8",
        f"word={NO_VALUE}", "word=b",
    ]  # fmt: skip
    truth = [[0, 0, 1, 0, 1, 0, 0, 1, 0, 0, 1], [1, 0, 0] * 3 + [1, 0], [0, 1, 0] + [0, 0, 1] * 2]
    truth[2] += [1, 0]
    assert dense(table.X).tolist() == truth


def test_missing_numbers_of_every_type_are_filled_in(tmp_path: Path) -> None:
    held = {
        "flag": [True, None, True],
        "whole": [1, None, 4],
        "half": pa.array([1.0, math.nan, 2.0], pa.float32()),
        "list": [[1.0, None], [3.0, 5.0], [5.0, 7.0]],
        "y": [0.5, 1.5, 2.5],
    }
    write(tmp_path / "t.parquet", held)
    table = read_table(tmp_path / "t.parquet", target="y", impute="mean")
    assert table.feature_names == ["flag", "whole", "half", "list[0]", "list[1]"]
    assert table.X.tolist() == [[1, 1, 1, 1, 6], [1, 2.5, 1.5, 3, 5], [1, 4, 2, 5, 7]]
    (tmp_path / "t.csv").write_text("a,b,y\n1,True,0.5\n ,,1.5\nNone,false,2.5\n3,True,3.5\n")
    found = read_table(tmp_path / "t.csv", target="y", impute="median").X
    assert found.tolist() == [[1, 1], [2, 1], [2, 0], [3, 1]]


def test_tabs_of_a_tsv_file_are_known_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("height, in cm, rounded\ty\n1\t0.5\n2\t1.5\n")
    table = read_table(tmp_path / "t.tsv", target="y")
    assert table.feature_names == ["height, in cm, rounded"]
    assert table.X.tolist() == [[1], [2]]


def test_a_survey_counts_one_hot_features(tmp_path: Path) -> None:
    path = csv(tmp_path / "t.csv", columns(cities=40))
    options: Any = {name: OPTIONS[name] for name in ("target", "drop", "categorical")}
    found, _ = survey(path, impute="mean", **options)
    table = read_table(path, impute="mean", **options)
    assert (found.rows, found.features, found.sparse, found.exact) == (*table.X.shape, True, True)
    held = table.X.data.nbytes + table.X.nnz * 4 + (ROWS + 1) * 4
    assert found.nbytes == pytest.approx(held, rel=0.01)


# What is wrong with a file is said with what to do about it.

TEXT = "one-hot encode it with --categorical {0}, or leave it out with --drop"
AWAY = "leave it out with --drop {0}, or carry it into the predictions with --keep"


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("a,y\nred,1\n", {}, ["'a' of t.csv holds text ('red') in row 1", TEXT.format("a")]),
        ("a,b,y\nx,z,1\n", {}, [TEXT.format("a,b"), "(so do 'b')."]),
        ("a b,y\nx,1\n", {}, [TEXT.format("'a b'")]),
        ("a,y\n2024-01-02,1\n", {}, ["('2024-01-02')", AWAY.format("a")]),
        ("a,b,y\n3/4/2024,x,1\n", {}, ["('3/4/2024')", AWAY.format("a") + "."]),
        ("user_id,c,y\nu1,x,1\n", {}, [AWAY.format("user_id") + "."]),
        ('a,y\n"1,234",1\n', {}, ["('1,234') in row 1", "without thousands separators"]),
        ("a;y\n1,5;1\n", {}, ["('1,5') in row 1", "a decimal point"]),
        ("a,y\n1,1\n?,1\n", {}, ["('?') in row 2", "leave cells without a value empty"]),
        ("a,y\n1,1\n,1\n", {}, ["no value in row 2", "--impute mean or --impute median"]),
        ("a,y\n1,1\n2,\n", {"impute": "mean"}, ["'y' of t.csv has no value in row 2 (numb"]),
        ("a,y\n1,1\ninf,2\n", {"impute": "mean"}, ["'a' of t.csv is infinite in row 2 (numb"]),
        ("a,b,y\n,1,1\n,1,2\n", {"impute": "mean"}, ["has no mean: it holds no", "--drop a"]),
        ("a,y\n1e308,1\n1e308,2\n", {"impute": "mean"}, ["no mean: its numbers are too large"]),
        ("a,y\n1,1\n", {"drop": "b"}, ["t.csv has no column 'b'"]),
        ("a,y\n1,1\n", {"drop": "a"}, ["t.csv has no columns left that could be features"]),
        ("a,y\n1,1\n", {"drop": "y"}, ["'y' of t.csv is the target and cannot be dropped too"]),
        ("a,y\n1,1\n", {"keep": "y"}, ["'y' of t.csv is the target and cannot be kept too"]),
        ("a,b,y\n1,1,1\n", {"keep": "a", "drop": "a"}, ["is kept and cannot be dropped too"]),
        ("a,b,y\n1,1,1\n", {"keep": "a", "categorical": "a"}, ["kept and cannot be encoded"]),
        (
            "a,b,y\n1,1,1\n",
            {"features": "a", "categorical": "b"},
            ["'b' of t.csv is no feature and cannot be encoded too"],
        ),
        ("a,a=x,y\nx,1,1\n", {"categorical": "a"}, ["2 columns named 'a=x'"]),
    ],
)
def test_advice(text: str, options: Any, words: list[str], tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(DataFileError) as error:
        read_table(tmp_path / "t.csv", target="y", **options)
    said = str(error.value)
    assert [word for word in words if word not in said] == [], said
    assert said.endswith(".")
    assert "\n" not in said


def test_advice_about_typed_columns(tmp_path: Path) -> None:
    held = {"a": [1.0], "word": ["x"], "when": [datetime.date(2024, 1, 1)], "y": [1.5]}
    path = write(tmp_path / "t.parquet", held)
    with pytest.raises(DataFileError, match="--categorical word, or leave it out with --drop"):
        read_table(path, target="y")
    with pytest.raises(DataFileError, match=r"holds date32\[day\], .* with --drop when, or carry"):
        read_table(path, target="y", drop="word")
    path = write(tmp_path / "u.parquet", {"a": [[1.0]], "s": [{"b": 1}], "y": [1.5]})
    for name in ("a", "s"):
        with pytest.raises(DataFileError, match=f"column '{name}' of u.parquet holds "):
            read_table(path, target="y", features=name, categorical=name)


def test_advice_is_another_for_a_model(tmp_path: Path) -> None:
    path = tmp_path / "new.csv"
    for cell, words in {
        "red": "('red') in row 1: the model needs numbers there.",
        "": "no value in row 1: a model that was fitted with --impute fills in missing numbers.",
    }.items():
        path.write_text(f"a,b\n{cell},1\n")
        with pytest.raises(DataFileError) as error:
            read_features(path, ["a", "b"], 2)
        assert words in str(error.value)


@pytest.mark.parametrize(
    ("name", "option", "words"),
    [
        ("t.npz", {"drop": "a"}, "--drop needs named columns, which t.npz has not."),
        ("t.npz", {"keep": "a"}, "--keep needs named columns"),
        ("t.npz", {"categorical": "a"}, "--categorical needs named columns"),
        ("t.svm", {"impute": "mean"}, "--impute is not for svmlight files, such as t.svm."),
    ],
)
def test_options_that_need_columns(name: str, option: Any, words: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", X=np.ones((2, 2)), y=np.ones(2))
    (tmp_path / "t.svm").write_text("1 1:2\n0 1:1\n")
    with pytest.raises(DataFileError) as error:
        read_table(tmp_path / name, target=None, **option)
    assert words in str(error.value)


def test_a_model_of_categories_needs_columns(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,c,y\n1,x,0.5\n2,z,1.5\n")
    table = read_table(tmp_path / "t.csv", target="y", categorical="c")
    np.savez(tmp_path / "t.npz", X=np.ones((2, 3)))
    with pytest.raises(DataFileError, match=r"no column names, but the model .* categories in 'c'"):
        read_features(tmp_path / "t.npz", table.feature_names, 3, preparation=table.preparation)


@pytest.mark.parametrize(
    ("name", "values", "is_id"),
    [
        ("n", np.arange(30), True),
        ("n", -np.arange(30), True),
        ("n", np.arange(19), False),  # too few rows
        ("n", np.arange(30) / 2, False),
        ("n", np.arange(30) % 29, False),
        ("n", np.random.default_rng(0).permutation(40), False),  # may be chance
        ("n", np.random.default_rng(0).permutation(140), True),
        ("customer_id", np.random.default_rng(0).permutation(40), True),
        ("customerId", np.arange(100) % 95, True),
        ("id", np.arange(100) % 50, False),
        ("paid", np.arange(100) % 95, False),
        ("e[0]", np.arange(30), False),
        ("late", np.concatenate([np.arange(2000), [0, 1]]), False),
    ],
)
@pytest.mark.parametrize("sparse", [False, True])
def test_what_looks_like_an_id(name: str, values: Any, is_id: bool, sparse: bool) -> None:
    X = np.column_stack([np.ones(len(values)), values]).astype(np.float64)
    found = warn_of_ids(sp.csr_array(X) if sparse else X, ["one", name], Preparation())
    assert [name in warning for warning in found] == [True] * is_id
    for warning in found:
        assert f"--drop {name}, or carry it into the predictions with --keep {name}." in warning


def test_categories_that_look_like_ids(tmp_path: Path) -> None:
    lines = "".join(f"n{k},c{k % 3},{k}.5\n" for k in range(30))
    (tmp_path / "t.csv").write_text(f"name,colour,y\n{lines}")
    (found,) = read_table(tmp_path / "t.csv", target="y", categorical="*").warnings
    assert "'name' holds 30 categories in 30 rows, like an id" in found


PLAIN = Preparation(["a", "c"], {"c": ["x"]}, "mean", {"a": 1.5}, ["id"], ["d"]).to_plain()


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        [],
        {},
        {**PLAIN, "more": 1},
        {**PLAIN, "columns": "a"},
        {**PLAIN, "columns": [1]},
        {**PLAIN, "categories": []},
        {**PLAIN, "categories": {"c": "x"}},
        {**PLAIN, "categories": {"c": [None]}},
        {**PLAIN, "impute": "zero"},
        {**PLAIN, "fill": {"a": "x"}},
        {**PLAIN, "fill": [1.0]},
        {**PLAIN, "keep": None},
    ],
)
def test_only_what_was_written_is_read(wrong: Any) -> None:
    assert Preparation.from_plain(json.loads(json.dumps(PLAIN))).to_plain() == PLAIN
    with pytest.raises(ValueError, match="its preparation"):
        Preparation.from_plain(wrong)
