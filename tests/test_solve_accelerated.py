"""`solve` with solver="accelerated": against Clarabel and closed forms, on hard problems."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engines.resident.groups import GroupEngine
from tests.truth import bracket, project_onto_ball, value_and_gradient

import dfwtrace as dt
from dfwtrace.engines import local

Array = npt.NDArray[Any]
NAMES = ["least squares", "multinomial"]
TASKS = {"least squares": dt.LeastSquares, "multinomial": dt.Multinomial}
FORMS = [(name, form) for name in NAMES for form in TASKS[name]().representations]
ENGINE = dt.LocalEngine(n_shards=2, n_jobs=1)


class Case(NamedTuple):
    """A problem and a bracket of F* that owes nothing to `solve`."""

    name: str
    X: Array
    y: Array
    radius: float
    lower: float
    upper: float

    def solve(self, **options: Any) -> dt.Result:
        task = dt.LeastSquares() if self.name == "least squares" else dt.Multinomial(self.n_classes)
        call = {"radius": self.radius, "solver": "accelerated", "engine": ENGINE, **options}
        return dt.solve(task, self.X, self.y, **call)

    @property
    def n_classes(self) -> int:
        return int(self.y.max()) + 1

    def value(self, W: dt.LowRankMatrix) -> float:
        return value_and_gradient(self.name, self.X, self.y, W.to_dense())[0]

    def check(self, result: dt.Result) -> None:
        """F* is within the certified gap, and W in the ball."""
        rounding = 1e-13 * result.objective_at_zero
        assert np.isfinite([result.objective, result.gap]).all()
        assert result.W.trace_norm <= self.radius * (1.0 + 1e-10)
        excess = self.value(result.W) - self.upper
        assert result.gap >= excess - rounding
        assert self.value(result.W) >= self.lower - rounding
        assert result.status in {"optimal", "stalled"}
        assert f"{result.relative_gap:.2g}" in result.message


def bracketed(name: str, X: Array, y: Array, radius: float) -> Case:
    """With a bracket that Clarabel found."""
    m = y.shape[1] if y.ndim == 2 else int(y.max()) + 1
    return Case(name, X, y, radius, *bracket(name, X, y, m, radius))


@cache
def small(name: str, seed: int, radius: float, dtype: str = "float64", decay: float = 0.0) -> Case:
    """Random, with features whose sizes fall by so many powers of ten."""
    rng = np.random.default_rng(seed)
    n, d, m = (int(size) for size in rng.integers([15, 2, 2], [31, 7, 7]))
    X = (rng.standard_normal((n, d)) * np.logspace(0.0, -decay, d)).astype(dtype)
    y: Array = np.append(np.arange(m), rng.integers(0, m, size=n - m))
    if name == "least squares":
        y = (X @ rng.standard_normal((d, m)) + rng.standard_normal((n, m))).astype(dtype)
    return bracketed(name, X, y, radius)


# Against the truth


@pytest.mark.parametrize("radius", [0.3, 2.0, 20.0])
@pytest.mark.parametrize(("name", "form"), FORMS)
def test_the_optimum_is_clarabels_to_the_certified_gap(name: str, form: str, radius: float) -> None:
    case = small(name, 2, radius)
    result = case.solve(representation=form, tol=1e-7, engine=dt.LocalEngine(3, n_jobs=1))
    case.check(result)
    assert result.status == "optimal"
    assert case.value(result.W) - case.lower <= result.gap + case.upper - case.lower
    assert result.relative_gap <= 1e-7


@settings(max_examples=18, deadline=None)
@given(
    name=st.sampled_from(NAMES),
    seed=st.integers(0, 10**6),
    radius=st.floats(-2.0, 3.0).map(lambda power: 10.0**power),
    dtype=st.sampled_from(["float64", "float32"]),
    decay=st.sampled_from([0.0, 2.0, 6.0]),
    form=st.sampled_from(["auto", "implicit", "dense", "factored"]),
)
def test_no_certificate_is_below_the_truth(
    name: str, seed: int, radius: float, dtype: str, decay: float, form: str
) -> None:
    case = small(name, seed, radius, dtype, decay)
    if form == "dense" and name == "least squares":
        form = "gram"
    values: list[float] = []
    result = case.solve(
        representation=form,
        tol=1e-6,
        epochs=150,
        certify_every=1,
        callback=lambda W, record: values.append(case.value(W)),
        engine=dt.LocalEngine(2, n_jobs=1),
    )
    rounding = 1e-13 * result.objective_at_zero
    assert np.all(result.history.column("gap") >= np.array(values) - case.upper - rounding)
    assert np.isfinite(result.history.column("gap")).all()
    assert result.gap >= case.value(result.W) - case.upper - rounding
    assert result.W.trace_norm <= radius * (1.0 + 1e-10)


@settings(max_examples=15, deadline=None)
@given(
    d=st.integers(1, 60),
    m=st.integers(1, 60),
    seed=st.integers(0, 10**6),
    share=st.floats(-2.0, 0.5).map(lambda power: 10.0**power),
    form=st.sampled_from(["gram", "implicit", "factored"]),
)
def test_orthonormal_features_give_a_projection(
    d: int, m: int, seed: int, share: float, form: str
) -> None:
    """Large enough for certificates from products alone; the distance to the optimum is known."""
    rng = np.random.default_rng(seed)
    X = np.linalg.qr(rng.standard_normal((d + 5, d)))[0]
    Y = rng.standard_normal((d + 5, m))
    radius = share * float(np.linalg.norm(X.T @ Y, "nuc"))
    best = project_onto_ball(X.T @ Y, radius)
    optimum = value_and_gradient("least squares", X, Y, best)[0]
    case = Case("least squares", X, Y, radius, optimum, optimum)
    result = case.solve(representation=form, tol=1e-6)
    case.check(result)
    assert result.status == "optimal"
    distance = 0.5 * float(np.sum((result.W.to_dense() - best) ** 2))
    assert distance <= result.gap + 1e-12 * result.objective_at_zero


@pytest.mark.parametrize("name", NAMES)
def test_all_representations_agree(name: str) -> None:
    case = small(name, 7, 3.0)
    found = [
        case.solve(representation=form, tol=1e-9).W.to_dense()
        for form in ("auto", *TASKS[name]().representations)
    ]
    sparse = case._replace(X=sp.csr_array(case.X)).solve(tol=1e-9).W.to_dense()
    for other in [*found[1:], sparse]:
        np.testing.assert_allclose(other, found[0], atol=1e-3 * np.abs(found[0]).max())
        values = [value_and_gradient(name, case.X, case.y, W)[0] for W in (other, found[0])]
        assert values[0] == pytest.approx(values[1], rel=1e-8)


# The same bits everywhere


def bits(result: dt.Result) -> list[bytes]:
    told = [
        name
        for name in result.history.columns
        if not name.endswith("seconds") and name != "bytes_on_wire"
    ]
    columns = [result.history.column(name).tobytes() for name in told]
    return [*columns, result.W.U.tobytes(), result.W.s.tobytes(), result.W.V.tobytes()]


@pytest.mark.parametrize(
    ("name", "form", "dtype"),
    [(*form, dtype) for form, dtype in zip(FORMS, 4 * ["float64", "float32"], strict=False)],
)
def test_threads_and_workers_give_the_same_bits(
    monkeypatch: pytest.MonkeyPatch, name: str, form: str, dtype: str
) -> None:
    monkeypatch.setattr(local, "_BYTES_FOR_A_THREAD", 1)
    X, Y, _ = dt.datasets.make_multitask(n=120, d=11, m=7, rank=3, noise=0.5, seed=1)
    y = Y.astype(dtype) if name == "least squares" else np.arange(120) % 7
    case = Case(name, X.astype(dtype), y, 2.0, 0.0, 0.0)
    engines = [
        dt.LocalEngine(4, n_jobs=1),
        dt.LocalEngine(4, n_jobs=2),
        GroupEngine(n_shards=4, n_workers=1),
        GroupEngine(n_shards=4, n_workers=2),
    ]
    first, *others = (
        bits(case.solve(representation=form, tol=1e-6, epochs=15, engine=engine))
        for engine in engines
    )
    assert all(other == first for other in others)


# Tasks of one's own


class DenseGradient:
    """½‖XW - Y‖² with nothing but the methods that are asked for, and a dense gradient."""

    def stats(self, shard: dt.Shard, W: dt.LowRankMatrix) -> dict[str, Any]:
        return self._state(shard.X, shard.targets, shard.X @ W)

    def update(self, state: dict[str, Any], atom: dt.RankOne, gamma: float) -> dict[str, Any]:
        S = (1.0 - gamma) * state["S"]
        S += gamma * atom.scale * np.outer(state["X"] @ atom.u, atom.v)
        return self._state(state["X"], state["y"], S)

    def loss(self, state: dict[str, Any]) -> float:
        return 0.5 * float(np.sum((state["S"] - state["y"]) ** 2))

    def _state(self, X: Array, y: Array, S: Array) -> dict[str, Any]:
        return {"X": X, "y": y, "S": S, "grad": X.T @ (S - y)}


class Products(DenseGradient):
    """The same with products in place of the gradient."""

    def matvec(self, state: dict[str, Any], V: Array) -> Array:
        return state["X"].T @ ((state["S"] - state["y"]) @ V)

    def rmatvec(self, state: dict[str, Any], U: Array) -> Array:
        return (state["S"] - state["y"]).T @ (state["X"] @ U)

    def _state(self, X: Array, y: Array, S: Array) -> dict[str, Any]:
        return {"X": X, "y": y, "S": S}


@pytest.mark.parametrize("task", [DenseGradient(), Products()])
@pytest.mark.parametrize("radius", [0.3, 2.0, 20.0])
def test_a_task_of_ones_own_needs_nothing_new(task: Any, radius: float) -> None:
    case = small("least squares", 2, radius)
    result = dt.solve(task, case.X, case.y, radius=radius, solver="accelerated", tol=1e-7)
    case.check(result)
    assert result.status == "optimal"


def test_a_task_without_a_loss_is_refused() -> None:
    class Lossless(Products):
        loss: Any = None

    case = small("least squares", 2, 2.0)
    with pytest.raises(TypeError, match="lacks the method 'loss'"):
        dt.solve(Lossless(), case.X, case.y, radius=1.0, solver="accelerated")


# Hard and odd problems


@pytest.mark.parametrize("form", dt.LeastSquares.representations)
def test_an_idle_constraint_gives_least_squares(form: str) -> None:
    rng = np.random.default_rng(1)
    X = rng.standard_normal((60, 7))
    Y = X @ rng.standard_normal((7, 4)) + rng.standard_normal((60, 4))
    W = np.linalg.lstsq(X, Y, rcond=None)[0]
    optimum = value_and_gradient("least squares", X, Y, W)[0]
    for times in (1.01, 10.0, 100.0):
        radius = times * float(np.linalg.norm(W, "nuc"))
        case = Case("least squares", X, Y, radius, optimum, optimum)
        result = case.solve(representation=form, tol=1e-5)
        case.check(result)
        assert result.status == "optimal"
        np.testing.assert_allclose(result.W.to_dense(), W, atol=1e-2 / times)


def test_an_idle_constraint_in_multinomial_classes_that_overlap() -> None:
    """Trimming once dropped factors that mattered here, again and again."""
    rng = np.random.default_rng(0)
    for radius in (100.0, 3000.0):
        case = bracketed(
            "multinomial", rng.standard_normal((30, 6)), rng.integers(0, 4, size=30), radius
        )
        result = case.solve(tol=1e-5)
        case.check(result)
        assert result.status == "optimal"
        assert len(result.history) < 300


@pytest.mark.parametrize("name", NAMES)
def test_a_tiny_radius_gives_the_top_pair(name: str) -> None:
    case = small(name, 3, 1e-4)
    result = case.solve(tol=1e-9)
    case.check(result)
    assert (result.status, result.W.rank) == ("optimal", 1)
    G = value_and_gradient(name, case.X, case.y, result.W.to_dense())[1]
    U, _, Vt = np.linalg.svd(G)
    np.testing.assert_allclose(
        result.W.to_dense(), -1e-4 * np.outer(U[:, 0], Vt[0]), atol=1e-3 * 1e-4
    )


@cache
def rank_deficient(name: str, radius: float) -> Case:
    """Fewer rows than columns, columns of zeros, and columns that occur twice."""
    rng = np.random.default_rng(4)
    X = rng.standard_normal((8, 5))
    X = np.hstack([X, X[:, :3], np.zeros((8, 4))])
    y = rng.standard_normal((8, 4)) if name == "least squares" else np.arange(8) % 4
    return bracketed(name, X, y, radius)


@pytest.mark.parametrize("radius", [0.5, 5.0, 500.0])
@pytest.mark.parametrize(("name", "form"), FORMS)
def test_features_without_full_rank(name: str, form: str, radius: float) -> None:
    case = rank_deficient(name, radius)
    result = case.solve(representation=form, tol=1e-5)
    case.check(result)
    assert result.status == "optimal"
    np.testing.assert_allclose(result.W.to_dense()[8:], 0.0, atol=1e-9 * radius)


@pytest.mark.parametrize("radius", [1.0, 30.0])
@pytest.mark.parametrize(("name", "form"), FORMS)
def test_badly_scaled_features_converge_or_say_why_not(name: str, form: str, radius: float) -> None:
    case = small(name, 4, radius, decay=6.0)
    result = case.solve(representation=form, tol=1e-4)
    case.check(result)
    assert result.status == "optimal"
    case.check(case.solve(representation=form, tol=1e-12, engine=dt.LocalEngine(8, n_jobs=1)))


@pytest.mark.parametrize("radius", [3.0, 30.0, 1e3, 1e5])
def test_separable_classes(radius: float) -> None:
    """F* tends to 0 with the radius, and W wants to be as large as it may."""
    rng = np.random.default_rng(6)
    y = np.arange(30) % 3
    X = 3.0 * np.eye(3)[y] @ rng.standard_normal((3, 8)) + 0.1 * rng.standard_normal((30, 8))
    case = Case("multinomial", X, y, radius, 0.0, np.inf)
    result = case.solve(tol=1e-5)
    assert result.status == "optimal"
    assert result.objective - result.gap >= -1e-5 * result.objective_at_zero
    assert np.array_equal(np.argmax(X @ result.W, axis=1), y)


@pytest.mark.parametrize("form", dt.LeastSquares.representations)
def test_zero_targets_and_zero_features_are_optimal_at_zero(form: str) -> None:
    X, Y = np.random.default_rng(0).standard_normal((2, 20, 5))
    for features, targets in ((X, 0.0 * Y), (0.0 * X, Y), (0.0 * X, 0.0 * Y)):
        case = Case("least squares", features, targets, 3.0, 0.0, np.inf)
        result = case.solve(representation=form)
        assert (result.status, result.gap, result.W.rank) == ("optimal", 0.0, 0)


@pytest.mark.parametrize("form", dt.LeastSquares.representations)
@pytest.mark.parametrize("radius", [6.0, 60.0])
def test_a_start_away_from_zero_where_zero_is_optimal(form: str, radius: float) -> None:
    eye = np.eye(6)
    case = Case("least squares", eye, np.zeros((6, 6)), radius, 0.0, 0.0)
    result = case.solve(representation=form, start=dt.LowRankMatrix(eye, np.ones(6), eye))
    assert result.status == "optimal"
    assert result.objective <= 1e-20
    assert result.gap <= 1e-8


@pytest.mark.parametrize("form", dt.LeastSquares.representations)
def test_a_gradient_of_exact_rank_one(form: str) -> None:
    """What is cut off has no direction at all: nothing may be divided by its length."""
    target = np.zeros((6, 6))
    target[0, 0] = 5.0
    case = Case("least squares", np.eye(6), target, 1.0, 8.0, 8.0)
    result = case.solve(representation=form, tol=1e-9)
    case.check(result)
    assert (result.status, result.W.rank) == ("optimal", 1)
    assert case.solve(representation=form, radius=10.0, tol=1e-6).status == "optimal"


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_float32_says_what_it_has_reached(name: str, form: str) -> None:
    for seed, radius in ((2, 2.0), (3, 500.0)):
        case = small(name, seed, radius, "float32")
        result = case.solve(representation=form, tol=1e-13, engine=dt.LocalEngine(8, n_jobs=1))
        case.check(result)
        for column in ("objective", "gap_estimate", "sigma", "gamma"):
            assert np.isfinite(result.history.column(column)).all()
        if result.status == "stalled":
            assert "allowance for rounding" in result.message
            assert "float64" in result.message


# Starts, limits, interruption, refusals


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_warm_starts_end_at_the_same_optimum(name: str, form: str) -> None:
    case = small(name, 2, 2.0)
    d, m = case.X.shape[1], case.n_classes if name == "multinomial" else case.y.shape[1]
    U, s, Vt = np.linalg.svd(np.random.default_rng(1).standard_normal((d, m)), full_matrices=False)
    for share in (0.5, 1.0):  # of full rank, inside and on the boundary
        start = dt.LowRankMatrix(U, share * 2.0 * s / s.sum(), Vt.T)
        result = case.solve(representation=form, tol=1e-7, start=start)
        case.check(result)
        assert result.status == "optimal"


@pytest.mark.parametrize("radius", [0.3, 2.0, 200.0])
@pytest.mark.parametrize(("name", "form"), FORMS)
def test_the_solution_is_a_start_that_needs_hardly_a_step(
    name: str, form: str, radius: float
) -> None:
    case = small(name, 2, radius)
    first = case.solve(representation=form, tol=1e-5)
    again = case.solve(representation=form, tol=1e-5, start=first.W)
    assert first.status == again.status == "optimal"
    assert again.objective <= first.objective * (1.0 + 1e-12)
    assert len(again.history) <= max(3, len(first.history) // 2)
    there = case.solve(representation=form, tol=1e-5, start=first.W, epochs=0)
    assert there.objective == pytest.approx(first.objective, rel=1e-9)
    assert (there.status, len(there.history)) == ("optimal", 0)


def test_no_epochs_certify_the_start() -> None:
    case = small("multinomial", 2, 2.0)
    result = case.solve(epochs=0)
    assert (result.status, result.W.rank, len(result.history)) == ("max_epochs", 0, 0)
    assert result.gap >= result.objective - case.upper


def test_limits_end_a_run_with_a_certificate() -> None:
    case = small("multinomial", 2, 2.0)
    late = case.solve(tol=1e-9, max_time=1e-9)
    assert (late.status, len(late.history)) == ("max_time", 1)
    few = case.solve(tol=1e-9, epochs=4)
    assert (few.status, len(few.history)) == ("max_epochs", 4)
    stopped = case.solve(tol=1e-9, callback=lambda W, record: record["epoch"] == 3)
    assert (stopped.status, len(stopped.history)) == ("stopped", 3)
    for result in (late, few, stopped):
        assert result.gap >= case.value(result.W) - case.upper
        assert result.objective == pytest.approx(case.value(result.W), rel=1e-12)


def test_a_callback_sees_every_iterate_and_adds_to_the_history() -> None:
    case = small("least squares", 2, 2.0)
    seen: list[tuple[dt.LowRankMatrix, float]] = []

    def callback(W: dt.LowRankMatrix, record: dict[str, Any]) -> dict[str, Any]:
        seen.append((W, record["objective"]))
        return {"norm": W.trace_norm}

    result = case.solve(tol=1e-8, callback=callback)
    assert len(seen) == len(result.history)
    for W, objective in seen:  # later steps leave earlier iterates alone
        assert case.value(W) == pytest.approx(objective, rel=1e-12)
    assert np.all(result.history.column("norm") <= 2.0 * (1.0 + 1e-10))


def test_an_interrupted_run_returns_the_best_so_far() -> None:
    case = small("multinomial", 2, 2.0)

    def interrupt(W: dt.LowRankMatrix, record: dict[str, Any]) -> None:
        if record["epoch"] == 4:
            raise KeyboardInterrupt

    result = case.solve(tol=1e-9, callback=interrupt)
    assert (result.status, len(result.history)) == ("interrupted", 4)
    assert result.objective == result.history.column("objective").min()
    assert result.objective == pytest.approx(case.value(result.W), rel=1e-12)


INTERRUPTED = """
import json, sys
import numpy as np
import dfwtrace as dt
X, y, _ = dt.datasets.make_multiclass(n=3000, d=60, m=40, rank=20, seed=0)
def callback(W, record):
    if record["epoch"] == 2:
        print("running", flush=True)
result = dt.solve(dt.Multinomial(), X, y, radius=3000.0, solver="accelerated", tol=0.0,
                  epochs=10**6, callback=callback, representation="implicit")
best = float(result.history.column("objective").min())
print(json.dumps([result.status, result.objective, best, result.W.trace_norm]))
"""


def test_ctrl_c_returns_the_best_so_far() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "running\n"
            process.send_signal(signal.SIGINT)
            output, errors = process.communicate(timeout=30)
        finally:
            process.kill()
    assert (process.returncode, errors) == (0, "")
    status, objective, best, trace_norm = json.loads(output)
    assert status == "interrupted"
    assert objective == best
    assert trace_norm <= 3000.0 * (1.0 + 1e-9)


@pytest.mark.parametrize("solver", ["fast", "", None, 3, ["dfw"], dt.LeastSquares()])
def test_a_wrong_solver_is_refused(solver: Any) -> None:
    with pytest.raises(ValueError, match="solver must be 'dfw' or 'accelerated', got"):
        small("least squares", 2, 2.0).solve(solver=solver)


@pytest.mark.parametrize("option", [{"lmo": "power-2"}, {"step": "harmonic"}, {"step": 0.1}])
def test_options_of_the_other_solver_are_refused(option: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=f"{next(iter(option))} belongs to solver='dfw'"):
        small("least squares", 2, 2.0).solve(**option)


def test_a_tolerance_is_the_default() -> None:
    case = small("multinomial", 2, 2.0)
    result = case.solve()
    assert result.status == "optimal"
    assert result.relative_gap <= 1e-4
    case.check(result)
