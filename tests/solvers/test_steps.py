"""Step sizes: closed form against scipy, guarded Newton on kind and on hostile functions."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

import dfwtrace as dt
from dfwtrace.solvers.steps import Harmonic, Line, LineSearch, resolve, within_unit_interval

Derivatives = Callable[[float], tuple[float, float]]
UNUSED = Line(lambda gamma: (math.nan, math.nan), quadratic=False)


def counted(derivatives: Derivatives, quadratic: bool = False) -> tuple[Line, list[float]]:
    """A line, and the list of the γ that it was asked for."""
    asked: list[float] = []

    def ask(gamma: float) -> tuple[float, float]:
        asked.append(gamma)
        return derivatives(gamma)

    return Line(ask, quadratic), asked


def test_harmonic() -> None:
    assert [Harmonic()(t, UNUSED) for t in (0, 1, 2, 98)] == [1.0, 2 / 3, 0.5, 0.02]


@pytest.mark.parametrize("seed", range(20))
def test_quadratic_search_is_exact_and_takes_one_round(seed: int) -> None:
    rng = np.random.default_rng(seed)
    A, b = rng.standard_normal((9, 5)), rng.standard_normal(9)
    x, direction = rng.standard_normal(5), rng.standard_normal(5) * 10.0 ** rng.uniform(-2, 2)
    direction *= -np.sign(direction @ A.T @ (A @ x - b))

    def derivatives(gamma: float) -> tuple[float, float]:
        moved = A @ direction
        return float(moved @ (A @ (x + gamma * direction) - b)), float(moved @ moved)

    line, asked = counted(derivatives, quadratic=True)
    gamma = LineSearch()(0, line)
    truth = minimize_scalar(
        lambda g: 0.5 * np.sum((A @ (x + g * direction) - b) ** 2),
        bounds=(0.0, 1.0),
        method="bounded",
        options={"xatol": 1e-12},
    )
    assert asked == [0.0]
    assert gamma == pytest.approx(truth.x, abs=1e-6)


def test_quadratic_search_on_a_straight_line_goes_to_its_end() -> None:
    assert LineSearch()(0, Line(lambda gamma: (-1.0, 0.0), quadratic=True)) == 1.0


@pytest.mark.parametrize("quadratic", [True, False])
@pytest.mark.parametrize("slope", [0.0, 1e-12, 5.0])
def test_what_does_not_descend_is_not_followed(slope: float, quadratic: bool) -> None:
    line, asked = counted(lambda gamma: (slope + gamma, 1.0), quadratic)
    assert LineSearch()(0, line) == 0.0
    assert asked == [0.0]


def test_line_keeps_the_slope_at_its_start() -> None:
    line = Line(lambda gamma: (gamma - 0.25, 1.0), quadratic=True)
    assert math.isnan(line.first_slope)
    line.derivatives(0.5)
    assert math.isnan(line.first_slope)
    LineSearch()(0, line)
    assert line.first_slope == -0.25


def softplus_sum(gamma: float) -> tuple[float, float]:
    """Many logistic terms of very different steepness around 0.37."""
    slopes = np.array([1.0, 10.0, 100.0, 1000.0])
    s = 1.0 / (1.0 + np.exp(np.clip(-slopes * (gamma - 0.37), -700, 700)))
    return float(np.sum(slopes * (s - 0.5))), float(np.sum(slopes**2 * s * (1.0 - s)))


def exponential(rate: float, where: float) -> Derivatives:
    """φ' = exp(rate (γ - where)) - 1: Newton creeps back by 1/rate from beyond the minimum."""

    def derivatives(gamma: float) -> tuple[float, float]:
        growth = math.exp(min(rate * (gamma - where), 700.0))
        return growth - 1.0, rate * growth

    return derivatives


def kink(where: float, width: float) -> Derivatives:
    """|γ - where|, rounded off over `width`: no curvature anywhere else."""

    def derivatives(gamma: float) -> tuple[float, float]:
        inside = abs(gamma - where) < width
        return float(np.clip((gamma - where) / width, -1.0, 1.0)), float(inside) / width

    return derivatives


def power(exponent: int, where: float) -> Derivatives:
    """(γ - where)^exponent: the curvature vanishes at the minimum."""
    return lambda gamma: (
        exponent * (gamma - where) ** (exponent - 1),
        exponent * (exponent - 1) * (gamma - where) ** (exponent - 2),
    )


HOSTILE = {
    "logistic": (softplus_sum, 0.37),
    "square": (lambda gamma: (gamma - 0.6, 1.0), 0.6),
    "flat at the minimum": (power(8, 0.4), 0.4),
    "steep beyond": (exponential(20.0, 0.3), 0.3),
    "very steep beyond": (exponential(1000.0, 0.3), 0.3),
    "kink": (kink(0.4, 0.1), 0.4),
    "narrow kink": (kink(0.7, 1e-3), 0.7),
    "kink near the start": (kink(0.01, 1e-4), 0.01),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_newton_ends_near_the_minimum_of_any_convex_function(name: str) -> None:
    derivatives, _ = HOSTILE[name]
    line, asked = counted(derivatives)
    gamma = LineSearch()(0, line)
    assert len(asked) <= LineSearch().max_rounds + 1
    assert abs(derivatives(gamma)[0]) <= LineSearch().tol * abs(derivatives(0.0)[0])


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("max_rounds", [1, 2, 3, 5])
def test_newton_cut_short_never_overshoots(name: str, max_rounds: int) -> None:
    derivatives, minimum = HOSTILE[name]
    search = LineSearch(max_rounds=max_rounds)
    gamma = search(0, Line(derivatives, quadratic=False))
    solved = abs(derivatives(gamma)[0]) <= search.tol * abs(derivatives(0.0)[0])
    assert solved or 0.0 <= gamma <= minimum


@pytest.mark.parametrize(
    "derivatives",
    [
        lambda gamma: (gamma - 3.0, 1.0),
        lambda gamma: (-1.0, 0.0),
        lambda gamma: (-math.exp(-50.0 * gamma), 50.0 * math.exp(-50.0 * gamma)),
        lambda gamma: (gamma - 1.0, 1.0),
    ],
    ids=["minimum beyond", "straight", "ever flatter", "minimum at the end"],
)
def test_newton_at_the_far_end(derivatives: Derivatives) -> None:
    gamma = LineSearch()(0, Line(derivatives, quadratic=False))
    assert 0.0 < gamma <= 1.0
    assert gamma == 1.0 or abs(derivatives(gamma)[0]) <= 1e-2 * abs(derivatives(0.0)[0])


@pytest.mark.parametrize("radius", [0.5, 20.0, 2000.0])
def test_multinomial_search_descends_every_epoch(radius: float) -> None:
    X, y, _ = dt.datasets.make_multiclass(n=80, d=8, m=5, rank=3, random_state=1)
    y[::7] = (y[::7] + 1) % 5  # not separable: the loss has a minimum
    result = dt.solve(dt.Multinomial(), X, y, radius=radius, solver="dfw", lmo="naive", max_iter=40)
    objective = np.append(result.objective_at_zero, result.history.column("objective"))
    assert np.all(np.diff(objective) < 1e-12 * objective[0])
    assert objective[-1] < 0.99 * objective[0]


@pytest.mark.parametrize("tol", [1e-2, 1e-6])
def test_multinomial_search_solves_its_line(tol: float) -> None:
    X, y, _ = dt.datasets.make_multiclass(n=60, d=6, m=4, rank=2, random_state=2)
    iterates = [dt.LowRankMatrix.zeros((6, 4))]
    gammas: list[float] = []

    def keep(W: dt.LowRankMatrix, record: dict[str, float]) -> None:
        iterates.append(W)
        gammas.append(record["gamma"])

    dt.solve(
        dt.Multinomial(),
        X,
        y,
        radius=30.0,
        solver="dfw",
        lmo="naive",
        step=LineSearch(tol=tol),
        max_iter=15,
        callback=keep,
    )

    def slope(W: np.ndarray, D: np.ndarray) -> float:
        P = np.exp(X @ W - (X @ W).max(axis=1, keepdims=True))
        R = P / P.sum(axis=1, keepdims=True) - np.eye(4)[y]
        return float(np.vdot(X @ D, R))

    for gamma, before, after in zip(gammas, iterates, iterates[1:], strict=False):
        W, moved = before.to_dense(), after.to_dense()
        D = (moved - W) / gamma  # from W to the atom
        first, last = slope(W, D), slope(moved, D)
        assert first < 0.0
        assert abs(last) <= tol * abs(first) * (1 + 1e-6) or (gamma == 1.0 and last <= 0.0)


def test_given_numbers_and_functions() -> None:
    assert resolve(0.25)(7, UNUSED) == 0.25
    assert resolve(1)(0, UNUSED) == 1.0
    assert resolve(0)(0, UNUSED) == 0.0
    rule = resolve(lambda t: 1.0 / (t + 1))
    assert [rule(t, UNUSED) for t in (0, 3)] == [1.0, 0.25]
    assert rule.needs == ()


def test_functions_are_clipped_into_the_unit_interval() -> None:
    given = (-3.0, 0.5, 1.0 + 1e-12, math.inf, np.float32(0.25))
    assert [within_unit_interval(gamma, 0) for gamma in given] == [0.0, 0.5, 1.0, 1.0, 0.25]


def test_functions_must_return_a_number() -> None:
    with pytest.raises(ValueError, match="step must give a number, got NaN at epoch 3"):
        within_unit_interval(math.nan, 3)
    with pytest.raises(TypeError, match="step must give a number, got None at epoch 3"):
        within_unit_interval(None, 3)


class Overstep:
    """A step object of the user's own that does not keep to [0, 1]."""

    needs = ()

    def __call__(self, t: int, line: Line) -> float:
        return 1.7


def test_step_objects_are_clipped_too() -> None:
    X, Y, _ = dt.datasets.make_multitask(n=40, d=5, m=4, rank=2, random_state=0)
    result = dt.solve(
        dt.LeastSquares(), X, Y, radius=1.0, solver="dfw", step=Overstep(), max_iter=3
    )
    assert set(result.history.column("gamma")) == {1.0}


@pytest.mark.parametrize("options", [{"tol": 0.0}, {"tol": -1.0}, {"max_rounds": 0}])
def test_line_search_settings_are_checked(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        LineSearch(**options)


def test_names_and_objects() -> None:
    assert resolve("harmonic") == Harmonic()
    assert resolve("linesearch") == LineSearch()
    search = LineSearch(tol=1e-4)
    assert resolve(search) is search
    assert search.needs == ("linesearch",)


@pytest.mark.parametrize(
    ("step", "error"),
    [
        ("newton", ValueError),
        (-0.1, ValueError),
        (1.5, ValueError),
        (math.nan, ValueError),
        (True, TypeError),
        (None, TypeError),
        ([0.5], TypeError),
    ],
)
def test_bad_steps_are_refused(step: object, error: type[Exception]) -> None:
    with pytest.raises(error, match="step must be"):
        resolve(step)  # type: ignore[arg-type]
