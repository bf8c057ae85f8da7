"""What a task is: F on one shard, in plain NumPy; and what ours have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
import scipy.sparse as sp

from dfwtrace._typing import Array, DType, FloatArray, Matrix
from dfwtrace.data.shards import (
    ROWS_IN_BLOCK,
    Examined,
    RowBlock,
    RowBlocks,
    Shard,
    slice_rows,
)
from dfwtrace.linalg.lowrank import LowRankMatrix, RankOne
from dfwtrace.losses import UNWEIGHTED, Loss, inner_product
from dfwtrace.tasks.planning import Plan, Workload
from dfwtrace.validation import describe, require_finite

# A column that deviates from its mean by less than this share of it is constant, but for rounding.
_CONSTANT = 1e-12
_ROWS_AT_ONCE = 128  # whose deviations from the mean stay in cache

State = TypeVar("State")
#: A method's name and its arguments ↦ the sum of all shards' replies.
Total = Callable[..., FloatArray]


class Centre(NamedTuple):
    """A point that rows are centred at: of the features and of the targets."""

    x: FloatArray
    y: FloatArray

    def intercept(self, W: LowRankMatrix) -> FloatArray:
        """b with which the scores of x are y: b = y - xᵀW."""
        return np.asarray(self.y - ((self.x @ W.U) * W.s) @ W.V.T)


class Columns(NamedTuple):
    """What is known of the columns of scores."""

    weight: float  # of all rows
    slope: FloatArray  # ∂F/∂b
    curvature: FloatArray  # ∂²F/∂b², on the diagonal
    relative: FloatArray  # the same over its largest possible value; 1 where nothing is known


class Summary(NamedTuple):
    """What F depends on, summed over all shards."""

    shard: Any  # it takes the place of all shards; None if they stay where they are
    centre: Centre | None  # the means that features and targets were centred at
    squared_norms: FloatArray  # of the columns of X, before they were centred
    squared_norm_of_targets: float
    longest_sum: int  # numbers added one after the other

    def rounding(self, W: LowRankMatrix, radius: float) -> float:
        """How far rounding in A = XᵀX and B = XᵀY may move the duality gap, but for the precision.

        |ΔA_ij| ≤ ε‖X_i‖‖X_j‖ and |ΔB_ik| ≤ ε‖X_i‖‖Y_k‖ for columns X_i, Y_k. With D = diag ‖X_i‖,
        AW - B is off by at most ε‖X‖(√d ‖DW‖ + ‖Y‖), and ⟨W, G⟩ + μσ₁(G) by 2μ times that. A sum of
        k numbers, one after the other, has ε = k/2 that of float64; the precision is 8 of these.
        """
        norms = np.sqrt(np.maximum(self.squared_norms, 0.0))
        image = np.sqrt(norms.size) * self._length(W) + np.sqrt(self.squared_norm_of_targets)
        return float(2.0 * radius * np.linalg.norm(norms) * image * self.longest_sum / 16.0)

    def size(self, W: LowRankMatrix) -> float:
        """(‖DW‖ + ‖Y‖)²: F is a difference of terms of that size."""
        return float((self._length(W) + np.sqrt(self.squared_norm_of_targets)) ** 2)

    def _length(self, W: LowRankMatrix) -> float:
        left = np.sqrt(np.maximum(self.squared_norms, 0.0))[:, None] * (W.U * W.s)
        return float(np.sqrt(max(np.vdot(left.T @ left, W.V.T @ W.V), 0.0)))


class Task(Generic[State]):
    """A learning problem F(W) = Σ_j F_j(W), seen from one shard j. Subclass it for a custom task.

    Two methods are required, `stats` and `update`, and the gradient in one of three forms: a state
    with a dense d×m array `grad` (an attribute or a key), the method `gradient`, or the methods
    `matvec` and `rmatvec`. All others have defaults; a run that needs one which the task does not
    define says so before the first round. A task must be picklable.

    Attributes
    ----------
    quadratic : bool, default=False
        Whether F is quadratic in W: one Newton step is then an exact line search.
    log_factor : float, default=1.0
        c in the K(t) = ⌊1 + c log t⌋ of the oracle "power-log".

    Examples
    --------
    >>> import numpy as np, dfwtrace as dt
    >>> class Plain(dt.Task):
    ...     def stats(self, shard, W):
    ...         return self.at(shard.X, shard.targets, shard.X @ W)
    ...     def update(self, state, atom, gamma):
    ...         move = np.outer(state["X"] @ (atom.scale * atom.u), atom.v) - state["S"]
    ...         return self.at(state["X"], state["y"], state["S"] + gamma * move)
    ...     def loss(self, state):
    ...         return 0.5 * np.sum((state["S"] - state["y"]) ** 2)
    ...     def at(self, X, y, S):
    ...         return {"X": X, "y": y, "S": S, "grad": X.T @ (S - y)}
    >>> X, Y, _ = dt.datasets.make_multitask(n=200, d=10, m=8, rank=2, random_state=0)
    >>> result = dt.solve(Plain(), X, Y, radius=1.0, solver="dfw", step="harmonic")
    >>> result.objective < 0.05 * result.objective_at_zero
    True
    """

    quadratic: bool = False
    log_factor: float = 1.0

    def stats(self, shard: Shard, W: LowRankMatrix) -> State:
        """Return the state at any W: start, warm start and recovery are this one call."""
        raise NotImplementedError

    def update(self, state: State, atom: RankOne, gamma: float) -> State:
        """Return the state at (1-γ) W + γ atom. May change `state` in place and return it."""
        raise NotImplementedError

    def matvec(self, state: State, V: Array) -> Array:
        """∇F_j V for a vector or a block of vectors."""
        return self.gradient(state) @ V

    def rmatvec(self, state: State, U: Array) -> Array:
        """∇F_jᵀ U for a vector or a block of vectors."""
        return self.gradient(state).T @ U

    def gradient(self, state: State) -> Array:
        """∇F_j as a dense array: the state's `grad` by default."""
        grad = dense_gradient(state)
        if grad is None:
            raise TypeError("task has neither matvec and rmatvec nor a state with a dense `grad`.")
        return grad

    def loss(self, state: State) -> float:
        """F_j(W). Without it the history has no objective and `tol` no scale."""
        return np.nan

    def inner(self, state: State) -> float:
        """⟨W, ∇F_j(W)⟩, if it is cheaper than from the factors of W; NaN if it is not."""
        return np.nan

    def linesearch(self, state: State, atom: RankOne, gamma: float) -> tuple[float, float]:
        """First and second derivative of γ ↦ F_j((1-γ) W + γ atom) at `gamma`."""
        raise NotImplementedError

    def curvature_product(self, state: State, U: Array) -> Array:
        """H U with ∇²F_j ⪯ I_m ⊗ H, for C_F and for the default solver's metric."""
        raise NotImplementedError

    def second_moments(self, state: State) -> Array:
        """H itself, if it is cheaper than its products; see `curvature_product`."""
        raise NotImplementedError

    def squared_lengths(self, state: State) -> Array:
        """The diagonal of H."""
        raise NotImplementedError

    def tangent(self, state: State) -> Array | None:
        """[F_j, ⟨W, ∇F_j⟩, ∇F_j V, ∇F_jᵀ U] in one pass, for the W the state was built from.

        None if that takes no less than the single calls. What a task made of a loss on scores knows
        of the columns of scores may follow: see `Representation.add_columns`.
        """
        return None

    def expect(self, state: State, v: Array) -> State:
        """Announce that ``matvec(state, v)`` follows the next update: both may be one pass."""
        return state

    def renew(self, state: State, shard: Shard, W: LowRankMatrix, b: Array | None = None) -> State:
        """Return the same as ``stats(shard, W)``, in the memory of a state no longer needed."""
        raise NotImplementedError

    def shape(self, X: Matrix, y: Array | None) -> tuple[int, int]:
        """The shape (d, m) of W: (columns of X, columns of y) by default.

        Of a DataFrame, this and `check` see some rows at a time; the largest shape is taken.
        """
        if y is None:
            raise TypeError("task lacks the method 'shape', which it needs to go without y.")
        return int(X.shape[1]), 1 if y.ndim == 1 else int(y.shape[1])

    def check(self, X: Matrix, y: Array | None) -> tuple[Matrix, Array | None]:
        """Refuse bad data in one sentence; return what the shards hold."""
        return X, y

    # What the package asks beyond mathematics; a custom task need not change it.

    smoothness: float = 1.0  # largest curvature of a row's loss in its scores
    weighted: bool = False  # whether the first column of y is the weight of each row
    nonnegative: bool = False  # whether F ≥ 0

    @property
    def identity(self) -> object:
        """What distinguishes this F from another one, whatever the representation."""
        return self

    def examine(self, X: Matrix, y: Array | None) -> Examined:
        """Check rows and find the shape of W; on a cluster, some rows at a time."""
        shape = self.shape(X, y)
        return Examined(*self.check(X, y), (int(shape[0]), int(shape[1])))

    def plan(
        self, workload: Workload, asked: str, free_memory: float | None, intercept: bool
    ) -> tuple[Task[Any], Plan]:
        """The form that shards hold, and why it was chosen."""
        if not isinstance(asked, str) or asked != "auto":
            raise ValueError(f"representation must be auto for this task, got {describe(asked)}.")
        return self, Plan("own", "the task's own", {}, workload)

    def supports(self, method: str) -> bool:
        """Whether the task defines this method itself; None in its place takes it away."""
        kinds = type(self).__mro__
        own = [vars(kind) for kind in (self, *kinds[: kinds.index(Task)]) if method in vars(kind)]
        return bool(own) and own[0][method] is not None

    def precision(self, dtype: DType) -> float:
        """Relative rounding error of a shard's arithmetic on features of that type."""
        return 8.0 * float(np.finfo(np.float32 if dtype == np.float32 else np.float64).eps)

    def summarise(
        self, total: Total, shape: tuple[int, int], *, centred: bool, sparse: bool, local: bool
    ) -> Summary | None:
        """Sum what F depends on, where that is less than the rows; None by default.

        Rows are `centred` for an intercept. Shards stay where their own gradients are (`local`).
        """
        return None

    def summarise_folds(
        self, total: Total, shape: tuple[int, int], *, centred: bool, sparse: bool, cut: Any
    ) -> Any:
        """Sum what F depends on over each fold of the rows, for cross-validation in one pass."""
        raise NotImplementedError


def dense_gradient(state: Any) -> Array | None:
    """The state's own dense gradient, where it carries one."""
    return state.get("grad") if isinstance(state, dict) else getattr(state, "grad", None)


class Representation(Task[State]):
    """F(W) = Σ_i ℓ(x_iᵀW, y_i) with some choice of what a shard keeps in memory."""

    #: Whether a shard can be centred by itself, as an intercept for local gradients needs.
    centres_shards: ClassVar[bool] = True

    def __init__(self, loss: Loss, weighted: bool = False) -> None:
        self.loss_on_scores, self.weighted = loss, weighted
        self.quadratic, self.smoothness = loss.quadratic, loss.smoothness
        self.nonnegative = loss.nonnegative

    @property
    def identity(self) -> object:
        return self.loss_on_scores

    def supports(self, method: str) -> bool:
        searchable = method != "linesearch" or self.loss_on_scores.searchable
        return searchable and super().supports(method)

    def first_moments(self, shard: Shard) -> FloatArray:
        """[Σ x, Σ 1], each row times its weight: the mean to centre X at."""
        weights = self.row_weights(shard)
        return np.append(RowBlocks(shard.X).transpose_times(weights), weights.sum())

    def deviations(self, shard: Shard, centre: FloatArray) -> FloatArray:
        """Σ (x - centre)² for each feature, each row times its weight; X stays sparse."""
        weights, total = self.row_weights(shard), np.zeros(centre.size)
        for start in range(0, shard.n_rows, ROWS_IN_BLOCK):
            stop = min(start + ROWS_IN_BLOCK, shard.n_rows)
            rows = slice_rows(shard.X, start, stop)
            total += squared_deviations(rows, weights[start:stop], centre)
        return total

    def row_weights(self, shard: Shard) -> FloatArray:
        """The weight of every row, 1 where there are none."""
        weights: Array = shard.targets[:, 0] if self.weighted else np.ones(shard.n_rows)
        return weights.astype(np.float64)

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

    def second_moments(self, state: Any) -> FloatArray:
        """c Xᵀ diag(weights) X, the matrix that `curvature_product` multiplies by."""
        d, weights = state.X.shape[1], state.weights
        total = np.zeros((d, d))
        for block in state.X:
            x, w = block.X, weights[block.rows]
            weighted = (
                x if not w.size else x.multiply(w[:, None]) if sp.issparse(x) else x * w[:, None]
            )
            product = weighted.T @ x
            total += product.toarray() if sp.issparse(product) else product
            if block.centre is not None:  # Σ w(x - c)(x - c)ᵀ = Σ wxxᵀ - sum cᵀ - c sumᵀ + Σw ccᵀ
                sums = np.asarray(weighted.sum(axis=0, dtype=np.float64))
                weight = float(w.sum(dtype=np.float64)) if w.size else x.shape[0]
                moved = np.outer(sums - 0.5 * weight * block.centre, block.centre)
                total -= moved + moved.T
        return self.smoothness * total

    def squared_lengths(self, state: Any) -> FloatArray:
        """The diagonal of the `second_moments`."""
        weights, total = state.weights, np.zeros(state.X.shape[1])
        for block in state.X:
            centre = np.zeros(total.size) if block.centre is None else block.centre
            of_rows = weights[block.rows] if weights.size else np.ones(block.X.shape[0])
            total += squared_deviations(block.X, of_rows.astype(np.float64), centre)
        return self.smoothness * total

    def class_weights(self, shard: Shard, n_classes: int) -> FloatArray:
        """Σ weights of the rows of each class; zeros if y is not made of classes."""
        y, _ = self.targets_and_weights(shard)
        if y.ndim != 1 or y.dtype.kind not in "iu":
            return np.zeros(n_classes)
        return np.asarray(np.bincount(y, self.row_weights(shard), n_classes), np.float64)

    def add_columns(self, total: FloatArray, R: Array, y: Array, weights: Array) -> None:
        """Add [Σ weights, Rᵀ1, c] of some rows: the gradient in the intercept, and its curvature.

        In place: there may be as many columns of scores as rows, or more.
        """
        total[0] += weights.sum(dtype=np.float64) if weights.size else R.shape[0]
        self.loss_on_scores.add_columns(R, y, weights, *np.split(total[1:], 2))

    def scores(self, state: Any) -> Iterator[tuple[RowBlock, Array]]:
        """The scores XW of one block of rows after the other; the next may take their memory."""
        raise NotImplementedError

    def imbalance(self, state: Any, b: FloatArray) -> FloatArray:
        """What `Loss.correction` takes, at the scores plus b, in float64 whatever they are in."""
        loss = self.loss_on_scores
        total: FloatArray = np.zeros(loss.imbalance_size(b.size))
        for block, S in self.scores(state):
            total += loss.imbalance(S + b, *self._of_rows(state, block))
        return total

    def excess(
        self, state: Any, b: FloatArray, change: FloatArray, scale: FloatArray | None = None
    ) -> FloatArray:
        """[Σ D_i, ⟨S, Δ⟩, Σ ‖x_i‖‖Δ_i‖] of a change Δ of the residual; see docs/certificate.md."""
        total: FloatArray = np.zeros(3)
        for block, S in self.scores(state):
            costs, delta = self.loss_on_scores.excess(S + b, *self._of_rows(state, block), change)
            inner = inner_product(S.astype(np.float64, copy=False), delta)
            lengths = block.lengths(scale) @ np.linalg.norm(delta, axis=1)
            total += [costs.sum(), inner, lengths]
        return total

    def _of_rows(self, state: Any, block: RowBlock) -> tuple[Array, FloatArray]:
        """Their targets, and their weights in float64."""
        y, weights = state.y[block.rows], state.weights[block.rows]
        return y, weights.astype(np.float64) if weights.size else np.ones(len(y))


def join_weights(weights: Array, y: Array) -> FloatArray:
    """Weights as the first column of y, in float64: they stay together wherever rows go."""
    return np.column_stack([weights, y]).astype(np.float64, copy=False)


def own_targets(joined: Array) -> Array:
    """The targets that weights were joined with; one column is one number for each row."""
    return joined[:, 1] if joined.shape[1] == 2 else joined[:, 1:]


def squared_deviations(X: Matrix, weights: FloatArray, centre: FloatArray) -> FloatArray:
    """Σ weight·(x - centre)² of each column; of sparse rows, all entries not stored at once."""
    if not sp.issparse(X):
        total = np.zeros(centre.size)
        for start in range(0, X.shape[0], _ROWS_AT_ONCE):  # in cache
            rows = slice(start, start + _ROWS_AT_ONCE)
            away = X[rows] - centre
            total += weights[rows] @ np.multiply(away, away, out=away)
        return total
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    of_stored, away = np.repeat(weights, np.diff(X.indptr)), X.data - centre[X.indices]

    def sums(values: Array) -> FloatArray:
        return np.asarray(np.bincount(X.indices, values, centre.size), np.float64)

    # Where no entry is missing, their weight is 0, not a rounding error times the centre's square.
    full = sums(of_stored > 0.0) == np.count_nonzero(weights)
    missing = np.where(full, 0.0, np.maximum(weights.sum() - sums(of_stored), 0.0))
    return sums(of_stored * away**2) + missing * centre**2


def standard_deviations(total: Total, d: int) -> FloatArray:
    """The standard deviation of every feature, 1 for one that is constant; in two rounds.

    About the mean: features far from zero lose no digits.
    """
    sums = total("first_moments")
    weight = sums[-1]
    if not weight > 0.0:
        raise ValueError("sample_weight must not be zero for all rows.")
    mean = sums[:d] / weight
    variance = require_finite(total("deviations", mean), "a feature's variance") / weight
    deviation = np.sqrt(variance)
    return np.where(deviation > _CONSTANT * np.abs(mean), deviation, 1.0)
