"""The gradient as an operator: its rounds give what the dense gradient would."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import svds
from scipy.special import softmax

from dfwtrace import LeastSquares, LowRankMatrix, Multinomial
from dfwtrace.engines import LocalWorkers
from dfwtrace.gradient import GradientOperator
from dfwtrace.shards import split_rows
from dfwtrace.tasks import ScoresTask, ShardProgram

Array = npt.NDArray[np.float64]
CASES = [(task, form) for task in (LeastSquares(), Multinomial()) for form in task.representations]
IDS = [f"{task.name}-{form}" for task, form in CASES]
N, D, M, SHARDS = 23, 7, 4, 5

rng = np.random.default_rng(0)
X = rng.standard_normal((N, D))
TARGETS = {"least squares": rng.standard_normal((N, M)), "multinomial": np.arange(N) % M}
W = LowRankMatrix(
    rng.standard_normal((D, 2)), np.array([1.0, 0.5]), rng.standard_normal((M, 2))
).compress()

Build = Callable[..., GradientOperator]


@pytest.fixture
def operator_of() -> Iterator[Build]:
    with ExitStack() as stack:

        def build(
            task: ScoresTask, form: str, features: Array = X, n_shards: int = SHARDS
        ) -> GradientOperator:
            program = ShardProgram(task.represent(form), (D, M))
            workers = LocalWorkers(
                program, split_rows(features, TARGETS[task.name], n_shards), n_jobs=2
            )
            stack.callback(workers.close)
            workers.build("stats", W.U, W.s, W.V)
            return GradientOperator((D, M), workers)

        yield build


def dense_gradient(task: ScoresTask) -> Array:
    scores = X @ W.to_dense()
    if task.name == "least squares":
        return X.T @ (scores - TARGETS[task.name])
    return X.T @ (softmax(scores, axis=1) - np.eye(M)[TARGETS[task.name]])


@pytest.mark.parametrize(("task", "form"), CASES, ids=IDS)
def test_products_are_those_of_the_dense_gradient(
    operator_of: Build, task: ScoresTask, form: str
) -> None:
    G, dense = operator_of(task, form), dense_gradient(task)
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


@pytest.mark.parametrize(("task", "form"), CASES, ids=IDS)
def test_sparse_rows_and_empty_shards_change_nothing(
    operator_of: Build, task: ScoresTask, form: str
) -> None:
    sparse = operator_of(task, form, sp.csr_array(X), n_shards=N + 4)
    np.testing.assert_allclose(sparse.gather(), dense_gradient(task), rtol=1e-12, atol=1e-12)
    v = np.arange(1.0, M + 1)
    np.testing.assert_allclose(sparse @ v, dense_gradient(task) @ v, rtol=1e-12, atol=1e-12)


def test_scipy_can_use_it(operator_of: Build) -> None:
    task = Multinomial()
    values = svds(operator_of(task, "implicit"), k=2, return_singular_vectors=False)
    expected = np.linalg.svd(dense_gradient(task), compute_uv=False)[:2]
    np.testing.assert_allclose(np.sort(values)[::-1], expected, rtol=1e-10)


def test_a_product_is_one_round(operator_of: Build) -> None:
    G = operator_of(LeastSquares(), "implicit")
    G.workers.take()
    sent = []
    for product in (lambda: G.times(np.ones(M)), lambda: G.transpose_times(np.ones(D)), G.gather):
        product()
        _, traffic, _ = G.workers.take()
        sent.append((traffic.rounds, traffic.numbers))
    assert sent == [(1, SHARDS * (D + M)), (1, SHARDS * (D + M)), (1, SHARDS * D * M)]
