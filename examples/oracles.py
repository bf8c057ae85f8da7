"""Both problems of the paper, solved with every oracle: tables and convergence curves.

    python examples/oracles.py [--small] [--out DIR]

Everything runs in this process, on synthetic data. Takes some seconds.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich import box
from rich.console import Console
from rich.progress import track
from rich.table import Table

import dfwtrace as dt

ORACLES = ("power-1", "power-2", "power-log", "naive", "sva", "lanczos")
SHARDS = 4
LEGEND = f"""\
gap: certified upper bound of F(W) - F*; a line search is used throughout.
rounds, numbers sent: by the oracle, counted as if each of the {SHARDS} shards were a worker.
"""


class Study(NamedTuple):
    """A problem, and how far a solution of it is from the truth."""

    title: str
    task: Any
    X: np.ndarray
    y: np.ndarray
    radius: float
    error_name: str
    error: Callable[[dt.LowRankMatrix], float]


class Run(NamedTuple):
    """A study solved with one oracle."""

    oracle: str
    result: dt.Result
    seconds: float


def multitask(small: bool) -> Study:
    """Regression on many targets at once; the error is the distance to the true matrix."""
    n, d, m = (400, 30, 20) if small else (20_000, 200, 200)
    X, Y, truth = dt.datasets.make_multitask(n, d, m, rank=10, random_state=0, dtype=np.float32)

    def error(W: dt.LowRankMatrix) -> float:
        return (W - truth).frobenius_norm / truth.frobenius_norm

    title = f"Multi-task least squares, {n:,} rows, {d} × {m}, radius 1"
    return Study(title, dt.LeastSquares(), X, Y, 1.0, "Frobenius\nerror", error)


def multiclass(small: bool) -> Study:
    """Classification into many classes; the error is that on held-out rows."""
    n, held_out, d, m = (400, 200, 30, 10) if small else (6_000, 4_000, 100, 50)
    X, y, _ = dt.datasets.make_multiclass(
        n + held_out, d, m, rank=5, random_state=0, dtype=np.float32
    )

    def error(W: dt.LowRankMatrix) -> float:
        return float(np.mean((X[n:] @ W).argmax(axis=1) != y[n:]))

    title = f"Multinomial logistic regression, {n:,} rows, {d} × {m}, radius 50"
    return Study(title, dt.Multinomial(m), X[:n], y[:n], 50.0, "test\nerror", error)


def solve(study: Study, oracle: str, epochs: int) -> Run:
    """Solve a study; Ctrl-C ends the script instead of only this run."""
    began = time.perf_counter()
    result = dt.solve(
        study.task,
        study.X,
        study.y,
        radius=study.radius,
        solver="dfw",
        lmo=oracle,
        max_iter=epochs,
        certify_every=2,
        engine=dt.LocalEngine(n_shards=SHARDS),
        verbose=False,
    )
    if result.status == "interrupted":
        raise KeyboardInterrupt
    return Run(oracle, result, time.perf_counter() - began)


def tabulate(study: Study, runs: Sequence[Run]) -> Table:
    """What every oracle reached on one study, and what it took."""
    table = Table(title=study.title, title_justify="left", box=box.SIMPLE_HEAD)
    table.pad_edge, table.collapse_padding = False, True  # fits into 80 columns
    table.add_column("oracle")
    names = ("epochs", "F(W)\n/ F(0)", "gap\n/ F(0)", study.error_name, "rounds", "numbers\nsent")
    for name in (*names, "seconds"):
        table.add_column(name, justify="right")
    for oracle, result, seconds in runs:
        table.add_row(
            oracle,
            str(len(result.history)),
            f"{result.objective / result.objective_at_zero:.4f}",
            f"{result.relative_gap:.4f}",
            f"{study.error(result.W):.3f}",
            f"{result.history.column('rounds').sum():,}",
            f"{result.history.column('numbers_sent').sum():,}",
            f"{seconds:.2f}",
        )
    return table


def draw(found: Sequence[tuple[Study, list[Run]]], path: Path) -> None:
    """Draw objective and certified gap against epochs, a row of panels for each study."""
    from matplotlib.figure import Figure

    figure = Figure((10.0, 0.4 + 3.4 * len(found)), layout="constrained")
    panels = figure.subplots(len(found), 2)
    for (study, runs), row in zip(found, panels, strict=True):
        for ax, column in zip(row, ("objective", "gap"), strict=True):
            lines = [
                dt.plotting.Series(
                    run.oracle,
                    run.result.history.column("epoch"),
                    run.result.history.column(column) / run.result.objective_at_zero,
                )
                for run in runs
            ]
            dt.plotting.draw_lines(
                ax,
                lines,
                x_label="epoch",
                y_label="objective / F(0)" if column == "objective" else "certified gap / F(0)",
                title=study.title if column == "objective" else None,
                x_log=True,
                y_log=True,
            )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120, pil_kwargs={"optimize": True})


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="smaller data and fewer epochs")
    parser.add_argument("--out", type=Path, default=Path("demo-output"), metavar="DIR")
    options = parser.parse_args(argv)
    dt.plotting.require_matplotlib()
    console, epochs = Console(), 20 if options.small else 150
    found = []
    for study in (multitask(options.small), multiclass(options.small)):
        solve(study, "power-1", 1)  # compiles: no time below has the compiler's in it
        shown = {"console": console, "transient": True, "disable": not console.is_terminal}
        runs = [solve(study, oracle, epochs) for oracle in track(ORACLES, "oracles", **shown)]
        console.print(tabulate(study, runs))
        print(f"The plan for power-log:\n{runs[ORACLES.index('power-log')].result.plan}\n")
        found.append((study, runs))
    print(LEGEND)
    draw(found, options.out / "convergence.png")
    print(f"Convergence curves: {options.out / 'convergence.png'}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("Interrupted.")
