"""What a command ends with: an exit code, and one sentence if something went wrong."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import FrameType
from typing import Any

import typer

from dfwtrace import ModelFormatError
from dfwtrace.checkpoints import CheckpointError
from dfwtrace.data.table import DataFileError
from dfwtrace.report.numbers import clean

DONE, FAILED, BAD_INPUT, SHORT, INTERRUPTED = 0, 1, 2, 3, 130

# Java puts a page of its own into an exception; the first line tells what matters.
_LONGEST = 600
# The model that the command has written, if it has come so far.
_saved: ContextVar[Path | None] = ContextVar("saved", default=None)


class CommandError(Exception):
    """What the user should read, and the exit code."""

    def __init__(self, sentence: str, code: int = BAD_INPUT) -> None:
        super().__init__(sentence)
        self.code = code


def note_saved(path: Path) -> None:
    """From now on, Ctrl-C does not mean that nothing was saved."""
    _saved.set(path)


@contextmanager
def refusing() -> Iterator[None]:
    """Options and data that the library refuses are bad input, not a failure."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise CommandError(sentence_of(error)) from error


def guarded(run: Callable[[], Any], *, as_json: bool, debug: bool) -> int:
    """Run a command.

    Parameters
    ----------
    run : callable
        Returns an exit code, or None.
    as_json : bool
        Whether errors are a JSON object on standard output.
    debug : bool
        Whether unexpected errors show where they come from.

    Returns
    -------
    int
        The exit code.
    """
    _saved.set(None)
    try:
        with only_one_interrupt():
            code = int(run() or DONE)
        if code != INTERRUPTED:  # which is what typer makes of Ctrl-C
            return code
        sentence = _interrupted()
    except (BrokenPipeError, SystemExit) as ended:  # the reader, say `head`, has seen enough
        # typer makes an exit of it; whatever else ends the interpreter is not ours to stop.
        if not isinstance(ended.__context__ or ended, BrokenPipeError):
            raise
        # At once: threads of Arrow that still read ahead do not survive the interpreter's end.
        os._exit(FAILED)
    except (KeyboardInterrupt, typer.Abort):
        code, sentence = INTERRUPTED, _interrupted()
    except CommandError as error:
        code, sentence = error.code, str(error)
    except (DataFileError, ModelFormatError, CheckpointError) as error:
        code, sentence = BAD_INPUT, sentence_of(error)
    except (OSError, ImportError, MemoryError, RuntimeError) as error:
        _show_where(debug)
        code, sentence = FAILED, sentence_of(error)
    except Exception as error:
        usage = getattr(error, "format_message", None)  # typer's errors about options
        if usage is not None:
            code, sentence = BAD_INPUT, _one_line(usage())
        else:
            _show_where(debug)
            code, sentence = FAILED, f"{type(error).__name__}: {sentence_of(error)}"
    if not sentence:  # no command was given: the help has been shown
        return code
    sentence = clean(sentence)  # a file may have put anything into it
    if as_json:
        print(json.dumps({"error": sentence}))
    elif code == INTERRUPTED:
        print(sentence, file=sys.stderr)
    else:
        print(f"Error: {sentence}", file=sys.stderr)
    return code


def sentence_of(error: BaseException) -> str:
    """An exception's text in one line; what it is, where it has none."""
    if isinstance(error, MemoryError):
        return "the memory is not enough; --dtype float32 takes half, --spill keeps data on disk."
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    if isinstance(error, OSError) and error.strerror:
        about = "" if error.filename is None else f"{error.filename}: "
        text = f"{about}{error.strerror.rstrip('.')}."
    if "Traceback (most recent call last)" in text:  # of a worker: its last line tells what it was
        told = [line for line in text.splitlines() if re.match(r"[A-Za-z_][\w.]*: ", line)]
        text = told[-1] if told else text
    return _one_line(text) or type(error).__name__


def _interrupted() -> str:
    saved = _saved.get()
    what = "nothing was saved" if saved is None else f"the model was saved to {saved}"
    return f"Interrupted: {what}."


def _one_line(text: str) -> str:
    text = text.strip().partition("\n\n")[0] if len(text) > _LONGEST else text
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _show_where(debug: bool) -> None:
    if debug:
        traceback.print_exc()


@contextmanager
def only_one_interrupt() -> Iterator[None]:
    """Ctrl-C is raised once; the second one ends the process at once, whatever it is doing."""
    here = threading.current_thread() is threading.main_thread()
    if not here or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield  # not ours to change
        return
    arm()
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def arm() -> None:
    """Wait for the first Ctrl-C."""

    def first(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, first)
