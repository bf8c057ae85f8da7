"""Which columns of a table are features, targets and weights."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from dfwtrace.data.table import DataFileError

#: Names, shell patterns and comma lists.
Names = Sequence[str] | str | None


class Choice(NamedTuple):
    """The columns to read."""

    features: list[str]
    targets: list[str]
    weight: str | None = None


def choose(
    columns: Sequence[str],
    *,
    file: str,
    target: Names = None,
    features: Names = None,
    weight: str | None = None,
) -> Choice:
    """Pick columns, in the order of the file, by exact names, shell patterns and comma lists.

    Without `features`, these are all columns but the target and the weight. A pattern leaves those
    two out; naming them is an error. `file` is for messages.

    Examples
    --------
    >>> choose(["x1", "x2", "id", "label"], file="train.csv", target="label", features="x*")
    Choice(features=['x1', 'x2'], targets=['label'], weight=None)
    """
    check_unique(columns, file)
    targets = [] if target is None else matching(columns, target, file)
    if weight is not None:
        require(columns, [weight], file)
        if weight in targets:
            raise DataFileError(f"column {weight!r} of {file} cannot be both target and weight.")
    taken = {*targets, weight}
    if features is not None:
        return Choice(matching(columns, features, file, taken), targets, weight)
    # The row numbers that pandas writes along with a table are no features.
    left = [n for n in columns if n not in taken and not re.fullmatch(r"__index_level_\d+__", n)]
    if "" in left:
        raise DataFileError(
            f"column {list(columns).index('') + 1} of {file} has no name (row numbers that were "
            "saved along?): name it, or choose the columns with --features."
        )
    if not left:
        raise DataFileError(f"{file} has no columns left that could be features.")
    return Choice(left, targets, weight)


def check_unique(columns: Sequence[str], file: str) -> None:
    """Refuse a name that two columns have."""
    for name, count in Counter(columns).most_common(1):
        if count > 1:
            raise DataFileError(f"{file} has {count} columns named {name!r}; names must differ.")


def require(known: Sequence[str], wanted: Sequence[str], file: str, what: str = "column") -> None:
    """Refuse names that a file does not have; a single one with the nearest of those it has."""
    names = set(known)
    missing = [name for name in wanted if name not in names]
    if not missing:
        return
    hint = f"it has {', '.join(map(repr, known[:5]))}{', ...' if len(known) > 5 else '.'}"
    if len(missing) == 1:
        close = [name for name in known if name.lower() == missing[0].lower()]
        close += difflib.get_close_matches(missing[0], known, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]!r}?" if close else hint
    more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
    raise DataFileError(f"{file} has no {what} {', '.join(map(repr, missing[:5]))}{more}; {hint}")


def matching(
    columns: Sequence[str],
    wanted: Sequence[str] | str,
    file: str,
    taken: Collection[str | None] = (),
) -> list[str]:
    """Return the columns that names and patterns stand for, in the order of the file."""
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
            raise DataFileError(
                f"column {item!r} of {file} cannot be target or weight and feature."
            )
        if not hits:
            raise DataFileError(f"no column of {file} matches the pattern {item!r}.")
        found |= hits
    if not found:
        raise DataFileError(f"no columns of {file} were named.")
    return [name for name in columns if name in found]
