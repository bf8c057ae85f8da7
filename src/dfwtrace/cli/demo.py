"""``dfwtrace demo``: both problems of the paper, small, with several oracles."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from rich import box
from rich.table import Table

from dfwtrace import datasets
from dfwtrace.api import solve
from dfwtrace.cli import options as shared
from dfwtrace.cli.output import Output
from dfwtrace.engines import LocalEngine
from dfwtrace.report.numbers import duration
from dfwtrace.result import Result
from dfwtrace.tasks import LeastSquares, Multinomial

_ORACLES = ("power-1", "power-2", "power-log", "naive", "sva", "lanczos")
_EPOCHS = 20
_SHARDS = 4


class _Study(NamedTuple):
    """A problem on data that are made up."""

    title: str
    task: Any
    X: Any
    y: Any
    radius: float


def command(json: shared.JsonOption = False, quiet: shared.QuietOption = False) -> None:
    """Solve both problems of the paper, at a small scale, with every oracle and both solvers.

    Example: dfwtrace demo
    """
    output, told = Output(json, quiet), []
    for study in _studies():
        rows = [_row(study, oracle) for oracle in (*_ORACLES, None)]
        output.show(_tabulate(study.title, rows))
        told.append({"problem": study.title, "radius": study.radius, "runs": rows})
    output.say("gap: certified upper bound of how far the objective F is from its optimum.")
    output.say(f"rounds, numbers: of the oracle, as if each of {_SHARDS} shards were a worker.")
    output.tell({"studies": told})


def _studies() -> list[_Study]:
    X, Y, _ = datasets.make_multitask(n=2000, d=40, m=30, rank=10, noise=0.1, seed=0)
    of_many = "Multi-task least squares, 2,000 rows, 40 × 30, radius 1"
    Z, y, _ = datasets.make_multiclass(n=1000, d=30, m=10, rank=5, seed=0)
    of_classes = "Multinomial logistic regression, 1,000 rows, 30 × 10, radius 50"
    return [
        _Study(of_many, LeastSquares(), X, Y, 1.0),
        _Study(of_classes, Multinomial(10), Z, y, 50.0),
    ]


def _row(study: _Study, oracle: str | None) -> dict[str, Any]:
    """One run; without an oracle, of the accelerated solver. Ctrl-C ends the demo, not the run."""
    began = time.perf_counter()
    ways: dict[str, Any] = {"lmo": oracle, "epochs": _EPOCHS}
    if oracle is None:
        ways = {"solver": "accelerated", "tol": 1e-4}
    result: Result = solve(
        study.task,
        study.X,
        study.y,
        radius=study.radius,
        engine=LocalEngine(n_shards=_SHARDS),
        progress=False,
        **ways,
    )
    if result.status == "interrupted":
        raise KeyboardInterrupt
    history = result.history
    return {
        "solver": oracle or "accelerated",
        "epochs": len(history),
        "relative_objective": result.objective / result.objective_at_zero,
        "relative_gap": result.relative_gap,
        "rank": result.W.rank,
        "rounds": int(history.column("rounds").sum()),
        "numbers_sent": int(history.column("numbers_sent").sum()),
        "seconds": time.perf_counter() - began,
    }


def _tabulate(title: str, rows: list[dict[str, Any]]) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.collapse_padding = True
    table.add_column("solver")
    for name in ("epochs", "F / F(0)", "gap / F(0)", "rank", "rounds", "numbers", "time"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            row["solver"],
            str(row["epochs"]),
            f"{row['relative_objective']:.4f}",
            f"{row['relative_gap']:.1e}",
            str(row["rank"]),
            f"{row['rounds']:,}",
            f"{row['numbers_sent']:,}",
            duration(row["seconds"]),
        )
    return table
