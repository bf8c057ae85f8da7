"""Runs the benchmarks, prints their tables and keeps their rows."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from rich.console import Console

from benchmarks import (
    accelerated,
    accelerated_dense,
    accelerated_least_squares,
    auto_radius,
    corpus,
    default_tol,
    epoch_floor,
    estimators_clinc,
    first_try,
    growth,
    imagenet_size,
    least_squares,
    lmo_accuracy,
    memory,
    peers,
    plan_accuracy,
    plan_choice,
    prediction,
    report,
    scaling,
    scaling_check,
    spark_epoch,
    spark_loading,
    spark_long,
    spark_rounds,
    spark_session,
)
from benchmarks.harness import Scale
from benchmarks.provenance import OtherWork, provenance

SUITE: dict[str, ModuleType] = {
    module.__name__.rpartition(".")[2]: module
    for module in (
        epoch_floor,
        least_squares,
        growth,
        memory,
        plan_accuracy,
        plan_choice,
        lmo_accuracy,
        accelerated,
        accelerated_least_squares,
        accelerated_dense,
        corpus,
        imagenet_size,
        prediction,
        first_try,
        auto_radius,
        default_tol,
        estimators_clinc,
        peers,
        spark_rounds,
        spark_epoch,
        spark_long,
        spark_loading,
        scaling_check,
        scaling,
    )
}
# Columns of a table that goes to a file or a pipe.
_WIDTH = 140
# Share of the processors' time that others may take before times are no longer to be trusted.
_BUSY = 0.05
RESULTS = Path(__file__).with_name("results")


def main(arguments: Sequence[str] | None = None) -> int:
    asked = _parse(arguments)
    console = Console()
    if not console.is_terminal:
        console.width = _WIDTH
    facts = provenance()
    console.print(f"{facts['cpu']}, {facts['cores']} cores, dfwtrace at {facts['commit']}")
    try:
        records = [
            record
            for name in SUITE
            if name in asked.only
            for record in _measure(name, asked.scale, asked.repeat, facts, console)
        ]
    finally:
        spark_session.stop()
    if any(record["target"] is not None for record in records):
        console.print(f"\n{_summary(records)}")
    folder = asked.results or (RESULTS if asked.scale == "full" else None)
    if folder is not None and records:
        console.print(f"Rows added to {report.append(records, folder)}", soft_wrap=True)
    return 0


def _measure(
    name: str, scale: Scale, repeat: int, facts: Mapping[str, Any], console: Console
) -> list[dict[str, Any]]:
    """Run one benchmark and print its table; the records of its rows."""
    module = SUITE[name]
    title = f"{name}: {(module.__doc__ or name).splitlines()[0]}"
    console.print()
    try:
        with console.status(name), OtherWork() as others:
            began = time.perf_counter()
            rows = module.run(scale, repeat)
            took = time.perf_counter() - began
    except (spark_session.NoSparkError, ModuleNotFoundError) as lacking:
        console.print(f"{title}\nleft out: {lacking}.")
        return []
    judged = scale == "full" and not (module.TIMED and others.share > _BUSY)
    console.print(report.table(title, module.RATIO, rows, judged=judged))
    console.print(f"took {took:.0f} s, other work on the machine {others.share:.0%}")
    circumstances = {"scale": scale, "other_work": round(others.share, 3), **facts}
    return [report.record(row, judged=judged, **circumstances) for row in rows]


def _summary(records: Sequence[Mapping[str, Any]]) -> str:
    verdicts = [record["met"] for record in records if record["target"] is not None]
    summary = f"{verdicts.count(True)} of {len(verdicts)} targets met"
    if None in verdicts:
        summary += (
            f", {verdicts.count(None)} not judged: a verdict on times takes full sizes and a "
            f"machine that is otherwise idle"
        )
    return f"{summary}."


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--only",
        type=_names,
        action="extend",
        metavar="NAME",
        help=f"only those whose names begin so (may be given again): {', '.join(SUITE)}",
    )
    parser.add_argument(
        "--scale",
        choices=["toy", "full"],
        default="full",
        help="toy: seconds, to see that all runs; its ratios mean nothing and are not kept",
    )
    parser.add_argument(
        "--repeat", type=_count, default=5, help="rounds of measuring (%(default)s)"
    )
    parser.add_argument(
        "--results", type=Path, help="folder for the rows (benchmarks/results for the full scale)"
    )
    asked = parser.parse_args(arguments)
    asked.only = asked.only or list(SUITE)
    return asked


def _names(beginning: str) -> list[str]:
    names = [name for name in SUITE if name.startswith(beginning)]
    if not names:
        raise argparse.ArgumentTypeError(f"none of {', '.join(SUITE)} begins with {beginning!r}")
    return names


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


if __name__ == "__main__":
    sys.exit(main())
