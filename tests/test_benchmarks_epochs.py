"""Epochs that the solver takes on problems of the corpus: at most half as many again as it did."""

from __future__ import annotations

import pytest
from benchmarks.corpus.methods import ours
from benchmarks.corpus.problems import load

EPOCHS = {
    "squares": 8,
    "squares, n ≪ d": 4,
    "squares, intercept": 8,
    "squares, raw units, ×0.3": 24,
    "squares, condition 1e4": 28,
    "squares, counts": 25,
    "squares, uncentred": 21,
    "classes": 28,
    "classes, intercept": 24,
    "classes, separable": 41,
    "classes, imbalanced": 88,
    "classes, raw units": 202,
    "digits": 25,
}


@pytest.mark.parametrize("name", EPOCHS)
def test_a_problem_takes_no_more_epochs_than_it_did(name: str) -> None:
    problem = load(name)
    assert problem is not None
    found = ours(problem, problem.tol, 600.0, 5000)
    assert found.status == "optimal"
    assert found.gap <= problem.tol
    assert found.detail["epochs"] <= 1.5 * EPOCHS[name]
