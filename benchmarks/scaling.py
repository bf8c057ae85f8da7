"""Predicted epochs on N workers at the paper's ImageNet size, against perfect scaling.

Simulated by `benchmarks.scaling_model` from what was measured here. The
ratio is that of the tree at 10 Gb/s: the epoch over an N-th of the epoch with one worker.

``python -m benchmarks.scaling FILE`` prints the table of a file of results in Markdown.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.harness import Row, Scale
from benchmarks.scaling_costs import FAN_IN, ITERATIONS, measure
from benchmarks.scaling_model import Network, Topology, epoch_seconds, exchanges

RATIO = "epoch / perfect"
TIMED = True

#: Images, and the sizes of their features and classes; d and m are those of the measurements.
_IMAGES = 1_281_167
_WORKERS = [2**k for k in range(13)]
# Seconds there and back between two machines of a data centre.
_LATENCY = 1e-4
_NETWORKS = {
    "1 Gb/s": Network(1e9 / 8, _LATENCY),
    "10 Gb/s": Network(1e10 / 8, _LATENCY),
}


def run(scale: Scale, repeat: int) -> list[Row]:
    measured, other_work = measure(scale, repeat)
    costs = measured.costs
    rounds = exchanges(measured.d, measured.m, ITERATIONS)
    rows: list[Row] = []
    for workers in _WORKERS:
        shapes = {"star": Topology(workers, workers), "tree": Topology(workers, FAN_IN)}
        epochs = {
            f"{shape}, {speed}": epoch_seconds(_IMAGES, topology, rounds, costs, network)
            for speed, network in _NETWORKS.items()
            for shape, topology in shapes.items()
        }
        alone = rows[0].seconds["tree, 10 Gb/s"] if rows else epochs["tree, 10 Gb/s"]
        rows.append(
            Row(
                "scaling",
                f"N={workers}",
                {"n": _IMAGES, "d": measured.d, "m": measured.m},
                epochs["tree, 10 Gb/s"] * workers / alone,
                None,
                {"compute": float(costs.compute.at(_IMAGES / workers).sum()), **epochs},
                {"levels": shapes["tree"].levels, "other work": other_work},
            )
        )
    return rows


def markdown(records: Iterable[Mapping[str, Any]]) -> str:
    """The table of the last run among these records."""
    forecasts = {r["case"]: r for r in records if r["benchmark"] == "scaling"}
    names = list(next(iter(forecasts.values()))["seconds"])
    lines = [
        f"| N | {' | '.join(names)} | × perfect |",
        "|--:" * (len(names) + 2) + "|",
    ]
    for record in forecasts.values():
        times = " | ".join(_time(record["seconds"][name]) for name in names)
        lines.append(f"| {record['case'].removeprefix('N=')} | {times} | {record['ratio']:.3g} |")
    return "\n".join(lines)


def _time(seconds: float) -> str:
    if seconds >= 1.0:
        return f"{seconds:.3g} s"
    milliseconds = 1e3 * seconds
    return f"{milliseconds:.0f} ms" if milliseconds >= 100.0 else f"{milliseconds:.3g} ms"


if __name__ == "__main__":
    stored = Path(sys.argv[1]).read_text(encoding="utf-8")
    print(markdown(json.loads(line) for line in stored.splitlines()))
