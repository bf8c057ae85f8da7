"""Spark's daemon of Python workers, with what they need imported before it forks them.

Spark's own daemon forks workers that import everything anew, which takes each of them two seconds
of a processor. Sessions on ``local`` have this one; those on clusters have Spark's own.
"""

from __future__ import annotations

import gc
from importlib import import_module


def main() -> None:
    """Get ready, and then be Spark's own daemon."""
    # They may start threads, which no fork has: BLAS and Arrow see to that themselves.
    for name in ("pandas", "pyarrow", "pyspark.sql.pandas.serializers", "pyspark.worker"):
        import_module(name)
    load_kernels()
    gc.freeze()  # a worker collects garbage after each task, and need not look at all of this
    import_module("pyspark.daemon").manager()


def load_kernels() -> None:
    """Get the machine code of the tasks from its cache, as their first call does."""
    import numpy as np

    import dfwtrace as dt

    X, y = np.arange(12.0).reshape(6, 2), np.arange(6) % 3
    for task, targets in ((dt.Multinomial(), y), (dt.LeastSquares(), X)):
        dt.solve(
            task,
            X,
            targets,
            radius=1.0,
            solver="dfw",
            max_iter=1,
            representation="implicit",
            verbose=False,
        )


if __name__ == "__main__":
    main()
