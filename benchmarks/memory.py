"""Peak memory where d and m are large: what a run adds, in shares of one dense d×m matrix.

Every run is a process of its own (`benchmarks.memory_process`). What it adds is its peak less what
it held just before `solve`, with everything imported, compiled and the data built.
"""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import product
from typing import Any

from benchmarks.harness import Row, Scale
from benchmarks.provenance import ROOT

RATIO = "extra peak / (d·m·8 bytes)"
TIMED = False
TARGET = 0.1

# The toy size is just beyond the largest gradient that the certificate would gather.
_SIZES = {"toy": (20, 5100, 5100), "full": (500, 20_000, 20_000)}
_CASES = {
    "toy": [("least squares", "dense"), ("multinomial", "sparse")],
    "full": list(product(("least squares", "multinomial"), ("dense", "sparse"))),
}


def run(scale: Scale, repeat: int) -> list[Row]:
    """Allocations do not vary from run to run, so `repeat` is of no use here."""
    return [_measure(task, layout, *_SIZES[scale]) for task, layout in _CASES[scale]]


def _measure(task: str, layout: str, n: int, d: int, m: int) -> Row:
    solved = _process(task, layout, n, d, m)
    if solved["certificate"] != "lanczos":
        raise RuntimeError(f"the certificate took the {solved['certificate']} way, not lanczos.")
    extra = solved["peak"] - solved["before"]
    return Row(
        "memory",
        f"{task}, {layout} X",
        {"n": n, "d": d, "m": m},
        extra / (8.0 * d * m),
        TARGET,
        {"solve": solved["seconds"]},
        {
            "MB before": solved["before"] / 1e6,
            "extra MB": extra / 1e6,
        },
    )


def _process(task: str, layout: str, n: int, d: int, m: int) -> dict[str, Any]:
    order = json.dumps({"task": task, "layout": layout, "n": n, "d": d, "m": m})
    command = [sys.executable, "-m", "benchmarks.memory_process", order]
    run = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    answer: dict[str, Any] = json.loads(run.stdout)
    return answer
