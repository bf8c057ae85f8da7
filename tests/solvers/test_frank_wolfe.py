"""Algorithm 2 against a dense Frank-Wolfe written down a second time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.problems import FORMS, TASKS, frank_wolfe_iterates
from tests.truth import plain_frank_wolfe, true_gap, value_and_gradient

from dfwtrace import LeastSquares
from dfwtrace.solvers.frank_wolfe import REBUILT_EVERY
from dfwtrace.solvers.problem import Iterate, Problem

Array = npt.NDArray[np.float64]
N, D, M = 40, 6, 5

rng = np.random.default_rng(0)
X = rng.standard_normal((N, D))
TARGETS: dict[str, Any] = {
    "least squares": X @ rng.standard_normal((D, M)) + rng.standard_normal((N, M)),
    "multinomial": np.arange(N) % M,
}
RADIUS = {"least squares": 3.0, "multinomial": 2.0}
Run = Callable[..., list[Iterate]]


@pytest.fixture
def build(problem_of: Callable[..., Problem]) -> Callable[..., Problem]:
    def build(name: str, form: str = "implicit") -> Problem:
        return problem_of(name, X, TARGETS[name], radius=RADIUS[name], representation=form)

    return build


@pytest.fixture
def run(build: Callable[..., Problem]) -> Run:
    def run(name: str, lmo: Any, step: Any, epochs: int, form: str = "implicit") -> list[Iterate]:
        return frank_wolfe_iterates(build(name, form), lmo, step, epochs)

    return run


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_harmonic_steps(run: Run, name: str, form: str) -> None:
    iterates = run(name, "naive", "harmonic", 12, form)
    expected = plain_frank_wolfe(name, X, TARGETS[name], M, RADIUS[name], 12)
    for t, (iterate, W) in enumerate(zip(iterates, expected, strict=True)):
        np.testing.assert_allclose(iterate.W.to_dense(), W, atol=1e-10)
        value, G = value_and_gradient(name, X, TARGETS[name], W)
        assert iterate.epoch == t + 1
        assert iterate.gamma == 2.0 / (t + 2.0)
        assert iterate.power_iterations == 0
        assert iterate.objective == pytest.approx(value, rel=1e-11)
        assert iterate.inner == pytest.approx(np.vdot(W, G), rel=1e-9)


@pytest.mark.parametrize("form", LeastSquares.representations)
def test_exact_steps(run: Run, form: str) -> None:
    name = "least squares"
    iterates = run(name, "naive", "linesearch", 12, form)
    expected = plain_frank_wolfe(name, X, TARGETS[name], M, RADIUS[name], 12, exact_steps=True)
    for iterate, W in zip(iterates, expected, strict=True):
        np.testing.assert_allclose(iterate.W.to_dense(), W, atol=1e-9)


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("lmo", ["naive", "power-1", "power-2", "lanczos", "sva"])
def test_the_estimate_is_at_most_the_gap_where_the_epoch_began(
    run: Run, name: str, lmo: str
) -> None:
    """And equal to it if the oracle is exact; with a line search F only falls."""
    W = np.zeros((D, M))
    before = value_and_gradient(name, X, TARGETS[name], W)[0]
    for iterate in run(name, lmo, "linesearch", 12):
        gap = true_gap(name, X, TARGETS[name], W, RADIUS[name])
        assert iterate.gap_estimate <= gap * (1.0 + 1e-9)
        assert iterate.objective <= before * (1.0 + 1e-12)
        if lmo == "naive":
            sigma = np.linalg.norm(value_and_gradient(name, X, TARGETS[name], W)[1], 2)
            assert iterate.sigma == pytest.approx(sigma, rel=1e-10)
            assert iterate.gap_estimate == pytest.approx(gap, rel=1e-7)
        W, before = iterate.W.to_dense(), iterate.objective


def test_averaged_pair_learns_its_sigma_from_the_line_search(run: Run) -> None:
    name = "least squares"
    iterate = run(name, "sva", "linesearch", 1)[0]
    G = value_and_gradient(name, X, TARGETS[name], np.zeros((D, M)))[1]
    atom = iterate.W.to_dense() / iterate.gamma
    assert iterate.sigma == pytest.approx(-np.vdot(atom, G) / RADIUS[name], rel=1e-10)
    assert np.isnan(run(name, "sva", "harmonic", 1)[0].sigma)


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_every_iterate_is_in_the_ball(run: Run, name: str, form: str) -> None:
    for step in ("harmonic", "linesearch"):
        for iterate in run(name, "power-1", step, 30, form):
            norm = np.linalg.norm(iterate.W.to_dense(), "nuc")
            assert norm <= RADIUS[name] * (1.0 + 1e-9)


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_atoms_do_not_pile_up(run: Run, name: str, form: str) -> None:
    iterates = run(name, "power-2", "harmonic", 201, form)
    assert max(iterate.W.rank for iterate in iterates) < min(D, M) + REBUILT_EVERY
    assert max(iterates[t].W.rank for t in (99, 199)) <= min(D, M)
    for iterate in iterates[::20]:
        value, G = value_and_gradient(name, X, TARGETS[name], iterate.W.to_dense())
        assert iterate.objective == pytest.approx(value, rel=1e-9)
        assert iterate.inner == pytest.approx(np.vdot(iterate.W.to_dense(), G), rel=1e-6)


def test_a_lost_worker_never_has_many_atoms_to_catch_up_with(build: Callable[..., Problem]) -> None:
    problem = build("multinomial")
    frank_wolfe_iterates(problem, "power-1", "harmonic", 230)
    since_built, most = 0, 0
    for made in problem.workers.rounds:
        if made.method == "stats":
            since_built = 0
        elif made.method == "update":
            since_built += 1
            most = max(most, since_built)
    assert (since_built, most) == (30, REBUILT_EVERY)


def test_goes_on_from_where_the_states_are(build: Callable[..., Problem]) -> None:
    problem = build("least squares")
    half = frank_wolfe_iterates(problem, "naive", "linesearch", 4)[-1].W
    rest = frank_wolfe_iterates(problem, "naive", "linesearch", 4, half)
    whole = frank_wolfe_iterates(build("least squares"), "naive", "linesearch", 8)
    np.testing.assert_allclose(rest[-1].W.to_dense(), whole[-1].W.to_dense(), atol=1e-9)


def test_ends_where_the_gradient_vanishes(problem_of: Callable[..., Problem]) -> None:
    for lmo in ("naive", "power-2", "lanczos", "sva"):
        problem = problem_of("least squares", np.array([[1.0]]), np.array([[0.5]]), radius=2.0)
        iterates = frank_wolfe_iterates(problem, lmo, "linesearch", 50)
        assert len(iterates) <= 2
        assert iterates[-1].W.to_dense() == pytest.approx(0.5)
        assert iterates[-1].objective == 0.0
