"""What a plan says against what a run does: bytes as NumPy reports them, and copies."""

import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import dfwtrace as dt
from dfwtrace.solvers.lbfgs import room
from dfwtrace.tasks.planning import Workload, estimates

ENGINE = dt.LocalEngine(n_shards=4, n_jobs=1)
N, D, M = 60_000, 60, 5
WORKLOAD = Workload(
    n=100_000, d=50, m=20, stored=5_000_000, sparse=False, itemsize=8, epochs=50, products=2.0,
    gathers=False, local=False, n_shards=8, n_jobs=2, columns=16,
)  # fmt: skip


@pytest.fixture(scope="module")
def features() -> np.ndarray:
    return np.random.default_rng(0).integers(-5, 6, (N, D)).astype(np.float64)


@pytest.fixture(scope="module")
def labels(features: np.ndarray) -> np.ndarray:
    rng = np.random.default_rng(1)
    scores = features @ rng.standard_normal((D, M)) + rng.gumbel(size=(N, M))
    return np.asarray(scores.argmax(axis=1))


def peak_of(work: Callable[[], object]) -> int:
    """Bytes at the most, beyond what there was."""
    work()  # what is kept after the first run is no run's own
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        work()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def run(task: Any, X: Any, y: Any, **given: Any) -> tuple[float, int]:
    """Bytes planned and measured."""
    how = {"max_iter": 3, "engine": ENGINE, **given}
    plan = dt.plan(task, X, y, **how)
    measured = peak_of(lambda: dt.solve(task, X, y, radius=10.0, verbose=False, **how))
    return plan.costs[plan.representation].memory, measured


LAYOUTS: dict[str, Callable[[np.ndarray], Any]] = {
    "as the shards hold it": lambda X: X,
    "float32": lambda X: X.astype(np.float32),
    "integers": lambda X: X.astype(np.int32),
    "Fortran order": np.asfortranarray,
    "integers in Fortran order": lambda X: np.asfortranarray(X.astype(np.int32)),
    "every other row": lambda X: np.repeat(X, 2, axis=0)[::2],
    "CSR": sp.csr_array,
    "CSC": sp.csc_array,
    "CSR of integers": lambda X: sp.csr_array(X.astype(np.int64)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_memory_is_within_a_third_for_every_layout(
    layout: str, features: np.ndarray, labels: np.ndarray
) -> None:
    X = LAYOUTS[layout](features)
    planned, measured = run(dt.Multinomial(), X, labels)
    assert measured <= 1.3 * planned
    assert planned <= 2.0 * measured


@pytest.mark.parametrize("form", dt.LeastSquares.representations)
@pytest.mark.parametrize("solver", ["dfw", "accelerated"])
def test_memory_is_within_a_third_for_every_representation(
    form: str, solver: str, features: np.ndarray
) -> None:
    Y = np.random.default_rng(2).standard_normal((N, 40))
    planned, measured = run(
        dt.LeastSquares(), np.asfortranarray(features), Y, solver=solver, representation=form
    )
    assert measured <= 1.3 * planned
    assert planned <= 2.0 * measured


def test_memory_of_weights_and_of_rows_far_from_zero(
    features: np.ndarray, labels: np.ndarray
) -> None:
    weights = np.linspace(0.5, 1.5, N)
    for X in (features, features + 1000.0):
        planned, measured = run(
            dt.Multinomial(), X, labels, sample_weight=weights, fit_intercept=True
        )
        assert measured <= 1.3 * planned
        assert planned <= 2.0 * measured


def test_memory_of_many_columns_is_that_of_the_factors() -> None:
    rng, n, d = np.random.default_rng(3), 2000, 100_000
    X = sp.csr_array(
        (np.ones(5 * n), rng.integers(0, d, 5 * n), np.arange(0, 5 * n + 1, 5)), shape=(n, d)
    )
    planned, measured = run(dt.Multinomial(4), X, rng.integers(0, 4, n))
    assert measured <= 1.3 * planned
    assert planned <= 3.0 * measured


@pytest.mark.parametrize(
    ("layout", "copies"),
    [
        ("as the shards hold it", 0),
        ("float32", 0),
        ("CSR", 0),
        ("integers", 8 * N * D),
        ("Fortran order", 8 * N * D),
        ("integers in Fortran order", 8 * N * D),
        ("every other row", 8 * N * D),
    ],
)
def test_copies_of_features_are_counted_once(
    layout: str, copies: int, features: np.ndarray, labels: np.ndarray
) -> None:
    workload = dt.plan(dt.Multinomial(), LAYOUTS[layout](features), labels).workload
    assert workload.copied == copies + labels.nbytes  # labels are always converted


def test_sparse_copies_are_counted(features: np.ndarray, labels: np.ndarray) -> None:
    rows = sp.csr_array(features)
    whole = rows.data.nbytes + rows.indices.nbytes + rows.indptr.nbytes
    assert dt.plan(dt.Multinomial(), rows.tocsc(), labels).workload.copied == whole + 8 * N
    # Of integers, only the numbers: their places are shared.
    integers = rows.astype(np.int64)
    assert dt.plan(dt.Multinomial(), integers, labels).workload.copied == rows.data.nbytes + 8 * N


def test_weights_are_joined_with_a_copy_of_the_targets(features: np.ndarray) -> None:
    Y, weights = np.ones((N, M)), np.ones(N)
    assert dt.plan(dt.LeastSquares(), features, Y).workload.copied == 0
    workload = dt.plan(dt.LeastSquares(), features, Y, sample_weight=weights).workload
    assert workload.copied == 8 * N * (M + 1)
    assert workload.weighted


COPIED = ["integers in Fortran order", "Fortran order", "CSR of integers"]


@pytest.mark.parametrize("layout", COPIED)
def test_features_are_copied_no_more_than_once(
    layout: str, features: np.ndarray, labels: np.ndarray
) -> None:
    X = LAYOUTS[layout](features)
    assert peak_of(lambda: dt.plan(dt.Multinomial(), X, labels)) < 1.2 * 8 * N * D


def test_rows_far_from_zero_are_noticed(features: np.ndarray, labels: np.ndarray) -> None:
    for X, far in ((features, False), (features + 1000.0, True)):
        plan = dt.plan(dt.Multinomial(), X, labels, fit_intercept=True)
        assert (plan.workload.far, plan.workload.intercept) == (far, True)
        assert not dt.plan(dt.Multinomial(), X, labels).workload.far


def test_an_intercept_takes_rounds_of_its_own(features: np.ndarray, labels: np.ndarray) -> None:
    def epochs(solver: str, name: str) -> list[float]:
        plans = (
            dt.plan(dt.Multinomial(), features, labels, solver=solver, fit_intercept=b)
            for b in (False, True)
        )
        return [plan.costs[name].epoch for plan in plans]

    for name in dt.Multinomial.representations:
        without, with_one = epochs("dfw", name)
        assert with_one > 1.5 * without
        # The fast solver moves it with W.
        without, with_one = epochs("accelerated", name)
        assert with_one == without


@pytest.mark.parametrize("size", [10, 1000, 100_000])
def test_memory_grows_with_the_changes_that_the_solver_remembers(size: int) -> None:
    workload = replace(WORKLOAD, d=size, m=16, stored=100_000 * size, n=100, epochs=1000)
    few = replace(workload, epochs=1)
    numbers = min(size, 16) * (size + 16)  # no more columns than features
    pairs, factors = room(numbers), 8 * numbers
    added = estimates(workload)["factored"].memory - estimates(few)["factored"].memory
    assert added == pytest.approx(2 * (pairs - 1) * factors)


@pytest.mark.parametrize("name", dt.LeastSquares.representations)
@pytest.mark.parametrize("columns", [1, 16])
def test_estimates_grow_with_every_size(name: str, columns: int) -> None:
    base = replace(WORKLOAD, columns=columns)
    cost = estimates(base)[name]
    for wider in (
        replace(base, d=100, stored=10_000_000),
        replace(base, m=40),
        replace(base, n=200_000, stored=10_000_000),
        replace(base, copied=10**8),
        replace(base, n_shards=16),
    ):
        larger = estimates(wider)[name]
        assert larger.memory >= cost.memory
        assert larger.total(50) >= cost.total(50)
    assert estimates(replace(base, copied=10**8))[name].memory == cost.memory + 10**8
    assert estimates(replace(base, intercept=True))[name].total(50) > cost.total(50)
    assert estimates(replace(base, n_jobs=1))[name].total(50) > cost.total(50)


def test_the_table_says_what_its_numbers_are() -> None:
    text = str(dt.plan(dt.LeastSquares(), np.ones((20, 3)), np.ones((20, 2)), max_iter=7))
    assert "≤ 7 epochs" in text
    assert "memory: added to the data at the peak; time: if no epoch is left out" in text
