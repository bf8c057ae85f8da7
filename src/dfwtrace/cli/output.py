"""Where a command's words go: people read lines, programs one JSON object."""

from __future__ import annotations

import json
import math
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from rich.console import Console


class Output:
    """What a command has to say.

    Parameters
    ----------
    as_json : bool
        One JSON object on standard output, and nothing else anywhere.
    quiet : bool
        Only warnings and errors.
    """

    def __init__(self, as_json: bool = False, quiet: bool = False) -> None:
        self.as_json, self.quiet = as_json, quiet
        self.warnings: list[str] = []

    @property
    def silent(self) -> bool:
        return self.as_json or self.quiet

    def say(self, text: str = "") -> None:
        """A line of the result."""
        if not self.silent:
            print(text, flush=True)

    def note(self, text: str) -> None:
        """A line on what is being done."""
        if not self.silent:
            print(text, file=sys.stderr, flush=True)

    def warn(self, text: str) -> None:
        """Something that should not be missed."""
        if text in self.warnings:
            return
        self.warnings.append(text)
        if not self.as_json:
            print(f"Warning: {text}", file=sys.stderr, flush=True)

    def show(self, renderable: Any) -> None:
        """A table."""
        if not self.silent:
            Console(highlight=False, markup=False).print(renderable)

    def tell(self, facts: dict[str, Any]) -> None:
        """The whole result, for programs."""
        if self.as_json:
            if self.warnings:
                facts = {**facts, "warnings": self.warnings}
            print(json.dumps(plain(facts), allow_nan=False))

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Libraries' warnings as lines of our own."""
        from sklearn.exceptions import ConvergenceWarning  # only here: it takes a second

        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            try:
                yield
            finally:
                for warning in heard:
                    kind = warning.category
                    # How a fit ended is told from its result, and the others are for programmers.
                    if not issubclass(
                        kind, ConvergenceWarning | DeprecationWarning | FutureWarning
                    ):
                        self.warn(" ".join(str(warning.message).split()))


def plain(value: Any) -> Any:
    """What strict JSON can hold; null for what is no number.

    Examples
    --------
    >>> import numpy as np
    >>> plain({"gap": float("nan"), "radii": np.array([1.0, 2.0]), 3: np.int64(4)})
    {'gap': None, 'radii': [1.0, 2.0], '3': 4}
    """
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)
