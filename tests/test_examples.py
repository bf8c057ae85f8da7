"""The examples run as a user would run them, and the task that they bring is right."""

from __future__ import annotations

import importlib.util
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import cvxpy as cp
import numpy as np
import pytest

import dfwtrace as dt

EXAMPLES = Path(__file__).parents[1] / "examples"
ORACLES = ["power-1", "power-2", "power-log", "naive", "sva", "lanczos"]


def load(name: str) -> ModuleType:
    """An example as a module; examples are scripts and lie on no path."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_intents_are_told_apart_by_fewer_numbers(tmp_path: Path) -> None:
    """Thirty of them are compared; test_docs has the accuracy and the rank of all 150."""
    intents = load("intents")
    assert intents.round_trip()
    for name in ("train.npz", "test.npz"):
        with np.load(intents.FOLDER / name) as file:
            some = np.isin(file["y"], np.unique(file["y"])[::5])
            np.savez(tmp_path / name, X=file["X"][some], y=file["y"][some])
    intents.FOLDER = tmp_path
    (dense, accuracy, full, *_), (name, other, rank, *_) = intents.compare(radii=(100.0,))
    assert dense.startswith("LogisticRegression")
    assert name == "TraceNormClassifier(radius=100)"
    assert float(accuracy) > 0.92
    assert float(other) > 0.92
    assert int(full) == 30
    assert int(rank) <= 22


def run(name: str, *options: str) -> tuple[str, str]:
    """What an example prints, and its progress, run in a process of its own."""
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    return done.stdout, done.stderr


@pytest.fixture(scope="module")
def completion() -> ModuleType:
    return load("matrix_completion")


class TestDemo:
    def test_compares_uses_and_reports_a_model(self, tmp_path: Path) -> None:
        printed, progress = run("demo", "--out", str(tmp_path / "new"))
        assert "dfwtrace" in progress
        row = r"^ %s +([\d.]+) +(\d+) +(\S+) +(\d+) KiB +[\d.]+ *$"
        (ours,) = re.findall(row % "TraceNormClassifier", printed, re.M)
        (dense,) = re.findall(row % "LogisticRegression", printed, re.M)
        assert float(ours[0]) > float(dense[0]) - 0.01
        assert int(ours[1]) < 0.5 * int(dense[1])
        assert float(ours[2]) <= 1e-3
        assert int(ours[3]) < 0.6 * int(dense[3])
        assert printed.count("recognised") + printed.count("taken for") == 5
        page = (tmp_path / "new" / "report.html").read_text("utf-8")
        assert "<h1><bdi>train.npz: classification of “intent”, 150 classes</bdi></h1>" in page
        assert "Classes with the largest errors" in page
        assert (tmp_path / "new" / "demo.png").read_bytes().startswith(b"\x89PNG")
        model = dt.load(tmp_path / "new" / "intents.safetensors")
        assert len(model.classes_) == 150

    def test_ends_cleanly_on_ctrl_c(self, tmp_path: Path) -> None:
        # A process started in the background may have been told to ignore the signal.
        script = (
            "import runpy, signal, sys;"
            "signal.signal(signal.SIGINT, signal.default_int_handler);"
            "sys.argv = sys.argv[1:];"
            "runpy.run_path(sys.argv[0], run_name='__main__')"
        )
        command = [sys.executable, "-c", script, str(EXAMPLES / "demo.py"), "--out", str(tmp_path)]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as demo:
            assert demo.stdout is not None
            assert demo.stdout.readline().startswith("150 intents")
            demo.send_signal(signal.SIGINT)
            printed, errors = demo.communicate(timeout=120)
        assert demo.returncode == 130
        assert printed.endswith("Interrupted.\n")
        assert "Traceback" not in errors


def test_oracles_have_tables_and_curves(tmp_path: Path) -> None:
    printed, _ = run("oracles", "--small", "--out", str(tmp_path / "new"))
    rows = re.findall(r"^ ?(\S+) +20 +[\d.]+ +[\d.]+ +[\d.]+ +[\d,]+ +[\d,]+ ", printed, re.M)
    assert rows == 2 * ORACLES
    assert printed.count("The plan for power-log:") == 2
    assert printed.count("the least time over 20 epochs") == 2
    assert f"Convergence curves: {tmp_path / 'new' / 'convergence.png'}" in printed
    assert (tmp_path / "new" / "convergence.png").read_bytes().startswith(b"\x89PNG")


class TestMatrixCompletion:
    @pytest.fixture
    def shard(self, rng: np.random.Generator) -> dt.Shard:
        """Entries in any order, one of them observed twice."""
        places = rng.permutation(np.argwhere(rng.random((6, 5)) < 0.6))
        places = np.concatenate([places, places[:1]])
        return dt.Shard(0, places, rng.standard_normal(len(places)))

    def test_beats_the_mean(
        self, completion: ModuleType, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert completion.main(["--small"]) == 0
        printed = capsys.readouterr().out
        assert "optimal after" in printed
        figures = dict(re.findall(r"^(.+?)  +([\d.]+)$", printed, re.M))
        assert float(figures["certified gap / F(0)"]) <= 0.02
        of_mean = float(figures["test RMSE of the known mean"])
        assert float(figures["test RMSE of W"]) < 0.3 * of_mean

    def test_gradient_is_the_slope_of_the_loss(
        self, completion: ModuleType, shard: dt.Shard, rng: np.random.Generator
    ) -> None:
        task, W = completion.MatrixCompletion(6, 5), rng.standard_normal((6, 5))
        state = task.stats(shard, as_low_rank(W))
        slopes = np.empty_like(W)
        for place in np.ndindex(W.shape):
            step = np.zeros_like(W)
            step[place] = 1e-4
            above, below = (
                task.loss(task.stats(shard, as_low_rank(W + sign * step))) for sign in (1, -1)
            )
            slopes[place] = (above - below) / 2e-4
        np.testing.assert_allclose(task.matvec(state, np.eye(5)), slopes, atol=1e-8)
        np.testing.assert_allclose(task.rmatvec(state, np.eye(6)), slopes.T, atol=1e-8)
        np.testing.assert_allclose(task.inner(state), np.vdot(W, slopes), atol=1e-7)

    def test_line_search_and_update_follow_the_segment(
        self, completion: ModuleType, shard: dt.Shard, rng: np.random.Generator
    ) -> None:
        task, W = completion.MatrixCompletion(6, 5), as_low_rank(rng.standard_normal((6, 5)))
        atom = dt.RankOne(-3.0, rng.standard_normal(6), rng.standard_normal(5))
        state, gamma, step = task.stats(shard, W), 0.3, 1e-3

        def value(gamma: float) -> float:
            return float(task.loss(task.stats(shard, W.toward(atom, gamma))))

        slope, curvature = task.linesearch(state, atom, gamma)
        above, here, below = value(gamma + step), value(gamma), value(gamma - step)
        np.testing.assert_allclose(slope, (above - below) / (2 * step), rtol=1e-7)
        np.testing.assert_allclose(curvature, (above - 2 * here + below) / step**2, rtol=1e-5)

        moved = task.update(state, atom, gamma)
        fresh = task.stats(shard, W.toward(atom, gamma))
        np.testing.assert_allclose(moved.predictions, fresh.predictions, atol=1e-12)
        np.testing.assert_allclose(moved.gradient.toarray(), fresh.gradient.toarray(), atol=1e-12)

    @pytest.mark.parametrize("lmo", ORACLES)
    def test_certificate_holds_against_an_independent_solver(
        self, completion: ModuleType, lmo: str
    ) -> None:
        places, values, trace_norm = completion.make_ratings(9, 7, rank=2, share=0.6)
        radius = 0.6 * trace_norm
        result = dt.solve(
            completion.MatrixCompletion(9, 7),
            places,
            values,
            radius=radius,
            solver="dfw",
            lmo=lmo,
            max_iter=60,
        )
        W = cp.Variable((9, 7))
        errors = cp.vec(W, order="F")[places[:, 0] + 9 * places[:, 1]] - values
        problem = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(errors)), [cp.normNuc(W) <= radius])
        optimum = problem.solve(solver=cp.CLARABEL)
        excess = result.objective - optimum
        assert -1e-5 * result.objective_at_zero < excess
        assert excess <= result.gap + 1e-5 * result.objective_at_zero
        assert result.W.trace_norm <= radius * (1 + 1e-9)

    @pytest.mark.parametrize(
        "X", [np.array([[0, 5], [1, 1]]), np.array([[-1, 0]]), np.array([[0.0, 1.0]])]
    )
    def test_refuses_places_outside(self, completion: ModuleType, X: np.ndarray) -> None:
        with pytest.raises(ValueError, match=r"places \(i, j\) in a matrix of \(6, 5\)"):
            dt.solve(
                completion.MatrixCompletion(6, 5), X, np.ones(len(X)), radius=1.0, solver="dfw"
            )


def as_low_rank(W: np.ndarray) -> dt.LowRankMatrix:
    return dt.LowRankMatrix(W, np.ones(W.shape[1]), np.eye(W.shape[1]))
