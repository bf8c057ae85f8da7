"""Reports that several test modules look at."""

from __future__ import annotations

from typing import Any

import numpy as np

import dfwtrace as dt
from dfwtrace.report import Report, Worst

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
        scores=dict.fromkeys(names, 0.5),
        worst=[Worst(one, 10**k, 0.9**k) for k, one in enumerate(names)],
        versions={one: one for one in names},
        machine={one: one for one in names},
        path=dt.Path(np.array([1.0, 3.0]), [result, result], np.array([[0.5, 0.6], [0.4, 0.7]])),
    )
