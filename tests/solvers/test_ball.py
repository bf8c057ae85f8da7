"""The ball's coordinates x = (A, B, z): W, F and its gradient against dense computations."""

from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
import numpy.typing as npt
import pytest

from dfwtrace import LeastSquares, LocalEngine, LowRankMatrix, Multinomial
from dfwtrace.rows import ArrayRows
from dfwtrace.setup import Examiner
from dfwtrace.solvers import Problem
from dfwtrace.solvers.ball import evaluate, evaluate_at, trimmed
from dfwtrace.tasks import ScoresTask, ShardProgram

Array = npt.NDArray[np.float64]
CASES = [(task, form) for task in (LeastSquares(), Multinomial()) for form in task.representations]
IDS = [f"{task.name}-{form}" for task, form in CASES]
N, D, M, RADIUS = 25, 6, 4, 2.5

rng = np.random.default_rng(0)
X = rng.standard_normal((N, D))
TARGETS = {"least squares": rng.standard_normal((N, M)), "multinomial": np.arange(N) % M}


@pytest.fixture
def problem(request: pytest.FixtureRequest) -> Iterator[Problem]:
    task, form = request.param
    with ExitStack() as stack:
        yield problem_of(task, form, stack)


def problem_of(task: ScoresTask, form: str, stack: ExitStack) -> Problem:
    program = ShardProgram(task.represent(form), (D, M))
    rows = ArrayRows.examined(X, TARGETS[task.name], Examiner(task))
    workers = LocalEngine(3, 1).start(program, rows)
    stack.callback(workers.close)
    return Problem(workers, (D, M), RADIUS)


every_form = pytest.mark.parametrize("problem", CASES, ids=IDS, indirect=True)


def point(seed: int, rank: int) -> Array:
    return np.random.default_rng(seed).standard_normal(rank * (D + M) + 1)


def matrix(x: Array) -> Array:
    rank = (x.size - 1) // (D + M)
    A, B = x[: D * rank].reshape(D, rank), x[D * rank : -1].reshape(M, rank)
    W: Array = 2.0 * RADIUS * A @ B.T / (x @ x)
    return W


def inside(seed: int, rank: int, share: float) -> LowRankMatrix:
    draw = np.random.default_rng(seed)
    W = LowRankMatrix(
        draw.standard_normal((D, rank)), np.ones(rank), draw.standard_normal((M, rank))
    ).compress()
    return W * (share * RADIUS / W.trace_norm)


@every_form
@pytest.mark.parametrize("rank", [1, 3, 4])
def test_the_gradient_is_that_of_finite_differences(problem: Problem, rank: int) -> None:
    x, step = point(rank, rank), 1e-5
    differences = [
        (
            evaluate(problem, x + step * unit).tangent.objective
            - evaluate(problem, x - step * unit).tangent.objective
        )
        / (2.0 * step)
        for unit in np.eye(x.size)
    ]
    gradient = evaluate(problem, x).gradient
    np.testing.assert_allclose(gradient, differences, atol=1e-6 * np.abs(gradient).max())


@every_form
def test_a_point_stands_for_its_matrix(problem: Problem) -> None:
    x = point(1, 3)
    found = evaluate(problem, x)
    np.testing.assert_allclose(found.W.to_dense(), matrix(x), atol=1e-13)
    same = problem.begin(LowRankMatrix(matrix(x), np.ones(M), np.eye(M)))
    assert found.tangent.objective == pytest.approx(same.objective, rel=1e-12)
    assert found.tangent.inner == pytest.approx(same.inner, rel=1e-10)


@every_form
@pytest.mark.parametrize("share", [0.2, 0.999, 1.0])
@pytest.mark.parametrize("rank", [1, 2, 4])
def test_a_matrix_is_found_again_in_its_coordinates(
    problem: Problem, rank: int, share: float
) -> None:
    W = inside(2, rank, share)
    at = evaluate_at(problem, W)
    np.testing.assert_allclose(matrix(at.x), W.to_dense(), atol=1e-12)
    again = evaluate(problem, at.x)
    np.testing.assert_allclose(
        at.gradient, again.gradient, atol=1e-10 * np.abs(again.gradient).max()
    )
    assert at.tangent.objective == pytest.approx(again.tangent.objective, rel=1e-12)


@every_form
def test_zero_is_a_point_without_factors(problem: Problem) -> None:
    at = evaluate_at(problem, LowRankMatrix.zeros((D, M)))
    assert at.x == pytest.approx([np.sqrt(2.0 * RADIUS)])
    assert at.tangent.inner == 0.0
    assert not at.gradient.any()


def test_the_products_are_those_of_the_dense_gradient() -> None:
    with ExitStack() as stack:
        problem = problem_of(LeastSquares(), "implicit", stack)
        found = evaluate(problem, point(3, 2))
        W = found.W
        G = X.T @ (X @ W.to_dense() - TARGETS["least squares"])
        np.testing.assert_allclose(found.tangent.products, G @ W.V, atol=1e-10)
        np.testing.assert_allclose(found.tangent.transposed, G.T @ W.U, atol=1e-10)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_no_point_is_outside_the_ball_and_its_length_does_not_matter(scale: float) -> None:
    with ExitStack() as stack:
        problem = problem_of(Multinomial(), "implicit", stack)
        for seed in range(20):
            x = point(seed, 1 + seed % 4)
            x[-1] *= seed % 2  # also with z = 0
            found = evaluate(problem, scale * x)
            assert found.W.trace_norm <= RADIUS * (1.0 + 1e-12)
            np.testing.assert_allclose(found.W.to_dense(), matrix(x), rtol=1e-9, atol=1e-12)
            # F does not change along x.
            assert abs(found.gradient @ x) <= 1e-9 * float(
                np.linalg.norm(found.gradient) * np.linalg.norm(x)
            )


@pytest.mark.parametrize("rank", [1, 3])
def test_trimming_nothing_keeps_the_matrix_and_all_lengths(rank: int) -> None:
    x, other = point(5, rank), point(6, rank)
    change = trimmed(x, x, (D, M), 0.0)
    assert change(x).size == x.size
    np.testing.assert_allclose(matrix(change(x)), matrix(x), atol=1e-13)
    assert change(x) @ change(x) == pytest.approx(x @ x)
    assert change(x) @ change(other) == pytest.approx(x @ other)
    np.testing.assert_allclose(change(x + other), change(x) + change(other), atol=1e-13)


def test_columns_that_are_rotated_copies_are_trimmed_without_loss() -> None:
    """Two columns that differ by a factor are one column, once they are turned."""
    stacked = np.random.default_rng(7).standard_normal((D + M, 2))
    columns = np.column_stack([stacked, 3.0 * stacked[:, 0], np.zeros(D + M)])
    x = np.append(columns.ravel(), 0.7)
    change = trimmed(x, x, (D, M), 1e-10)
    assert (change(x).size - 1) // (D + M) == 2
    np.testing.assert_allclose(matrix(change(x)), matrix(x), atol=1e-12)
    assert change(x) @ change(x) == pytest.approx(x @ x)


def test_trimming_drops_no_more_than_its_mass() -> None:
    weights = np.array([1.0, 0.3, 1e-2, 1e-3])
    x = np.append((np.random.default_rng(8).standard_normal((D + M, 4)) * weights).ravel(), 0.2)
    for mass in (1e-9, 1e-5, 1e-3, 0.5):
        lost = 0.5 * (x @ x - np.sum(trimmed(x, x, (D, M), mass)(x) ** 2))
        assert -1e-12 <= lost <= mass
    sizes = [trimmed(x, x, (D, M), mass)(x).size for mass in (1e-9, 1e-4, 1e-2)]
    assert sizes[0] > sizes[1] > sizes[2]


def test_one_column_always_stays() -> None:
    x = point(9, 3)
    assert trimmed(x, x, (D, M), 1e9)(x).size == D + M + 1
    assert trimmed(point(9, 1), point(9, 1), (D, M), 1e9)(point(9, 1)).size == D + M + 1


def test_columns_that_want_to_grow_stay() -> None:
    """Where -gradient points along a column, F falls as it grows, however short it is."""
    weights = np.array([1.0, 0.5, 1e-3, 1e-3])
    columns = np.linalg.qr(np.random.default_rng(10).standard_normal((D + M, 4))).Q * weights
    x = np.append(columns.ravel(), 0.2)
    gradient = np.append((columns * [1.0, 1.0, 1.0, -1.0]).ravel(), 0.0)
    # Of the same length, they are any turn of each other, unless one is a little longer.
    x[3:-1:4] *= 1.1
    gradient[3:-1:4] *= 1.1
    kept = trimmed(x, gradient, (D, M), 1e-3)(x)
    assert (kept.size - 1) // (D + M) == 3
    lost = trimmed(x, x, (D, M), 1e-3)(x)
    assert (lost.size - 1) // (D + M) == 2
    # A column of rounding errors goes, whatever its slope.
    x[3:-1:4] *= 1e-8
    kept = trimmed(x, -x, (D, M), 1e-3)(x)
    assert (kept.size - 1) // (D + M) == 3
