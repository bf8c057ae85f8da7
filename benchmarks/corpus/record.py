"""Run a method over the corpus, and add a line of JSON for each problem to a file.

    python -m benchmarks.corpus.record FILE [--only PATTERN] [--method ours|projected|lbfgs]

The last line of a problem and a method counts. Each line is printed beside the recorded run of our
solver before.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import dfwtrace as dt
from benchmarks.corpus import methods
from benchmarks.corpus.problems import NAMES, Problem, load_all
from benchmarks.provenance import commit, provenance

METHODS: dict[str, methods.Method] = {"ours": methods.ours}
BEFORE = Path(__file__).with_name("before.jsonl")
PEERS = Path(__file__).with_name("peers.jsonl")

#: Records by the name of the problem.
Records = dict[str, dict[str, Any]]


def read(path: Path, method: str) -> Records:
    """The last record of each problem by a method; none where there is no file."""
    if not path.exists():
        return {}
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return {line["problem"]: line for line in lines if line["method"] == method}


def run(problem: Problem, method: str) -> dict[str, Any]:
    """A record of one run."""
    limits = methods.TOL, problem.max_seconds, methods.MAX_PASSES
    outcome = METHODS[method](problem, *limits)
    sizes = {**problem.sizes, "radius": problem.radius, "F(0)": problem.at_zero}
    return {"problem": problem.name, "method": method, **sizes, **asdict(outcome)}


def describe(record: Mapping[str, Any], before: Mapping[str, Any] | None) -> str:
    """One line on a run."""
    numbers = (
        f"{record['passes']:6d} passes {record['seconds']:7.2f} s  gap {record['gap']:.1e} "
        f"(checked {record['checked']:.1e})  F {record['objective']:.6g}  rank {record['rank']}"
    )
    if "epochs" in record["detail"]:
        numbers += f"  epochs {record['detail']['epochs']:.0f}"
    if before is not None:
        numbers += f"  {record['passes'] / before['passes']:.2f} of before ({before['status']})"
    return f"{record['problem']:<42} {record['status']:<9} {numbers}"


def main(arguments: Sequence[str] | None = None) -> int:
    asked = _parse(arguments)
    facts = provenance()
    # The package may be that of another checkout.
    facts["commit"] = commit(Path(dt.__file__).resolve().parent)
    before = read(asked.against, "ours")
    methods.warm_up()
    with asked.file.open("a", encoding="utf-8") as lines:
        for problem in load_all(_matching(asked.only)):
            record = run(problem, asked.method)
            print(describe(record, before.get(problem.name)), flush=True)
            lines.write(json.dumps({**record, **facts}, ensure_ascii=False) + "\n")
            lines.flush()
    return 0


def _matching(patterns: Iterable[str] | None) -> tuple[str, ...]:
    if not patterns:
        return NAMES
    return tuple(name for name in NAMES if any(re.search(p, name) for p in patterns))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.corpus.record", description=__doc__)
    parser.add_argument("file", type=Path, help="file that the lines are added to")
    parser.add_argument(
        "--only", action="append", metavar="PATTERN", help="problems whose names match (regular)"
    )
    parser.add_argument("--method", choices=list(METHODS), default="ours")
    parser.add_argument("--against", type=Path, default=BEFORE, help="recorded runs of ours before")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
