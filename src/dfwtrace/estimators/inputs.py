"""What `fit` is given, as the solver takes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from dfwtrace._typing import Array, Matrix
from dfwtrace.validation import describe


def check_rows_and_targets(
    estimator: BaseEstimator, X: Any, y: Any, **targets: Any
) -> tuple[Matrix, Array]:
    """X and y as scikit-learn has them checked, X in float32 or float64 as it comes."""
    checked: tuple[Matrix, Array] = validate_data(
        estimator,
        X,
        y,
        accept_sparse="csr",
        dtype=[np.float64, np.float32],
        accept_large_sparse=True,
        **targets,
    )
    X, y = checked
    return (X.tocsr() if sp.issparse(X) else X), y


def label_columns(y: Any) -> str | Sequence[str]:
    """What `fit` gets as y where X is a Spark DataFrame."""
    if isinstance(y, str) or (isinstance(y, list | tuple) and all(isinstance(c, str) for c in y)):
        return y
    raise TypeError(
        f"y must be the name of a column, or a list of names, where X is a DataFrame, "
        f"got {describe(y)}."
    )
