"""The same bits as the local engine's, wherever the rows lie and however the workers hang."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from tests.engines.resident.groups import GroupEngine, ProcessJob
from tests.engines.resident.programs import Products, make_shards, story, undisturbed
from threadpoolctl import threadpool_info

import dfwtrace as dt


@pytest.mark.parametrize("fan_in", [1, 2, 16])
@pytest.mark.parametrize(("n_shards", "n_workers"), [(1, 1), (5, 2), (8, 8), (13, 4), (21, 11)])
def test_all_kinds_of_rounds_give_the_bits_of_the_local_engine(
    n_shards: int, n_workers: int, fan_in: int
) -> None:
    engine = GroupEngine(n_shards, n_workers, fan_in)
    shards = make_shards(n_shards)
    workers = engine.workers(Products(), lambda: shards)
    assert workers.shard_rows == [shard.n_rows for shard in shards]
    assert story(workers) == undisturbed(n_shards)
    workers.close()
    assert workers.restarts == 0


def bits(result: dt.Result) -> dict[str, Any]:
    """All that a run tells, but for the time it took and the bytes it sent."""
    told = [
        name
        for name in result.history.columns
        if not name.endswith("seconds") and name != "bytes_on_wire"
    ]
    columns = {name: result.history.column(name).tobytes() for name in told}
    factors = {"U": result.W.U, "s": result.W.s, "V": result.W.V}
    rounds = [(r["epoch"], r["oracle"], r["method"], r["numbers_sent"]) for r in result.rounds]
    return (
        columns
        | {name: factor.tobytes() for name, factor in factors.items()}
        | {
            "gap": np.float64(result.gap).tobytes(),
            "objective": np.float64(result.objective).tobytes(),
            "rounds": rounds,
        }
    )


def assert_same_bits(task: Any, X: Any, y: Any, engine: Any, **options: Any) -> dt.Result:
    return assert_same_bits_of_all(task, X, y, [engine], **options)[0]


def assert_same_bits_of_all(
    task: Any, X: Any, y: Any, engines: list[Any], **options: Any
) -> list[dt.Result]:
    """One run of the local engine for several engines with as many shards."""
    call: dict[str, Any] = {"radius": 5.0, "solver": "dfw", "max_iter": 3, "certify_every": 2}
    call |= options
    local = bits(dt.solve(task, X, y, engine=dt.LocalEngine(engines[0].n_shards, 1), **call))
    results = [dt.solve(task, X, y, engine=engine, **call) for engine in engines]
    for engine, result in zip(engines, results, strict=True):
        assert bits(result) == local, (engine.n_workers, engine.fan_in)
    return results


LAYOUTS = {
    "by row": np.ascontiguousarray,
    "by column": np.asfortranarray,
    "float32": lambda X: X.astype(np.float32),
    "float32 by column": lambda X: np.asfortranarray(X, np.float32),
    "sparse": lambda X: sp.csr_array(np.where(np.abs(X) > 0.2, X, 0.0)),
    "sparse float32": lambda X: sp.csr_array(np.where(np.abs(X) > 0.2, X, 0.0).astype(np.float32)),
    "every other row": lambda X: np.repeat(X, 2, axis=0)[::2],
    "every other column": lambda X: np.repeat(X, 2, axis=1)[:, ::2],
    "backwards": lambda X: X[::-1],
}
TASKS = {"least squares": dt.LeastSquares(), "multinomial": dt.Multinomial()}


@pytest.fixture(scope="module")
def data() -> dict[str, tuple[Any, Any]]:
    X, Y, _ = dt.datasets.make_multitask(n=200, d=13, m=6, rank=3, noise=0.5, random_state=2)
    _, y, _ = dt.datasets.make_multiclass(n=200, d=13, m=6, rank=3, random_state=2)
    return {"least squares": (X, Y), "multinomial": (X, y)}


@pytest.mark.parametrize(
    ("task", "layout", "form"),
    [
        (task, layout, ("implicit", "dense", "factored")[(j + k) % 3])
        for j, task in enumerate(TASKS)
        for k, layout in enumerate(LAYOUTS)
    ],
)
def test_a_run_has_the_bits_of_the_local_engine(
    task: str, layout: str, form: str, data: Any
) -> None:
    X, y = data[task]
    engine = GroupEngine(n_shards=7, n_workers=3, fan_in=1)
    result = assert_same_bits(
        TASKS[task], LAYOUTS[layout](X), y, engine, representation=form, lmo="power-2"
    )
    assert np.all(result.history.column("bytes_on_wire") > 0)


@pytest.mark.parametrize(
    ("layout", "form"),
    [("by column", "implicit"), ("by column", "dense"), ("float32 by column", "implicit")],
)
def test_bits_do_not_depend_on_where_rows_of_some_size_lie(layout: str, form: str) -> None:
    """Large enough for BLAS to go other ways for another layout, or for more threads."""
    X, y, _ = dt.datasets.make_multiclass(n=5003, d=37, m=12, rank=3, random_state=0)
    engine = GroupEngine(n_shards=3, n_workers=2, fan_in=1, job=ProcessJob)
    assert_same_bits(
        dt.Multinomial(),
        LAYOUTS[layout](X),
        y,
        engine,
        representation=form,
        radius=20.0,
        max_iter=2,
    )


@pytest.mark.parametrize("lmo", ["naive", "power-log", "lanczos", "sva"])
def test_every_oracle_has_the_bits_of_the_local_engine(lmo: str, data: Any) -> None:
    groups = [(1, 16), (2, 16), (4, 2), (11, 3), (12, 1)]
    engines = [GroupEngine(12, n_workers, fan_in) for n_workers, fan_in in groups]
    assert_same_bits_of_all(
        dt.Multinomial(), *data["multinomial"], engines, lmo=lmo, random_state=2**70
    )


@pytest.mark.parametrize("form", ["gram", "dense", "implicit"])
def test_workers_in_processes_have_the_bits_of_the_local_engine(form: str) -> None:
    X, Y, _ = dt.datasets.make_multitask(n=1000, d=60, m=8, rank=3, noise=0.5, random_state=2)
    engine = GroupEngine(n_shards=5, n_workers=2, job=ProcessJob)
    result = assert_same_bits(dt.LeastSquares(), X, Y, engine, representation=form)
    sent = result.rounds.column("bytes_on_wire")
    if form == "gram":  # the moments travel once, and all else happens on the master
        assert sent[0] > 5 * 60 * 60 * 8 / 2
        assert result.rounds[0]["method"] == "moments"
        assert np.all(sent[1:] == 0)
    else:
        assert np.all(sent > 0)
    assert np.all(result.rounds.column("compute_seconds") > 0.0)


@pytest.mark.parametrize(("lmo", "n"), [("power-2", 100), ("lanczos", 60)])
def test_the_drivers_own_products_have_the_bits_of_the_local_engine(lmo: str, n: int) -> None:
    """Long vectors, for which BLAS would take more threads where it may."""
    X, Y, _ = dt.datasets.make_multitask(n=n, d=15_000, m=10, rank=3, noise=0.5, random_state=2)
    engine = GroupEngine(n_shards=2, n_workers=2, job=ProcessJob)
    threads: set[int] = set()

    def callback(W: dt.LowRankMatrix, record: Any) -> None:
        libraries = [library for library in threadpool_info() if library["user_api"] == "blas"]
        threads.update(library["num_threads"] for library in libraries)

    options: Any = {"representation": "implicit", "lmo": lmo, "max_iter": 2}
    assert_same_bits(dt.LeastSquares(), X, Y, engine, callback=callback, **options)
    assert threads <= {1}


def test_shards_may_be_larger_than_the_largest_message() -> None:
    """Single rows of sparse or dense data too."""
    X, Y, _ = dt.datasets.make_multitask(n=100, d=1000, m=2, rank=2, noise=0.5, random_state=2)
    for rows in (X, sp.csr_array(X)):
        engine = GroupEngine(2, 2, job=ProcessJob, largest_message=1 << 16)
        assert_same_bits(dt.LeastSquares(), rows, Y, engine, representation="implicit", max_iter=2)


class Counts:
    """A task of one's own on whole numbers without targets: ½‖XW - 1‖² with a dense gradient."""

    def shape(self, X: Any, y: Any) -> tuple[int, int]:
        assert y is None
        return int(X.shape[1]), 3

    def stats(self, shard: dt.Shard, W: dt.LowRankMatrix) -> Any:
        assert shard.X.dtype == np.int16
        assert shard.y is None
        return self._state(shard, W.to_dense())

    def update(self, state: Any, atom: dt.RankOne, gamma: float) -> Any:
        S = atom.scale * np.outer(atom.u, atom.v)
        return self._state(state["shard"], (1.0 - gamma) * state["W"] + gamma * S)

    def loss(self, state: Any) -> float:
        return 0.5 * float(np.sum(state["R"] ** 2))

    def _state(self, shard: dt.Shard, W: Any) -> Any:
        R = shard.X @ W - 1.0
        return {"shard": shard, "W": W, "R": R, "grad": np.asfortranarray(shard.X.T @ R)}


def test_an_own_task_on_whole_numbers_without_targets() -> None:
    X = np.random.default_rng(0).integers(-5, 5, (50, 7)).astype(np.int16)
    for n_shards, n_workers in ((1, 1), (5, 3)):
        engine = GroupEngine(n_shards, n_workers, fan_in=1)
        assert_same_bits(Counts(), X, None, engine, step="harmonic", lmo="naive")


class Single:
    """An own task in float32: a step that is a NumPy number would make it float64."""

    def stats(self, shard: dt.Shard, W: dt.LowRankMatrix) -> Any:
        return self._state(shard, W.to_dense().astype(np.float32))

    def update(self, state: Any, atom: dt.RankOne, gamma: float) -> Any:
        S = (atom.scale * np.outer(atom.u, atom.v)).astype(np.float32)
        return self._state(state["shard"], (1.0 - gamma) * state["W"] + gamma * S)

    def _state(self, shard: dt.Shard, W: Any) -> Any:
        return {"shard": shard, "W": W, "grad": shard.X.T @ (shard.X @ W - shard.y)}


def test_numbers_are_the_same_kind_of_numbers_on_every_engine(data: Any) -> None:
    X, Y = (array.astype(np.float32) for array in data["least squares"])
    engine = GroupEngine(4, 2)
    assert_same_bits(Single(), X, Y, engine, step=lambda t: np.float64(1.0 / (t + 2.0)))
    assert_same_bits(Single(), X, Y, engine, step="harmonic", radius=np.float64(3.0))


class Gaps:
    """An own task whose replies are every third number of something longer."""

    def stats(self, shard: dt.Shard, W: dt.LowRankMatrix) -> Any:
        return shard, shard.X @ W.to_dense()

    def update(self, state: Any, atom: dt.RankOne, gamma: float) -> Any:
        shard, S = state
        scores = atom.scale * np.outer(shard.X @ atom.u, atom.v)
        return shard, (1.0 - gamma) * S + gamma * scores

    def matvec(self, state: Any, V: Any) -> Any:
        shard, S = state
        return np.repeat(shard.X.T @ ((S - shard.y) @ V), 3, axis=0)[::3]

    def rmatvec(self, state: Any, U: Any) -> Any:
        shard, S = state
        return np.repeat((S - shard.y).T @ (shard.X @ U), 3, axis=0)[::3]


def test_replies_have_the_layout_that_a_wire_gives_them() -> None:
    """With one shard nothing is added, and the local engine might hand on what the task made."""
    X, Y, _ = dt.datasets.make_multitask(n=60, d=500, m=40, rank=3, noise=0.5, random_state=2)
    assert_same_bits(Gaps(), X, Y, GroupEngine(1, 1), step="harmonic", lmo="lanczos")
