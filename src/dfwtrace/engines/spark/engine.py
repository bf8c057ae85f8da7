"""The engine of choice on Spark: workers that stay for the whole run, behind sockets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from dfwtrace.data.rows import ArrayRows, Examine
from dfwtrace.data.shards import shard_bounds, split_rows
from dfwtrace.engines.resident.crew import Crew
from dfwtrace.engines.resident.feeding import pieces, receive_shards
from dfwtrace.engines.resident.handshake import fresh_secret
from dfwtrace.engines.resident.invitation import Invitation
from dfwtrace.engines.resident.reception import Reception
from dfwtrace.engines.resident.service import Load, serve
from dfwtrace.engines.resident.wire import Value
from dfwtrace.engines.resident.workers import ResidentWorkers
from dfwtrace.engines.spark.assembling import assemble
from dfwtrace.engines.spark.job import BackgroundJob, run_job
from dfwtrace.engines.spark.packing import keys_for, packed
from dfwtrace.engines.spark.session import Cluster
from dfwtrace.engines.spark.survey import FrameRows, survey
from dfwtrace.validation import check_count, check_positive, describe


class SparkEngine:
    """Logical shards on the executors of a Spark cluster, held by workers that stay.

    One barrier job runs for as long as the run does. Its tasks build their states once, then answer
    rounds over sockets, at a fraction of a millisecond each. If a worker is lost, the job is
    started again and the run goes on to the same bits.

    Parameters
    ----------
    spark : SparkSession, optional
        The active session by default, or a new one.
    n_shards : int
        Number of logical shards. The same number gives the same bits on every engine.
    n_workers : int, optional
        Number of tasks that hold the shards, at most `n_shards`; by default, as many as there are
        shards for and the cluster can run at once.
    fan_in : int
        Workers that report to any one worker or to the driver, at the most; with more workers than
        this, partial sums go up a tree.
    max_restarts : int
        How often lost workers may be started again in a run.
    host, bind : str, optional
        The driver's address as executors reach it, and the address to listen at; by default,
        Spark's own `spark.driver.host` and `spark.driver.bindAddress`.
    port : int
        To listen at; any free one by default.
    start_timeout : float
        Seconds for the workers to come. The time in which Spark reads and shuffles a DataFrame for
        them does not count.
    round_timeout : float, optional
        Seconds that a round may take before its workers count as hung; no limit by default. A
        machine or a process that has stopped, and a worker that should be at work and uses no
        processor for two minutes, are noticed in any case.
    largest_message : int
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
        spark: Any = None,
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
        """Processors at work, for the estimate of times."""
        return self.cluster.processors(self.n_workers or self.n_shards)

    def survey(self, frame: Any, features: Any, label: Any, examine: Examine) -> FrameRows:
        """Look through a DataFrame where it is."""
        self._choose_workers()  # what is refused is refused before all rows are read
        return survey(frame, features, label, examine, self._collect)

    def start(self, program: Any, rows: ArrayRows | FrameRows) -> ResidentWorkers:
        n_workers = self._choose_workers()
        keys = (
            None
            if isinstance(rows, ArrayRows)
            else keys_for(self.cluster.spark, n_workers, self._collect)
        )

        def launch() -> Crew:
            return self._launch(program, rows, n_workers, keys)

        return ResidentWorkers(launch, self.n_shards, self.max_restarts, self.round_timeout)

    def _choose_workers(self) -> int:
        self.cluster.check_alive()
        self.cluster.check_barrier()
        return self.cluster.choose_workers(self.n_workers, self.n_shards, self.start_timeout)

    def _collect(self, frame: Any) -> Any:
        return run_job(self.cluster, "dfwtrace: a look at the rows", frame.collect)

    def _launch(
        self,
        program: Any,
        rows: ArrayRows | FrameRows,
        n_workers: int,
        keys: list[int] | None,
    ) -> Crew:
        self.cluster.check_alive()
        if not self.cluster.connect:  # a lost executor takes a while to be replaced
            self.cluster.wait_for_slots(n_workers, self.start_timeout)
        host = self.host or self.cluster.driver_host()
        bind = self.bind or host
        if self.bind is None and not self.cluster.connect:  # there it is the server's
            bind = self.cluster.setting("spark.driver.bindAddress", host)
        secret = fresh_secret()
        reception = Reception(bind, self.port, secret)
        invitation = Invitation(
            host,
            reception.port,
            secret,
            n_workers,
            self.n_shards,
            self.fan_in,
            self.start_timeout,
            self.largest_message,
        )
        try:
            frame, load = _source(self.cluster, rows, invitation, keys)
            serving = frame.mapInArrow(_task(invitation, program, load), "worker int", barrier=True)
            job = BackgroundJob(
                self.cluster,
                f"dfwtrace: {n_workers} resident workers",
                serving.collect,
                # Tasks that run will call, or say why they cannot; Connect does not tell of them.
                prepares=keys is not None or not self.cluster.connect,
            )
            feed = _feed(rows, invitation)
        except BaseException:
            reception.close()
            raise
        return Crew(invitation, reception, job, feed)

    def __repr__(self) -> str:
        return f"SparkEngine(n_shards={self.n_shards}, n_workers={self.n_workers})"


def _shards_of(invitation: Invitation) -> list[tuple[int, int]]:
    """The range of shards that each worker holds."""
    return shard_bounds(invitation.n_shards, invitation.n_workers)


def _feed(rows: ArrayRows | FrameRows, invitation: Invitation) -> Any:
    """What sends rows of this process to a worker; None for rows that Spark has."""
    if not isinstance(rows, ArrayRows):
        return None
    shards = split_rows(rows.X, rows.y, invitation.n_shards)

    def feed(worker: int) -> Iterable[list[Value]]:
        first, last = _shards_of(invitation)[worker]
        return pieces(shards[first:last], invitation.largest_message)

    return feed


def _source(
    cluster: Cluster,
    rows: ArrayRows | FrameRows,
    invitation: Invitation,
    keys: list[int] | None,
) -> tuple[Any, Any]:
    """A DataFrame with a partition for each worker, and what makes its shards of it there."""
    n_workers = invitation.n_workers
    ranges = _shards_of(invitation)
    if isinstance(rows, ArrayRows) or keys is None:
        empty = cluster.spark.range(0, n_workers, 1, n_workers)

        def receive(worker: int, batches: Iterator[Any]) -> Load:
            first, last = ranges[worker]
            return lambda next_frame: receive_shards(next_frame, last - first)

        return empty, receive
    bounds = shard_bounds(rows.facts.n_rows, invitation.n_shards)
    facts = rows.facts
    owned = [(bounds[first][0], bounds[last - 1][1]) for first, last in ranges]
    frame = packed(rows, owned, keys).repartition(n_workers, "key")

    def unpack(worker: int, batches: Iterator[Any]) -> Load:
        first, last = ranges[worker]
        return lambda next_frame: assemble(batches, facts, bounds[first:last], first)

    return frame, unpack


def _task(invitation: Invitation, program: Any, load: Any) -> Any:
    """What each task of the barrier job does. A closure that does not capture the engine."""

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None  # this runs within a task
        worker = context.partitionId()
        serve(invitation, worker, program, load(worker, batches), context.cpus())
        for _ in batches:  # Spark uses a process again only if it has read all that it was sent
            pass
        yield pyarrow.RecordBatch.from_pydict({"worker": pyarrow.array([worker], "int32")})

    return run
