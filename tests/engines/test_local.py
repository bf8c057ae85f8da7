"""The in-process engine: the same bits for every number of threads, and nothing left behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from threadpoolctl import threadpool_info, threadpool_limits

import dfwtrace as dt
from dfwtrace.engines import LocalWorkers

TASKS = {"least squares": dt.LeastSquares(), "multinomial": dt.Multinomial()}
FORMS = [(task, form) for task in TASKS for form in TASKS[task].representations]
N_SHARDS = 5

knows_blas = pytest.mark.skipif(not threadpool_info(), reason="no BLAS whose threads can be told")


def blas_threads() -> list[int]:
    return [
        library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"
    ]


def our_threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("dfwtrace")]


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """No test here may leave a thread or a BLAS limit, whether its run ended well or not."""
    before = blas_threads()
    with threadpool_limits(limits=2):  # so that a limit of one which stays can be told
        limited = blas_threads()
        yield
        assert blas_threads() == limited
    assert blas_threads() == before
    assert our_threads() == []


@pytest.fixture(scope="module")
def data() -> dict[str, tuple[Any, Any]]:
    """1.2 MB of features each: enough for the engine to find three threads worthwhile."""
    X, Y, _ = dt.datasets.make_multitask(n=3000, d=50, m=6, rank=3, noise=0.5, random_state=2)
    _, y, _ = dt.datasets.make_multiclass(n=3000, d=50, m=6, rank=3, random_state=2)
    return {"least squares": (X, Y), "multinomial": (X, y)}


def run(task: str, data: tuple[Any, Any], n_jobs: int, **options: Any) -> tuple[dt.Result, int]:
    """The result, and how many threads of ours there were."""
    seen: set[str] = set()
    result = dt.solve(
        TASKS[task],
        *data,
        engine=dt.LocalEngine(n_shards=N_SHARDS, n_jobs=n_jobs),
        callback=lambda W, record: seen.update(our_threads()),
        **{"radius": 5.0, "solver": "dfw", "max_iter": 3, "certify_every": 2, **options},
    )
    return result, len(seen)


def bits(result: dt.Result) -> dict[str, Any]:
    """All that a run tells, but for the time it took."""
    columns = [name for name in result.history.columns if not name.endswith("seconds")]
    return {name: result.history.column(name) for name in columns} | {
        "U": result.W.U,
        "s": result.W.s,
        "V": result.W.V,
        "gap": np.array(result.gap),
        "objective": np.array(result.objective),
    }


def assert_same_bits(results: list[dt.Result]) -> None:
    for other in results[1:]:
        for name, value in bits(results[0]).items():
            np.testing.assert_array_equal(bits(other)[name], value, err_msg=name)


@pytest.mark.parametrize(("task", "form"), FORMS)
@pytest.mark.parametrize(
    ("lmo", "dtype"), [("power-2", np.float32), ("power-2", np.float64), ("sva", np.float64)]
)
def test_bits_are_the_same_for_every_number_of_threads(
    task: str, form: str, lmo: str, dtype: Any, data: dict[str, Any]
) -> None:
    X, y = data[task]
    X = np.tile(X, (1, 8 // np.dtype(dtype).itemsize)).astype(dtype)  # as many bytes
    runs = [run(task, (X, y), n, representation=form, lmo=lmo) for n in (1, 2, 3)]
    assert_same_bits([result for result, _ in runs])
    on_the_master = form == "gram" and lmo != "sva"
    assert [threads for _, threads in runs] == ([0, 0, 0] if on_the_master else [0, 1, 2])


@pytest.mark.parametrize(("task", "form"), FORMS)
def test_bits_are_the_same_on_sparse_data(task: str, form: str, data: dict[str, Any]) -> None:
    X, y = data[task]
    sparse = sp.csr_array(np.where(np.abs(X) > 0.1, X, 0.0))
    runs = [run(task, (sparse, y), n, representation=form, lmo="lanczos") for n in (1, 2, 3)]
    assert_same_bits([result for result, _ in runs])


def test_the_choice_of_representation_does_not_depend_on_the_number_of_threads() -> None:
    for n, d, m in ((50, 10, 2), (50, 10, 40), (800, 160, 10)):
        X, Y, _ = dt.datasets.make_multitask(n=n, d=d, m=m, rank=2, random_state=0)
        results = []
        for n_jobs in (1, 2, 4, 16):
            engine = dt.LocalEngine(n_shards=8, n_jobs=n_jobs)
            results.append(
                dt.solve(
                    dt.LeastSquares(), X, Y, radius=1.0, solver="dfw", max_iter=5, engine=engine
                )
            )
        assert len({result.plan.representation for result in results}) == 1
        assert_same_bits(results)


class Failing(dt.LeastSquares):
    """Least squares that fails on one shard of several, in a method of one's choice."""

    def __init__(self, method: str, error: type[BaseException]) -> None:
        super().__init__()
        self.method, self.error = method, error

    def represent(self, name: str) -> Any:
        form = super().represent(name)
        healthy = getattr(form, self.method)

        def fail(state: Any, *args: Any) -> Any:
            y = state.targets if hasattr(state, "targets") else state.y
            if y[0, 0] == -1.0:
                raise self.error("shard 3 is broken")
            return healthy(state, *args)

        setattr(form, self.method, fail)
        return form


@pytest.mark.parametrize("method", ["stats", "update", "matvec", "linesearch", "loss"])
@pytest.mark.parametrize("n_jobs", [1, 3])
@pytest.mark.parametrize("error", [ArithmeticError, SystemExit])
def test_an_error_on_a_shard_reaches_the_caller(
    method: str, n_jobs: int, error: type[BaseException], data: dict[str, Any]
) -> None:
    X, Y = data["least squares"]
    Y = Y.copy()
    Y[3 * 3000 // N_SHARDS, 0] = -1.0  # the first row of shard 3
    engine = dt.LocalEngine(n_shards=N_SHARDS, n_jobs=n_jobs)
    with pytest.raises(error, match="shard 3 is broken"):
        dt.solve(
            Failing(method, error),
            X,
            Y,
            radius=1.0,
            solver="dfw",
            max_iter=2,
            representation="implicit",
            engine=engine,
        )


def test_an_error_in_the_callback_reaches_the_caller(data: dict[str, Any]) -> None:
    def callback(W: dt.LowRankMatrix, record: dict[str, Any]) -> None:
        raise LookupError("no such test set")

    engine = dt.LocalEngine(n_shards=N_SHARDS, n_jobs=3)
    with pytest.raises(LookupError, match="no such test set"):
        dt.solve(
            TASKS["multinomial"],
            *data["multinomial"],
            radius=1.0,
            solver="dfw",
            max_iter=2,
            engine=engine,
            callback=callback,
        )


@knows_blas
def test_blas_has_one_thread_during_a_run_only(data: dict[str, Any]) -> None:
    during: list[int] = []
    before = blas_threads()
    assert 2 in before  # the fixture's; a library that was built for one thread has one
    dt.solve(
        TASKS["least squares"],
        *data["least squares"],
        radius=1.0,
        solver="dfw",
        max_iter=2,
        callback=lambda W, record: during.extend(blas_threads()),
    )
    assert set(during) == {1}
    assert blas_threads() == before


@knows_blas
def test_runs_side_by_side_share_the_limit_of_blas() -> None:
    before = blas_threads()
    assert 2 in before
    first, second = LocalWorkers(None, [0], shard_rows=[1]), LocalWorkers(None, [0], shard_rows=[1])
    first.close()
    assert set(blas_threads()) == {1}
    first.close()  # closing twice gives nothing up twice
    assert set(blas_threads()) == {1}
    second.close()
    assert blas_threads() == before


@knows_blas
def test_blas_has_one_thread_also_if_the_run_is_in_another_thread() -> None:
    """One after the other, and the last to let go is not the one that took hold first."""
    before = blas_threads()
    assert 2 in before
    LocalWorkers(None, [0], shard_rows=[1]).close()
    seen: list[list[int]] = []

    def run() -> None:
        workers = LocalWorkers(None, [0], shard_rows=[1])
        seen.append(blas_threads())
        workers.close()
        seen.append(blas_threads())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert set(seen[0]) == {1}
    assert seen[1] == before
    held: list[LocalWorkers] = []
    thread = threading.Thread(target=lambda: held.append(LocalWorkers(None, [0], shard_rows=[1])))
    thread.start()
    thread.join()
    assert set(blas_threads()) == {1}
    held[0].close()
    assert blas_threads() == before


def test_rounds_run_the_program_on_every_shard() -> None:
    class Program:
        def start(self, shard: Any, factor: float) -> Any:
            return factor * shard

        def add(self, state: Any, shift: float) -> Any:
            return state + shift

        def reply(self, state: Any, direction: Any) -> Any:
            return state * direction

    direction = np.array([1.0, 2.0])
    for n_jobs in (1, 2, 5):
        workers = LocalWorkers(Program(), [np.array([float(j)]) for j in range(4)], n_jobs, [1] * 4)
        workers.build("start", 10.0)
        workers.apply("add", 1.0)
        np.testing.assert_array_equal(workers.sum("reply", direction), [64.0, 128.0])
        gathered = [float(reply[0]) for reply in workers.gather("reply", direction)]
        assert gathered == [1.0, 11.0, 21.0, 31.0]
        workers.build("start", 0.0)  # from the shards anew, not from the states
        np.testing.assert_array_equal(workers.sum("reply", direction), [0.0, 0.0])
        workers.close()


@pytest.mark.parametrize("name", ["n_shards", "n_jobs"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "2", float("nan")])
def test_counts_are_whole_numbers_from_one(name: str, value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=name):
        dt.LocalEngine(**{name: value})


def test_counts_may_come_from_numpy() -> None:
    engine = dt.LocalEngine(n_shards=np.int64(3), n_jobs=np.int32(2))
    assert (engine.n_shards, engine.n_jobs) == (3, 2)
    assert dt.LocalEngine().n_jobs >= 1


def test_a_program_may_build_a_state_in_the_memory_of_the_old_one() -> None:
    class Program:
        reuses_memory = True

        def start(self, shard: Any, factor: float, old: Any = None) -> Any:
            # Before the first state there is the shard.
            state = old if isinstance(old, np.ndarray) else np.empty(2)
            state[:] = factor * shard
            return state

        def reply(self, state: Any) -> Any:
            return state

    for n_jobs in (1, 3):
        workers = LocalWorkers(Program(), [1.0, 2.0, 3.0], n_jobs, [1] * 3)
        workers.build("start", 10.0)
        first = workers.gather("reply")
        workers.build("start", 100.0)
        second = workers.gather("reply")
        assert all(np.shares_memory(one, other) for one, other in zip(first, second, strict=True))
        np.testing.assert_array_equal(workers.sum("reply"), [600.0, 600.0])
        workers.close()


def test_a_program_that_does_not_is_not_given_the_old_state() -> None:
    class Program:
        reuses_memory = False

        def start(self, shard: Any, factor: float) -> Any:
            return np.array([factor * shard])

        def reply(self, state: Any) -> Any:
            return state

    workers = LocalWorkers(Program(), [1.0, 2.0], 1, [1] * 2)
    for factor in (1.0, 5.0):
        workers.build("start", factor)
        np.testing.assert_array_equal(workers.sum("reply"), [3.0 * factor])
    workers.close()


@pytest.mark.parametrize(("task", "form"), FORMS)
def test_bits_of_an_accelerated_run_are_the_same_for_every_number_of_threads(
    task: str, form: str, data: dict[str, Any]
) -> None:
    options: Any = {"solver": "accelerated", "representation": form, "max_iter": 6}
    runs = [run(task, data[task], n_jobs, **options) for n_jobs in (1, 3)]
    (one, _), (other, _) = runs
    assert one.objective == other.objective
    assert np.array_equal(one.W.to_dense(), other.W.to_dense())
    assert one.gap == other.gap
