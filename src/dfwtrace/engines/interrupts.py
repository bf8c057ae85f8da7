"""Ctrl-C that waits until no lock is held.

Python raises KeyboardInterrupt between any two instructions, also while a thread pool holds a lock
of its own: nobody would give that lock back, and the next one who wants it waits for ever.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self


class DeferredInterrupt:
    """Within the block, the first Ctrl-C is only noted; it is raised at the block's end.

    A second one is raised at once, wherever that is. In threads other than the main one, which no
    signal reaches, and where Ctrl-C is not Python's, nothing is done.

    Attributes
    ----------
    noted : bool
        Whether there was one: what takes long should end.

    Examples
    --------
    >>> import os
    >>> try:
    ...     with DeferredInterrupt() as interrupt:
    ...         os.kill(os.getpid(), signal.SIGINT)
    ...         print("still here", interrupt.noted)
    ... except KeyboardInterrupt:
    ...     print("interrupted")
    still here True
    interrupted
    """

    noted = False
    _handler: Any = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            handler = signal.getsignal(signal.SIGINT)
            if callable(handler):
                self._handler = handler
                signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._handler is not None:
            signal.signal(signal.SIGINT, self._handler)
            if self.noted:
                self._handler(signal.SIGINT, None)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.noted:
            signal.signal(signal.SIGINT, self._handler)
            self._handler(number, frame)
        self.noted = True
