"""The gradient as an operator: its rounds give what the dense gradient would."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import svds
from tests.problems import FORMS, random_matrix
from tests.truth import value_and_gradient

from dfwtrace import LocalEngine
from dfwtrace.linalg.gradient import GradientOperator
from dfwtrace.solvers.problem import Problem

N, D, M, SHARDS = 23, 7, 4, 5

rng = np.random.default_rng(0)
X = rng.standard_normal((N, D))
TARGETS: dict[str, Any] = {
    "least squares": rng.standard_normal((N, M)),
    "multinomial": np.arange(N) % M,
}
W = random_matrix(0, (D, M), 2, 1.5)

Build = Callable[..., GradientOperator]


@pytest.fixture
def operator_of(problem_of: Callable[..., Problem]) -> Build:
    def build(name: str, form: str, features: Any = X, n_shards: int = SHARDS) -> GradientOperator:
        engine = LocalEngine(n_shards, 2)
        problem = problem_of(name, features, TARGETS[name], representation=form, engine=engine)
        problem.restart(W)
        return problem.gradient

    return build


def dense_gradient(name: str) -> Any:
    return value_and_gradient(name, X, TARGETS[name], W.to_dense())[1]


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_products_are_those_of_the_dense_gradient(operator_of: Build, name: str, form: str) -> None:
    G, dense = operator_of(name, form), dense_gradient(name)
    draw = np.random.default_rng(1)
    v, V, u, U = (draw.standard_normal(shape) for shape in (M, (M, 3), D, (D, 3)))
    assert G.shape == (D, M)
    for product, expected in [
        (G.gather(), dense),
        (G.times(v), dense @ v),
        (G.times(V), dense @ V),
        (G.transpose_times(u), dense.T @ u),
        (G.transpose_times(U), dense.T @ U),
        (G @ v, dense @ v),
        (G @ V, dense @ V),
        (G.T @ u, dense.T @ u),
        (G.H @ U, dense.T @ U),
    ]:
        assert product.dtype == np.float64
        np.testing.assert_allclose(product, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_sparse_rows_and_empty_shards_change_nothing(
    operator_of: Build, name: str, form: str
) -> None:
    sparse = operator_of(name, form, sp.csr_array(X), n_shards=N + 4)
    np.testing.assert_allclose(sparse.gather(), dense_gradient(name), rtol=1e-12, atol=1e-12)
    v = np.arange(1.0, M + 1)
    np.testing.assert_allclose(sparse @ v, dense_gradient(name) @ v, rtol=1e-12, atol=1e-12)


def test_scipy_can_use_it(operator_of: Build) -> None:
    name = "multinomial"
    values = svds(operator_of(name, "implicit"), k=2, return_singular_vectors=False)
    expected = np.linalg.svd(dense_gradient(name), compute_uv=False)[:2]
    np.testing.assert_allclose(np.sort(values)[::-1], expected, rtol=1e-10)


def test_a_product_is_one_round(operator_of: Build) -> None:
    G = operator_of("least squares", "implicit")
    G.workers.take()
    sent = []
    for product in (lambda: G.times(np.ones(M)), lambda: G.transpose_times(np.ones(D)), G.gather):
        product()
        sent.append(G.workers.take()[2:4])
    assert sent == [(1, SHARDS * (D + M)), (1, SHARDS * (D + M)), (1, SHARDS * D * M)]
