"""The public call: what it returns, what it takes, what it refuses, and Ctrl-C."""

import json
import logging
import signal
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from tests.problems import LMOS

import dfwtrace as dt

X, Y, _ = dt.datasets.make_multitask(n=60, d=8, m=6, rank=3, noise=0.5, random_state=0)
LABELS = np.arange(60) % 6


def solve(**options: Any) -> dt.Result:
    return dt.solve(
        dt.LeastSquares(), X, Y, **{"radius": 0.8, "solver": "dfw", "max_iter": 15, **options}
    )


@pytest.mark.parametrize("oracle", LMOS)
@pytest.mark.parametrize("step", ["linesearch", "harmonic", 0.1])
@pytest.mark.parametrize("task", [dt.LeastSquares(), dt.Multinomial()], ids=lambda task: task.name)
def test_result_is_consistent(task: dt.ScoresTask, step: str | float, oracle: str) -> None:
    y = Y if task.name == "least squares" else LABELS
    result = dt.solve(
        task, X, y, radius=0.8, solver="dfw", max_iter=12, lmo=oracle, step=step, certify_every=5
    )
    W, history = result.W, result.history
    assert result.status == "max_iter"
    np.testing.assert_allclose(W.U.T @ W.U, np.eye(W.rank), atol=1e-12)
    np.testing.assert_allclose(W.V.T @ W.V, np.eye(W.rank), atol=1e-12)
    assert np.all(np.diff(W.s) <= 0.0)
    assert W.trace_norm <= 0.8 * (1.0 + 1e-9)
    assert result.objective == history[-1]["objective"]
    assert result.gap == history[-1]["gap"] >= 0.0
    assert list(np.flatnonzero(~np.isnan(history.column("gap")))) == [4, 9, 11]
    assert np.all((history.column("gamma") >= 0.0) & (history.column("gamma") <= 1.0))
    assert result.relative_gap == result.gap / result.objective_at_zero
    assert f"status='{result.status}'" in repr(result)


ROUND_COLUMNS = [
    "epoch",
    "oracle",
    "method",
    "numbers_sent",
    "bytes_on_wire",
    "compute_seconds",
    "wait_seconds",
    "reduce_seconds",
]


def test_every_round_is_recorded() -> None:
    result = solve(lmo="power-2", max_iter=4, representation="implicit", certify_every=2)
    assert all(list(record) == ROUND_COLUMNS for record in result.rounds)
    assert result.rounds[0]["epoch"] == 0
    assert result.rounds[-1]["epoch"] == 4
    assert {"stats", "matvec", "rmatvec", "update"} <= set(result.rounds.column("method"))
    assert np.all(result.rounds.column("compute_seconds") > 0.0)
    for record in result.history:
        made = [r for r in result.rounds if r["epoch"] == record["epoch"]]
        oracle, other = ([r for r in made if r["oracle"] is flag] for flag in (True, False))
        assert (len(oracle), len(other)) == (record["rounds"], record["other_rounds"])
        assert sum(r["numbers_sent"] for r in oracle) == record["numbers_sent"]
        assert sum(r["numbers_sent"] for r in other) == record["other_numbers"]
        for name in ("compute_seconds", "wait_seconds", "reduce_seconds", "bytes_on_wire"):
            assert sum(r[name] for r in made) == pytest.approx(record[name], rel=1e-12)


def test_the_last_certificate_belongs_to_the_last_epoch() -> None:
    made = solve(lmo="power-1", max_iter=3, representation="implicit").rounds
    assert list(np.unique(made.column("epoch"))) == [0, 1, 2, 3]
    assert made[-1]["method"] == "gradient"


def test_tolerance_is_relative_to_the_objective_at_zero() -> None:
    result = solve(tol=0.01, max_iter=5000)
    assert result.status == "optimal"
    assert result.objective_at_zero == pytest.approx(0.5 * np.sum(Y**2))
    assert result.gap <= 0.01 * result.objective_at_zero
    scaled = dt.solve(
        dt.LeastSquares(), X, 64.0 * Y, radius=64.0 * 0.8, tol=0.01, solver="dfw", max_iter=5000
    )
    assert len(scaled.history) == len(result.history) < 5000


def test_seed_decides() -> None:
    first, again, other = (
        solve(lmo="power-1", random_state=seed).W.to_dense() for seed in (3, 3, 4)
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_log_names_the_representation(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="dfwtrace"):
        solve(representation="factored")
    assert "representation factored: asked for" in caplog.text
    assert "memory" in caplog.text


LONG_RUN = """
import json, sys
import numpy as np, dfwtrace as dt
X, y, _ = dt.datasets.make_multiclass(n=3000, d=60, m=40, rank=20, random_state=0)

def announce(W, record):
    if record["epoch"] == 3:
        print("running", flush=True)

result = dt.solve(dt.Multinomial(), X, y, max_iter=10**9, callback=announce, tol=0.0,
                  representation="implicit", engine=dt.LocalEngine(n_shards=4, n_jobs=2),
                  **json.loads(sys.argv[1]))
S = X @ result.W
S -= S.max(axis=1, keepdims=True)
value = float(np.sum(np.log(np.exp(S).sum(axis=1)) - S[np.arange(3000), y]))
best = min(result.objective_at_zero, float(result.history.column("objective").min()))
print(json.dumps([result.status, result.objective, best, value, result.W.trace_norm]))
"""


@pytest.mark.parametrize(
    "options",
    [
        {"solver": "dfw", "step": "harmonic", "radius": 30.0},
        {"solver": "accelerated", "radius": 3000.0},
    ],
)
def test_ctrl_c_returns_the_best_iterate(options: dict[str, Any]) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", LONG_RUN, json.dumps(options)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "running\n"
            process.send_signal(signal.SIGINT)
            output, errors = process.communicate(timeout=30)
        finally:
            process.kill()
    assert (process.returncode, errors) == (0, "")
    status, objective, best, value, trace_norm = json.loads(output)
    assert status == "interrupted"
    assert objective == best
    assert value == pytest.approx(objective, rel=1e-9)
    assert trace_norm <= options["radius"] * (1.0 + 1e-9)
