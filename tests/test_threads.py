"""Ctrl-C while shards are at work: late, but never lost, and never in the middle of a lock."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from dfwtrace.threads import DeferredInterrupt


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


# Interrupts at all moments of rounds that do next to nothing but take and give back locks.
ROUNDS = """
import signal
from types import SimpleNamespace
from dfwtrace.engines.local import LocalWorkers

program = SimpleNamespace(touch=lambda state: state)
for k in range(300):
    workers = LocalWorkers(program, [SimpleNamespace(n_rows=1)] * 4, n_jobs=2)
    try:
        signal.setitimer(signal.ITIMER_REAL, 1e-5 * (1 + k % 40))
        while True:
            workers.apply("touch")
    except KeyboardInterrupt:
        pass
    workers.close()
print("done")
"""


def test_no_moment_of_a_round_leaves_a_lock_behind() -> None:
    """An alarm stands in for Ctrl-C; a lock that is left behind would hang the process."""
    alarm = "import signal; signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(2))\n"
    ended = subprocess.run(
        [sys.executable, "-c", alarm + ROUNDS], capture_output=True, text=True, timeout=120
    )
    assert (ended.stdout, ended.stderr) == ("done\n", "")
