"""Algorithm 2 against a dense Frank-Wolfe written down a second time."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import logsumexp, softmax

from dfwtrace import LeastSquares, LocalEngine, LowRankMatrix, Multinomial, lmo, steps
from dfwtrace.rows import ArrayRows
from dfwtrace.setup import Examiner
from dfwtrace.solvers import Iterate, Problem, frank_wolfe
from dfwtrace.solvers.frank_wolfe import REBUILT_EVERY
from dfwtrace.tasks import ScoresTask, ShardProgram

Array = npt.NDArray[np.float64]
CASES = [(task, form) for task in (LeastSquares(), Multinomial()) for form in task.representations]
IDS = [f"{task.name}-{form}" for task, form in CASES]
N, D, M = 40, 6, 5

rng = np.random.default_rng(0)
X = rng.standard_normal((N, D))
TARGETS = {
    "least squares": X @ rng.standard_normal((D, M)) + rng.standard_normal((N, M)),
    "multinomial": np.arange(N) % M,
}
RADIUS = {"least squares": 3.0, "multinomial": 2.0}


def value_and_gradient(task: ScoresTask, W: Array) -> tuple[float, Array]:
    S, y = X @ W, TARGETS[task.name]
    if task.name == "least squares":
        return 0.5 * float(np.sum((S - y) ** 2)), X.T @ (S - y)
    value = float(np.sum(logsumexp(S, axis=1) - S[np.arange(N), y]))
    return value, X.T @ (softmax(S, axis=1) - np.eye(M)[y])


def dense_frank_wolfe(task: ScoresTask, epochs: int, exact_steps: bool) -> Iterator[Array]:
    W, radius = np.zeros((D, M)), RADIUS[task.name]
    for t in range(epochs):
        _, G = value_and_gradient(task, W)
        U, _, Vt = np.linalg.svd(G)
        S = -radius * np.outer(U[:, 0], Vt[0])
        gamma = 2.0 / (t + 2.0)
        if exact_steps:
            gamma = np.clip(np.vdot(W - S, G) / np.sum((X @ (S - W)) ** 2), 0.0, 1.0)
        W = (1.0 - gamma) * W + gamma * S
        yield W


Build = Callable[..., Problem]


@pytest.fixture
def problem_of() -> Iterator[Build]:
    with ExitStack() as stack:

        def build(
            task: ScoresTask,
            form: str = "implicit",
            data: tuple[Array, Array] | None = None,
            radius: float | None = None,
        ) -> Problem:
            features, targets = data or (X, TARGETS[task.name])
            shape = task.shape(features, targets)
            program = ShardProgram(task.represent(form), shape)
            rows = ArrayRows.examined(features, targets, Examiner(task))
            workers = LocalEngine(3, 1).start(program, rows)
            stack.callback(workers.close)
            problem = Problem(
                workers,
                shape,
                radius or RADIUS[task.name],
                quadratic=task.loss.quadratic,
            )
            problem.begin(LowRankMatrix.zeros(shape))
            return problem

        yield build


def run(
    problem: Problem,
    oracle: str | lmo.LMO,
    step: str,
    epochs: int,
    start: LowRankMatrix | None = None,
) -> list[Iterate]:
    W = start or LowRankMatrix.zeros(problem.shape)
    begun = lmo.resolve(oracle).begin(problem.setting())
    value = problem.evaluate(W)
    return list(frank_wolfe(problem, W, value, begun, steps.resolve(step), epochs))


@pytest.mark.parametrize(("task", "form"), CASES, ids=IDS)
def test_harmonic_steps(problem_of: Build, task: ScoresTask, form: str) -> None:
    iterates = run(problem_of(task, form), "naive", "harmonic", 12)
    for t, (iterate, W) in enumerate(
        zip(iterates, dense_frank_wolfe(task, 12, exact_steps=False), strict=True)
    ):
        np.testing.assert_allclose(iterate.W.to_dense(), W, atol=1e-10)
        value, G = value_and_gradient(task, W)
        assert iterate.epoch == t + 1
        assert iterate.gamma == 2.0 / (t + 2.0)
        assert iterate.power_iterations == 0
        assert iterate.objective == pytest.approx(value, rel=1e-11)
        assert iterate.inner == pytest.approx(np.vdot(W, G), rel=1e-9)


@pytest.mark.parametrize("form", LeastSquares.representations)
def test_exact_steps(problem_of: Build, form: str) -> None:
    task = LeastSquares()
    iterates = run(problem_of(task, form), "naive", "linesearch", 12)
    for iterate, W in zip(iterates, dense_frank_wolfe(task, 12, exact_steps=True), strict=True):
        np.testing.assert_allclose(iterate.W.to_dense(), W, atol=1e-9)


@pytest.mark.parametrize("task", [LeastSquares(), Multinomial()], ids=lambda task: task.name)
def test_estimate_is_the_gap_where_the_epoch_began(problem_of: Build, task: ScoresTask) -> None:
    W = np.zeros((D, M))
    for iterate in run(problem_of(task), "naive", "linesearch", 8):
        _, G = value_and_gradient(task, W)
        sigma = np.linalg.norm(G, 2)
        assert iterate.sigma == pytest.approx(sigma, rel=1e-10)
        gap = np.vdot(W, G) + RADIUS[task.name] * sigma
        assert iterate.gap_estimate == pytest.approx(gap, rel=1e-7)
        W = iterate.W.to_dense()


@pytest.mark.parametrize("oracle", ["power-1", "power-2", "lanczos", "sva"])
@pytest.mark.parametrize("task", [LeastSquares(), Multinomial()], ids=lambda task: task.name)
def test_inexact_oracles_estimate_from_below_and_descend(
    problem_of: Build, task: ScoresTask, oracle: str
) -> None:
    W, before = np.zeros((D, M)), value_and_gradient(task, np.zeros((D, M)))[0]
    for iterate in run(problem_of(task), oracle, "linesearch", 15):
        _, G = value_and_gradient(task, W)
        gap = np.vdot(W, G) + RADIUS[task.name] * np.linalg.norm(G, 2)
        assert iterate.gap_estimate <= gap * (1.0 + 1e-9)
        assert iterate.objective <= before * (1.0 + 1e-12)
        W, before = iterate.W.to_dense(), iterate.objective


def test_averaged_pair_learns_its_sigma_from_the_line_search(problem_of: Build) -> None:
    task = LeastSquares()
    iterate = run(problem_of(task), "sva", "linesearch", 1)[0]
    _, G = value_and_gradient(task, np.zeros((D, M)))
    atom = iterate.W.to_dense() / iterate.gamma
    assert iterate.sigma == pytest.approx(-np.vdot(atom, G) / RADIUS[task.name], rel=1e-10)
    assert np.isnan(run(problem_of(task), "sva", "harmonic", 1)[0].sigma)


@pytest.mark.parametrize(("task", "form"), CASES, ids=IDS)
def test_every_iterate_is_in_the_ball(problem_of: Build, task: ScoresTask, form: str) -> None:
    for step in ("harmonic", "linesearch"):
        for iterate in run(problem_of(task, form), "power-1", step, 30):
            norm = np.linalg.norm(iterate.W.to_dense(), "nuc")
            assert norm <= RADIUS[task.name] * (1.0 + 1e-9)


@pytest.mark.parametrize(("task", "form"), CASES, ids=IDS)
def test_atoms_do_not_pile_up(problem_of: Build, task: ScoresTask, form: str) -> None:
    iterates = run(problem_of(task, form), "power-2", "harmonic", 201)
    assert max(iterate.W.rank for iterate in iterates) < min(D, M) + REBUILT_EVERY
    assert max(iterates[t].W.rank for t in (99, 199)) <= min(D, M)
    for iterate in iterates[::20]:
        value, G = value_and_gradient(task, iterate.W.to_dense())
        assert iterate.objective == pytest.approx(value, rel=1e-9)
        assert iterate.inner == pytest.approx(np.vdot(iterate.W.to_dense(), G), rel=1e-6)


def test_a_lost_worker_never_has_many_atoms_to_catch_up_with(problem_of: Build) -> None:
    problem = problem_of(Multinomial())
    run(problem, "power-1", "harmonic", 230)
    since_built, most = 0, 0
    for made in problem.workers.rounds:
        if made.method == "stats":
            since_built = 0
        elif made.method == "update":
            since_built += 1
            most = max(most, since_built)
    assert (since_built, most) == (30, REBUILT_EVERY)


def test_goes_on_from_where_the_states_are(problem_of: Build) -> None:
    task = LeastSquares()
    problem = problem_of(task)
    half = run(problem, "naive", "linesearch", 4)[-1].W
    problem.begin(half)
    rest = run(problem, "naive", "linesearch", 4, start=half)
    whole = run(problem_of(task), "naive", "linesearch", 8)
    np.testing.assert_allclose(rest[-1].W.to_dense(), whole[-1].W.to_dense(), atol=1e-9)


def test_ends_where_the_gradient_vanishes(problem_of: Build) -> None:
    data = (np.array([[1.0]]), np.array([[0.5]]))
    for oracle in ("naive", "power-2", "lanczos", "sva"):
        iterates = run(problem_of(LeastSquares(), data=data, radius=2.0), oracle, "linesearch", 50)
        assert len(iterates) <= 2
        assert iterates[-1].W.to_dense() == pytest.approx(0.5)
        assert iterates[-1].objective == 0.0
