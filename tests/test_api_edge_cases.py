"""The smallest problems, a gradient of zero, and numbers at the end of the floating-point range."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from tests.problems import FORMS, LMOS, TASKS, solve

import dfwtrace as dt

STEPS = ["linesearch", "harmonic"]
STEPPING = list(zip(LMOS, 4 * STEPS, strict=False))
TWO_SHARDS = dt.LocalEngine(n_shards=2, n_jobs=1)


def assert_sound(result: dt.Result, radius: float) -> None:
    assert np.isfinite([result.objective, result.gap]).all()
    assert np.isfinite(result.history.column("objective")).all()
    assert np.isfinite(result.W.to_dense()).all()
    assert result.W.trace_norm <= radius * (1.0 + 1e-9)


@pytest.mark.parametrize(("lmo", "step"), STEPPING)
@pytest.mark.parametrize(
    ("sizes", "sparse"),
    [((1, 1, 1), True), ((1, 3, 2), False), ((5, 1, 3), True), ((5, 3, 1), False)],
)
def test_one_row_one_feature_one_column(
    lmo: str, step: str, sparse: bool, sizes: tuple[int, int, int]
) -> None:
    n, d, m = sizes
    rng = np.random.default_rng(sizes)
    X, Y = rng.standard_normal((n, d)), rng.standard_normal((n, m))
    # The least-squares solution, scaled to lie within the ball: what a run has to come near to.
    inside = 0.5 / np.linalg.norm(np.linalg.pinv(X) @ Y, "nuc")
    for form in TASKS["least squares"].representations:
        result = solve(
            "least squares",
            sp.csr_array(X) if sparse else X,
            inside * Y,
            lmo=lmo,
            step=step,
            max_iter=4,
            representation=form,
            engine=TWO_SHARDS,
        )
        assert_sound(result, 1.0)
        if step == "linesearch":
            assert result.objective <= result.objective_at_zero
        W = np.linalg.pinv(X) @ (inside * Y)
        best = 0.5 * float(np.square(X @ W - inside * Y).sum())
        assert -1e-12 <= result.objective - best <= result.gap + 1e-12


@pytest.mark.parametrize(("lmo", "step"), STEPPING)
@pytest.mark.parametrize("sizes", [(2, 1, 2), (5, 1, 3), (2, 4, 2)])
def test_a_classification_of_two_rows_or_one_feature(
    lmo: str, step: str, sizes: tuple[int, int, int]
) -> None:
    n, d, m = sizes
    X = np.random.default_rng(sizes).standard_normal((n, d))
    for form in TASKS["multinomial"].representations:
        result = solve(
            "multinomial",
            X,
            np.arange(n) % m,
            lmo=lmo,
            step=step,
            max_iter=4,
            representation=form,
            engine=TWO_SHARDS,
        )
        assert_sound(result, 1.0)
        assert result.objective_at_zero == pytest.approx(n * np.log(m))


@pytest.mark.parametrize("lmo", LMOS)
def test_one_row_of_one_declared_class_among_several(lmo: str) -> None:
    X = np.array([[1.0, -2.0]])
    task = dt.Multinomial(n_classes=3)
    result = dt.solve(
        task, X, np.array([1]), radius=30.0, solver="dfw", lmo=lmo, max_iter=20, engine=TWO_SHARDS
    )
    assert_sound(result, 30.0)
    assert result.objective < 1e-3 * np.log(3.0)
    assert (X @ result.W).argmax() == 1


@pytest.mark.parametrize(("task", "form"), FORMS)
@pytest.mark.parametrize(("lmo", "step"), STEPPING)
def test_a_zero_gradient_is_optimal(
    task: str, form: str, lmo: str, step: str, rng: np.random.Generator
) -> None:
    tol = None if step == "linesearch" else 0.0
    if task == "least squares":
        X, y = rng.standard_normal((9, 4)), np.zeros((9, 3))
    else:
        X, y = np.zeros((9, 4)), np.arange(9) % 3
    options: Any = {
        "lmo": lmo,
        "step": step,
        "tol": tol,
        "representation": form,
        "engine": TWO_SHARDS,
    }
    result = solve(task, X, y, radius=2.0, max_iter=5, **options)
    assert result.status == "optimal"
    assert result.certificate.sigma_bound == 0.0
    assert result.gap <= 1e-12 * result.objective_at_zero  # what rounding may hide
    assert result.W.rank == 0
    assert result.objective == result.objective_at_zero
    assert not np.isnan(result.objective)


@pytest.mark.parametrize("lmo", LMOS)
def test_a_start_at_the_exact_optimum_is_optimal(lmo: str) -> None:
    X, W = np.eye(4, 3), dt.LowRankMatrix(np.eye(3)[:, :2], [0.5, 0.25], np.eye(2))
    result = solve("least squares", X, X @ W, lmo=lmo, start=W, max_iter=5)
    assert result.status == "optimal"
    assert (result.objective, result.certificate.sigma_bound) == (0.0, 0.0)
    assert result.gap <= 1e-10 * result.objective_at_zero
    np.testing.assert_allclose(result.W.to_dense(), W.to_dense(), atol=1e-15)


@pytest.mark.parametrize(("task", "form"), FORMS)
@pytest.mark.parametrize(("n_shards", "sparse"), [(1, False), (20, True)])
def test_rows_and_columns_of_zeros_do_no_harm(
    task: str, form: str, n_shards: int, sparse: bool, rng: np.random.Generator
) -> None:
    X = np.zeros((12, 5))
    X[::3, ::2] = rng.standard_normal((4, 3))
    y = rng.standard_normal((12, 3)) if task == "least squares" else np.arange(12) // 3
    engine = dt.LocalEngine(n_shards=n_shards, n_jobs=1)
    for lmo in ("power-2", "naive", "sva"):
        options: Any = {"lmo": lmo, "representation": form, "engine": engine}
        data = sp.csr_array(X) if sparse else X
        result = solve(task, data, y, radius=2.0, max_iter=4, **options)
        assert_sound(result, 2.0)
        assert result.objective <= result.objective_at_zero
        np.testing.assert_allclose(result.W.to_dense()[1::2], 0.0, atol=1e-12)


HUGE = [
    (np.float32, 1e20, "linesearch"),
    (np.float32, 3e37, "harmonic"),
    (np.float64, 1e200, "harmonic"),
    (np.float64, 1e307, "linesearch"),
]


# NumPy may warn where it overflows. What counts is how the run ends.
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    ("task", "form", "what"),
    [
        (task, form, what)
        for task, form in FORMS
        for what in ("X", "y", "radius")
        if (task, what) != ("multinomial", "y")  # labels are small
    ],
)
@pytest.mark.parametrize(("dtype", "size", "step"), HUGE)
def test_what_overflows_is_an_error_and_never_a_silent_result(
    task: str, form: str, what: str, step: str, dtype: Any, size: float, rng: np.random.Generator
) -> None:
    X = rng.standard_normal((30, 6))
    y = rng.standard_normal((30, 4)) if task == "least squares" else rng.integers(0, 4, 30)
    X = (X * (size if what == "X" else 1.0)).astype(dtype)
    y = y * size if what == "y" else y
    radius = size if what == "radius" else 1.0
    failure, result = "", None
    try:
        result = solve(
            task, X, y, radius=radius, step=step, max_iter=4, representation=form, engine=TWO_SHARDS
        )
    except (ValueError, ArithmeticError) as error:
        failure = str(error)
    if result is None:
        assert "too large" in failure
        return
    assert_sound(result, radius)
    assert len(result.history) == 4
    if step == "linesearch" and what != "y":  # far from the optimum, so something must be gained
        assert result.objective < result.objective_at_zero
