"""What an experiment consists of: runs, and the rows that are compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

#: A row as it is stored: experiment, settings, values, seconds, the share of the processors' time
#: that other programs had meanwhile, and where it was measured.
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Run:
    """One thing to measure.

    Attributes
    ----------
    experiment : str
        Which figure or table it is for.
    settings : dict
        Everything that it depends on, in JSON's types: a row with the same settings is this run's.
    measure : callable
        Returns the values, in JSON's types.
    """

    experiment: str
    settings: Mapping[str, Any]
    measure: Callable[[], Mapping[str, Any]]

    @property
    def label(self) -> str:
        """One line for people."""
        told = ", ".join(
            str(value) if name == "method" else f"{name} {value}"
            for name, value in self.settings.items()
            if name not in ("scale", "seed")
        )
        return f"{self.experiment}: {told}"


class MissingRowsError(LookupError):
    """Rows that are to be compared are not all there."""


class BySetting(dict[Any, Row]):
    """Rows by the value of one of their settings; one that is not there is missing."""

    def __missing__(self, value: Any) -> NoReturn:
        raise MissingRowsError(f"there is no row for {value}.")


def by_setting(rows: Iterable[Row], name: str) -> BySetting:
    """Rows by the value of one of their settings.

    Examples
    --------
    >>> rows = by_setting([{"settings": {"method": "SVA"}, "values": {}}], "method")
    >>> list(rows)
    ['SVA']
    >>> rows["Naive"]
    Traceback (most recent call last):
    dfwtrace.experiments.runs.MissingRowsError: there is no row for Naive.
    """
    return BySetting((row["settings"][name], row) for row in rows)


def of_experiment(rows: Sequence[Row], experiment: str, **settings: Any) -> list[Row]:
    """The rows of one experiment whose settings have these values."""
    return [
        row
        for row in rows
        if row["experiment"] == experiment
        and all(row["settings"].get(name) == value for name, value in settings.items())
    ]
