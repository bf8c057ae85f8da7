"""Rows that count more than once, or less: the same as repeated rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from tests.problems import FORMS, Untouched
from tests.truth import row_losses

import dfwtrace as dt

TASKS: dict[str, dt.ScoresTask] = {
    "least squares": dt.LeastSquares(),
    "multinomial": dt.Multinomial(n_classes=4),
}
ENGINE = dt.LocalEngine(n_shards=2, n_jobs=1)
RADIUS = {"least squares": 0.5, "multinomial": 4.0}


@pytest.fixture(scope="module")
def data(multitask: tuple[Any, Any]) -> dict[str, tuple[Any, Any]]:
    X, y, _ = dt.datasets.make_multiclass(n=60, d=7, m=4, rank=3, random_state=0)
    return {"least squares": multitask, "multinomial": (X, y)}


def value_of(name: str, X: Any, y: Any, weights: Any, W: Any, b: Any = 0.0) -> float:
    """F in plain NumPy."""
    return float(weights @ row_losses(name, X, y, W, b))


def whole_weights(n: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(0, 4, n)


@pytest.mark.parametrize(
    ("name", "form", "intercept", "dtype", "layout", "n_shards"),
    [
        (*form, *setting)
        for k, form in enumerate(FORMS)
        for setting in (
            (k % 2 == 0, np.float64, (np.asarray, sp.csr_array)[k // 2 % 2], 3),
            (k % 2 == 1, np.float32, (sp.csr_array, np.asarray)[k // 2 % 2], 1),
        )
    ],
)
def test_whole_weights_are_repeated_rows(
    name: str,
    form: str,
    intercept: bool,
    dtype: Any,
    layout: Any,
    n_shards: int,
    data: dict[str, Any],
) -> None:
    X, y = data[name][0].astype(dtype), data[name][1]
    weights = whole_weights(len(X))
    repeated = np.repeat(np.arange(len(X)), weights)
    single = dtype is np.float32
    options: Any = {
        "radius": RADIUS[name],
        "fit_intercept": intercept,
        "representation": form,
        "engine": dt.LocalEngine(n_shards=n_shards, n_jobs=1),
    }
    # The paper's algorithm with an exact oracle: the same steps.
    runs = [
        dt.solve(
            TASKS[name],
            layout(A),
            t,
            sample_weight=w,
            solver="dfw",
            lmo="naive",
            max_iter=6,
            **options,
        )
        for A, t, w in ((X, y, weights), (X[repeated], y[repeated], None))
    ]
    weighted, plain = runs
    scale = plain.objective_at_zero
    assert weighted.objective_at_zero == pytest.approx(scale, rel=1e-5 if single else 1e-10)
    np.testing.assert_allclose(
        weighted.W.to_dense(), plain.W.to_dense(), atol=2e-3 if single else 1e-7
    )
    assert weighted.objective == pytest.approx(plain.objective, rel=1e-4 if single else 1e-8)
    assert weighted.gap == pytest.approx(plain.gap, abs=scale * (1e-3 if single else 1e-7))
    # The accelerated solver: the same optimum, to within both certificates.
    runs += [
        dt.solve(
            TASKS[name], layout(A), t, sample_weight=w, solver="accelerated", tol=1e-4, **options
        )
        for A, t, w in ((X, y, weights), (X[repeated], y[repeated], None))
    ]
    weighted, plain = runs[2:]
    assert weighted.status == plain.status == "optimal"
    rounding = (1e-6 if single else 1e-13) * scale
    assert abs(weighted.objective - plain.objective) <= max(weighted.gap, plain.gap) + rounding
    np.testing.assert_allclose(
        weighted.W.to_dense(), plain.W.to_dense(), atol=0.1 if single else 3e-2
    )
    for result in runs:
        assert result.W.trace_norm <= RADIUS[name] * (1.0 + 1e-9)
        assert (result.intercept is not None) == intercept
        b = 0.0 if result.intercept is None else result.intercept
        value = value_of(name, X, y, weights, result.W.to_dense(), b)
        assert result.objective == pytest.approx(value, rel=1e-5 if single else 1e-10)
    if intercept:
        for one, other in (runs[:2], runs[2:]):
            np.testing.assert_allclose(one.intercept, other.intercept, atol=5e-2)


@pytest.mark.parametrize(("name", "form"), FORMS)
@pytest.mark.parametrize("intercept", [False, True])
def test_a_weight_of_zero_is_a_missing_row(
    name: str, form: str, intercept: bool, data: dict[str, Any]
) -> None:
    """Whatever stands in it, and also if no row of a shard counts."""
    X, y = data[name][0].copy(), data[name][1]
    kept = np.ones(len(X), bool)
    kept[:20] = kept[33] = kept[50:53] = False
    X[~kept] = 1e6
    options: Any = {"radius": RADIUS[name], "solver": "dfw", "lmo": "naive", "max_iter": 5}
    options |= {"representation": form}
    options |= {"fit_intercept": intercept, "engine": dt.LocalEngine(n_shards=6, n_jobs=1)}
    zero = dt.solve(TASKS[name], X, y, sample_weight=kept, **options)
    missing = dt.solve(TASKS[name], X[kept], y[kept], **options)
    np.testing.assert_allclose(zero.W.to_dense(), missing.W.to_dense(), atol=1e-7)
    assert zero.objective == pytest.approx(missing.objective, rel=1e-8)
    assert zero.gap == pytest.approx(missing.gap, rel=1e-4)
    if intercept:
        np.testing.assert_allclose(zero.intercept, missing.intercept, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "form", "c"), [(*form, c) for form, c in zip(FORMS, 4 * [2.0**-20, 3.0], strict=False)]
)
def test_a_factor_of_all_weights_is_one_of_the_objective(
    name: str, form: str, c: float, data: dict[str, Any]
) -> None:
    X, y = data[name]
    weights = np.random.default_rng(0).uniform(0.1, 2.0, len(X))
    options: Any = {"radius": RADIUS[name], "fit_intercept": True, "representation": form}
    options |= {"lmo": "naive", "max_iter": 5, "tol": 1e-12, "engine": ENGINE}
    one, other = (
        dt.solve(TASKS[name], X, y, solver="dfw", sample_weight=w, **options)
        for w in (weights, c * weights)
    )
    np.testing.assert_allclose(other.W.to_dense(), one.W.to_dense(), atol=1e-8)
    np.testing.assert_allclose(other.intercept, one.intercept, atol=1e-6)
    assert other.objective == pytest.approx(c * one.objective, rel=1e-9)
    assert other.objective_at_zero == pytest.approx(c * one.objective_at_zero, rel=1e-10)
    assert other.gap == pytest.approx(c * one.gap, rel=1e-5)


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_weights_of_one_change_nothing(name: str, form: str, data: dict[str, Any]) -> None:
    X, y = data[name]
    options: Any = {"radius": RADIUS[name], "lmo": "naive", "max_iter": 4, "representation": form}
    options |= {"engine": ENGINE}
    plain = dt.solve(TASKS[name], X, y, solver="dfw", **options)
    for ones in (np.ones(len(X)), np.ones(len(X), int), np.ones(len(X), bool), [1] * len(X)):
        weighted = dt.solve(TASKS[name], X, y, solver="dfw", sample_weight=ones, **options)
        np.testing.assert_allclose(weighted.W.to_dense(), plain.W.to_dense(), atol=1e-10)
        assert weighted.objective == pytest.approx(plain.objective, rel=1e-12)


@pytest.mark.parametrize("lmo", ["power-2", "power-log", "lanczos", "sva"])
@pytest.mark.parametrize("name", TASKS)
def test_every_oracle_takes_weights(name: str, lmo: str, data: dict[str, Any]) -> None:
    X, y = data[name]
    weights = whole_weights(len(X))
    options: Any = {"radius": RADIUS[name], "solver": "dfw", "lmo": lmo, "max_iter": 30}
    options |= {"engine": ENGINE}
    result = dt.solve(TASKS[name], X, y, sample_weight=weights, **options)
    value = value_of(name, X, y, weights, result.W.to_dense())
    assert result.objective == pytest.approx(value, rel=1e-10)
    options = {"radius": RADIUS[name], "engine": ENGINE, "solver": "accelerated"}
    best = dt.solve(TASKS[name], X, y, sample_weight=weights, **options)
    assert result.objective < 0.9 * result.objective_at_zero
    assert result.gap >= result.objective - best.objective - 1e-12 * best.objective_at_zero


def test_targets_of_one_column_take_weights_too(multitask: tuple[Any, Any]) -> None:
    X, Y = multitask
    weights = whole_weights(len(X))
    repeated = np.repeat(np.arange(len(X)), weights)
    options: Any = {"radius": 0.5, "lmo": "naive", "max_iter": 5, "engine": ENGINE}
    for form in dt.LeastSquares.representations:
        flat, column, plain = (
            dt.solve(
                dt.LeastSquares(),
                A,
                t,
                solver="dfw",
                sample_weight=w,
                representation=form,
                **options,
            )
            for A, t, w in (
                (X, Y[:, 0], weights),
                (X, Y[:, :1], weights),
                (X[repeated], Y[repeated, 0], None),
            )
        )
        np.testing.assert_array_equal(flat.W.to_dense(), column.W.to_dense())
        np.testing.assert_allclose(flat.W.to_dense(), plain.W.to_dense(), atol=1e-9)


# Bad weights


def with_one(value: float) -> Any:
    weights = np.ones(60)
    weights[17] = value
    return weights


@pytest.mark.parametrize("call", ["solve", "path"])
@pytest.mark.parametrize(
    ("weights", "words"),
    [
        (np.ones(59), "one number for each of the 60 rows of X, got shape (59,)"),
        (np.ones((60, 1)), "got shape (60, 1)"),
        (1.0, "got shape ()"),
        (np.zeros(0), "got shape (0,)"),
        (with_one(-0.5), "must not be negative, got -0.5"),
        (with_one(float("nan")), "must be finite, but holds NaN"),
        (with_one(float("inf")), "must be finite, but holds infinity"),
        (np.zeros(60), "must not be zero for all rows"),
        (["a"] * 60, "must hold real numbers"),
        (np.ma.masked_array(np.ones(60)), "masked"),
        (with_one(1.0) + 0j, "must hold real numbers"),
        ("weight", "sample_weight"),
    ],
)
def test_bad_weights_are_refused_in_one_sentence_before_any_work(
    call: str, weights: Any, words: str, data: dict[str, Any]
) -> None:
    size: Any = {"radius": 1.0} if call == "solve" else {"radii": [1.0]}
    for name, task in TASKS.items():
        with pytest.raises((TypeError, ValueError)) as caught:
            getattr(dt, call)(task, *data[name], sample_weight=weights, engine=Untouched(), **size)
        message = str(caught.value)
        assert message.startswith("sample_weight")
        assert words in message
        assert message.endswith(".")
        assert "\n" not in message


@pytest.mark.parametrize("option", [{"sample_weight": np.ones(60)}, {"fit_intercept": True}])
def test_a_custom_task_takes_neither_weights_nor_an_intercept(
    option: dict[str, Any], multitask: tuple[Any, Any]
) -> None:
    class Custom(dt.Task[Any]):
        """Has no scores, as far as anyone knows."""

        stats = update = dt.Task.gradient  # never called

    words = rf"^{next(iter(option))} needs a task made of a loss on scores"
    with pytest.raises(TypeError, match=words):
        dt.solve(Custom(), *multitask, radius=1.0, engine=Untouched(), **option)


def test_weights_do_not_stand_for_targets(multitask: tuple[Any, Any]) -> None:
    for task in TASKS.values():
        with pytest.raises(ValueError, match=r"^y is missing: this task needs targets\.$"):
            dt.solve(task, multitask[0], radius=1.0, sample_weight=np.ones(60), engine=Untouched())


def test_weights_leave_the_callers_arrays_as_they_were(data: dict[str, Any]) -> None:
    for name, task in TASKS.items():
        X, y = data[name]
        weights = whole_weights(len(X)).astype(float)
        before = X.copy(), y.copy(), weights.copy()
        dt.solve(task, X, y, radius=1.0, sample_weight=weights, fit_intercept=True, max_iter=3)
        for now, then in zip((X, y, weights), before, strict=True):
            np.testing.assert_array_equal(now, then)
