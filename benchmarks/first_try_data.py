"""Data sets of many kinds and scales, as a newcomer brings them: nothing scaled, nothing chosen.

Scikit-learn's own, embedded sentences, and generated ones of fixed seeds. Each is cut at random, a
quarter of the rows to test on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn import datasets
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import OneHotEncoder

import dfwtrace as dt
from benchmarks import data

Task = Literal["classification", "regression"]

_SENTENCES = Path(__file__).resolve().parents[1] / "examples" / "clinc150"


@dataclass(frozen=True)
class DataSet:
    """Rows to learn from and rows to test on; X is an array or a CSR matrix."""

    name: str
    task: Task
    X_train: Any
    y_train: np.ndarray
    X_test: Any
    y_test: np.ndarray


class Rows(NamedTuple):
    """Rows and their targets or classes, before they are cut."""

    X: Any
    y: np.ndarray


def data_sets() -> Iterator[DataSet]:
    """All data sets in turn; the full CLINC150 only where its file is (see `benchmarks.data`)."""
    yield clinc150()
    yield from _clinc150_full()
    for name in (*CLASSIFICATION, *REGRESSION):
        yield data_set(name)


def data_set(name: str) -> DataSet:
    """One of `CLASSIFICATION` or `REGRESSION`, by its name."""
    if name in CLASSIFICATION:
        return cut(name, "classification", CLASSIFICATION[name]())
    return cut(name, "regression", REGRESSION[name]())


def cut(name: str, task: Task, rows: Rows) -> DataSet:
    """Keep a quarter of the rows to test on, of each class if there are classes."""
    classes = rows.y if task == "classification" else None
    X_train, X_test, y_train, y_test = train_test_split(
        *rows, test_size=0.25, random_state=0, stratify=classes
    )
    return DataSet(name, task, X_train, y_train, X_test, y_test)


# Sentences of 150 intents, embedded.


def clinc150() -> DataSet:
    """A reduced copy, which the examples use, too."""
    parts: list[np.ndarray] = []
    for name in ("train.npz", "test.npz"):
        with np.load(_SENTENCES / name) as file:
            parts += [file["X"].astype(np.float32), file["y"]]
    return DataSet("clinc150", "classification", *parts)


def _clinc150_full() -> Iterator[DataSet]:
    split = data.clinc150()
    if split is not None:
        parts = (split.X, split.y, split.X_test, split.y_test)
        yield DataSet("clinc150, all rows", "classification", *parts)


# Classes.


def text(n: int, m: int, words: int) -> Rows:
    """Documents as TF-IDF: Zipf's law for all words, and every class likes some of them."""
    rng = np.random.default_rng(0)
    zipf = 1.0 / np.arange(1, words + 1)
    # Each class makes 1 % of the words twenty times as frequent.
    liked = np.where(rng.random((m, words)) < 0.01, 20.0, 1.0) * zipf
    y = rng.permutation(n) % m
    lengths = 10 + rng.poisson(60, n)
    shares = liked / liked.sum(axis=1, keepdims=True)
    counts = [rng.multinomial(length, shares[k]) for length, k in zip(lengths, y, strict=True)]
    return Rows(TfidfTransformer().fit_transform(sp.csr_matrix(np.array(counts))), y)


def _one_hot(rng: np.random.Generator, n: int) -> tuple[Any, list[np.ndarray]]:
    """Four categorical columns of up to 200 values, some rare, as ones in sparse rows."""
    columns = []
    for values in (200, 50, 12, 3):
        shares = 1.0 / np.arange(1, values + 1)
        columns.append(rng.choice(values, n, p=shares / shares.sum()))
    X = OneHotEncoder().fit_transform(np.stack(columns, axis=1))
    return X, columns


def _one_hot_classes() -> Rows:
    rng = np.random.default_rng(1)
    X, columns = _one_hot(rng, 4000)
    scores = sum(1.5 * rng.standard_normal((200, 5))[column] for column in columns)
    return Rows(X, (scores + rng.gumbel(size=(4000, 5))).argmax(axis=1))


def _count_classes() -> Rows:
    """Counts between nothing and thousands, whose means are up to a third apart."""
    rng = np.random.default_rng(2)
    y = rng.integers(0, 8, 3000)
    means = 10.0 ** rng.uniform(-1.0, 3.0, 40)
    factors = np.exp(0.1 * rng.standard_normal((8, 40)))
    return Rows(rng.poisson(means * factors[y]).astype(float), y)


def _imbalanced() -> Rows:
    X, y = datasets.make_classification(
        n_samples=4000,
        n_features=20,
        n_informative=8,
        n_classes=3,
        n_clusters_per_class=1,
        weights=[0.95, 0.04, 0.01],
        class_sep=1.2,
        random_state=3,
    )
    return Rows(X, y)


def _genes() -> Rows:
    """Two classes, 200 rows of 2000 correlated features of which 20 matter."""
    rng = np.random.default_rng(4)
    y = rng.integers(0, 2, 200)
    hidden = rng.standard_normal((200, 10))
    X = hidden @ rng.standard_normal((10, 2000)) + rng.standard_normal((200, 2000))
    X[:, :20] += 1.5 * y[:, None]
    return Rows(8.0 + X, np.array(["healthy", "ill"])[y])


def _low_rank_classes() -> Rows:
    """Single precision, scores of 12 classes of rank 5; one class is never the highest."""
    X, y, _ = dt.datasets.make_multiclass(n=6000, d=50, m=12, rank=5, dtype=np.float32)
    return Rows(X, y)


# Targets.


def _diabetes(unit: float) -> Rows:
    X, y = datasets.load_diabetes(return_X_y=True)
    return Rows(X, unit * y)


def _thousands() -> Rows:
    X, y = datasets.make_regression(
        n_samples=500, n_features=20, n_informative=10, noise=25.0, random_state=5
    )
    return Rows(X, 1000.0 * y)


def _odd_units() -> Rows:
    """Millimetres beside megabytes: columns of deviation 1e-3 to 1e5 far from zero, y in 1e6."""
    rng = np.random.default_rng(6)
    Z = rng.standard_normal((1200, 15))
    y = 1e6 * (3.0 + Z @ rng.standard_normal(15) + rng.standard_normal(1200))
    units = 10.0 ** np.linspace(-3.0, 5.0, 15)
    return Rows(units * (Z + 5.0), y)


def _counts() -> Rows:
    rng = np.random.default_rng(7)
    X = rng.poisson(10.0 ** rng.uniform(-0.5, 1.5, 25), (2000, 25)).astype(float)
    effects = rng.standard_normal((25, 3)) / X.std(axis=0)[:, None]
    y = rng.poisson(np.exp(2.0 + 0.15 * (X - X.mean(axis=0)) @ effects))
    return Rows(X, y.astype(float))


def _one_hot_targets() -> Rows:
    """Prices by category."""
    rng = np.random.default_rng(8)
    X, columns = _one_hot(rng, 4000)
    y = sum(200.0 * rng.standard_normal(200)[column] for column in columns)
    return Rows(X, 1500.0 + y + 150.0 * rng.standard_normal(4000))


def _low_rank(dtype: type[np.floating], noise: float) -> Rows:
    X, Y, _ = dt.datasets.make_multitask(n=2000, d=100, m=60, rank=5, noise=noise, dtype=dtype)
    return Rows(X, Y)


def _wide() -> Rows:
    """150 rows of 3000 features of low rank, one target."""
    rng = np.random.default_rng(9)
    hidden = rng.standard_normal((150, 8))
    X = hidden @ rng.standard_normal((8, 3000)) + 0.5 * rng.standard_normal((150, 3000))
    return Rows(X, 50.0 * (hidden @ rng.standard_normal(8) + rng.standard_normal(150)))


def _noise() -> Rows:
    """Nothing to learn."""
    rng = np.random.default_rng(10)
    return Rows(rng.standard_normal((1000, 20)), rng.standard_normal(1000))


CLASSIFICATION: dict[str, Callable[[], Rows]] = {
    "iris": lambda: Rows(*datasets.load_iris(return_X_y=True)),
    "wine": lambda: Rows(*datasets.load_wine(return_X_y=True)),
    "breast cancer": lambda: Rows(*datasets.load_breast_cancer(return_X_y=True)),
    "digits": lambda: Rows(*datasets.load_digits(return_X_y=True)),
    "text, 114 classes": lambda: text(n=3000, m=114, words=3000),
    "one-hot, 5 classes": _one_hot_classes,
    "counts, 8 classes": _count_classes,
    "imbalanced, 95/4/1": _imbalanced,
    "genes, n ≪ d": _genes,
    "low rank, 12 classes": _low_rank_classes,
}

REGRESSION: dict[str, Callable[[], Rows]] = {
    "diabetes": lambda: _diabetes(1.0),
    "diabetes × 1000": lambda: _diabetes(1000.0),
    "linnerud": lambda: Rows(*datasets.load_linnerud(return_X_y=True)),
    "targets × 1000": _thousands,
    "odd units": _odd_units,
    "counts": _counts,
    "one-hot": _one_hot_targets,
    "low rank": lambda: _low_rank(np.float64, 1.0),
    "low rank, float32": lambda: _low_rank(np.float32, 0.1),
    "n ≪ d": _wide,
    "noise": _noise,
}
