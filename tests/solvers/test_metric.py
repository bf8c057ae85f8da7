"""The metric and the second-order model against dense matrices and finite differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse as sp

import dfwtrace as dt
from dfwtrace.solvers import metric as metric_module
from dfwtrace.solvers.factors import Point, evaluate, factors_of, join, scale_of, split
from dfwtrace.solvers.metric import Metric, Model, metric_of, whitener
from dfwtrace.solvers.problem import Problem

Array = npt.NDArray[np.float64]
Build = Callable[..., Problem]
N, D, M, RADIUS = 40, 7, 4, 3.0
SHAPE = D, M

rng = np.random.default_rng(0)
# Features of different sizes, so that the eigenvectors of their second moments are used.
X = rng.standard_normal((N, D)) @ rng.standard_normal((D, D))
Y = X @ rng.standard_normal((D, M)) + rng.standard_normal((N, M))


class Case:
    """Least squares at a point on the sphere with λ > 0, and the model there."""

    def __init__(
        self, problem: Problem, rank: int, metric: Metric | None = None, x: Array | None = None
    ) -> None:
        problem.begin(dt.LowRankMatrix.zeros(problem.shape))
        self.problem = problem
        self.width = 0 if problem.intercept is None else problem.shape[1]
        found = metric_of(problem)
        assert found is not None
        self.metric = found if metric is None else metric
        d, m = problem.shape
        rng, nothing = np.random.default_rng(rank), (np.zeros((d, 0)), np.zeros((m, 0)))
        U, _, Vt = np.linalg.svd(problem.gradient.gather(), full_matrices=False)
        A = -U[:, :rank] + 0.1 * rng.standard_normal((d, rank))
        B = Vt[:rank].T + 0.1 * rng.standard_normal((m, rank))
        b = 0.1 * rng.standard_normal(self.width)
        self.x = join(A, B, np.array([0.7]), b) if x is None else x
        self.point = self.at(self.x, nothing)
        assert self.point.inner < 0.0
        self.model = Model(self.point, self.metric, RADIUS, 1.0, 0.0)

    def at(self, x: Array, probes: Any) -> Point:
        return evaluate(self.problem, x, self.width, probes)

    def inside(self, x: Array) -> Array:
        """x with zeros in the place of b."""
        return np.concatenate([x[: x.size - self.width], np.zeros(self.width)])

    def tangential(self, vector: Array) -> Array:
        radial = self.inside(self.x)
        result: Array = vector - radial * (radial @ vector) / (radial @ radial)
        return result

    def turned(self, vector: Array, turn: Callable[[Array], Array]) -> Array:
        A, B, z, b = split(vector, self.problem.shape, self.width)
        return join(turn(A), B, z, b)

    def times(self, vector: Array) -> Array:
        """The model's Hessian times a vector, in our coordinates."""
        image = self.model._times(self.turned(vector, self.metric.rotated))
        return self.turned(image, self.metric.back)

    def curved(self, vector: Array) -> Array:
        """F's Hessian times a vector, by differences of gradients."""
        nothing, h = (self.point.probes[0], self.point.probes[1]), 1e-5
        up, down = (self.at(self.x + t * vector, nothing).gradient for t in (h, -h))
        result: Array = (up - down) / (2.0 * h)
        return result


def check_hessian(case: Case, directions: int = 6) -> None:
    rng = np.random.default_rng(5)
    for _ in range(directions):
        vector = case.tangential(rng.standard_normal(case.x.size))
        model, true = (case.tangential(f(vector)) for f in (case.times, case.curved))
        np.testing.assert_allclose(model, true, atol=1e-5 * np.abs(true).max())


@pytest.mark.parametrize("form", dt.LeastSquares.representations)
@pytest.mark.parametrize("intercept", [False, True])
def test_the_model_of_least_squares_is_exact(problem_of: Build, form: str, intercept: bool) -> None:
    """Where W has all columns, G has no part outside of their span."""
    options: Any = {"radius": RADIUS, "representation": form, "intercept": intercept}
    case = Case(problem_of("least squares", X, Y, **options), M)
    assert case.metric.exact
    check_hessian(case)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_the_model_is_exact_for_few_columns_that_span_the_gradient(
    problem_of: Build, rank: int
) -> None:
    x = np.random.default_rng(1).standard_normal(rank * (D + M) + 1)
    A, B, _, _ = split(x, SHAPE, 0)
    W = A @ B.T / scale_of(x, RADIUS, 0)
    targets = X @ (W + np.linalg.solve(X.T @ X, A @ B.T))  # so that G = -ABᵀ
    case = Case(problem_of("least squares", X, targets, radius=RADIUS), rank, x=x)
    np.testing.assert_allclose(case.problem.gradient.gather(), -A @ B.T, atol=1e-10)
    check_hessian(case)


def test_a_metric_with_the_matrix_itself_is_exact_too(problem_of: Build) -> None:
    H = X.T @ X
    problem = problem_of("least squares", X, Y, radius=RADIUS)
    check_hessian(Case(problem, M, Metric(np.diag(H).copy(), matrix=H)))


def test_what_the_gradient_has_outside_of_the_span_is_missed(problem_of: Build) -> None:
    """So that the tests above have something to find."""
    with pytest.raises(AssertionError):
        check_hessian(Case(problem_of("least squares", X, Y, radius=RADIUS), 2))


def dense_blocks(case: Case, scale: float = 1.0) -> Array:
    """H ⊗ BᵀCB on A, C ⊗ AᵀHA on B, λ on all of them, and F's curvature in b."""
    metric, point = case.metric, case.point
    d, m = case.problem.shape
    A, B, _, _ = point.parts
    basis = np.eye(d) if metric.basis is None else metric.basis
    H = scale * basis @ np.diag(metric.values) @ basis.T
    whole = H if metric.matrix is None else scale * metric.matrix
    C, q = np.diag(point.columns.relative), scale_of(case.x, RADIUS, case.width)
    level, rank = -point.inner / RADIUS / q, A.shape[1]
    of_A = np.kron(H, B.T @ C @ B) / q**2 + level * np.eye(d * rank)
    of_B = np.kron(C, A.T @ whole @ A) / q**2 + level * np.eye(m * rank)
    dense = np.zeros((case.x.size, case.x.size))
    ends = np.cumsum([0, d * rank, m * rank, 1, case.width])
    blocks: tuple[Any, ...] = (
        of_A,
        of_B,
        [[level]],
        np.diag(point.columns.curvature[: case.width]),
    )
    for start, stop, block in zip(ends, ends[1:], blocks, strict=False):
        dense[start:stop, start:stop] = block
    return dense


@pytest.mark.parametrize("rank", [1, 2, M])
@pytest.mark.parametrize("name", ["eigenvectors", "diagonal", "matrix", "intercept"])
def test_dividing_is_the_inverse_of_the_diagonal_blocks(
    problem_of: Build, name: str, rank: int
) -> None:
    H = X.T @ X
    metric = {
        "diagonal": Metric(np.diag(H).copy()),
        "matrix": Metric(np.diag(H).copy(), matrix=H),
    }.get(name)
    problem = problem_of("least squares", X, Y, radius=RADIUS, intercept=name == "intercept")
    case = Case(problem, rank, metric)
    inverse = np.column_stack([case.model.divide(unit) for unit in np.eye(case.x.size)])
    np.testing.assert_allclose(inverse @ dense_blocks(case), np.eye(case.x.size), atol=1e-8)
    assert np.linalg.eigvalsh(0.5 * (inverse + inverse.T))[0] > 0.0


def test_the_blocks_grow_with_the_scale(problem_of: Build) -> None:
    case = Case(problem_of("least squares", X, Y, radius=RADIUS), 2)
    model = Model(case.point, case.metric, RADIUS, 3.0, 0.0)
    g = rng.standard_normal(case.x.size)
    expected = np.linalg.solve(dense_blocks(case, 3.0), g)
    np.testing.assert_allclose(model.divide(g), expected, rtol=1e-8)


@pytest.mark.parametrize("inverse", ["divide", "newton"])
def test_other_factors_of_the_same_matrix_give_the_same_step(
    problem_of: Build, inverse: str
) -> None:
    """A rotation of the columns of A and B changes neither W nor where a step leads."""
    case, turn = Case(problem_of("least squares", X, Y, radius=RADIUS), 3), rng
    T = np.linalg.qr(turn.standard_normal((3, 3))).Q

    def rotated(vector: Array) -> Array:
        A, B, z, b = split(vector, SHAPE, 0)
        return join(A @ T, B @ T, z, b)

    other = case.at(rotated(case.x), case.point.probes)
    model, step = Model(other, case.metric, RADIUS, 1.0, 0.0), case.point.gradient
    expected = rotated(getattr(case.model, inverse)(step))
    found = getattr(model, inverse)(other.gradient)
    np.testing.assert_allclose(found, expected, atol=1e-8 * np.abs(expected).max())


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("rank", [1, 2, 3, M])
def test_newton_falls_along_the_sphere(problem_of: Build, rank: int, intercept: bool) -> None:
    """Wherever it is, and however the model curves there."""
    case = Case(problem_of("least squares", X, Y, radius=RADIUS, intercept=intercept), rank)
    step = case.model.newton(case.point.gradient)
    assert step @ case.point.gradient > 0.0
    assert abs(case.inside(case.x) @ step) <= 1e-9 * np.linalg.norm(case.x) * np.linalg.norm(step)


@pytest.mark.parametrize("radius_share", [0.1, 0.4])
@pytest.mark.parametrize("intercept", [False, True])
def test_newton_solves_to_its_residual(
    problem_of: Build, intercept: bool, radius_share: float
) -> None:
    """A tenth of what it begins with, in the norm of the preconditioner, near the optimum."""
    radius = radius_share * RADIUS
    best = dt.solve(
        dt.LeastSquares(), X, Y, radius=radius, tol=1e-8, fit_intercept=intercept, verbose=False
    )
    problem = problem_of("least squares", X, Y, radius=radius, intercept=intercept)
    b = np.full(0 if problem.intercept is None else M, 0.1)
    x = factors_of(best.W, radius, b)
    x += 1e-3 * np.linalg.norm(x) * np.random.default_rng(0).standard_normal(x.size)
    case = Case(problem, best.W.rank, x=x)
    case.model = Model(case.point, case.metric, radius, 1.0, 0.0)
    g = case.tangential(case.point.gradient)
    left = case.tangential(g - case.times(case.model.newton(g)))
    sizes = [v @ case.tangential(case.model.divide(v)) for v in (left, g)]
    assert sizes[0] <= 0.1001**2 * sizes[1]


def test_a_newton_step_of_least_squares_converges_faster_than_linearly(problem_of: Build) -> None:
    """In a ball that W does not fill, to the solution, where it is all but exact."""
    problem = problem_of("least squares", X, Y, radius=200.0)
    problem.begin(dt.LowRankMatrix.zeros(SHAPE))
    metric, nothing = metric_of(problem), (np.zeros((D, 0)), np.zeros((M, 0)))
    assert metric is not None
    best = np.linalg.lstsq(X, Y)[0]
    U, s, Vt = np.linalg.svd(best * 1.02, full_matrices=False)
    slack = np.array([np.sqrt(2.0 * (200.0 - s.sum()))])
    x = join(U * np.sqrt(s), Vt.T * np.sqrt(s), slack, np.zeros(0))
    sizes = []
    for _ in range(6):
        point = evaluate(problem, x, 0, nothing)
        sizes.append(float(np.linalg.norm(point.W.to_dense() - best)))
        x = x - Model(point, metric, 200.0, 1.0, 0.0).newton(point.gradient)
    assert sizes[-1] <= 1e-4 * sizes[0]


# Which metric


def problem_with(problem_of: Build, features: Any, name: str, form: str = "implicit") -> Problem:
    n = features.shape[0]
    y: Any = np.ones((n, M)) if name == "least squares" else np.arange(n) % M
    problem = problem_of(name, features, y, representation=form)
    problem.restart(dt.LowRankMatrix.zeros(problem.shape))
    return problem


CURVED = [
    ("least squares", "gram", 1.0),
    ("least squares", "implicit", 1.0),
    ("multinomial", "implicit", 0.5),
    ("multinomial", "factored", 0.5),
]


@pytest.mark.parametrize(("name", "form", "curvature"), CURVED)
def test_uneven_features_have_eigenvectors(
    problem_of: Build, name: str, form: str, curvature: float
) -> None:
    metric = metric_of(problem_with(problem_of, X, name, form))
    assert metric is not None
    assert metric.basis is not None
    assert metric.exact
    H = curvature * X.T @ X
    found = metric.basis @ np.diag(metric.values) @ metric.basis.T
    np.testing.assert_allclose(found, H, atol=1e-9 * np.abs(H).max())
    np.testing.assert_allclose(metric.along(np.eye(D)), np.diag(H), rtol=1e-8)
    A = np.random.default_rng(0).standard_normal((D, 2))
    product = metric.back(metric.times(metric.rotated(A)))
    np.testing.assert_allclose(product, H @ A, atol=1e-9 * np.abs(H @ A).max())


@pytest.mark.parametrize(("name", "form", "curvature"), CURVED)
def test_features_that_differ_in_size_alone_have_a_diagonal(
    problem_of: Build, name: str, form: str, curvature: float
) -> None:
    features = np.random.default_rng(1).standard_normal((2000, 5)) * np.logspace(0, 4, 5)
    metric = metric_of(problem_with(problem_of, features, name, form))
    assert metric is not None
    H = curvature * features.T @ features
    if name == "least squares":  # Newton's steps are exact with all of H
        assert metric.basis is not None
        product = metric.back(metric.times(metric.rotated(np.eye(5))))
        np.testing.assert_allclose(product, H, rtol=1e-8, atol=1e-8 * H.max())
    else:
        assert metric.basis is None
        np.testing.assert_allclose(metric.values, np.diag(H), rtol=1e-9)


def test_a_great_many_features_have_a_diagonal(
    problem_of: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metric_module, "_WIDE", 1099)
    features = sp.random_array((60, 1100), density=0.05, format="csr", rng=rng)
    metric = metric_of(problem_with(problem_of, sp.csr_array(features), "multinomial"))
    assert metric is not None
    assert metric.basis is None
    expected = 0.5 * np.asarray(features.multiply(features).sum(axis=0)).ravel()
    np.testing.assert_allclose(metric.values, expected)


def test_no_features_have_no_curvature(problem_of: Build) -> None:
    metric = metric_of(problem_with(problem_of, np.zeros((20, D)), "multinomial"))
    assert metric is not None
    assert not metric.values.any()


class Uncurved(dt.Task[Any]):
    """Zero everywhere, and no word of its curvature."""

    def stats(self, shard: dt.Shard, W: dt.LowRankMatrix) -> Any:
        return {"grad": np.zeros(W.shape)}

    def update(self, state: Any, atom: dt.RankOne, gamma: float) -> Any:
        return state


def test_a_task_may_say_nothing_of_its_curvature(problem_of: Build) -> None:
    assert metric_of(problem_of(Uncurved(), np.ones((20, D)), np.ones((20, M)))) is None


def test_whitened_columns_are_orthonormal_and_span_the_same() -> None:
    A = rng.standard_normal((9, 3))
    A = np.column_stack([A, A @ [1.0, 2.0, 3.0], np.zeros(9)]) * [1.0, 1e-3, 1.0, 1.0, 1.0]
    basis = A @ whitener(A)
    assert basis.shape == (9, 3)
    np.testing.assert_allclose(basis.T @ basis, np.eye(3), atol=1e-8)
    np.testing.assert_allclose(basis @ (basis.T @ A), A, atol=1e-8)
    assert whitener(np.zeros((9, 2))).shape == (2, 0)


def test_features_of_different_size_take_few_epochs() -> None:
    """One feature that is large in all rows, as spaces are among the characters of a text."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 20))
    X[:, 0] = 40.0
    y = (X[:, 1:] @ rng.standard_normal((19, 6))).argmax(axis=1)
    result = dt.solve(dt.Multinomial(6), X, y, radius=20.0, solver="accelerated", tol=1e-6)
    assert result.status == "optimal"
    assert len(result.history) <= 120, len(result.history)


# Features that are curved alike


@pytest.mark.parametrize(("spread", "even"), [(1.0, True), (1e3, False)])
def test_only_features_of_one_size_are_even(problem_of: Build, spread: float, even: bool) -> None:
    features = np.random.default_rng(1).standard_normal((400, D)) * np.geomspace(1.0, spread, D)
    for form, gathered in (("gram", True), ("implicit", False)):
        metric = metric_of(problem_with(problem_of, features, "least squares", form))
        assert metric is not None
        assert metric.even == (even and gathered)  # elsewhere a dense gradient costs a pass


def test_the_whole_of_an_even_metric_is_decomposed(problem_of: Build) -> None:
    features = np.random.default_rng(1).standard_normal((400, D))
    found = metric_of(problem_with(problem_of, features, "least squares", "gram"))
    assert found is not None
    assert found.basis is None
    metric = found.whole()
    assert metric.basis is not None
    assert not metric.even  # there are no more projections
    H = metric.basis @ np.diag(metric.values) @ metric.basis.T
    np.testing.assert_allclose(H, features.T @ features, atol=1e-9 * 400)


def test_even_features_that_hide_a_flat_direction_are_solved() -> None:
    """Their curvatures deviate little from the mean, but for one that is next to nothing."""
    rng = np.random.default_rng(4)
    X = rng.standard_normal((300, 12))
    X[:, -1] = X[:, 0] + 1e-4 * rng.standard_normal(300)
    Y = X @ (rng.standard_normal((12, 2)) @ rng.standard_normal((2, 5)))
    Y += 1e-2 * rng.standard_normal(Y.shape)
    best = np.linalg.lstsq(X, Y)[0]
    F = 0.5 * float(np.sum((X @ best - Y) ** 2))
    result = dt.solve(dt.LeastSquares(), X, Y, radius=1.1 * np.linalg.norm(best, "nuc"), tol=1e-9)
    assert result.status == "optimal"
    assert result.objective <= F + 2e-9 * result.objective_at_zero


# More features than are decomposed


def many_features(d: int = 200) -> Any:
    """A few directions with most of the variance, and a diagonal beside them."""
    draw = np.random.default_rng(6)
    V = np.linalg.qr(draw.standard_normal((d, 3)))[0]
    spread = 30.0 * draw.standard_normal((500, 3)) @ V.T
    return spread + draw.standard_normal((500, d)) * np.geomspace(0.1, 2.0, d)


@pytest.fixture
def some_directions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metric_module, "_WHOLE", 100)
    monkeypatch.setattr(metric_module, "_DIRECTIONS", 3)


@pytest.mark.usefixtures("some_directions")
def test_the_leading_directions_of_many_features_are_known(problem_of: Build) -> None:
    features = many_features()
    metric = metric_of(problem_with(problem_of, features, "multinomial"))
    assert metric is not None
    assert metric.basis is not None
    assert metric.basis.shape == (200, 3)
    assert not metric.exact
    H = 0.5 * features.T @ features
    np.testing.assert_allclose(metric.values[:3], np.linalg.eigvalsh(H)[-3:], rtol=1e-6)
    # What is known adds up to H's diagonal, about, and is exact along the leading directions.
    np.testing.assert_allclose(metric.along(np.eye(200)), np.diag(H), rtol=0.2)
    np.testing.assert_allclose(metric.along(metric.basis), metric.values[:3], rtol=1e-9)


@pytest.mark.usefixtures("some_directions")
def test_coordinates_of_some_directions_keep_lengths(problem_of: Build) -> None:
    metric = metric_of(problem_with(problem_of, many_features(), "multinomial"))
    assert metric is not None
    A = np.random.default_rng(7).standard_normal((200, 4))
    rotated = metric.rotated(A)
    assert rotated.shape == (203, 4)
    np.testing.assert_allclose(rotated.T @ rotated, A.T @ A, rtol=1e-10)
    np.testing.assert_allclose(metric.back(rotated), A, atol=1e-12)
    product = metric.back(metric.times(rotated))
    np.testing.assert_allclose(np.sum(A * product, axis=0), metric.along(A), rtol=1e-10)


@pytest.mark.usefixtures("some_directions")
def test_leading_directions_save_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    features = many_features()
    scores = features @ np.random.default_rng(8).standard_normal((200, 6)) / 40.0
    y = (scores + np.random.default_rng(9).gumbel(size=scores.shape)).argmax(axis=1)
    options: Any = {"radius": 5.0, "representation": "implicit", "tol": 1e-5}
    some = dt.solve(dt.Multinomial(6), features, y, **options)
    monkeypatch.setattr(metric_module, "_WIDE", 100)  # the diagonal alone
    none = dt.solve(dt.Multinomial(6), features, y, **options)
    assert some.status == none.status == "optimal"
    assert some.objective == pytest.approx(none.objective, rel=1e-4)
    assert len(some.history) < len(none.history)


@pytest.mark.parametrize("d", [1, 2, 5])
def test_no_more_directions_are_known_than_there_are(
    problem_of: Build, monkeypatch: pytest.MonkeyPatch, d: int
) -> None:
    monkeypatch.setattr(metric_module, "_WHOLE", 0)
    features = many_features()[:, :d]
    metric = metric_of(problem_with(problem_of, features, "multinomial"))
    assert metric is not None
    assert metric.basis is not None
    assert metric.basis.shape == (d, d - 1)
    assert not metric.exact
    leading = 0.5 * np.linalg.eigvalsh(features.T @ features)[1:]
    np.testing.assert_allclose(metric.along(metric.basis), leading, rtol=1e-6)
    A = np.random.default_rng(7).standard_normal((d, 2))
    np.testing.assert_allclose(metric.back(metric.rotated(A)), A, atol=1e-12)
