"""What `plan` promises against what `solve` takes: processor time, and peak memory.

Every case is a process of its own (`benchmarks.plan_process`) on one thread, so that processor time
is what the run would take on an idle machine. The run makes the epochs that it makes; the plan for
so many epochs is compared. What it adds to the memory is its peak less what it held just before
`solve`, with everything imported, compiled and the data built; pages of a memory map do not count.

``python -m benchmarks.plan_accuracy FILE`` prints the table of a file of results in Markdown.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness import Row, Scale
from benchmarks.provenance import ROOT

RATIO = "time: the larger over the smaller; memory: measured / planned"
TIMED = False  # processor time, which others' work changes little
TIME_TARGET, MEMORY_TARGET = 3.0, 1.2
# Bytes below which the peak says more about the allocator than about the run.
_MEASURABLE = 20e6

Case = tuple[dict[str, Any], tuple[int, int, int], int]  # what, n×d×m, epochs

_LS, _MN = {"task": "least squares"}, {"task": "multinomial"}
_INTERCEPT, _DFW, _FLOAT32 = {"intercept": True}, {"solver": "dfw"}, {"dtype": "float32"}
_TOY: list[Case] = [
    ({**_LS, "dtype": "int64"}, (400, 9, 3), 5),
    ({**_MN, **_DFW, **_INTERCEPT}, (400, 9, 3), 5),
]
_FULL: list[Case] = [
    # Shapes
    ({**_LS}, (1000, 9, 3), 30),
    ({**_MN}, (1000, 9, 3), 30),
    ({**_MN, **_INTERCEPT}, (100_000, 9, 5), 100),
    ({**_MN, **_DFW, **_INTERCEPT}, (100_000, 9, 5), 50),
    ({**_MN}, (1_000_000, 9, 3), 20),
    ({**_LS, **_INTERCEPT, **_FLOAT32}, (1_000_000, 9, 1), 50),
    ({**_MN, **_FLOAT32}, (10_000, 100, 10), 50),
    ({**_MN, **_INTERCEPT, **_FLOAT32}, (20_000, 300, 300), 10),
    ({**_MN, **_DFW}, (20_000, 300, 300), 20),
    ({**_MN}, (3000, 5000, 20), 20),
    ({**_LS, **_DFW}, (20_000, 1000, 10), 20),
    ({**_LS}, (5000, 500, 1000), 30),
    ({**_MN, **_DFW, **_FLOAT32}, (20_000, 1000, 1000), 20),
    ({**_MN, "layout": "csr"}, (50_000, 5000, 10), 30),
    ({**_LS, **_DFW, "layout": "csr", **_INTERCEPT}, (200_000, 1000, 5), 30),
    # Layouts, which have to be copied, and what else takes memory
    ({**_MN, "layout": "one-hot"}, (100_000, 1_000_000, 10), 4),
    ({**_MN, **_DFW, "layout": "one-hot"}, (100_000, 1_000_000, 10), 10),
    ({**_LS, "dtype": "int64"}, (200_000, 100, 10), 10),
    ({**_MN, "dtype": "int8", "layout": "F"}, (200_000, 100, 10), 10),
    ({**_LS, "layout": "F"}, (200_000, 100, 10), 10),
    ({**_MN, "layout": "csc"}, (300_000, 2000, 10), 10),
    ({**_MN, "representation": "factored"}, (100_000, 100, 200), 5),
    ({**_MN, "representation": "factored", **_DFW}, (100_000, 100, 200), 10),
    ({**_LS}, (2000, 100, 100_000), 4),
    ({**_MN}, (400, 100, 100_000), 4),
    ({**_LS, "weighted": True}, (200_000, 50, 40), 10),
    ({**_MN, "weighted": True}, (500_000, 20, 10), 10),
    ({**_MN, "layout": "map"}, (200_000, 100, 10), 10),
    ({**_MN, **_INTERCEPT, "mean": 100.0}, (200_000, 100, 10), 5),
]


def run(scale: Scale, repeat: int) -> list[Row]:
    """Processor time and allocations vary little from run to run, so `repeat` is of no use here."""
    return [row for case in (_FULL if scale == "full" else _TOY) for row in _rows(*case)]


def _rows(case: dict[str, Any], sizes: tuple[int, int, int], epochs: int) -> Iterator[Row]:
    named = dict(zip("ndm", sizes, strict=True))
    order = json.dumps({"case": case, "sizes": named, "epochs": epochs})
    command = [sys.executable, "-m", "benchmarks.plan_process", order]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    measured, planned = found["seconds"], found["planned_seconds"]
    name = ", ".join(_words(case | {"form": found["representation"]}))
    yield Row(
        "plan_accuracy",
        f"time: {name}",
        named,
        max(measured / planned, planned / measured),
        TIME_TARGET,
        {"measured": measured, "planned": planned},
        {"measured / planned": measured / planned, "epochs": found["epochs"]},
    )
    if max(found["memory"], found["planned_memory"]) >= _MEASURABLE:
        yield Row(
            "plan_accuracy",
            f"memory: {name}",
            named,
            found["memory"] / found["planned_memory"],
            MEMORY_TARGET,
            {},
            {"MB": found["memory"] / 1e6, "planned MB": found["planned_memory"] / 1e6},
        )


def _words(case: dict[str, Any]) -> Iterator[str]:
    for key, value in case.items():
        if key != "representation":  # the form that it is
            yield {"mean": "far from 0"}.get(key, key if value is True else str(value))


def table(path: Path) -> str:
    """The rows of a file of results, one line for each case."""
    lines = ["| n×d×m | run | measured time / planned | measured memory / planned |"]
    lines.append("|---|---|--:|--:|")
    found: dict[tuple[str, str], dict[str, float]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["benchmark"] == "plan_accuracy":
            of, _, name = row["case"].partition(": ")
            key = "×".join(map(str, row["sizes"].values())), name
            ratio = row["detail"]["measured / planned"] if of == "time" else row["ratio"]
            found.setdefault(key, {})[of] = ratio
    for (sizes, name), ratios in found.items():
        memory = f"{ratios['memory']:.2f}" if "memory" in ratios else ""
        lines.append(f"| {sizes} | {name} | {ratios['time']:.2f} | {memory} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(Path(sys.argv[1])))
