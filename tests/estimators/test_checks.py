"""scikit-learn's own checks of what an estimator must do."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from sklearn.utils.estimator_checks import check_estimator

import dfwtrace as dt

# One shard, one thread, and a gap that is soon reached: the checks fit several hundred models to a
# few rows each. What the searches do with several radii is in test_cv.py.
SMALL: Any = {"tol": 5e-2, "n_shards": 1, "n_jobs": 1}
SEARCH: Any = {"radii": [1.0], "cv": 2, **SMALL}

# Both compare two fits to seven digits. A fit is certified to `tol`, and sums over other rows round
# otherwise: whether so many digits agree is luck. test_data.py compares them within their gaps.
DIGITS = "a fit is certified to a gap, not to seven digits"
EXPECTED = {
    "check_sample_weight_equivalence_on_dense_data": DIGITS,
    "check_sample_weight_equivalence_on_sparse_data": DIGITS,
}


@pytest.mark.parametrize(
    "estimator",
    [
        dt.TraceNormRegressor(1.0, **SMALL),
        dt.TraceNormClassifier(3.0, **SMALL),
        dt.TraceNormRegressorCV(**SEARCH),
        dt.TraceNormClassifierCV(**SEARCH),
        dt.TraceNormRegressor(1.0, standardize=True, **SMALL),
        dt.TraceNormClassifier(3.0, standardize=True, **SMALL),
    ],
    ids=lambda estimator: type(estimator).__name__ + estimator.standardize * " standardised",
)
def test_an_estimator_is_what_scikit_learn_expects(estimator: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the checks call for them, with data of two rows and such
        results = check_estimator(
            estimator, expected_failed_checks=EXPECTED, on_skip=None, on_fail="raise"
        )
    not_passed = {r["check_name"]: r["status"] for r in results if r["status"] != "passed"}
    # It needs an environment variable that is read before anything is imported.
    assert not_passed.pop("check_array_api_input", "skipped") == "skipped"
    assert set(not_passed) <= set(EXPECTED)
    assert len(results) > 60
