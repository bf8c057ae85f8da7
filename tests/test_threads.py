"""Work that threads share out; a Ctrl-C is late, but never lost, nor in the middle of a lock."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from dfwtrace.threads import DeferredInterrupt, each, use_threads


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_the_first_one_waits_for_the_end_of_the_block() -> None:
    reached = []
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012
        with DeferredInterrupt() as deferred:
            assert not deferred.noted
            interrupt()
            assert deferred.noted
            reached.append("end")
        reached.append("beyond")
    assert reached == ["end"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_second_one_does_not_wait() -> None:
    reached = []
    with pytest.raises(KeyboardInterrupt), DeferredInterrupt():  # noqa: PT012
        interrupt()
        reached.append("first")
        interrupt()
        reached.append("second")
    assert reached == ["first"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_error_does_not_hide_it() -> None:
    with pytest.raises(KeyboardInterrupt) as raised, DeferredInterrupt():  # noqa: PT012
        interrupt()
        raise ValueError("of the block")
    assert isinstance(raised.value.__context__, ValueError)


def test_without_one_nothing_happens() -> None:
    with DeferredInterrupt() as deferred:
        pass
    assert not deferred.noted
    with pytest.raises(ValueError, match="of the block"), DeferredInterrupt():
        raise ValueError("of the block")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_another_thread_leaves_signals_alone() -> None:
    seen = []

    def enter() -> None:
        with DeferredInterrupt():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]


def test_a_ctrl_c_that_nobody_wants_stays_unwanted() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with DeferredInterrupt() as deferred:
            interrupt()
        assert not deferred.noted
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


# Interrupts at all moments of rounds, and of pieces of work, that do little but take and give back
# locks. An alarm stands in for Ctrl-C; a lock that is left behind would hang the process.
ALARMS = """
import signal
from types import SimpleNamespace
from dfwtrace.engines.local import LocalWorkers
from dfwtrace.threads import each, use_threads

signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(2))
program = SimpleNamespace(touch=lambda state: state)

def rounds():
    workers = LocalWorkers(program, [SimpleNamespace(n_rows=1)] * 4, n_jobs=2)
    try:
        while True:
            workers.apply("touch")
    finally:
        workers.close()

def pieces():
    with use_threads(2):
        while True:
            each(id, 4)

for k in range(300):
    signal.setitimer(signal.ITIMER_REAL, 1e-3 + 1e-5 * (1 + k % 40))
    try:
        WORK()
    except KeyboardInterrupt:
        pass
print("done")
"""


@pytest.mark.parametrize("work", ["rounds", "pieces"])
def test_no_moment_leaves_a_lock_behind(work: str) -> None:
    script = ALARMS.replace("WORK", work)
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120
    )
    assert (ended.stdout, ended.stderr) == ("done\n", "")


def in_threads(n_jobs: int, count: int) -> list[str]:
    """The names of the threads that took part in `count` pieces of work."""
    names: list[str] = []
    with use_threads(n_jobs):
        each(lambda j: names.append(threading.current_thread().name), count)
    return names


def test_the_calling_thread_is_one_of_them() -> None:
    meet, names = threading.Barrier(3, timeout=30.0), set()

    def work(j: int) -> None:
        names.add(threading.current_thread().name)
        meet.wait()  # until there are three at work

    with use_threads(3):
        each(work, 3)
    assert threading.current_thread().name in names
    assert sum(name.startswith("dfwtrace") for name in names) == 2
    assert not [t.name for t in threading.enumerate() if t.name.startswith("dfwtrace")]


@pytest.mark.parametrize("n_jobs", [1, 2, 5])
@pytest.mark.parametrize("count", [0, 1, 2, 40])
def test_each_piece_is_done_once(n_jobs: int, count: int) -> None:
    done: list[int] = []
    with use_threads(n_jobs):
        each(done.append, count)
    assert sorted(done) == list(range(count))


def test_one_job_is_the_calling_thread() -> None:
    assert set(in_threads(1, 20)) == {threading.current_thread().name}


def test_without_threads_work_runs_where_it_is_called() -> None:
    names: list[str] = []
    each(lambda j: names.append(threading.current_thread().name), 5)
    assert names == 5 * [threading.current_thread().name]


def test_work_within_work_waits_for_nobody() -> None:
    """Every thread is at work when it calls for others: they would wait for each other forever."""
    meet, done = threading.Barrier(3, timeout=30.0), []

    def outer(j: int) -> None:
        meet.wait()
        each(lambda k: done.append((j, k, threading.current_thread().name)), 4)

    with use_threads(3):
        each(outer, 3)
        inner = {(j, name) for j, _, name in done}
        assert len(done) == 12
        assert len(inner) == 3  # each of them on the thread of its own
        done.clear()
        meet = threading.Barrier(1)
        each(outer, 3)  # and afterwards there are threads again
        assert len(done) == 12


def test_threads_of_others_are_not_used() -> None:
    names: list[str] = []
    with use_threads(3):
        thread = threading.Thread(
            target=lambda: each(lambda j: names.append(threading.current_thread().name), 5),
            name="another",
        )
        thread.start()
        thread.join()
    assert names == 5 * ["another"]


@pytest.mark.parametrize("n_jobs", [1, 3])
@pytest.mark.parametrize("error", [LookupError, SystemExit])
def test_an_error_reaches_the_caller(n_jobs: int, error: type[BaseException]) -> None:
    def work(j: int) -> None:
        if j == 3:
            raise error("at 3")

    with use_threads(n_jobs):
        with pytest.raises(error, match="at 3"):
            each(work, 8)
        done: list[int] = []
        each(done.append, 8)
    assert sorted(done) == list(range(8))


def test_a_handler_that_does_not_raise_gets_all_the_work_done() -> None:
    seen, done = [], []

    def work(j: int) -> None:
        if j == 0:
            interrupt()
        done.append(j)

    before = signal.signal(signal.SIGINT, lambda *_: seen.append("Ctrl-C"))
    try:
        with use_threads(2):
            each(work, 50)
    finally:
        signal.signal(signal.SIGINT, before)
    assert (seen, sorted(done)) == (["Ctrl-C"], list(range(50)))


FORKED = """
import os, signal, threading
import numpy as np
from dfwtrace.linalg.parallel import matmul
from dfwtrace.threads import use_threads

A = np.ones((810, 400))
with use_threads(2):
    matmul(A, A.T)
    assert any(t.name.startswith("dfwtrace") for t in threading.enumerate())
    child = os.fork()
    if child == 0:  # where the pool has no threads
        signal.alarm(30)  # instead of waiting for them forever
        os._exit(0 if (matmul(A, A.T) == 400.0).all() else 1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_process_goes_on_without_the_threads() -> None:
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKED], capture_output=True, text=True, timeout=120
    )
    assert (ended.stdout, ended.stderr) == ("0\n", "")
