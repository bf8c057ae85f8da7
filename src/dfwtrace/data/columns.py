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

# The row numbers that pandas writes along with a table are no features.
_INDEX_OF_PANDAS = re.compile(r"__index_level_\d+__")


class Choice(NamedTuple):
    """The columns to read, each list in the order of the file."""

    features: list[str]
    targets: list[str]
    weight: str | None = None

    @property
    def weights(self) -> list[str]:
        """The column of weights, if there is one."""
        return [] if self.weight is None else [self.weight]

    @property
    def text(self) -> str | None:
        """The column that may be text: a target that is alone."""
        return self.targets[0] if len(self.targets) == 1 else None


def choose(
    columns: Sequence[str],
    *,
    file: str,
    target: Names = None,
    features: Names = None,
    weight: str | None = None,
) -> Choice:
    """Pick columns by exact names, shell patterns and comma lists.

    Without `features`, these are all columns but the target and the weight. A pattern leaves those
    two out; naming them is an error. `file` is for messages.

    Examples
    --------
    >>> choose(["x1", "x2", "id", "label"], file="train.csv", target="label", features="x*")
    Choice(features=['x1', 'x2'], targets=['label'], weight=None)
    >>> choose(["x1", "x2", "label"], file="train.csv", target="lable")
    Traceback (most recent call last):
    dfwtrace.data.table.DataFileError: train.csv has no column 'lable'; did you mean 'label'?
    """
    check_unique(columns, file)
    targets = [] if target is None else matching(columns, target, file)
    if weight is not None:
        _require(columns, weight, file)
        if weight in targets:
            raise DataFileError(f"column {weight!r} of {file} cannot be both target and weight.")
    taken = {*targets, weight}
    if features is not None:
        return Choice(matching(columns, features, file, taken), targets, weight)
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
    return Choice(left, targets, weight)


def check_unique(columns: Sequence[str], file: str) -> None:
    """Refuse a name that two columns have."""
    name, count = Counter(columns).most_common(1)[0] if columns else ("", 0)
    if count > 1:
        raise DataFileError(f"{file} has {count} columns named {name!r}; names must differ.")


def nearest(name: str, columns: Sequence[str]) -> str:
    """Return the end of "no such column": the nearest name, or the names that exist."""
    close = [known for known in columns if known.lower() == name.lower()]
    close += difflib.get_close_matches(name, columns, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {close[0]!r}?"
    some = ", ".join(repr(known) for known in columns[:5])
    return f"; it has {some}{', ...' if len(columns) > 5 else '.'}"


def matching(
    columns: Sequence[str],
    wanted: Sequence[str] | str,
    file: str,
    taken: Collection[str | None] = (),
) -> list[str]:
    """Return the columns that names and patterns stand for, in the order of the file."""
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


def columns_with(features: list[str], columns: Sequence[str], file: str) -> list[str]:
    """Return the columns that hold a model's features; 'e[3]' may be in a column 'e' of lists."""
    known = set(columns)
    wanted = {name if name in known else re.sub(r"\[\d+\]$", "", name) for name in features}
    missing = [name for name in features if not known & {name, re.sub(r"\[\d+\]$", "", name)}]
    if missing:
        raise features_missing(missing, columns, file)
    return [name for name in columns if name in wanted]


def features_missing(missing: list[str], columns: Sequence[str], file: str) -> DataFileError:
    """Return the error about features of a model that a file does not have."""
    if len(missing) == 1:
        hint = nearest(missing[0], columns)
        return DataFileError(f"{file} has no column {missing[0]!r}, a feature of the model{hint}")
    shown = ", ".join(repr(name) for name in missing[:5])
    more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
    return DataFileError(f"{file} lacks features of the model: {shown}{more}.")


def _items(columns: Sequence[str], wanted: Sequence[str] | str) -> list[str]:
    """Split comma lists, unless the whole is a column's name."""
    items: list[str] = []
    for entry in [wanted] if isinstance(wanted, str) else wanted:
        parts = [entry] if entry in columns else [part.strip() for part in entry.split(",")]
        items += [part for part in parts if part or part in columns]
    return items


def _require(columns: Sequence[str], name: str, file: str) -> None:
    if name not in columns:
        raise DataFileError(f"{file} has no column {name!r}{nearest(name, columns)}")
