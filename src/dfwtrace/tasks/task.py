"""What a task is: the methods that one worker runs on the rows it holds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, TypeVar

from dfwtrace._typing import Array
from dfwtrace.lowrank import LowRankMatrix, RankOne
from dfwtrace.shards import Shard

State = TypeVar("State")


class Task(Protocol[State]):
    """A learning problem F(W) = Σ_j F_j(W), seen from one shard j. Plain NumPy, picklable.

    Two methods are required, and the gradient: either `matvec` and `rmatvec`, or a state with a
    dense d×m array `grad` (an attribute or a key), which gets its products for free.

    The following are optional, and asked for by name before the first round if a run needs them:

    - ``loss(state) -> float``: F_j(W). Without it the history has no objective and `tol` no scale.
    - ``linesearch(state, atom, gamma) -> (slope, curvature)``: first and second derivative of
      γ ↦ F_j((1-γ) W + γ atom) at `gamma`. They are summed over the shards. With the attribute
      ``quadratic = True`` the search is one Newton step, which is then exact.
    - ``gradient(state) -> array (d, m)``: for the oracle that gathers it.
    - ``inner(state) -> float``: ⟨W, ∇F_j(W)⟩, if it is cheaper than from the factors of W.
    - ``curvature_product(state, U) -> array (d, k)``: H U with ∇²F_j ⪯ I_m ⊗ H, for the schedules
      that need the curvature constant C_F. The accelerated solver makes use of it if it is there.
    - ``expect(state, v) -> state``: the next update will be followed by ``matvec(state, v)``, so
      that both may happen in one pass over memory.
    - ``tangent(state) -> array``: [F_j(W), ⟨W, ∇F_j(W)⟩, ∇F_j V, ∇F_jᵀ U] in one pass, for the
      W = U diag(s) Vᵀ that the state was built from.
    - ``renew(state, shard, W) -> state``: the same as ``stats(shard, W)``, in the old one's memory.
    - ``shape(X, y) -> (d, m)``: the shape of W, if it is not (columns of X, columns of y).
    - ``check(X, y) -> (X, y)``: refuse bad data in one sentence, return what the shards shall hold.

    Of a Spark DataFrame, `shape` and `check` see some rows at a time; the largest shape is taken.
    """

    def stats(self, shard: Shard, W: LowRankMatrix) -> State:
        """The state at any W: start, warm start and recovery are this one call."""

    def update(self, state: State, atom: RankOne, gamma: float) -> State:
        """The state at (1-γ) W + γ atom. May change `state` in place and return it."""


def missing_methods(task: Any, needed: Iterable[str]) -> list[str]:
    """Names of the methods that a run needs and the task lacks or calls `unsupported`."""
    unsupported = getattr(task, "unsupported", ())
    return [
        name for name in needed if name in unsupported or not callable(getattr(task, name, None))
    ]


def dense_gradient(state: Any) -> Array | None:
    """The state's own dense gradient, where it carries one."""
    if isinstance(state, dict):
        gradient: Array | None = state.get("grad")
        return gradient
    return getattr(state, "grad", None)
