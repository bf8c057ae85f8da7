"""What a command prints, and how it ends: an exit code, and one sentence if something is wrong."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from types import FrameType
from typing import Annotated

import numpy as np
import typer
from typer import Option

from dfwtrace import CheckpointError, ModelFormatError
from dfwtrace.data.table import DataFileError
from dfwtrace.files.atomic import check_writable
from dfwtrace.report import number
from dfwtrace.tasks.planning import duration_text, size_text

Facts = Mapping[str, object]
Json = Annotated[bool, Option("--json", help="One JSON object on standard output, nothing else.")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="Only warnings and errors.")]
Verbose = Annotated[bool, Option("--verbose", "-v", help="Show runs without a terminal too.")]

DONE, FAILED, BAD_INPUT, SHORT, INTERRUPTED = 0, 1, 2, 3, 130
_LONGEST = 600  # Java puts a page of text into an exception
_MOST_WORDS = 8  # of a list
_TITLES = {"bytes": "size", "seconds": "time"}
# Control characters, line separators, halves of surrogate pairs, and what changes the direction.
_UNSEEN = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
# Arguments of the library at the start of a sentence that are options of the same name.
_OPTION = re.compile(
    "^(radius|random_state|tol|max_(iter|time)|cv|lmo|step|n_(jobs|shards)|representation|"
    "validation_fraction)\\b"
)
#: The model that the command has written, which Ctrl-C names from then on.
saved: ContextVar[Path | None] = ContextVar("saved", default=None)


class CommandError(Exception):
    """A sentence for the user, and the exit code."""

    def __init__(self, sentence: str, code: int = BAD_INPUT) -> None:
        super().__init__(sentence)
        self.code = code


def require(holds: object, sentence: str) -> None:
    """End the command with a sentence unless something holds."""
    if not holds:
        raise CommandError(sentence)


class Output:
    """Prints one JSON object on standard output, or text; if quiet, only warnings and errors."""

    def __init__(self, as_json: bool = False, quiet: bool = False) -> None:
        self.as_json, self.silent = as_json, as_json or quiet
        self.warnings: list[str] = []

    def say(self, text: str) -> None:
        """Print a part of the result, or what is being done."""
        if not self.silent:
            print(visible(text), flush=True)

    def warn(self, *texts: str | None) -> None:
        """Print warnings, each once."""
        for text in texts:
            if text is not None and text not in self.warnings:
                self.warnings.append(text)
                if not self.as_json:
                    print(f"Warning: {visible(text)}", file=sys.stderr, flush=True)

    def finish(self, facts: Facts, code: int = DONE) -> None:
        """Print all facts, for programs, and end with a code."""
        if self.as_json:
            print(json_of({**facts, "warnings": self.warnings} if self.warnings else facts))
        raise typer.Exit(code)


def json_of(facts: Facts, indent: int | None = None) -> str:
    """Return strict JSON, with null for numbers that are not finite."""

    def other(value: object) -> object:
        return value.tolist() if isinstance(value, np.ndarray | np.generic) else str(value)

    finite = json.loads(json.dumps(facts, default=other), parse_constant=lambda _: None)
    return json.dumps(finite, indent=indent, allow_nan=False)


def word(value: object, longest: int = 160) -> str:
    """Return a name from a file, in one line and cut short."""
    text = visible(str(value).replace("\n", "\\n"))
    return text if len(text) <= longest else text[: longest - 1] + "…"


def table(rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Return rows with aligned columns, of which the first ones begin at the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    signs = ["<"] * left + [">"] * (len(widths) - left)
    spec = "  ".join(f"{{:{sign}{width}}}" for sign, width in zip(signs, widths, strict=True))
    return "\n".join(spec.format(*row).rstrip() for row in rows)


def facts_table(facts: Facts) -> str:
    """Return facts by their names: nothing that is not known, lists cut short."""

    def text(name: str, value: object) -> str:
        if isinstance(value, list):
            more = f", … ({len(value)} in all)" if len(value) > _MOST_WORDS else ""
            sign = " × " if name.startswith("shape") else ", "
            return sign.join(map(word, value[:_MOST_WORDS])) + more
        if isinstance(value, dict):
            return ", ".join(f"{word(key)} {word(item)}" for key, item in value.items())
        if name in _TITLES and isinstance(value, int | float):
            return size_text(value) if name == "bytes" else duration_text(value)
        return number(value) if isinstance(value, float) else word(value)

    shown = {name: value for name, value in facts.items() if value not in (None, {}, [], "")}
    names = [word(_TITLES.get(name, name.replace("_", " "))) for name in shown]
    return table(list(zip(names, map(text, shown, shown.values()), strict=True)), left=2)


@contextmanager
def refusing() -> Iterator[None]:
    """Report options and data that the library refuses as bad input, by the option's name."""
    try:
        yield
    except (ValueError, TypeError) as error:
        sentence = _OPTION.sub(lambda name: f"--{name[0].replace('_', '-')}", sentence_of(error))
        raise CommandError(sentence.replace("solver='dfw'", "--solver dfw")) from error


def check_outputs(outputs: dict[str, Path | None], inputs: dict[str, Path | None]) -> None:
    """Refuse files that cannot be written or would replace an input; both by their options."""
    seen = {os.path.realpath(path): name for name, path in inputs.items() if path and path.exists()}
    for option, path in outputs.items():
        if path is not None:
            other = seen.setdefault(os.path.realpath(path), option)
            require(other == option, f"{option} and {other} are the same file, {path}.")
            try:
                check_writable(path)
            except OSError as error:
                raise CommandError(f"{option}: {sentence_of(error)}") from error


def visible(text: str) -> str:
    r"""Return text with control characters spelled out, such as \x1b; line ends stay."""
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def guarded(run: Callable[[], int | None], *, as_json: bool, debug: bool) -> int:
    """Run a command and return its exit code; `debug` shows tracebacks of failures."""
    saved.set(None)
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        arm()
    try:
        code = run() or DONE
        if code == INTERRUPTED:  # which is what typer makes of Ctrl-C
            raise KeyboardInterrupt
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit) as ended:  # the reader, say `head`, has seen enough
        # typer makes an exit of it; whatever else ends the interpreter is not ours to stop.
        if not isinstance(ended.__context__ or ended, BrokenPipeError):
            raise
        # At once: threads of Arrow that still read ahead do not survive the interpreter's end.
        os._exit(FAILED)
    except BaseException as error:
        code, sentence = _explained(error)
        if debug and code == FAILED:
            traceback.print_exc()
        if sentence:  # none where no command was given: the help has been shown
            line = visible(sentence if code == INTERRUPTED else f"Error: {sentence}")
            coded = json.dumps({"error": visible(sentence)})
            where = sys.stdout if as_json else sys.stderr
            with suppress(OSError):
                try:
                    print(coded if as_json else line, file=where, flush=True)
                except OSError:  # of standard output; standard error is left
                    print(line, file=sys.stderr)
    finally:
        with suppress(TypeError, ValueError):  # not one of Python's, or not in the main thread
            signal.signal(signal.SIGINT, before)
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):  # the interpreter must not try again
                with suppress(OSError, ValueError):
                    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return code


def sentence_of(error: BaseException) -> str:
    """Return an exception's text in one line; its type where it has none."""
    if isinstance(error, MemoryError):
        return "the memory is not enough; --dtype float32 takes half, --spill keeps data on disk."
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        about = "" if error.filename is None else f"{error.filename}: "
        text = f"{about}{error.strerror.rstrip('.')}."
    if "Traceback (most recent call last)" in text:  # of a worker: its last line says what it was
        errors = [line for line in text.splitlines() if re.match(r"[A-Za-z_][\w.]*: ", line)]
        text = errors[-1] if errors else text
    text = " ".join((text.strip().partition("\n\n")[0] if len(text) > _LONGEST else text).split())
    return word(text, _LONGEST) or type(error).__name__


def arm() -> None:
    """Raise the first Ctrl-C; the second one ends the process at once, whatever it is doing."""

    def first(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.default_int_handler(number, frame)

    with suppress(ValueError):  # only the main thread may
        signal.signal(signal.SIGINT, first)


def _explained(error: BaseException) -> tuple[int, str]:
    """Return the exit code and the sentence for an exception."""
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        model = saved.get()
        what = "nothing was saved" if model is None else f"the model was saved to {model}"
        return INTERRUPTED, f"Interrupted: {what}."
    if isinstance(error, CommandError):
        return error.code, str(error)
    usage = getattr(error, "format_message", None)  # typer's errors about options
    if usage is not None:
        # What checks the values of options begins some sentences with a word of its own.
        sentence = " ".join(usage().split()).replace(": Value error, ", ": ")
        ended = not sentence or sentence.endswith((".", "?", ")"))
        return BAD_INPUT, sentence if ended else f"{sentence}."
    unusable = DataFileError | ModelFormatError | CheckpointError
    if isinstance(error, unusable | FileNotFoundError | PermissionError):
        return BAD_INPUT, sentence_of(error)
    expected = isinstance(error, OSError | ImportError | MemoryError | RuntimeError)
    return FAILED, ("" if expected else f"{type(error).__name__}: ") + sentence_of(error)
