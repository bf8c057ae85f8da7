"""Run a method over the corpus, and add a line of JSON for each problem to a file.

The package is the one that Python finds, so that `PYTHONPATH` may name another checkout's `src`.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dfwtrace as dt
from benchmarks.corpus import runs
from benchmarks.corpus.methods import warm_up
from benchmarks.corpus.problems import NAMES, load_all
from benchmarks.provenance import commit, provenance


def main(arguments: Sequence[str] | None = None) -> int:
    asked = _parse(arguments)
    facts = {**provenance(), "commit": commit(Path(dt.__file__).resolve().parent)}
    before = runs.read(asked.against, "ours")
    warm_up()
    names = tuple(name for name in NAMES if re.search(asked.only, name))
    with asked.file.open("a", encoding="utf-8") as lines:
        for problem in load_all(names):
            record = runs.run_on(problem, asked.method)
            print(_line(record, before.get(problem.name)), flush=True)
            lines.write(json.dumps({**record, **facts}, ensure_ascii=False) + "\n")
            lines.flush()
    return 0


def _line(record: Mapping[str, Any], before: Mapping[str, Any] | None) -> str:
    line = (
        f"{record['problem']:<42} {record['status']:<10} {record['passes']:6d} passes "
        f"{record['seconds']:7.2f} s  gap {record['gap']:.1e} (checked {record['checked']:.1e})  "
        f"F {record['objective']:.6g}  rank {record['rank']}"
    )
    line += "".join(f"  {name} {value:.0f}" for name, value in record["detail"].items())
    if before is not None:
        line += f"  {record['passes'] / before['passes']:.2f} of before ({before['status']})"
    return line


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.corpus.record", description=__doc__)
    parser.add_argument(
        "file", type=Path, help="file to add the lines to; the last of a problem and method counts"
    )
    parser.add_argument(
        "--only", default="", metavar="PATTERN", help="problems whose names this expression matches"
    )
    parser.add_argument("--method", choices=list(runs.METHODS), default="ours")
    parser.add_argument(
        "--against", type=Path, default=runs.BEFORE, help="runs to print passes over (%(default)s)"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
