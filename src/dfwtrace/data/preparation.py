"""What is done to the columns of a file before they are features: learned once, then repeated."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp

from dfwtrace._typing import Array, DType, Matrix
from dfwtrace.data.table import BadValueError, DataFileError

Impute = Literal["mean", "median"]
#: The category of a cell without a value.
NO_VALUE = "(missing)"
#: More categories in one column than anybody means; a model file has to hold their names.
MOST_CATEGORIES = 100_000

_DENSE = 0.2  # at least this share of the entries is stored, or one-hot features are a CSR matrix
_VALUES_AT_ONCE = 1 << 25
_SHOWN = 5
_FEW_ROWS, _SOME_ROWS, _FIRST_ROWS, _NEARLY_ALL = 20, 100, 1000, 0.9  # of ids
_ID = re.compile(r"(?i:(.*[_ .-])?(id|uuid|guid|key|index)|id[_ .-].*)|.*[a-z]I[dD]")
_DATE = re.compile(r"\d{4}([-/.])\d\d?\1\d\d?\b|\d\d?([-/.])\d\d?\2\d{4}\b")
_SEPARATED = re.compile(r"[+-]?\d+([., '_]\d{3})+([.,]\d+)?|[+-]?\d*,\d+")
_NOTHING = ("?", "-", "--", ".", "missing", "unknown")
_LATER = dict.fromkeys(("text", "date"), "the model needs numbers there")
_LATER["missing"] = "a model that was fitted with --impute fills in missing numbers"


@dataclass(frozen=True)
class Preparation:
    """How the columns of a file become the features of a model: plain values, kept as JSON."""

    columns: list[str] | None = None  # that features are made of, in order; None without names
    categories: dict[str, list[str]] = field(default_factory=dict)  # of one-hot encoded columns
    impute: str | None = None
    fill: dict[str, float] = field(default_factory=dict)  # by feature, for a missing number
    keep: list[str] = field(default_factory=list)
    drop: list[str] = field(default_factory=list)

    @classmethod
    def from_plain(cls, plain: Any) -> Preparation:
        """Return what `to_plain` made a dictionary of; a ValueError says that it did not."""
        if not isinstance(plain, dict) or plain.keys() != {part.name for part in fields(cls)}:
            raise ValueError("its preparation has other parts.")
        made = cls(**plain)
        sound = isinstance(made.categories, dict) and isinstance(made.fill, dict)
        lists = [made.columns or [], made.keep, made.drop]
        lists += made.categories.values() if sound else []
        sound = sound and all(isinstance(each, list) for each in lists)
        sound = sound and all(isinstance(word, str) for each in lists for word in each)
        sound = sound and all(isinstance(value, float | int) for value in made.fill.values())
        if not sound or made.impute not in (None, "mean", "median"):
            raise ValueError("its preparation is of other types.")
        return made

    def to_plain(self) -> dict[str, Any]:
        """Return a dictionary for JSON."""
        return asdict(self)

    def summary(self) -> dict[str, str]:
        """Return what is done, for people, by the names of the options."""

        def some(words: list[str]) -> str:
            more = f", … ({len(words)} in all)" if len(words) > _SHOWN else ""
            return ", ".join(words[:_SHOWN]) + more

        found = {"drop": some(self.drop), "keep": some(self.keep)}
        each = [f"{name} ({some(values)})" for name, values in self.categories.items()]
        found["categorical"] = some(each)
        if self.impute is not None:
            values = some([f"{name} {value:.6g}" for name, value in self.fill.items()])
            found["impute"] = f"{self.impute}: {values}"
        return {option: text for option, text in found.items() if text}

    @property
    def one_hot(self) -> set[str]:
        """The names of all one-hot features."""
        return {name for c, values in self.categories.items() for name in one_hot_names(c, values)}

    @property
    def leaves_nan(self) -> bool:
        """Whether missing numbers wait for the values that replace them."""
        return self.impute is not None and not self.fill

    def with_fill(self, X: Matrix, names: Sequence[str], file: str) -> Preparation:
        """Learn the mean or median of each feature's numbers, and replace NaN in X by it."""
        encoded, found = self.one_hot, dict[str, float]()
        average = np.nanmean if self.impute == "mean" else np.nanmedian
        place = [j for j, name in enumerate(names) if name not in encoded]
        for some in _groups(place, X.shape[0]):
            block = _columns(X, some).astype(np.float64, copy=False)
            empty = np.asarray(np.isnan(block).all(axis=0))
            values = np.zeros(len(some))
            with np.errstate(over="ignore"):
                values[~empty] = average(block[:, ~empty], axis=0)
            for name, value, none in zip([names[j] for j in some], values, empty, strict=True):
                if none or not math.isfinite(value):
                    why = "it holds no values" if none else "its numbers are too large"
                    problem = f"column {name!r} of {file} has no {self.impute}: {why}"
                    raise DataFileError(f"{problem}; leave it out with --drop {_quoted([name])}.")
                found[name] = float(value)
        learned = replace(self, fill=found)
        learned.fill_missing(X, names)
        return learned

    def fill_missing(self, X: Matrix, names: Sequence[str]) -> None:
        """Replace NaN by what stands for a missing number of its feature, in place."""
        if not self.fill:
            return
        values = np.array([self.fill.get(name, math.nan) for name in names])
        if sp.issparse(X):
            bad = np.flatnonzero(np.isnan(X.data))
            X.data[bad] = values[X.indices[bad]]
            return
        step = max(1, _VALUES_AT_ONCE // max(1, X.shape[1]))
        for start in range(0, X.shape[0], step):
            block = X[start : start + step]
            rows, columns = np.nonzero(np.isnan(block))
            block[rows, columns] = values[columns]


class Codes(NamedTuple):
    """A column of categories by their numbers; -1 for one that is not known."""

    codes: Array
    size: int

    def one_hot(self, dtype: DType) -> Matrix:
        """Return a CSR matrix with a one in each row, or none."""
        known = self.codes >= 0
        bounds = np.concatenate([[0], np.cumsum(known)])
        ones = np.ones(int(known.sum()), dtype)
        return sp.csr_array((ones, self.codes[known], bounds), shape=(len(known), self.size))


def one_hot_names(column: str, categories: Sequence[str]) -> list[str]:
    """Return the names of a column's features."""
    return [f"{column}={category}" for category in categories]


def side_by_side(parts: Sequence[Array | Codes], rows: int, dtype: DType) -> Matrix:
    """Return numbers and one-hot columns as one matrix; CSR if little of it has to be stored."""
    widths = [part.size if isinstance(part, Codes) else part.shape[1] for part in parts]
    stored = sum(1 if isinstance(part, Codes) else part.shape[1] for part in parts)
    if stored < _DENSE * sum(widths):
        blocks = [part.one_hot(dtype) if isinstance(part, Codes) else part for part in parts]
        return sp.hstack([sp.csr_array(block, dtype=dtype) for block in blocks], format="csr")
    X, start = np.zeros((rows, sum(widths)), dtype), 0
    for part, width in zip(parts, widths, strict=True):
        if isinstance(part, Codes):
            known = np.flatnonzero(part.codes >= 0)
            X[known, start + part.codes[known]] = 1.0
        else:
            X[:, start : start + width] = part
        start += width
    return X


def warn_of_ids(X: Matrix, names: Sequence[str], done: Preparation) -> list[str]:
    """Return a sentence for each column that looks like an id."""
    n, found = X.shape[0], dict[str, str]()
    if n < _FEW_ROWS:
        return []
    encoded = done.one_hot
    # Not those of embeddings, 'e[0]' and so on.
    plain = [j for j, name in enumerate(names) if name not in encoded and not name.endswith("]")]
    for some in _groups(plain, _FIRST_ROWS):
        first = _columns(X[:_FIRST_ROWS], some)  # most columns need no second look
        for j, values in zip(some, first.T, strict=True):
            if _is_id(values, names[j]) and _is_id(_columns(X, [j])[:, 0], names[j]):
                found[names[j]] = "another whole number in nearly every row"
    for name, categories in done.categories.items():
        if len(categories) >= _NEARLY_ALL * n:
            found[name] = f"{len(categories)} categories in {n} rows"
    return [
        f"column {name!r} holds {what}, like an id: leave it out with --drop {_quoted([name])}, "
        f"or carry it into the predictions with --keep {_quoted([name])}."
        for name, what in found.items()
    ]


def _is_id(values: Array, name: str) -> bool:
    """Whether numbers are whole and differ: all of them or, if the name says id, most."""
    if (values != np.rint(values)).any():
        return False
    n, distinct, steps = len(values), np.unique(values).size, np.diff(values)
    if _ID.fullmatch(name):
        return bool(distinct >= _NEARLY_ALL * n)
    # A few numbers may all differ by chance; hardly so in order.
    return distinct == n and (n >= _SOME_ROWS or bool((steps > 0).all() or (steps < 0).all()))


@contextmanager
def advising(
    others: Collection[str | None], kinds: Mapping[str, str], *, learning: bool
) -> Iterator[None]:
    """Add to an error about a feature what to do; `others` are columns that are no features.

    `kinds` has the features that hold "text" or a "date".
    """
    try:
        yield
    except BadValueError as error:
        if error.column in others:
            raise
        advice = _advice(error, kinds) if learning else _LATER.get(error.kind, "")
        raise error.with_advice(advice) from error


def _advice(error: BadValueError, kinds: Mapping[str, str]) -> str:
    text = error.text.strip()
    if error.kind == "missing":
        return "fill in missing numbers with --impute mean or --impute median"
    if error.kind not in ("text", "date"):
        return ""
    if _SEPARATED.fullmatch(text):
        return "write numbers without thousands separators and with a decimal point"
    if text.lower() in _NOTHING:
        return "leave cells without a value empty, and fill them in with --impute"

    def kind_of(name: str, kind: str | None) -> str | None:
        return "id" if kind == "text" and _ID.fullmatch(name) else kind

    kind = kind_of(error.column, "date" if error.kind == "date" or _DATE.match(text) else "text")
    alike = [name for name, of in kinds.items() if kind_of(name, of) == kind]
    alike = [name for name in alike if name != error.column]
    names, also = _quoted([error.column, *alike[:11]]), ""
    if alike:
        also = f" (so do {', '.join(map(repr, alike[:3]))}{', …' * (len(alike) > 3)})"
    if kind == "text":
        return f"one-hot encode it with --categorical {names}, or leave it out with --drop{also}"
    return f"leave it out with --drop {names}, or carry it into the predictions with --keep{also}"


def _quoted(names: Sequence[str]) -> str:
    return shlex.quote(",".join(names))


def _columns(X: Matrix, some: list[int]) -> Array:
    """Return a few columns as a dense array."""
    block: Array = X[:, some].toarray() if sp.issparse(X) else np.asarray(X[:, some])
    return block


def _groups(columns: list[int], rows: int) -> Iterator[list[int]]:
    """Cut columns into groups that are small in memory."""
    step = max(1, _VALUES_AT_ONCE // max(1, rows))
    yield from (columns[start : start + step] for start in range(0, len(columns), step))
