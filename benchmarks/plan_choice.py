"""The representation that `plan` chooses against the one that turns out fastest.

Every case is solved in every representation, on one thread, for the same few epochs that the plan
was asked about, and in processor time, which others' work changes little. A run that has taken
several times as long as the chosen one is stopped: it is known by then not to be the fastest.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import dfwtrace as dt
from benchmarks.harness import Row, Scale
from benchmarks.plan_process import data

RATIO = "processor time of the representation chosen / of the fastest"
TIMED = False  # processor time
TARGET = 1.3
_HOPELESS = 3.0  # times the chosen one's time
_SMALL = {"n": 60, "d": 200, "m": 4}  # sizes of a run that compiles

Case = tuple[dict[str, Any], tuple[int, int, int], int]  # what, n×d×m, epochs

_LS, _MN = {"task": "least squares"}, {"task": "multinomial"}
_INTERCEPT, _FLOAT32, _CSR = {"intercept": True}, {"dtype": "float32"}, {"layout": "csr"}
_FAST = {"solver": "accelerated"}
_TOY: list[Case] = [
    ({**_LS}, (400, 9, 3), 3),
    ({**_MN, **_INTERCEPT, **_CSR, "lmo": "power-1"}, (400, 9, 3), 3),
]
_FULL: list[Case] = [
    ({**_MN}, (10_000, 384, 77), 10),
    ({**_MN, **_INTERCEPT}, (10_000, 384, 77), 10),
    ({**_MN, **_INTERCEPT}, (10_000, 384, 77), 50),
    ({**_MN, **_INTERCEPT, **_FLOAT32}, (10_000, 384, 77), 20),
    ({**_MN, "lmo": "power-1"}, (20_000, 1000, 1000), 4),
    ({**_MN, "lmo": "power-2"}, (20_000, 1000, 1000), 4),
    ({**_MN, **_FLOAT32, "lmo": "power-1"}, (20_000, 1000, 1000), 4),
    ({**_MN, **_FLOAT32, "lmo": "power-2"}, (20_000, 1000, 1000), 20),
    ({**_MN, "lmo": "power-linear"}, (20_000, 100, 100), 40),
    ({**_MN, **_FLOAT32}, (10_000, 100, 10), 50),
    ({**_MN, **_INTERCEPT}, (50_000, 9, 5), 20),
    ({**_MN}, (3000, 5000, 20), 20),
    ({**_MN}, (400, 100, 20_000), 5),
    ({**_MN, **_INTERCEPT}, (2000, 100, 5000), 4),
    ({**_MN, **_CSR}, (50_000, 5000, 10), 20),
    ({**_MN, **_CSR, **_INTERCEPT, **_FLOAT32}, (50_000, 5000, 10), 20),
    ({**_MN, **_CSR}, (50_000, 500_000, 10), 5),
    ({**_MN, **_CSR}, (20_000, 2000, 500), 10),
    ({**_LS}, (20_000, 300, 50), 3),
    ({**_LS}, (2000, 3000, 20), 10),
    ({**_LS, **_FLOAT32}, (50_000, 100, 100), 20),
    ({**_LS, **_INTERCEPT}, (3000, 1000, 10), 5),
    ({**_LS, "weighted": True}, (20_000, 200, 50), 5),
    ({**_LS, **_CSR}, (20_000, 3000, 10), 10),
    ({**_MN, **_FAST}, (10_000, 384, 77), 10),
    ({**_MN, **_FAST, **_INTERCEPT}, (10_000, 384, 77), 10),
    ({**_MN, **_FAST, **_CSR}, (50_000, 5000, 10), 10),
    ({**_MN, **_FAST}, (400, 100, 20_000), 5),
]


def run(scale: Scale, repeat: int) -> list[Row]:
    """Processor time varies little from run to run: of two rounds, the faster one is taken."""
    full = scale == "full"
    return [_row(*case, min(repeat, 2)) for case in (_FULL if full else _TOY)]


def _row(case: dict[str, Any], sizes: tuple[int, int, int], epochs: int, repeat: int) -> Row:
    named = dict(zip("ndm", sizes, strict=True))
    given, how = data(case, **named), _options(case, epochs)
    plan = dt.plan(_task(case, named["m"]), **given, **how)
    chosen, seconds = plan.representation, dict[str, float]()
    for name in sorted(plan.costs, key=lambda name: name != chosen):  # the chosen one first
        _seconds(case, data(case, **_SMALL), _SMALL["m"], how | {"representation": name}, np.inf)
        limit = _HOPELESS * seconds.get(chosen, np.inf)
        of_form = how | {"representation": name}
        taken = [_seconds(case, given, named["m"], of_form, limit) for _ in range(repeat)]
        seconds[name] = min(taken)
    best = min(seconds, key=lambda name: seconds[name])
    words = (key if value is True else str(value) for key, value in case.items())
    title = f"{', '.join(words)}, {epochs} epochs: {chosen}"
    if best != chosen:
        title += f", not {best}"
    planned = {name: plan.costs[name].total(epochs) / seconds[name] for name in seconds}
    detail = {f"{name}: planned / measured": share for name, share in planned.items()}
    ratio = seconds[chosen] / seconds[best]
    return Row("plan_choice", title, named, ratio, TARGET, seconds, detail)


def _options(case: dict[str, Any], epochs: int) -> dict[str, Any]:
    how = {
        "solver": case.get("solver", "dfw"),
        "max_iter": epochs,
        "fit_intercept": case.get("intercept", False),
        "engine": dt.LocalEngine(n_jobs=1),
    }
    return how | ({"lmo": case["lmo"]} if "lmo" in case else {})


def _task(case: dict[str, Any], m: int) -> dt.ScoresTask:
    return dt.Multinomial(m) if case["task"] == "multinomial" else dt.LeastSquares()


def _seconds(
    case: dict[str, Any], given: dict[str, Any], m: int, how: dict[str, Any], limit: float
) -> float:
    """Processor time of a run, which ends early once that is above the limit."""
    began = time.process_time()
    stop: Callable[..., bool] = lambda W, record: time.process_time() - began > limit  # noqa: E731
    radius = 2.5 * np.sqrt(m) * (3.0 if case["task"] == "multinomial" else 1.0)
    tol = 1e-13 if how["solver"] == "accelerated" else None  # out of reach
    dt.solve(_task(case, m), **given, **how, radius=radius, tol=tol, callback=stop, verbose=False)
    return time.process_time() - began
