"""Workers that raise, exit, are killed or hang, in every phase of a run, on a real Spark."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.clusters import wait_until_gone

import dfwtrace as dt
from dfwtrace.engines.resident import crew

N_SHARDS = 4
OPTIONS: dict[str, Any] = {
    "radius": 10.0,
    "epochs": 4,
    "certify_every": 2,
    "representation": "implicit",
}

# The method of a task that runs on the workers in each phase of an epoch.
PHASES = {
    "power step": "rmatvec",
    "line search": "linesearch",
    "update": "update",
    "certificate": "gradient",
}


class Sabotaged(dt.Multinomial):
    """Fails once in each of some methods, at its second call there, and leaves a mark."""

    def __init__(self, way: str, methods: list[str], marks: Path) -> None:
        super().__init__()
        self.way, self.methods, self.marks = way, methods, marks

    def represent(self, name: str) -> Any:
        form = super().represent(name)
        for method in self.methods:
            setattr(form, method, Sabotage(self.way, getattr(form, method), self.marks / method))
        return form


class Sabotage:
    """A method that fails at its second call, unless somebody has left a mark before."""

    def __init__(self, way: str, healthy: Any, mark: Path) -> None:
        self.way, self.healthy, self.mark, self.calls = way, healthy, mark, 0

    def __call__(self, *args: Any) -> Any:
        self.calls += 1
        if self.calls == 2:
            try:
                with self.mark.open("x") as mark:
                    mark.write(str(os.getpid()))
            except FileExistsError:
                pass
            else:
                self.fail()
        return self.healthy(*args)

    def fail(self) -> None:
        if self.way == "raise":
            raise ArithmeticError("a bit flipped")
        if self.way == "exit":
            os._exit(3)
        if self.way == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.way == "stop":  # the process hangs as a whole, heartbeat and all
            os.kill(os.getpid(), signal.SIGSTOP)
        if self.way == "kill the JVM":
            daemon = os.getppid()
            executor = int(Path(f"/proc/{daemon}/stat").read_text().split()[3])
            os.kill(executor, signal.SIGKILL)
        time.sleep(3600)  # "hang", or until the JVM's end is noticed


@pytest.fixture(scope="module")
def data() -> tuple[Any, Any]:
    X, y, _ = dt.datasets.make_multiclass(n=101, d=11, m=6, rank=3, seed=4)
    return X, y


@pytest.fixture(scope="module")
def undisturbed(data: Any) -> dt.Result:
    return dt.solve(dt.Multinomial(), *data, engine=dt.LocalEngine(N_SHARDS), **OPTIONS)


def assert_same_run(result: dt.Result, expected: dt.Result) -> None:
    for name in ("U", "s", "V"):
        np.testing.assert_array_equal(getattr(result.W, name), getattr(expected.W, name), name)
    assert (result.objective, result.gap) == (expected.objective, expected.gap)
    for name in ("objective", "gap", "gamma", "sigma", "numbers_sent", "other_numbers"):
        np.testing.assert_array_equal(
            result.history.column(name), expected.history.column(name), name
        )


def run_sabotaged(
    spark: Any, way: str, data: Any, marks: Path, phases: Sequence[str], **settings: Any
) -> dt.Result:
    methods = [PHASES[phase] for phase in phases]
    engine = dt.SparkEngine(spark, N_SHARDS, 2, max_restarts=len(methods), **settings)
    result = dt.solve(Sabotaged(way, methods, marks), *data, engine=engine, **OPTIONS)
    assert sorted(mark.name for mark in marks.iterdir()) == sorted(methods)  # each has happened
    if way != "raise":  # Spark may use again a process whose task has raised
        wait_until_gone({int(mark.read_text()) for mark in marks.iterdir()})
    return result


@pytest.mark.parametrize("way", ["raise", "exit", "kill", "hang"])
def test_a_lost_worker_changes_no_bit_in_any_phase(
    spark: Any, data: Any, undisturbed: dt.Result, tmp_path: Path, way: str
) -> None:
    settings = {"round_timeout": 3.0} if way == "hang" else {}
    result = run_sabotaged(spark, way, data, tmp_path, list(PHASES), **settings)
    assert_same_run(result, undisturbed)


def test_a_process_that_has_stopped_is_noticed_without_a_time_limit(
    spark: Any,
    data: Any,
    undisturbed: dt.Result,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(crew, "SILENCE", 5.0)
    engine = dt.SparkEngine(spark, N_SHARDS, 2)
    task = Sabotaged("stop", ["linesearch"], tmp_path)
    assert_same_run(dt.solve(task, *data, engine=engine, **OPTIONS), undisturbed)
    assert (tmp_path / "linesearch").exists()


# The four phases, on two clusters: it takes an executor some seconds to be replaced.


def test_a_killed_executor_changes_no_bit(
    local_cluster: Any, data: Any, undisturbed: dt.Result, tmp_path: Path
) -> None:
    phases = ["power step", "update"]
    result = run_sabotaged(local_cluster, "kill the JVM", data, tmp_path, phases)
    assert_same_run(result, undisturbed)


def test_a_killed_executor_of_a_standalone_cluster_changes_no_bit(
    standalone: Any, data: Any, undisturbed: dt.Result, tmp_path: Path
) -> None:
    phases = ["line search", "certificate"]
    result = run_sabotaged(standalone, "kill the JVM", data, tmp_path, phases)
    assert_same_run(result, undisturbed)


def test_a_killed_process_of_a_standalone_cluster_changes_no_bit(
    standalone: Any, data: Any, undisturbed: dt.Result, tmp_path: Path
) -> None:
    frame = frame_of(standalone, *data)
    engine = dt.SparkEngine(standalone, N_SHARDS, 2)
    task = Sabotaged("kill", ["update"], tmp_path)
    result = dt.solve(task, frame, label="label", engine=engine, **OPTIONS)
    assert_same_run(result, undisturbed)
    assert (tmp_path / "update").exists()


def frame_of(spark: Any, X: Any, y: Any) -> Any:
    import pandas as pd

    return spark.createDataFrame(pd.DataFrame({"features": list(X), "label": y}))


def test_the_user_sees_the_workers_own_traceback_and_every_restart(
    spark: Any, data: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine = dt.SparkEngine(spark, N_SHARDS, 2, max_restarts=0)
    with pytest.raises(dt.WorkerError) as caught:
        dt.solve(Sabotaged("raise", ["update"], tmp_path), *data, engine=engine, **OPTIONS)
    message = str(caught.value)
    assert "ArithmeticError: a bit flipped" in message
    assert "in fail" in message  # the line of the user's own code
    assert "max_restarts" in message
    assert "refused" not in message
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="dfwtrace"):
        engine = dt.SparkEngine(spark, N_SHARDS, 2)
        dt.solve(Sabotaged("raise", ["linesearch"], tmp_path), *data, engine=engine, **OPTIONS)
    assert [record.getMessage().split("; ")[1] for record in caplog.records] == [
        "starting the workers again (1 of 3 restarts)"
    ]


class Broken(dt.Multinomial):
    """Fails in the same way every time."""

    def represent(self, name: str) -> Any:
        form = super().represent(name)
        form.linesearch = always_fails
        return form


def always_fails(*args: Any) -> Any:
    raise KeyError("no such column")


def test_an_error_that_comes_again_ends_the_run_before_all_restarts_are_spent(
    spark: Any, data: Any, caplog: pytest.LogCaptureFixture
) -> None:
    engine = dt.SparkEngine(spark, N_SHARDS, 2, max_restarts=50)
    with pytest.raises(dt.WorkerError, match=r"(?s)twice in the same way.*no such column"):
        dt.solve(Broken(), *data, engine=engine, **OPTIONS)
    assert len(caplog.records) == 1


class Unloadable(dt.Multinomial):
    """Cannot be loaded where the workers are."""

    def __reduce__(self) -> Any:
        return import_what_is_missing, ()


def import_what_is_missing() -> None:
    raise ModuleNotFoundError("No module named 'my_features'")


def test_what_workers_lack_is_named(spark: Any, data: Any) -> None:
    class Task(dt.Multinomial):
        def represent(self, name: str) -> Any:
            form = super().represent(name)
            form.missing = Unloadable()
            return form

    engine = dt.SparkEngine(spark, N_SHARDS, 2)
    with pytest.raises(dt.WorkerError, match="No module named 'my_features'"):
        dt.solve(Task(), *data, engine=engine, **OPTIONS)


def test_rows_that_come_back_different_are_noticed(spark: Any, data: Any, tmp_path: Path) -> None:
    frame = frame_of(spark, *data)
    # Not the same every time that Spark computes it, and known to none but the checksum.
    changing = frame.selectExpr(
        "TRANSFORM(features, x -> x + 1e-9 * (UNIX_MICROS(NOW()) % 1000003)) AS features", "label"
    )
    flickering = changing.mapInArrow(flicker, changing.schema)
    engine = dt.SparkEngine(spark, N_SHARDS, 2)
    with pytest.raises(dt.RowsChangedError, match=r"shard \d.*persist the DataFrame"):
        dt.solve(
            Sabotaged("kill", ["update"], tmp_path),
            flickering,
            label="label",
            engine=engine,
            **OPTIONS,
        )


def flicker(batches: Any) -> Any:
    """Adds a number to the features that is another one at every call."""
    import pyarrow as pa

    shift = 1e-6 * (time.time_ns() % 1_000_003)
    for batch in batches:
        features = [
            [number + shift for number in row] for row in batch.column("features").to_pylist()
        ]
        yield pa.RecordBatch.from_arrays(
            [pa.array(features, pa.list_(pa.float64())), batch.column("label")],
            schema=batch.schema,
        )


def test_rows_that_get_fewer_are_noticed(spark: Any, data: Any) -> None:
    frame = frame_of(spark, *data).filter("rand() < 0.5")  # another half each time
    changing = frame.mapInArrow(drop_some, frame.schema)
    engine = dt.SparkEngine(spark, N_SHARDS, 2)
    with pytest.raises(dt.RowsChangedError, match="persist"):
        dt.solve(dt.Multinomial(6), changing, label="label", engine=engine, **OPTIONS)


def drop_some(batches: Any) -> Any:
    for batch in batches:
        yield batch.slice(time.time_ns() // 1000 % 17)


def test_a_session_stopped_during_a_run_ends_it_with_a_clear_error(
    sessions: Any, data: Any
) -> None:
    def stop(W: Any, record: dict[str, Any]) -> None:
        sessions.stop()

    engine = dt.SparkEngine(sessions.on("local[2]"), N_SHARDS, 2)
    with pytest.raises(RuntimeError, match="SparkContext has been stopped"):
        dt.solve(dt.Multinomial(), *data, engine=engine, callback=stop, **OPTIONS)
