"""The paper's own form on Spark: every round is a job, its replies added up a tree."""

from __future__ import annotations

from typing import Any

from dfwtrace.data.rows import ArrayRows, Examine
from dfwtrace.engines.spark.job import run_job
from dfwtrace.engines.spark.mapreduce.workers import MapReduceWorkers
from dfwtrace.engines.spark.session import Cluster
from dfwtrace.engines.spark.survey import FrameRows, survey
from dfwtrace.validation import check_count


class SparkMapReduceEngine:
    """Logical shards in an RDD; a round is one Spark job: broadcast, map, and add up along a tree.

    For clusters that forbid barrier jobs, or sockets between driver and executors; elsewhere
    `SparkEngine` does the same rounds in a fraction of the time. The same `n_shards` gives the same
    bits on both.

    Parameters
    ----------
    spark : SparkSession, optional
        The active session by default, or a new one. Spark Connect has no RDDs and is refused.
    n_shards : int
        Number of logical shards, and of partitions.
    depth : int
        Levels of the tree that replies are added along: the driver receives about the depth-th
        root of `n_shards` partial sums. With 1, all replies go to the driver.
    max_restarts : int
        How often states that were lost may be made again in a run, after Spark itself has tried
        `spark.task.maxFailures` times.

    Examples
    --------
    >>> import dfwtrace as dt
    >>> engine = dt.SparkMapReduceEngine(spark, n_shards=8)  # doctest: +SKIP
    >>> result = dt.solve(  # doctest: +SKIP
    ...     dt.Multinomial(), df, features="features", label="label", radius=30.0, engine=engine
    ... )
    """

    def __init__(
        self, spark: Any = None, n_shards: int = 8, depth: int = 2, *, max_restarts: int = 3
    ) -> None:
        self.n_shards = check_count("n_shards", n_shards, 1)
        self.depth = check_count("depth", depth, 1)
        self.max_restarts = check_count("max_restarts", max_restarts, 0)
        self.cluster = Cluster(spark)
        if self.cluster.connect:
            raise TypeError(
                "spark must be a classic SparkSession for SparkMapReduceEngine, got one of Spark "
                "Connect, which has no RDDs: take SparkEngine."
            )

    @property
    def n_jobs(self) -> int:
        """Processors at work, for the estimate of times."""
        return self.cluster.processors(self.n_shards)

    def survey(self, frame: Any, features: Any, label: Any, examine: Examine) -> FrameRows:
        """Look through a DataFrame where it is."""
        self.cluster.check_alive()
        return survey(frame, features, label, examine, self._collect)

    def _collect(self, frame: Any) -> Any:
        return run_job(self.cluster, "dfwtrace: a look at the rows", frame.collect)

    def start(self, program: Any, rows: ArrayRows | FrameRows) -> MapReduceWorkers:
        self.cluster.check_alive()
        return MapReduceWorkers(
            self.cluster, program, rows, self.n_shards, self.depth, self.max_restarts
        )

    def __repr__(self) -> str:
        return f"SparkMapReduceEngine(n_shards={self.n_shards}, depth={self.depth})"
