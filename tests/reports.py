"""Reports that several test modules look at."""

from __future__ import annotations

import warnings
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

import dfwtrace as dt
from dfwtrace.evaluation import Confusion, Evaluation, Part, Weights
from dfwtrace.report import Report

HOSTILE = [
    "</script><script>window.pwned=1</script>",
    "</title></style></svg></bdi><script>window.pwned=1</script>",
    '"><img src=x onerror="window.pwned=1">',
    "'><svg onload=window.pwned=1>",
    "<!--",
    "]]>",
    "{{ 7 * 7 }}{% raw %}",
    "javascript:window.pwned=1",
    "&lt;b&gt; &amp; &#x202e;",
    "http://example.invalid/x.png",
    "x" * 100_000,
    "a name with many words " * 50,
    "\u202eright to left override",
    "\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627",
    "\x00\x01\x1b[31m\x7f\x85\ufffe\uffff",
    "\ud800 half a pair",
    "line\nbreak\r\n\ttab\u2028\u2029",
    "",
    "   ",
]


def solved(task: str, **options: Any) -> dt.Result:
    """A small run; radius 3."""
    if task == "classification":
        X, y, _ = dt.datasets.make_multiclass(n=120, d=9, m=6, rank=3, random_state=1)
        return dt.solve(dt.Multinomial(), X, y, radius=3.0, **{"solver": "dfw", **options})
    X, Y, _ = dt.datasets.make_multitask(n=120, d=9, m=6, rank=3, noise=0.3, random_state=1)
    return dt.solve(dt.LeastSquares(), X, Y, radius=3.0, **{"solver": "dfw", **options})


def no_epochs() -> dt.Result:
    """A run that is at its end before the first epoch: W = 0 is optimal."""
    return dt.solve(dt.LeastSquares(), np.eye(3), np.zeros((3, 2)), radius=3.0)


def report_of(result: dt.Result, task: Any = "regression", **facts: Any) -> Report:
    return Report.of_result(result, task=task, **{"radius": 3.0} | facts)


def hostile_report() -> Report:
    """A report with a hostile name in every place that takes one."""
    names = [*HOSTILE, "an ordinary one"]
    result = solved("classification", max_iter=12, certify_every=3)
    return report_of(
        result,
        "classification",
        title="".join(HOSTILE[:4]) + "\u202e",
        source=" ".join(HOSTILE[:10]),
        solver=HOSTILE[0],
        engine=HOSTILE[2],
        tol=1e-3,
        when=HOSTILE[1],
        where=[(one, one) for one in names],
        evaluations={
            "test": Evaluation(
                10,
                dict.fromkeys(names, 0.5),
                dict.fromkeys(names, 0.4),
                [Part(one, 10**k, 0.9**k) for k, one in enumerate(names)],
                [Confusion(one, other, 3, 0.3) for one, other in pairwise(names)],
                (names, np.arange(len(names) ** 2).reshape(len(names), -1)),
            )
        },
        weights=[Weights(one, 7, [(one, 0.5), ("other", -0.2)]) for one in names],
        warnings=names,
        versions={one: one for one in names},
        machine={one: one for one in names},
        path=dt.Path(np.array([1.0, 3.0]), [result, result], np.array([[0.5, 0.6], [0.4, 0.7]])),
    )


@cache
def reports() -> dict[str, Report]:
    """A report of each kind, as an analyst would make them."""
    rng, of = np.random.default_rng(0), Report.of_estimator
    X, y, _ = dt.datasets.make_multiclass(n=300, d=8, m=4, rank=2, random_state=0)
    label = np.array(["ash", "birch", "cedar", "douglas fir"])[y]
    many_y = np.arange(400) % 40
    many_X = rng.normal(size=(40, 10))[many_y] + rng.normal(size=(400, 10))
    _, Y, _ = dt.datasets.make_multitask(n=300, d=8, m=30, rank=3, noise=0.3, random_state=0)
    target = X @ rng.normal(size=8) + rng.normal(size=300)
    some, rest = slice(0, 200), slice(200, 300)
    quick = {"tol": 1e-2}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of radii at an end
        few = dt.TraceNormClassifier(20.0, **quick).fit(X[some], label[some])
        two = dt.TraceNormClassifier(5.0, **quick).fit(X, label > "b")
        many = dt.TraceNormClassifier(50.0, **quick).fit(many_X, many_y)
        searched = dt.TraceNormClassifierCV([1.0, 5.0, 90.0], cv=3, **quick).fit(X, label)
        one = dt.TraceNormRegressorCV([0.5, 1.0], cv=3).fit(X[some], target[some])
        targets = dt.TraceNormRegressor(1.0).fit(X[some], Y[some])
    return {
        "few classes": of(few, X[some], label[some], test=(X[rest], label[rest]), file="a.csv"),
        "two classes": of(two, X, label > "b", feature_names=list("abcdefgh")),
        "many classes": of(many, many_X, many_y, file="b.npz", target_names=["intent"]),
        "searched": of(searched, X, label, warnings=["radius 90 is the largest."]),
        "one target": of(one, X[some], target[some], target_names=["price"]),
        "targets": of(targets, X[some], Y[some], test=(X[rest], Y[rest])),
        "unknown rows": of(few),
        "of a result": report_of(solved("regression", max_iter=5)),
        "empty": report_of(no_epochs()),
    }
