"""The engine of choice on Spark: workers that stay for the whole run, behind sockets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from dfwtrace.data.shards import ArrayRows, Examine, Shard, split_rows
from dfwtrace.engines.base import Engine
from dfwtrace.engines.resident.connections import JoinInfo, Listener, new_secret
from dfwtrace.engines.resident.wire import NextFrame, receive_shards, shard_payloads
from dfwtrace.engines.resident.worker import serve
from dfwtrace.engines.resident.worker_group import ResidentWorkers, Rows, WorkerGroup
from dfwtrace.engines.spark.dataframe import task_context
from dfwtrace.engines.spark.packing import FrameRows, shuffled, survey
from dfwtrace.engines.spark.session import BackgroundJob, Cluster
from dfwtrace.validation import check_count, check_positive, describe

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

#: Loads a worker's shards from its task's input, or from the frames that the driver sends.
Load = Callable[[int, "Iterator[pa.RecordBatch]", NextFrame], list[Shard]]


class SparkEngine(Engine):
    """Logical shards on the executors of a Spark cluster, held by workers that stay.

    One barrier job runs for as long as the run does. Its tasks build their states once, then answer
    rounds over sockets, at a fraction of a millisecond each. If a worker is lost, the job is
    started again and the run goes on to the same bits.

    Parameters
    ----------
    spark : SparkSession, default=None
        The active session by default, or a new one. On a local master its Python workers are this
        process's Python, unless PYSPARK_PYTHON or `spark.pyspark.python` names another.
    n_shards : int, default=8
        Number of logical shards. The same number gives the same bits on every engine.
    n_workers : int, default=None
        Number of tasks that hold the shards, at most `n_shards`; by default, as many as there are
        shards for and the cluster can run at once.
    fan_in : int, default=16
        Workers that report to any one worker or to the driver, at the most; with more workers than
        this, partial sums go up a tree.
    max_restarts : int, default=3
        How often lost workers may be started again in a run.
    host, bind : str, default=None
        The driver's address as executors reach it, and the address to listen at; by default,
        Spark's own `spark.driver.host` and `spark.driver.bindAddress`.
    port : int, default=0
        To listen at; any free one by default.
    start_timeout : float, default=120.0
        Seconds for the workers to join. The time in which Spark reads and shuffles a DataFrame for
        them does not count.
    round_timeout : float, default=None
        Seconds that a round may take before its workers count as hung; no limit by default. A
        machine or a process that has stopped, and a worker that should be at work and uses no
        processor for two minutes, are noticed in any case.
    largest_message : int, default=4294967296
        Bytes that a message may have.

    Examples
    --------
    >>> import dfwtrace as dt
    >>> engine = dt.SparkEngine(spark, n_shards=8)  # doctest: +SKIP
    >>> result = dt.solve(  # doctest: +SKIP
    ...     dt.Multinomial(), df, features="features", label="label", radius=30.0, engine=engine
    ... )
    """

    def __init__(
        self,
        spark: SparkSession | None = None,
        n_shards: int = 8,
        n_workers: int | None = None,
        *,
        fan_in: int = 16,
        max_restarts: int = 3,
        host: str | None = None,
        bind: str | None = None,
        port: int = 0,
        start_timeout: float = 120.0,
        round_timeout: float | None = None,
        largest_message: int = 4 << 30,
    ) -> None:
        self.n_shards = check_count("n_shards", n_shards, 1)
        self.n_workers = None if n_workers is None else check_count("n_workers", n_workers, 1)
        if self.n_workers is not None and self.n_workers > self.n_shards:
            raise ValueError(
                f"n_workers must be at most n_shards = {n_shards}, got {n_workers}: a worker holds "
                "whole shards."
            )
        self.fan_in = check_count("fan_in", fan_in, 1)
        self.max_restarts = check_count("max_restarts", max_restarts, 0)
        for name, address in (("host", host), ("bind", bind)):
            if address is not None and not (isinstance(address, str) and address):
                raise TypeError(f"{name} must be an address as text, got {describe(address)}.")
        self.host, self.bind = host, bind
        self.port = check_count("port", port, 0)
        if self.port > 65535:
            raise ValueError(f"port must be at most 65535, got {port}.")
        self.start_timeout = check_positive("start_timeout", start_timeout)
        self.round_timeout = (
            None if round_timeout is None else check_positive("round_timeout", round_timeout)
        )
        self.largest_message = check_count("largest_message", largest_message, 1 << 16)
        self.cluster = Cluster(spark)

    @property
    def n_jobs(self) -> int:
        return self.cluster.processors(self.n_workers or self.n_shards)

    def survey(
        self, frame: DataFrame, features: object, label: object, examine: Examine
    ) -> FrameRows:
        self._choose_workers()  # what is refused is refused before all rows are read
        return survey(frame, features, label, examine, self.cluster.collect)

    def start(self, program: object, rows: ArrayRows | FrameRows) -> ResidentWorkers:
        """Cut the rows into shards; see `Engine.start`."""
        n_workers = self._choose_workers()
        source: ArrayRows | tuple[DataFrame, Load] = (
            rows
            if isinstance(rows, ArrayRows)
            else shuffled(rows, self.n_shards, n_workers, self.cluster.collect)
        )
        launch = partial(self._launch, program, source, n_workers)
        return ResidentWorkers(launch, self.max_restarts, self.round_timeout)

    def _choose_workers(self) -> int:
        self.cluster.check_alive()
        if self.cluster.setting("spark.dynamicAllocation.enabled", "false").lower() == "true":
            raise RuntimeError(
                "spark.dynamicAllocation.enabled must be false for resident workers (Spark's "
                "barrier jobs do not go with it); or take SparkMapReduceEngine."
            )
        return self.cluster.choose_workers(self.n_workers, self.n_shards, self.start_timeout)

    def _launch(
        self, program: object, source: ArrayRows | tuple[DataFrame, Load], n_workers: int
    ) -> WorkerGroup:
        self.cluster.check_alive()
        host = self.host or self.cluster.driver_host()
        bind = self.bind or host
        if not self.cluster.connect:
            # A lost executor takes a while to be replaced.
            self.cluster.wait_for_slots(n_workers, self.start_timeout)
            bind = self.bind or self.cluster.setting("spark.driver.bindAddress", host)
        secret = new_secret()
        listener = Listener(bind, self.port, secret)
        try:
            limits = (self.fan_in, self.start_timeout, self.largest_message)
            info = JoinInfo(host, listener.port, secret, n_workers, self.n_shards, *limits)
            send: Rows | None = None
            load: Load
            if isinstance(source, ArrayRows):
                frame = self.cluster.spark.range(0, n_workers, 1, n_workers)
                load, send = partial(_received, info), _sender(source, info)
            else:
                frame, load = source
            serving = frame.mapInArrow(_task(info, program, load), "worker int", barrier=True)
            # Tasks that run will call, or say why they cannot; Connect does not show them.
            prepares = send is None or not self.cluster.connect
            name = f"dfwtrace: {n_workers} resident workers"
            job = BackgroundJob(self.cluster, name, serving.collect, prepares)
        except BaseException:
            listener.close()
            raise
        return WorkerGroup(info, listener, job, send)

    def __repr__(self) -> str:
        return f"SparkEngine(n_shards={self.n_shards}, n_workers={self.n_workers})"


# What follows makes closures for the tasks, none of which may capture the engine.


def _sender(rows: ArrayRows, info: JoinInfo) -> Rows:
    shards = split_rows(rows.X, rows.y, info.n_shards)
    return lambda worker: shard_payloads(
        shards[slice(*info.shards_of(worker))], info.largest_message
    )


def _received(info: JoinInfo, worker: int, _: object, next_frame: NextFrame) -> list[Shard]:
    first, last = info.shards_of(worker)
    return receive_shards(next_frame, last - first)


def _task(
    info: JoinInfo, program: object, load: Load
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        context = task_context()
        worker = context.partitionId()
        serve(info, worker, program, partial(load, worker, batches), context.cpus())
        for _ in batches:  # Spark uses a process again only if it has read all that it was sent
            pass
        yield pa.RecordBatch.from_pydict({"worker": pa.array([worker], "int32")})

    return run
