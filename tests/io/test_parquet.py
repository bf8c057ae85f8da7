"""Parquet and Arrow: types, lists, folders, and folders larger than the memory."""

from __future__ import annotations

import datetime
import decimal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from dfwtrace.io.tables import DataFileError, read_features, read_table, survey

SUFFIXES = ["parquet", "arrow", "feather"]


def write(path: Path, columns: dict[str, Any], chunk: int = 3) -> Path:
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=chunk)
    else:
        pyarrow.feather.write_feather(table, str(path), chunksize=chunk)
    return path


def refusal(path: Path, **options: Any) -> str:
    options.setdefault("target", None)
    with pytest.raises(DataFileError) as error:
        read_table(path, **options)
    return str(error.value)


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        (["float", "float"], np.float32),
        (["halffloat", "halffloat"], np.float32),
        (["float", "bool", "int16", "uint8"], np.float32),
        (["float", "int32"], np.float64),
        (["float", "double"], np.float64),
        (["int8", "bool"], np.float64),
        (["bool"], np.float64),
        (["uint64", "int64"], np.float64),
    ],
)
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_dtype_that_holds_all_columns(
    suffix: str, types: list[str], expected: Any, tmp_path: Path
) -> None:
    values = np.array([1, 0, 1, 1, 0])
    columns = {
        f"c{i}": pa.array(values.astype(np.dtype(pa.type_for_alias(t).to_pandas_dtype())))
        for i, t in enumerate(types)
    }
    path = write(tmp_path / f"t.{suffix}", columns)
    table = read_table(path, target=None)
    assert table.X.dtype == expected
    assert survey(path).dtype == expected
    assert np.array_equal(table.X, np.tile(values[:, None], len(types)))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_lists_are_blocks_of_features(suffix: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    E = rng.standard_normal((10, 4)).astype(np.float32)
    L = rng.standard_normal((10, 2)).astype(np.float32)
    columns = {
        "fixed": pa.FixedSizeListArray.from_arrays(pa.array(E.ravel()), 4),
        "t": pa.array(list("ababababab")).dictionary_encode(),
        "free": pa.array(list(L), type=pa.list_(pa.float32())),
        "a": pa.array(np.arange(10, dtype=np.float32)),
    }
    path = write(tmp_path / f"t.{suffix}", columns)
    table = read_table(path, target="t")
    assert table.X.dtype == np.float32
    assert np.array_equal(table.X, np.column_stack([E, L, np.arange(10)]))
    names = [*(f"fixed[{i}]" for i in range(4)), "free[0]", "free[1]", "a"]
    assert table.feature_names == names
    assert table.y is not None
    assert table.y.dtype.kind == "U"
    assert table.y.tolist() == columns["t"].to_pylist()
    assert survey(path, target="t").features == 7
    assert survey(path, target="t").kind == "classification"
    # A model asks for them by the same names, in its own order, and not for all of them.
    wanted = ["a", "fixed[3]", "free[1]", "fixed[0]"]
    again = read_features(path, wanted, 4)
    assert np.array_equal(again.X, table.X[:, [names.index(name) for name in wanted]])
    assert np.array_equal(read_features(path, None, 7, exclude=["t"]).X, table.X)
    with pytest.raises(DataFileError, match=r"no column 'fixed\[4\]', a feature of the model"):
        read_features(path, ["fixed[4]"], 1)
    several = read_table(path, target="free", features="a")
    assert np.array_equal(several.y, L)
    assert several.target_names == ["free[0]", "free[1]"]


def test_a_tensor_column_is_its_storage(tmp_path: Path) -> None:
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(6.0).reshape(3, 2))
    path = write(tmp_path / "t.arrow", {"e": tensors})
    assert read_table(path, target=None).X.tolist() == [[0, 1], [2, 3], [4, 5]]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_lists_of_different_lengths(suffix: str, tmp_path: Path) -> None:
    lists = pa.array([[1.0, 2.0], [3.0, 4.0], [5.0], [6.0, 7.0]])
    path = write(tmp_path / f"t.{suffix}", {"e": lists}, chunk=4)
    assert refusal(path) == (
        f"column 'e' of t.{suffix} has 1 numbers in row 3, but 2 in row 1: "
        "every row must have as many."
    )
    path = write(tmp_path / f"t.{suffix}", {"e": lists}, chunk=2)
    assert "column 'e'" in refusal(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    ("column", "said"),
    [
        (
            pa.array(["red", "blue"]),
            "holds text ('red' in row 1): features must be numbers; leave it out with --features, "
            "or encode it.",
        ),
        (pa.array(["red", "blue"]).dictionary_encode(), "holds text ('red' in row 1)"),
        (pa.array([decimal.Decimal("1.5")] * 2), "holds decimals (decimal128(2, 1))"),
        (pa.array([datetime.datetime(2020, 1, 1)] * 2), "holds dates or times (timestamp[us])"),
        (pa.array([b"a", b"b"]), "holds raw bytes (binary)"),
        (pa.array([{"a": 1}, {"a": 2}]), "holds values of a kind (struct<a: int64>)"),
        (pa.array([["a"], ["b"]]), "holds lists of something else than numbers"),
        (pa.array([1.0, None]), "has no value in row 2 (numbering rows from 1 after the header)."),
        (pa.array([1, None]), "has no value in row 2 "),
        (pa.array([None, None]), "has no value in row 1 "),
        (pa.array([1.0, np.nan]), "has no value in row 2 "),
        (pa.array([1.0, -np.inf]), "is infinite in row 2 "),
        (pa.array([[1.0], [None]]), "has no value in row 2 "),
        (pa.array([[1.0], None]), "has no value in row 2 "),
    ],
)
def test_columns_that_cannot_be_features(
    suffix: str, column: Any, said: str, tmp_path: Path
) -> None:
    path = write(tmp_path / f"t.{suffix}", {"fine": [1.0, 2.0], "c": column})
    place = "c[0]" if "list" in str(column.type) and "infinite" in said else "c"
    assert refusal(path).startswith(f"column {place!r} of t.{suffix} {said}")
    assert read_table(path, target=None, features="fine").X.shape == (2, 1)


def test_columns_that_cannot_be_targets_or_weights(tmp_path: Path) -> None:
    columns = {
        "x": [1.0, 2.0],
        "when": pa.array([datetime.date(2020, 1, 1)] * 2),
        "word": ["a", "b"],
        "none": ["a", None],
        "e": pa.array([[1.0], [2.0]]),
        "minus": [1, -1],
        "nan": [1.0, np.nan],
    }
    path = write(tmp_path / "t.parquet", columns)
    assert refusal(path, target="when", features="x") == (
        "column 'when' of t.parquet holds dates or times (date32[day]): "
        "targets must be numbers or text."
    )
    assert "targets must be numbers" in refusal(path, target="word,minus", features="x")
    assert "'none' of t.parquet has no value in row 2 " in refusal(
        path, target="none", features="x"
    )
    assert "'nan' of t.parquet has no value in row 2 " in refusal(path, target="nan", features="x")
    for weight, said in (("none", "holds text"), ("e", "holds numbers"), ("minus", "negative")):
        assert said in refusal(path, target="word", features="x", weight=weight)
    assert read_table(path, target="e", features="x").y.tolist() == [1, 2]  # type: ignore[union-attr]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_targets_keep_their_type(suffix: str, tmp_path: Path) -> None:
    targets: dict[str, Any] = {
        "i": np.array([1, 2, 1, 2], dtype=np.int32),
        "b": np.array([True, False, True, False]),
        "f": np.array([0.5, 1, 2, 3], dtype=np.float32),
        "s": np.array(["1", "2", "1", "2"]),
    }
    path = write(tmp_path / f"t.{suffix}", {"x": [1.0] * 4, "w": [1, 2, 3, 4], **targets})
    for name, values in targets.items():
        table = read_table(path, target=name, features="x", weight="w")
        assert table.y is not None
        assert table.y.dtype == values.dtype
        assert np.array_equal(table.y, values)
        assert table.weight is not None
        assert table.weight.tolist() == [1, 2, 3, 4]
    both = read_table(path, target="i,f", features="x")
    assert both.y is not None
    assert both.y.dtype == np.float64
    assert both.target_names == ["i", "f"]


def test_the_index_of_pandas_is_no_feature(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1.0, 2.0], "t": ["x", "y"]}, index=[10, 20])
    frame.to_parquet(tmp_path / "t.parquet")
    table = read_table(tmp_path / "t.parquet", target="t")
    assert table.feature_names == ["a"]
    assert table.X.tolist() == [[1], [2]]


def test_names_with_dots_are_kept_apart(tmp_path: Path) -> None:
    path = write(tmp_path / "t.parquet", {"a": [[1.0]] * 2, "a.b": [2.0, 3.0], "t": [0, 1]})
    assert read_table(path, target="t", features="a").X.tolist() == [[1], [1]]
    assert read_table(path, target="t", features="a.b").X.tolist() == [[2], [3]]


def test_columns_of_the_same_name(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array([1.0]), pa.array([2.0])], names=["a", "a"])
    for suffix in SUFFIXES:
        path = write(tmp_path / f"t.{suffix}", table)  # type: ignore[arg-type]
        assert refusal(path) == f"t.{suffix} has 2 columns named 'a'; names must differ."
    empty = write(tmp_path / "e.parquet", {"a": pa.array([], pa.float64())})
    assert refusal(empty) == f"{empty} has no rows."


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_text_that_is_not_utf8(suffix: str, tmp_path: Path) -> None:
    odd = pa.Array.from_buffers(pa.utf8(), 2, pa.array([b"a", b"\xff"]).buffers())
    path = write(tmp_path / f"t.{suffix}", {"x": [1.0, 2.0], "t": odd})
    assert f"t.{suffix} is not " in refusal(path, target="t")
    assert "damaged" in refusal(path, target="t")


def test_a_name_that_is_not_utf8(tmp_path: Path) -> None:
    path = write(tmp_path / "t.arrow", {"namename": [1.0, 2.0]})
    path.write_bytes(path.read_bytes().replace(b"namename", b"\xff\xfename\xff\xff"))
    assert refusal(path).startswith(f"{path} is not an Arrow file, or is cut short or damaged: ")


def folder_of(tmp_path: Path) -> tuple[Path, Any, Any]:
    folder = tmp_path / "train"
    folder.mkdir()
    X = np.random.default_rng(0).standard_normal((25, 2)).astype(np.float32)
    y = np.arange(25) % 3
    # Written in another order than their names, with marks beside them.
    for name, start, stop in (("part-2", 20, 25), ("part-0", 0, 12), ("part-1", 12, 20)):
        part = {"a": X[start:stop, 0], "b": X[start:stop, 1], "t": y[start:stop]}
        write(folder / f"{name}.parquet", part)
    (folder / "_SUCCESS").touch()
    (folder / "_metadata.parquet").touch()
    (folder / ".part-0.parquet").touch()
    return folder, X, y


def test_lists_of_another_length_in_another_file(tmp_path: Path) -> None:
    write(tmp_path / "0.parquet", {"e": [[1.0], [2.0]]})
    write(tmp_path / "1.parquet", {"e": [[1.0, 2.0]]})
    said = "has rows of different lengths from row 1 of 1.parquet on."
    assert refusal(tmp_path).endswith(said)


def test_a_folder_in_the_order_of_its_names(tmp_path: Path) -> None:
    folder, X, y = folder_of(tmp_path)
    table = read_table(folder, target="t")
    assert np.array_equal(table.X, X)
    assert np.array_equal(table.y, y)
    assert table.source == "train: 25 rows, 2 features, target 't'"
    assert np.array_equal(read_table(folder, target="t", max_rows=14).X, X[:14])
    found = survey(folder, target="t")
    assert (found.rows, found.nbytes, found.exact) == (25, X.nbytes, True)
    assert np.array_equal(read_features(folder, ["b"], 1).X, X[:, 1:])


def test_a_folder_whose_files_differ(tmp_path: Path) -> None:
    folder, X, _ = folder_of(tmp_path)
    last = folder / "part-3.parquet"
    write(last, {"b": [5], "t": [1], "a": [2]})  # integers, and another order
    table = read_table(folder, target="t")
    assert table.X.dtype == np.float64
    assert table.X[-1].tolist() == [2, 5]
    assert np.array_equal(table.X[:-1], X)
    write(last, {"a": [5.0], "t": [1]})
    assert refusal(folder, target="t") == f"{last} has no column 'b', which other files have."
    write(last, {"a": [5.0, 6.0], "b": [1.0, np.nan], "t": [1, 2]})
    said = "column 'b' of part-3.parquet has no value in row 2 "
    assert refusal(folder, target="t").startswith(said)
    write(last, {"a": [5.0], "b": [1.0], "t": ["x"]})
    assert refusal(folder, target="t").startswith("column 't' holds text in some files of ")
    last.write_bytes(b"PAR1 and no more")
    assert refusal(folder, target="t").startswith(f"{last} is not a Parquet file")


def test_without_pyarrow_one_sentence_says_what_to_do(tmp_path: Path) -> None:
    folder, _, _ = folder_of(tmp_path)
    write(tmp_path / "t.feather", {"a": [1.0]})
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in sys.modules if name.split(".")[0] == "pyarrow"]:
            patch.setitem(sys.modules, name, None)
        said = "reading Parquet needs pyarrow: pip install 'dfwtrace[files]'"
        assert refusal(folder) == said
        assert refusal(folder / "part-0.parquet") == said
        assert refusal(tmp_path / "t.feather") == said.replace("Parquet", "Arrow")


PEAK = """
import sys
import pyarrow.parquet, pyarrow.compute
from dfwtrace.io.tables import read_table
folder, small, spill = sys.argv[1:]
def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))
read_table(small, target="t")  # what the libraries take for themselves
before = peak()
table = read_table(folder, target="t", spill=spill or None)
print(peak() - before, table.X.nbytes, type(table.X).__name__)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc to see the memory")
def test_a_spilled_folder_is_never_in_memory(tmp_path: Path) -> None:
    folder, spill = tmp_path / "big", tmp_path / "spill"
    folder.mkdir()
    spill.mkdir()
    X = np.random.default_rng(0).random((32_000, 128), dtype=np.float32)
    part = {**{f"x{j}": X[:, j].copy() for j in range(128)}, "t": np.arange(32_000) % 5}
    options: dict[str, Any] = {"use_dictionary": False, "compression": "none"}
    pq.write_table(pa.table(part), folder / "0.parquet", row_group_size=8_000, **options)
    for i in range(1, 8):
        (folder / f"{i}.parquet").hardlink_to(folder / "0.parquet")
    small = write(tmp_path / "small.parquet", {"x": [1.0], "t": [1]})

    def run(where: str) -> tuple[int, int, str]:
        command = [sys.executable, "-c", PEAK, str(folder), str(small), where]
        out = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        return int(out[0]), int(out[1]), out[2]

    grown, size, kind = run("")
    assert kind == "ndarray"
    assert grown > size  # the measure sees an array that is in memory
    spilled, same, kind = run(str(spill))
    assert kind == "memmap"
    assert same == size
    assert spilled < size / 2
