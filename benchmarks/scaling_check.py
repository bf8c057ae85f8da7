"""An epoch as the model of scaling predicts it, against what it really took here.

The model has only seen one worker, at other numbers of rows. With two workers on one machine it can
err where they take memory bandwidth away from each other, which machines of a cluster do not.
"""

from __future__ import annotations

from benchmarks.harness import Row, Scale
from benchmarks.scaling_costs import FAN_IN, ITERATIONS, measure
from benchmarks.scaling_model import (
    LOOPBACK,
    Topology,
    bytes_on_wire,
    epoch_seconds,
    exchanges,
)

RATIO = "predicted / measured"
TIMED = True


def run(scale: Scale, repeat: int) -> list[Row]:
    measured, _ = measure(scale, repeat)
    costs = measured.costs
    rounds = exchanges(measured.d, measured.m, ITERATIONS)
    rows = []
    for workers, really in measured.checks.items():
        topology = Topology(workers, FAN_IN)
        predicted = epoch_seconds(really.n, topology, rounds, costs, LOOPBACK)
        rows.append(
            Row(
                "scaling_check",
                f"N={workers}",
                {"n": really.n, "d": measured.d, "m": measured.m},
                predicted / really.seconds,
                None,
                {
                    "predicted": predicted,
                    "measured": really.seconds,
                    "predicted compute": float(costs.compute.at(really.n / workers).sum()),
                    "measured compute": really.compute,
                },
                {"numbers / bytes on wire": bytes_on_wire(topology, rounds) / really.bytes},
            )
        )
    return rows
