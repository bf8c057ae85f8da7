"""Where an estimator's fit runs, from the settings that it has."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import scipy.sparse as sp

from dfwtrace.data.shards import default_shards
from dfwtrace.engines import Engine, LocalEngine, is_frame
from dfwtrace.validation import check_count, describe


def engine_for(engine: Any, X: Any, n_shards: int | None, n_jobs: int | None) -> Engine | None:
    """The engine; None for the one that `dfwtrace.solve` takes by itself."""
    if not isinstance(engine, str):
        given: Engine | None = engine
        return given
    if engine != "local":
        raise ValueError(
            f"engine must be 'local' or an engine such as SparkEngine(spark), "
            f"got {describe(engine)}."
        )
    if is_frame(X):
        return None  # the default there
    if n_shards is None:
        n_shards = default_shards((X.data if sp.issparse(X) else X).nbytes)
    return LocalEngine(check_count("n_shards", n_shards, 1), threads(n_jobs))


def threads(n_jobs: int | None) -> int | None:
    """Threads as scikit-learn counts them: -1 is all processors, -2 all but one.

    Examples
    --------
    >>> threads(3)
    3
    """
    if n_jobs is None:
        return None
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, int | np.integer):
        raise TypeError(f"n_jobs must be a whole number or None, got {describe(n_jobs)}.")
    if n_jobs == 0:
        raise ValueError("n_jobs must not be 0: -1 is all processors.")
    if n_jobs > 0:
        return int(n_jobs)
    return max(1, (os.cpu_count() or 1) + 1 + int(n_jobs))
