"""What is wrong with a data file, in one sentence that names it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn


class DataFileError(ValueError):
    """A data file cannot be used; the message names the file and says what to do about it."""


class AwkwardError(Exception):
    """A quick reader met what only the careful one can judge."""


@contextmanager
def reading(path: Path, kind: str) -> Iterator[None]:
    """Turn whatever a library raises about a file into one sentence.

    Parameters
    ----------
    path : Path
    kind : str
        What the file should be, with its article: "a Parquet file".
    """
    try:
        yield
    except (DataFileError, AwkwardError):
        raise
    except FileNotFoundError as error:
        raise DataFileError(f"{path} is not there.") from error
    except PermissionError as error:
        raise DataFileError(f"{path} may not be read: permission denied.") from error
    except MemoryError as error:
        raise DataFileError(f"{path} does not fit in memory, or is damaged.") from error
    # Readers of damaged files raise almost anything: EOFError, struct.error, zlib.error, KeyError.
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise DataFileError(
            f"{path} is not {kind}, or is cut short or damaged: {reason}."
        ) from error


def no_value(file: str, column: str, row: int, *, infinite: bool = False) -> DataFileError:
    """The error about a value that is missing or infinite; `row` counts from 0."""
    what = "is infinite" if infinite else "has no value"
    return DataFileError(
        f"column {column!r} of {file} {what} in row {row + 1} "
        "(numbering rows from 1 after the header)."
    )


def holds_text(
    file: str, column: str, row: int, value: str, *, role: str = "features"
) -> DataFileError:
    """The error about a word where a number should be; `row` counts from 0."""
    advice = {
        "features": "leave it out with --features, or encode it",
        "weights": "name another column",
    }.get(role, "several targets at once must all be numeric")
    shown = value if len(value) <= 40 else value[:37] + "..."
    return DataFileError(
        f"column {column!r} of {file} holds text ({shown!r} in row {row + 1}): "
        f"{role} must be numbers; {advice}."
    )


def needs_pyarrow(kind: str) -> NoReturn:
    """Say how to get the library behind a format."""
    raise DataFileError(f"reading {kind} needs pyarrow: pip install 'dfwtrace[files]'")
