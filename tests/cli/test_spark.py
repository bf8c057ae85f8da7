"""The same model out of a fit on Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.commands import child, done, flowers, told

import dfwtrace as dt

# A Java that lives for seconds: the second compiler would take more time than it gives.
AT_HOME = {"SPARK_LOCAL_IP": "127.0.0.1", "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"}


@pytest.mark.spark
def test_a_fit_on_spark_is_the_fit_here(tmp_path: Path) -> None:
    train = flowers(tmp_path / "train.csv")
    words = ("-t", "species", "--radius", 8, "--n-shards", 2)
    fitted = child(
        "fit", train.as_uri(), *words, "--engine", "spark", "--master", "local[2]", "--test", train,
        "-o", "spark",
        "--report", "report.html", cwd=tmp_path, more=AT_HOME,
    )  # fmt: skip
    # Spark counts the rows only as it reads them, for the fit.
    first, second, *_ = fitted.stdout.splitlines()
    assert first == "Classification with radius 8."
    assert second == f"{train.as_uri()}: 90 rows, 3 features, read by Spark"
    done("fit", train, *words, "-o", tmp_path / "here")
    there, here = (dt.load(tmp_path / name) for name in ("spark", "here"))
    assert list(there.classes_) == list(here.classes_)
    assert list(there.feature_names_in_) == ["sepal", "petal", "width"]
    np.testing.assert_allclose(there.coef_, here.coef_, rtol=0, atol=1e-6)
    assert "spark local[2]" in (tmp_path / "report.html").read_text("utf-8")
    assert told("evaluate", tmp_path / "spark", train)["scores"]["accuracy"] > 0.9


@pytest.mark.spark
def test_vectors_keep_their_precision(tmp_path: Path, spark: Any) -> None:
    from pyspark.ml.linalg import Vectors

    rows = [(Vectors.dense(float(i), 1.0), float(i % 2)) for i in range(8)]
    frame = spark.createDataFrame(rows, ["x", "y"])
    frame.write.parquet(str(tmp_path / "vectors.parquet"))
    words = ("-t", "y", "--radius", 1, "--engine", "spark", "--master", "local[1]")
    refused = child(
        "fit", "vectors.parquet", *words, "--dtype", "float32", cwd=tmp_path, code=2, more=AT_HOME
    )
    assert "Error: --dtype does not go with the vectors of column 'x'." in refused.stderr


def test_without_java_the_engine_says_so(tmp_path: Path) -> None:
    train = flowers(tmp_path / "train.csv")
    failed = child(
        "fit", train, "-t", "species", "--engine", "spark", "--radius", 1,
        cwd=tmp_path, code=1, more={"PATH": str(tmp_path), "JAVA_HOME": "", "SPARK_REMOTE": ""},
    )  # fmt: skip
    (line,) = failed.stderr.splitlines()
    assert line.startswith("Error: Spark needs Java 17 or later: install one ")


def test_spark_must_be_told_the_target(train: Path) -> None:
    error = told("fit", train, "--engine", "spark", "--radius", 1, "-o", train.parent / "m", code=2)
    assert error["error"] == "--target is missing: which column is it?"
