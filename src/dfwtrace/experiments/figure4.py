"""Figure 4: speed-up with the number of cores, measured here and simulated beyond."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from dfwtrace.engines import Engine, LocalEngine, SparkEngine
from dfwtrace.experiments.exhibits import Claim, Exhibit, Line, Panel, Scale, Setting, Table
from dfwtrace.experiments.methods import follow
from dfwtrace.experiments.problems import classification, last, multiclass
from dfwtrace.experiments.provenance import cores
from dfwtrace.experiments.runs import MissingRowsError, Row, Run, by_setting, of_experiment
from dfwtrace.experiments.scaling_costs import FAN_IN, ITERATIONS, Sizes, measure
from dfwtrace.experiments.scaling_model import LOOPBACK, Network, Topology, epoch_seconds, exchanges
from dfwtrace.report.numbers import duration

NAME = "figure 4"
TITLE = "Figure 4: speed-up"
KEYS = ("engine", "cores")
ABOUT = (
    "Epochs of DFW-2 for multinomial logistic regression, on as many cores as this machine has: "
    "threads of this process, and resident workers of Spark. Beside them, a simulation of "
    "ImageNet's shape in the implicit form, fed with what was measured on one worker: every "
    "message of a round through a tree of workers on a network of 10 Gb/s. Its lines are dashed. "
    "It knows of no stragglers, and each of its cores has a link and the memory of a machine to "
    "itself: it tells what the rounds cost, not what the cores of one machine take from each other."
)

#: Rows, d = m, epochs.
_SIZES: dict[Scale, tuple[int, int, int]] = {
    "toy": (400, 12, 6),
    "small": (20_000, 500, 30),
    "paper": (100_000, 1000, 30),
}
#: ImageNet's shape, as the paper's figure has it: a worker has so few of its rows that all that the
#: simulation asks for can be measured, at any scale.
_IMAGENET = (1_281_167, Sizes(2048, 1000, (313, 5000, 20_000), 10_000, min(2, cores())))
#: Rows, d and m of the simulated problem, and what is measured for it.
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
_PERFECT = "perfect"


def runs(setting: Setting) -> list[Run]:
    """Both engines on 1, 2, … cores, and the measurements that the simulation needs."""
    n, d, epochs = _SIZES[setting.scale]
    engines = [_LOCAL] if setting.spark is None else [_LOCAL, _SPARK]
    made = [
        Run(
            NAME,
            {
                "engine": name,
                "cores": count,
                "shards": cores(),
                "n": n,
                "d": d,
                "m": d,
                "epochs": epochs,
                "seed": 0,
            },
            partial(_measure, setting, name, count, n, d, epochs),
        )
        for name in engines
        for count in _counts(cores())
    ]
    if setting.spark is not None:
        rows, sizes = _SIMULATED[setting.scale]
        settings = {"engine": _SIMULATION, "n": rows, "d": sizes.d, "m": sizes.m, "seed": 0}
        made.append(Run(NAME, settings, partial(_simulate, setting.spark, rows, sizes)))
    return made


def _counts(most: int) -> list[int]:
    """1, 2, 4, … and all.

    Examples
    --------
    >>> _counts(6)
    [1, 2, 4, 6]
    """
    return [*(2**k for k in range(most.bit_length()) if 2**k < most), most]


def _told(count: int) -> str:
    """A number of cores, in words.

    Examples
    --------
    >>> _told(1), _told(2)
    ('1 core', '2 cores')
    """
    return "1 core" if count == 1 else f"{count} cores"


def _measure(
    setting: Setting, name: str, count: int, n: int, d: int, epochs: int
) -> dict[str, Any]:
    problem = classification(last.of(multiclass, n, d, d, 100), 50.0)
    # As many shards as the machine has cores: the work is the same, whoever does it.
    shards = cores()
    engine: Engine = LocalEngine(shards, n_jobs=count)
    if name == _SPARK:
        engine = SparkEngine(setting.spark, shards, count)
    told = follow(problem, "DFW-2", epochs=epochs, step="harmonic", engine=engine, every=epochs)
    # The first epochs touch new memory.
    return {**told, "seconds_an_epoch": float(np.median(np.diff(told["seconds"])[2:]))}


def _simulate(spark: Any, rows: int, sizes: Sizes) -> dict[str, Any]:
    measured = measure(spark, sizes, _TURNS)
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
    """Seconds of an epoch by the number of cores."""
    found = of_experiment(rows, NAME, engine=engine)
    if engine == _SIMULATION:
        pairs = [(r["values"]["cores"], r["values"]["seconds_an_epoch"]) for r in found]
        return dict(zip(*pairs[0], strict=True)) if pairs else {}
    counts = by_setting(found, "cores")
    expected = _counts(found[0]["settings"]["shards"]) if found else []
    return {count: counts[count]["values"]["seconds_an_epoch"] for count in expected}


def exhibit(rows: Sequence[Row]) -> Exhibit:
    """Epochs and speed-up by cores, and the objective against time."""
    epochs = {name: _epochs(rows, name) for name in (_LOCAL, _SPARK, _SIMULATION)}
    epochs = {name: found for name, found in epochs.items() if found}
    shapes = {name: _shape(rows, name) for name in epochs}
    # Two problems on one axis: their shapes tell them apart.
    names = {name: f"{name}, {shapes[name]}" for name in epochs}
    lines: dict[str, Line] = {
        names[name]: (list(found), list(found.values())) for name, found in epochs.items()
    }
    speed_up: dict[str, Line] = {
        names[name]: (list(found), [found[1] / seconds for seconds in found.values()])
        for name, found in epochs.items()
    }
    all_cores = sorted({count for found in epochs.values() for count in found})
    speed_up[_PERFECT] = (all_cores, all_cores)
    objectives: dict[str, Line] = {
        f"{name}, {_told(row['settings']['cores'])}": (
            row["values"]["seconds"],
            row["values"]["objective"],
        )
        for name in (_LOCAL, _SPARK)
        for row in of_experiment(rows, NAME, engine=name)
    }
    dashed = (names.get(_SIMULATION, _SIMULATION), _PERFECT)
    cells = [
        [name, shapes[name], str(count), duration(seconds), f"{found[1] / seconds:.2f}"]
        for name, found in epochs.items()
        for count, seconds in found.items()
    ]
    columns = ["where", "n×d×m", "cores", "an epoch", "speed-up"]
    return Exhibit(
        [
            Panel("Time of an epoch by cores", "cores", "seconds", lines, True, True, dashed),
            Panel(
                "Speed-up by cores", "cores", "epoch on one / epoch", speed_up, True, True, dashed
            ),
            Panel("Objective by time", "seconds", "F / F(0)", objectives, log_y=True),
        ],
        tables=[Table("Speed-up", columns, cells, names=3)],
        notes=_notes(rows),
    )


def _shape(rows: Sequence[Row], engine: str) -> str:
    """Rows, features and classes of an engine's problem."""
    settings = of_experiment(rows, NAME, engine=engine)[0]["settings"]
    return f"{settings['n']:,}×{settings['d']}×{settings['m']}"


def _notes(rows: Sequence[Row]) -> list[str]:
    simulated = of_experiment(rows, NAME, engine=_SIMULATION)
    if not simulated:
        return ["There are no rows of Spark, and none of the simulation, which it feeds."]
    settings, values = simulated[0]["settings"], simulated[0]["values"]
    checks = " and ".join(
        f"{share:.2f} with {'one worker' if count == '1' else f'{count} workers'}"
        for count, share in values["predicted_over_measured"].items()
    )
    return [
        f"The simulation is of n = {settings['n']:,}, d = {settings['d']}, m = {settings['m']}. "
        f"What it predicts for an epoch on this machine, at a number of rows that it was not fed "
        f"with, over what was measured: {checks}."
    ]


def claims(rows: Sequence[Row]) -> list[Claim]:
    """The paper's speed-ups, as far as the cores go, and beyond."""
    made = []
    if not _epochs(rows, _LOCAL):
        raise MissingRowsError("there are no rows of this process.")
    for name in (_LOCAL, _SPARK):
        found = _epochs(rows, name)
        most = max(found, default=1)
        if most > 1:
            gained, asked = found[1] / found[most], 0.6 * most
            made.append(
                Claim(
                    f"More cores make epochs quicker ({name}).",
                    f"{_told(most)}: {gained:.2f} times as quick as one; {asked:.1f} is asked.",
                    gained > asked,
                    "Products with vectors wait for the memory, which the cores of one machine "
                    "share: that is likely, but was not measured here.",
                    kind="stand-in",
                )
            )
    if not made:
        text = "More cores make epochs quicker."
        made.append(Claim(text, "There is one core here.", None, kind="stand-in"))
    simulated = _epochs(rows, _SIMULATION)
    if not simulated and _epochs(rows, _SPARK):
        raise MissingRowsError("there are rows of Spark, but none of the simulation.")
    text = f"Epochs scale to {_PAPERS_LARGEST} cores (simulated, each with its own memory)."
    if not simulated:
        lacking = "There are no rows of Spark, which tells the costs."
        return [*made, Claim(text, lacking, None, kind="stand-in")]
    gained, asked = simulated[1] / simulated[_PAPERS_LARGEST], 0.5 * _PAPERS_LARGEST
    most = max(simulated)
    return [
        *made,
        Claim(
            text,
            f"{gained:.1f} times as quick as one, and {simulated[1] / simulated[most]:.1f} times "
            f"with {most}; {asked:g} is asked.",
            gained > asked,
            "With so few rows for each worker, a round's latency is what an epoch waits for.",
            kind="stand-in",
        ),
    ]
