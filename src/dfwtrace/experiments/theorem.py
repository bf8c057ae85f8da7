"""The theorem's bound beside what is observed, and what a constant K leaves."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from dfwtrace._typing import FloatArray
from dfwtrace.api import solve
from dfwtrace.engines import LocalEngine
from dfwtrace.experiments.curves import listed
from dfwtrace.experiments.exhibits import Claim, Exhibit, Line, Panel, Scale, Setting
from dfwtrace.experiments.runs import Row, Run, by_setting
from dfwtrace.lmo import Constant, Linear, Log, Power, Schedule, TheoremLinear
from dfwtrace.tasks import LeastSquares

NAME = "theorem"
TITLE = "The theorem, and schedules K(t)"
KEYS = ("method",)
ABOUT = (
    "Orthonormal X make all constants known: F(W) = ½‖W − B‖² + c with C_F = 4μ², and F* is a "
    "projection. B has five large singular values and many that are not far below what the ball "
    "cuts off: near the optimum, a power iteration from a random start then mixes in directions "
    "that do not belong there. Steps of 2/(t+2); F(W_t) − F* is a mean over seeds."
)

_RADIUS = 1.0
_CURVATURE = 4.0 * _RADIUS**2
_DELTA = 1.0
#: d = m, epochs, seeds.
_SIZES: dict[Scale, tuple[int, int, int]] = {
    "toy": (8, 20, 2),
    "small": (40, 400, 5),
    "paper": (100, 1000, 10),
}
_CONSTANTS = (1, 2, 4, 8)
#: Large singular values of B, and θ, by which the projection onto the ball shortens them.
_LARGE, _CUT_OFF = 5, 0.2
# F − F* in the second half of a run: of one that stands still, and of one that goes on.
_STANDS, _GOES_ON = 0.9, 0.6
_LOG, _LINEAR, _THEOREM = "K = ⌊1 + log t⌋", "K = O(t)", "the theorem's K(t)"
_NAMES = (*(f"K = {k}" for k in _CONSTANTS), _LOG, _LINEAR, _THEOREM)


class _Known(NamedTuple):
    """A problem whose constants are all known."""

    X: FloatArray
    Y: FloatArray
    optimum: float
    lipschitz: float


@lru_cache(maxsize=1)
def _problem(size: int) -> _Known:
    rng = np.random.default_rng(0)
    X = np.linalg.qr(rng.standard_normal((size + 5, size)))[0]
    U, V = (np.linalg.qr(rng.standard_normal((size, size)))[0] for _ in range(2))
    # The projection shortens the first ones by θ each, to μ in all, and drops the others.
    rest = _CUT_OFF * np.linspace(0.95, 0.5, size - _LARGE)
    s = np.concatenate([np.full(_LARGE, _CUT_OFF + _RADIUS / _LARGE), rest])
    left = np.minimum(s, _CUT_OFF)
    return _Known(X, X @ ((U * s) @ V.T), 0.5 * float(left @ left), float(s.max()) + _RADIUS)


def _schedules(known: _Known) -> dict[str, Schedule]:
    return {
        **{f"K = {k}": Constant(k) for k in _CONSTANTS},
        _LOG: Log(1.0),
        _LINEAR: Linear(),
        _THEOREM: TheoremLinear(_DELTA, lipschitz=known.lipschitz, curvature=_CURVATURE),
    }


def runs(setting: Setting) -> list[Run]:
    """A run for each schedule; the problem is too small for any other engine than this process."""
    size, epochs, seeds = _SIZES[setting.scale]
    return [
        Run(
            NAME,
            {"method": name, "d": size, "m": size, "epochs": epochs, "seeds": seeds},
            partial(_measure, name, size, epochs, seeds),
        )
        for name in _NAMES
    ]


def _measure(name: str, size: int, epochs: int, seeds: int) -> dict[str, Any]:
    known = _problem(size)
    excess, iterations = [], []
    for seed in range(seeds):
        result = solve(
            LeastSquares(),
            known.X,
            known.Y,
            radius=_RADIUS,
            lmo=Power(_schedules(known)[name]),
            step="harmonic",
            epochs=epochs,
            seed=seed,
            engine=LocalEngine(n_shards=2, n_jobs=1),
            progress=False,
        )
        if result.status == "interrupted":
            raise KeyboardInterrupt
        excess.append(result.history.column("objective") - known.optimum)
        iterations.append(result.history.column("power_iterations").sum())
    return {
        "excess": np.mean(excess, axis=0).tolist(),
        "bound": (2.0 * _CURVATURE * (1.0 + _DELTA) / (np.arange(1, epochs + 1) + 2.0)).tolist(),
        "power_iterations": float(np.mean(iterations)),
    }


def exhibit(rows: Sequence[Row]) -> Exhibit:
    """F(W_t) − F* against epochs."""
    lines: dict[str, Line] = {}
    for row in rows:
        excess = row["values"]["excess"]
        lines[row["settings"]["method"]] = (list(range(1, len(excess) + 1)), excess)
    bound = rows[0]["values"]["bound"]
    name = f"bound for {_THEOREM}: 2 C_F (1 + δ)/(t + 2)"
    lines[name] = (list(range(1, len(bound) + 1)), bound)
    return Exhibit(
        [
            Panel(
                "Distance from the optimum by epochs",
                "epochs",
                "F(W_t) − F*",
                lines,
                log_x=True,
                log_y=True,
                dashed=(name,),
            )
        ]
    )


def claims(rows: Sequence[Row]) -> list[Claim]:
    """The theorem, the neighbourhoods, and the schedules that leave none."""
    found = by_setting(rows, "method")
    values = {name: found[name]["values"] for name in _NAMES}
    theorem = values[_THEOREM]
    below = max(e / b for e, b in zip(theorem["excess"], theorem["bound"], strict=True))
    ends = {name: _end(values[name]["excess"]) for name in _NAMES}
    constant = {f"K = {k}": ends[f"K = {k}"] for k in _CONSTANTS}
    shrinks = all(a > b for a, b in pairwise(constant.values()))
    halves = {name: _second_half(values[name]["excess"]) for name in ("K = 1", "K = 2", _LINEAR)}
    stand = min(halves["K = 1"], halves["K = 2"]) >= _STANDS
    linear, log = ends[_LINEAR], ends[_LOG]
    work = {name: values[name]["power_iterations"] for name in (_LOG, _LINEAR)}
    return [
        Claim(
            "With the theorem's K(t), F(W_t) − F* ≤ 2C_F(1+δ)/(t+2) in expectation.",
            f"The mean over seeds is at most {below:.2g} of the bound, at every t.",
            below <= 1.0,
            "A mean over few seeds is not the expectation.",
        ),
        Claim(
            "A constant K converges to a neighbourhood that shrinks as K grows.",
            f"F − F* at the end: {listed(constant)}. In the second half of the run it falls to "
            f"{halves['K = 1']:.2f} (K = 1) and {halves['K = 2']:.2f} (K = 2) of what it was.",
            shrinks and stand,
            "More epochs are needed until the neighbourhood is what remains.",
        ),
        Claim(
            "K(t) = O(t) converges to the optimum, also where a constant K does not.",
            f"F − F* at the end: {linear:.3g} with {work[_LINEAR]:.0f} power iterations, and it "
            f"falls to {halves[_LINEAR]:.2f} of what it was in the second half; "
            f"{_LOG}: {log:.3g} with {work[_LOG]:.0f}.",
            linear < min(constant.values()) and halves[_LINEAR] <= _GOES_ON,
            "More epochs are needed until the smallest neighbourhood is what remains.",
        ),
    ]


def _end(excess: Sequence[float]) -> float:
    """The mean of the last tenth."""
    return float(np.mean(excess[-max(1, len(excess) // 10) :]))


def _second_half(excess: Sequence[float]) -> float:
    """The end over the middle, both as means of some epochs."""
    return _end(excess) / _end(excess[: max(1, len(excess) // 2)])
