"""What the representations of a loss on the scores XW share."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, TypeVar

import numpy as np

from dfwtrace._typing import Array, FloatArray
from dfwtrace.data.shards import ROWS_IN_BLOCK, Shard, slice_rows
from dfwtrace.losses import Loss
from dfwtrace.tasks.planning import Estimate, Workload
from dfwtrace.tasks.task import Task

State = TypeVar("State")


class Representation(Task[State]):
    """F(W) = Σ_i ℓ(x_iᵀW, y_i) with some choice of what a shard keeps in memory."""

    #: Whether a shard can be centred by itself, as an intercept for local gradients needs.
    centres_shards: ClassVar[bool] = True

    def __init__(self, loss: Loss, weighted: bool = False) -> None:
        self.loss_on_scores, self.weighted = loss, weighted
        self.quadratic, self.smoothness = loss.quadratic, loss.smoothness

    @staticmethod
    @abstractmethod
    def estimate(w: Workload) -> Estimate:
        """Memory and time, from passes over memory and matrix products."""

    @property
    def identity(self) -> object:
        return self.loss_on_scores

    def supports(self, method: str) -> bool:
        if method == "linesearch" and not self.loss_on_scores.searchable:
            return False
        return super().supports(method)

    def first_moments(self, shard: Shard) -> FloatArray:
        """[Σ x, Σ 1], each row times its weight: the mean to centre X at."""
        weights, total = row_weights(shard, self.weighted), np.zeros(shard.X.shape[1])
        for start in range(0, shard.n_rows, ROWS_IN_BLOCK):
            stop = min(start + ROWS_IN_BLOCK, shard.n_rows)
            total += slice_rows(shard.X, start, stop).T.astype(np.float64) @ weights[start:stop]
        return np.append(total, weights.sum())

    def weight_of_rows(self, shard: Shard) -> float:
        return float(row_weights(shard, self.weighted).sum())


def row_weights(shard: Shard, weighted: bool) -> FloatArray:
    """The weight of every row, 1 where there are none."""
    weights: Array = shard.targets[:, 0] if weighted else np.ones(shard.n_rows)
    return weights.astype(np.float64)
