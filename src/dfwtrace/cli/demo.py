"""``dfwtrace demo``: both problems of the paper, small, with every oracle and both solvers."""

from __future__ import annotations

import time
from typing import Any

from rich import box
from rich.table import Table

from dfwtrace import datasets
from dfwtrace.api import solve
from dfwtrace.cli import options as shared
from dfwtrace.cli.output import Output
from dfwtrace.engines import LocalEngine
from dfwtrace.report import duration
from dfwtrace.tasks import LeastSquares, Multinomial

_SHARDS = 4
_WAYS: dict[str, dict[str, Any]] = {
    **{
        oracle: {"lmo": oracle, "epochs": 20}
        for oracle in ("power-1", "power-2", "power-log", "naive", "sva", "lanczos")
    },
    "accelerated": {"solver": "accelerated", "tol": 1e-4},
}
_COLUMNS = {
    "epochs": "d",
    "F / F(0)": ".4f",
    "gap / F(0)": ".1e",
    "rank": "d",
    "rounds": ",d",
    "numbers": ",d",
}


def command(json: shared.JsonOption = False, quiet: shared.QuietOption = False) -> None:
    """Solve both problems of the paper, at a small scale, with every oracle and both solvers.

    Example: dfwtrace demo
    """
    X, Y, _ = datasets.make_multitask(n=2000, d=40, m=30, rank=10, noise=0.1, seed=0)
    Z, y, _ = datasets.make_multiclass(n=1000, d=30, m=10, rank=5, seed=0)
    problems: dict[str, tuple[Any, ...]] = {
        "Multi-task least squares, 2,000 rows, 40 × 30, radius 1": (LeastSquares(), X, Y, 1.0),
        "Multinomial logistic regression, 1,000 rows, 30 × 10, radius 50": (
            *(Multinomial(10), Z, y, 50.0),
        ),
    }
    output, studies = Output(json, quiet), []
    for title, problem in problems.items():
        runs = [_run(name, *problem) for name in _WAYS]
        table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        table.collapse_padding = True
        table.add_column("solver")
        for name in (*_COLUMNS, "time"):
            table.add_column(name, justify="right")
        for run in runs:
            solver, *numbers, seconds = run.values()
            shown = map(format, numbers, _COLUMNS.values())
            table.add_row(solver, *shown, duration(seconds))
        output.show(table)
        studies.append({"problem": title, "radius": problem[-1], "runs": runs})
    output.say("gap: certified upper bound of how far the objective F is from its optimum.")
    output.say(f"rounds, numbers: of the oracle, as if each of {_SHARDS} shards were a worker.")
    output.tell({"studies": studies})


def _run(name: str, task: Any, X: Any, y: Any, radius: float) -> dict[str, Any]:
    """Solve in one way. Ctrl-C ends the demo, not the run."""
    began = time.perf_counter()
    engine = LocalEngine(n_shards=_SHARDS)
    result = solve(task, X, y, radius=radius, engine=engine, progress=False, **_WAYS[name])
    if result.status == "interrupted":
        raise KeyboardInterrupt
    return {
        "solver": name,
        "epochs": len(result.history),
        "relative_objective": result.objective / result.objective_at_zero,
        "relative_gap": result.relative_gap,
        "rank": result.W.rank,
        "rounds": int(result.history.column("rounds").sum()),
        "numbers_sent": int(result.history.column("numbers_sent").sum()),
        "seconds": time.perf_counter() - began,
    }
