"""The theorem's bound beside what is observed, and what a constant K leaves."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

import dfwtrace as dt
from dfwtrace.lmo import Constant, Linear, Log, Power, Schedule, TheoremLinear
from dfwtrace.plotting import Series
from reproduction.claims import Claim, Judged, claim, listed
from reproduction.methods import Options, Scale, solve
from reproduction.page import Panel, Shown
from reproduction.rows import RowsBy, Settings

NAME = "theorem"
TITLE = "The theorem, and schedules K(t)"
KEYS = ("method",)
ABOUT = (
    "Orthonormal X make all constants known: F(W) = ½‖W − B‖² + c with C_F = 4μ², and F* is a "
    "projection. B has five large singular values and many that are not far below what the ball "
    "cuts off: near the optimum, a power iteration from a random start then mixes in directions "
    "that do not belong there. Steps of 2/(t+2); F(W_t) − F* is a mean over seeds."
)
CLAIMS: list[Claim] = []
group = RowsBy

_RADIUS = 1.0
_CURVATURE = 4.0 * _RADIUS**2
_DELTA = 1.0
#: d = m, epochs, seeds.
_SIZES: dict[Scale, tuple[int, int, int]] = {
    "toy": (8, 20, 2),
    "small": (40, 400, 5),
    "paper": (100, 1000, 10),
}
#: Large singular values of B, and θ, by which the projection onto the ball shortens them.
_LARGE, _CUT_OFF = 5, 0.2
# F − F* in the second half of a run: when it has stopped improving, and when it goes on.
_STOPPED, _GOES_ON = 0.9, 0.6
_CONSTANTS = ("K = 1", "K = 2", "K = 4", "K = 8")
_LOG, _LINEAR, _THEOREM = "K = ⌊1 + log t⌋", "K = O(t)", "the theorem's K(t)"


def runs(options: Options) -> list[Settings]:
    """A run for each schedule."""
    size, epochs, seeds = _SIZES[options.scale]
    sizes = {"d": size, "m": size, "epochs": epochs, "seeds": seeds}
    return [{"method": name, **sizes} for name in (*_CONSTANTS, _LOG, _LINEAR, _THEOREM)]


def measure(options: Options, run: Settings) -> dict[str, Any]:
    """Return F(W_t) − F* and the bound at every epoch."""
    size, epochs = run["d"], run["epochs"]
    rng = np.random.default_rng(0)
    X = np.linalg.qr(rng.standard_normal((size + 5, size)))[0]
    U, V = (np.linalg.qr(rng.standard_normal((size, size)))[0] for _ in range(2))
    # The projection shortens the first ones by θ each, to μ in all, and drops the others.
    rest = _CUT_OFF * np.linspace(0.95, 0.5, size - _LARGE)
    s = np.concatenate([np.full(_LARGE, _CUT_OFF + _RADIUS / _LARGE), rest])
    Y, optimum = X @ ((U * s) @ V.T), 0.5 * float(np.sum(np.minimum(s, _CUT_OFF) ** 2))
    lipschitz = float(s.max()) + _RADIUS
    schedules: dict[str, Schedule] = {
        **{f"K = {k}": Constant(k) for k in (1, 2, 4, 8)},
        _LOG: Log(1.0),
        _LINEAR: Linear(),
        _THEOREM: TheoremLinear(_DELTA, lipschitz=lipschitz, curvature=_CURVATURE),
    }
    excess, iterations = [], []
    for seed in range(run["seeds"]):
        result = solve(
            dt.LeastSquares(),
            X,
            Y,
            radius=_RADIUS,
            solver="dfw",
            lmo=Power(schedules[run["method"]]),
            step="harmonic",
            max_iter=epochs,
            random_state=seed,
            engine=dt.LocalEngine(n_shards=2, n_jobs=1),
            verbose=False,
        )
        excess.append(result.history.column("objective") - optimum)
        iterations.append(result.history.column("power_iterations").sum())
    return {
        "excess": np.mean(excess, axis=0).tolist(),
        "bound": (2.0 * _CURVATURE * (1.0 + _DELTA) / (np.arange(1, epochs + 1) + 2.0)).tolist(),
        "power_iterations": float(np.mean(iterations)),
    }


def show(methods: RowsBy) -> Shown:
    """F(W_t) − F* against epochs."""
    bound = next(iter(methods.values()))["values"]["bound"]
    epochs = range(1, len(bound) + 1)
    series = [Series(name, epochs, row["values"]["excess"]) for name, row in methods.items()]
    label = f"bound for {_THEOREM}: 2 C_F (1 + δ)/(t + 2)"
    series.append(Series(label, epochs, bound, dashed=True))
    title = "Distance from the optimum"
    return Shown({"": [Panel(title, "epochs", "F(W_t) − F*", series, x_log=True, y_log=True)]})


def _end(methods: RowsBy, name: str, until: float = 1.0) -> float:
    """F − F*: the mean of the last tenth of the epochs, or of a first part of them."""
    excess = methods[name]["values"]["excess"]
    excess = excess[: max(1, int(until * len(excess)))]
    return float(np.mean(excess[-max(1, len(excess) // 10) :]))


def _second_half(methods: RowsBy, name: str) -> float:
    """The end over the middle."""
    return _end(methods, name) / _end(methods, name, 0.5)


@claim(CLAIMS, "A mean over few seeds is not the expectation.")
def _stays_below_the_bound(methods: RowsBy) -> Judged:
    """With the theorem's K(t), F(W_t) − F* ≤ 2C_F(1+δ)/(t+2) in expectation."""
    values = methods[_THEOREM]["values"]
    below = float(np.max(np.divide(values["excess"], values["bound"])))
    return f"The mean over seeds is at most {below:.2g} of the bound, at every t.", below <= 1.0


@claim(CLAIMS, "More epochs are needed until the neighbourhood is what remains.")
def _constant_leaves_a_neighbourhood(methods: RowsBy) -> Judged:
    """A constant K converges to a neighbourhood that shrinks as K grows."""
    ends = {name: _end(methods, name) for name in _CONSTANTS}
    halves = [_second_half(methods, name) for name in ("K = 1", "K = 2")]
    return (
        f"F − F* at the end: {listed(ends)}. In the second half of the run it falls to "
        f"{halves[0]:.2f} (K = 1) and {halves[1]:.2f} (K = 2) of what it was.",
        all(a > b for a, b in pairwise(ends.values())) and min(halves) >= _STOPPED,
    )


@claim(CLAIMS, "More epochs are needed until the smallest neighbourhood is what remains.")
def _linear_converges(methods: RowsBy) -> Judged:
    """K(t) = O(t) converges to the optimum, also where a constant K does not."""
    end, half = _end(methods, _LINEAR), _second_half(methods, _LINEAR)
    work = {name: methods[name]["values"]["power_iterations"] for name in (_LOG, _LINEAR)}
    return (
        f"F − F* at the end: {end:.3g} with {work[_LINEAR]:.0f} power iterations, and it falls to "
        f"{half:.2f} of what it was in the second half; {_LOG}: {_end(methods, _LOG):.3g} with "
        f"{work[_LOG]:.0f}.",
        end < min(_end(methods, name) for name in _CONSTANTS) and half <= _GOES_ON,
    )
