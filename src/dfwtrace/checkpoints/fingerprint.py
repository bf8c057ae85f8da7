"""What must be the same for a run to be continued: the data, the problem, the shard plan."""

from __future__ import annotations

import hashlib
from importlib.metadata import version
from typing import Any

import numpy as np

from dfwtrace.checkpoints.settings import told
from dfwtrace.linalg.lowrank import LowRankMatrix

# What a run remembers, and how it goes on from there; another number for each change of it.
_LAYOUT = 3


def fingerprint(problem: Any, solver: Any, start: LowRankMatrix) -> dict[str, Any]:
    """Names of what matters, as a reader of an error would call it, and their values.

    The rows are told by a digest of each shard, made where the shard is; `start` is where the run
    began.
    """
    facts, task = problem.rows.facts, problem.task
    return {
        "version of dfwtrace": version("dfwtrace"),
        "layout of the checkpoint": _LAYOUT,
        "task": told(getattr(task, "loss_on_scores", task)),
        "radius": problem.radius,
        "solver": told(solver),
        "intercept": problem.learns_intercept,
        "use of sample_weight": bool(getattr(task, "weighted", False)),
        "representation": problem.plan.representation,
        "seed": problem.seed,
        "start": _start(start),
        "number of rows": facts.n_rows,
        "shape of W": list(facts.shape),
        "precision of X": str(facts.dtype),
        "number of shards": problem.engine.n_shards,
        "rows of the shards": [_hexadecimal(digest) for digest in problem.digests],
    }


def difference(then: dict[str, Any], now: dict[str, Any]) -> str | None:
    """The first thing that is not what it was, in words; None if all is the same."""
    for name, value in now.items():
        before = then.get(name)
        if before == value:
            continue
        if isinstance(value, list) and name.startswith("rows"):
            pairs = zip(before or [], value, strict=False)
            shard = next((j for j, (a, b) in enumerate(pairs) if a != b), 0)
            return f"the rows of shard {shard} have changed"
        return f"the {name} was {before} and is {value}"
    return None


def _start(W: LowRankMatrix) -> str:
    if W.rank == 0:
        return "zero"
    told = hashlib.blake2b(digest_size=8)
    for factor in (W.U, W.s, W.V):
        told.update(np.ascontiguousarray(factor).tobytes())
    return f"a matrix of rank {W.rank} ({told.hexdigest()})"


def _hexadecimal(digest: Any) -> str:
    return bytes(np.asarray(digest, np.uint8)).hex()
