"""Whether other processes had a part in what was measured."""

from __future__ import annotations

import os
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

_SECONDS_BETWEEN_LOOKS = 1.0


class OtherWork:
    """Share of the processors' time that went to other processes while a block of code ran.

    Threads that wait for each other lose more than their share when a core is taken away, and
    NumPy's BLAS most of all. So two sides of a ratio do not suffer alike, and a ratio from a busy
    machine can err in either direction. What this process has started, Spark's JVM and workers for
    example, is no other work.

    Examples
    --------
    >>> with OtherWork() as others:
    ...     total = sum(range(1000))
    >>> others.share is None or 0.0 <= others.share <= 1.0
    True
    """

    share: float | None = None  # where the system does not tell

    def __enter__(self) -> Self:
        self._before = _processor_seconds()
        self._own = OwnTime()
        self._end = threading.Event()
        self._looking = threading.Thread(target=self._look, name="other-work", daemon=True)
        self._looking.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._end.set()
        self._looking.join()
        self._own.look()
        after = _processor_seconds()
        if self._before is None or after is None:
            return
        available, busy = (b - a for a, b in zip(self._before, after, strict=True))
        if available > 0.0:
            # Ticks of a hundredth of a second: parts of a short block may seem more than all of it.
            self.share = min(max(busy - self._own.seconds, 0.0) / available, 1.0)

    def _look(self) -> None:
        while not self._end.wait(_SECONDS_BETWEEN_LOOKS):
            self._own.look()


def _processor_seconds() -> tuple[float, float] | None:
    """Seconds so far of all processors, and of them busy."""
    try:
        first = Path("/proc/stat").read_text().partition("\n")[0]
    except OSError:
        return None
    # Guests, the last two of ten, are counted as users already.
    user, nice, system, idle, waiting, *interrupts_and_stolen = map(int, first.split()[1:9])
    busy = user + nice + system + sum(interrupts_and_stolen)
    ticks = os.sysconf("SC_CLK_TCK")
    return (busy + idle + waiting) / ticks, busy / ticks


class _Process(NamedTuple):
    """A process: its parent, and the ticks of itself and of ended children it has waited for."""

    parent: int
    ticks: int
    waited: int


class OwnTime:
    """Processor time of this process and of all its descendants, added up from look to look.

    A process that has ended is counted by the parent that waited for it. Spark's daemon waits for
    none of its Python workers, though: their time is what was seen while they ran.
    """

    def __init__(self) -> None:
        self._known = _family()
        self._ticks = 0

    @property
    def seconds(self) -> float:
        """From the start to the last look."""
        return self._ticks / os.sysconf("SC_CLK_TCK")

    def look(self) -> None:
        """Add what has come since the last look."""
        now = _family()
        seen_of_ended: Counter[int] = Counter()  # by parent: this much it may have waited for
        for process, seen in self._known.items():
            if process not in now:
                seen_of_ended[seen.parent] += seen.ticks + seen.waited
        for process, seen in now.items():
            before = self._known.get(process, _Process(seen.parent, 0, 0))
            waited = seen.waited - before.waited - seen_of_ended[process[0]]
            self._ticks += seen.ticks - before.ticks + max(waited, 0)
        self._known = now


def _family() -> dict[tuple[int, str], _Process]:
    """This process and its descendants, by their number and the time when they began."""
    running: dict[int, tuple[str, _Process]] = {}
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended since
            # The name of the program, in parentheses, may hold anything.
            fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
            user, system, user_waited, system_waited = map(int, fields[11:15])
            process = _Process(int(fields[1]), user + system, user_waited + system_waited)
            running[int(entry.name)] = fields[19], process
            children.setdefault(process.parent, []).append(int(entry.name))
    family, left = {}, [os.getpid()]
    while left:
        number = left.pop()
        if number in running:
            began, process = running[number]
            family[number, began] = process
            left += children.get(number, [])
    return family
