"""What a command prints: text for people, one JSON object for programs."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import numpy as np
from typer import Option

from dfwtrace.cli.guard import visible
from dfwtrace.report import duration, number, size

Json = Annotated[bool, Option("--json", help="One JSON object on standard output, nothing else.")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="Only warnings and errors.")]
Verbose = Annotated[bool, Option("--verbose", "-v", help="Show runs without a terminal too.")]

_LONGEST_NAME = 160
_MOST_WORDS = 8  # of a list
_TITLES = {"bytes": "size", "seconds": "time"}


class Output:
    """Prints one JSON object on standard output, or text; if quiet, only warnings and errors."""

    def __init__(self, as_json: bool = False, quiet: bool = False) -> None:
        self.as_json, self.silent = as_json, as_json or quiet
        self.warnings: list[str] = []

    def say(self, text: str, note: bool = False) -> None:
        """Print a part of the result, or a note about what is being done."""
        if not self.silent:
            print(visible(text), file=sys.stderr if note else sys.stdout, flush=True)

    def warn(self, text: str) -> None:
        """Print a warning, once."""
        if text not in self.warnings:
            self.warnings.append(text)
            if not self.as_json:
                print(f"Warning: {visible(text)}", file=sys.stderr, flush=True)

    def finish(self, facts: dict[str, Any]) -> None:
        """Print all facts, for programs."""
        if self.as_json:
            print(json_of(facts | ({"warnings": self.warnings} if self.warnings else {})))

    @contextmanager
    def relaying_warnings(self) -> Iterator[None]:
        """Print the warnings of libraries as lines of our own, at the end."""
        from sklearn.exceptions import ConvergenceWarning  # only here: it takes a second

        # How a fit ended is in its result, and the other two are for programmers.
        left_out = ConvergenceWarning | DeprecationWarning | FutureWarning
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            try:
                yield
            finally:
                for warning in heard:
                    if not issubclass(warning.category, left_out):
                        self.warn(" ".join(str(warning.message).split()))


def json_of(facts: dict[str, Any], indent: int | None = None) -> str:
    """Return strict JSON, with null for numbers that are not finite."""

    def other(value: Any) -> Any:
        return value.tolist() if isinstance(value, np.ndarray | np.generic) else str(value)

    finite = json.loads(json.dumps(facts, default=other), parse_constant=lambda _: None)
    return json.dumps(finite, indent=indent, allow_nan=False)


def word(value: Any) -> str:
    """Return a name from a file, in one line and cut short."""
    text = visible(str(value).replace("\n", "\\n"))
    return text if len(text) <= _LONGEST_NAME else text[: _LONGEST_NAME - 1] + "…"


def table(rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Return rows with aligned columns, of which the first ones begin at the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    signs = ["<"] * left + [">"] * (len(widths) - left)
    spec = "  ".join(f"{{:{sign}{width}}}" for sign, width in zip(signs, widths, strict=True))
    return "\n".join(spec.format(*row).rstrip() for row in rows)


def facts_table(facts: dict[str, Any]) -> str:
    """Return facts by their names: nothing that is not known, lists cut short."""

    def text(name: str, value: Any) -> str:
        if name in ("bytes", "seconds"):
            return size(value) if name == "bytes" else duration(value)
        if name in ("shape", "shape of W") and isinstance(value, list):
            return word(" × ".join(map(str, value)))
        if isinstance(value, list):
            more = f", … ({len(value)} in all)" if len(value) > _MOST_WORDS else ""
            return ", ".join(map(word, value[:_MOST_WORDS])) + more
        if isinstance(value, dict):
            return ", ".join(f"{word(key)} {word(item)}" for key, item in value.items())
        return number(value) if isinstance(value, float) else word(value)

    shown = {name: value for name, value in facts.items() if value not in (None, {})}
    if shown.get("target_names") == shown.get("target"):
        shown.pop("target_names", None)
    names = [word(_TITLES.get(name, name.replace("_", " "))) for name in shown]
    return table(list(zip(names, map(text, shown, shown.values()), strict=True)), left=2)
