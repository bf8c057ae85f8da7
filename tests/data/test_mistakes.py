"""Whatever is wrong with a file ends in one sentence that names it and the first bad value."""

from __future__ import annotations

import datetime
import decimal
import gzip
import os
import sys
import zipfile
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.data.writers import write

from dfwtrace.data.files import read_features, read_table, survey
from dfwtrace.data.table import DataFileError


def refusal(path: Path, **options: Any) -> str:
    """The sentence, of reading a table."""
    options.setdefault("target", None)
    with pytest.raises(DataFileError) as error:
        read_table(path, **options)
    said = str(error.value)
    assert path.name in said
    assert "\n" not in said
    return said


LONG = "a,b,t\n" + "".join(f"{i},{i % 7},x\n" for i in range(300_000))  # more than a block
LATE = LONG.replace("\n299000,", "\nbad,")


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("", {}, ["t.csv has no rows."]),
        ("\n\n", {}, ["t.csv has no rows."]),
        ("a,b\n", {}, ["no rows"]),
        ("a,b\n1,2\n3\n", {}, ["t.csv", "has 2 columns, but row 3 (the header is row 1) has 1: "]),
        ("a,b\n1,2,3\n", {}, ["t.csv", "has 2 columns, but row 2 (the header is row 1) has 3: "]),
        (
            LONG + "1,2\n",
            {"target": "t"},
            ["3 columns, but row 300002 (the header is row 1) has 2: "],
        ),
        ("a,a\n1,2\n", {}, ["2 columns named 'a'"]),
        ("a, a\n1,2\n", {}, ["2 columns named 'a'"]),
        ('a,b\n1,"2\n3,4\n', {}, ["column 'b'", "text ('2\\n3,4", "in row 1: "]),
        ('a,b\n0,"2\n3,4\n', {"target": "b"}, ["quote", "never closed"]),
        ('a,b,c\n0,1,"2\n3,4,5\n', {"target": "b", "features": "a"}, ["quote", "never closed"]),
        (LONG.replace("\n1000,", '\n"1000,'), {"target": "t"}, ["t.csv", "straddles"]),
        ("a,b\n1," + "2" * 200_000 + "x\n", {}, ["'b'", "text ('222", "row 1"]),
        ("1.5,2\n3,4\n", {}, ["no header"]),
        ("0,0\n1,2\n", {}, ["no header"]),
        (",a,t\n0,5,x\n", {"target": "t"}, ["column 1 of t.csv has no name", "--drop ''"]),
        ("a,b\n1,2\nx,3\n", {"target": "b"}, ["column 'a'", "text ('x') in row 2: "]),
        ("a;b\n1;2\n1,5;3\n", {"target": "b"}, ["column 'a'", "text ('1,5') in row 2: "]),
        ("a,b\n1_000,2\n", {"target": "b"}, ["text ('1_000') in row 1: "]),
        ("a,b\n0x10,2\n", {"target": "b"}, ["text ('0x10') in row 1: "]),
        ("a,b\n٣,2\n", {"target": "b"}, ["text ('٣') in row 1: "]),
        ("a,b\n2020-01-01,2\n", {"target": "b"}, ["text ('2020-01-01') in row 1: "]),
        ("a,b\ntrue,2\n2,2\n", {"target": "b"}, ["column 'a'", "text ('true') in row 1: "]),
        (LATE, {"target": "t"}, ["column 'a'", "text ('bad') in row 299001: "]),
        ("a,b\n1,2\n,3\n", {"target": "b"}, ["column 'a'", "no value in row 2"]),
        ("a,b\n1,2\nNA,3\n", {"target": "b"}, ["column 'a'", "no value in row 2"]),
        ("a,b\n1,2\nnan,3\n", {"target": "b"}, ["column 'a'", "no value in row 2"]),
        ("a,b\n1,2\n ,3\n", {"target": "b"}, ["column 'a'", "no value in row 2"]),
        ("a,b\n1,2\nNone,3\n", {"target": "b"}, ["column 'a'", "no value in row 2"]),
        ("a,b\n-nan,2\n", {"target": "b"}, ["column 'a'", "no value in row 1"]),
        ("a,b\ninf,5\n", {"target": "b"}, ["column 'a'", "infinite in row 1"]),
        ("a,b\n1e400,5\n", {"target": "b"}, ["column 'a'", "infinite in row 1"]),
        ("x,t\n1,2\n2,-Infinity\n", {"target": "t"}, ["column 't'", "infinite in row 2"]),
        ("x,t\n1,2\n2,NA\n", {"target": "t"}, ["column 't'", "no value in row 2"]),
        ("x,t\n1,a\n2, \n", {"target": "t"}, ["column 't'", "no value in row 2"]),
        ("x,t,u\n1,2,b\n", {"target": "t,u"}, ["column 'u'", "text ('b') in row 1 "]),
        ("x,t,w\n1,2,-1\n", {"target": "t", "weight": "w"}, ["column 'w'", "negative in row 1"]),
        ("x,t,w\n1,2,a\n", {"target": "t", "weight": "w"}, ["column 'w'", "text ('a') in row 1 "]),
        ("x,t\n1,2\n", {"target": "T"}, ["no column 'T'", "did you mean 't'?"]),
        (
            "x,t\n1,Zoë\n".encode("latin-1"),
            {"target": "t"},
            ["t.csv is not in UTF-8: save it in that encoding."],
        ),
        ("x,Zoë\n1,2\n".encode("latin-1"), {}, ["is not in UTF-8: save it in that encoding."]),
        ("a,b\n1,2\n".encode("utf-16"), {}, ["UTF-8"]),
    ],
)
def test_mistakes_in_csv(
    text: str | bytes, options: dict[str, Any], words: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    said = refusal(path, **options)
    assert [word for word in words if word not in said] == [], said
    with pytest.raises(DataFileError):
        read_table(path, **{"target": None, **options}, spill=tmp_path)
    assert list(tmp_path.iterdir()) == [path]  # nothing is left of what was given up


FIELDS = st.sampled_from(["1", "2.5", "x", '"', '""', '"a"', "\n", "\r", ",", ",", " ", "é", "\0"])


@given(st.lists(FIELDS, max_size=24).map("".join))
@example('1,x\n"')
@example('1,"x\n2,y')
@example("1,x\n\n\n2,y")
def test_any_text_is_read_or_refused(body: str) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "t.csv"
        path.write_bytes(f"a,b\n{body}".encode())
        try:
            table = read_table(path, target="b", features="a")
        except DataFileError:
            return
        assert table.y is not None
        assert len(table.X) == len(table.y) > 0
        assert np.isfinite(table.X).all()


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
@pytest.mark.parametrize(
    ("column", "words"),
    [
        (pa.array(["red", "blue"]), "text ('red') in row 1: "),
        (pa.array(["red", "blue"]).dictionary_encode(), "text ('red') in row 1: "),
        (pa.array([decimal.Decimal("1.5")] * 2), "decimal128(2, 1)"),
        (pa.array([datetime.datetime(2020, 1, 1)] * 2), "timestamp[us]"),
        (pa.array([b"a", b"b"]), "binary"),
        (pa.array([{"a": 1}, {"a": 2}]), "struct<a: int64>"),
        (pa.array([["a"], ["b"]]), "text ('a') in row 1: "),
        (pa.array([1.0, None]), "no value in row 2"),
        (pa.array([1, None]), "no value in row 2"),
        (pa.array([None, None]), "no value in row 1"),
        (pa.array([1.0, np.nan]), "no value in row 2"),
        (pa.array([1.0, -np.inf]), "infinite in row 2"),
        (pa.array([[1.0], [None]]), "no value in row 2"),
        (pa.array([[1.0], None]), "no value in row 2"),
        (pa.array([[1.0], [np.inf]]), "infinite in row 2"),
        (pa.array([[1.0, 2.0], [3.0]]), "1 numbers, not 2, in row 2 "),
        (pa.array([[], []], pa.list_(pa.float64())), "0 numbers, not 1, in row 1 "),
    ],
)
def test_columns_that_cannot_be_features(
    suffix: str, column: Any, words: str, tmp_path: Path
) -> None:
    path = write(tmp_path / f"t.{suffix}", {"fine": [1.0, 2.0], "c": column})
    said = refusal(path)
    assert words in said
    assert "column 'c" in said
    assert read_table(path, target=None, features="fine").X.shape == (2, 1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"target": "when"}, "'when' of t.parquet holds date32[day]"),
        ({"target": "word,minus"}, "'word' of t.parquet holds text ('a') in row 1 "),
        ({"target": "words"}, "'words' of t.parquet holds text ('a') in row 1 "),
        ({"target": "none"}, "'none' of t.parquet has no value in row 2"),
        ({"target": "nan"}, "'nan' of t.parquet has no value in row 2"),
        (
            {"target": "x", "features": "minus", "weight": "none"},
            "'none' of t.parquet holds text ('a') in row 1 ",
        ),
        ({"target": "word", "weight": "word2"}, "holds text ('c') in row 1 "),
        ({"target": "word", "weight": "e"}, "'e' of t.parquet"),
        ({"target": "word", "weight": "minus"}, "negative in row 2"),
    ],
)
def test_columns_that_cannot_be_targets_or_weights(
    options: dict[str, Any], words: str, tmp_path: Path
) -> None:
    columns = {
        "x": [1.0, 2.0],
        "when": pa.array([datetime.date(2020, 1, 1)] * 2),
        "word": ["a", "b"],
        "word2": ["c", "d"],
        "words": [["a", "b"], ["c", "d"]],
        "none": ["a", None],
        "e": pa.array([[1.0, 2.0], [2.0, 3.0]]),
        "minus": [1, -1],
        "nan": [1.0, np.nan],
    }
    path = write(tmp_path / "t.parquet", columns)
    assert words in refusal(path, **{"features": "x", **options})


def test_files_of_a_folder_that_do_not_fit(tmp_path: Path) -> None:
    write(tmp_path / "0.parquet", {"a": [1.0], "e": [[1.0, 2.0]], "t": [1]})
    last = tmp_path / "1.parquet"

    def said(**columns: Any) -> str:
        write(last, columns)
        with pytest.raises(DataFileError) as error:
            read_table(tmp_path, target="t")
        return str(error.value)

    assert "1.parquet has no column 'a'" in said(e=[[1.0, 2.0]], t=[1])
    assert "'e' of 1.parquet has 1 numbers, not 2, in row 1 " in said(a=[1.0], e=[[1.0]], t=[1])
    with pytest.raises(DataFileError, match=r"'e' of 1\.parquet has 1 numbers, not 2"):
        read_table(tmp_path, target="e", features="a")
    assert "'a' of 1.parquet has no value in row 1" in said(a=[np.nan], e=[[1.0, 2.0]], t=[1])
    assert "holds text in some files" in said(a=[1.0], e=[[1.0, 2.0]], t=["x"])
    last.write_bytes(b"PAR1 and no more")
    with pytest.raises(DataFileError, match=r"1\.parquet is not a Parquet file"):
        read_table(tmp_path, target="t")


ONES = np.ones((4, 2))
CSR = {"X_data": [1.0, 2.0], "X_indices": [0, 1], "X_indptr": [0, 1, 1, 2], "X_shape": [3, 2]}


@pytest.mark.parametrize(
    ("content", "options", "words"),
    [
        ({"x": ONES}, {}, "t.npz has no array 'X'; did you mean 'x'?"),
        ({"X": ONES}, {"target": "y"}, "t.npz has no array 'y'; it has 'X'."),
        ({"X": np.array([[None]])}, {}, "Object arrays cannot be loaded"),
        ({"X": ONES, "y": np.array([None])}, {}, "Object arrays cannot be loaded"),
        ({"X": np.array([["a"]])}, {}, "array 'X' of t.npz holds <U1 "),
        ({"X": 1j * ONES}, {}, "array 'X' of t.npz holds complex128 "),
        ({"X": np.ones(3)}, {}, "array 'X' of t.npz holds float64 of shape (3,)"),
        ({"X": np.ones((0, 3))}, {}, "array 'X' of t.npz holds float64 of shape (0, 3)"),
        ({"X": ONES, "y": np.ones(3)}, {}, "'y' of t.npz have the shape (3,), but there are 4"),
        ({"X": ONES, "y": 1j * np.ones(4)}, {}, "hold complex128 in 1"),
        ({"X": ONES, "y": np.float64(3)}, {}, "have the shape ()"),
        ({"X": ONES, "y": np.full((4, 2), "a")}, {}, "hold <U1 in 2 dimensions"),
        ({"X": ONES, "y": [1, 2, np.nan, 3]}, {}, "column 'y' of t.npz has no value in row 3 "),
        ({"X": [[1, 2], [3, np.inf]]}, {}, "column '1' of t.npz is infinite in row 2 "),
        ({"X": ONES, "w": -np.ones(4)}, {"weight": "w"}, "'w' of t.npz is negative in row 1"),
        ({"X": ONES, "w": ["a"] * 4}, {"weight": "w"}, "must be one column of numbers"),
        ({"X": ONES}, {"target": ["a", "b"]}, "one array, not several"),
        ({**CSR, "X_indices": [0, 9]}, {}, "damaged: indices must be < 2"),
        ({**CSR, "X_data": [1.0, np.inf]}, {}, "column '1' of t.npz is infinite in row 3 "),
        (
            {**CSR, "X_data": [np.nan, 1.0]},
            {},
            "column '0' of t.npz has no value in row 1: fill in",
        ),
        ({"X_indptr": [0, 1]}, {}, "t.npz has no array 'X_data'"),
    ],
)
def test_mistakes_in_npz(content: Any, options: Any, words: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", **content)
    assert words in refusal(tmp_path / "t.npz", **options)


def test_mistakes_in_npy(tmp_path: Path) -> None:
    path = tmp_path / "X.npy"
    np.save(path, np.array([[1.0, 2.0], [np.nan, 3.0]]))
    assert "column '0' of X.npy has no value in row 2: fill in" in refusal(path)
    np.save(path, ONES)
    assert "give a .npy file, not 'label'" in refusal(path, target="label")
    assert "leave out --features" in refusal(path, features="x*")
    with pytest.raises(DataFileError, match="leave out --features"):
        survey(path, features="x*")
    with pytest.raises(DataFileError, match=r"z\.npy is not there"):
        read_table(path, target="z.npy")
    np.save(path, np.array([{}]), allow_pickle=True)
    assert "Python objects" in refusal(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1 1:2\n0 1:nan\n", "column '0' of t.svm has no value in row 2 "),
        ("1\n2\n", "has no features"),
        ("# nothing\n", "has no rows"),
        ("a 1:2\n", "not an svmlight file"),
        ("1 b:2\n", "not an svmlight file"),
        ("1 1:2:3\n", "not an svmlight file"),
        ("1 -5:2\n", "not an svmlight file"),
    ],
)
def test_mistakes_in_svmlight(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "t.svm"
    path.write_text(text)
    assert words in refusal(path)
    assert "leave out --target" in refusal(path, target="y")


def test_a_member_that_is_no_array(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "t.npz", "w") as archive:
        archive.writestr("X", b"words")
    assert "'X'" in refusal(tmp_path / "t.npz")


def test_features_that_a_model_misses(tmp_path: Path) -> None:
    path = tmp_path / "new.csv"
    path.write_text("a,b,c\n1,2,3\n")
    for names, words in (
        (["a", "d", "e"], "new.csv has no column 'd', 'e'; it has 'a', "),
        (["a", "B"], "new.csv has no column 'B'; did you mean 'b'?"),
        (["a[4]"], "new.csv has no column 'a[4]'; "),
    ):
        with pytest.raises(DataFileError) as error:
            read_features(path, names, len(names))
        assert words in str(error.value)


# Files as such


FILES: dict[str, Callable[[Path], object]] = {
    "t.csv": lambda path: path.write_text("a,b\n" + "1,2\n" * 50),
    "t.csv.gz": lambda path: path.write_bytes(gzip.compress(b"a,b\n" + b"1,2\n" * 50)),
    "t.npz": lambda path: np.savez_compressed(path, X=np.ones((20, 2)), y=np.ones(20)),
    "t.npy": lambda path: np.save(path, np.ones((20, 2))),
    "t.parquet": lambda path: write(path, {"a": [1.0] * 50, "b": [2] * 50}, chunk=50),
    "t.arrow": lambda path: write(path, {"a": [1.0] * 50, "b": [2] * 50}, chunk=50),
    "t.svm": lambda path: path.write_text("1 1:2 3:4\n" * 5),
}


@pytest.mark.parametrize("name", FILES)
def test_files_that_cannot_be_read(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    assert f"{path} is not there" in refusal(path)
    for read in (survey, lambda path: read_features(path, None, 2)):
        with pytest.raises(DataFileError, match="is not there"):
            read(path)
    path.touch()
    refusal(path)
    with pytest.raises(DataFileError, match=name):
        survey(path)
    path.unlink()
    os.mkfifo(path)  # nobody writes to it: whoever opened it would wait for ever
    assert f"{path} is not a regular file" in refusal(path)
    with pytest.raises(DataFileError, match="not a regular file"):
        survey(path)
    if name == "t.npy":
        np.save(tmp_path / "X.npy", ONES)
        with pytest.raises(DataFileError, match="not a regular file"):
            read_table(tmp_path / "X.npy", target=name)


def test_paths_without_data(tmp_path: Path) -> None:
    assert "holds no data files" in refusal(tmp_path)
    (tmp_path / "t.xlsx").touch()
    assert "no known format; known are .csv" in refusal(tmp_path / "t.xlsx")
    (tmp_path / "deep.csv").mkdir()
    assert "deep.csv is not a regular file" in refusal(tmp_path)
    (tmp_path / "t.arrow").touch()
    assert "several formats" in refusal(tmp_path)


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
        assert "may not be read: permission denied" in refusal(path)
    finally:
        os.seteuid(user)


@pytest.mark.parametrize("name", [name for name in FILES if name not in ("t.csv", "t.svm")])
def test_a_file_cut_short(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    FILES[name](path)
    whole = path.read_bytes()
    for length in [*range(1, len(whole) - 1, max(1, len(whole) // 40)), len(whole) - 1]:
        path.write_bytes(whole[:length])
        refusal(path)


@pytest.mark.parametrize(("name", "inside"), list(permutations(FILES, 2)))
def test_a_file_that_is_not_what_its_name_says(name: str, inside: str, tmp_path: Path) -> None:
    FILES[inside](tmp_path / inside)
    path = tmp_path / name
    path.write_bytes((tmp_path / inside).read_bytes())
    refusal(path)
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


def test_without_pyarrow_one_sentence_says_what_to_do(tmp_path: Path) -> None:
    for name, save in FILES.items():
        save(tmp_path / name)
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in sys.modules if name.split(".")[0] == "pyarrow"]:
            patch.setitem(sys.modules, name, None)
        patch.delitem(sys.modules, "dfwtrace.data.arrow", raising=False)
        for name in ("t.csv", "t.csv.gz", "t.parquet", "t.arrow"):
            assert "needs pyarrow: pip install 'dfwtrace[cli]'" in refusal(tmp_path / name)
        for name in ("t.npy", "t.npz", "t.svm"):
            assert read_table(tmp_path / name, target=None).X.shape[0] > 0


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
