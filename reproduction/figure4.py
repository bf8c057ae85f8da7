"""Figure 4: speed-up with the number of cores, measured here and simulated beyond."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from benchmarks import spark_session
from benchmarks.provenance import cores
from benchmarks.scaling_costs import FAN_IN, ITERATIONS, Sizes, measure_on
from benchmarks.scaling_model import LOOPBACK, Network, Topology, epoch_seconds, exchanges

import dfwtrace as dt
from dfwtrace.plotting import Series
from reproduction.claims import Claim, Judged, claim
from reproduction.data import cached, classification, multiclass
from reproduction.methods import Options, Scale, follow
from reproduction.page import Panel, Shown
from reproduction.rows import MissingRowError, Row, Settings

NAME = "figure 4"
TITLE = "Figure 4: speed-up"
KEYS = ("engine", "cores")
ABOUT = (
    "Epochs of DFW-2 for multinomial logistic regression, on as many cores as this machine has: "
    "threads of this process, and resident workers of Spark. Beside them, a simulation of "
    "ImageNet's shape in the implicit form, fed with what was measured on one worker: every "
    "message of a round through a tree of workers on a network of 10 Gb/s. Its lines are dashed. "
    "It knows of no stragglers, and each of its cores has a link and the memory of a machine to "
    "itself: it shows what the rounds cost, not what the cores of one machine take from each other."
)
CLAIMS: list[Claim] = []
group = list[Row]

#: Rows, d = m, epochs.
_SIZES: dict[Scale, tuple[int, int, int]] = {
    "toy": (400, 12, 6),
    "small": (20_000, 500, 30),
    "paper": (100_000, 1000, 30),
}
#: Rows of the simulated problem, and what is measured for it: ImageNet's shape, as the paper's
#: figure has it. A worker has so few of its rows that all of it can be measured at any scale.
_IMAGENET = (1_281_167, Sizes(2048, 1000, (313, 5000, 20_000), 10_000, min(2, cores())))
_SIMULATED: dict[Scale, tuple[int, Sizes]] = {
    "toy": (4000, Sizes(12, 10, (20, 60, 120), 90, 1)),
    "small": _IMAGENET,
    "paper": _IMAGENET,
}
_WORKERS = (1, 2, 4, 8, 16, 24, 48, 72, 96, 192, 384)
_PAPERS_LARGEST = 96
_NETWORK = Network(1e10 / 8, 1e-4)
_TURNS = 2
_LOCAL, _SPARK, _SIMULATION = "in process", "Spark", "simulation"


def runs(options: Options) -> list[Settings]:
    """Both engines on 1, 2, … cores, and the measurements that the simulation needs."""
    n, d, epochs = _SIZES[options.scale]
    sizes = {"shards": cores(), "n": n, "d": d, "m": d, "epochs": epochs, "seed": 0}
    rows, simulated = _SIMULATED[options.scale]
    return [
        *(
            {"engine": name, "cores": count, **sizes}
            for name in (_LOCAL, _SPARK)
            for count in _counts(cores())
        ),
        {"engine": _SIMULATION, "n": rows, "d": simulated.d, "m": simulated.m, "seed": 0},
    ]


def _counts(most: int) -> list[int]:
    """1, 2, 4, … and all."""
    return [*(2**k for k in range(most.bit_length()) if 2**k < most), most]


def measure(options: Options, run: Settings) -> dict[str, Any]:
    """Run some epochs, or simulate them."""
    if run["engine"] == _SIMULATION:
        return _simulate(*_SIMULATED[options.scale])
    problem = classification(cached(multiclass, run["n"], run["d"], run["m"], 100), 50.0)
    # As many shards as the machine has cores: the work is the same, whoever does it.
    shards, count = run["shards"], run["cores"]
    engine: Any = dt.LocalEngine(shards, n_jobs=count)
    if run["engine"] == _SPARK:
        engine = dt.SparkEngine(spark_session.session(f"local[{shards}]"), shards, count)
    dfw2 = {**run, "method": "DFW-2"}
    values = follow(problem, dfw2, step="harmonic", every=run["epochs"], engine=engine)
    # The first epochs touch new memory.
    return {**values, "seconds_an_epoch": float(np.median(np.diff(values["seconds"])[2:]))}


def _simulate(rows: int, sizes: Sizes) -> dict[str, Any]:
    measured = measure_on(spark_session.session(f"local[{cores()}]"), sizes, _TURNS)
    rounds = exchanges(sizes.d, sizes.m, ITERATIONS)
    seconds = [
        epoch_seconds(rows, Topology(count, FAN_IN), rounds, measured.costs, _NETWORK)
        for count in _WORKERS
    ]
    checks = {
        str(count): epoch_seconds(
            check.n, Topology(count, FAN_IN), rounds, measured.costs, LOOPBACK
        )
        / check.seconds
        for count, check in measured.checks.items()
    }
    return {
        "cores": list(_WORKERS),
        "seconds_an_epoch": seconds,
        "predicted_over_measured": checks,
    }


def _epochs(rows: Sequence[Row], engine: str) -> dict[int, float]:
    """Seconds of an epoch by the number of cores; empty if not all were measured."""
    found = [row for row in rows if row["settings"]["engine"] == engine]
    if engine == _SIMULATION:
        pairs = [(row["values"]["cores"], row["values"]["seconds_an_epoch"]) for row in found]
        return dict(zip(*pairs[0], strict=True)) if pairs else {}
    by_count = {row["settings"]["cores"]: row["values"]["seconds_an_epoch"] for row in found}
    complete = found and list(by_count) == _counts(found[0]["settings"]["shards"])
    return by_count if complete else {}


def show(rows: Sequence[Row]) -> Shown:
    """Epochs and speed-up by cores, and the objective against time."""
    seconds, speed_ups, objectives, notes = [], [], [], []
    for name in (_LOCAL, _SPARK, _SIMULATION):
        epochs = _epochs(rows, name)
        own = [row for row in rows if row["settings"]["engine"] == name]
        if not epochs:
            continue
        # Two problems on one axis: their shapes distinguish them.
        run = own[0]["settings"]
        label = f"{name}, {run['n']:,}×{run['d']}×{run['m']}"
        counts, took = list(epochs), list(epochs.values())
        gained = [took[0] / one for one in took]
        seconds.append(Series(label, counts, took, dashed=name == _SIMULATION))
        speed_ups.append(Series(label, counts, gained, dashed=name == _SIMULATION))
        pairs = ", ".join(f"{n}: {g:.2f}" for n, g in zip(counts, gained, strict=True))
        notes.append(f"Speed-up by cores ({label}): {pairs}.")
        for row in own:
            values = row["values"]
            if name == _SIMULATION:
                checks = values["predicted_over_measured"].items()
                notes.append(
                    "What the simulation predicts for an epoch on this machine, at a number of "
                    "rows that it was not fed with, over what was measured, by the number of "
                    f"workers: {', '.join(f'{n}: {share:.2f}' for n, share in checks)}."
                )
            else:
                label = f"{name}, cores: {row['settings']['cores']}"
                objectives.append(Series(label, values["seconds"], values["objective"]))
    if not seconds:
        return Shown({})
    everywhere = sorted({int(count) for one in seconds for count in np.asarray(one.x)})
    speed_ups.append(Series("perfect", everywhere, everywhere, dashed=True))
    panels = [
        Panel("Time of an epoch", "cores", "seconds", seconds, True, True),
        Panel("Speed-up", "cores", "epoch on one / epoch", speed_ups, True, True),
        Panel("Objective", "seconds", "F / F(0)", objectives, y_log=True),
    ]
    return Shown({"": [panel for panel in panels if panel.series]}, notes=notes)


def _more_cores_are_faster(name: str, rows: Sequence[Row]) -> Judged:
    epochs = _epochs(rows, name)
    most = max(epochs, default=1)
    if most == 1:
        lacking = "There is one core here." if epochs else f"There are not all rows of {name}."
        raise MissingRowError(lacking)
    gained, asked = epochs[1] / epochs[most], 0.6 * most
    words = f"{most} cores: {gained:.2f} times as fast as one; {asked:.1f} is asked."
    return words, gained > asked


CLAIMS += [
    Claim(
        f"More cores make epochs faster ({name}).",
        partial(_more_cores_are_faster, name),
        "Products with vectors wait for the memory, which the cores of one machine share: that is "
        "likely, but was not measured here.",
        "stand-in",
    )
    for name in (_LOCAL, _SPARK)
]


@claim(
    CLAIMS,
    "With so few rows for each worker, a round's latency is what an epoch waits for.",
    "stand-in",
)
def _epochs_scale(rows: Sequence[Row]) -> Judged:
    """Epochs scale to 96 cores (simulated, each with its own memory)."""
    epochs = _epochs(rows, _SIMULATION)
    if not epochs:
        raise MissingRowError("There are no rows of Spark, which the simulation needs.")
    gained, asked, most = epochs[1] / epochs[_PAPERS_LARGEST], 0.5 * _PAPERS_LARGEST, max(epochs)
    return (
        f"{gained:.1f} times as fast as one, and {epochs[1] / epochs[most]:.1f} times with {most}; "
        f"{asked:g} is asked.",
        gained > asked,
    )
