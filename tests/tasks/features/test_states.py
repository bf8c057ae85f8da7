"""Every task in every representation, on one shard, against F written down in plain NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from tests.problems import FORMS
from tests.truth import row_losses

import dfwtrace as dt
from dfwtrace.data.shards import Shard
from dfwtrace.tasks.program import ShardProgram

LAYOUTS = ["C", "Fortran", "CSR", "memmap", "strided"]
N, D, M = 30, 5, 4


def make_data(task: str, n: int = N, d: int = D, m: int = M) -> tuple[Any, Any]:
    rng = np.random.default_rng([n, d, m])
    X = rng.standard_normal((n, d))
    X[rng.random((n, d)) < 0.3] = 0.0
    y = rng.standard_normal((n, m)) if task == "least squares" else rng.integers(0, m, n)
    return X, y


def lay_out(X: Any, layout: str, directory: Path) -> Any:
    if layout == "Fortran":
        return np.asfortranarray(X)
    if layout == "CSR":
        return sp.csr_array(X)
    if layout == "strided":
        return np.repeat(np.repeat(X, 2, axis=0), 3, axis=1)[::2, ::3]
    if layout == "memmap":
        on_disk = np.memmap(directory / "X", dtype=X.dtype, mode="w+", shape=X.shape)
        on_disk[:] = X
        return on_disk
    return X


def represent(task: str, representation: str) -> Any:
    ours: Any = dt.LeastSquares() if task == "least squares" else dt.Multinomial(n_classes=M)
    return ours.represent(representation)


def objective(task: str, X: Any, y: Any, W: Any) -> float:
    """F(W), independent of the library."""
    return float(row_losses(task, X, y, W).sum())


def derivative(function: Any, h: float = 1e-5) -> float:
    """Central difference at 0."""
    return float((function(h) - function(-h)) / (2.0 * h))


def numerical_gradient(task: str, X: Any, y: Any, W: Any) -> Any:
    gradient = np.empty_like(W)
    for index in np.ndindex(W.shape):
        unit = np.zeros_like(W)
        unit[index] = 1.0
        gradient[index] = derivative(lambda h, e=unit: objective(task, X, y, W + h * e))
    return gradient


def random_atom(rng: np.random.Generator, d: int = D, m: int = M) -> dt.RankOne:
    u, v = rng.standard_normal(d), rng.standard_normal(m)
    return dt.RankOne(-2.0, u / np.linalg.norm(u), v / np.linalg.norm(v))


def walk(form: Any, shard: Shard, m: int, steps: int, seed: int = 0) -> tuple[Any, Any]:
    """State and W after some updates from zero."""
    rng = np.random.default_rng(seed)
    d = shard.X.shape[1]
    W = dt.LowRankMatrix.zeros((d, m))
    state = form.stats(shard, W)
    for _ in range(steps):
        atom, gamma = random_atom(rng, d, m), float(rng.random())
        # What an oracle announces must change nothing but the work.
        state = form.expect(state, rng.standard_normal(m))
        form.linesearch(state, atom, gamma)  # asking must not move the state
        state, W = form.update(state, atom, gamma), W.toward(atom, gamma)
    return state, W


@pytest.mark.parametrize(("task", "representation"), FORMS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradient_equals_finite_differences(
    task: str, representation: str, layout: str, tmp_path: Path
) -> None:
    X, y = make_data(task)
    form = represent(task, representation)
    state, W = walk(form, Shard(0, lay_out(X, layout, tmp_path), y), M, steps=3)
    dense = W.to_dense()
    expected = numerical_gradient(task, X, y, dense)
    np.testing.assert_allclose(form.gradient(state), expected, atol=1e-7)
    assert form.loss(state) == pytest.approx(objective(task, X, y, dense), rel=1e-12)
    assert form.inner(state) == pytest.approx(float(np.vdot(dense, expected)), abs=1e-6)
    exact = float(np.vdot(dense, form.gradient(state)))
    assert form.inner(state) == pytest.approx(exact, rel=1e-11, abs=1e-11)


@pytest.mark.parametrize(("task", "representation"), FORMS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_products_of_blocks_are_those_of_their_vectors(
    task: str, representation: str, layout: str, tmp_path: Path, rng: np.random.Generator
) -> None:
    X, y = make_data(task)
    form = represent(task, representation)
    state, _ = walk(form, Shard(0, lay_out(X, layout, tmp_path), y), M, steps=2)
    G = form.gradient(state)
    V, U = rng.standard_normal((M, 3)), rng.standard_normal((D, 3))
    for product, operand, expected in ((form.matvec, V, G @ V), (form.rmatvec, U, G.T @ U)):
        block = product(state, operand)
        assert block.dtype == np.float64
        np.testing.assert_allclose(block, expected, atol=1e-11)
        for k in range(3):
            np.testing.assert_allclose(product(state, operand[:, k]), block[:, k], atol=1e-11)
    np.testing.assert_allclose(
        U.T @ form.matvec(state, V), form.rmatvec(state, U).T @ V, atol=1e-11
    )


@pytest.mark.parametrize(("task", "representation"), FORMS)
@pytest.mark.parametrize("sparse", [False, True])
def test_line_search_derivatives_equal_finite_differences(
    task: str, representation: str, sparse: bool, rng: np.random.Generator
) -> None:
    X, y = make_data(task)
    form = represent(task, representation)
    state, W = walk(form, Shard(0, sp.csr_array(X) if sparse else X, y), M, steps=3)
    atom, dense = random_atom(rng), W.to_dense()
    target = atom.scale * np.outer(atom.u, atom.v)

    def phi(gamma: float) -> float:
        return objective(task, X, y, (1.0 - gamma) * dense + gamma * target)

    def curvature_at(gamma: float, h: float = 1e-3) -> float:
        return (phi(gamma + h) - 2.0 * phi(gamma) + phi(gamma - h)) / h**2

    for gamma in (0.0, 0.1, 0.5, 0.9, 1.0):
        slope, curvature = form.linesearch(state, atom, gamma)
        assert slope == pytest.approx(derivative(lambda h, g=gamma: phi(g + h)), rel=1e-7, abs=1e-7)
        assert curvature == pytest.approx(curvature_at(gamma), rel=1e-5)


@given(
    st.sampled_from(FORMS),
    st.tuples(st.integers(1, 12), st.integers(1, 6), st.integers(1, 6)),
    st.integers(0, 12),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_updates_from_zero_lead_to_the_state_at_w(
    form: tuple[str, str], sizes: tuple[int, int, int], steps: int, sparse: bool, seed: int
) -> None:
    task, representation = form
    n, d, m = sizes
    X, y = make_data(task, n, d, m)
    shard = Shard(0, sp.csr_array(X) if sparse else X, y)
    ours: Any = represent(task, representation)
    moved, W = walk(ours, shard, m, steps, seed)
    fresh = ours.stats(shard, W)
    scale = 1.0 + np.square(X).sum() + (np.square(y).sum() if task == "least squares" else 0.0)
    for method in (ours.loss, ours.inner, ours.gradient):
        np.testing.assert_allclose(method(moved), method(fresh), atol=1e-12 * scale)
    rng = np.random.default_rng(seed)
    for operands, product in (((m,), ours.matvec), ((m, 2), ours.matvec), ((d,), ours.rmatvec)):
        operand = rng.standard_normal(operands)
        np.testing.assert_allclose(
            product(moved, operand), product(fresh, operand), atol=1e-12 * scale * (d + m)
        )
    atom = random_atom(rng, d, m)
    np.testing.assert_allclose(
        ours.linesearch(moved, atom, 0.5), ours.linesearch(fresh, atom, 0.5), atol=1e-11 * scale
    )


@pytest.mark.parametrize(("task", "representation"), FORMS)
def test_a_product_announced_beforehand_is_that_of_the_state_it_is_asked_for(
    task: str, representation: str, rng: np.random.Generator
) -> None:
    X, y = make_data(task)
    form = represent(task, representation)
    state = form.stats(Shard(0, X, y), dt.LowRankMatrix.zeros((D, M)))
    announced, other = rng.standard_normal((2, M))
    for _ in range(3):
        state = form.expect(state, announced)
        # Before the update that it was announced for, after it, and after one more.
        for _ in range(3):
            for v in (announced, other):
                np.testing.assert_allclose(
                    form.matvec(state, v), form.gradient(state) @ v, atol=1e-11
                )
            state = form.update(state, random_atom(rng), 0.3)


@pytest.mark.parametrize("task", ["least squares", "multinomial"])
def test_an_update_multiplies_by_what_was_announced_on_its_way(
    task: str, rng: np.random.Generator
) -> None:
    X, y = make_data(task)
    form = represent(task, "implicit")
    state = form.stats(Shard(0, X, y), dt.LowRankMatrix.zeros((D, M)))
    announced = rng.standard_normal(M)
    state = form.update(form.expect(state, announced), random_atom(rng), 0.3)
    np.testing.assert_array_equal(state.ahead, announced)
    np.testing.assert_allclose(state.product, state.R @ announced, atol=1e-12)


class Counting(dt.losses.SquaredLoss):
    """Least squares that counts the rows it is evaluated on."""

    kernel = None
    rows = 0

    def evaluate(self, S: Any, y: Any, R: Any) -> float:
        self.rows += len(S)
        return super().evaluate(S, y, R)


def test_a_value_and_the_product_announced_take_one_pass_over_scores_that_are_not_kept(
    rng: np.random.Generator,
) -> None:
    X, y = make_data("least squares")
    loss = Counting()
    form = dt.ScoresTask(loss).represent("factored")
    state = form.stats(Shard(0, X, y), dt.LowRankMatrix.zeros((D, M)))
    announced, other = rng.standard_normal((2, M))
    state = form.update(form.expect(state, announced), random_atom(rng), 0.3)
    for ask in (
        lambda: (form.loss(state), form.inner(state), form.matvec(state, announced)),
        lambda: (form.matvec(state, other), form.matvec(state, other), form.loss(state)),
    ):
        loss.rows = 0
        ask()
        assert loss.rows == N


def test_scores_of_very_many_columns_are_rebuilt_for_many_rows_at_once() -> None:
    n, m = 100, 300_000
    form = dt.Multinomial(m).represent("factored")
    state = form.stats(Shard(0, np.ones((n, 1)), np.zeros(n, int)), dt.LowRankMatrix.zeros((1, m)))
    assert len(list(state.X)) == 4


@pytest.mark.parametrize(("task", "representation"), FORMS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("sparse", [False, True])
def test_states_keep_the_precision_of_the_data(
    task: str, representation: str, dtype: Any, sparse: bool
) -> None:
    X, y = make_data(task)
    data = X.astype(dtype)
    form = represent(task, representation)
    state, W = walk(form, Shard(0, sp.csr_array(data) if sparse else data, y), M, steps=4)
    if representation == "factored":
        assert state.scores.U.dtype == state.scores.V.dtype == dtype
    elif representation != "gram":  # second moments are sums, and sums are float64
        assert state.S.dtype == state.R.dtype == dtype
    expected = form.gradient(form.stats(Shard(0, X, y), W))
    assert form.gradient(state).dtype == np.float64
    rtol = 1e-4 if dtype is np.float32 else 1e-11
    np.testing.assert_allclose(form.gradient(state), expected, atol=rtol * np.abs(expected).max())
    assert form.loss(state) == pytest.approx(objective(task, X, y, W.to_dense()), rel=rtol)


@pytest.mark.parametrize(("task", "representation"), FORMS)
def test_the_curvature_product_bounds_the_curvature_of_every_line(
    task: str, representation: str, rng: np.random.Generator
) -> None:
    X, y = make_data(task)
    form = represent(task, representation)
    state, W = walk(form, Shard(0, X, y), M, steps=2)
    U = rng.standard_normal((D, 2))
    H = form.curvature_product(state, np.eye(D))
    np.testing.assert_allclose(form.curvature_product(state, U), H @ U, atol=1e-11)
    np.testing.assert_allclose(form.curvature_product(state, U[:, 0]), H @ U[:, 0], atol=1e-11)
    for _ in range(10):
        atom = random_atom(rng)
        direction = atom.scale * np.outer(atom.u, atom.v) - W.to_dense()
        bound = float(np.vdot(direction, H @ direction))
        assert form.linesearch(state, atom, float(rng.random()))[1] <= bound * (1.0 + 1e-9)


def factors(rng: np.random.Generator, d: int, m: int, rank: int, dtype: Any) -> dt.LowRankMatrix:
    """U diag(s) Vᵀ whose factors are not orthonormal, as a quasi-Newton step has them."""
    U, V = rng.standard_normal((d, rank)), rng.standard_normal((m, rank))
    return dt.LowRankMatrix(U.astype(dtype), rng.uniform(0.1, 1.0, rank), V.astype(dtype))


@given(
    st.sampled_from(FORMS),
    st.tuples(st.integers(1, 12), st.integers(1, 6), st.integers(1, 6)),
    st.integers(0, 7),
    st.booleans(),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_tangent_is_the_loss_the_inner_product_and_the_products(
    form: tuple[str, str],
    sizes: tuple[int, int, int],
    rank: int,
    sparse: bool,
    single: bool,
    seed: int,
) -> None:
    """Of the factors that the state was built from, be they orthonormal or not, many or none."""
    task, representation = form
    n, d, m = sizes
    X, y = make_data(task, n, d, m)
    dtype = np.float32 if single else np.float64
    data = X.astype(dtype)
    W = factors(np.random.default_rng(seed), d, m, rank, np.float64)
    ours: Any = represent(task, representation)
    program = ShardProgram(ours, (d, m))
    held = program.stats(Shard(0, sp.csr_array(data) if sparse else data, y), W.U, W.s, W.V)
    reply = program.tangent(held)
    assert reply.dtype == np.float64
    assert reply.shape == (2 + rank * (d + m),)
    value, inner, right, left = np.split(reply, [1, 2, 2 + rank * d])
    expected = [ours.loss(held.state), ours.inner(held.state)]
    tolerance = 1e-3 if single and representation != "gram" else 1e-10
    scale = 1.0 + np.square(X).sum() * (1.0 + W.trace_norm) * (1.0 + np.abs(W.U).sum())
    scale = tolerance * (scale + (np.square(y).sum() if task == "least squares" else 0.0))
    np.testing.assert_allclose([value[0], inner[0]], expected, atol=scale)
    G = ours.gradient(held.state)
    np.testing.assert_allclose(right.reshape(d, rank), G @ W.V, atol=scale)
    np.testing.assert_allclose(left.reshape(m, rank), G.T @ W.U, atol=scale)
    np.testing.assert_allclose(value[0], objective(task, X, y, W.to_dense()), atol=scale)
    np.testing.assert_allclose(inner[0], np.vdot(W.to_dense(), G), atol=scale)
    # It moves nothing, and is the same again.
    np.testing.assert_array_equal(program.tangent(held), reply)


@pytest.mark.parametrize(
    ("task", "representation"), [form for form in FORMS if form[1] in ("implicit", "dense")]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("sparse", [False, True])
def test_a_state_renewed_is_a_new_one_bit_for_bit(
    task: str, representation: str, dtype: Any, sparse: bool, rng: np.random.Generator
) -> None:
    X, y = make_data(task)
    data = X.astype(dtype)
    shard = Shard(0, sp.csr_array(data) if sparse else data, y)
    form = represent(task, representation)
    used, walked = walk(form, shard, M, steps=3)
    v, U = rng.standard_normal(M), rng.standard_normal((D, 2))
    for W in (
        factors(rng, D, M, 3, np.float64),
        factors(rng, D, M, 1, np.float64),
        walked,
        dt.LowRankMatrix.zeros((D, M)),
        factors(rng, D, M, 6, np.float64),
    ):
        # A state that was asked for much, and expects a product.
        form.matvec(used, v)
        form.rmatvec(used, U)
        used = form.update(form.expect(used, v), random_atom(rng), 0.4)
        scores = used.S
        used, new = form.renew(used, shard, W), form.stats(shard, W)
        assert used.S is scores  # in the same memory
        for method in (form.loss, form.inner, form.gradient):
            np.testing.assert_array_equal(method(used), method(new))
        np.testing.assert_array_equal(used.S, new.S)
        np.testing.assert_array_equal(used.R, new.R)
        np.testing.assert_array_equal(form.matvec(used, v), form.matvec(new, v))
        np.testing.assert_array_equal(form.matvec(used, W.V), form.matvec(new, W.V))
        np.testing.assert_array_equal(form.rmatvec(used, U), form.rmatvec(new, U))
        np.testing.assert_array_equal(form.rmatvec(used, W.U), form.rmatvec(new, W.U))
        atom = random_atom(rng)
        np.testing.assert_array_equal(
            form.linesearch(used, atom, 0.5), form.linesearch(new, atom, 0.5)
        )
