"""The cost model: which representation it takes, and how it explains itself."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import dfwtrace as dt
from dfwtrace.engines import Engine
from dfwtrace.tasks.planning import Workload, choose, estimates, free_memory

ALL = dt.LeastSquares.representations
SCORES = dt.Multinomial.representations
WORKLOAD = Workload(
    n=100_000,
    d=300,
    m=300,
    stored=100_000 * 300,
    sparse=False,
    itemsize=8,
    epochs=100,
    products=4.0,
    gathers=False,
    local=False,
    n_shards=8,
    n_jobs=2,
)


def test_many_rows_are_summed_once() -> None:
    assert choose(ALL, WORKLOAD, "auto", None).representation == "gram"


def test_many_features_and_few_rows_are_not() -> None:
    wide = replace(WORKLOAD, n=500, d=20_000, m=20_000, stored=500 * 20_000)
    assert choose(ALL, wide, "auto", None).representation == "implicit"
    assert estimates(wide)["implicit"].memory < 8 * 20_000**2


def test_scores_are_kept_where_they_fit() -> None:
    assert choose(SCORES, WORKLOAD, "auto", 64e9).representation == "implicit"


def test_scores_are_rebuilt_where_they_do_not_fit() -> None:
    many_classes = replace(WORKLOAD, m=5000)
    scores = 2 * 100_000 * 5000 * 8
    assert choose(SCORES, many_classes, "auto", 2.0 * scores).representation == "implicit"
    plan = choose(SCORES, many_classes, "auto", 0.2 * scores)
    assert plan.representation == "factored"
    assert "of those that fit into" in plan.reason


def test_smallest_is_taken_where_nothing_fits() -> None:
    plan = choose(SCORES, WORKLOAD, "auto", 1000.0)
    smallest = min(SCORES, key=lambda name: estimates(WORKLOAD)[name].memory)
    assert plan.representation == smallest
    assert "may not fit" in plan.reason


@pytest.mark.parametrize("name", ALL)
def test_what_was_asked_for_is_taken(name: str) -> None:
    plan = choose(ALL, WORKLOAD, name, 1000.0)
    assert plan.representation == name
    assert plan.reason == "asked for"
    assert plan.costs == estimates(WORKLOAD)


@pytest.mark.parametrize("name", ALL)
def test_costs_grow_with_the_data(name: str) -> None:
    base = estimates(WORKLOAD)[name]
    assert base.memory > 0.0
    assert base.total(100) == pytest.approx(base.setup + 100 * base.epoch)
    wider = estimates(replace(WORKLOAD, m=600))[name]
    assert wider.memory >= base.memory
    assert wider.epoch > base.epoch
    longer = estimates(replace(WORKLOAD, n=200_000, stored=200_000 * 300))[name]
    assert longer.setup > base.setup
    # Only second moments are independent of the number of rows once they are summed.
    assert (longer.epoch > base.epoch) == (name != "gram")
    assert estimates(replace(WORKLOAD, n_jobs=4))[name].setup < base.setup


def test_explanation_has_memory_and_times_of_all_representations() -> None:
    text = str(choose(ALL, WORKLOAD, "auto", None))
    assert text.startswith("gram: the least time over 100 epochs")
    header = next(line for line in text.splitlines() if "representation" in line)
    for word in ("memory", "set-up", "an epoch", "100 epochs"):
        assert word in header
    rows = text.splitlines()[-len(ALL) :]
    assert [row.strip("→ ").split()[0] for row in rows] == list(ALL)
    assert [line.startswith("→") for line in rows] == [True, False, False, False]
    for row in rows:
        assert any(unit in row for unit in (" B", "KiB", "MiB", "GiB"))
        assert row.count(" s") + row.count(" ms") + row.count(" µs") == 3
    assert "n=100000 d=300 m=300" in text


def test_plan_of_real_data() -> None:
    X, Y = np.ones((3000, 150)), np.ones((3000, 100))
    assert dt.plan(dt.LeastSquares(), X, Y, solver="dfw").representation == "gram"
    labels = np.arange(3000) % 100
    assert dt.plan(dt.Multinomial(), X, labels, solver="dfw").representation == "implicit"
    sparse = dt.plan(dt.Multinomial(), sp.eye_array(3000, 150, format="csr"), labels, solver="dfw")
    assert sparse.workload.sparse
    assert sparse.workload.stored == 150
    assert (
        dt.plan(dt.LeastSquares(), X, Y, solver="dfw", representation="dense").representation
        == "dense"
    )


def test_plan_knows_the_oracle_and_the_engine() -> None:
    X, Y = np.ones((50, 10), dtype=np.float32), np.ones((50, 4), dtype=np.float32)
    engine = dt.LocalEngine(n_shards=5, n_jobs=1)
    gathering = dt.plan(
        dt.LeastSquares(), X, Y, solver="dfw", lmo="naive", engine=engine, max_iter=7
    ).workload
    assert (gathering.gathers, gathering.local) == (True, False)
    assert (gathering.n_shards, gathering.n_jobs, gathering.epochs) == (5, 1, 7)
    assert gathering.itemsize == 4
    assert dt.plan(dt.LeastSquares(), X, Y, solver="dfw", lmo="sva").workload.local


def test_plan_is_what_solve_takes() -> None:
    X, Y, _ = dt.datasets.make_multitask(n=50, d=6, m=4, rank=2, random_state=0)
    for name in ("auto", *ALL):
        result = dt.solve(
            dt.LeastSquares(), X, Y, radius=1.0, solver="dfw", max_iter=2, representation=name
        )
        expected = dt.plan(dt.LeastSquares(), X, Y, solver="dfw", max_iter=2, representation=name)
        assert result.plan.representation == expected.representation


@pytest.mark.parametrize(
    ("task", "name"),
    [
        (dt.LeastSquares(), "sparse"),
        (dt.Multinomial(), "gram"),
        (dt.LeastSquares(), "Gram"),
        (dt.LeastSquares(), ""),
    ],
)
def test_unknown_representations_are_refused(task: dt.ScoresTask, name: str) -> None:
    X, y = np.ones((6, 2)), np.array([0, 1, 2, 0, 1, 2])
    with pytest.raises(ValueError, match=r"representation must be one of .*implicit"):
        dt.plan(task, X, y, solver="dfw", representation=name)
    with pytest.raises(ValueError, match=r"representation must be one of .*implicit"):
        dt.solve(task, X, y, radius=1.0, solver="dfw", representation=name)


def test_free_memory_is_plausible() -> None:
    free = free_memory()
    assert free is None or 2**20 < free < 2**50


class Elsewhere(Engine):
    """A custom engine, whose shards are not in this process."""

    n_shards = 8

    def start(self, program: Any, rows: Any) -> Any:
        raise NotImplementedError


def test_only_shards_in_this_process_have_to_fit_into_its_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dfwtrace.arguments.free_memory", lambda: 1.0)
    X, labels = np.ones((3000, 150)), np.arange(3000) % 100
    here = dt.plan(dt.Multinomial(), X, labels, solver="dfw", engine=dt.LocalEngine())
    assert "may not fit" in here.reason
    there = dt.plan(dt.Multinomial(), X, labels, solver="dfw", engine=Elsewhere())
    assert there.representation == "implicit"
    assert "least time" in there.reason


def test_the_drivers_memory_does_not_matter_to_a_cluster(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, labels = np.ones((3000, 150)), np.arange(3000) % 100
    for engine in (dt.SparkEngine(spark), dt.SparkMapReduceEngine(spark)):
        before = dt.plan(dt.Multinomial(), X, labels, solver="dfw", engine=engine)
        with monkeypatch.context() as patch:
            patch.setattr("dfwtrace.arguments.free_memory", lambda: 1.0)
            assert dt.plan(dt.Multinomial(), X, labels, solver="dfw", engine=engine) == before


def test_many_products_an_epoch_make_a_dense_gradient_worthwhile() -> None:
    X, y = np.zeros((20_000, 100), np.float32), np.arange(20_000) % 100
    few = dt.plan(dt.Multinomial(), X, y, solver="dfw", lmo="power-1")
    many = dt.plan(dt.Multinomial(), X, y, solver="dfw", lmo="power-linear")
    assert few.workload.products == 2.0
    assert many.workload.products == pytest.approx(2 * np.mean(np.arange(100) + 1.0), rel=0.05)
    assert (few.representation, many.representation) == ("implicit", "dense")


BLOCKS = replace(WORKLOAD, products=2.0, columns=16)


@pytest.mark.parametrize("name", ALL)
def test_blocks_cost_more_than_a_vector_and_less_than_their_vectors_apart(name: str) -> None:
    one = estimates(replace(BLOCKS, columns=1))[name]
    block = estimates(BLOCKS)[name]
    wider = estimates(replace(BLOCKS, columns=64))[name]
    if name != "factored":  # whose rank follows from the columns, not from the epochs
        assert one.epoch <= block.epoch
        assert one.memory <= block.memory
        assert (
            block.epoch < estimates(replace(BLOCKS, columns=1, products=2.0 * 16))[name].epoch * 16
        )
    assert block.epoch <= wider.epoch
    assert min(block.epoch, block.setup, block.memory) > 0.0


@pytest.mark.parametrize("name", ALL)
def test_costs_of_blocks_grow_with_the_data(name: str) -> None:
    base = estimates(BLOCKS)[name]
    longer = estimates(replace(BLOCKS, n=200_000, stored=200_000 * 300))[name]
    assert (longer.epoch > base.epoch) == (name != "gram")
    assert estimates(replace(BLOCKS, m=600))[name].epoch > base.epoch
    assert estimates(replace(BLOCKS, d=600, stored=100_000 * 600))[name].epoch > base.epoch


def test_blocks_are_multiplied_with_the_sums_of_many_rows_and_with_the_rows_of_few() -> None:
    assert choose(ALL, BLOCKS, "auto", None).representation == "gram"
    wide = replace(BLOCKS, n=500, d=20_000, m=20_000, stored=500 * 20_000)
    assert choose(ALL, wide, "auto", None).representation != "gram"
    scores = 2 * BLOCKS.n * BLOCKS.m * BLOCKS.itemsize
    assert choose(SCORES, BLOCKS, "auto", 10.0 * scores).representation == "implicit"
    assert choose(SCORES, BLOCKS, "auto", 0.5 * scores).representation == "factored"


def test_plan_knows_the_solver() -> None:
    X, y = np.ones((3000, 150)), np.arange(3000) % 100
    fast, slow = (dt.plan(dt.Multinomial(), X, y, solver=name) for name in ("accelerated", "dfw"))
    assert (fast.workload.epochs, slow.workload.epochs) == (1000, 100)
    assert fast.workload.columns > slow.workload.columns == 1
    assert (fast.workload.gathers, fast.workload.local) == (False, False)
    assert "over 1000 epochs" in str(fast)
    path = dt.path(dt.Multinomial(), X[:60, :5], y[:60] % 3, radii=[1.0], max_iter=7)
    expected = dt.plan(dt.Multinomial(), X[:60, :5], y[:60] % 3, solver="accelerated", max_iter=7)
    assert path.results[0].plan.workload == expected.workload


@pytest.mark.parametrize("columns", [1, 16])
@pytest.mark.parametrize("epochs", [5, 100, 1000])
@pytest.mark.parametrize("intercept", [False, True])
def test_a_gradient_that_is_asked_for_twice_an_epoch_is_not_formed(
    columns: int, epochs: int, intercept: bool
) -> None:
    w = replace(WORKLOAD, n=10_003, d=384, m=77, stored=10_003 * 384, intercept=intercept)
    w = replace(w, columns=columns, epochs=epochs, products=2.0)
    assert choose(SCORES, w, "auto", None).representation == "implicit"


@pytest.mark.parametrize("itemsize", [4, 8])
def test_scores_are_not_rebuilt_to_save_new_memory(itemsize: int) -> None:
    w = replace(WORKLOAD, n=20_000, d=1000, m=1000, stored=20_000_000, itemsize=itemsize)
    for epochs in (2, 5, 100):
        few = replace(w, products=2.0, epochs=epochs)
        assert choose(SCORES, few, "auto", None).representation == "implicit"
        costs = estimates(few)
        assert costs["implicit"].epoch < costs["factored"].epoch < costs["dense"].epoch


def test_sparse_rows_cost_no_more_in_more_blocks() -> None:
    """An epoch is what the stored numbers and the shards' replies take, not dense blocks."""
    w = replace(WORKLOAD, sparse=True, d=1_000_000, m=10, stored=1_000_000, epochs=3)
    longer = replace(w, n=10 * w.n)
    for name in ("implicit", "factored"):
        assert estimates(longer)[name].epoch < 4.0 * estimates(w)[name].epoch


def test_very_many_classes_take_memory_for_short_blocks() -> None:
    w = replace(WORKLOAD, d=50, m=100_000, stored=100_000 * 50, epochs=2)
    plan = choose(SCORES, w, "auto", 16e9)
    assert plan.representation == "factored"
    # Scores and residuals of 32 rows, for every thread.
    assert plan.costs["factored"].memory > 2 * 2 * 32 * 100_000 * 8
