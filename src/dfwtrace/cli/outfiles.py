"""Files to be written, looked at before the work begins."""

from __future__ import annotations

import os
from pathlib import Path

from dfwtrace.cli.guard import CommandError, sentence_of
from dfwtrace.files.atomic import atomic_write


class _EnoughError(Exception):
    """Ends a trial."""


def check_outputs(outputs: dict[str, Path | None], inputs: dict[str, Path | None]) -> None:
    """Refuse what cannot be written, and what would replace something that is needed.

    Parameters
    ----------
    outputs, inputs : dict of str to path or None
        By the names of their options.
    """
    seen: dict[str, str] = {}
    for option, given in inputs.items():
        if given is not None and given.exists():
            seen[os.path.realpath(given)] = option
    for option, given in outputs.items():
        if given is None:
            continue
        place = os.path.realpath(given)
        if place in seen:
            raise CommandError(f"{option} and {seen[place]} are the same file, {given}.")
        seen[place] = option
        _try(option, given)


def _try(option: str, path: Path) -> None:
    """Open it as it will be opened, and leave everything as it was."""
    try:
        with atomic_write(path):
            raise _EnoughError
    except _EnoughError:
        pass
    except OSError as error:
        raise CommandError(f"{option}: {sentence_of(error)}") from error
