"""What a task is: F on one shard, in plain NumPy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from dfwtrace._typing import Array, DType, FloatArray, Matrix
from dfwtrace.data.rows import Examined
from dfwtrace.data.shards import Shard
from dfwtrace.linalg.lowrank import LowRankMatrix, RankOne
from dfwtrace.tasks.planning import Plan, Workload
from dfwtrace.validation import describe

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


class Summary(NamedTuple):
    """What F depends on, summed over all shards."""

    shard: Any  # it takes the place of all shards; None if they stay where they are
    centre: Centre | None  # the means that features and targets were centred at
    # (W, radius) ↦ the size of the numbers whose differences make up the duality gap at W
    rounding: Callable[[LowRankMatrix, float], float]


class Objective(ABC):
    """What F is, before the form is chosen that shards hold it in."""

    log_factor: float = 1.0  # c in the K(t) = ⌊1 + c log t⌋ of the oracle "power-log"

    @abstractmethod
    def examine(self, X: Matrix, y: Array | None) -> Examined:
        """Check rows and find the shape of W; on a cluster, some rows at a time."""

    @abstractmethod
    def plan(
        self, workload: Workload, asked: str, free_memory: float | None, intercept: bool
    ) -> tuple[Task[Any], Plan]:
        """The form that shards hold, and why it was chosen."""


class Task(Objective, Generic[State]):
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

    Notes
    -----
    Of a DataFrame, `shape` and `check` see some rows at a time; the largest shape is taken.

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
    >>> X, Y, _ = dt.datasets.make_multitask(n=200, d=10, m=8, rank=2, seed=0)
    >>> result = dt.solve(Plain(), X, Y, radius=1.0, step="harmonic", epochs=30)
    >>> result.objective < 0.05 * result.objective_at_zero
    True
    """

    quadratic: bool = False

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
        """H U with ∇²F_j ⪯ I_m ⊗ H, for C_F and for the accelerated solver's metric."""
        raise NotImplementedError

    def tangent(self, state: State) -> Array | None:
        """[F_j, ⟨W, ∇F_j⟩, ∇F_j V, ∇F_jᵀ U] in one pass, for the W the state was built from.

        None if that takes no less than the single calls.
        """
        return None

    def expect(self, state: State, v: Array) -> State:
        """Announce that ``matvec(state, v)`` follows the next update: both may be one pass."""
        return state

    def renew(self, state: State, shard: Shard, W: LowRankMatrix, b: Array | None = None) -> State:
        """Return the same as ``stats(shard, W)``, in the memory of a state no longer needed."""
        raise NotImplementedError

    def shape(self, X: Matrix, y: Array | None) -> tuple[int, int]:
        """The shape (d, m) of W: (columns of X, columns of y) by default."""
        if y is None:
            raise TypeError("task lacks the method 'shape', which it needs to go without y.")
        return int(X.shape[1]), 1 if y.ndim == 1 else int(y.shape[1])

    def check(self, X: Matrix, y: Array | None) -> tuple[Matrix, Array | None]:
        """Refuse bad data in one sentence; return what the shards hold."""
        return X, y

    # What the package asks beyond mathematics; a custom task need not change it.

    smoothness: float = 1.0  # largest curvature of a row's loss in its scores
    weighted: bool = False  # whether the first column of y is the weight of each row

    @property
    def identity(self) -> object:
        """What distinguishes this F from another one, whatever the representation."""
        return self

    def examine(self, X: Matrix, y: Array | None) -> Examined:
        shape = self.shape(X, y)
        return Examined(*self.check(X, y), (int(shape[0]), int(shape[1])))

    def plan(
        self, workload: Workload, asked: str, free_memory: float | None, intercept: bool
    ) -> tuple[Task[Any], Plan]:
        if not isinstance(asked, str) or asked != "auto":
            raise ValueError(
                f"representation must be auto for a custom task, got {describe(asked)}."
            )
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

    def weight_of_rows(self, shard: Shard) -> float:
        """Sum of the weights of a shard's rows."""
        return float(shard.n_rows)


def as_task(task: Any) -> Objective:
    """The task itself; an object with the methods of a task gets the defaults of the others."""
    if isinstance(task, Objective) and not isinstance(task, Task):
        return task
    kind = type(task)
    own = {name for name in dir(task) if not isinstance(task, Task) or task.supports(name)}
    if isinstance(task, type) or not {"stats", "update"} <= own:
        raise TypeError(
            f"task must be an object such as LeastSquares(), or have the methods stats and update, "
            f"got {describe(task)}."
        )
    lacking = {"matvec", "rmatvec"} - own
    if len(lacking) == 1:
        raise TypeError(f"task lacks the method {lacking.pop()!r}: products need both sides.")
    if isinstance(task, Task):
        return task
    if any(vars(base).get("__slots__") for base in kind.__mro__):  # which would stay behind
        raise TypeError("task must be a subclass of dfwtrace.Task, since its class has __slots__.")
    try:
        mixed = type(kind.__name__, (kind, Task), {"__reduce__": lambda self: (as_task, (task,))})
        adopted: Task[Any] = object.__new__(mixed)
        adopted.__dict__ = vars(task)  # the same attributes, not a copy of them
    except TypeError as error:  # its class cannot be inherited from
        raise TypeError(f"task must be a subclass of dfwtrace.Task: {error}.") from error
    return adopted


def dense_gradient(state: Any) -> Array | None:
    """The state's own dense gradient, where it carries one."""
    return state.get("grad") if isinstance(state, dict) else getattr(state, "grad", None)
