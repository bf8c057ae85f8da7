"""How far apart the first two singular values of the gradient are along a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import dfwtrace as dt
from dfwtrace.plotting import Series
from reproduction.claims import Claim, Judged, claim
from reproduction.data import Problem, identity, multiclass, read_intents
from reproduction.methods import Options, Scale, follow
from reproduction.page import Panel, Shown
from reproduction.rows import Row, Settings

NAME = "spectrum"
TITLE = "The ratio σ₂/σ₁ of the gradient"
KEYS = ("data",)
ABOUT = (
    "K(t) = O(log t) is enough where σ₂/σ₁ stays below some β < 1. The exact ratio at every W_t of "
    "a run of DFW-2 with steps of 2/(t+2). The paper found 0.86 on average over 100 epochs, on a "
    "smaller set."
)
CLAIMS: list[Claim] = []
group = list[Row]

_PAPERS, _WELL_BELOW = 0.86, 0.95
#: Epochs, and rows, d = m of the synthetic problem.
_SIZES: dict[Scale, tuple[int, int, int]] = {
    "toy": (6, 200, 12),
    "small": (100, 5000, 200),
    "paper": (100, 20_000, 500),
}
_ROWS_OF_INTENTS: dict[Scale, int] = {"toy": 150, "small": 4000, "paper": 15_000}


def runs(options: Options) -> list[Settings]:
    """On synthetic data, and on real ones where there are any."""
    data = [("synthetic", "make_multiclass", 50.0)]
    if options.intents is not None:
        data.append(("CLINC150", f"{identity(options.intents)}, shuffled", 500.0))
    epochs = _SIZES[options.scale][0]
    common = {"scale": options.scale, "epochs": epochs, "engine": "local", "seed": 0}
    names = ("data", "source", "radius")
    return [{**dict(zip(names, one, strict=True)), **common} for one in data]


def measure(options: Options, run: Settings) -> dict[str, Any]:
    """Return the ratio at every epoch of a run."""
    _, n, d = _SIZES[options.scale]
    data = multiclass(n, d, d, n_test=10)
    if run["data"] != "synthetic":
        assert options.intents is not None
        data = read_intents(options.intents, _ROWS_OF_INTENTS[options.scale])
    X, y, m = data.X, data.y, data.n_classes

    def ratio(W: dt.LowRankMatrix) -> Mapping[str, float]:
        scores = np.asarray(X @ W, dtype=np.float64)
        R = np.exp(scores - scores.max(axis=1, keepdims=True))
        R /= R.sum(axis=1, keepdims=True)
        R[np.arange(len(y)), y] -= 1.0
        first, second = np.linalg.svd(X.T @ R, compute_uv=False)[:2]
        return {"ratio": float(second / first)}

    problem = Problem(dt.Multinomial(m), X, y, run["radius"], ratio)
    values = follow(problem, {**run, "method": "DFW-2", "shards": 4}, step="harmonic")
    ratios = values["errors"]["ratio"]["error"]
    summary = {"mean_ratio": float(np.mean(ratios)), "largest_ratio": max(ratios)}
    return {**values, **summary, "n": X.shape[0], "d": X.shape[1], "m": m}


def show(rows: Sequence[Row]) -> Shown:
    """The ratio against epochs."""
    series, notes = [], []
    for row in rows:
        values, run = row["values"], row["settings"]
        column = values["errors"]["ratio"]
        series.append(Series(run["data"], column["epoch"], column["error"]))
        sizes = f"n = {values['n']:,}, d = {values['d']}, m = {values['m']}"
        notes.append(f"{run['data']}: {sizes}, μ = {run['radius']:g}.")
    last = max(row["values"]["epoch"][-1] for row in rows)
    series.append(Series("the paper's mean", [1, last], [_PAPERS, _PAPERS], dashed=True))
    title = "Ratio of the gradient's first two singular values"
    return Shown({"": [Panel(title, "epochs", "σ₂/σ₁", series)]}, notes=notes)


@claim(
    CLAIMS,
    "Near the optimum all active singular values of the gradient are equal, by the conditions of "
    "optimality: the closer a run gets, the nearer the ratio is to 1.",
    "stand-in",
)
def _is_well_below_one(rows: Sequence[Row]) -> Judged:
    """σ₂/σ₁ is well below 1: 0.86 on average over the epochs."""
    means = {row["settings"]["data"]: row["values"]["mean_ratio"] for row in rows}
    largest = [row["values"]["largest_ratio"] for row in rows]
    words = ", ".join(
        f"{name} {mean:.2f} (at most {most:.3f})"
        for (name, mean), most in zip(means.items(), largest, strict=True)
    )
    return (
        f"Mean over the epochs: {words}; below {_WELL_BELOW} is asked.",
        max(means.values()) < _WELL_BELOW,
    )
