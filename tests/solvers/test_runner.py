"""A run followed to its result: statuses, history, certificates, callbacks, interruption."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.truth import true_gap, value_and_gradient

from dfwtrace import LocalEngine, LowRankMatrix, Result
from dfwtrace.solvers.problem import Iterate, Problem
from dfwtrace.solvers.runner import Runner
from dfwtrace.solvers.solver import FrankWolfe, StoppingCriteria, resolve

COLUMNS = (
    "epoch",
    "objective",
    "gap_estimate",
    "gap",
    "sigma",
    "gamma",
    "power_iterations",
    "rank",
    "rounds",
    "numbers_sent",
    "other_rounds",
    "other_numbers",
    "bytes_on_wire",
    "compute_seconds",
    "wait_seconds",
    "reduce_seconds",
    "seconds",
)
Array = npt.NDArray[np.float64]
N, D, M, RADIUS = 40, 6, 5, 3.0

rng = np.random.default_rng(0)
X = rng.standard_normal((N, D))
Y = X @ rng.standard_normal((D, M)) + rng.standard_normal((N, M))
F0 = 0.5 * float(np.sum(Y**2))


def objective(W: Array) -> float:
    return value_and_gradient("least squares", X, Y, W)[0]


def gap(W: Array) -> float:
    return true_gap("least squares", X, Y, W, RADIUS)


def optimum() -> float:
    """F*, by projected gradient with full SVDs, to more digits than are compared."""
    W, lipschitz = np.zeros((D, M)), float(np.linalg.norm(X, 2)) ** 2
    for _ in range(500):
        U, s, Vt = np.linalg.svd(W - X.T @ (X @ W - Y) / lipschitz, full_matrices=False)
        thresholds = (np.cumsum(s) - RADIUS) / np.arange(1, s.size + 1)
        W = (U * np.maximum(s - max(0.0, thresholds[s > thresholds][-1]), 0.0)) @ Vt
    assert gap(W) <= 1e-9 * F0
    return objective(W)


Follow = Callable[..., Result]


class EndsEarly(FrankWolfe):
    """Makes no more than some steps, however many it may."""

    most = 10**9

    def iterates(self, *args: Any, **options: Any) -> itertools.islice[Iterate]:
        return itertools.islice(super().iterates(*args, **options), self.most)


@pytest.fixture
def follow(problem_of: Callable[..., Problem]) -> Follow:
    """A run of Frank-Wolfe; `tol` is absolute here, and the solver may end of itself."""

    def run(
        *,
        epochs: int = 10,
        tol: float | None = None,
        oracle: str = "naive",
        step: str = "linesearch",
        callback: Any = None,
        ends_after: int = 10**9,
        **criteria: Any,
    ) -> Result:
        problem = problem_of("least squares", X, Y, engine=LocalEngine(2, 1))
        found = resolve("dfw", oracle, step)
        assert isinstance(found, FrankWolfe)
        solver = EndsEarly(found.lmo, found.step)
        solver.most = ends_after
        relative = None if tol is None else tol / F0
        rules = StoppingCriteria(epochs, relative, **criteria)
        runner = Runner(problem, solver, rules, callback=callback, verbose=False)
        return runner.run(RADIUS, LowRankMatrix.zeros((D, M)), 0)

    return run


def test_a_run_to_its_end(follow: Follow) -> None:
    result = follow()
    assert result.status == "max_iter"
    assert len(result.history) == 10
    assert result.certificate is not None
    W = result.W.to_dense()
    assert result.objective == pytest.approx(objective(W), rel=1e-12)
    assert result.objective == result.history[-1]["objective"]
    assert result.certificate.gap == pytest.approx(gap(W), rel=1e-8)
    assert result.history[-1]["gap"] == result.certificate.gap


def test_every_record_is_complete(follow: Follow) -> None:
    history = follow().history
    for record in history:
        assert tuple(record) == COLUMNS
    assert [len(history.column(name)) for name in COLUMNS] == [10] * len(COLUMNS)
    assert list(history.column("epoch")) == list(range(1, 11))
    assert np.all(np.diff(history.column("seconds")) > 0.0)
    assert np.all(history.column("compute_seconds") > 0.0)
    assert np.all(history.column("reduce_seconds") > 0.0)
    assert not history.column("bytes_on_wire").any()  # all happens in this process
    assert not history.column("wait_seconds").any()
    assert np.all(history.column("other_rounds") > 0)


def test_no_epochs(follow: Follow) -> None:
    result = follow(epochs=0)
    assert result.status == "max_iter"
    assert result.W.rank == 0
    assert result.objective == pytest.approx(F0)
    assert result.certificate is not None
    assert result.certificate.gap == pytest.approx(gap(np.zeros((D, M))), rel=1e-8)


def test_gap_is_known_only_where_it_was_certified(follow: Follow) -> None:
    iterates: list[Array] = []
    result = follow(
        certify_every=3, callback=lambda W, record: iterates.append(W.to_dense()), epochs=11
    )
    gaps = result.history.column("gap")
    known = {3, 6, 9, 11}
    lower_bound = -math.inf  # of F*, from all certificates so far
    for epoch, (found, W) in enumerate(zip(gaps, iterates, strict=True), 1):
        if epoch in known:
            lower_bound = max(lower_bound, objective(W) - gap(W))
            assert found == pytest.approx(objective(W) - lower_bound, rel=1e-8)
        else:
            assert math.isnan(found)
    assert result.gap == gaps[-1]


@pytest.mark.parametrize(
    ("oracle", "step"),
    [
        ("naive", "linesearch"),
        ("power-1", "linesearch"),
        ("power-2", "linesearch"),
        ("lanczos", "linesearch"),
        ("naive", "harmonic"),
        ("power-linear", "harmonic"),
    ],
)
def test_tolerance_is_met_by_the_certificate(follow: Follow, oracle: str, step: str) -> None:
    tol = 0.02 * F0
    result = follow(tol=tol, epochs=2000, oracle=oracle, step=step)
    assert result.status == "optimal"
    assert result.certificate is not None
    assert result.gap <= min(tol, result.certificate.gap)
    # By its own gap, or by F(W) less the best lower bound of F* that a certificate has given.
    assert result.gap >= objective(result.W.to_dense()) - optimum() - 1e-9 * F0
    assert result.history[-1]["gap"] == result.gap
    assert len(result.history) < 2000


def test_estimate_does_not_end_a_run(follow: Follow) -> None:
    """One power iteration underestimates the gap: the run must go on until the bound is met."""
    tol = 0.02 * F0
    history = follow(tol=tol, epochs=2000, oracle="power-1").history
    below = history.column("gap_estimate") <= tol
    assert below[:-1].any()
    assert np.all(~(history.column("gap")[:-1] <= tol))


def test_certificates_are_not_tried_while_the_estimate_rules_them_out(follow: Follow) -> None:
    tol = 1e-3 * F0
    history = follow(tol=tol, epochs=2000).history
    tried = ~np.isnan(history.column("gap"))
    assert np.all(history.column("gap_estimate")[tried][:-1] <= tol)
    assert tried.sum() < 0.1 * len(history) + 2


def test_a_certificate_in_vain_is_tried_again_when_the_estimate_has_fallen_enough(
    follow: Follow,
) -> None:
    """Or some epochs later: they cost several epochs each."""
    tol = 0.01 * F0
    history = follow(tol=tol, epochs=2000, oracle="power-1").history
    estimates, gaps = history.column("gap_estimate"), history.column("gap")
    tried = np.flatnonzero(~np.isnan(gaps)).tolist()
    assert len(tried) > 2
    for k, again in itertools.pairwise(tried):
        enough = max(estimates[k], 0.0) * tol / gaps[k]
        due = k + max(5, (k + 1) // 10)
        # The first epoch whose estimate is low enough, or below tol once it is due.
        for place in range(k + 1, again):
            assert estimates[place] > (tol if place >= due else enough)
        assert estimates[again] <= (tol if again >= due else enough)


def test_certificates_without_an_estimate_leave_some_epochs_between_them(follow: Follow) -> None:
    history = follow(tol=0.0, epochs=60, oracle="sva", step="harmonic").history
    assert np.all(np.isnan(history.column("gap_estimate")))
    tried = np.flatnonzero(~np.isnan(history.column("gap")))
    assert 3 < len(tried) < 15
    assert np.all(np.diff(tried)[:-1] >= 5)


@pytest.mark.parametrize(
    ("epochs", "tol", "status"),
    [(10, 1e-9, "max_iter"), (11, 1e-9, "stalled"), (11, 0.9, "optimal")],
)
def test_a_solver_that_ends_before_its_time_has_stalled_or_is_optimal(
    follow: Follow, epochs: int, tol: float, status: str
) -> None:
    result = follow(epochs=epochs, tol=tol * F0, ends_after=10)
    assert result.status == status
    assert result.certificate is not None
    assert (result.gap <= tol * F0) == (status == "optimal")


def test_a_solver_that_makes_no_step_has_stalled(follow: Follow) -> None:
    result = follow(tol=1e-9 * F0, epochs=5, ends_after=0)
    assert (result.status, len(result.history)) == ("stalled", 0)
    assert result.gap == pytest.approx(gap(np.zeros((D, M))), rel=1e-8)


def test_tolerance_met_only_by_the_last_certificate(follow: Follow) -> None:
    loose = follow(epochs=10)
    assert loose.certificate is not None
    result = follow(tol=1.0001 * loose.certificate.gap, epochs=10)
    assert result.status == "optimal"


def test_time_is_up_or_not(follow: Follow) -> None:
    result = follow(max_time=1e-9, epochs=50)
    assert (result.status, len(result.history)) == ("max_time", 1)
    assert result.certificate is not None
    assert follow(max_time=1e9).status == "max_iter"


@pytest.mark.parametrize("kind", [float, np.float64])
def test_callback_stops_the_run(follow: Follow, kind: Any) -> None:
    """Also by a NumPy boolean, as comparisons of NumPy numbers give."""
    result = follow(callback=lambda W, record: kind(record["epoch"]) >= 4.0)
    assert (result.status, len(result.history)) == ("stopped", 4)
    assert result.certificate is not None
    assert result.objective == result.history[-1]["objective"]
    assert result.history[-1]["gap"] == result.certificate.gap


def test_callback_sees_the_iterate_and_adds_columns(follow: Follow) -> None:
    def error(W: LowRankMatrix, record: dict[str, Any]) -> dict[str, float]:
        assert record["objective"] == pytest.approx(objective(W.to_dense()), rel=1e-10)
        return {"norm": W.trace_norm} if record["epoch"] % 2 else {}

    history = follow(callback=error).history
    assert history.columns == [*COLUMNS, "norm"]
    norms = history.column("norm")
    assert np.array_equal(np.isnan(norms), [False, True] * 5)
    assert np.nanmax(norms) <= RADIUS * (1.0 + 1e-9)


def test_callback_cannot_change_the_record_behind_its_back(follow: Follow) -> None:
    def vandal(W: LowRankMatrix, record: dict[str, Any]) -> None:
        record["objective"] = -1.0
        record.pop("gamma")

    history = follow(callback=vandal).history
    assert np.all(history.column("objective") > 0.0)
    assert tuple(history[0]) == COLUMNS


@pytest.mark.parametrize("answer", [3, "stop", [True], 0.5])
def test_callback_must_answer_sensibly(follow: Follow, answer: object) -> None:
    with pytest.raises(TypeError, match="callback must return a mapping, True or None"):
        follow(callback=lambda W, record: answer)  # type: ignore[arg-type,return-value]


def test_callback_may_not_replace_columns(follow: Follow) -> None:
    with pytest.raises(ValueError, match="callback may not replace the column 'gap'"):
        follow(callback=lambda W, record: {"gap": 0.0})


def test_callback_errors_come_through(follow: Follow) -> None:
    def fail(W: LowRankMatrix, record: dict[str, Any]) -> None:
        raise LookupError("from the callback")

    with pytest.raises(LookupError, match="from the callback"):
        follow(callback=fail)


def interrupt_at(epoch: int) -> Callable[[LowRankMatrix, dict[str, Any]], None]:
    def callback(W: LowRankMatrix, record: dict[str, Any]) -> None:
        if record["epoch"] == epoch:
            raise KeyboardInterrupt

    return callback


@pytest.mark.parametrize("epoch", [2, 5, 9])
def test_interruption_returns_the_best_iterate(follow: Follow, epoch: int) -> None:
    """Harmonic steps go up as well as down: the last iterate need not be the best."""
    result = follow(callback=interrupt_at(epoch), step="harmonic")
    assert result.status == "interrupted"
    assert len(result.history) >= epoch - 1
    assert result.objective == min(result.history.column("objective"))
    assert objective(result.W.to_dense()) == pytest.approx(result.objective, rel=1e-10)


def test_interruption_where_the_last_iterate_is_not_the_best(follow: Follow) -> None:
    objectives = follow(step="harmonic", epochs=60).history.column("objective")
    risen = 1 + int(np.argmax(np.diff(objectives) > 0.0))  # W_{risen+1} is worse than W_risen
    assert objectives[risen] > objectives[risen - 1]
    result = follow(callback=interrupt_at(risen + 2), step="harmonic", epochs=60)
    assert result.objective < result.history[risen]["objective"]
    assert result.objective == min(result.history.column("objective"))


def test_interruption_keeps_the_certificate_of_the_best_iterate(follow: Follow) -> None:
    result = follow(callback=interrupt_at(8), certify_every=1)
    assert result.certificate is not None
    assert result.certificate.gap == pytest.approx(gap(result.W.to_dense()), rel=1e-8)


def test_interruption_in_the_first_epoch_returns_a_point_of_the_ball(follow: Follow) -> None:
    result = follow(callback=interrupt_at(1))
    assert result.status == "interrupted"
    assert result.objective == pytest.approx(objective(result.W.to_dense()))


def test_objective_that_overflows_is_an_error(problem_of: Callable[..., Problem]) -> None:
    features, targets = np.full((4, 2), 1e25, np.float32), np.ones((4, 2), np.float32)
    problem = problem_of("least squares", features, targets, engine=LocalEngine(1, 1))
    runner = Runner(problem, resolve("dfw", "naive", "harmonic"), StoppingCriteria(5))
    with (
        np.errstate(all="ignore"),
        pytest.raises(ArithmeticError, match=r"the objective.* is not finite"),
    ):
        runner.run(1e20, LowRankMatrix.zeros((2, 2)), 0)
