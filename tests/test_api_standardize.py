"""Standardised features: the same as dividing X by its standard deviations by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from tests.files.checkpointed import assert_same_run, every_epoch, stopped
from tests.problems import ENGINE, FORMS, LMOS, TASKS, Untouched
from tests.truth import row_losses

import dfwtrace as dt
from dfwtrace.files.container import read_container, write_container
from dfwtrace.linalg import certificate

N, D, M = 80, 8, 5
RADIUS = {"least squares": 1.5, "multinomial": 6.0}
# From micrometres to hertz.
UNITS = np.geomspace(1e-7, 1e14, D)[[4, 7, 0, 2, 6, 1, 5, 3]]
DFW: Any = {"solver": "dfw", "lmo": "naive", "max_iter": 8}
FAST: Any = {"solver": "accelerated", "tol": 1e-7}


def data_of(name: str, units: Any = UNITS) -> tuple[Any, Any]:
    """A third of the entries are zero; no column has its mean there."""
    rng = np.random.default_rng(0)
    X = np.where(rng.random((N, D)) < 0.3, 0.0, rng.normal(1.0, 1.0, (N, D)))
    scores = X @ rng.standard_normal((D, 2)) @ rng.standard_normal((2, M)) + 0.5
    noise = rng.gumbel(size=scores.shape)
    return X * units, scores + noise if name == "least squares" else (scores + noise).argmax(axis=1)


def deviations(X: Any, weights: Any = None) -> Any:
    X = (X.toarray() if sp.issparse(X) else np.asarray(X)).astype(np.longdouble)
    mean = np.average(X, axis=0, weights=weights)
    variance = np.average((X - mean) ** 2, axis=0, weights=weights)
    return np.sqrt(variance).astype(np.float64)


def divided(X: Any, scale: Any) -> Any:
    return sp.csr_array(X / scale) if sp.issparse(X) else X / scale


def solve(name: str, X: Any, y: Any, **options: Any) -> dt.Result:
    call = {"radius": RADIUS[name], "engine": ENGINE, **options}
    return dt.solve(TASKS[name], X, y, **call)


def assert_same(result: dt.Result, by_hand: dt.Result, rtol: float, atol: float) -> None:
    """The same run: one on X in its own units, one on X divided by hand."""
    assert result.scale is not None
    assert by_hand.scale is None
    at_zero = by_hand.objective_at_zero
    assert result.status == by_hand.status
    assert result.objective_at_zero == pytest.approx(at_zero, rel=rtol)
    assert abs(result.objective - by_hand.objective) <= rtol * at_zero
    assert abs(result.gap - by_hand.gap) <= rtol * at_zero
    scaled = result.W.to_dense() * result.scale[:, None]
    np.testing.assert_allclose(scaled, by_hand.W.to_dense(), rtol=0.0, atol=atol)
    if by_hand.intercept is not None:
        np.testing.assert_allclose(result.intercept, by_hand.intercept, rtol=0.0, atol=10 * atol)


# The same run as by hand


@pytest.mark.parametrize("solver", [DFW, FAST], ids=["dfw", "accelerated"])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(
    ("name", "form", "layout", "weighted"),
    [(*form, (np.asarray, sp.csr_array)[k % 2], k // 2 % 2 == 0) for k, form in enumerate(FORMS)],
)
def test_the_run_is_that_of_features_divided_by_hand(
    name: str, form: str, layout: Any, weighted: bool, intercept: bool, solver: Any
) -> None:
    X, y = data_of(name)
    weights = np.random.default_rng(1).integers(0, 4, N) if weighted else None
    scale = deviations(X, weights)
    options: Any = {"representation": form, "fit_intercept": intercept, "sample_weight": weights}
    result = solve(name, layout(X), y, standardize=True, **solver, **options)
    by_hand = solve(name, layout(X / scale), y, **solver, **options)
    np.testing.assert_allclose(result.scale, scale, rtol=1e-13)
    # The paper's solver takes the same steps; the other one ends within its gap.
    near = (1e-11, 1e-8) if solver is DFW else (1e-7, 1e-2)
    assert_same(result, by_hand, *near)
    losses = row_losses(name, X, y, result.W, result.intercept)
    value = losses.sum() if weights is None else weights @ losses
    assert result.objective == pytest.approx(value, rel=1e-10)
    assert result.objective - by_hand.objective <= result.gap + 1e-12 * value
    scaled = result.W.to_dense() * scale[:, None]
    assert np.linalg.norm(scaled, "nuc") <= RADIUS[name] * (1.0 + 1e-10)
    # Its own factors are those of the matrix that is bounded.
    np.testing.assert_allclose(
        result.W.s, np.linalg.svd(scaled, compute_uv=False)[: result.W.rank], rtol=0.0, atol=1e-10
    )


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(
    "lmo",
    [
        *LMOS,
        dt.lmo.SVA(signs="agreement"),
        dt.lmo.Power(dt.lmo.Constant(2), start="sva"),
        dt.lmo.Power(dt.lmo.Constant(2), start="previous"),
        dt.lmo.Power(dt.lmo.TheoremLog()),
        dt.lmo.Power(dt.lmo.Adaptive()),
    ],
    ids=str,
)
def test_every_oracle_sees_the_scaled_gradient(lmo: Any, intercept: bool) -> None:
    X, y = data_of("multinomial")
    options: Any = {"solver": "dfw", "lmo": lmo, "max_iter": 6, "fit_intercept": intercept}
    result = solve("multinomial", X, y, standardize=True, **options)
    by_hand = solve("multinomial", X / deviations(X), y, **options)
    assert_same(result, by_hand, 1e-9, 1e-7)
    np.testing.assert_allclose(
        result.history.column("sigma"), by_hand.history.column("sigma"), rtol=1e-6
    )


def test_local_gradients_in_gram_form() -> None:
    X, y = data_of("least squares")
    options: Any = {"solver": "dfw", "lmo": "sva", "max_iter": 6, "representation": "gram"}
    result = solve("least squares", X, y, standardize=True, **options)
    assert_same(result, solve("least squares", X / deviations(X), y, **options), 1e-10, 1e-9)


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_single_precision_and_memory_maps(name: str, form: str, tmp_path: Path) -> None:
    X, y = data_of(name, np.geomspace(1e-6, 1e8, D))
    np.save(tmp_path / "X.npy", X.astype(np.float32))
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    options: Any = {"representation": form, "fit_intercept": True, "tol": 1e-3}
    result = solve(name, mapped, y, standardize=True, **options)
    scale = deviations(mapped)
    by_hand = solve(name, mapped / scale, y, **options | {"tol": 1e-6})
    np.testing.assert_allclose(result.scale, scale, rtol=1e-13)
    assert result.status == "optimal"
    lost = result.objective - by_hand.objective
    assert abs(lost) <= result.gap + by_hand.gap


def test_a_certificate_from_products(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = data_of("multinomial")
    dense = solve("multinomial", X, y, standardize=True, **FAST)
    assert dense.certificate is not None
    monkeypatch.setattr(certificate, "DENSE_ENTRIES", 0)
    monkeypatch.setattr(certificate, "SMALL_ENTRIES", 0)
    result = solve("multinomial", X, y, standardize=True, **FAST)
    assert result.certificate is not None
    assert (dense.certificate.method, result.certificate.method) == ("dense", "lanczos")
    assert result.objective - dense.objective <= result.gap
    assert result.gap <= 2e-7 * result.objective_at_zero


# The standard deviations


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("layout", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("form", ["gram", "implicit"])
def test_deviations_far_from_zero(form: str, layout: Any, dtype: Any, weighted: bool) -> None:
    """Large features, some far from zero, and for sparse rows also with zeros among them."""
    rng = np.random.default_rng(0)
    n = 5000  # more than a block of rows
    X = rng.normal([1e6, 1e6, 1e6, 0.0, -3e7], [1e8, 1.0, 0.1, 1.0, 1e2], (n, 5)).astype(dtype)
    X[rng.random(n) < 0.5, 3] = 0.0
    X[rng.random(n) < 0.01, 4] = 0.0
    weights = np.where(rng.random(n) < 0.1, 0.0, rng.uniform(0.1, 3.0, n)) if weighted else None
    X[: n // 2][rng.random(n // 2) < 0.1, 0] = 0.0
    result = dt.solve(
        dt.LeastSquares(), layout(X), rng.standard_normal((n, 2)), radius=1.0, standardize=True,
        sample_weight=weights, max_iter=1, fit_intercept=True, representation=form, engine=ENGINE,
    )  # fmt: skip
    np.testing.assert_allclose(result.scale, deviations(X, weights), rtol=1e-9)
    assert np.isfinite(result.gap)


def test_sparse_entries_that_are_stored_twice_or_out_of_order_are_added() -> None:
    X, y = data_of("least squares", np.ones(D))
    coo = sp.coo_array(X)
    twice = [np.concatenate([part, part[::-1]]) for part in (0.5 * coo.data, *coo.coords)]
    order = np.argsort(twice[1], kind="stable")
    data, rows, columns = (part[order] for part in twice)
    pointers = np.searchsorted(rows, np.arange(N + 1))
    messy = sp.csr_array((data, columns, pointers), shape=X.shape)
    assert messy.nnz == 2 * coo.nnz
    assert not messy.has_canonical_format
    before = messy.data.copy()
    result = solve("least squares", messy, y, standardize=True, representation="implicit")
    np.testing.assert_allclose(result.scale, deviations(X), rtol=1e-13)
    assert np.array_equal(messy.data, before)


@pytest.mark.parametrize("layout", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("value", [0.0, 0.1, 1e6])
def test_a_constant_feature_keeps_its_scale(value: float, layout: Any) -> None:
    X, y = data_of("multinomial")
    X[:, 2] = value
    result = solve("multinomial", layout(X), y, standardize=True, fit_intercept=True, tol=1e-4)
    assert result.scale is not None
    assert result.scale[2] == 1.0
    assert result.status == "optimal"
    # The intercept has all that it could say.
    without = solve("multinomial", np.delete(X, 2, axis=1), y, standardize=True, fit_intercept=True)
    assert abs(result.objective - without.objective) <= result.gap + without.gap


def test_rows_that_count_nothing_do_not_matter() -> None:
    X, y = data_of("multinomial")
    kept = np.arange(N) % 4 > 0
    X[~kept] *= 1e3
    result = solve("multinomial", X, y, sample_weight=kept, standardize=True, **DFW)
    np.testing.assert_allclose(result.scale, deviations(X[kept]), rtol=1e-13)


def test_shards_without_rows() -> None:
    X, y = data_of("least squares")
    many = dt.LocalEngine(n_shards=N + 20, n_jobs=1)
    result = solve("least squares", X, y, standardize=True, engine=many, **DFW)
    np.testing.assert_allclose(result.scale, deviations(X), rtol=1e-13)


def test_features_far_from_zero_for_their_own_units_keep_their_digits() -> None:
    """In single precision, where the far one is small beside the others."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 4))
    y = (X[:, :1] + 0.3 * X[:, 1:] @ rng.standard_normal((3, 3)) > 0).sum(axis=1)
    X = (X * [1.0, 1e7, 1e7, 1e7] + [1e4, 0.0, 0.0, 0.0]).astype(np.float32)
    exact = dt.solve(
        dt.Multinomial(), X.astype(np.float64), y, radius=10.0, fit_intercept=True,
        standardize=True, tol=1e-8, engine=ENGINE,
    )  # fmt: skip
    for form in ("implicit", "dense", "factored"):
        result = dt.solve(
            dt.Multinomial(), X, y, radius=10.0, fit_intercept=True, standardize=True, tol=1e-5,
            representation=form, engine=ENGINE,
        )  # fmt: skip
        assert result.status == "optimal"
        assert result.objective == pytest.approx(exact.objective, rel=3e-5)


# Units


def test_other_units_are_the_same_problem() -> None:
    X, y = data_of("multinomial", np.ones(D))
    here = solve("multinomial", X, y, standardize=True, fit_intercept=True, **DFW)
    there = solve("multinomial", X * UNITS, y, standardize=True, fit_intercept=True, **DFW)
    assert there.objective == pytest.approx(here.objective, rel=1e-11)
    W = there.W.to_dense() * UNITS[:, None]
    np.testing.assert_allclose(W, here.W.to_dense(), rtol=0.0, atol=1e-9)


def test_a_callback_and_a_start_are_in_the_units_of_the_data() -> None:
    X, y = data_of("multinomial")
    seen = []

    def callback(W: dt.LowRankMatrix, record: Any) -> None:
        seen.append((row_losses("multinomial", X, y, W).sum(), record["objective"]))

    first = solve("multinomial", X, y, standardize=True, callback=callback, **FAST)
    assert len(seen) == len(first.history)
    np.testing.assert_allclose(*zip(*seen, strict=True), rtol=1e-10)
    again = solve("multinomial", X, y, standardize=True, start=first.W, **FAST)
    assert len(again.history) < 0.3 * len(first.history)
    assert again.history[0]["objective"] <= first.objective * (1.0 + 1e-9)


def test_a_start_outside_the_ball_is_shrunk_to_it() -> None:
    X, y = data_of("multinomial")
    first = solve("multinomial", X, y, standardize=True, **FAST)
    half = 0.5 * RADIUS["multinomial"]
    seen: list[float] = []

    def callback(W: dt.LowRankMatrix, record: Any) -> bool:
        seen.append(float(np.linalg.norm(W.to_dense() * first.scale[:, None], "nuc")))
        return True

    options: Any = {"solver": "dfw", "step": 1e-9, "radius": half, "callback": callback}
    solve("multinomial", X, y, standardize=True, start=first.W * 3.0, **options)
    assert seen[0] == pytest.approx(half, rel=1e-6)


# Paths


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(
    ("name", "form"),
    [("least squares", "gram"), ("least squares", "implicit"), ("multinomial", "factored")],
)
def test_folds_share_the_scale_of_all_rows(name: str, form: str, intercept: bool) -> None:
    X, y = data_of(name)
    options: Any = {"radii": [0.5, 2.0], "cv": np.arange(N) % 3, "tol": 1e-6}
    options |= {"representation": form, "engine": ENGINE, "fit_intercept": intercept}
    path = dt.path(TASKS[name], X, y, standardize=True, **options)
    by_hand = dt.path(TASKS[name], X / deviations(X), y, **options)
    assert path.validation is not None
    assert by_hand.validation is not None
    np.testing.assert_allclose(path.validation, by_hand.validation, rtol=1e-3)
    for results, others in zip(
        (path.results, *path.fold_results), (by_hand.results, *by_hand.fold_results), strict=True
    ):
        for result, other in zip(results, others, strict=True):
            np.testing.assert_allclose(result.scale, deviations(X), rtol=1e-13)
            assert_same(result, other, 1e-6, 2e-2)


# Files


@pytest.mark.parametrize("options", [DFW, FAST | {"max_iter": 12}], ids=["dfw", "accelerated"])
@pytest.mark.parametrize(("name", "intercept"), [("least squares", False), ("multinomial", True)])
def test_a_resumed_run_has_the_same_bits(
    name: str, intercept: bool, options: Any, tmp_path: Path
) -> None:
    X, y = data_of(name)
    kept = every_epoch(tmp_path / "run.ckpt")
    call: Any = {"radius": RADIUS[name], "engine": ENGINE, "fit_intercept": intercept}
    call |= {"standardize": True, "checkpoint": kept, **options}
    whole = dt.solve(TASKS[name], X, y, **call | {"checkpoint": every_epoch(tmp_path / "other")})
    stopped(TASKS[name], X, y, 5, **call)
    resumed = dt.solve(TASKS[name], X, y, **call)
    assert_same_run(resumed, whole)
    assert np.array_equal(resumed.scale, whole.scale)


def test_a_checkpoint_belongs_to_the_scale_it_was_made_with(tmp_path: Path) -> None:
    X, y = data_of("least squares", np.ones(D))
    path = tmp_path / "run.ckpt"
    for made in (True, False):
        path.unlink(missing_ok=True)
        options: Any = {"checkpoint": every_epoch(path), **DFW}
        solve("least squares", X, y, standardize=made, **options)
        words = f"standardize was {made} and is {not made}"
        with pytest.raises(dt.CheckpointError, match=words):
            solve("least squares", X, y, standardize=not made, **options)
    # One that was written before there was a choice is of a run without.
    header, arrays = read_container(path, "checkpoint")
    del header["identity"]["standardize"]
    write_container(path, "checkpoint", header, arrays)
    longer = options | {"max_iter": 2 * DFW["max_iter"]}
    with pytest.raises(dt.CheckpointError, match="standardize was False and is True"):
        solve("least squares", X, y, standardize=True, **longer)
    resumed = solve("least squares", X, y, **longer)
    assert_same_run(resumed, solve("least squares", X, y, **longer | {"checkpoint": None}))


def test_a_file_keeps_the_scale(tmp_path: Path) -> None:
    X, y = data_of("least squares")
    result = solve("least squares", X, y, standardize=True, **DFW)
    result.save(tmp_path / "result")
    assert np.array_equal(dt.Result.load(tmp_path / "result").scale, result.scale)
    header, arrays = read_container(tmp_path / "result", "result")
    for wrong in (arrays["scale"][1:], np.full(D, np.nan)):
        write_container(tmp_path / "result", "result", header, arrays | {"scale": wrong})
        with pytest.raises(dt.ModelFormatError, match="its arrays"):
            dt.Result.load(tmp_path / "result")


# Refusals


def test_what_cannot_be_standardised_is_refused_before_any_work() -> None:
    class Custom(dt.Task[Any]):
        def stats(self, shard: Any, W: Any) -> Any: ...

        def update(self, state: Any, atom: Any, gamma: float) -> Any: ...

    X, y = data_of("least squares")
    options: Any = {"radius": 1.0, "engine": Untouched(), "solver": "dfw"}
    with pytest.raises(TypeError, match="standardize needs a task made of a loss on scores"):
        dt.solve(Custom(), X, y, standardize=True, **options)
    with pytest.raises(TypeError, match="standardize must be True or False, got 'yes'"):
        dt.solve(dt.LeastSquares(), X, y, standardize="yes", **options)  # type: ignore[arg-type]
    start = dt.LowRankMatrix.zeros((D, M + 1))
    with pytest.raises(ValueError, match="start must be finite and of shape"):
        dt.solve(dt.LeastSquares(), X, y, standardize=True, start=start, **options)


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
def test_a_variance_that_overflows_ends_the_run() -> None:
    X, y = data_of("multinomial", np.full(D, 1e200))
    with pytest.raises(ArithmeticError, match="a feature's variance is not finite"):
        solve("multinomial", X, y, standardize=True, **DFW)
