"""Labels of a DataFrame as numbers from 0, and weights for them: expressions that Spark runs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dfwtrace._typing import Array
from dfwtrace.validation import describe

# More classes than this are taken for the targets of a regression.
_MOST_CLASSES = 100_000


class NumberedLabels(NamedTuple):
    """A frame with a column of numbers for its labels, and one of weights if there are any."""

    frame: Any
    label: str
    weight: str | None
    classes: Array


def number_labels(
    frame: Any, label: Any, class_weight: Any = None, sample_weight: Any = None
) -> NumberedLabels:
    """Number the labels in their order; one Spark job adds up the weights of each.

    Parameters
    ----------
    frame : DataFrame
    label : str
        The column of labels: numbers or strings.
    class_weight : dict, "balanced" or None
    sample_weight : str, optional
        A column of weights, which those of the classes are multiplied by.
    """
    if not isinstance(label, str):
        raise TypeError(
            f"y must be the name of a column where X is a DataFrame, got {describe(label)}."
        )
    if label not in frame.columns:
        raise ValueError(f"y names the column {label!r}, which the DataFrame does not have.")
    from pyspark.sql import functions as sql

    one = sql.lit(1.0) if sample_weight is None else sql.col(_quoted(sample_weight)).cast("double")
    counted = (
        frame.groupBy(sql.col(_quoted(label))).agg(sql.sum(one)).limit(_MOST_CLASSES + 1).collect()
    )
    if len(counted) > _MOST_CLASSES:
        raise ValueError(f"column {label!r} has more than {_MOST_CLASSES} classes.")
    counts = {row[0]: float(row[1] or 0.0) for row in counted}
    if None in counts or any(value != value for value in counts):
        raise ValueError(f"column {label!r} has rows without a label.")
    if not counts:
        raise ValueError("X must have at least one row, got an empty DataFrame.")
    classes = sorted(counts)
    numbers = sql.array_position(sql.array(*map(sql.lit, classes)), sql.col(_quoted(label))) - 1
    names = set(frame.columns)
    number, weight = _new_name("label", names), sample_weight
    frame = frame.withColumn(number, numbers)
    if class_weight is not None:
        of_classes = _class_weights(class_weight, classes, counts)
        own = sql.element_at(
            sql.array(*map(sql.lit, of_classes)), (sql.col(number) + 1).cast("int")
        )
        weight = _new_name("weight", names)
        frame = frame.withColumn(
            weight, own if sample_weight is None else own * sql.col(_quoted(sample_weight))
        )
    return NumberedLabels(frame, number, weight, np.array(classes))


def _class_weights(class_weight: Any, classes: list[Any], counts: dict[Any, float]) -> list[float]:
    """Of each class; "balanced" is total / (classes · own), a class without a weight counts 1."""
    if isinstance(class_weight, str) and class_weight == "balanced":
        total = sum(counts.values())
        return [total / (len(classes) * counts[c]) for c in classes]
    if not isinstance(class_weight, dict):
        raise TypeError(
            f"class_weight must be a dict, 'balanced' or None, got {describe(class_weight)}."
        )
    return [float(class_weight.get(c, 1.0)) for c in classes]


def _quoted(name: str) -> str:
    """A column's name as Spark takes it whole, also with dots in it."""
    return "`" + name.replace("`", "``") + "`"


def _new_name(name: str, taken: set[str]) -> str:
    """A column name that no column has, whatever its case."""
    name = f"dfwtrace_{name}"
    while name.lower() in {other.lower() for other in taken}:
        name += "_"
    return name
