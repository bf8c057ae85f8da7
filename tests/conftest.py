"""Settings and small data that several test modules share."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import settings

import dfwtrace as dt

# `tests` is run from the checkout and never installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.clusters import LOCAL, LOCAL_CLUSTER, Sessions, StandaloneCluster, all_pids
from tests.problems import make_problem, problem_with_gradients

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dfwtrace.linalg.gradient import GradientOperator
    from dfwtrace.solvers.problem import Problem

Array = npt.NDArray[np.float64]

JAVA = Path(__file__).resolve().parents[1] / "tools" / "java.sh"

# The fixtures that need Spark. The masters are in the order of their tests.
MASTERS = ["spark", "local_cluster", "standalone"]
SPARK_FIXTURES = {"sessions", "standalone_cluster", *MASTERS}
# Of these, the ones that need more than a session in this process.
CLUSTER_FIXTURES = {"standalone_cluster", "local_cluster", "standalone"}
LEFT_OUT = pytest.StashKey[int]()

# No deadline: compiling a kernel takes a second, and no test asserts a time. The same examples in
# every run: a failure must be seen by whoever made the change, not by the next one.
settings.register_profile("dfwtrace", deadline=None, derandomize=True)
settings.load_profile("dfwtrace")


def pytest_configure(config: pytest.Config) -> None:
    """Let Ctrl-C be Ctrl-C: a shell starts what runs in its background with it switched off."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def multitask() -> tuple[Array, Array]:
    """Features and targets of a small regression, with noise so that no optimum is exact."""
    X, Y, _ = dt.datasets.make_multitask(n=60, d=7, m=5, rank=3, noise=0.3, random_state=1)
    return X, Y


@pytest.fixture(scope="session")
def multiclass() -> tuple[Array, npt.NDArray[np.int64]]:
    """Features and labels of a small classification; one class, the third, does not occur."""
    X, y, _ = dt.datasets.make_multiclass(n=60, d=7, m=4, rank=3, random_state=1)
    return X, y


@pytest.fixture
def problem_of() -> Iterator[Callable[..., Problem]]:
    """`make_problem`, with workers that are closed when the test has ended."""
    with ExitStack() as stack:
        yield lambda *data, **options: stack.enter_context(closing(make_problem(*data, **options)))


@pytest.fixture
def gradient_of() -> Iterator[Callable[..., GradientOperator]]:
    """The gradient that is the sum of any given matrices, each that of a shard."""
    with ExitStack() as stack:

        def gradient(*parts: Any, **options: Any) -> GradientOperator:
            problem = problem_with_gradients(*parts, **options)
            return stack.enter_context(closing(problem)).gradient

        yield gradient


@pytest.fixture(scope="session")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sessions]:
    """Spark sessions on any master, one at a time; for a session with settings of its own."""
    sessions = Sessions(tmp_path_factory.mktemp("spark"))
    yield sessions
    sessions.close()


@pytest.fixture(scope="session")
def standalone_cluster(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[StandaloneCluster]:
    """A master and two workers, each a process of its own, of one core each."""
    with StandaloneCluster(tmp_path_factory.mktemp("standalone")) as cluster:
        yield cluster
        pids = cluster.pids()
        assert pids
    assert pids.isdisjoint(all_pids())


# The three below belong to one test, so that a session which the test before has stopped is
# started again; as long as it runs and the master is the same, it is the same session.
@pytest.fixture
def spark(sessions: Sessions, by_value: None) -> SparkSession:
    """A session on ``local[2]``: two tasks at a time, Python workers in processes of their own."""
    return sessions.on(LOCAL)


@pytest.fixture
def local_cluster(sessions: Sessions, by_value: None) -> SparkSession:
    """A session on ``local-cluster``: two executors in JVMs of their own, of one core each."""
    return sessions.on(LOCAL_CLUSTER)


@pytest.fixture
def standalone(
    sessions: Sessions, standalone_cluster: StandaloneCluster, by_value: None
) -> SparkSession:
    """A session on a real standalone cluster of two workers."""
    return sessions.on(standalone_cluster.url)


@pytest.fixture
def by_value(request: pytest.FixtureRequest) -> None:
    """Send the functions of the test's module to the workers whole: they cannot import it."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(request.module)


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None]:
    """Run the tests of each master together, and leave out those of Spark where Java is missing."""
    for item in items:
        if needs_spark(item):
            item.add_marker("spark")  # before pytest looks at -m
        if not CLUSTER_FIXTURES.isdisjoint(names_of(item)):
            item.add_marker("cluster")
    yield
    items.sort(key=master_rank)
    needing = [item for item in items if needs_spark(item)]
    if needing and subprocess.run([JAVA, "check"]).returncode:
        config.stash[LEFT_OUT] = len(needing)
        for item in needing:
            item.add_marker(pytest.mark.skip(reason="no Java 17 or later for Spark"))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say plainly what was left out."""
    if count := config.stash.get(LEFT_OUT, 0):
        terminalreporter.write_line(
            f"{count} Spark tests were left out: no Java 17 or later was found "
            "(tools/java.sh says what to do).",
            yellow=True,
        )


def master_rank(item: pytest.Item) -> int:
    """0 for a test without Spark, and then by the last of the masters that it uses."""
    used = names_of(item)
    ranks = [rank for rank, master in enumerate(MASTERS, start=1) if master in used]
    return max(ranks, default=int(needs_spark(item)))


def needs_spark(item: pytest.Item) -> bool:
    marked = item.get_closest_marker("spark") is not None
    return marked or not SPARK_FIXTURES.isdisjoint(names_of(item))


def names_of(item: pytest.Item) -> set[str]:
    """The fixtures that a test asks for, also by a parameter that names one."""
    names = set(getattr(item, "fixturenames", ()))
    callspec = getattr(item, "callspec", None)
    if callspec is not None:
        names.update(value for value in callspec.params.values() if isinstance(value, str))
    return names
