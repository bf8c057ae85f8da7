"""Every format gives back the X and y that were written, and says before what it will give."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file

from dfwtrace.io.tables import Table, read_features, read_table, survey

Array = Any
NAMES = ["x1", "x2", "x3"]


@pytest.fixture
def X(rng: np.random.Generator) -> Array:
    return rng.standard_normal((40, 3)).astype(np.float32)


@pytest.fixture
def y(rng: np.random.Generator) -> Array:
    return rng.integers(0, 4, 40)


def arrow_table(X: Array, y: Array) -> pa.Table:
    return pa.table({**{name: X[:, j] for j, name in enumerate(NAMES)}, "label": y})


def csv_text(X: Array, y: Array, separator: str = ",") -> str:
    rows = [separator.join([*NAMES, "label"])]
    rows += [
        separator.join([*(repr(float(v)) for v in row), str(t)])
        for row, t in zip(X, y, strict=True)
    ]
    return "\n".join(rows) + "\n"


def write_stream(path: Path, table: pa.Table) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=7)


WRITERS: dict[str, Callable[[Path, Array, Array], object]] = {
    "t.csv": lambda path, X, y: path.write_text(csv_text(X, y)),
    "semicolons.csv": lambda path, X, y: path.write_text(csv_text(X, y, ";")),
    "tabs.csv": lambda path, X, y: path.write_text(csv_text(X, y, "\t"), encoding="utf-8-sig"),
    "t.csv.gz": lambda path, X, y: path.write_bytes(gzip.compress(csv_text(X, y).encode())),
    "t.parquet": lambda path, X, y: pq.write_table(arrow_table(X, y), path, row_group_size=7),
    "t.arrow": lambda path, X, y: pyarrow.feather.write_feather(
        arrow_table(X, y), str(path), compression="uncompressed", chunksize=9
    ),
    "stream.arrow": lambda path, X, y: write_stream(path, arrow_table(X, y)),
    "t.feather": lambda path, X, y: pyarrow.feather.write_feather(
        arrow_table(X, y), str(path), compression="lz4"
    ),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_table_with_columns_comes_back(name: str, tmp_path: Path, X: Array, y: Array) -> None:
    path = tmp_path / name
    WRITERS[name](path, X, y)
    table = read_table(path, target="label")
    assert table.source == f"{name}: 40 rows, 3 features, target 'label'"
    assert table.X.dtype == (np.float64 if ".csv" in name else np.float32)
    assert np.array_equal(table.X, X)
    assert table.X.flags.c_contiguous
    assert table.y is not None
    assert table.y.dtype == np.int64
    assert np.array_equal(table.y, y)
    assert table.feature_names == NAMES
    assert table.target_names == ["label"]
    assert table.weight is None


@pytest.mark.parametrize("name", WRITERS)
def test_only_the_first_rows(name: str, tmp_path: Path, X: Array, y: Array) -> None:
    path = tmp_path / name
    WRITERS[name](path, X, y)
    for count in (1, 7, 10, 40, 100):
        table = read_table(path, target="label", max_rows=count)
        assert np.array_equal(table.X, X[:count])
        assert np.array_equal(table.y, y[:count])


@pytest.mark.parametrize("name", WRITERS)
def test_a_survey_foretells_the_table(name: str, tmp_path: Path, X: Array, y: Array) -> None:
    path = tmp_path / name
    WRITERS[name](path, X, y)
    found = survey(path, target="label", features="x?")
    table = read_table(path, target="label", features="x?")
    assert (found.rows, found.features) == table.X.shape
    assert found.dtype == table.X.dtype
    assert found.nbytes == table.X.nbytes
    assert (found.kind, found.targets) == ("classification", 1)
    assert found.exact
    assert not found.sparse


@pytest.mark.parametrize("name", WRITERS)
def test_a_model_gets_its_own_columns(name: str, tmp_path: Path, X: Array, y: Array) -> None:
    path = tmp_path / name
    WRITERS[name](path, X, y)
    table = read_features(path, ["x3", "x1"], 2)
    assert np.array_equal(table.X, X[:, [2, 0]])
    assert table.feature_names == ["x3", "x1"]
    assert table.y is None
    assert np.array_equal(read_features(path, None, 3, exclude=["label"]).X, X)
    with pytest.raises(ValueError, match=f"{name} has 4 features, but the model was fitted on 3"):
        read_features(path, None, 3)


@pytest.mark.parametrize("name", WRITERS)
def test_features_on_disk_are_the_same(name: str, tmp_path: Path, X: Array, y: Array) -> None:
    path = tmp_path / name
    WRITERS[name](path, X, y)
    spill = tmp_path / "spill"
    spill.mkdir()
    table = read_table(path, target="label", spill=spill)
    assert isinstance(table.X, np.memmap)
    assert np.array_equal(table.X, X)
    assert table.X.dtype == read_table(path, target="label").X.dtype
    assert [file.suffix for file in spill.iterdir()] == [".npy"]


def test_npz(tmp_path: Path, X: Array, y: Array) -> None:
    path = tmp_path / "t.npz"
    np.savez(path, X=X, y=y, colour=np.array(["red", "blue"] * 20), w=np.arange(40))
    table = read_table(path, target=None, weight="w")
    assert_table(table, X, y, "t.npz: 40 rows, 3 features, target 'y'")
    assert np.array_equal(table.weight, np.arange(40))
    assert table.feature_names is None
    colours = read_table(path, target="colour", max_rows=2).y
    assert colours is not None
    assert colours.tolist() == ["red", "blue"]
    found = survey(path)
    assert (found.rows, found.features, found.dtype, found.kind) == (
        40,
        3,
        np.float32,
        "classification",
    )
    assert np.array_equal(read_features(path, None, 3).X, X)


def test_npz_with_a_sparse_matrix_in_parts(tmp_path: Path, y: Array) -> None:
    path = tmp_path / "t.npz"
    S = sp.random_array((40, 9), density=0.2, format="csr", rng=np.random.default_rng(0))
    parts = {"data": S.data, "indices": S.indices, "indptr": S.indptr, "shape": S.shape}
    np.savez_compressed(path, y=y, **{f"X_{part}": value for part, value in parts.items()})
    table = read_table(path, target="y")
    assert isinstance(table.X, sp.csr_array)
    assert (table.X != S).nnz == 0
    found = survey(path, target="y")
    assert found.sparse
    assert (found.rows, found.features) == (40, 9)
    kept = table.X.data.nbytes + table.X.indices.nbytes + table.X.indptr.nbytes
    assert found.nbytes == kept


def test_npy_is_mapped(tmp_path: Path, X: Array, y: Array, monkeypatch: Any) -> None:
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y)
    path = tmp_path / "X.npy"
    for target in ("y.npy", str(tmp_path / "y.npy")):  # beside the features, or from here
        table = read_table(path, target=target)
        assert isinstance(table.X, np.memmap)
        assert_table(table, X, y, "X.npy: 40 rows, 3 features, target 'y'")
    monkeypatch.chdir(tmp_path)
    assert_table(read_table("X.npy", target="y.npy"), X, y, table.source)
    assert survey(path, target="y.npy").kind == "classification"
    assert survey(path).nbytes == X.nbytes
    # A file of its own does for the targets of an archive too, also as bytes.
    np.savez("t.npz", X=X)
    np.save("names.npy", np.array([b"red", b"blue"] * 20))
    table = read_table("t.npz", target=["names.npy"])
    assert table.y is not None
    assert table.y.tolist() == ["red", "blue"] * 20
    assert table.target_names == ["names"]
    assert survey("t.npz", target="names.npy").kind == "classification"


def test_npy_of_integers_becomes_floats(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", np.arange(6).reshape(3, 2))
    table = read_table(tmp_path / "X.npy", target=None)
    assert table.X.dtype == np.float64
    assert table.X.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert survey(tmp_path / "X.npy").dtype == np.float64
    assert table.y is None


def test_several_targets_in_an_array(tmp_path: Path, X: Array) -> None:
    np.savez(tmp_path / "t.npz", X=X, Y=X[:, :2], one=X[:, :1])
    table = read_table(tmp_path / "t.npz", target="Y")
    assert np.array_equal(table.y, X[:, :2])
    assert table.target_names == ["Y[0]", "Y[1]"]
    assert table.source.endswith("targets 'Y[0]', 'Y[1]'")
    found = survey(tmp_path / "t.npz", target="Y")
    assert (found.kind, found.targets) == ("regression", 2)
    assert read_table(tmp_path / "t.npz", target="one").y.shape == (40,)  # type: ignore[union-attr]


@pytest.mark.parametrize("zero_based", [True, False])
@pytest.mark.parametrize("suffix", ["svm", "libsvm", "svmlight"])
def test_svmlight(suffix: str, zero_based: bool, tmp_path: Path, X: Array, y: Array) -> None:
    path = tmp_path / f"t.{suffix}"
    dump_svmlight_file(X.astype(float), y, str(path), zero_based=zero_based)
    table = read_table(path, target=None)
    assert isinstance(table.X, sp.csr_array)
    assert np.allclose(table.X.toarray(), X, rtol=1e-12)
    assert table.y is not None
    assert table.y.dtype == np.int64
    assert np.array_equal(table.y, y)
    few = read_table(path, target=None, max_rows=5)
    assert np.array_equal(few.X.toarray(), table.X.toarray()[:5])
    found = survey(path)
    assert (found.rows, found.features, found.sparse, found.kind) == (40, 3, True, "classification")


def test_svmlight_of_another_width(tmp_path: Path, X: Array, y: Array) -> None:
    path = tmp_path / "t.svm"
    dump_svmlight_file(X.astype(float), y + 0.5, str(path), zero_based=False)
    wide = read_features(path, None, 5).X
    assert wide.shape == (40, 5)
    assert np.allclose(wide.toarray()[:, :3], X)
    assert not wide.toarray()[:, 3:].any()
    with pytest.raises(ValueError, match=r"t\.svm has 3 features, but the model was fitted on 2\."):
        read_features(path, None, 2)
    assert read_table(path, target=None).y.dtype == np.float64  # type: ignore[union-attr]
    assert survey(path).kind == "regression"


def test_estimates_for_long_text_files(tmp_path: Path) -> None:
    rows = 60_000
    text = "a,label\n" + "".join(f"{i % 10}.5,{i % 3}\n" for i in range(rows))
    (tmp_path / "t.csv").write_text(text)
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "t.svm").write_text("".join(f"{i % 3} 1:{i % 10}.5\n" for i in range(rows)))
    for name in ("t.csv", "t.csv.gz", "t.svm"):
        assert read_table(tmp_path / name, target="label", max_rows=3).X.shape == (3, 1)
        found = survey(tmp_path / name, target="label")
        assert not found.exact
        assert abs(found.rows - rows) < 0.01 * rows
        assert found.kind == "classification"


def assert_table(table: Table, X: Array, y: Array, source: str) -> None:
    assert table.X.dtype == X.dtype
    assert np.array_equal(table.X, X)
    assert table.y is not None
    assert table.y.dtype == y.dtype
    assert np.array_equal(table.y, y)
    assert table.source == source
