"""One BLAS thread while anybody holds it to that, and what was there before afterwards."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from dfwtrace.engines import LocalWorkers, local, single_threaded_blas

pytestmark = pytest.mark.skipif(not threadpool_info(), reason="no BLAS whose threads can be told")


def blas_threads() -> list[int]:
    return [
        library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"
    ]


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[list[int]]:
    """So that a limit of one can be told, and that it is gone after each test."""
    with threadpool_limits(limits=2):
        before = blas_threads()
        assert 2 in before
        yield before
        assert blas_threads() == before


def test_it_lasts_as_long_as_the_block(two_threads: list[int]) -> None:
    with single_threaded_blas():
        assert set(blas_threads()) == {1}
    assert blas_threads() == two_threads


def test_it_ends_with_an_error() -> None:
    with pytest.raises(LookupError), single_threaded_blas():
        raise LookupError


def test_the_outermost_of_several_counts() -> None:
    with single_threaded_blas():
        with single_threaded_blas():
            workers = LocalWorkers(None, [0], shard_rows=[1])
        assert set(blas_threads()) == {1}
        workers.close()
        assert set(blas_threads()) == {1}


def test_it_holds_for_blocks_that_overlap_in_threads() -> None:
    """The one that took hold first lets go first."""
    held, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        with single_threaded_blas():
            held.set()
            let_go.wait(10.0)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(10.0)
    with single_threaded_blas():
        let_go.set()
        thread.join()
        assert set(blas_threads()) == {1}


def test_workers_may_be_collected_while_another_takes_hold() -> None:
    """A garbage collection comes whenever it likes, also within our own lock."""
    workers = [LocalWorkers(None, [0], shard_rows=[1])]

    def collect() -> None:
        with local._lock:
            workers.clear()  # and what it held is given up

    thread = threading.Thread(target=collect, daemon=True)
    thread.start()
    thread.join(10.0)
    assert not thread.is_alive(), "it waits for itself"
