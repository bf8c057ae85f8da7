"""ShardProgram: what engines run on a shard, for tasks that bring little and for empty shards."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import log_softmax, softmax

import dfwtrace as dt
from dfwtrace.data.shards import Folds, Shard
from dfwtrace.tasks.program import FoldProgram, ShardProgram
from dfwtrace.tasks.task import join_weights

SHAPE = (4, 3)
RADIUS = 2.0
ATOM = (-RADIUS, np.eye(4)[0], np.eye(3)[1])


def zero_factors() -> tuple[Any, ...]:
    W = dt.LowRankMatrix.zeros(SHAPE)
    return W.U, W.s, W.V


class Dense(dt.Task[Any]):
    """½‖XW - Y‖² in the paper's way: W is kept dense, and so is the gradient."""

    def stats(self, shard: Shard, W: dt.LowRankMatrix) -> dict[str, Any]:
        return self._at({"X": shard.X, "Y": shard.targets}, W.to_dense())

    def update(self, state: dict[str, Any], atom: dt.RankOne, gamma: float) -> dict[str, Any]:
        step = gamma * atom.scale * np.outer(atom.u, atom.v)
        return self._at(state, (1.0 - gamma) * state["W"] + step)

    def _at(self, state: dict[str, Any], W: Any) -> dict[str, Any]:
        X, Y = state["X"], state["Y"]
        return {"X": X, "Y": Y, "W": W, "grad": X.T @ (X @ W - Y)}


@dataclass
class Holder:
    data: dict[str, Any]
    grad: Any


class Attribute(Dense):
    """The same with the gradient as an attribute."""

    def stats(self, shard: Shard, W: dt.LowRankMatrix) -> Any:
        data = super().stats(shard, W)
        return Holder(data, data["grad"])

    def update(self, state: Any, atom: dt.RankOne, gamma: float) -> Any:
        data = super().update(state.data, atom, gamma)
        return Holder(data, data["grad"])


class ProductsOnly(Dense):
    """The same, known through products alone."""

    def stats(self, shard: Shard, W: dt.LowRankMatrix) -> Any:
        return {"hidden": super().stats(shard, W)}

    def update(self, state: Any, atom: dt.RankOne, gamma: float) -> Any:
        return {"hidden": super().update(state["hidden"], atom, gamma)}

    def matvec(self, state: Any, V: Any) -> Any:
        return state["hidden"]["grad"] @ V

    def rmatvec(self, state: Any, U: Any) -> Any:
        return state["hidden"]["grad"].T @ U


class WithLoss(Dense):
    def loss(self, state: dict[str, Any]) -> float:
        return 0.5 * float(np.square(state["X"] @ state["W"] - state["Y"]).sum())


class NeverCalled:
    """A task that no empty shard may reach."""

    def supports(self, method: str) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        def called(*args: Any) -> None:
            raise AssertionError(f"{name} was called")

        return called


@pytest.fixture
def shard(rng: np.random.Generator) -> Shard:
    return Shard(0, rng.standard_normal((9, 4)), rng.standard_normal((9, 3)))


@pytest.mark.parametrize("task", [Dense(), Attribute(), ProductsOnly()])
def test_products_follow_from_whatever_gradient_a_task_has(
    task: Any, shard: Shard, rng: np.random.Generator
) -> None:
    program = ShardProgram(task, SHAPE)
    held = program.stats(shard, *zero_factors())
    held = program.update(held, *ATOM, 0.25)
    W = 0.25 * ATOM[0] * np.outer(ATOM[1], ATOM[2])
    G = shard.X.T @ (shard.X @ W - shard.targets)
    V, U = rng.standard_normal((3, 2)), rng.standard_normal((4, 2))
    np.testing.assert_allclose(program.gradient(held), G, atol=1e-12)
    np.testing.assert_allclose(program.matvec(held, V), G @ V, atol=1e-12)
    np.testing.assert_allclose(program.matvec(held, V[:, 0]), G @ V[:, 0], atol=1e-12)
    np.testing.assert_allclose(program.rmatvec(held, U), G.T @ U, atol=1e-12)
    np.testing.assert_allclose(program.rmatvec(held, U[:, 0]), G.T @ U[:, 0], atol=1e-12)


def test_a_method_may_be_any_callable(shard: Shard) -> None:
    task = ProductsOnly()
    task.matvec = partial(ProductsOnly.matvec, task)  # type: ignore[method-assign]
    program = ShardProgram(task, SHAPE)
    held = program.stats(shard, *zero_factors())
    expected = ShardProgram(ProductsOnly(), SHAPE).matvec(held, np.ones(3))
    np.testing.assert_array_equal(program.matvec(held, np.ones(3)), expected)


def test_a_task_need_not_know_its_value(shard: Shard) -> None:
    silent, knowing = (ShardProgram(task, SHAPE) for task in (Dense(), WithLoss()))
    assert np.isnan(silent.report(silent.stats(shard, *zero_factors()))).all()
    value, inner = knowing.report(knowing.stats(shard, *zero_factors()))
    assert value == pytest.approx(0.5 * np.square(shard.targets).sum())
    assert np.isnan(inner)


def test_an_empty_shard_answers_zero_without_the_task() -> None:
    program = ShardProgram(NeverCalled(), SHAPE)
    built = program.stats(
        Shard(0, np.empty((0, 4)), None), np.ones((4, 2)), np.ones(2), np.ones((3, 2))
    )
    held = program.shift(program.update(built, *ATOM, 0.5, 0, 1), np.ones(3))
    for reply, shape in (
        (program.matvec(held, np.ones(3)), (4,)),
        (program.matvec(held, np.ones((3, 2))), (4, 2)),
        (program.rmatvec(held, np.ones(4)), (3,)),
        (program.rmatvec(held, np.ones((4, 2))), (3, 2)),
        (program.gradient(held), (4, 3)),
        (program.report(held), (2,)),
        (program.balance(held), (9,)),
        (program.linesearch(held, *ATOM, 0.5), (2,)),
        (program.curvature_product(held, np.ones((4, 2))), (4, 2)),
        (program.local_pair(held, 0), (7,)),
        (program.tangent(built), (2 + 2 * 7 + 1 + 2 * 3,)),
    ):
        assert reply.dtype == np.float64
        np.testing.assert_array_equal(reply, np.zeros(shape))


@pytest.mark.parametrize("task", [dt.LeastSquares(), dt.Multinomial(n_classes=3)])
def test_every_reply_is_one_float64_array(task: Any, rng: np.random.Generator) -> None:
    X = rng.standard_normal((9, 4)).astype(np.float32)
    y = rng.integers(0, 3, 9) if isinstance(task, dt.Multinomial) else rng.standard_normal((9, 3))
    for name in task.representations:
        program = ShardProgram(task.represent(name), SHAPE)
        held = program.stats(Shard(0, X, y), *zero_factors())
        for reply in (
            program.matvec(held, np.ones(3)),
            program.rmatvec(held, np.ones(4)),
            program.gradient(held),
            program.report(held),
            program.linesearch(held, *ATOM, 0.5),
            program.curvature_product(held, np.ones(4)),
            program.local_pair(held, 0),
        ):
            assert isinstance(reply, np.ndarray)
            assert reply.dtype == np.float64


def with_gaps(array: Any) -> Any:
    """The same numbers, not side by side."""
    return np.repeat(array, 2, axis=-1)[..., ::2]


class WithGaps(WithLoss):
    """Whose replies are parts of something larger."""

    def matvec(self, state: dict[str, Any], V: Any) -> Any:
        return with_gaps(state["grad"] @ V)

    def rmatvec(self, state: dict[str, Any], U: Any) -> Any:
        return with_gaps(state["grad"].T @ U)

    def gradient(self, state: dict[str, Any]) -> Any:
        return with_gaps(state["grad"])

    def linesearch(self, state: dict[str, Any], atom: dt.RankOne, gamma: float) -> Any:
        return with_gaps(np.array([1.0, 2.0]))

    def curvature_product(self, state: dict[str, Any], U: Any) -> Any:
        return with_gaps(U)


def test_replies_have_no_gaps_whatever_the_task_gives(shard: Shard) -> None:
    """As a wire would carry them: BLAS may round differently for another layout."""
    program, plain = (ShardProgram(task, SHAPE) for task in (WithGaps(), Dense()))
    held, same = (one.stats(shard, *zero_factors()) for one in (program, plain))
    V, U = np.ones((3, 2)), np.ones((4, 2))
    for reply, expected in (
        (program.matvec(held, V), plain.matvec(same, V)),
        (program.matvec(held, V[:, 0]), plain.matvec(same, V[:, 0])),
        (program.rmatvec(held, U), plain.rmatvec(same, U)),
        (program.rmatvec(held, U[:, 0]), plain.rmatvec(same, U[:, 0])),
        (program.gradient(held), plain.gradient(same)),
        (program.linesearch(held, *ATOM, 0.5), [1.0, 2.0]),
        (program.curvature_product(held, U), U),
    ):
        assert reply.flags.forc
        np.testing.assert_allclose(reply, expected, atol=1e-12)


def test_a_reply_that_lies_by_column_stays_so(shard: Shard) -> None:
    class ByColumn(Dense):
        def gradient(self, state: dict[str, Any]) -> Any:
            return np.asfortranarray(state["grad"])

    program = ShardProgram(ByColumn(), SHAPE)
    assert program.gradient(program.stats(shard, *zero_factors())).flags.f_contiguous


@pytest.mark.parametrize("representation", ["gram", "implicit", "dense", "factored"])
def test_the_local_pair_is_the_top_pair_of_the_shards_own_gradient(
    representation: str, shard: Shard
) -> None:
    program = ShardProgram(dt.LeastSquares().represent(representation), SHAPE)
    held = program.stats(shard, *zero_factors())
    u, v = np.split(program.local_pair(held, 0), [4])
    U, s, Vt = np.linalg.svd(-shard.X.T @ shard.targets)
    assert u @ program.gradient(held) @ v == pytest.approx(s[0], rel=1e-9)
    np.testing.assert_allclose(np.outer(u, v), np.outer(U[:, 0], Vt[0]), atol=1e-6)


def test_the_local_pair_of_a_zero_gradient_is_zero() -> None:
    program = ShardProgram(dt.LeastSquares().represent("implicit"), SHAPE)
    held = program.stats(Shard(0, np.ones((5, 4)), np.zeros((5, 3))), *zero_factors())
    np.testing.assert_array_equal(program.local_pair(held, 0), np.zeros(7))


@pytest.mark.parametrize("inner", [False, True])
def test_the_tangent_of_a_custom_task_follows_from_its_products(
    inner: bool, shard: Shard, rng: np.random.Generator
) -> None:
    class WithInner(WithLoss):
        def inner(self, state: dict[str, Any]) -> float:
            return float(np.vdot(state["W"], state["grad"]))

    program = ShardProgram(WithInner() if inner else WithLoss(), SHAPE)
    W = dt.LowRankMatrix(rng.standard_normal((4, 2)), [0.5, 2.0], rng.standard_normal((3, 2)))
    R = shard.X @ W.to_dense() - shard.targets
    G = shard.X.T @ R
    expected = [[0.5 * np.square(R).sum(), np.vdot(W.to_dense(), G)], (G @ W.V).ravel()]
    held = program.stats(shard, W.U, W.s, W.V)
    expected += [(G.T @ W.U).ravel(), np.zeros(7)]  # nothing is known of columns of scores
    np.testing.assert_allclose(program.tangent(held), np.concatenate(expected), atol=1e-11)


@pytest.mark.parametrize("form", ["implicit", "dense", "factored"])
@pytest.mark.parametrize("layout", [np.asarray, sp.csr_array])
def test_the_tangent_of_a_shard_of_several_blocks(
    form: str, layout: Any, rng: np.random.Generator
) -> None:
    X, y = rng.standard_normal((1300, 4)), rng.integers(0, 3, 1300)
    W = dt.LowRankMatrix(rng.standard_normal((4, 2)), [0.5, 2.0], rng.standard_normal((3, 2)))
    program = ShardProgram(dt.Multinomial(n_classes=3).represent(form), SHAPE)
    held = program.stats(Shard(0, layout(X), y), W.U, W.s, W.V)
    scores = X @ W.to_dense()
    P = softmax(scores, axis=1)
    R = P - np.eye(3)[y]
    G = X.T @ R
    value = -log_softmax(scores, axis=1)[np.arange(1300), y].sum()
    expected = [[value, np.vdot(W.to_dense(), G)], (G @ W.V).ravel(), (G.T @ W.U).ravel()]
    expected += [[1300.0], R.sum(axis=0), (P * (1.0 - P)).sum(axis=0)]
    np.testing.assert_allclose(program.tangent(held), np.concatenate(expected), atol=1e-9)


def test_a_tangent_belongs_to_a_state_that_was_built_from_factors(shard: Shard) -> None:
    empty = Shard(1, shard.X[:0], shard.targets[:0])
    for part in (shard, empty):
        program = ShardProgram(WithLoss(), SHAPE)
        held = program.update(program.stats(part, *zero_factors()), *ATOM, 0.5)
        with pytest.raises(TypeError, match="must be built from W"):
            program.tangent(held)


def test_a_wrong_tangent_is_named(shard: Shard) -> None:
    class WrongTangent(WithLoss):
        def tangent(self, state: dict[str, Any]) -> Any:
            return np.zeros(3)

    program = ShardProgram(WrongTangent(), SHAPE)
    with pytest.raises(
        TypeError, match=r"\w+\.tangent must give .* shape \(2,\), got shape \(3,\)"
    ):
        program.tangent(program.stats(shard, *zero_factors()))


def test_a_state_is_renewed_where_the_task_can_and_there_is_one(shard: Shard) -> None:
    calls: list[str] = []

    class Renewing(WithLoss):
        def stats(self, shard: Shard, W: dt.LowRankMatrix) -> dict[str, Any]:
            calls.append("stats")
            return super().stats(shard, W)

        def renew(
            self, state: dict[str, Any], shard: Shard, W: dt.LowRankMatrix
        ) -> dict[str, Any] | None:
            calls.append("renew")
            return super().stats(shard, W) if W.rank == 0 else None

    program = ShardProgram(Renewing(), SHAPE)
    assert program.reuses_memory
    assert not ShardProgram(WithLoss(), SHAPE).reuses_memory
    held = program.stats(shard, *zero_factors(), old=None)
    again = program.stats(shard, *zero_factors(), old=held)
    assert calls == ["stats", "renew"]
    np.testing.assert_array_equal(program.tangent(again), program.tangent(held))
    with pytest.raises(TypeError, match=r"\w+\.renew must return the state, got None\."):
        program.stats(shard, np.ones((4, 1)), np.ones(1), np.ones((3, 1)), old=again)


# An intercept and weights


FORMS = [
    (task, form)
    for task in (dt.LeastSquares(), dt.Multinomial(n_classes=3))
    for form in task.representations
    if form != "gram"
]


@pytest.mark.parametrize(("task", "form"), FORMS)
@pytest.mark.parametrize("weighted", [False, True])
def test_shifting_equals_building_at_the_intercept(
    task: Any, form: str, weighted: bool, rng: np.random.Generator
) -> None:
    X, b, centre = rng.standard_normal((9, 4)), rng.standard_normal(3), rng.standard_normal(4)
    y = rng.integers(0, 3, 9) if isinstance(task, dt.Multinomial) else rng.standard_normal((9, 3))
    weights = rng.uniform(0, 2, 9) if weighted else np.ones(9)
    shard = Shard(0, X, join_weights(weights, y) if weighted else y)
    task = task.with_weights() if weighted else task
    W = dt.LowRankMatrix(rng.standard_normal((4, 2)), [0.5, 2.0], rng.standard_normal((3, 2)))
    program = ShardProgram(task.represent(form), SHAPE)
    built = program.stats(shard, W.U, W.s, W.V, b, centre)
    first = program.stats(shard, W.U, W.s, W.V, np.zeros(3), centre)
    moved = program.shift(first, b)
    S = (X - centre) @ W.to_dense()
    if isinstance(task, dt.Multinomial):
        P = softmax(S + b, axis=1)
        R = weights[:, None] * (P - np.eye(3)[y])
        value = -float(weights @ log_softmax(S + b, axis=1)[np.arange(9), y])
        curvature = weights @ (P * (1.0 - P))
    else:
        R = weights[:, None] * (S + b - y)
        value, curvature = 0.5 * float(np.vdot(S + b - y, R)), np.full(3, weights.sum())
    sums = R.sum(axis=0), curvature
    expected = np.concatenate([[value, np.vdot(S, R), weights.sum()], *sums])
    V, U = rng.standard_normal((3, 2)), rng.standard_normal((4, 2))
    for held in (built, moved):
        np.testing.assert_allclose(program.balance(held), expected, atol=1e-12)
        np.testing.assert_allclose(program.report(held), expected[:2], atol=1e-12)
        np.testing.assert_allclose(program.gradient(held), (X - centre).T @ R, atol=1e-12)
        np.testing.assert_allclose(program.matvec(held, V), (X - centre).T @ (R @ V), atol=1e-12)
        np.testing.assert_allclose(program.rmatvec(held, U), R.T @ ((X - centre) @ U), atol=1e-12)
        tangent = [expected[:2], ((X - centre).T @ R @ W.V).ravel(), (R.T @ (X - centre) @ W.U)]
        tangent = [tangent[0], tangent[1], tangent[2].ravel(), expected[2:]]
        np.testing.assert_allclose(program.tangent(held), np.concatenate(tangent), atol=1e-11)


def test_copies_of_the_rows_outside_a_fold_end_with_the_search() -> None:
    rng = np.random.default_rng(0)
    shard = Shard(0, rng.standard_normal((6, 4)), rng.standard_normal((6, 3)))
    program = FoldProgram(Dense(), SHAPE, Folds(2, 0, np.array([0.0, 1.0] * 3)))
    held = program.stats_without(shard, 1, np.zeros(1), *zero_factors())
    assert held.held_out is not None
    np.testing.assert_array_equal(held.held_out.X, shard.X[1::2])
    copied = weakref.ref(held.state["X"]), weakref.ref(held.held_out.X)
    held = program.stats(shard, *zero_factors())
    assert (held.n_rows, [each() for each in copied]) == (6, [None, None])
