"""Labels and estimators on a DataFrame: the same model as in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import dfwtrace as dt
from dfwtrace.engines.spark.dataframe import number_labels

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

D = 6


def rows() -> tuple[Any, Any, Any]:
    """Features, labels as text, and weights."""
    X, y, _ = dt.datasets.make_multiclass(n=90, d=D, m=3, rank=2, random_state=3)
    names = np.array(["pear", "apple", "fig"])[y]
    return X, names, 1.0 + np.arange(90) % 3


@pytest.fixture
def frame(spark: SparkSession) -> DataFrame:
    X, names, weights = rows()
    return spark.createDataFrame(
        [(x.tolist(), str(y), float(w)) for x, y, w in zip(X, names, weights, strict=True)],
        "features array<double>, fruit string, w double",
    )


def collected(numbered: Any, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in numbered.frame.select(*columns).collect()]


def test_labels_are_numbered_in_their_order(frame: DataFrame) -> None:
    numbered = number_labels(frame, "fruit")
    assert numbered.classes.tolist() == ["apple", "fig", "pear"]
    assert numbered.weight is None
    for name, number in collected(numbered, "fruit", numbered.label):
        assert numbered.classes[number] == name
    assert frame.columns == ["features", "fruit", "w"]


def test_numbers_with_gaps_are_numbered_without(spark: SparkSession) -> None:
    numbered = number_labels(spark.createDataFrame([(7,), (-2,), (7,), (30,)], "c int"), "c")
    assert numbered.classes.tolist() == [-2, 7, 30]
    assert sorted(collected(numbered, "c", numbered.label)) == [(-2, 0), (7, 1), (7, 1), (30, 2)]


def test_names_of_columns_may_have_dots(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("b", 2.0), ("a", 1.0)], "`kind.of` string, `w.t` double")
    numbered = number_labels(frame, "kind.of", "balanced", "w.t")
    assert numbered.classes.tolist() == ["a", "b"]
    weights = collected(numbered, numbered.weight or "")
    assert [weight for (weight,) in weights] == pytest.approx([1.5, 1.5])


def test_weights_of_classes_are_multiplied_with_those_of_rows(frame: DataFrame) -> None:
    given = number_labels(frame, "fruit", {"fig": 3.0}, "w")
    assert given.weight is not None
    for name, own, weight in collected(given, "fruit", "w", given.weight):
        assert weight == own * (3.0 if name == "fig" else 1.0)
    balanced = number_labels(frame, "fruit", "balanced", "w")
    totals = dict.fromkeys(balanced.classes, 0.0)
    for name, weight in collected(balanced, "fruit", balanced.weight or ""):
        totals[name] += weight
    assert np.ptp(list(totals.values())) == pytest.approx(0.0, abs=1e-9)


def test_bad_labels_are_refused(spark: SparkSession, frame: DataFrame) -> None:
    with pytest.raises(ValueError, match="y names the column 'colour'"):
        number_labels(frame, "colour")
    with pytest.raises(TypeError, match="y must be the name of a column"):
        number_labels(frame, ["fruit"])
    with pytest.raises(TypeError, match="class_weight must be a dict"):
        number_labels(frame, "fruit", 3)
    with pytest.raises(ValueError, match="'c' has rows without a label"):
        number_labels(spark.createDataFrame([("a",), (None,)], "c string"), "c")
    with pytest.raises(ValueError, match="an empty DataFrame"):
        number_labels(spark.createDataFrame([], "c string"), "c")


def test_a_classifier_learns_the_same_from_a_frame(spark: SparkSession, frame: DataFrame) -> None:
    X, names, weights = rows()
    settings: dict[str, Any] = {"radius": 5.0, "tol": 1e-8, "class_weight": "balanced"}
    engine = dt.SparkEngine(spark, n_shards=2, n_workers=2)
    far = dt.TraceNormClassifier(engine=engine, **settings).fit(frame, "fruit", sample_weight="w")
    near = dt.TraceNormClassifier(**settings).fit(X, names, sample_weight=weights)
    assert far.status_ == near.status_ == "optimal"
    assert far.classes_.tolist() == near.classes_.tolist()
    assert far.n_features_in_ == D
    np.testing.assert_allclose(far.predict_proba(X), near.predict_proba(X), atol=1e-4)


def test_a_search_on_a_frame_finds_the_radius_and_the_targets(spark: SparkSession) -> None:
    X, Y, _ = dt.datasets.make_multitask(n=80, d=3, m=2, rank=1, noise=0.1, random_state=0)
    Y = Y + 5.0
    columns = ["x0", "x1", "x2", "a", "b"]
    table = np.column_stack([X, Y]).tolist()
    frame = spark.createDataFrame(table, ", ".join(f"{name} double" for name in columns))
    engine = dt.SparkEngine(spark, n_shards=2, n_workers=2)
    search = dt.TraceNormRegressorCV(radii=[0.01, 0.1, 1.0, 10.0], cv=3, engine=engine, tol=1e-5)
    search.fit(frame, ["a", "b"], features=["x0", "x1", "x2"])
    assert search.radius_ == 1.0
    near = dt.TraceNormRegressor(radius=1.0, tol=1e-5).fit(X, Y)
    np.testing.assert_allclose(search.predict(X), near.predict(X), atol=1e-2)


def test_messages_name_the_users_columns_only(spark: Any) -> None:
    rows = [(float(i), "ab"[i % 2], None if i == 3 else 1.0, "x") for i in range(6)]
    frame = spark.createDataFrame(rows, "x double, fruit string, w double, text string")
    model = dt.TraceNormClassifier(radius=1.0, class_weight="balanced")

    def said(weight: str | None, *features: str) -> str:
        with pytest.raises((TypeError, ValueError)) as error:
            model.fit(frame, "fruit", weight, features=list(features))
        return str(error.value)

    assert said(None, "q").endswith("its columns are 'x', 'fruit', 'w', 'text'.")
    assert "column 'w' holds one in row" in said("w", "x")
    assert "sample_weight names the column 'v', of which the DataFrame has 0" in said("v", "x")
    assert said("text", "x") == (
        "sample_weight must name columns of numbers, but column 'text' is string."
    )


def test_a_column_of_the_same_name_is_left_alone(spark: Any) -> None:
    frame = spark.createDataFrame([(5.0, "a"), (7.0, "b")], "dfwtrace_label double, fruit string")
    numbered = number_labels(frame, "fruit")
    assert numbered.label != "dfwtrace_label"
    rows = numbered.frame.select("dfwtrace_label", numbered.label).collect()
    assert [tuple(row) for row in rows] == [(5.0, 0), (7.0, 1)]
