"""What must be the same for a run to be continued: the data, the problem, the shard plan."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import numpy as np

from dfwtrace._typing import FloatArray
from dfwtrace.checkpoints.settings import told
from dfwtrace.losses import SquaredLoss
from dfwtrace.lowrank import LowRankMatrix
from dfwtrace.setup import Setup
from dfwtrace.tasks import GramTask

# What a run remembers, and how it goes on from there; another number for each change of it.
_LAYOUT = 2


def fingerprint(
    setup: Setup, digests: Sequence[FloatArray], radius: float, seed: int, start: LowRankMatrix
) -> dict[str, Any]:
    """Names of what matters, as a reader of an error would call it, and their values.

    The rows are told by a digest of each shard, made where the shard is; `start` is where the run
    began.
    """
    facts = setup.rows.facts
    return {
        "version of dfwtrace": version("dfwtrace"),
        "layout of the checkpoint": _LAYOUT,
        "task": _task(setup.task),
        "radius": radius,
        "solver": told(setup.solver),
        "intercept": setup.intercept,
        "use of sample_weight": bool(getattr(setup.task, "weighted", False)),
        "representation": setup.plan.representation,
        "seed": seed,
        "start": _start(start),
        "number of rows": facts.n_rows,
        "shape of W": list(facts.shape),
        "precision of X": str(facts.dtype),
        "number of shards": setup.engine.n_shards,
        "rows of the shards": [_hexadecimal(digest) for digest in digests],
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


def _task(task: Any) -> str:
    """The task, or its loss on scores, whatever the representation."""
    if isinstance(task, GramTask):
        return told(SquaredLoss())
    return told(getattr(task, "loss_on_scores", task))


def _start(W: LowRankMatrix) -> str:
    if W.rank == 0:
        return "zero"
    told = hashlib.blake2b(digest_size=8)
    for factor in (W.U, W.s, W.V):
        told.update(np.ascontiguousarray(factor).tobytes())
    return f"a matrix of rank {W.rank} ({told.hexdigest()})"


def _hexadecimal(digest: Any) -> str:
    return bytes(np.asarray(digest, np.uint8)).hex()
