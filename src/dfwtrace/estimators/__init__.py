"""Estimators in the manner of scikit-learn."""

from dfwtrace.estimators.cv import TraceNormClassifierCV, TraceNormRegressorCV
from dfwtrace.estimators.linear import TraceNormClassifier, TraceNormRegressor
from dfwtrace.estimators.saving import load

# fmt: off
__all__ = [
    "TraceNormClassifier", "TraceNormClassifierCV", "TraceNormRegressor", "TraceNormRegressorCV",
    "load",
]
# fmt: on
