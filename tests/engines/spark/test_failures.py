"""Workers that raise, exit, are killed or hang, in every phase of a run, on a real Spark."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.clusters import wait_until_gone
from tests.engines.spark.runs import frame_of

import dfwtrace as dt
from dfwtrace.engines.resident import links

N_SHARDS = 4
OPTIONS: dict[str, Any] = {
    "radius": 10.0,
    "solver": "dfw",
    "max_iter": 4,
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
    X, y, _ = dt.datasets.make_multiclass(n=101, d=11, m=6, rank=3, random_state=4)
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
    engine = dt.SparkEngine(spark, N_SHARDS, 2, **{"max_restarts": len(methods), **settings})
    result = dt.solve(Sabotaged(way, methods, marks), *data, engine=engine, **OPTIONS)
    assert sorted(mark.name for mark in marks.iterdir()) == sorted(methods)  # each has happened
    if way != "raise":  # Spark may use again a process whose task has raised
        wait_until_gone({int(mark.read_text()) for mark in marks.iterdir()})
    return result


@pytest.mark.parametrize("way", ["raise", "exit", "kill"])
def test_a_lost_worker_changes_no_bit_in_any_phase(
    spark: Any,
    data: Any,
    undisturbed: dt.Result,
    tmp_path: Path,
    way: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert_same_run(run_sabotaged(spark, way, data, tmp_path, list(PHASES)), undisturbed)
    # Nobody is left to wonder why it took so long.
    assert [record.getMessage().split("; ")[1] for record in caplog.records] == [
        f"starting the workers again ({k} of 4 restarts)" for k in (1, 2, 3, 4)
    ]


def test_a_worker_that_hangs_changes_no_bit(
    spark: Any, data: Any, undisturbed: dt.Result, tmp_path: Path
) -> None:
    # A machine that is busy may make a round wait for as long, which changes no bit either.
    settings = {"round_timeout": 2.0, "max_restarts": 20}
    result = run_sabotaged(spark, "hang", data, tmp_path, ["power step", "update"], **settings)
    assert_same_run(result, undisturbed)


def test_a_process_that_has_stopped_is_noticed_without_a_time_limit(
    spark: Any,
    data: Any,
    undisturbed: dt.Result,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(links, "SILENCE", 5.0)
    engine = dt.SparkEngine(spark, N_SHARDS, 2, max_restarts=20)
    task = Sabotaged("stop", ["linesearch"], tmp_path)
    assert_same_run(dt.solve(task, *data, engine=engine, **OPTIONS), undisturbed)
    assert (tmp_path / "linesearch").exists()


# It takes an executor some seconds to be replaced.
@pytest.mark.parametrize(
    ("master", "phase"), [("local_cluster", "update"), ("standalone", "line search")]
)
def test_a_killed_executor_changes_no_bit(
    master: str,
    phase: str,
    data: Any,
    undisturbed: dt.Result,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    session = request.getfixturevalue(master)
    result = run_sabotaged(session, "kill the JVM", data, tmp_path, [phase])
    assert_same_run(result, undisturbed)


def test_a_killed_process_of_a_standalone_cluster_changes_no_bit(
    standalone: Any,
    data: Any,
    undisturbed: dt.Result,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []
    spark_range = standalone.range
    monkeypatch.setattr(standalone, "range", lambda *a: asked.append(a) or spark_range(*a))
    frame = frame_of(standalone, *data)
    engine = dt.SparkEngine(standalone, N_SHARDS, 2)
    task = Sabotaged("kill", ["update"], tmp_path)
    result = dt.solve(task, frame, label="label", engine=engine, **OPTIONS)
    assert_same_run(result, undisturbed)
    assert (tmp_path / "update").exists()
    assert len(asked) == 1  # for keys that Spark sends to the workers, and not at every launch


def test_the_user_sees_the_workers_own_traceback(spark: Any, data: Any, tmp_path: Path) -> None:
    engine = dt.SparkEngine(spark, N_SHARDS, 2, max_restarts=0)
    with pytest.raises(dt.WorkerError) as caught:
        dt.solve(Sabotaged("raise", ["update"], tmp_path), *data, engine=engine, **OPTIONS)
    message = str(caught.value)
    assert "ArithmeticError: a bit flipped" in message
    assert "in fail" in message  # the line of the user's own code
    assert "max_restarts" in message
    assert "refused" not in message


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
    flickering = frame.mapInArrow(flicker, frame.schema)
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
