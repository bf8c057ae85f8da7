"""Every format gives back the X and y that were written, and its size before it is read."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.datasets import dump_svmlight_file
from tests.data.writers import NAMES, WRITERS, write

from dfwtrace.data.files import column_names, read_features, read_table, survey
from dfwtrace.data.table import DataFileError

Array = Any


@pytest.fixture
def X(rng: np.random.Generator) -> Array:
    return rng.standard_normal((40, 3)).astype(np.float32)


@pytest.fixture
def y(rng: np.random.Generator) -> Array:
    return rng.integers(0, 4, 40)


# Files with named columns


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_with_columns(name: str, tmp_path: Path, X: Array, y: Array) -> None:
    path = tmp_path / name
    WRITERS[name](path, X, y)
    table = read_table(path, target="label")
    assert table.source == f"{name}: 40 rows, 3 features, target 'label'"
    text = ".csv" in name.lower() or ".tsv" in name
    assert table.X.dtype == (np.float64 if text else np.float32)
    assert np.array_equal(table.X, X)
    assert table.X.flags.c_contiguous
    assert table.y is not None
    assert table.y.dtype == np.int64
    assert np.array_equal(table.y, y)
    assert (table.feature_names, table.target_names) == (NAMES, ["label"])
    assert table.weight is None
    assert column_names(path) == [*NAMES, "label"]
    # Its size, before it is read.
    found, first = survey(path, target="label", features="x?")
    assert (found.rows, found.features, found.dtype) == (*table.X.shape, table.X.dtype)
    assert (found.nbytes, found.kind, found.targets) == (table.X.nbytes, "classification", 1)
    assert found.exact
    assert not found.sparse
    assert np.array_equal(first, y)
    # What a model takes from it.
    again = read_features(path, ["x3", "x1"], 2, targets=True, target=["x3"])
    assert np.array_equal(again.X, X[:, [2, 0]])
    assert np.array_equal(again.y, X[:, 2])  # a feature may be a target too
    assert again.feature_names == ["x3", "x1"]
    assert read_features(path, ["x2"], 1).y is None
    assert np.array_equal(read_features(path, None, 3, target="lab*").X, X)
    with pytest.raises(DataFileError, match=f"{name} has 4 features, but the model was fitted"):
        read_features(path, None, 3)
    # On disk.
    spill = tmp_path / "spill"
    spill.mkdir()
    (spill / "features.npy").write_text("the user's own")
    mapped = read_table(path, target="label", spill=spill).X
    assert isinstance(mapped, np.memmap)
    assert mapped.dtype == table.X.dtype
    assert np.array_equal(mapped, X)
    assert len(list(spill.iterdir())) == 1
    assert (spill / "features.npy").read_text() == "the user's own"


FINITE = st.floats(allow_nan=False, allow_infinity=False, width=64)


@settings(max_examples=40)
@given(
    X=hnp.arrays(np.float64, st.tuples(st.integers(1, 6), st.just(3)), elements=FINITE),
    labels=st.lists(st.text('ab1,; "\n\u00e9', min_size=1), min_size=6, max_size=6),
)
@example(X=np.array([[-0.0, 5e-324, 1.7976931348623157e308]]), labels=["a"] * 6)
def test_what_was_written_is_read(X: Array, labels: list[str]) -> None:
    """The same bits from CSV, Parquet, Arrow and .npz; text labels are not touched."""
    labels = [f"#{label}" for label in labels[: len(X)]]
    columns = {**{name: X[:, j] for j, name in enumerate(NAMES)}, "t": labels}
    with TemporaryDirectory() as folder:
        home = Path(folder)
        for suffix in ("parquet", "arrow"):
            write(home / f"t.{suffix}", columns)
        np.savez(home / "t.npz", X=X, y=np.array(labels))
        quoted = ['"' + label.replace('"', '""') + '"' for label in labels]
        rows = [[*map(repr, row), label] for row, label in zip(X.tolist(), quoted, strict=True)]
        text = "\n".join(",".join(row) for row in [[*NAMES, "t"], *rows])
        (home / "t.csv").write_bytes(text.encode())
        for name in ("t.parquet", "t.arrow", "t.npz", "t.csv"):
            table = read_table(home / name, target="y" if name == "t.npz" else "t")
            assert table.X.tobytes() == X.tobytes()
            assert table.y is not None
            assert table.y.tolist() == labels


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "-2", "+3"], "i"),
        (["1", "2.0", "3"], "f"),
        (["1", " .5", "+1e-2"], "f"),
        (["1", "x", "3"], "U"),
        (["007", "8", "9"], "U"),
        (["01", "1", "-02"], "U"),
        (["0", "10", "100"], "i"),
        (["01", "1", "0.5"], "f"),
        (["99999999999999999999", "1", "2"], "f"),
        (["NA", "DE", "FR"], "U"),  # Namibia
        (["true", "false", "true"], "U"),
        (["1_000", "2", "3"], "U"),
        (["naïve", "日本", "a,b"], "U"),
    ],
)
def test_what_targets_in_text_become(values: list[str], kind: str, tmp_path: Path) -> None:
    text = "x,t\n" + "".join(f'{i},"{value}"\n' for i, value in enumerate(values))
    (tmp_path / "t.csv").write_text(text, encoding="utf-8")
    y = read_table(tmp_path / "t.csv", target="t").y
    assert y is not None
    assert y.dtype.kind == kind
    assert y.tolist() == (values if kind == "U" else [float(value) for value in values])


def test_numbers_in_text(tmp_path: Path) -> None:
    numbers = ["1e-3", " 2", "+.5", "-0", "1.", '"7"', "0.1", "1e-400", "\t3 ", "+1E+02"]
    numbers += ["9007199254740993", "1.7976931348623157e308", "2.2250738585072011e-308"]
    text = "a,b,c\n" + "".join(f"{number},{i},true\n" for i, number in enumerate(numbers))
    (tmp_path / "t.csv").write_text(text.replace("0,true", "0,FALSE"))
    X = read_table(tmp_path / "t.csv", target="b").X
    assert X[:, 0].tolist() == [float(number.strip('"')) for number in numbers]
    assert X[:, 1].tolist() == [0, *[1] * 9, 0, 1, 1]


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_lines_and_quotes(ending: str, tmp_path: Path) -> None:
    lines = ['"a ""1""", b ,"c;d"', "1,2,red", "", '"3",4,"red, ""dark"""', '5,6,5"', "", ""]
    (tmp_path / "t.csv").write_bytes(ending.join(lines).encode())
    table = read_table(tmp_path / "t.csv", target="c;d")
    assert table.feature_names == ['a "1"', "b"]
    assert table.X.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert table.y is not None
    assert table.y.tolist() == ["red", 'red, "dark"', '5"']


def test_several_targets_and_a_weight_in_text(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("t1,x,t2,w\n1,2,true,0.5\n4,5,false,1\n")
    table = read_table(tmp_path / "t.csv", target="t*", weight="w")
    assert table.y is not None
    assert table.weight is not None
    assert (table.y.dtype, table.y.tolist()) == (np.float64, [[1, 1], [4, 0]])
    assert (table.X.tolist(), table.weight.tolist()) == ([[2], [5]], [0.5, 1])
    assert table.source.endswith("2 targets")


def test_columns_without_a_name_or_in_other_bytes_may_be_left_out(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(",x,name,t\n0,1,Zoë,a\n1,2,Ann,b\n".encode("latin-1"))
    assert read_table(tmp_path / "t.csv", target="t", features="x").X.tolist() == [[1], [2]]
    (tmp_path / "t.csv").write_bytes("name,x,t\nZoë,1,a\nAnn,2,b\n".encode("latin-1"))
    assert survey(tmp_path / "t.csv", target="t", features="x")[0].rows == 2
    (tmp_path / "t.csv").write_text("0,1,2\n5,6,7\n")  # a frame without names
    assert read_table(tmp_path / "t.csv", target="2").X.tolist() == [[5, 6]]


# Arrow's types


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        (["float", "float"], np.float32),
        (["halffloat", "halffloat"], np.float32),
        (["float", "bool", "int16", "uint8"], np.float32),
        (["float", "int32"], np.float64),
        (["float", "double"], np.float64),
        (["int8", "bool"], np.float64),
        (["uint64", "int64"], np.float64),
    ],
)
@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_the_dtype_that_holds_all_columns(
    suffix: str, types: list[str], expected: Any, tmp_path: Path
) -> None:
    values = np.array([1, 0, 1, 1, 0])
    columns = {
        f"c.{i}": pa.array(values.astype(np.dtype(pa.type_for_alias(t).to_pandas_dtype())))
        for i, t in enumerate(types)
    }
    path = write(tmp_path / f"t.{suffix}", columns)
    assert read_table(path, target=None).X.dtype == survey(path)[0].dtype == expected
    assert np.array_equal(read_table(path, target=None).X, np.tile(values[:, None], len(types)))


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
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
    assert table.y.tolist() == columns["t"].to_pylist()
    assert survey(path, target="t")[0].features == 7
    # A model asks for them by the same names, in its own order, and not for all of them.
    wanted = ["a", "fixed[3]", "free[1]", "fixed[0]"]
    again = read_features(path, wanted, 4)
    assert np.array_equal(again.X, table.X[:, [names.index(name) for name in wanted]])
    several = read_table(path, target="free", features="a")
    assert np.array_equal(several.y, L)
    assert several.target_names == ["free[0]", "free[1]"]


def test_a_tensor_column_is_its_storage(tmp_path: Path) -> None:
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(6.0).reshape(3, 2))
    path = write(tmp_path / "t.arrow", {"e": tensors})
    assert read_table(path, target=None).X.tolist() == [[0, 1], [2, 3], [4, 5]]


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
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


# Folders


@pytest.mark.parametrize("suffix", ["csv", "parquet", "arrow"])
def test_a_folder_in_the_order_of_its_names(suffix: str, tmp_path: Path) -> None:
    X, y = np.random.default_rng(0).standard_normal((25, 2)), np.arange(25) % 3
    for i, rows in enumerate(np.split(np.arange(25), [3, 14])):
        columns = {"a": X[rows, 0], "b": X[rows, 1], "t": y[rows]}
        names = list(columns) if i != 1 else ["t", "b", "a"]  # columns are found by name
        if suffix == "csv":
            cells = [[name, *map(str, columns[name].tolist())] for name in names]
            lines = map(",".join, zip(*cells, strict=True))
            (tmp_path / f"part-{i}.csv").write_text("\n".join(lines))
        else:
            write(tmp_path / f"part-{i}.{suffix}", {name: columns[name] for name in names})
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / "notes.txt").touch()
    table = read_table(tmp_path, target="t")
    assert np.array_equal(table.X, X)
    assert np.array_equal(table.y, y)
    assert table.source.endswith(": 25 rows, 2 features, target 't'")
    found, _ = survey(tmp_path, target="t")
    assert (found.rows, found.nbytes, found.exact) == (25, X.nbytes, True)
    assert np.array_equal(read_features(tmp_path, ["b"], 1).X, X[:, 1:])


def test_numbers_of_several_types_in_a_folder(tmp_path: Path) -> None:
    write(tmp_path / "0.parquet", {"a": np.ones(3, np.float32), "t": [1, 2, 3]})
    write(tmp_path / "1.parquet", {"t": [4.5], "a": [2]})
    (tmp_path / "labels.csv").touch()  # beside Parquet files, others do not count
    table = read_table(tmp_path, target="t")
    assert (table.X.dtype, table.X[-1, 0]) == (np.float64, 2.0)
    assert table.y is not None
    assert table.y.tolist() == [1, 2, 3, 4.5]


# Arrays


def test_npz(tmp_path: Path, X: Array, y: Array) -> None:
    path = tmp_path / "t.npz"
    np.savez(path, X=X, y=y, colour=["red", "blue"] * 20, w=np.arange(40), Y=X[:, :2], one=X[:, :1])
    table = read_table(path, target=None, weight="w")
    assert table.source == "t.npz: 40 rows, 3 features, target 'y'"
    assert (table.X.dtype, table.feature_names) == (np.float32, None)
    assert np.array_equal(table.X, X)
    assert np.array_equal(table.y, y)
    assert np.array_equal(table.weight, np.arange(40))
    assert np.array_equal(read_table(path, target="colour").y, ["red", "blue"] * 20)
    found, _ = survey(path)
    assert (found.rows, found.features, found.nbytes) == (40, 3, X.nbytes)
    assert found.kind == "classification"
    assert np.array_equal(read_features(path, None, 3).X, X)
    several = read_table(path, target="Y")
    assert np.array_equal(several.y, X[:, :2])
    assert several.target_names == ["Y[0]", "Y[1]"]
    assert survey(path, target="Y")[0][5:7] == ("regression", 2)
    assert read_table(path, target="one").y.shape == (40,)  # type: ignore[union-attr]
    assert survey(path, target="one")[0][5:7] == ("regression", 1)


def test_npz_with_a_sparse_matrix_in_parts(tmp_path: Path, y: Array) -> None:
    path = tmp_path / "t.npz"
    S = sp.random_array((40, 9), density=0.2, format="csr", rng=np.random.default_rng(0))
    parts = {"data": S.data, "indices": S.indices, "indptr": S.indptr, "shape": S.shape}
    np.savez_compressed(path, y=y, **{f"X_{part}": value for part, value in parts.items()})
    table = read_table(path, target="y")
    assert isinstance(table.X, sp.csr_array)
    assert (table.X != S).nnz == 0
    found, _ = survey(path, target="y")
    assert (found.rows, found.features, found.sparse) == (40, 9, True)
    assert found.nbytes == S.data.nbytes + S.indices.nbytes + S.indptr.nbytes


def test_npy_is_mapped(tmp_path: Path, X: Array, y: Array, monkeypatch: Any) -> None:
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y)
    for target in ("y.npy", str(tmp_path / "y.npy")):  # beside the features, or from here
        table = read_table(tmp_path / "X.npy", target=target)
        assert isinstance(table.X, np.memmap)
        assert np.array_equal(table.X, X)
        assert np.array_equal(table.y, y)
        assert table.source == "X.npy: 40 rows, 3 features, target 'y'"
    monkeypatch.chdir(tmp_path)
    assert np.array_equal(read_table("X.npy", target="y.npy").y, y)
    assert survey(Path("X.npy"), target="y.npy")[0].kind == "classification"
    # A separate file will do for the targets of an archive too, also as bytes.
    np.savez("t.npz", X=X)
    np.save("names.npy", np.array([b"red", b"blue"] * 20))
    table = read_table("t.npz", target=["names.npy"])
    assert np.array_equal(table.y, ["red", "blue"] * 20)
    assert table.target_names == ["names"]
    np.save("i.npy", np.arange(6).reshape(3, 2))
    assert read_table("i.npy", target=None).X.dtype == survey(Path("i.npy"))[0].dtype == np.float64


@pytest.mark.parametrize(
    ("suffix", "zero_based"), [("svm", True), ("svm", False), ("libsvm", True), ("svmlight", True)]
)
def test_svmlight(suffix: str, zero_based: bool, tmp_path: Path, X: Array, y: Array) -> None:
    path = tmp_path / f"t.{suffix}"
    dump_svmlight_file(X.astype(float), y, str(path), zero_based=zero_based)
    table = read_table(path, target=None)
    assert isinstance(table.X, sp.csr_array)
    assert np.allclose(table.X.toarray(), X, rtol=1e-12)
    assert table.y is not None
    assert table.y.dtype == np.int64
    assert np.array_equal(table.y, y)
    assert table.first_index == (0 if zero_based else 1)
    found, _ = survey(path)
    assert (found.rows, found.features, found.sparse, found.kind) == (40, 3, True, "classification")
    wide = read_features(path, None, 5, first_index=table.first_index).X
    assert np.allclose(wide.toarray()[:, :3], X)
    assert not wide.toarray()[:, 3:].any()
    with pytest.raises(DataFileError, match="has 3 features, but the model was fitted on 2"):
        read_features(path, None, 2)
    path.write_text("1\n2\n")  # no features, but rows of zeros to a model
    assert read_features(path, None, 3).X.toarray().tolist() == [[0, 0, 0], [0, 0, 0]]


# Large files


def test_estimates_for_long_text_files(tmp_path: Path) -> None:
    rows = 300_000
    digits = np.random.default_rng(0).integers(0, 10**9, rows).tolist()
    text = "a,label\n" + "".join(f"{d:09d}e-9,{d % 3}\n" for d in digits)
    (tmp_path / "t.csv").write_text(text)
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(text.encode(), 1))
    (tmp_path / "t.svm").write_text("".join(f"{d % 3} 1:0.{d:09d}\n" for d in digits[:20_000]))
    for name, count in (("t.csv", rows), ("t.csv.gz", rows), ("t.svm", 20_000)):
        found, _ = survey(tmp_path / name, target="label")
        assert not found.exact
        assert abs(found.rows - count) < 0.05 * count
        assert found.kind == "classification"


PEAK = """
import sys
import pyarrow.parquet, pyarrow.compute
from dfwtrace.data.files import read_table
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
    pq.write_table(pa.table(part), folder / "00.parquet", row_group_size=8_000, **options)
    for i in range(1, 24):
        (folder / f"{i:02d}.parquet").hardlink_to(folder / "00.parquet")
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


def test_long_whole_labels_keep_all_their_digits(tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    path.write_text("a,y\n1,9223372036854775806\n2,9223372036854775807\n")
    assert read_table(path, target="y").y.tolist() == [2**63 - 2, 2**63 - 1]
