"""Runs of methods on problems as records: of this run, of our solver before, and of the peers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.corpus import methods, peers
from benchmarks.corpus.problems import Problem
from benchmarks.harness import Row

METHODS: dict[str, methods.Method] = {
    "ours": methods.ours,
    "projected": peers.projected,
    "lbfgs": peers.lbfgs,
}
#: Recorded runs: of our solver as it was before, and of the peers.
BEFORE = Path(__file__).with_name("before.jsonl")
PEERS = Path(__file__).with_name("peers.jsonl")
#: Passes over those of before.
TARGET = 1.3

#: Records by the name of the problem.
Records = dict[str, dict[str, Any]]


def run_on(problem: Problem, method: str) -> dict[str, Any]:
    """The record of one run."""
    limits = problem.tol, problem.max_seconds, methods.MAX_PASSES
    outcome = METHODS[method](problem, *limits)
    known = {
        "sizes": problem.sizes,
        "radius": problem.radius,
        "objective_at_zero": problem.at_zero,
        "tol": problem.tol,
    }
    return {"problem": problem.name, "method": method, **known, **asdict(outcome)}


def read(path: Path, method: str) -> Records:
    """The last record of each problem by a method; none where there is no file."""
    if not path.exists():
        return {}
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return {line["problem"]: line for line in lines if line.get("method") == method}


def recorded() -> dict[str, Records]:
    """The records that ours are compared with, by name."""
    return {
        "before": read(BEFORE, "ours"),
        "projected": read(PEERS, "projected"),
        "lbfgs": read(PEERS, "lbfgs"),
    }


def row(record: Mapping[str, Any], others: Mapping[str, Records]) -> Row:
    """Passes of ours over those before. A gap above the tolerance counts as so many times more."""
    name, sides = record["problem"], {"ours": record}
    sides |= {side: of[record["problem"]] for side, of in others.items() if name in of}
    detail: dict[str, float] = {}
    for side, one in sides.items():
        detail |= {
            f"{side}: passes": float(one["passes"]),
            f"{side}: gap": float(one["checked"] if one["status"] == "wrong" else one["gap"]),
            f"{side}: certified": float(one["status"] == "optimal"),
        }
    detail |= {"rank": float(record["rank"]), **record["detail"]}
    passes = detail["ours: passes"]
    if not detail["ours: certified"]:
        passes *= max(detail["ours: gap"] / record["tol"], 1.0)
    return Row(
        "corpus",
        name,
        record["sizes"],
        passes / detail.get("before: passes", passes),
        TARGET if "before" in sides else None,
        {side: one["seconds"] for side, one in sides.items()},
        detail,
        () if record["status"] == "optimal" else (record["status"],),
    )
