"""K(t): values worked out by hand, and the accuracy that the convergence proof asks of them."""

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest

import dfwtrace as dt
from dfwtrace.linalg.gradient import GradientOperator
from dfwtrace.lmo import (
    Adaptive,
    Constant,
    Constants,
    Linear,
    Log,
    Schedule,
    Setting,
    TheoremLinear,
    TheoremLog,
)
from dfwtrace.lmo.schedules import PowerRun

Array = npt.NDArray[np.float64]
Gradient = Callable[[Array], GradientOperator]
EPOCHS = 40

# μ = 2, L = 3, C_F = 4, δ = ½, m = 8: the difficulty μL(t+2)/(δC_F) is 3(t+2).
HAND = {"delta": 0.5, "lipschitz": 3.0, "curvature": 4.0, "radius": 2.0, "m": 8}


def setting(radius: float = 1.0, shape: tuple[int, int] = (5, 4), seed: int = 0) -> Setting:
    return Setting(radius, shape, seed, lambda: Constants(1.0, 1.0))


def values(schedule: Schedule, epochs: list[int], run: PowerRun | None = None) -> list[int]:
    run = run or PowerRun(setting())
    return [schedule.iterations(t, run) for t in epochs]


def test_constant() -> None:
    assert values(Constant(3), [0, 1, 1000]) == [3, 3, 3]


def test_log_breaks_at_the_powers_of_ten() -> None:
    epochs = [0, 1, 9, 10, 99, 100, 999, 1000, 9999, 10_000]
    assert values(Log(), epochs) == [1, 1, 1, 2, 2, 3, 3, 4, 4, 5]


def test_log_with_half_the_factor_breaks_at_the_powers_of_a_hundred() -> None:
    assert values(Log(0.5), [0, 1, 10, 99, 100, 9999, 10_000]) == [1, 1, 1, 1, 2, 2, 3]


def test_log_to_another_base_breaks_where_meant() -> None:
    powers = list(range(1, 31))
    assert values(Log(base=2.0), [2**k for k in powers]) == [1 + k for k in powers]
    assert values(Log(base=2.0), [2**k - 1 for k in powers]) == powers


def test_linear() -> None:
    assert values(Linear(), [0, 1, 7]) == [1, 2, 8]
    assert values(Linear(0.5), [0, 1, 2, 7]) == [1, 1, 2, 4]


def test_theorem_linear_by_hand() -> None:
    # 1 + ⌈3(t+2) ln 8⌉ with ln 8 = 2.0794: 12.48, 18.72, 74.86
    assert values(TheoremLinear(**HAND), [0, 1, 10]) == [14, 20, 76]


def test_theorem_log_by_hand() -> None:
    # 1 + ⌈ln(1.6 √8 · 3(t+2)) / (2 ln 2)⌉: the logarithms are 3.301, 3.707 and 5.093
    assert values(TheoremLog(**HAND, beta=0.5), [0, 1, 10]) == [4, 4, 5]
    # With 0.8 for β they are divided by 2 ln(1/0.8) = 0.4463: 7.4, 8.3, 11.4
    assert values(TheoremLog(**HAND, beta=0.8), [0, 1, 10]) == [9, 10, 13]


def test_theorem_log_is_never_above_theorem_linear() -> None:
    epochs = [0, 1, 10, 1000]
    linear = values(TheoremLinear(**HAND), epochs)
    assert values(TheoremLog(**HAND, beta=0.999), epochs)[:3] == linear[:3]
    for beta in (0.5, 0.9, 0.99, 0.999):
        assert np.all(np.less_equal(values(TheoremLog(**HAND, beta=beta), epochs), linear))


def test_what_is_not_given_comes_from_the_run() -> None:
    run = PowerRun(setting(radius=2.0, shape=(5, 8)), Constants(lipschitz=3.0, curvature=4.0))
    for schedule in (TheoremLinear, TheoremLog):
        beta = {"beta": 0.5} if schedule is TheoremLog else {}
        found = values(schedule(delta=0.5, **beta), [0, 1, 10], run)
        assert found == values(schedule(**HAND, **beta), [0, 1, 10])
        assert schedule(delta=0.5, **beta).needs_constants
        assert not schedule(**HAND, **beta).needs_constants


def test_one_column_needs_one_iteration() -> None:
    run = PowerRun(setting(shape=(5, 1)), Constants(3.0, 4.0))
    assert values(TheoremLinear(), [0, 1000], run) == [1, 1]


@pytest.mark.parametrize("epochs", [0, 5, 40])
def test_theorems_hold_in_the_mean(gradient_of: Gradient, epochs: int) -> None:
    """E[μ(σ₁ - σ)] ≤ ½ δ γ C_F over the random start, on spectra of both kinds."""
    rng = np.random.default_rng(0)
    U, V = (np.linalg.qr(rng.standard_normal((size, 10)))[0] for size in (12, 30))
    crowded, gapped = np.linspace(1.0, 0.9, 10), 0.7 ** np.arange(10)
    for spectrum, make in [
        (crowded, lambda **c: TheoremLinear(**c)),
        (gapped, lambda **c: TheoremLinear(**c)),
        (gapped, lambda **c: TheoremLog(**c, beta=0.7)),
    ]:
        gradient = gradient_of((U * spectrum) @ V.T)
        schedule = make(lipschitz=1.0, curvature=20.0)
        allowed = 20.0 / (epochs + 2.0)
        errors, once = [], []
        for seed in range(60):
            here = setting(radius=10.0, shape=(12, 30), seed=seed)
            oracle = dt.lmo.Power(schedule).begin(here)
            errors.append(10.0 * (1.0 - oracle(gradient, epochs).sigma))
            oracle = dt.lmo.Power(Constant(1)).begin(here)
            once.append(10.0 * (1.0 - oracle(gradient, epochs).sigma))
        assert np.mean(errors) <= allowed
        if spectrum is gapped and epochs == 40:
            assert np.mean(once) > allowed  # it takes more than any iteration at all


@pytest.mark.parametrize("lmo", [dt.lmo.Power, dt.lmo.Lanczos])
@pytest.mark.parametrize("ratio", [0.3, 0.6, 0.8])
def test_ratio_is_observed(
    gradient_of: Gradient, lmo: Callable[[Schedule], dt.lmo.Power | dt.lmo.Lanczos], ratio: float
) -> None:
    rng = np.random.default_rng(1)
    U, V = (np.linalg.qr(rng.standard_normal((size, 4)))[0] for size in (9, 20))
    G = (U * [2.0, 2.0 * ratio, 0.5 * ratio, 0.2 * ratio]) @ V.T
    schedule = TheoremLog(lipschitz=2.0, curvature=1e-5)
    oracle = lmo(schedule).begin(setting(shape=G.shape))
    gradient = gradient_of(G)
    first, second = oracle(gradient, 0), oracle(gradient, 1)
    assert list(oracle.seen.ratios) == pytest.approx([ratio, ratio], rel=1e-3)
    # K rests on an assumed ratio at first, then on the observed one.
    given = TheoremLog(lipschitz=2.0, curvature=1e-5, beta=ratio)
    expected = values(given, [1], PowerRun(setting(shape=G.shape)))[0]
    if lmo is dt.lmo.Power:
        assert second.iterations == pytest.approx(expected, abs=1)
        assert second.iterations < first.iterations
    for pair in (first, second):
        assert 2.0 - pair.sigma <= 1e-5


def test_ratio_that_is_not_observed_costs_nothing(gradient_of: Gradient) -> None:
    G = np.random.default_rng(2).standard_normal((6, 5))
    oracle = dt.lmo.Power(TheoremLog(**HAND, beta=0.5)).begin(setting(shape=G.shape))
    oracle(gradient_of(G), 0)
    assert not oracle.seen.ratios


def crowded_problem(seed: int) -> tuple[Array, Array, float]:
    """Features, targets and radius of a problem whose gradients have no dominant direction."""
    X, Y, _ = dt.datasets.make_multitask(n=60, d=20, m=30, rank=10, noise=0.5, random_state=seed)
    return X, Y, 0.5


def errors_and_iterations(
    schedule: Schedule, step: str, curvature: float, seed: int
) -> tuple[Array, Array]:
    """Errors μ(σ₁ - σ) relative to ½ δ γ C_F (δ = 1), from dense SVDs, and the iterations."""
    X, Y, radius = crowded_problem(seed)
    iterates = [dt.LowRankMatrix.zeros((20, 30))]
    result = dt.solve(
        dt.LeastSquares(),
        X,
        Y,
        radius=radius,
        solver="dfw",
        lmo=dt.lmo.Power(schedule),
        step=step,
        max_iter=EPOCHS,
        random_state=seed,
        callback=lambda W, record: iterates.append(W),
    )
    tops = np.array([np.linalg.norm(X.T @ (X @ W - Y), 2) for W in iterates[:EPOCHS]])
    errors = radius * (tops - result.history.column("sigma"))
    allowed = curvature / (np.arange(EPOCHS) + 2.0)
    return errors / allowed, result.history.column("power_iterations")


@pytest.mark.parametrize("step", ["harmonic", "linesearch"])
@pytest.mark.parametrize("share", [0.1, 0.02])
def test_adaptive_is_as_accurate_as_the_proof_needs_and_cheaper(step: str, share: float) -> None:
    """A share of C_F, because in so few epochs C_F itself asks for next to nothing."""
    accurate, easy = [], []
    for seed in range(4):
        X, Y, radius = crowded_problem(seed)
        curvature = share * 4.0 * radius**2 * np.linalg.norm(X, 2) ** 2
        errors, iterations = errors_and_iterations(
            Adaptive(curvature=curvature), step, curvature, seed
        )
        accurate.append(errors <= 1.0)
        errors, _ = errors_and_iterations(Constant(1), step, curvature, seed)
        easy.append(errors <= 1.0)
        # σ₁ where the run begins is less than L, so that the theorem's own K is larger yet.
        theorem = TheoremLinear(
            lipschitz=float(np.linalg.norm(X.T @ Y, 2)), curvature=curvature, radius=radius, m=30
        )
        assert iterations.sum() < 0.2 * sum(values(theorem, list(range(EPOCHS))))
    assert np.mean(accurate) >= 0.9
    assert np.mean(easy) < 0.6


def test_adaptive_stops_at_once_where_any_direction_will_do() -> None:
    X, Y, _ = dt.datasets.make_multitask(n=60, d=20, m=30, rank=10, random_state=0)
    oracle = dt.lmo.Power(Adaptive(curvature=1e12))
    result = dt.solve(dt.LeastSquares(), X, Y, radius=1.0, solver="dfw", lmo=oracle, max_iter=5)
    assert set(result.history.column("power_iterations")) == {1}


@pytest.mark.parametrize("schedule", [TheoremLinear(), TheoremLog(), Adaptive()])
@pytest.mark.parametrize("lmo", [dt.lmo.Power, dt.lmo.Lanczos])
def test_constants_are_bounded_from_badly_scaled_data(
    schedule: Schedule, lmo: Callable[[Schedule], dt.lmo.Power | dt.lmo.Lanczos]
) -> None:
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((30, 20)) * 0.5 ** np.arange(20)
        Y = rng.standard_normal((30, 16))
        result = dt.solve(
            dt.LeastSquares(),
            X,
            Y,
            radius=1.0,
            solver="dfw",
            lmo=lmo(schedule),
            max_iter=2,
            random_state=seed,
        )
        assert result.objective < result.objective_at_zero


def test_named_log_schedule_has_the_factor_of_the_task() -> None:
    X, Y, _ = dt.datasets.make_multitask(n=30, d=5, m=4, rank=4, noise=1.0, random_state=0)
    labels = np.arange(30) % 4
    least_squares = dt.solve(
        dt.LeastSquares(), X, Y, radius=0.5, solver="dfw", lmo="power-log", max_iter=102
    )
    multinomial = dt.solve(
        dt.Multinomial(), X, labels, radius=0.5, solver="dfw", lmo="power-log", max_iter=102
    )
    # Record i is the epoch t = i.
    around = [9, 10, 99, 100]
    assert list(least_squares.history.column("power_iterations")[around]) == [1, 2, 2, 3]
    assert list(multinomial.history.column("power_iterations")[around]) == [1, 1, 1, 2]


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: Constant(0), "k"),
        (lambda: Constant(1.5), "k"),  # type: ignore[arg-type]
        (lambda: Log(0.0), "factor"),
        (lambda: Log(-1.0), "factor"),
        (lambda: Log(math.nan), "factor"),
        (lambda: Log(math.inf), "factor"),
        (lambda: Log(base=1.0), "base"),
        (lambda: Linear(0.0), "slope"),
        (lambda: Linear(math.inf), "slope"),
        (lambda: TheoremLinear(delta=0.0), "delta"),
        (lambda: TheoremLinear(lipschitz=-1.0), "lipschitz"),
        (lambda: TheoremLinear(lipschitz=math.inf), "lipschitz"),
        (lambda: TheoremLinear(curvature=0.0), "curvature"),
        (lambda: TheoremLinear(radius=0.0), "radius"),
        (lambda: TheoremLinear(m=0), "m"),
        (lambda: TheoremLog(beta=0.0), "beta"),
        (lambda: TheoremLog(beta=1.0), "beta"),
        (lambda: TheoremLog(beta=math.nan), "beta"),
        (lambda: TheoremLog(delta=-1.0), "delta"),
        (lambda: Adaptive(delta=0.0), "delta"),
        (lambda: Adaptive(curvature=-1.0), "curvature"),
        (lambda: Adaptive(curvature=math.inf), "curvature"),
    ],
)
def test_bad_parameters_are_refused(make: Callable[[], Schedule], name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name} must be"):
        make()


@pytest.mark.parametrize("m", [1, 2, 3, 5])
@pytest.mark.parametrize("lmo", [dt.lmo.Power, dt.lmo.Lanczos])
def test_observed_ratio_with_more_iterations_than_columns(
    lmo: Callable[[Schedule], dt.lmo.Power | dt.lmo.Lanczos], m: int
) -> None:
    rng = np.random.default_rng(m)
    X, Y = rng.standard_normal((50, 6)), rng.standard_normal((50, m))
    oracle = lmo(TheoremLog(lipschitz=100.0, curvature=0.1))
    result = dt.solve(dt.LeastSquares(), X, Y, radius=1.0, solver="dfw", lmo=oracle, max_iter=10)
    assert result.objective < result.objective_at_zero
    if lmo is dt.lmo.Power:
        assert result.history.column("power_iterations").max() > m


def test_mean_iterations_are_those_of_the_schedule() -> None:
    run = PowerRun(setting(shape=(4, 3)))
    for schedule in (Constant(7), Linear(0.5), Log(3.0), Log(0.5, base=2.0)):
        mean = np.mean([schedule.iterations(t, run) for t in range(1000)])
        assert schedule.mean_iterations(1000) == pytest.approx(mean, rel=0.25, abs=0.6)
    assert Log().mean_iterations(10**9) < 20  # at once, however many epochs


# The theorem: with its K(t), E[F(W_t)] - F* ≤ 2 C_F (1 + δ)/(t + 2).
#
# Orthonormal features make everything in it known: F(W) = ½‖W - B‖² + constant with B = XᵀY, so
# C_F = 4μ² (from one end of the ball to the other), L = σ₁(B) + μ, and F* is a projection.

N, SIZE, RADIUS, STEPS, SEEDS = 45, 40, 1.0, 20, 12
CURVATURE = 4.0 * RADIUS**2


@cache
def problem() -> tuple[Array, Array, float, float]:
    """X, Y, F* and L."""
    rng = np.random.default_rng(0)
    X = np.linalg.qr(rng.standard_normal((N, SIZE)))[0]
    # Nearly equal singular values, all of them needed: as slow as Frank-Wolfe can be, since W_t has
    # rank t at the most, and hard for the power method too.
    U, V = (np.linalg.qr(rng.standard_normal((SIZE, SIZE)))[0] for _ in range(2))
    s = np.linspace(0.05, 0.045, SIZE)
    Y = X @ ((U * s) @ V.T)
    theta = (s.sum() - RADIUS) / SIZE
    assert 0.0 < theta < s.min()  # all singular values are shortened alike by the projection
    optimum = 0.5 * SIZE * theta**2
    return X, Y, optimum, float(s.max()) + RADIUS


@cache
def mean_excess(schedule: dt.lmo.Schedule) -> Array:
    """The mean over seeds of F(W_t) - F* for t = 1, 2, … ."""
    X, Y, optimum, _ = problem()
    runs = [
        dt.solve(
            dt.LeastSquares(),
            X,
            Y,
            radius=RADIUS,
            solver="dfw",
            lmo=dt.lmo.Power(schedule),
            step="harmonic",
            max_iter=STEPS,
            random_state=seed,
            engine=dt.LocalEngine(n_shards=2, n_jobs=1),
        )
        for seed in range(SEEDS)
    ]
    return np.mean([run.history.column("objective") for run in runs], axis=0) - optimum


def bound(delta: float, curvature: float = CURVATURE) -> Array:
    return 2.0 * curvature * (1.0 + delta) / (np.arange(1, STEPS + 1) + 2.0)


def theorem(delta: float) -> dt.lmo.TheoremLinear:
    return dt.lmo.TheoremLinear(delta=delta, lipschitz=problem()[3], curvature=CURVATURE)


@pytest.mark.parametrize("delta", [0.5, 1.0, 5.0])
def test_mean_stays_under_the_bound(delta: float) -> None:
    assert np.all(mean_excess(theorem(delta)) <= bound(delta))


def test_mean_stays_under_the_bound_with_constants_from_the_data() -> None:
    assert np.all(mean_excess(dt.lmo.TheoremLinear()) <= bound(1.0))


def test_mean_stays_under_the_bound_with_adaptive_iterations() -> None:
    assert np.all(mean_excess(dt.lmo.Adaptive(curvature=CURVATURE)) <= bound(1.0))


def test_too_small_a_bound_would_be_violated() -> None:
    """What makes the tests above able to fail: a sixtieth of C_F is too little, at every t."""
    assert np.all(mean_excess(theorem(1.0)) > bound(1.0, CURVATURE / 60.0))
