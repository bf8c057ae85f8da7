"""Weights of rows: they travel as the first column of y."""

from __future__ import annotations

import numpy as np

from dfwtrace._typing import Array, FloatArray
from dfwtrace.data.shards import Shard
from dfwtrace.losses import UNWEIGHTED, Loss


def join_weights(weights: Array, y: Array) -> FloatArray:
    """Weights and targets as one array of float64, so that they stay together wherever rows go."""
    return np.column_stack([weights, y]).astype(np.float64, copy=False)


def split_targets(loss: Loss, shard: Shard, weighted: bool) -> tuple[Array, Array]:
    """The targets as the loss takes them, and the weights, if any, in the precision of X."""
    if not weighted:
        return shard.targets, UNWEIGHTED
    joined = shard.targets
    return loss.as_targets(own_targets(joined)), joined[:, 0].astype(shard.X.dtype)


def own_targets(joined: Array) -> Array:
    """The targets that weights were joined with; one column is one number for each row."""
    return joined[:, 1] if joined.shape[1] == 2 else joined[:, 1:]


def weight_of(weights: Array, n_rows: int) -> float:
    """Σ weights; the number of rows if there are none."""
    return float(weights.sum(dtype=np.float64)) if weights.size else float(n_rows)


def weighted_rows(rows: Array, weights: Array) -> Array:
    """Each row times its weight, if there are any."""
    if not weights.size:
        return rows
    return rows * (weights if rows.ndim == 1 else weights[:, None])
