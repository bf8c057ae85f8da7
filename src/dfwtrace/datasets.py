"""Synthetic problems of the paper's experiments, with a known low-rank truth."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dfwtrace._typing import Array, DType
from dfwtrace.linalg.lowrank import LowRankMatrix
from dfwtrace.validation import check_count, check_positive, check_seed, describe, renamed

_ROWS_AT_ONCE = 1 << 14


@renamed(seed="random_state")
def make_multitask(
    n: int = 20_000,
    d: int = 300,
    m: int = 300,
    rank: int = 10,
    noise: float = 0.0,
    random_state: int | np.random.RandomState | None = None,
    dtype: npt.DTypeLike = np.float64,
) -> tuple[Array, Array, LowRankMatrix]:
    """Draw data of multi-task regression: Y = XW + noise, X Gaussian, W of low rank.

    Parameters
    ----------
    n, d, m : int, default=20_000, 300, 300
        Rows, features, tasks.
    rank : int, default=10
        Rank of the truth.
    noise : float, default=0.0
        Standard deviation of the Gaussian noise, relative to that of the entries of XW.
    random_state : int, RandomState or None, default=None
        Seed of the generator. If None, the same in every call.
    dtype : dtype, default=float64
        Type of X and Y: float32 or float64.

    Returns
    -------
    X : array of shape (n, d)
        Gaussian features.
    Y : array of shape (n, m)
        Targets of the tasks.
    W_true : LowRankMatrix
        The truth, of trace norm 1.

    Examples
    --------
    >>> import dfwtrace as dt
    >>> X, Y, W_true = dt.datasets.make_multitask(n=50, d=6, m=4, rank=2, random_state=0)
    >>> X.shape, Y.shape, round(W_true.trace_norm, 12)
    ((50, 6), (50, 4), 1.0)
    """
    check_positive("noise", noise, or_zero=True)
    rng = np.random.default_rng(check_seed(random_state))
    X, W_true = _features_and_truth(rng, n, d, m, rank, dtype)
    Y = X @ W_true
    if noise:
        Y = Y + noise * float(Y.std()) * rng.standard_normal(Y.shape)
    return X, Y.astype(dtype, copy=False), W_true


@renamed(seed="random_state")
def make_multiclass(
    n: int = 20_000,
    d: int = 300,
    m: int = 300,
    rank: int = 10,
    random_state: int | np.random.RandomState | None = None,
    dtype: npt.DTypeLike = np.float64,
) -> tuple[Array, Array, LowRankMatrix]:
    """Draw data of multi-class classification: y is the class of highest score in XW.

    Parameters
    ----------
    n, d, m : int, default=20_000, 300, 300
        Rows, features, classes. With few rows, some classes may have none.
    rank, random_state, dtype : int, int or RandomState, and dtype
        As for `make_multitask`.

    Returns
    -------
    X : array of shape (n, d)
        Gaussian features.
    y : array of shape (n,)
        Classes, from 0.
    W_true : LowRankMatrix
        The truth, of trace norm 1.

    Examples
    --------
    >>> import dfwtrace as dt
    >>> X, y, W_true = dt.datasets.make_multiclass(n=50, d=6, m=4, rank=2, random_state=0)
    >>> bool((y == (X @ W_true).argmax(axis=1)).all())
    True
    """
    X, W_true = _features_and_truth(
        np.random.default_rng(check_seed(random_state)), n, d, m, rank, dtype
    )
    # Some rows at a time: all scores together would take more memory than the data.
    blocks = (X[start : start + _ROWS_AT_ONCE] for start in range(0, n, _ROWS_AT_ONCE))
    return X, np.concatenate([(block @ W_true).argmax(axis=1) for block in blocks]), W_true


def _features_and_truth(
    rng: np.random.Generator, n: int, d: int, m: int, rank: int, dtype: npt.DTypeLike
) -> tuple[Array, LowRankMatrix]:
    for name, value in (("n", n), ("d", d), ("m", m), ("rank", rank)):
        check_count(name, value, 1)
    if rank > min(d, m):
        raise ValueError(f"rank must be at most min(d, m) = {min(d, m)}, got {rank}.")
    kind: DType = np.dtype(dtype)
    if kind not in (np.float32, np.float64):
        raise ValueError(f"dtype must be float32 or float64, got {describe(dtype)}.")
    U, V = rng.standard_normal((d, rank)), rng.standard_normal((m, rank))
    W = LowRankMatrix(U, np.ones(rank), V).compress()
    X = rng.standard_normal((n, d), dtype=kind)
    return X, W * (1.0 / W.trace_norm)
