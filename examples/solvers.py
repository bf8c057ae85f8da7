"""Certified gap against passes over the data and against time, for both solvers.

    python examples/solvers.py [--small] [--out DIR]

Everything runs in this process, on data made up here. Takes a minute, or seconds with --small.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

import dfwtrace as dt

matplotlib.use("Agg")
from matplotlib import pyplot

# What a round reads of the features, in passes. Updates and line searches use products that are
# there already, and a tangent the one that was made when its state was built.
PASSES = {"matvec": 1, "rmatvec": 1, "stats": 1, "tangent": 1, "gradient": 1}
RUNS: dict[str, dict[str, Any]] = {
    "dfw, K=1": {"solver": "dfw", "lmo": "power-1", "color": "#E69F00"},
    "dfw, K=2": {"solver": "dfw", "lmo": "power-2", "color": "#56B4E9"},
    "dfw, K=⌊1+c log t⌋": {
        "solver": "dfw",
        "lmo": "power-log",
        "color": "#D55E00",
        "linestyle": (0, (5, 1.5)),
    },
    "accelerated": {"solver": "accelerated", "color": "#009E73", "linewidth": 2.4},
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--small", action="store_true", help="small data, a few seconds")
    parser.add_argument(
        "--out", type=Path, default=Path("demo-output"), help="folder of the picture"
    )
    asked = parser.parse_args(arguments)
    n, d, m, epochs = (500, 30, 20, 40) if asked.small else (20_000, 200, 200, 150)
    X, Y, _ = dt.datasets.make_multitask(n, d, m, rank=10, noise=0.5, random_state=0)
    studies = [("least squares", dt.LeastSquares(), X, Y, 1.0, "implicit")]
    X, y, _ = dt.datasets.make_multiclass(n, d, m, rank=10, random_state=0)
    studies.append(("multinomial", dt.Multinomial(n_classes=m), X, y, 50.0, "implicit"))

    figure, axes = pyplot.subplots(2, 2, figsize=(10, 7), layout="constrained", sharey="row")
    for row, (title, task, X, y, radius, form) in zip(axes, studies, strict=True):
        for name, options in RUNS.items():
            settings = {key: options[key] for key in ("lmo", "solver") if key in options}
            settings |= {"radius": radius, "representation": form, "max_iter": epochs}
            every = 1 if options["solver"] == "accelerated" else max(1, epochs // 30)
            # The same run twice: what certificates cost shall not count.
            certified = dt.solve(task, X, y, tol=1e-7, certify_every=every, **settings)
            settings["max_iter"] = len(certified.history)
            result = dt.solve(task, X, y, tol=1e-15, **settings)
            print(f"{title}, {name}: {certified.message}")
            style = {key: options[key] for key in options if key not in ("lmo", "solver")}
            draw(row, result, certified, name, style)
        row[0].set_ylabel(f"{title}: certified gap / F(0)")
    for column, label in zip(axes[-1], ("passes over the data", "seconds"), strict=True):
        column.set_xlabel(label)
    axes[0, 0].legend()
    asked.out.mkdir(parents=True, exist_ok=True)
    path = asked.out / "solvers.png"
    figure.savefig(path, dpi=120)
    print(f"Curves: {path}")


def draw(
    axes: Any, result: dt.Result, certified: dt.Result, name: str, style: dict[str, Any]
) -> None:
    """The best gap so far against the passes and seconds of the run without certificates."""
    passes, seconds = np.zeros(len(result.history) + 1), np.zeros(len(result.history) + 1)
    for record in result.rounds:
        passes[record["epoch"]] += PASSES.get(record["method"], 0)
        parts = ("compute_seconds", "wait_seconds", "reduce_seconds")
        seconds[record["epoch"]] += sum(record[part] for part in parts)
    gap = certified.history.column("gap") / certified.objective_at_zero
    known = ~np.isnan(gap)
    best = np.minimum.accumulate(gap[known])
    for axis, cost in zip(axes, (passes, seconds), strict=True):
        axis.loglog(np.cumsum(cost)[1:][known], best, label=name, **style)
        axis.grid(alpha=0.3)


if __name__ == "__main__":
    main()
