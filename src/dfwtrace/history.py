"""A record for each epoch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

import numpy as np

from dfwtrace._typing import Array

Record = dict[str, Any]


class History(Sequence[Record]):
    """Records of a run, one for each epoch, as rows or as columns.

    Examples
    --------
    >>> from dfwtrace import History
    >>> history = History()
    >>> history.append({"epoch": 1, "objective": 2.0})
    >>> history.append({"epoch": 2, "objective": 1.0, "test_error": 0.25})
    >>> history.column("objective")
    array([2., 1.])
    >>> history.column("test_error")
    array([ nan, 0.25])
    >>> history[-1]["epoch"]
    2
    """

    def __init__(self) -> None:
        self._records: list[Record] = []

    def append(self, record: Mapping[str, Any]) -> None:
        """Add a record."""
        self._records.append(dict(record))

    @property
    def columns(self) -> list[str]:
        """All names that some record has, in the order in which they came up."""
        return list(dict.fromkeys(name for record in self._records for name in record))

    def column(self, name: str) -> Array:
        """One column as an array, with NaN where a record has no such value."""
        if self._records and name not in self.columns:
            raise KeyError(f"no column {name!r}; there are {', '.join(self.columns)}.")
        return np.asarray([record.get(name, np.nan) for record in self._records])

    def to_pandas(self) -> Any:
        """A pandas DataFrame with a row for each epoch."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError("to_pandas needs pandas: pip install pandas.") from error
        return pandas.DataFrame(self._records)

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> list[Record]: ...
    def __getitem__(self, index: int | slice) -> Record | list[Record]:
        return self._records[index]

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self._records)

    def __repr__(self) -> str:
        return f"History({len(self)} epochs: {', '.join(self.columns)})"
