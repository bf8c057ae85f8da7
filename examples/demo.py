"""Both problems of the paper, solved with every oracle: tables and convergence curves.

    python examples/demo.py [--small] [--out DIR]

Everything runs in this process, on data made up here. Takes some seconds.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

try:
    import numpy as np
    from rich import box
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.table import Table

    import dfwtrace as dt
except KeyboardInterrupt:  # imports take a second or two: Ctrl-C may come already now
    sys.exit(130)

ORACLES = ("power-1", "power-2", "power-log", "naive", "sva", "lanczos")
CERTIFY_EVERY = 2
SHARDS = 4
LEGEND = f"""\
gap: certified upper bound of F(W) - F*; a line search is used throughout.
rounds, numbers sent: by the oracle, counted as if each of the {SHARDS} shards were a worker.
"""

# Okabe and Ito's colours: the colour-blind tell them apart. Dashes and widths do it in grey.
STYLES: dict[str, dict[str, Any]] = {
    "power-1": {"color": "#E69F00"},
    "power-2": {"color": "#56B4E9"},
    "power-log": {"color": "#D55E00", "linestyle": (0, (5, 1.5))},
    "naive": {"color": "0.72", "linewidth": 5.0, "zorder": 1.9},  # exact: the others' backdrop
    "sva": {"color": "#CC79A7", "linestyle": (0, (1, 1)), "linewidth": 2.4, "zorder": 2.1},
    "lanczos": {"color": "#009E73"},
}


@dataclass(frozen=True)
class Study:
    """A problem, and how far a solution of it is from the truth."""

    title: str
    task: Any
    X: np.ndarray
    y: np.ndarray
    radius: float
    error_name: str
    error: Callable[[dt.LowRankMatrix], float]


@dataclass(frozen=True)
class Run:
    """One study solved with one oracle."""

    study: Study
    oracle: str
    result: dt.Result
    seconds: float


def multitask(small: bool) -> Study:
    """Regression on many targets at once; the error is the distance to the true matrix."""
    n, d, m = (400, 30, 20) if small else (20_000, 200, 200)
    X, Y, truth = dt.datasets.make_multitask(n, d, m, rank=10, seed=0, dtype=np.float32)

    def error(W: dt.LowRankMatrix) -> float:
        return (W - truth).frobenius_norm / truth.frobenius_norm

    title = f"Multi-task least squares, {n:,} rows, {d} × {m}, radius 1"
    return Study(title, dt.LeastSquares(), X, Y, 1.0, "Frobenius\nerror", error)


def multiclass(small: bool) -> Study:
    """Classification into many classes; the error is that on rows that were held out."""
    n, held_out, d, m = (400, 200, 30, 10) if small else (6_000, 4_000, 100, 50)
    X, y, _ = dt.datasets.make_multiclass(n + held_out, d, m, rank=5, seed=0, dtype=np.float32)

    def error(W: dt.LowRankMatrix) -> float:
        return float(np.mean((X[n:] @ W).argmax(axis=1) != y[n:]))

    title = f"Multinomial logistic regression, {n:,} rows, {d} × {m}, radius 50"
    return Study(title, dt.Multinomial(m), X[:n], y[:n], 50.0, "test\nerror", error)


def solve(study: Study, oracle: str, epochs: int, on_epoch: Callable[[], None]) -> Run:
    """Solve a study; Ctrl-C within it ends the demo instead of only this run."""
    began = time.perf_counter()
    result = dt.solve(
        study.task,
        study.X,
        study.y,
        radius=study.radius,
        lmo=oracle,
        epochs=epochs,
        certify_every=CERTIFY_EVERY,
        engine=dt.LocalEngine(n_shards=SHARDS),
        callback=lambda W, record: on_epoch(),
        progress=False,
    )
    if result.status == "interrupted":
        raise KeyboardInterrupt
    return Run(study, oracle, result, time.perf_counter() - began)


def compile_kernels(studies: Sequence[Study]) -> None:
    """Solve a few rows of each study, so that no run's time has the compiler's in it."""
    for study in studies:
        solve(replace(study, X=study.X[:64], y=study.y[:64]), "power-1", 1, lambda: None)


def train(studies: Sequence[Study], epochs: int, console: Console) -> Iterator[Run]:
    """Solve every study with every oracle, with a bar on a terminal and plain lines elsewhere."""
    pairs = [(study, oracle) for study in studies for oracle in ORACLES]
    columns = (TextColumn("{task.description:<22}"), BarColumn(), TimeElapsedColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("compiling kernels", total=len(pairs) * epochs)
        compile_kernels(studies)
        for done, (study, oracle) in enumerate(pairs, start=1):
            bar.update(task, description=f"run {done} of {len(pairs)}: {oracle}")
            run = solve(study, oracle, epochs, lambda: bar.advance(task))
            if not console.is_terminal:
                print(f"run {done} of {len(pairs)}: {oracle}, {run.seconds:.1f} s", flush=True)
            yield run


def tabulate(runs: Sequence[Run]) -> Table:
    """What every oracle reached on one study, and what it cost."""
    study = runs[0].study
    table = Table(title=study.title, title_justify="left", box=box.SIMPLE_HEAD)
    table.pad_edge, table.collapse_padding = False, True  # fits into 80 columns
    table.add_column("oracle")
    for name in ("epochs", "F(W)\n/ F(0)", "gap\n/ F(0)", study.error_name):
        table.add_column(name, justify="right")
    for name in ("rounds", "numbers\nsent", "seconds"):
        table.add_column(name, justify="right")
    for run in runs:
        result, history = run.result, run.result.history
        table.add_row(
            run.oracle,
            str(len(history)),
            f"{result.objective / result.objective_at_zero:.4f}",
            f"{result.relative_gap:.4f}",
            f"{study.error(result.W):.3f}",
            f"{history.column('rounds').sum():,}",
            f"{history.column('numbers_sent').sum():,}",
            f"{run.seconds:.2f}",
        )
    return table


def show(runs: Sequence[Run], console: Console) -> None:
    """One study's table, and the plan of its default oracle, in the plan's own words."""
    console.print(tabulate(runs))
    plan = next(run.result.plan for run in runs if run.oracle == "power-log")
    print(f"The plan for power-log:\n{plan}")
    for run in runs:
        if run.result.plan.representation != plan.representation:
            print(f"{run.oracle} took the representation {run.result.plan.representation}.")
    print()


def draw(studies: Sequence[Sequence[Run]], path: Path) -> None:
    """Objective and certified gap against epochs, a row of panels for each study."""
    import matplotlib

    matplotlib.use("Agg")  # no window: the picture goes to a file
    import matplotlib.pyplot as plt

    font = {"font.size": 11, "axes.spines.top": False, "axes.spines.right": False}
    with plt.rc_context(font):
        size = (10, 0.4 + 3.4 * len(studies))
        figure, axes = plt.subplots(len(studies), 2, figsize=size, layout="constrained")
        for runs, (left, right) in zip(studies, axes, strict=True):
            for run in runs:
                draw_run(run, left, right)
            left.set_title(runs[0].study.title, loc="left", fontsize=11, fontweight="bold", pad=10)
            left.set_ylabel("objective / F(0)")
            right.set_ylabel("certified gap / F(0)")
        for panel in axes.flat:
            panel.set(xscale="log", yscale="log", xlabel="epoch", xlim=(1, None))
            panel.grid(which="major", color="0.88", linewidth=0.8)
            for axis in (panel.xaxis, panel.yaxis):  # 0.02, not 2 × 10⁻²
                axis.set_major_formatter("{x:g}")
                axis.set_minor_formatter(matplotlib.ticker.NullFormatter())
            panel.yaxis.set_major_locator(matplotlib.ticker.LogLocator(subs=(1, 2, 3, 5)))
        figure.legend(
            *axes[0][0].get_legend_handles_labels(),
            loc="outside upper center",
            ncols=len(ORACLES),
            frameon=False,
            handlelength=2.6,
        )
        figure.get_layout_engine().set(h_pad=0.12, w_pad=0.1)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=120, facecolor="white", pil_kwargs={"optimize": True})
        plt.close(figure)


def draw_run(run: Run, left: Any, right: Any) -> None:
    """One curve of each kind; the gap at the epochs that were certified."""
    history, at_zero = run.result.history, run.result.objective_at_zero
    epoch, gap = history.column("epoch"), history.column("gap")
    known = np.isfinite(gap)
    style = {"linewidth": 1.9, **STYLES[run.oracle]}
    left.plot(epoch, history.column("objective") / at_zero, label=run.oracle, **style)
    right.plot(epoch[known], gap[known] / at_zero, **style)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="smaller data and fewer epochs")
    parser.add_argument("--out", type=Path, default=Path("demo-output"), metavar="DIR")
    options = parser.parse_args(argv)
    console = Console()
    try:
        studies = [multitask(options.small), multiclass(options.small)]
        runs = list(train(studies, 20 if options.small else 150, console))
        by_study = [[run for run in runs if run.study is study] for study in studies]
        for group in by_study:
            show(group, console)
        print(LEGEND)
        path = options.out / "convergence.png"
        try:
            draw(by_study, path)
            print(f"Convergence curves: {path}")
        except ImportError:
            print("No curves, since matplotlib is missing: pip install matplotlib")
    except KeyboardInterrupt:
        print("Interrupted.")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
