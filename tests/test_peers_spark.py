"""MLlib's fits, and ours on the same Spark."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

# `benchmarks` is run from the checkout and never installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import peers, peers_spark
from benchmarks.peers_curves import Curve
from benchmarks.peers_problems import small_problems
from tests.peer_rows import check

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def fits(seconds_of_iteration: float, most: int) -> tuple[peers_spark.Fits, list[int]]:
    """Fits of a good model after 20 iterations and of a bad one before, and the limits asked for.

    No fit makes more than `most` iterations.
    """
    problem = small_problems("toy")[0]
    asked: list[int] = []
    W, *_ = np.linalg.lstsq(problem.X, np.eye(problem.m)[problem.y])
    assert problem.error(W) < problem.error(-W)

    def fit(limit: int) -> peers_spark.Fit:
        asked.append(limit)
        made = min(limit, most)
        return peers_spark.Fit(W.T if made >= 20 else -W.T, seconds_of_iteration * made, made)

    return peers_spark.Fits(fit), asked


def test_the_cap_holds_for_each_of_mllibs_fits() -> None:
    problem = small_problems("toy")[0]
    runner, asked = fits(0.1, most=1000)
    curve = Curve(cap=4.0)
    assert runner(problem, curve)["their steps"] == 42.0
    assert asked == [4, 6, 9, 13, 19, 28, 42]  # 12.1 s in all, and the last one 4.2
    assert curve.stopped
    assert curve.seconds == pytest.approx([0.1 * limit for limit in asked])
    assert curve.values[4] > curve.values[5] == curve.values[6]
    asked.clear()
    again = Curve(wanted=curve.best, cap=4.0)
    runner(problem, again)
    assert asked == [28]  # what is known is not looked for again
    assert again.time_to(curve.best) == pytest.approx(2.8)
    assert not again.stopped


def test_mllibs_fits_have_a_minute_together() -> None:
    runner, asked = fits(1.0, most=1000)
    curve = Curve(cap=1000.0)
    runner(small_problems("toy")[0], curve)
    assert asked == [4, 6, 9, 13, 19]  # 51 s, and the next one would take 28
    assert curve.stopped


def test_mllibs_fits_end_when_longer_ones_would_be_the_same() -> None:
    runner, asked = fits(0.1, most=25)
    curve = Curve(cap=1000.0)
    assert runner(small_problems("toy")[0], curve)["their steps"] == 25.0
    assert asked == [4, 6, 9, 13, 19, 28]
    assert not curve.stopped


def test_mllib_is_compared_with_ours_in_process_and_on_its_spark(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sklearn.linear_model import LogisticRegression

    problem = small_problems("toy")[0]
    monkeypatch.setattr(peers_spark, "_FEWEST", 25)
    *_, here, there = peers._to_the_same_error(problem, "toy", 1)
    for row, place in ((here, "in process"), (there, "on the same Spark")):
        assert row.case == f"multi-class, MLlib LogisticRegression (ours {place}), test error"
        check(row)
        assert row.detail["reached"] == 1.0
    # Both start from the same DataFrame, so that ours has to start workers and bring them the rows.
    assert 0.0 < there.detail["setup"] < there.seconds["accelerated"]
    one_row = 1.001 / len(problem.y_test)
    assert there.detail["best"] == pytest.approx(here.detail["best"], abs=one_row)
    assert there.detail["their best"] == here.detail["their best"]
    # With iterations enough it is scikit-learn's model: the penalties mean the same.
    model = LogisticRegression(C=problem.penalty, tol=1e-10, fit_intercept=False, max_iter=1000)
    score = model.fit(problem.X, problem.y).score(problem.X_test, problem.y_test)
    assert here.detail["their best"] == pytest.approx(1.0 - score, abs=one_row)
