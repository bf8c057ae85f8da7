"""A door: open while a crew assembles, and to those who know the secret only."""

from __future__ import annotations

import queue
import selectors
import socket
import threading
import time
from contextlib import suppress
from typing import NamedTuple

from dfwtrace.engines.resident import handshake
from dfwtrace.engines.resident.wire import Kind, ProtocolError, Value, receive, tune

# A hello is short.
_LARGEST_HELLO = 4096
# Callers in the middle of a handshake. One more, and the oldest has to leave: workers take no time
# to prove what they know, and call again.
_MOST_AT_ONCE = 64
_PAUSE = 0.05


class Caller(NamedTuple):
    """One who has proven to know the secret, and what it said of itself."""

    sock: socket.socket
    address: str
    hello: list[Value]


class Reception:
    """Listens, and puts callers who know the secret into `callers`. Drops all others.

    Every caller has a thread of its own until it is known, so that one who says nothing, or
    garbage, holds nobody up.
    """

    def __init__(self, bind: str, port: int, secret: bytes) -> None:
        self._secret = secret
        family = socket.AF_INET6 if ":" in bind else socket.AF_INET
        try:
            self._listener = socket.create_server((bind, port), family=family, backlog=1024)
        except OSError as error:
            raise OSError(f"bind: cannot listen at {bind}, port {port} ({error}).") from error
        self.port: int = self._listener.getsockname()[1]
        self.callers: queue.SimpleQueue[Caller] = queue.SimpleQueue()
        self._wake, self._alarm = socket.socketpair()
        self._lock = threading.Lock()
        self._pending: dict[socket.socket, threading.Thread] = {}
        self._closed = False
        self._ended = threading.Event()  # Ctrl-C in a thread's `join` would end all waiting for it
        self.trouble: OSError | None = None  # why somebody could not be let in
        self._thread = threading.Thread(target=self._listen, name="dfwtrace-door", daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        try:
            self._answer()
        finally:
            self._ended.set()

    def _answer(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._wake, selectors.EVENT_READ)
            while True:
                ready = {key.fileobj for key, _ in selector.select()}
                if self._wake in ready:
                    return
                try:
                    sock, address = self._listener.accept()
                except OSError as error:  # it may have hung up already, or files have run out
                    self.trouble = error
                    time.sleep(_PAUSE)
                    continue
                self._receive(sock, str(address[0]))

    def _receive(self, sock: socket.socket, address: str) -> None:
        with self._lock:
            if len(self._pending) >= _MOST_AT_ONCE:
                oldest = next(iter(self._pending))
                with suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)  # its thread ends
                self._pending[oldest] = self._pending.pop(oldest)
            thread = threading.Thread(
                target=self._admit, args=(sock, address), name="dfwtrace-door", daemon=True
            )
            self._pending[sock] = thread
            thread.start()

    def _admit(self, sock: socket.socket, address: str) -> None:
        caller: Caller | None
        try:
            handshake.admit(sock, self._secret)
            sock.settimeout(handshake.TIME)
            frame = receive(sock, _LARGEST_HELLO)
            if frame.kind != Kind.HELLO:
                raise ProtocolError("no hello")
            caller = Caller(sock, address, frame.values())
            sock.settimeout(None)
            tune(sock)
        except (OSError, ProtocolError):
            caller = None
        with self._lock:
            del self._pending[sock]
            if caller is not None and not self._closed:
                self.callers.put(caller)
                return
        sock.close()

    def close(self) -> None:
        """Nobody can call any more; whoever is still at the door is turned away.

        It may be called again, as after an interrupt in the middle of it.
        """
        with self._lock:
            self._closed = True
        with suppress(OSError):  # closed before
            self._alarm.send(b"!")
        self._ended.wait()
        self._thread.join()  # a moment, if at all
        with self._lock:  # only now nobody is added any more
            pending = dict(self._pending)
        for sock, thread in pending.items():
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            thread.join()
        for sock in (self._listener, self._wake, self._alarm):
            sock.close()
        while not self.callers.empty():
            self.callers.get().sock.close()
