"""Whole runs: every representation and memory layout walks through the same iterates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.problems import ENGINE, FORMS, LMOS, TASKS
from tests.truth import plain_frank_wolfe

import dfwtrace as dt
from dfwtrace.solvers.frank_wolfe import REBUILT_EVERY

LAYOUTS = ["C", "Fortran", "CSR", "memmap"]
RADIUS = {"least squares": 1.0, "multinomial": 20.0}
WIDTH = {"least squares": 5, "multinomial": 4}
EPOCHS = 14


@pytest.fixture
def data(multitask: tuple[Any, Any], multiclass: tuple[Any, Any]) -> dict[str, tuple[Any, Any]]:
    sparse = multitask[0].copy(), multiclass[0].copy()
    for X in sparse:
        X[np.abs(X) < 0.3] = 0.0
    return {"least squares": (sparse[0], multitask[1]), "multinomial": (sparse[1], multiclass[1])}


def lay_out(X: Any, layout: str, directory: Path) -> Any:
    if layout == "memmap":
        on_disk = np.memmap(directory / "X", dtype=X.dtype, mode="w+", shape=X.shape)
        on_disk[:] = X
        return on_disk
    return {"C": np.ascontiguousarray, "Fortran": np.asfortranarray, "CSR": sp.csr_array}[layout](X)


def run(task: str, X: Any, y: Any, **options: Any) -> tuple[dt.Result, list[Any]]:
    """The result and all iterates as dense arrays."""
    iterates: list[Any] = []
    result = dt.solve(
        TASKS[task],
        X,
        y,
        callback=lambda W, record: iterates.append(W.to_dense()),
        **{
            "radius": RADIUS[task],
            "solver": "dfw",
            "max_iter": EPOCHS,
            "engine": ENGINE,
            **options,
        },
    )
    return result, iterates


@pytest.mark.parametrize(("task", "form"), FORMS)
def test_iterates_are_those_of_plain_numpy(task: str, form: str, data: dict[str, Any]) -> None:
    X, y = data[task]
    options = {"representation": form, "lmo": "naive", "step": "harmonic"}
    result, iterates = run(task, X, y, **options)
    expected = plain_frank_wolfe(task, X, y, WIDTH[task], RADIUS[task], EPOCHS)
    np.testing.assert_allclose(iterates, expected, atol=1e-9 * RADIUS[task])
    np.testing.assert_allclose(result.W.to_dense(), expected[-1], atol=1e-9 * RADIUS[task])
    assert result.plan.representation == form


@pytest.mark.parametrize(("task", "form"), FORMS)
def test_a_compression_on_the_way_changes_nothing(
    task: str, form: str, data: dict[str, Any]
) -> None:
    X, y = data[task]
    epochs = REBUILT_EVERY + 5
    options = {"representation": form, "lmo": "naive", "step": "harmonic", "max_iter": epochs}
    result, iterates = run(task, X, y, **options)
    ranks = result.history.column("rank")
    assert ranks[REBUILT_EVERY - 2] > min(X.shape)  # atoms pile up, until they are merged
    assert ranks[REBUILT_EVERY - 1] <= min(X.shape)
    expected = plain_frank_wolfe(task, X, y, WIDTH[task], RADIUS[task], epochs)
    np.testing.assert_allclose(iterates, expected, atol=1e-7 * RADIUS[task])


@pytest.mark.parametrize(
    ("task", "lmo", "step"),
    [
        (task, lmo, ("linesearch", "harmonic")[(j + k) % 2])
        for j, task in enumerate(TASKS)
        for k, lmo in enumerate(LMOS)
    ],
)
def test_representations_agree_for_every_oracle_and_step(
    task: str, lmo: str, step: str, data: dict[str, Any]
) -> None:
    runs = {
        form: run(task, *data[task], representation=form, lmo=lmo, step=step)
        for form in TASKS[task].representations
    }
    reference, expected = runs["implicit"]
    for form, (result, iterates) in runs.items():
        np.testing.assert_allclose(iterates, expected, atol=1e-7 * RADIUS[task], err_msg=form)
        assert result.objective == pytest.approx(reference.objective, rel=1e-9), form
        assert result.gap == pytest.approx(reference.gap, rel=1e-6), form
        for W in iterates:
            assert np.linalg.norm(W, "nuc") <= RADIUS[task] * (1.0 + 1e-9), form


@pytest.mark.parametrize(
    ("task", "form", "layout", "dtype"),
    [
        (*form, layout, (np.float32, np.float64)[(j + k) % 2])
        for j, form in enumerate(FORMS)
        for k, layout in enumerate(LAYOUTS)
    ],
)
def test_layouts_and_precisions_agree(
    task: str, form: str, layout: str, dtype: Any, data: dict[str, Any], tmp_path: Path
) -> None:
    X, y = data[task]
    _, expected = run(task, X, y, representation=form)
    result, iterates = run(task, lay_out(X.astype(dtype), layout, tmp_path), y, representation=form)
    rounding = 1e-2 if dtype is np.float32 else 1e-8
    np.testing.assert_allclose(iterates, expected, atol=rounding * RADIUS[task])
    assert result.plan.workload.itemsize == np.dtype(dtype).itemsize
    assert result.plan.workload.sparse == (layout == "CSR")
    for W in iterates:
        assert np.linalg.norm(W, "nuc") <= RADIUS[task] * (1.0 + 1e-9)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(
    "convert",
    [
        lambda X: X.tolist(),
        lambda X: X.astype(">f8"),
        lambda X: X.astype(np.longdouble),
        lambda X: np.ascontiguousarray(X[::-1])[::-1],
        sp.csc_array,
        sp.coo_matrix,
    ],
)
def test_whatever_holds_the_same_numbers_gives_the_same_run(
    task: str, convert: Any, data: dict[str, Any]
) -> None:
    X, y = data[task]
    _, expected = run(task, X, y)
    _, iterates = run(task, convert(X), y)
    np.testing.assert_allclose(iterates, expected, atol=1e-8 * RADIUS[task])


@pytest.mark.parametrize(("task", "form"), FORMS)
def test_the_data_are_left_as_they_were(task: str, form: str, data: dict[str, Any]) -> None:
    X, y = (array.copy() for array in data[task])
    X.flags.writeable = y.flags.writeable = False
    run(task, X, y, representation=form)
    np.testing.assert_array_equal(X, data[task][0])
    np.testing.assert_array_equal(y, data[task][1])


@pytest.mark.parametrize(("task", "form"), FORMS)
def test_a_warm_start_goes_on_from_where_it_is(task: str, form: str, data: dict[str, Any]) -> None:
    options = {"representation": form, "lmo": "naive"}  # does not depend on the epoch's number
    whole, iterates = run(task, *data[task], **options)
    half, _ = run(task, *data[task], max_iter=EPOCHS // 2, **options)
    rest, later = run(task, *data[task], max_iter=EPOCHS // 2, start=half.W, **options)
    np.testing.assert_allclose(later, iterates[EPOCHS // 2 :], atol=1e-7 * RADIUS[task])
    assert rest.objective == pytest.approx(whole.objective, rel=1e-8)
    assert rest.objective_at_zero == pytest.approx(whole.objective_at_zero, rel=1e-12)


@settings(max_examples=30)
@given(
    st.sampled_from(FORMS),
    st.tuples(st.integers(1, 20), st.integers(1, 5), st.integers(1, 5)),
    st.integers(1, 30),
    st.sampled_from(LMOS[:-1]),  # SVA's answer depends on the shards by its nature
    st.booleans(),
)
def test_the_number_of_shards_does_not_matter(
    form: tuple[str, str], sizes: tuple[int, int, int], n_shards: int, lmo: str, sparse: bool
) -> None:
    task, representation = form
    n, d, m = sizes
    rng = np.random.default_rng([n, d, m])
    X = rng.standard_normal((n, d))
    y = rng.standard_normal((n, m)) if task == "least squares" else rng.integers(0, m, n)
    assume(task == "least squares" or len(np.unique(y)) > 1)
    results = []
    for count in (1, n_shards):
        engine = dt.LocalEngine(n_shards=count, n_jobs=1)
        data = sp.csr_array(X) if sparse else X
        options = {"representation": representation, "lmo": lmo, "engine": engine}
        results.append(run(task, data, y, max_iter=4, radius=1.5, **options))
    (one, iterates_of_one), (many, iterates_of_many) = results
    # At an exact optimum one run may see ∇F = 0 and end while the other sees its rounding.
    for pair in zip(iterates_of_many, iterates_of_one, strict=False):
        np.testing.assert_allclose(*pair, atol=1e-8)
    np.testing.assert_allclose(many.W.to_dense(), one.W.to_dense(), atol=1e-8)
    np.testing.assert_allclose(many.objective, one.objective, atol=1e-8)
    np.testing.assert_allclose(many.gap, one.gap, atol=1e-8)
    assert all(np.linalg.norm(W, "nuc") <= 1.5 * (1.0 + 1e-9) for W in iterates_of_many)
