"""What the representations of a loss on the scores XW share."""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

import numpy as np

from dfwtrace._typing import Array, FloatArray
from dfwtrace.data.shards import ROWS_IN_BLOCK, Shard, slice_rows
from dfwtrace.losses import UNWEIGHTED, Loss
from dfwtrace.tasks.task import Task

State = TypeVar("State")


class Representation(Task[State]):
    """F(W) = Σ_i ℓ(x_iᵀW, y_i) with some choice of what a shard keeps in memory."""

    #: Whether a shard can be centred by itself, as an intercept for local gradients needs.
    centres_shards: ClassVar[bool] = True

    def __init__(self, loss: Loss, weighted: bool = False) -> None:
        self.loss_on_scores, self.weighted = loss, weighted
        self.quadratic, self.smoothness = loss.quadratic, loss.smoothness

    @property
    def identity(self) -> object:
        return self.loss_on_scores

    def supports(self, method: str) -> bool:
        if method == "linesearch" and not self.loss_on_scores.searchable:
            return False
        return super().supports(method)

    def first_moments(self, shard: Shard) -> FloatArray:
        """[Σ x, Σ 1], each row times its weight: the mean to centre X at."""
        weights, total = self.row_weights(shard), np.zeros(shard.X.shape[1])
        for start in range(0, shard.n_rows, ROWS_IN_BLOCK):
            stop = min(start + ROWS_IN_BLOCK, shard.n_rows)
            total += slice_rows(shard.X, start, stop).T.astype(np.float64) @ weights[start:stop]
        return np.append(total, weights.sum())

    def row_weights(self, shard: Shard) -> FloatArray:
        """The weight of every row, 1 where there are none."""
        weights: Array = shard.targets[:, 0] if self.weighted else np.ones(shard.n_rows)
        return weights.astype(np.float64)

    def weight_of_rows(self, shard: Shard) -> float:
        return float(self.row_weights(shard).sum())

    def targets_and_weights(self, shard: Shard) -> tuple[Array, Array]:
        """The targets as the loss takes them, and the weights, if any, in the precision of X."""
        y = shard.targets
        if not self.weighted:
            return y, UNWEIGHTED
        return self.loss_on_scores.check_targets(own_targets(y))[0], y[:, 0].astype(shard.X.dtype)

    def curvature_product(self, state: Any, U: Array) -> FloatArray:
        """c Xᵀ diag(weights) X U, where c is the largest curvature of a row's loss."""
        images, weights = state.X.times(U), state.weights
        if weights.size:
            images = images * (weights if images.ndim == 1 else weights[:, None])
        return np.asarray(self.smoothness * state.X.transpose_times(images))


# Weights of rows travel as the first column of y.


def join_weights(weights: Array, y: Array) -> FloatArray:
    """Weights and targets as one array of float64, so that they stay together wherever rows go."""
    return np.column_stack([weights, y]).astype(np.float64, copy=False)


def own_targets(joined: Array) -> Array:
    """The targets that weights were joined with; one column is one number for each row."""
    return joined[:, 1] if joined.shape[1] == 2 else joined[:, 1:]
