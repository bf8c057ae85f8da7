"""What a user should know of a fit that has ended: warnings, and what to change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.exceptions import ConvergenceWarning

from dfwtrace._typing import Data
from dfwtrace.result import Result

# What to do about a fit that ended short of its tolerance, by its status.
_ADVICE = {
    "max_iter": "Raise max_iter or tol",
    "max_time": "Raise max_time or tol",
    "stalled": "Raise tol",
}
_AT_ZERO = 1e-4  # a fit that lowers F by at most this share of F(0) ended at about W = 0
_SEPARATED = 1e-4  # classes are if F falls to this share of F(0), and within tol
_LITTLE = 0.9  # a fit whose objective is at least this share of F(0) explains little
_VERY_DIFFERENT = 1e9  # sizes of features, of which the small ones then count for nothing
_SOME_ROWS = 2048  # to estimate these sizes by
_TOO_FEW_ROWS = 10  # too few to choose a radius by


def concerns(estimator: Any, result: Result, X: Data) -> Iterator[tuple[type[Warning], str]]:
    """What a user should know of a fit that has ended by itself."""
    if not estimator.standardize and (ratio := _ratio_of_sizes(X)) > _VERY_DIFFERENT:
        sentence = f"The features differ in size by a factor of {ratio:.0e}"
        yield UserWarning, f"{sentence}; set standardize=True."
    if result.status in _ADVICE and estimator.tol is not None:  # user-requested stops do not warn
        scaling = "" if estimator.standardize else ", or set standardize=True"
        yield ConvergenceWarning, f"{result.message} {_ADVICE[result.status]}{scaling}."
    search, n_rows = vars(estimator).get("path_", result.search), result.plan.workload.n
    if search is not None and search.warning is not None:
        yield UserWarning, search.warning
    elif search is not None and n_rows < _TOO_FEW_ROWS:
        few = "one row" if n_rows == 1 else f"{n_rows} rows"
        yield UserWarning, f"The radius was chosen by {few} only, which is a guess."
    before, now, radius = result.objective_at_zero, result.objective, result.radius
    within = now <= min(estimator.tol or 0.0, _SEPARATED) * before and before > 0.0
    if is_classifier(estimator) and within and not result.is_bound_active:
        yield (
            UserWarning,
            f"The classes are separated: the objective is {now / before:.1g} of its value at "
            f"W = 0, within tol, and radius {radius:.3g} holds nothing back, so W is one of "
            "many; a smaller radius or tol determines it.",
        )
    # With a tiny radius W = 0 is within the tolerance, and W may end anywhere in the ball.
    # A gap below 1e-9 is but rounding.
    undecided = result.gap > max(1e-9 * before, 0.1 * (before - now))
    undecided = undecided and before - now <= _AT_ZERO * before
    undecided = undecided and result.status == "optimal"  # else more epochs decide
    if (result.is_bound_active or undecided) and now >= _LITTLE * before > 0.0:
        share = f"the objective is still {now / before:.0%} of its value at W = 0"
        if search is not None:
            if search.warning is not None and radius > search.radii.min():
                return  # a larger one may explain more, which the search has said
            at_best = f"At the radius that did best on rows left out, {radius:.3g}, {share}"
            yield UserWarning, f"{at_best}: the features explain little."
            return
        # F at the best W is convex in the radius, so half of F(0) takes this much at least.
        lowered = before - now + result.gap  # at most, at this radius
        least = f", or at least {0.5 * radius * before / lowered:.2g}" if lowered > 0 else ""
        small = f"radius {radius:g} is so small that the model explains little: {share}"
        yield UserWarning, f"{small}; try radius='auto'{least}."


def _ratio_of_sizes(X: Data) -> float:
    """Return the largest over the smallest standard deviation of the features, of some rows."""
    if not isinstance(X, np.ndarray) or not X.size:
        return 1.0
    rows = X[:_SOME_ROWS].astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        sizes = rows.std(axis=0)
        sizes = sizes[sizes > 1e-12 * np.abs(rows.mean(axis=0))]  # others are constant
        return float(sizes.max() / sizes.min()) if sizes.size else 1.0
