"""The data of the experiments, made up or real, and what is asked of a W on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np

from dfwtrace._typing import Array
from dfwtrace.datasets import make_multiclass, make_multitask
from dfwtrace.experiments.methods import Problem
from dfwtrace.linalg.lowrank import LowRankMatrix
from dfwtrace.tasks import LeastSquares, Multinomial

RANK = 10
Made = TypeVar("Made")
_BLOCK = 4096


class Split(NamedTuple):
    """Rows to learn from and rows to test on."""

    X: Array
    y: Array
    X_test: Array
    y_test: Array
    n_classes: int


class Last:
    """The data that were made last, for the next method; no others, as they may take 10 GB.

    Examples
    --------
    >>> last = Last()
    >>> last.of(multiclass, 50, 6, 4) is last.of(multiclass, 50, 6, 4)
    True
    """

    def __init__(self) -> None:
        self._made: Any = None
        self._key: tuple[Any, ...] | None = None

    def of(self, make: Callable[..., Made], *arguments: Any) -> Made:
        """What `make` returns, or has returned if it is the last that was asked for."""
        if self._key != (make, arguments):
            self.forget()  # before there is more
            self._made, self._key = make(*arguments), (make, arguments)
        made: Made = self._made
        return made

    def forget(self) -> None:
        """Give the memory back."""
        self._made = self._key = None


#: What all experiments of a process ask for their data.
last = Last()


def multitask(n: int, d: int, m: int, seed: int = 0) -> Problem:
    """Y = XW with W of rank 10 and trace norm 1, which is the radius."""
    X, Y, truth = make_multitask(n, d, m, rank=min(RANK, d, m), seed=seed, dtype=np.float32)
    size = truth.frobenius_norm

    def look(W: LowRankMatrix) -> Mapping[str, float]:
        return {"frobenius": (W - truth).frobenius_norm / size}

    return Problem(LeastSquares(), X, Y, 1.0, look)


def multiclass(n: int, d: int, m: int, n_test: int | None = None, seed: int = 0) -> Split:
    """The class of highest score in XW, W of rank 10; as many rows again to test on."""
    n_test = n if n_test is None else n_test
    X, y, _ = make_multiclass(n + n_test, d, m, rank=min(RANK, d, m), seed=seed, dtype=np.float32)
    return Split(X[:n], y[:n], X[n:], y[n:], m)


def classification(data: Split, radius: float) -> Problem:
    """Multinomial logistic regression, with its errors on the test rows."""

    def look(W: LowRankMatrix) -> Mapping[str, float]:
        return dict(zip(("top-1", "top-5"), top_errors(W, data.X_test, data.y_test), strict=True))

    return Problem(Multinomial(data.n_classes), data.X, data.y, radius, look)


def top_errors(W: LowRankMatrix, X: Array, y: Array) -> tuple[float, float]:
    """Shares of rows whose class is not the first, and not among the first five.

    Examples
    --------
    >>> import numpy as np
    >>> W = LowRankMatrix(np.eye(2), np.ones(2), np.eye(6)[:, :2])
    >>> top_errors(W, np.array([[2.0, 1.0], [1.0, 2.0]]), np.array([0, 0]))
    (0.5, 0.0)
    """
    wrong = np.zeros(2)
    # Features may be stored as whole numbers or in half precision, which W must not be cut to.
    dtype = np.result_type(X.dtype, np.float32)
    U, V = W.U.astype(dtype), (W.V * W.s).astype(dtype)
    for start in range(0, len(y), _BLOCK):
        rows = slice(start, start + _BLOCK)
        scores = (X[rows].astype(dtype, copy=False) @ U) @ V.T
        if not np.isfinite(scores).all():
            raise ValueError("X_test must hold finite numbers only.")
        own = np.take_along_axis(scores, y[rows, None], axis=1)
        above = (scores > own).sum(axis=1)
        # A W of low rank may tie whole groups of classes: the first of equals wins, as in argmax.
        earlier = np.arange(scores.shape[1]) < y[rows, None]
        above += ((scores == own) & earlier).sum(axis=1)
        wrong += [(above >= 1).sum(), (above >= 5).sum()]
    first, fifth = (wrong / len(y)).tolist()
    return first, fifth
