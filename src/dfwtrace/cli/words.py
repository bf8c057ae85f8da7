"""Numbers and lines as the commands print them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dfwtrace.report import Worst, number
from dfwtrace.report import name as clean_name

_SHARES = ("accuracy", "top-5 accuracy", "balanced accuracy")


def lines(facts: Iterable[tuple[str, Any]]) -> str:
    """Names and values below each other.

    Examples
    --------
    >>> print(lines([("rank", 3), ("status", "optimal")]))
    rank    3
    status  optimal
    """
    known = [(name, str(value)) for name, value in facts]
    width = max((len(name) for name, _ in known), default=0)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in known)


def scored(values: Mapping[str, float]) -> list[tuple[str, str]]:
    """Scores, shares as percentages.

    Examples
    --------
    >>> scored({"accuracy": 0.9731, "log loss": 0.1})
    [('accuracy', '97.3 %'), ('log loss', '0.1')]
    """
    return [
        (name, f"{100.0 * value:.1f} %" if name in _SHARES else number(value))
        for name, value in values.items()
    ]


def by_key(values: Mapping[str, float]) -> dict[str, float]:
    """Scores under names that programs like.

    Examples
    --------
    >>> by_key({"top-5 accuracy": 0.5, "R²": 0.9})
    {'top_5_accuracy': 0.5, 'r2': 0.9}
    """
    keys = {name: name.replace("R²", "r2").lower() for name in values}
    return {keys[name].replace("-", "_").replace(" ", "_"): value for name, value in values.items()}


def in_one_line(values: Mapping[str, float]) -> str:
    """Scores in a sentence."""
    return ", ".join(f"{name} {value}" for name, value in scored(values))


def some_of(names: Sequence[Any], most: int = 8) -> str:
    """The first few of many names."""
    shown = ", ".join(clean_name(name) for name in names[:most])
    return shown + (f", … ({len(names)} in all)" if len(names) > most else "")


def worst_lines(worst: Sequence[Worst], classifies: bool, most: int = 3) -> list[tuple[str, str]]:
    """The classes or targets with the largest errors."""
    if len(worst) < 2:
        return []
    found = []
    for entry in worst[:most]:
        if entry.error == 0.0:
            break
        told = f"{100.0 * entry.error:.1f} % wrong" if classifies else f"RMSE {number(entry.error)}"
        rows = f" of {entry.count} rows" if classifies else ""
        found.append(f"{clean_name(entry.name)} ({told}{rows})")
    return [("worst", ", ".join(found))] if found else []
