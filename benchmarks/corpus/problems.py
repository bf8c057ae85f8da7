"""The problems: a table of recipes, one generator, and data sets.

The natural radius of a recipe is the trace norm of the W that its targets are drawn from, that of a
data set F(0)/σ₁(∇F(0)), below which F cannot be zero. Radii are factors of it: a hundredth gives
rank one, 100 an idle constraint, unless classes are separable and W can grow without end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfTransformer

import dfwtrace as dt
from benchmarks import data, first_try_data
from benchmarks.corpus.objective import Objective

Task = Literal["squares", "classes"]


@dataclass(frozen=True)
class Problem:
    """min F(W, b) over ‖W‖_* ≤ radius and, with an intercept, all b."""

    name: str
    X: Any
    y: np.ndarray
    m: int
    radius: float
    weights: np.ndarray | None
    intercept: bool
    objective: Objective
    at_zero: float  # F(0), with the best intercept
    representation: str = "auto"
    tol: float = 1e-4  # of the certified gap, over F(0)
    max_seconds: float = 20.0  # a run may take

    @property
    def task(self) -> dt.LeastSquares | dt.Multinomial:
        return dt.LeastSquares() if self.y.ndim == 2 else dt.Multinomial(n_classes=self.m)

    @property
    def sizes(self) -> dict[str, int]:
        return {"n": self.X.shape[0], "d": self.X.shape[1], "m": self.m}


@dataclass(frozen=True)
class Recipe:
    """How a problem is drawn.

    Attributes
    ----------
    task : {"squares", "classes"}
    n, d, m : int
    radius : float
        Over the trace norm of the planted W, or `absolute`.
    X : str
        A name in `FEATURES`.
    y : str
        "planted": a W of low rank, with noise; "exact": without noise, so that classes are
        separable; "imbalanced": the planted classes, each a third as likely as the one before;
        "rare": one class, and up to five rows of each other.
    rank : int
        Of the planted W.
    intercept : bool
    weights : {"", "mild", "extreme"}
        None, from 0.1 to 10, or from 1e-6 to 1e6.
    dtype : type
    absolute : bool
    representation : str
        What a shard of ours keeps.
    tol : float
        Of the certified gap, over F(0).
    seed : int
    """

    task: Task
    n: int
    d: int
    m: int
    radius: float
    X: str = "gaussian"
    y: str = "planted"
    rank: int = 3
    intercept: bool = False
    weights: str = ""
    dtype: type[np.floating] = np.float64
    absolute: bool = False
    representation: str = "auto"
    tol: float = 1e-4
    seed: int = 0


Draw = Callable[[np.random.Generator, int, int], Any]


def _gaussian(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    return rng.standard_normal((n, d))


def _condition(condition: float) -> Draw:
    """Singular values from 1 down to 1/condition, evenly in logarithms; vectors at random."""

    def draw(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
        U, _, Vt = np.linalg.svd(rng.standard_normal((n, d)), full_matrices=False)
        return np.asarray(np.sqrt(n) * (U * np.geomspace(1.0, 1.0 / condition, len(Vt))) @ Vt)

    return draw


def _columns(largest: float) -> Draw:
    """Columns of sizes from 1 to `largest`, in random order: features in raw units."""

    def draw(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
        X = rng.standard_normal((n, d))
        return np.asarray(X * rng.permutation(np.geomspace(1.0, largest, d)))

    return draw


def _one_large(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """One column a thousand times the others."""
    X = rng.standard_normal((n, d))
    X[:, 0] *= 1000.0
    return X


def _uncentred(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Means of a hundred standard deviations."""
    return rng.standard_normal((n, d)) + 100.0


def _near_low_rank(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Singular values that fall like 1/j²; vectors at random."""
    U, _, Vt = np.linalg.svd(rng.standard_normal((n, d)), full_matrices=False)
    return np.asarray(np.sqrt(n) * (U / np.arange(1.0, len(Vt) + 1.0) ** 2) @ Vt)


def _deficient(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Rank d/2, exactly."""
    k = max(1, d // 2)
    return np.asarray(rng.standard_normal((n, k)) @ rng.standard_normal((k, d)) / np.sqrt(k))


def _twins(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Two columns that differ by a millionth, so that their coefficients are large, c and -c."""
    X = rng.standard_normal((n, d))
    X[:, 1] = X[:, 0] + 1e-6 * rng.standard_normal(n)
    return X


def _counts(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Poisson's, of means from 0.1 to 1000."""
    return rng.poisson(rng.permutation(np.geomspace(0.1, 1000.0, d)), (n, d)).astype(np.float64)


def _small_counts(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    return rng.poisson(3.0, (n, d)).astype(np.float64)


def _word_counts(rng: np.random.Generator, n: int, d: int) -> sp.csr_array:
    """Sparse counts by Zipf's law: the first words are in every row, the last ones in few."""
    return sp.csr_array(rng.poisson(20.0 / np.arange(1, d + 1), (n, d)).astype(np.float64))


def _sparse(density: float) -> Draw:
    def draw(rng: np.random.Generator, n: int, d: int) -> sp.csr_array:
        return sp.csr_array(
            sp.random_array(
                (n, d), density=density, format="csr", rng=rng, data_sampler=rng.standard_normal
            )
        )

    return draw


FEATURES: dict[str, Draw] = {
    "gaussian": _gaussian,
    **{f"condition {c:.0e}": _condition(c) for c in (1e0, 1e1, 1e2, 1e3, 1e4, 1e6)},
    **{f"columns {c:.0e}": _columns(c) for c in (1e2, 1e4, 1e6)},
    "one large": _one_large,
    "uncentred": _uncentred,
    "near low rank": _near_low_rank,
    "deficient": _deficient,
    "twins": _twins,
    "counts": _counts,
    "small counts": _small_counts,
    "word counts": _word_counts,
    **{f"sparse {share:g}": _sparse(share) for share in (0.001, 0.003, 0.01, 0.05)},
}


def draw(name: str, recipe: Recipe) -> Problem:
    """The problem of a recipe."""
    rng = np.random.default_rng(recipe.seed)
    n, d, m = recipe.n, recipe.d, recipe.m
    X = FEATURES[recipe.X](rng, n, d)
    left, right = _planted(rng, X, m, min(recipe.rank, n, d, m), centred=recipe.intercept)
    scores = np.asarray(X @ left) @ right
    if recipe.intercept:
        scores -= scores.mean(axis=0)
    # Targets of variance 1, and classes that are right in most rows.
    size = (1.0 if recipe.task == "squares" else 3.0) / scores.std()
    y = _targets(rng, recipe, size * scores)
    weights = None
    if recipe.weights:
        most = {"mild": 1.0, "extreme": 6.0}[recipe.weights]
        weights = 10.0 ** rng.uniform(-most, most, n)
    radius = recipe.radius if recipe.absolute else recipe.radius * size * _norm(left, right)
    X = X.astype(recipe.dtype)
    y = y if recipe.task == "classes" else y.astype(recipe.dtype)
    problem = make(name, X, y, m, radius, weights, intercept=recipe.intercept)
    return replace(problem, representation=recipe.representation, tol=recipe.tol)


def _planted(
    rng: np.random.Generator, X: Any, m: int, rank: int, *, centred: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Factors of a W whose scores have the same variance along all singular vectors of X.

    Where X is sparse, along all its columns. So small directions need large coefficients.
    """
    right = rng.standard_normal((rank, m))
    if sp.issparse(X):
        sizes = np.sqrt(np.asarray(X.multiply(X).sum(axis=0)).ravel())
        left = rng.standard_normal((X.shape[1], rank))
        return left / np.where(sizes > 0.0, sizes, 1.0)[:, None], right
    _, s, Vt = np.linalg.svd(X - X.mean(axis=0) if centred else X, full_matrices=False)
    inverse = np.where(s > 1e-10 * s[0], 1.0 / np.maximum(s, 1e-10 * s[0]), 0.0)
    return Vt.T @ (inverse[:, None] * rng.standard_normal((s.size, rank))), right


def _norm(left: np.ndarray, right: np.ndarray) -> float:
    """Trace norm of the product."""
    small = np.linalg.qr(left)[1] @ np.linalg.qr(right.T)[1].T
    return float(np.linalg.svd(small, compute_uv=False).sum())


def _targets(rng: np.random.Generator, recipe: Recipe, scores: np.ndarray) -> np.ndarray:
    n, m = scores.shape
    if recipe.task == "squares":
        noise = 0.0 if recipe.y == "exact" else 0.3
        offsets = 5.0 * rng.standard_normal(m) if recipe.intercept else 0.0
        return np.asarray(scores + offsets + noise * rng.standard_normal((n, m)))
    if recipe.y == "rare":
        y, rows = np.zeros(n, np.int64), rng.permutation(n)
        own = np.repeat(np.arange(1, m), rng.integers(0, 6, m - 1))
        y[rows[: own.size]] = own
        return y
    if recipe.y == "imbalanced":
        scores = scores - 2.0 * np.arange(m)
    if recipe.y != "exact":
        scores = scores + rng.gumbel(size=(n, m))
    return np.asarray(scores.argmax(axis=1))


def make(
    name: str,
    X: Any,
    y: np.ndarray,
    m: int,
    radius: float | None = None,
    weights: np.ndarray | None = None,
    *,
    factor: float = 1.0,
    intercept: bool = False,
) -> Problem:
    """A problem on given rows; without a radius, `factor` times F(0)/σ₁(∇F(0)) is taken."""
    objective = Objective(X, y, m, weights, intercept)
    at_zero, sigma = objective.at_zero()
    if radius is None:
        radius = factor * at_zero / sigma
    return Problem(name, X, y, m, radius, weights, intercept, objective, at_zero)


# Data sets


def _weights_of_one_row() -> Problem:
    """Nothing but an intercept to learn, and one row that outweighs the others by 1e14."""
    X, weights = np.zeros((3, 2)), np.array([1e9, 1e-5, 1e-5])
    return make("", X, np.arange(3), 3, 1.0, weights, intercept=True)


def _first_try(name: str, factor: float) -> Callable[[], Problem]:
    """Training rows of a raw data set with an intercept, as the estimators take them."""

    def load() -> Problem:
        rows = first_try_data.data_set(name)
        X, y = rows.X_train, rows.y_train
        if sp.issparse(X):
            X = sp.csr_array(X)
        if rows.task == "classification":
            classes, y = np.unique(y, return_inverse=True)
            return make("", X, y, len(classes), factor=factor, intercept=True)
        Y = y.reshape(len(y), -1).astype(np.float64)
        return make("", X, Y, Y.shape[1], factor=factor, intercept=True)

    return load


def _intents(*, intercept: bool) -> Callable[[], Problem | None]:
    """CLINC150 at the radius that validates best, in random order."""

    def load() -> Problem | None:
        split = data.clinc150()
        if split is None:
            return None
        order = np.random.default_rng(0).permutation(len(split.y))
        X, y = split.X[order], split.y[order]
        return make("", X, y, 150, 2000.0, intercept=intercept)

    return load


def _languages(
    radius: float, *, tf_idf: bool = False, max_seconds: float = 20.0
) -> Callable[[], Problem | None]:
    """UDHR: counts of character n-grams, or tf-idf; rows of unit length."""

    def load() -> Problem | None:
        split = data.udhr()
        if split is None:
            return None
        X = split.X
        if tf_idf:
            X = sp.csr_array(TfidfTransformer().fit_transform(sp.csr_matrix(X))).astype(np.float32)
        return replace(make("", X, split.y, 380, radius), max_seconds=max_seconds)

    return load


_F32 = np.float32
_S: Task = "squares"
_C: Task = "classes"

RECIPES: dict[str, Recipe] = {
    # Least squares, features of one size
    "squares": Recipe(_S, 1000, 100, 80, 1.0),
    "squares, rank one": Recipe(_S, 1000, 100, 80, 0.02),
    "squares, ×0.3": Recipe(_S, 1000, 100, 80, 0.3),
    "squares, idle": Recipe(_S, 1000, 100, 80, 100.0),
    "squares, float32": Recipe(_S, 1000, 100, 80, 0.7, dtype=_F32),
    "squares, float32, idle": Recipe(_S, 200, 60, 2, 100.0, dtype=_F32),
    "squares, d = m = 300": Recipe(_S, 2000, 300, 300, 1.0, rank=10),
    "squares, n ≪ d": Recipe(_S, 50, 800, 30, 0.5),
    "squares, n ≪ d, idle": Recipe(_S, 50, 800, 30, 100.0),
    "squares, n ≫ d": Recipe(_S, 50_000, 40, 30, 0.7),
    "squares, 1000 targets": Recipe(_S, 300, 20, 1000, 0.7),
    "squares, one target": Recipe(_S, 1000, 100, 1, 0.7),
    "squares, weights": Recipe(_S, 1000, 60, 30, 0.7, weights="mild"),
    "squares, extreme weights": Recipe(_S, 1000, 60, 30, 1.0, weights="extreme", intercept=True),
    "squares, intercept": Recipe(_S, 1000, 60, 30, 1.0, intercept=True),
    "squares, intercept, n ≪ d": Recipe(_S, 60, 500, 20, 1.0, intercept=True),
    "squares, intercept, float32, n ≪ d": Recipe(
        _S, 100, 500, 5, 100.0, intercept=True, dtype=_F32, absolute=True, representation="dense"
    ),
    "squares, sparse": Recipe(_S, 3000, 1000, 20, 0.7, X="sparse 0.01"),
    "squares, sparse, float32": Recipe(
        _S, 2000, 3000, 30, 1.0, X="sparse 0.003", dtype=_F32, intercept=True
    ),
    "squares, d·m = 3e7": Recipe(_S, 300, 6000, 5000, 0.004, X="sparse 0.01"),
    # Least squares, badly conditioned
    "squares, condition 1": Recipe(_S, 300, 40, 30, 1.0, X="condition 1e+00"),
    "squares, condition 10": Recipe(_S, 300, 40, 30, 1.0, X="condition 1e+01"),
    "squares, condition 100": Recipe(_S, 300, 40, 30, 0.3, X="condition 1e+02"),
    "squares, condition 1e3, idle": Recipe(_S, 120, 12, 9, 100.0, X="condition 1e+03"),
    "squares, condition 1e4": Recipe(_S, 300, 40, 30, 0.1, X="condition 1e+04"),
    "squares, condition 1e6": Recipe(_S, 300, 40, 30, 0.001, X="condition 1e+06"),
    "squares, rank-deficient": Recipe(_S, 500, 80, 20, 1.0, X="deficient"),
    "squares, raw units, ×0.003": Recipe(_S, 2000, 60, 20, 0.003, X="columns 1e+04"),
    "squares, raw units, ×0.03": Recipe(_S, 2000, 60, 20, 0.03, X="columns 1e+04"),
    "squares, raw units, ×0.3": Recipe(_S, 2000, 60, 20, 0.3, X="columns 1e+04"),
    "squares, raw units, ×1": Recipe(_S, 2000, 60, 20, 1.0, X="columns 1e+04"),
    "squares, raw units, intercept": Recipe(
        _S, 2000, 60, 20, 0.3, X="columns 1e+04", intercept=True
    ),
    "squares, raw units 1e6": Recipe(_S, 500, 30, 10, 0.01, X="columns 1e+06"),
    "squares, one large column": Recipe(_S, 600, 40, 15, 0.5, X="one large"),
    "squares, counts": Recipe(_S, 800, 50, 20, 0.3, X="counts"),
    "squares, word counts": Recipe(_S, 1500, 400, 20, 1.0, X="word counts"),
    "squares, uncentred": Recipe(_S, 60, 60, 5, 1.0, X="uncentred"),
    "squares, uncentred, intercept": Recipe(_S, 600, 60, 5, 1.0, X="uncentred", intercept=True),
    "squares, uncentred, float32, idle": Recipe(_S, 200, 60, 2, 100.0, X="uncentred", dtype=_F32),
    "squares, twins": Recipe(_S, 200, 30, 3, 1.5, X="twins"),
    # The solution of least squares in float64 has a relative gap of 1e-3 itself.
    "squares, twins, 1e6": Recipe(_S, 200, 5, 3, 1.5, X="twins", tol=1e-2),
    "squares, near low rank, 60×60×20, ×100": Recipe(_S, 60, 60, 20, 100.0, X="near low rank"),
    "squares, near low rank, 2000×60×2, ×100": Recipe(_S, 2000, 60, 2, 100.0, X="near low rank"),
    "squares, near low rank, 2000×60×20, ×100": Recipe(_S, 2000, 60, 20, 100.0, X="near low rank"),
    "squares, near low rank, 2000×150×5, ×0.3": Recipe(_S, 2000, 150, 5, 0.3, X="near low rank"),
    "squares, near low rank, 2000×150×5, ×1": Recipe(_S, 2000, 150, 5, 1.0, X="near low rank"),
    "squares, columns 1e2, 60×60×20, ×100": Recipe(_S, 60, 60, 20, 100.0, X="columns 1e+02"),
    "squares, columns 1e4, 60×60×20, ×100": Recipe(_S, 60, 60, 20, 100.0, X="columns 1e+04"),
    "squares, columns 1e4, 600×150×2, ×3": Recipe(_S, 600, 150, 2, 3.0, X="columns 1e+04"),
    "squares, columns 1e4, 60×20×2, ×1": Recipe(_S, 60, 20, 2, 1.0, X="columns 1e+04"),
    "squares, columns 1e4, 600×20×2, ×3": Recipe(_S, 600, 20, 2, 3.0, X="columns 1e+04"),
    # Classes, features of one size
    "classes": Recipe(_C, 1500, 50, 20, 1.0),
    "classes, rank one": Recipe(_C, 1500, 50, 20, 0.005),
    "classes, ×0.1": Recipe(_C, 1500, 50, 20, 0.1),
    "classes, idle": Recipe(_C, 3000, 15, 6, 100.0),
    "classes, float32": Recipe(_C, 5000, 200, 100, 0.5, rank=10, dtype=_F32),
    "classes, separable": Recipe(_C, 500, 60, 10, 10.0, y="exact"),
    "classes, n ≪ d": Recipe(_C, 100, 2000, 10, 0.3),
    "classes, n ≪ d, ×30": Recipe(_C, 100, 2000, 10, 30.0),
    "classes, n ≫ d": Recipe(_C, 30_000, 20, 10, 0.7),
    "classes, 300": Recipe(_C, 3000, 40, 300, 0.5, rank=5),
    "classes, intercept": Recipe(_C, 1500, 50, 20, 0.5, intercept=True),
    "classes, intercept, float32": Recipe(_C, 1500, 50, 20, 0.5, intercept=True, dtype=_F32),
    "classes, intercept, float32, idle": Recipe(_C, 200, 60, 2, 100.0, intercept=True, dtype=_F32),
    "classes, imbalanced": Recipe(_C, 3000, 30, 6, 1.0, y="imbalanced", intercept=True),
    "classes, weights": Recipe(_C, 1000, 40, 10, 0.5, weights="mild", intercept=True),
    "classes, extreme weights": Recipe(_C, 1000, 40, 10, 0.5, weights="extreme", intercept=True),
    "classes, sparse": Recipe(_C, 3000, 2000, 20, 0.5, X="sparse 0.01"),
    "classes, sparse, intercept, float32": Recipe(
        _C, 2000, 1000, 30, 1.0, X="sparse 0.01", intercept=True, dtype=_F32
    ),
    "classes, d·m = 3e7": Recipe(_C, 300, 3000, 10_000, 0.002, X="sparse 0.01"),
    # Classes, badly conditioned
    "classes, condition 1e3": Recipe(_C, 1000, 40, 10, 0.3, X="condition 1e+03"),
    "classes, rank-deficient": Recipe(_C, 800, 80, 10, 1.0, X="deficient"),
    "classes, near low rank": Recipe(_C, 2000, 60, 20, 0.1, X="near low rank"),
    "classes, columns 1e2": Recipe(_C, 1000, 40, 10, 0.5, X="columns 1e+02"),
    "classes, columns 1e2, intercept, float32": Recipe(
        _C, 2000, 20, 5, 1.0, X="columns 1e+02", intercept=True, dtype=_F32
    ),
    "classes, raw units": Recipe(_C, 1500, 40, 20, 20.0, X="columns 1e+04", absolute=True),
    "classes, raw units, intercept": Recipe(
        _C, 1500, 40, 20, 20.0, X="columns 1e+04", absolute=True, intercept=True
    ),
    "classes, raw units 1e6": Recipe(_C, 500, 20, 5, 0.01, X="columns 1e+06"),
    "classes, one large column": Recipe(_C, 800, 40, 10, 0.5, X="one large"),
    "classes, uncentred": Recipe(_C, 800, 40, 10, 0.5, X="uncentred"),
    "classes, uncentred, intercept": Recipe(_C, 800, 40, 10, 0.5, X="uncentred", intercept=True),
    "classes, uncentred, intercept, float32": Recipe(
        _C, 600, 20, 10, 1.0, X="uncentred", intercept=True, dtype=_F32
    ),
    "classes, word counts": Recipe(_C, 1500, 400, 20, 1.0, X="word counts"),
    "classes, rare": Recipe(_C, 2000, 5, 50, 100.0, X="small counts", y="rare"),
}

DATA: dict[str, Callable[[], Problem | None]] = {
    "weights 1e9 and 1e-5": _weights_of_one_row,
    "wine": _first_try("wine", 30.0),
    "breast cancer": _first_try("breast cancer", 30.0),
    "digits": _first_try("digits", 3.0),
    "odd units": _first_try("odd units", 30.0),
    "one-hot": _first_try("one-hot", 3.0),
    "text, 114 classes": _first_try("text, 114 classes", 3.0),
    "CLINC150": _intents(intercept=False),
    "CLINC150, intercept": _intents(intercept=True),
    "UDHR counts": _languages(1000.0),
    "UDHR counts, radius 8000": _languages(8000.0, max_seconds=400.0),
    "UDHR tf-idf": _languages(1000.0, tf_idf=True),
}

NAMES = (*RECIPES, *DATA)
# A few of all kinds that take a moment.
TOY = ("squares, one target", "squares, intercept, n ≪ d", "classes, rank one", "wine")


def load(name: str) -> Problem | None:
    """One problem; None if it is of a data set that is not here."""
    if name in RECIPES:
        return draw(name, RECIPES[name])
    problem = DATA[name]()
    if problem is None:
        return None
    return replace(problem, name=name)


def load_all(names: tuple[str, ...] = NAMES) -> Iterator[Problem]:
    """The problems in turn, without those of data sets that are not here."""
    for name in names:
        problem = load(name)
        if problem is not None:
            yield problem
