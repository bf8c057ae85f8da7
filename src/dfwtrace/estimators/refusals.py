"""A fit that is refused, or fails, leaves what the one before it has found."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# What a fit knows of its data before it has solved anything.
_OF_DATA = ("classes_", "n_features_in_", "feature_names_in_", "_one_target")


@contextmanager
def as_before_if_refused(estimator: Any) -> Iterator[None]:
    """What an earlier fit has found stays usable if the one made within is refused or fails."""
    before = {name: vars(estimator)[name] for name in _OF_DATA if name in vars(estimator)}
    result = vars(estimator).get("result_")
    try:
        yield
    except BaseException:
        known = vars(estimator)
        # A fit that has come to its result, and fails later, has what belongs to that.
        if known.get("result_") is result:
            for name in _OF_DATA:
                known.pop(name, None)
            known.update(before)
        raise
