"""The factors x = (A, B, z, b): W, F and its gradient against dense computations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.problems import FORMS, random_matrix
from tests.truth import value_and_gradients

from dfwtrace import LowRankMatrix
from dfwtrace.solvers.block_oracle import random_probes
from dfwtrace.solvers.factors import (
    Point,
    evaluate,
    factors_of,
    join,
    matrix_of,
    refactored,
    rejoined,
    scale_of,
    split,
    widened,
    with_slack,
)
from dfwtrace.solvers.problem import Problem

Array = npt.NDArray[np.float64]
N, D, M, RADIUS = 25, 6, 4, 2.5
SHAPE = D, M

rng = np.random.default_rng(0)
X = rng.standard_normal((N, D)) + 0.5
TARGETS: dict[str, Any] = {
    "least squares": rng.standard_normal((N, M)) + 1.0,
    "multinomial": np.arange(N) % M,
}


class Case:
    """A problem, and F by NumPy."""

    def __init__(self, problem: Problem, name: str, centred: bool) -> None:
        self.problem, self.name, self.centred = problem, name, centred
        # The gram form has no b: its targets are centred instead.
        self.width = 0 if problem.intercept is None else M

    def random(self, seed: int, rank: int) -> Array:
        return np.random.default_rng(seed).standard_normal(rank * (D + M) + 1 + self.width)

    def at(self, x: Array, probes: tuple[Array, Array] | None = None) -> Point:
        nothing = np.zeros((D, 0)), np.zeros((M, 0))
        return evaluate(self.problem, x, self.width, nothing if probes is None else probes)

    def truth(self, x: Array) -> tuple[float, Array, Array]:
        """F and its gradients in W and b."""
        features, y = X - self.centred * X.mean(axis=0), TARGETS[self.name]
        if self.centred and not self.width:
            y = y - y.mean(axis=0)
        b = x[x.size - self.width :] if self.width else 0.0
        return value_and_gradients(self.name, features, y, matrix(x, self.width), b)


def matrix(x: Array, width: int = 0) -> Array:
    inside = x[: x.size - width]
    rank = (inside.size - 1) // (D + M)
    A, B = inside[: D * rank].reshape(D, rank), inside[D * rank : -1].reshape(M, rank)
    W: Array = 2.0 * RADIUS * A @ B.T / (inside @ inside)
    return W


@pytest.fixture(params=[False, True], ids=["no intercept", "intercept"])
def intercept(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(params=FORMS, ids="-".join)
def case(
    request: pytest.FixtureRequest, intercept: bool, problem_of: Callable[..., Problem]
) -> Case:
    name, form = request.param
    options = {"radius": RADIUS, "representation": form, "intercept": intercept}
    return Case(problem_of(name, X, TARGETS[name], **options), name, intercept)


@pytest.mark.parametrize("rank", [1, 3, 4])
def test_the_gradient_is_that_of_finite_differences(case: Case, rank: int) -> None:
    x, step = case.random(rank, rank), 1e-5
    differences = [
        (case.at(x + step * unit).objective - case.at(x - step * unit).objective) / (2.0 * step)
        for unit in np.eye(x.size)
    ]
    gradient = case.at(x).gradient
    np.testing.assert_allclose(gradient, differences, atol=1e-6 * np.abs(gradient).max())


def test_a_point_has_the_value_and_the_products_of_its_matrix(case: Case) -> None:
    x, probes = case.random(1, 2), random_probes(SHAPE, 3, np.random.default_rng(3))
    point, (F, G, slope) = case.at(x, probes), case.truth(x)
    W, (A, B, _, _), (Q, P) = matrix(x, case.width), point.parts, probes
    np.testing.assert_allclose(point.W.to_dense(), W, atol=1e-13)
    assert point.objective == pytest.approx(F, rel=1e-12)
    assert point.inner == pytest.approx(float(np.vdot(W, G)), rel=1e-10)
    np.testing.assert_allclose(point.products, G @ B, atol=1e-10)
    np.testing.assert_allclose(point.transposed, G.T @ A, atol=1e-10)
    np.testing.assert_allclose(point.images[0], G @ P, atol=1e-10)
    np.testing.assert_allclose(point.images[1], G.T @ Q, atol=1e-10)
    np.testing.assert_allclose(point.columns.slope, slope[: case.width], atol=1e-10)


def test_probes_change_nothing_else(case: Case) -> None:
    x = case.random(2, 2)
    alone, beside = case.at(x), case.at(x, random_probes(SHAPE, 4, np.random.default_rng(0)))
    assert beside.objective == pytest.approx(alone.objective, rel=1e-13)
    np.testing.assert_allclose(beside.gradient, alone.gradient, atol=1e-11)
    assert beside.W.rank == alone.W.rank == 2


@pytest.mark.parametrize("share", [0.2, 1.0])
@pytest.mark.parametrize("rank", range(1, M + 1))
def test_every_matrix_in_the_ball_has_factors(case: Case, rank: int, share: float) -> None:
    """With as many columns as its rank, and the z that is left."""
    W, b = random_matrix(2, SHAPE, rank, share * RADIUS), np.full(case.width, 0.3)
    x = factors_of(W, RADIUS, b)
    A, _, z, own = split(x, SHAPE, case.width)
    assert A.shape == (D, rank)
    assert z[0] ** 2 == pytest.approx(2.0 * (1.0 - share) * RADIUS, abs=1e-12)
    np.testing.assert_array_equal(own, b)
    assert scale_of(x, RADIUS, case.width) == pytest.approx(1.0)
    np.testing.assert_allclose(case.at(x).W.to_dense(), W.to_dense(), atol=1e-13)


def test_zero_has_no_columns(case: Case) -> None:
    x = factors_of(LowRankMatrix.zeros(SHAPE), RADIUS, np.zeros(case.width))
    assert x[0] == pytest.approx(np.sqrt(2.0 * RADIUS))
    point, (F, G, _) = case.at(x, (np.eye(D)[:, :2], np.eye(M)[:, :2])), case.truth(x)
    assert point.W.rank == 0
    assert point.inner == 0.0
    assert point.objective == pytest.approx(F, rel=1e-12)
    assert not point.gradient[:1].any()
    np.testing.assert_allclose(point.images[0], G[:, :2], atol=1e-11)
    np.testing.assert_allclose(point.images[1], G[:2].T, atol=1e-11)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_no_point_is_outside_the_ball_and_its_length_does_not_matter(
    case: Case, scale: float
) -> None:
    for seed in range(8):
        x, end = case.random(seed, 1 + seed % 4), -case.width - 1
        x[end] *= seed % 2  # also with z = 0
        x[:end] *= scale
        x[end] *= scale
        point = case.at(x)
        assert point.W.trace_norm <= RADIUS * (1.0 + 1e-12)
        assert point.objective == pytest.approx(case.truth(x)[0], rel=1e-12)
        # F does not change along (A, B, z).
        inside, gradient = (v[: v.size - case.width] for v in (x, point.gradient))
        size = float(np.linalg.norm(gradient) * np.linalg.norm(inside))
        assert abs(gradient @ inside) <= 1e-9 * size


def test_a_point_is_the_same_again_after_a_checkpoint(case: Case) -> None:
    point = case.at(case.random(4, 2), random_probes(SHAPE, 2, np.random.default_rng(1)))
    memory = point.memory()
    assert "W" not in memory
    # A checkpoint has lists in the place of tuples.
    memory |= {name: list(memory[name]) for name in ("probes", "images", "columns")}
    again = Point.restored(memory, SHAPE, RADIUS)
    assert again.objective == point.objective
    np.testing.assert_array_equal(again.W.to_dense(), point.W.to_dense())
    for name in ("x", "gradient", "products", "transposed"):
        np.testing.assert_array_equal(getattr(again, name), getattr(point, name))
    for one, other in zip(
        (*again.probes, *again.images, *again.columns[1:]),
        (*point.probes, *point.images, *point.columns[1:]),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(again.parts.b, point.parts.b)
    assert again.q(RADIUS) == point.q(RADIUS)


# Vectors of the space of x


@pytest.mark.parametrize("width", [0, M])
def test_parts_make_the_vector_again(width: int) -> None:
    x = np.random.default_rng(0).standard_normal(3 * (D + M) + 1 + width)
    parts = split(x, SHAPE, width)
    assert [part.shape for part in parts] == [(D, 3), (M, 3), (1,), (width,)]
    np.testing.assert_array_equal(join(*parts), x)


@pytest.mark.parametrize("width", [0, M])
def test_a_rotation_of_the_columns_keeps_the_matrix_and_all_lengths(width: int) -> None:
    x, other = np.random.default_rng(1).standard_normal((2, 3 * (D + M) + 1 + width))
    turn = np.linalg.qr(np.random.default_rng(2).standard_normal((3, 3))).Q

    def change(vector: Array) -> Array:
        return rejoined(vector, turn, D + M, width)

    np.testing.assert_allclose(matrix(change(x), width), matrix(x, width), atol=1e-13)
    assert change(x) @ change(other) == pytest.approx(x @ other)
    np.testing.assert_array_equal(change(x)[-width - 1 :], x[-width - 1 :])


@pytest.mark.parametrize("width", [0, M])
def test_what_a_column_leaves_goes_to_the_slack(width: int) -> None:
    """So that the rest of W is what it was."""
    x = np.random.default_rng(3).standard_normal(3 * (D + M) + 1 + width)
    shorter = with_slack(rejoined(x, np.eye(3)[:, :2], D + M, width), x, width)
    assert shorter @ shorter == pytest.approx(x @ x)
    A, B, _, _ = split(x, SHAPE, width)
    kept = A[:, :2] @ B[:, :2].T / scale_of(x, RADIUS, width)
    np.testing.assert_allclose(matrix_of(shorter, SHAPE, RADIUS, width).to_dense(), kept)
    np.testing.assert_array_equal(with_slack(x.copy(), x, width), x)


@pytest.mark.parametrize("width", [0, M])
def test_more_columns_are_zero_in_a_vector(width: int) -> None:
    x = np.random.default_rng(4).standard_normal(2 * (D + M) + 1 + width)
    wider = widened(x, SHAPE, width, 3)
    parts, more = split(x, SHAPE, width), split(wider, SHAPE, width)
    assert wider @ wider == pytest.approx(x @ x)
    np.testing.assert_array_equal(more.A[:, :2], parts.A)
    np.testing.assert_array_equal(more.B[:, :2], parts.B)
    assert not more.A[:, 2:].any()
    assert not more.B[:, 2:].any()


@pytest.mark.parametrize("shape", [(D, M), (M, D)])
@pytest.mark.parametrize("rank", [2, M])
def test_a_product_has_as_few_columns_as_it_needs(shape: tuple[int, int], rank: int) -> None:
    """Near those that there were, and no longer than all of them."""
    rng = np.random.default_rng(5)
    near_A, near_B = (rng.standard_normal((size, rank)) for size in shape)
    U, s, Vt = np.linalg.svd(near_A @ near_B.T)
    turn = np.linalg.qr(rng.standard_normal((rank, rank))).Q
    near_A, near_B = (
        factor[:, :rank] * np.sqrt(s[:rank]) @ turn for factor in (U, Vt.T)
    )  # balanced
    small = 1e-6 * rng.standard_normal((2, rank))
    A = np.column_stack([near_A, near_A @ small[0]])
    B = np.column_stack([near_B, near_B @ small[1]])
    found_A, found_B, _, _ = refactored(A, B, near_A, near_B)
    assert found_A.shape == near_A.shape
    np.testing.assert_allclose(found_A @ found_B.T, A @ B.T, atol=1e-13)
    np.testing.assert_allclose(found_A, near_A, atol=1e-4)
    np.testing.assert_allclose(found_B, near_B, atol=1e-4)
    lengths = [np.sum(one**2) + np.sum(other**2) for one, other in ((found_A, found_B), (A, B))]
    assert lengths[0] <= lengths[1] + 1e-12
