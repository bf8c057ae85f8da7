"""What a data file becomes, which of its columns are what, and the errors about one."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from dfwtrace._typing import Array, DType, Matrix
from dfwtrace.validation import find_not_finite

if TYPE_CHECKING:
    from dfwtrace.data.preparation import Preparation

#: Names, shell patterns and comma lists.
Names = Sequence[str] | str | None
#: Rows that are enough to judge targets by.
FIRST_ROWS = 10_000


class DataFileError(ValueError):
    """A data file cannot be used; the message names the file and says why."""


class BadValueError(DataFileError):
    """The first value of a column that cannot be used; `row` counts from 0."""

    def __init__(
        self, file: str, column: str, row: int, problem: str, *, kind: str = "", text: str = ""
    ) -> None:
        self.column, self.kind, self.text = column, kind, text
        self._begin = f"column {column!r} of {file} {problem} in row {row + 1}"
        super().__init__(f"{self._begin} (numbering rows from 1 after the header).")

    def with_advice(self, advice: str) -> DataFileError:
        """Return the error with what to do about it, if there is anything."""
        return DataFileError(f"{self._begin}: {advice}.") if advice else self


class Table(NamedTuple):
    """Features, targets and weights of a file."""

    X: Matrix  # of float32 or float64: an array, a memory map or a csr_array
    y: Array | None  # of shape (n,) or (n, m); text for labels that are not numbers
    feature_names: list[str] | None  # None where the file has no names
    target_names: list[str] | None
    source: str  # a line that describes the data
    weight: Array | None = None
    first_index: int | None = None  # the number that an svmlight file gives its first column
    preparation: Preparation | None = None  # if anything was done to the columns
    kept: dict[str, Any] | None = None  # columns to carry along, by name, as pyarrow holds them
    warnings: Sequence[str] = ()


class Survey(NamedTuple):
    """The size of a file's data, known before it is read in full."""

    rows: int
    features: int
    dtype: DType  # of X in memory, as are the next two
    sparse: bool
    nbytes: int
    kind: str | None  # what the first targets ask for: "classification" or "regression"
    targets: int  # their number of columns
    exact: bool  # or rows and bytes are estimates from the start of the file


def describe(file: str, X: Matrix, targets: list[str]) -> str:
    """Return the `source` of a table."""
    counts = zip(X.shape, ("row", "feature"), strict=True)
    line = f"{file}: " + ", ".join(f"{n} {noun}{'s' * (n != 1)}" for n, noun in counts)
    if len(targets) > 1:
        return f"{line}, {len(targets)} targets"
    return f"{line}, target {targets[0]!r}" if targets else line


def is_classification(y: Array) -> bool:
    """Return whether targets are labels rather than measurements.

    Text and bool are labels, several columns are not. Numbers are if all are whole and the distinct
    ones among the n targets are at most n/2 (each occurs twice, on average) and max(20, n/4).
    """
    if y.ndim > 1 or y.dtype.kind in "USOb":
        return y.ndim == 1
    few = min(len(y) / 2, max(20, len(y) / 4))
    return whole_as_integers(y).dtype.kind != "f" and bool(np.unique(y).size <= few)


def whole_as_integers(y: Array) -> Array:
    """Return floats that are all whole as int64, everything else as it is."""
    whole = y.dtype.kind == "f" and np.all((y == np.rint(y)) & (np.abs(y) < 2.0**53))
    return y.astype(np.int64) if whole else y


@contextmanager
def reading(path: Path, kind: str) -> Iterator[None]:
    """Turn whatever a library raises about a file, such as "a Parquet file", into one sentence."""
    try:
        yield
    except DataFileError:
        raise
    except FileNotFoundError as error:
        raise DataFileError(f"{path} is not there.") from error
    except PermissionError as error:
        raise DataFileError(f"{path} may not be read: permission denied.") from error
    # Readers of damaged files raise almost anything: EOFError, struct.error, MemoryError, KeyError.
    except Exception as error:
        reason = " ".join(str(error).split())[:300].rstrip(".") or type(error).__name__
        if isinstance(error, UnicodeDecodeError) or "invalid UTF8" in reason or "\0" in reason:
            raise DataFileError(f"{path} is not in UTF-8: save it in that encoding.") from error
        if "Empty CSV file" in reason:
            raise DataFileError(f"{path} has no rows.") from error
        if found := re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", reason):
            row, expected, got = found.groups()
            problem = (
                f"{path} has {expected} columns, but row {row} (the header is row 1) has {got}"
            )
            raise DataFileError(f"{problem}: check its separators and quotes.") from error
        sentence = f"{path} is not {kind}, or is cut short or damaged: {reason}."
        raise DataFileError(sentence) from error


def bad_text(file: str, column: str, row: int, text: str) -> BadValueError:
    """Return the error about text where a number should be."""
    problem = f"holds text ({text[:40]!r})"
    return BadValueError(file, column, row, problem, kind="text", text=text)


def no_value(file: str, column: str, row: int) -> BadValueError:
    """Return the error about a missing value."""
    return BadValueError(file, column, row, "has no value", kind="missing")


def check_finite(
    block: Matrix,
    names: list[str] | None,
    file: str,
    first_row: int = 0,
    missing: bool = False,
) -> None:
    """Refuse infinity and, unless values may be missing, NaN, by row and column.

    Without names, columns are counted.
    """
    if missing and block.dtype.kind == "f":
        block = block.copy()
        values = block.data if sp.issparse(block) else block
        values[np.isnan(values)] = 0.0
    place = find_not_finite(block)
    if place is not None:
        row, column = (*place, 0)[:2]
        where = file, names[column] if names else str(column), first_row + row
        if np.isnan(block[place]):
            raise no_value(*where)
        raise BadValueError(*where, "is infinite", kind="infinite")


def check_weight(weight: Array, column: str, file: str, first_row: int = 0) -> Array:
    """Return weights as float64 if they are one column of finite numbers of at least 0."""
    if weight.ndim != 1 or weight.dtype.kind not in "biuf":
        raise DataFileError(f"the weights {column!r} of {file} must be one column of numbers.")
    check_finite(weight, [column], file, first_row)
    if (weight < 0).any():
        row = first_row + int(np.argmax(weight < 0))
        raise BadValueError(file, column, row, "is negative")
    return weight.astype(np.float64)


class Choice(NamedTuple):
    """The columns to read."""

    features: list[str]
    targets: list[str]
    weight: str | None = None
    categorical: tuple[str, ...] = ()  # of the features
    keep: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()


def choose(
    columns: Sequence[str],
    *,
    file: str,
    target: Names = None,
    features: Names = None,
    weight: str | None = None,
    categorical: Names = None,
    keep: Names = None,
    drop: Names = None,
) -> Choice:
    """Pick columns, in the order of the file, by exact names, shell patterns and comma lists.

    Without `features`, these are all columns that nothing else is said about. A pattern leaves out
    columns that something else was said about; naming one is an error. `file` is for messages.
    """
    check_unique(columns, file)
    targets = [] if target is None else matching(columns, target, file)
    taken = dict.fromkeys(targets, "the target")
    if weight is not None:
        require(columns, [weight], file)
        if weight in targets:
            raise DataFileError(f"column {weight!r} of {file} cannot be both target and weight.")
        taken[weight] = "the weight"
    kept = [] if keep is None else matching(columns, keep, file, taken, "kept")
    taken |= dict.fromkeys(kept, "kept")
    dropped = [] if drop is None else matching(columns, drop, file, taken, "dropped")
    taken |= dict.fromkeys(dropped, "dropped")
    if features is not None:
        left = matching(columns, features, file, taken)
    else:  # the row numbers that pandas writes along with a table are no features
        index = re.compile(r"__index_level_\d+__")
        left = [n for n in columns if n not in taken and not index.fullmatch(n)]
    if "" in left and features is None:
        place = list(columns).index("") + 1
        advice = "name it, or leave it out with --drop ''"
        raise DataFileError(f"column {place} of {file} has no name: {advice}.")
    if not left:
        raise DataFileError(f"{file} has no columns left that could be features.")
    others = {name: taken.get(name, "no feature") for name in columns if name not in left}
    encoded = [] if categorical is None else matching(columns, categorical, file, others, "encoded")
    return Choice(left, targets, weight, tuple(encoded), tuple(kept), tuple(dropped))


def check_unique(columns: Sequence[str], file: str) -> None:
    """Refuse a name that two columns have."""
    for name, count in Counter(columns).most_common(1):
        if count > 1:
            raise DataFileError(f"{file} has {count} columns named {name!r}; names must differ.")


def require(known: Sequence[str], wanted: Sequence[str], file: str, what: str = "column") -> None:
    """Refuse names that a file does not have, with a name like the first one if it has such."""
    names = set(known)
    if missing := [name for name in wanted if name not in names]:
        folded = {name.lower(): name for name in known}
        close = difflib.get_close_matches(missing[0].lower(), list(folded), n=1, cutoff=0.5)
        hint = f"it has {', '.join(map(repr, known[:5]))}{', ...' if len(known) > 5 else '.'}"
        hint = f"did you mean {folded[close[0]]!r}?" if close else hint
        raise DataFileError(f"{file} has no {what} {', '.join(map(repr, missing[:5]))}; {hint}")


def matching(
    columns: Sequence[str],
    wanted: Sequence[str] | str,
    file: str,
    taken: Mapping[str, str] = MappingProxyType({}),
    role: str = "a feature",
) -> list[str]:
    """Return the columns that names and patterns stand for, in the order of the file.

    Patterns leave out what is taken, by its role there; naming such a column is an error.
    """
    items: list[str] = []
    for entry in [wanted] if isinstance(wanted, str) else wanted:
        parts = [entry] if entry in columns else [part.strip() for part in entry.split(",")]
        items += [part for part in parts if part or part in columns]
    found: set[str] = set()
    for item in items:
        hits = {item}
        if item not in columns and any(sign in item for sign in "*?["):
            hits = {name for name in columns if name and fnmatchcase(name, item)} - set(taken)
        else:
            require(columns, [item], file)
        if item in taken:
            problem = f"is {taken[item]} and cannot be {role} too"
            raise DataFileError(f"column {item!r} of {file} {problem}.")
        if not hits:
            raise DataFileError(f"no column of {file} matches the pattern {item!r}.")
        found |= hits
    if not found:
        raise DataFileError(f"no columns of {file} were named.")
    return [name for name in columns if name in found]
