"""Which columns of a table are features, targets and weights."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from dfwtrace.io.read_errors import DataFileError

# The row numbers that pandas writes along with a table are no features.
_INDEX_OF_PANDAS = re.compile(r"__index_level_\d+__")


class Choice(NamedTuple):
    """The columns to read, each list in the order of the file."""

    features: list[str]
    targets: list[str]
    weight: str | None


def choose(
    columns: Sequence[str],
    *,
    file: str,
    target: Sequence[str] | str | None = None,
    features: Sequence[str] | str | None = None,
    weight: str | None = None,
) -> Choice:
    """Pick columns by exact names, shell patterns and comma lists.

    Parameters
    ----------
    columns : sequence of str
        All names, in the order of the file.
    file : str
        For messages.
    target : str or sequence of str, optional
    features : str or sequence of str, optional
        All columns but the target and the weight, if left out. A pattern leaves those two out by
        itself; naming them is an error.
    weight : str, optional

    Examples
    --------
    >>> choose(["x1", "x2", "id", "label"], file="train.csv", target="label", features="x*")
    Choice(features=['x1', 'x2'], targets=['label'], weight=None)
    >>> choose(["x1", "x2", "label"], file="train.csv", target="lable")
    Traceback (most recent call last):
    dfwtrace.io.read_errors.DataFileError: train.csv has no column 'lable'; did you mean 'label'?
    """
    check_unique(columns, file)
    targets = [] if target is None else _matching(columns, target, file, taken=())
    if weight is not None:
        _require(columns, weight, file)
        if weight in targets:
            raise DataFileError(f"column {weight!r} of {file} cannot be both target and weight.")
    taken = {*targets, *([] if weight is None else [weight])}
    if features is not None:
        chosen = _matching(columns, features, file, taken)
    else:
        chosen = default_features(columns, file, taken)
    return Choice(chosen, targets, weight)


def check_unique(columns: Sequence[str], file: str) -> None:
    """Refuse a name that stands for two columns."""
    for name, count in Counter(columns).items():
        if count > 1:
            raise DataFileError(f"{file} has {count} columns named {name!r}; names must differ.")


def default_features(columns: Sequence[str], file: str, taken: Collection[str]) -> list[str]:
    """All columns that are not taken; one without a name must be settled by the user."""
    left = [name for name in columns if name not in taken]
    left = [name for name in left if not _INDEX_OF_PANDAS.fullmatch(name)]
    if "" in left:
        place = list(columns).index("") + 1
        raise DataFileError(
            f"column {place} of {file} has no name (row numbers that were saved along?): "
            "name it, or choose the columns with --features."
        )
    if not left:
        raise DataFileError(f"{file} has no columns left that could be features.")
    return left


def nearest(name: str, columns: Sequence[str]) -> str:
    """What to add to "no such column": the name that was meant, or the names that there are."""
    close = difflib.get_close_matches(name, columns, n=1, cutoff=0.5)
    if not close:  # a difference of case counts for nothing
        close = [known for known in columns if known.lower() == name.lower()]
    if close:
        return f"; did you mean {close[0]!r}?"
    some = ", ".join(repr(known) for known in columns[:5])
    return f"; it has {some}{', ...' if len(columns) > 5 else '.'}"


def _matching(
    columns: Sequence[str], wanted: Sequence[str] | str, file: str, taken: Collection[str]
) -> list[str]:
    found: set[str] = set()
    for item in _items(columns, wanted):
        if item in columns or not any(sign in item for sign in "*?["):
            _require(columns, item, file)
            if item in taken:
                raise DataFileError(
                    f"column {item!r} of {file} is the target or the weight and cannot be "
                    "a feature too."
                )
            found.add(item)
            continue
        hits = {name for name in columns if name and fnmatchcase(name, item)} - set(taken)
        if not hits:
            raise DataFileError(f"no column of {file} matches the pattern {item!r}.")
        found |= hits
    if not found:
        raise DataFileError(f"no columns of {file} were named.")
    return [name for name in columns if name in found]


def _items(columns: Sequence[str], wanted: Sequence[str] | str) -> list[str]:
    """Comma lists taken apart, unless the whole is a column's name."""
    items: list[str] = []
    for entry in [wanted] if isinstance(wanted, str) else wanted:
        parts = [entry] if entry in columns else [part.strip() for part in entry.split(",")]
        items += [part for part in parts if part or part in columns]
    return items


def _require(columns: Sequence[str], name: str, file: str) -> None:
    if name not in columns:
        raise DataFileError(f"{file} has no column {name!r}{nearest(name, columns)}")
