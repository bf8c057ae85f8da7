"""A job a round: the same bits as in one process, flat over hundreds of epochs, nothing left."""

from __future__ import annotations

import os
import pickle
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy.sparse as sp
from tests.clusters import executor_pids, kill

import dfwtrace as dt
from dfwtrace.engines import Engine, Workers
from dfwtrace.engines.spark.mapreduce.parcels import parcel, unparcel
from dfwtrace.rows import ArrayRows, Examined
from dfwtrace.setup import Examiner
from dfwtrace.shards import RowBlocks, Shard, split_rows
from dfwtrace.tasks import ShardProgram

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

D, M = 9, 4
PATIENCE = 60.0


class Tally:
    """A program on sums of rows, small enough that a round costs what Spark costs."""

    def build(self, shard: Shard, start: float) -> Any:
        return np.full(2, start + float(shard.X.sum()))

    def add(self, state: Any, more: float) -> Any:
        return state * 1.1 + more

    def tell(self, state: Any) -> Any:
        return state

    def rows(self, shard: Shard) -> Any:
        return np.array([float(shard.n_rows)])


class FailsWhile(Tally):
    """Fails as long as a file is there; if told so, it takes the file away."""

    def __init__(self, flag: Path, once: bool) -> None:
        self.flag, self.once = flag, once

    def add(self, state: Any, more: float) -> Any:
        if self.flag.exists():
            if self.once:
                self.flag.unlink(missing_ok=True)
            raise ZeroDivisionError("the user's own mistake")
        return super().add(state, more)


class Sleeper(Tally):
    """Says that it has begun, and does not end."""

    def __init__(self, begun: Path) -> None:
        self.begun = begun

    def tell(self, state: Any) -> Any:
        self.begun.touch()
        time.sleep(600)
        return state


def plain(X: Any, y: Any) -> Examined:
    return Examined(X, y, (X.shape[1], 1))


def some_rows(n: int = 12) -> ArrayRows:
    X = np.random.default_rng(3).standard_normal((n, 3))
    return ArrayRows.examined(X, None, plain)


def labelled(n: int, dtype: Any = np.float64) -> tuple[Any, Any]:
    rng = np.random.default_rng(n)
    return rng.standard_normal((n, D)).astype(dtype), np.arange(n) % M


def frame_of(spark: SparkSession, X: Any, y: Any) -> DataFrame:
    kind = "float" if X.dtype == np.float32 else "double"
    rows = [(row.tolist(), int(label)) for row, label in zip(X, y, strict=True)]
    return spark.createDataFrame(rows, f"features array<{kind}>, label int")


def persisted(spark: SparkSession) -> int:
    return int(spark.sparkContext._jsc.getPersistentRDDs().size())


def broadcast_files(spark: SparkSession) -> set[str]:
    return set(os.listdir(spark.sparkContext._temp_dir))


@pytest.fixture
def nothing_left(spark: SparkSession) -> Iterator[None]:
    """After the test Spark's storage, our threads and the caller's job group are as before."""
    files, rdds = broadcast_files(spark), persisted(spark)
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", "the user's own")
    yield
    assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") == "the user's own"
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    assert persisted(spark) == rdds
    assert broadcast_files(spark) - files == set()
    assert not [thread for thread in threading.enumerate() if thread.name == "dfwtrace-rounds"]


def rounds(workers: Workers) -> list[Any]:
    """One of every kind of round that a run makes, with all its replies."""
    rng = np.random.default_rng(0)
    U, V = np.linalg.qr(rng.standard_normal((D, 2)))[0], np.linalg.qr(rng.random((M, 2)))[0]
    u, v = rng.standard_normal(D), rng.standard_normal(M)
    try:
        workers.build("stats", np.asfortranarray(U), np.array([2.0, 1.0]), V)
        replies = [workers.sum("matvec", v)]
        workers.apply("update", 1.5, u, v, 0.25, 7, 1)
        replies += [workers.sum("rmatvec", u), workers.sum("gradient")]
        return [*replies, *workers.gather("report"), np.array(workers.shard_rows)]
    finally:
        workers.close()


def assert_same_rounds(task: Any, engine: Engine, rows: Any, X: Any, y: Any) -> None:
    form = task.represent("implicit") if isinstance(task, dt.ScoresTask) else task
    program = ShardProgram(form, (D, M))
    here = ArrayRows.examined(X, y, Examiner(task))
    expected = rounds(dt.LocalEngine(engine.n_shards).start(program, here))
    found = rounds(engine.start(program, here if rows is None else rows))
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize(
    ("n_shards", "depth", "layout"),
    [(1, 2, np.asarray), (5, 1, np.asfortranarray), (8, 3, sp.csr_array), (5, 2, np.float32)],
)
def test_arrays_give_the_bits_of_one_process(
    spark: SparkSession, n_shards: int, depth: int, layout: Callable[[Any], Any]
) -> None:
    X, y = labelled(83)
    X[X < -0.3] = 0.0
    engine = dt.SparkMapReduceEngine(spark, n_shards, depth)
    assert_same_rounds(dt.Multinomial(), engine, None, layout(X), y)


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize(("n", "dtype"), [(50, np.float64), (4, np.float32)])
def test_a_frame_gives_the_bits_of_one_process(spark: SparkSession, n: int, dtype: Any) -> None:
    X, y = labelled(n, dtype)
    task, engine = dt.Multinomial(), dt.SparkMapReduceEngine(spark, n_shards=5)
    rows = engine.survey(frame_of(spark, X, y), "features", "label", Examiner(task))
    assert_same_rounds(task, engine, rows, X, y)


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize(
    ("lmo", "representation"),
    [("sva", "gram"), ("naive", "factored"), ("power-log", "implicit"), ("lanczos", "gram")],
)
def test_a_run_gives_the_bits_of_one_process(
    spark: SparkSession, multitask: Any, lmo: str, representation: str
) -> None:
    def run(engine: Engine) -> dt.Result:
        return dt.solve(
            dt.LeastSquares(),
            *multitask,
            radius=1.0,
            lmo=lmo,
            representation=representation,
            epochs=2,
            engine=engine,
            progress=False,
        )

    found, expected = run(dt.SparkMapReduceEngine(spark, 3)), run(dt.LocalEngine(3))
    for one, other in ((found.W.U, expected.W.U), (found.W.s, expected.W.s)):
        np.testing.assert_array_equal(one, other)
    assert (found.objective, found.gap) == (expected.objective, expected.gap)

    def counted(result: dt.Result) -> list[dict[str, Any]]:
        return [
            {name: value for name, value in record.items() if not re.search("seconds|bytes", name)}
            for record in result.history
        ]

    assert counted(found) == counted(expected)


@pytest.mark.usefixtures("nothing_left")
def test_hundreds_of_epochs_leave_lineage_and_storage_flat(spark: SparkSession) -> None:
    rows, n = some_rows(), 300
    here = dt.LocalEngine(2).start(Tally(), rows)
    there = dt.SparkMapReduceEngine(spark, n_shards=2).start(Tally(), rows)
    before = broadcast_files(spark)
    for workers in (here, there):
        workers.build("build", 1.0)
    lineage = [len(there._states.toDebugString())]
    for epoch in range(n):
        for workers in (here, there):
            workers.apply("add", 0.1 * epoch)
        if epoch % 100 == 99:
            lineage.append(len(there._states.toDebugString()))
            assert persisted(spark) == 2
            assert broadcast_files(spark) == before
    np.testing.assert_array_equal(there.sum("tell"), here.sum("tell"))
    assert max(lineage) <= lineage[0] + 20  # numbers of RDDs and sizes have more digits
    for workers in (here, there):
        workers.close()


@pytest.mark.usefixtures("nothing_left")
def test_before_the_first_build_rounds_are_on_the_shards(spark: SparkSession) -> None:
    workers = dt.SparkMapReduceEngine(spark, n_shards=5).start(Tally(), some_rows(3))
    assert workers.shard_rows == [0, 1, 0, 1, 1]
    np.testing.assert_array_equal(workers.sum("rows"), [3.0])
    assert workers.cost.compute > 0.0
    assert workers.cost.wait > workers.cost.compute
    assert 8 <= workers.cost.bytes < 1000
    assert len(workers.gather("rows")) == 5
    workers.close()


@pytest.mark.usefixtures("nothing_left")
def test_the_users_own_error_comes_with_its_traceback(spark: SparkSession, tmp_path: Path) -> None:
    flag = tmp_path / "fail"
    flag.touch()
    workers = dt.SparkMapReduceEngine(spark, 2).start(FailsWhile(flag, once=False), some_rows())
    workers.build("build", 0.0)
    with pytest.raises(dt.WorkerError, match=r"(?s)add failed.*, in add.*own mistake"):
        workers.apply("add", 1.0)
    assert persisted(spark) == 1  # the shards
    workers.close()


@pytest.mark.usefixtures("nothing_left")
def test_a_task_that_fails_once_changes_no_bit(spark: SparkSession, tmp_path: Path) -> None:
    flag = tmp_path / "fail"
    rows = some_rows()
    here = dt.LocalEngine(2).start(Tally(), rows)
    there = dt.SparkMapReduceEngine(spark, 2).start(FailsWhile(flag, once=True), rows)
    for workers in (here, there):
        workers.build("build", 0.5)
        workers.apply("add", 1.0)
        flag.touch()
        workers.apply("add", 2.0)
    np.testing.assert_array_equal(there.sum("tell"), here.sum("tell"))
    assert 1 <= there.restarts <= 2  # two tasks run at once, and both may have seen the file
    for workers in (here, there):
        workers.close()


@pytest.mark.usefixtures("nothing_left")
def test_lost_states_are_made_again(spark: SparkSession) -> None:
    rows = some_rows()
    here = dt.LocalEngine(2).start(Tally(), rows)
    there = dt.SparkMapReduceEngine(spark, 2, max_restarts=1).start(Tally(), rows)
    for workers in (here, there):
        workers.build("build", 0.5)
        workers.apply("add", 1.0)
        workers.apply("add", 3.0)
    lose_blocks(spark)
    np.testing.assert_array_equal(there.sum("tell"), here.sum("tell"))
    assert there.restarts == 1
    lose_blocks(spark)
    with pytest.raises(dt.WorkerError, match="after 1 restarts"):
        there.sum("tell")
    for workers in (here, there):
        workers.close()


def test_killed_executors_change_no_bit(local_cluster: SparkSession) -> None:
    X, y = labelled(30)
    task = dt.Multinomial()
    engine = dt.SparkMapReduceEngine(local_cluster, n_shards=3)
    here = ArrayRows.examined(X, y, Examiner(task))
    there = engine.survey(frame_of(local_cluster, X, y), "features", "label", Examiner(task))
    program = ShardProgram(task.represent("implicit"), (D, M))
    expected = rounds(dt.LocalEngine(3).start(program, here))
    workers = engine.start(program, there)
    update = workers.apply

    def update_and_kill(method: str, *args: Any) -> None:
        update(method, *args)
        for pid in executor_pids(local_cluster):  # both: one of them may hold no state at all
            kill(pid)

    workers.apply = update_and_kill  # type: ignore[method-assign]
    for one, other in zip(rounds(workers), expected, strict=True):
        np.testing.assert_array_equal(one, other)
    assert workers.restarts == 1
    assert persisted(local_cluster) == 0


def lose_blocks(spark: SparkSession) -> None:
    """Take every persisted block away from Spark, as if its executors were gone."""
    for rdd in list(spark.sparkContext._jsc.getPersistentRDDs().values()):
        rdd.unpersist(True)


@pytest.mark.usefixtures("nothing_left")
def test_rows_that_change_are_noticed(spark: SparkSession, tmp_path: Path) -> None:
    flag = tmp_path / "other"

    def read(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in batches:
            values = batch.column("id").to_numpy() + (0.5 if flag.exists() else 0.0)
            yield pa.RecordBatch.from_pydict({"value": values})

    frame = spark.range(0, 20, 1, 2).mapInArrow(read, "value double")
    engine = dt.SparkMapReduceEngine(spark, n_shards=3)
    rows = engine.survey(frame, ["value"], None, plain)
    workers = engine.start(Tally(), rows)
    workers.build("build", 0.0)
    flag.touch()
    lose_blocks(spark)
    for shuffled in Path(os.environ["SPARK_LOCAL_DIRS"]).rglob("shuffle_*"):
        shuffled.unlink()
    with pytest.raises(dt.RowsChangedError, match=r"rows of shard \d .*persist the DataFrame"):
        workers.sum("tell")
    workers.close()


@pytest.mark.usefixtures("nothing_left")
def test_an_interrupt_cancels_the_jobs(spark: SparkSession, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    workers = dt.SparkMapReduceEngine(spark, 2).start(Sleeper(begun), some_rows())
    workers.build("build", 1.0)

    def interrupt() -> None:
        deadline = time.monotonic() + PATIENCE
        while not begun.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    impatient = threading.Thread(target=interrupt)
    impatient.start()
    with pytest.raises(KeyboardInterrupt):
        workers.sum("tell")
    impatient.join()
    assert list(spark.sparkContext.statusTracker().getActiveJobsIds()) == []
    workers.apply("add", 1.0)  # the workers can be used all the same
    workers.close()
    assert spark.range(3).count() == 3


def test_a_shard_keeps_its_layout_on_the_way() -> None:
    X = np.arange(60_000.0).reshape(300, 200)
    for layout in (X, sp.csr_array(X)):
        for shard in split_rows(layout, np.arange(300.0), 3):
            there: Shard = unparcel(parcel(shard))
            assert there.digest() == shard.digest()
            if sp.issparse(layout):
                assert there.X.indices.dtype == shard.X.indices.dtype
                continue
            assert there.X.flags.writeable
            assert there.X.flags.c_contiguous


def test_a_parcel_must_be_whole() -> None:
    with pytest.raises(ValueError, match="more pieces"):
        unparcel([*parcel(1), b"more"])


def test_blocks_of_rows_travel_once() -> None:
    X = np.asfortranarray(np.ones((5000, 10)))
    pickled = pickle.dumps(RowBlocks(X, rows=1000))
    assert len(pickled) < 1.1 * X.nbytes
    there = pickle.loads(pickled)
    for block, same in zip(there, RowBlocks(X, rows=1000), strict=True):
        assert block.rows == same.rows
        assert block.X.strides == same.X.strides
        assert block.XT.strides == same.XT.strides


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"n_shards": 0}, "n_shards must be a whole number of at least 1, got 0."),
        ({"depth": 0}, "depth must be a whole number of at least 1, got 0."),
        ({"max_restarts": -1}, "max_restarts must be a whole number of at least 0, got -1."),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], error: str) -> None:
    with pytest.raises(ValueError, match=re.escape(error)):
        dt.SparkMapReduceEngine(None, **arguments)


def test_spark_connect_is_refused() -> None:
    methods = dict.fromkeys(("range", "createDataFrame"), lambda self: None)
    remote = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session", **methods})
    with pytest.raises(TypeError, match=r"spark must be a classic .* take SparkEngine"):
        dt.SparkMapReduceEngine(remote())


def test_a_program_that_cannot_be_pickled_is_refused_at_once(spark: SparkSession) -> None:
    class Locked(Tally):
        def __init__(self) -> None:
            self.lock = threading.Lock()

    with pytest.raises(TypeError, match=r"cannot pickle '_thread.lock'"):
        dt.SparkMapReduceEngine(spark, 2).start(Locked(), some_rows())
    assert persisted(spark) == 0


def test_a_stopped_session_is_refused(spark: SparkSession) -> None:
    engine = dt.SparkMapReduceEngine(spark, 2)
    workers = engine.start(Tally(), some_rows())
    spark.stop()
    with pytest.raises(RuntimeError, match="has been stopped"):
        workers.sum("rows")
    workers.close()
    with pytest.raises(RuntimeError, match="has been stopped"):
        engine.start(Tally(), some_rows())
