"""Has a monitor follow all runs of a fit, also those that an estimator makes by itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from dfwtrace.cli.monitors import Monitor
from dfwtrace.solvers.progress import Aim, shown_by


@contextmanager
def followed_by(monitor: Monitor) -> Iterator[None]:
    """Within the block, every run tells the monitor where it begins and what each epoch was."""

    def show(aim: Aim) -> AbstractContextManager[Monitor]:
        monitor.begin(aim)
        return nullcontext(monitor)

    with shown_by(show), monitor:
        yield
