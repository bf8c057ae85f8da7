"""Whatever is wrong with a file ends in one sentence that names it."""

from __future__ import annotations

import gzip
import os
import sys
import zipfile
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from dfwtrace.io.tables import DataFileError, read_features, read_table, survey


def sentence(path: Path, **options: Any) -> str:
    """What reading says."""
    options.setdefault("target", None)
    with pytest.raises(DataFileError) as error:
        read_table(path, **options)
    said = str(error.value)
    assert path.name in said
    assert "\n" not in said
    assert "Traceback" not in said
    return said


def test_what_cannot_be_opened(tmp_path: Path) -> None:
    for name in ("t.csv", "t.npz", "t.npy", "t.parquet", "t.arrow", "t.svm", "t.csv.gz"):
        assert sentence(tmp_path / name) == f"{tmp_path / name} is not there."
        with pytest.raises(DataFileError, match="is not there"):
            survey(tmp_path / name)
        with pytest.raises(DataFileError, match="is not there"):
            read_features(tmp_path / name, None, 2)
    (tmp_path / "t.xlsx").touch()
    assert sentence(tmp_path / "t.xlsx") == (
        f"{tmp_path / 't.xlsx'} is of no known format; known are .csv, .csv.gz, .npz, .npy, "
        ".parquet, .arrow, .feather, .svm, .libsvm, .svmlight and folders of .parquet files."
    )
    assert "holds no .parquet files" in sentence(tmp_path)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="permissions work otherwise here")
def test_permission_denied(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,2\n")
    read_table(path, target="b")  # all that is imported on the way is imported now
    path.chmod(0)
    user = os.geteuid()
    if user == 0:  # who may read anything
        os.seteuid(65534)
    try:
        assert sentence(path) == f"{path} may not be read: permission denied."
    finally:
        os.seteuid(user)


FILES: dict[str, Callable[[Path], object]] = {
    "t.csv": lambda path: path.write_text("a,b\n" + "1,2\n" * 50),
    "t.csv.gz": lambda path: path.write_bytes(gzip.compress(b"a,b\n" + b"1,2\n" * 50)),
    "t.npz": lambda path: np.savez_compressed(path, X=np.ones((20, 2)), y=np.ones(20)),
    "t.npy": lambda path: np.save(path, np.ones((20, 2))),
    "t.parquet": lambda path: pq.write_table(pa.table({"a": [1.0] * 50, "b": [2] * 50}), path),
    "t.arrow": lambda path: pyarrow.feather.write_feather(
        pa.table({"a": [1.0] * 50, "b": [2] * 50}), str(path)
    ),
    "t.svm": lambda path: path.write_text("1 1:2 3:4\n" * 5),
}


@pytest.mark.parametrize("name", FILES)
def test_an_empty_file(name: str, tmp_path: Path) -> None:
    (tmp_path / name).touch()
    sentence(tmp_path / name)
    with pytest.raises(DataFileError, match=name):
        survey(tmp_path / name)


@pytest.mark.parametrize("name", [name for name in FILES if name not in ("t.csv", "t.svm")])
def test_a_file_cut_short(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    FILES[name](path)
    whole = path.read_bytes()
    for length in [*range(1, len(whole) - 1, max(1, len(whole) // 40)), len(whole) - 1]:
        path.write_bytes(whole[:length])
        sentence(path)


@pytest.mark.parametrize(("name", "inside"), list(permutations(FILES, 2)))
def test_a_file_that_is_not_what_its_name_says(name: str, inside: str, tmp_path: Path) -> None:
    FILES[inside](tmp_path / inside)
    path = tmp_path / name
    path.write_bytes((tmp_path / inside).read_bytes())
    sentence(path)
    with pytest.raises(DataFileError, match=name):
        survey(path)


@pytest.mark.parametrize("name", [name for name in FILES if name != "t.csv.gz"])
def test_damaged_bytes(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    FILES[name](path)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(60):
        damaged = bytearray(whole)
        for place in rng.integers(0, len(whole), 4):
            damaged[place] = rng.integers(256)
        path.write_bytes(damaged)
        try:
            read_table(path, target=None)
        except DataFileError:
            refused += 1
    assert refused


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\n", "t.csv has a header but no rows."),
        ("\n\n", "t.csv is empty."),
        ("a,b\n1,2\n3\n", "row 2 of t.csv has 1 values, but the header names 2 columns"),
        ("a,b\n1,2,3\n", "row 1 of t.csv has 3 values, but the header names 2 columns"),
        ("a,a\n1,2\n", "t.csv has 2 columns named 'a'"),
        ('a,b\n1,"2\n3,4\n', "t.csv is opened and never closed."),
        ("a,b\n1," + "2" * 200_000 + "x\n", "t.csv"),
    ],
)
def test_bad_csv(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(text)
    assert said in sentence(tmp_path / "t.csv")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "pyarrow", None)
        assert said in sentence(tmp_path / "t.csv")


def test_csv_in_another_encoding(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes("a,b\n1,2\n".encode("utf-16"))
    assert "is not CSV in UTF-8" in sentence(tmp_path / "t.csv")


ONES = np.ones((4, 2))
CSR = {"X_data": [1.0], "X_indices": [0], "X_indptr": [0, 1], "X_shape": [1, 2]}


@pytest.mark.parametrize(
    ("content", "options", "said"),
    [
        ({"x": ONES}, {}, "t.npz has no array 'X'; did you mean 'x'?"),
        ({"X": ONES}, {"target": "y"}, "t.npz has no array 'y'; it has 'X'."),
        ({"X": np.array([[None]])}, {}, "array 'X' of t.npz holds Python objects"),
        ({"X": ONES, "y": np.array([None])}, {}, "array 'y' of t.npz holds Python objects"),
        ({"X": np.array([["a"]])}, {}, "array 'X' of t.npz holds text"),
        ({"X": 1j * ONES}, {}, "array 'X' of t.npz holds values of complex128"),
        ({"X": np.ones(3)}, {}, "array 'X' of t.npz has the shape (3,)"),
        ({"X": np.ones((0, 3))}, {}, "array 'X' of t.npz has the shape (0, 3)"),
        ({"X": ONES, "y": np.ones(3)}, {}, "'y' of t.npz have the shape (3,), but there are 4"),
        ({"X": ONES, "y": 1j * np.ones(4)}, {}, "hold values of complex128"),
        ({"X": ONES, "y": np.float64(3)}, {}, "have the shape ()"),
        ({"X": ONES, "y": np.full((4, 2), "a")}, {}, "several columns of text"),
        ({"X": ONES, "y": [1, 2, np.nan, 3]}, {}, "column 'y' of t.npz has no value in row 3 "),
        ({"X": [[1, 2], [3, np.inf]]}, {}, "column '1' of t.npz is infinite in row 2 "),
        ({"X": ONES, "w": -np.ones(4)}, {"weight": "w"}, "weight of t.npz is negative in row 1"),
        ({"X": ONES, "w": ["a"] * 4}, {"weight": "w"}, "must be one column of numbers"),
        ({"X": ONES}, {"target": ["a", "b"]}, "target must be one name, not several"),
        ({**CSR, "X_indices": [9]}, {}, "the parts of 'X' in t.npz make no sparse matrix"),
        ({**CSR, "X_data": [np.nan]}, {}, "column '0' of t.npz has no value in row 1 "),
        ({"X_indptr": [0, 1]}, {}, "t.npz has no array 'X_data'"),
    ],
)
def test_bad_npz(content: Any, options: Any, said: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", **content)
    assert said in sentence(tmp_path / "t.npz", **options)


def test_bad_npy(tmp_path: Path) -> None:
    path = tmp_path / "X.npy"
    np.save(path, np.array([[1.0, 2.0], [np.nan, 3.0]]))
    assert sentence(path).startswith("column '0' of X.npy has no value in row 2 ")
    np.save(path, ONES)
    assert "give the targets or weights as a .npy file, not 'label'" in sentence(
        path, target="label"
    )
    assert sentence(path, features="x*") == "X.npy has no column names: leave out --features."
    with pytest.raises(DataFileError, match="leave out --features"):
        survey(path, features="x*")
    with pytest.raises(DataFileError, match=r"z\.npy is not there"):
        read_table(path, target="z.npy")
    np.save(path, np.array([{}]), allow_pickle=True)
    assert "X.npy" in sentence(path)


def test_bad_svmlight(tmp_path: Path) -> None:
    path = tmp_path / "t.svm"
    path.write_text("1 1:2\n0 1:nan\n")
    assert sentence(path).startswith("column '0' of t.svm has no value in row 2 ")
    assert "leave out --target" in sentence(path, target="y")
    for text in ("# nothing\n", "1\n2\n", "a 1:2\n", "1 b:2\n", "1 1:2:3\n", "1 -5:2\n"):
        path.write_text(text)
        sentence(path)
    path.write_text("1\n2\n")
    assert sentence(path) == f"{path} has no features."
    assert read_features(path, None, 3).X.toarray().tolist() == [[0, 0, 0], [0, 0, 0]]


def test_a_spill_that_cannot_be(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(DataFileError, match=r"nowhere: No such file or directory\.$"):
        read_table(path, target="b", spill=tmp_path / "nowhere")


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    path, spill = tmp_path / "t.csv", tmp_path / "spill"
    path.write_text("a,b\n" + "1,2\n" * 20_000)
    spill.mkdir()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))  # no file may grow further
    try:
        with pytest.raises(DataFileError) as error:
            read_table(path, target="b", spill=spill)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert str(error.value) == f"the features cannot be written to {spill}: File too large."
    assert not list(spill.iterdir())


def test_a_member_that_is_no_array(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "t.npz", "w") as archive:
        archive.writestr("X", b"words")
    assert sentence(tmp_path / "t.npz") == "'X' in t.npz is no array."
    np.savez(tmp_path / "u.npz", X=ONES)
    with pytest.raises(DataFileError, match=r"u\.npz has no array 'x'; did you mean 'X'"):
        survey(tmp_path / "u.npz", features="x")
    np.savez(tmp_path / "u.npz", X=ONES, y=np.array([None]))
    with pytest.raises(DataFileError, match=r"array 'y' of u\.npz holds Python objects"):
        survey(tmp_path / "u.npz")


def test_a_sparse_spread_of_rows_names_the_right_one(tmp_path: Path) -> None:
    S = sp.csr_array(np.diag([1.0, 2.0, np.inf, 4.0]))
    parts = {"data": S.data, "indices": S.indices, "indptr": S.indptr, "shape": S.shape}
    np.savez(tmp_path / "t.npz", **{f"X_{part}": value for part, value in parts.items()})  # type: ignore[arg-type]
    assert "column '2' of t.npz is infinite in row 3 " in sentence(tmp_path / "t.npz")


@pytest.mark.parametrize("count", [0, -1, 1.5, True])
def test_a_bad_number_of_rows(count: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="max_rows must be a whole number of at least 1"):
        read_table(tmp_path / "t.csv", target=None, max_rows=count)
