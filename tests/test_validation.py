"""Bad input: one sentence that names the argument, before any work."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from tests.problems import Untouched

import dfwtrace as dt
from dfwtrace.validation import as_floating, check_features, check_targets

NAN, INF = float("nan"), float("inf")
X = np.arange(12.0).reshape(6, 2)
Y = np.ones((6, 3))
LABELS = np.array([0, 1, 2, 0, 1, 2])


def with_entry(array: Any, value: float, dtype: Any = np.float64) -> Any:
    changed = array.astype(dtype)
    changed[-1, -1] = value
    return changed


def labels_with(value: Any) -> Any:
    return np.array([0, 1, 2, 0, 1, value])


def sparse_with(value: float) -> Any:
    return sp.csr_array(with_entry(X, value))


def refusal(**changes: Any) -> str:
    """The message with which `solve` refuses a good call that has been changed for the worse."""
    call: Any = {"task": dt.LeastSquares(), "X": X, "y": Y, "radius": 1.0, "engine": Untouched()}
    call |= {"solver": "dfw", "max_iter": 3} | changes
    with pytest.raises((ValueError, TypeError)) as caught:
        dt.solve(call.pop("task"), call.pop("X"), call.pop("y"), **call)
    # LinAlgError and its like are ValueErrors too, but say nothing to whoever made the call.
    assert type(caught.value) in (ValueError, TypeError)
    return str(caught.value)


def assert_one_sentence_about(name: str, message: str) -> None:
    assert message.startswith(name) or f" {name} " in f" {message} "
    assert message.endswith(".")
    assert "\n" not in message
    assert len(message) < 200


def test_the_call_that_is_changed_below_is_a_good_one() -> None:
    for task, y in ((dt.LeastSquares(), Y), (dt.Multinomial(), LABELS)):
        assert dt.solve(task, X, y, radius=1.0, solver="dfw", max_iter=3).history


BAD_FEATURES = {
    "NaN": with_entry(X, NAN),
    "infinity": with_entry(X, INF),
    "minus infinity": with_entry(X, -INF),
    "both infinities": np.array([[INF], [-INF]] * 3),
    "float32 NaN": with_entry(X, NAN, np.float32),
    "float16 infinity": with_entry(X, INF, np.float16),
    "sparse NaN": sparse_with(NAN),
    "sparse infinity": sparse_with(-INF),
    "no rows": np.empty((0, 2)),
    "no columns": np.empty((6, 0)),
    "sparse without rows": sp.csr_array((0, 2)),
    "sparse without columns": sp.csr_array((6, 0)),
    "one dimension": np.ones(6),
    "sparse of one dimension": sp.coo_array(np.ones(6)),
    "three dimensions": np.ones((6, 2, 2)),
    "a number": 3.0,
    "nothing": None,
    "complex": X.astype(complex),
    "sparse complex": sp.csr_array(X.astype(complex)),
    "objects": X.astype(object),
    "strings": X.astype(str),
    "bytes": X.astype(bytes),
    "dates": np.zeros((6, 2), "datetime64[s]"),
    "records": np.zeros((6, 2), [("a", float)]),
    "a string": "X.csv",
    "a mapping": {"a": [1.0] * 6},
    "ragged rows": [[1.0, 2.0], [3.0]] * 3,
    "masked": np.ma.masked_array(X, mask=X > 3),
    "unmasked": np.ma.masked_array(X),
    "a generator": (row for row in X),
}


@pytest.mark.parametrize("kind", BAD_FEATURES)
def test_bad_features(kind: str) -> None:
    assert_one_sentence_about("X", refusal(X=BAD_FEATURES[kind]))


BAD_TARGETS = {
    "NaN": with_entry(Y, NAN),
    "infinity": with_entry(Y, INF),
    "minus infinity": with_entry(Y, -INF),
    "too few rows": Y[:-1],
    "too many rows": np.ones((7, 3)),
    "the transpose": Y.T,
    "no rows": np.empty((0, 3)),
    "no columns": np.empty((6, 0)),
    "three dimensions": np.ones((6, 3, 1)),
    "a number": 1.0,
    "nothing": None,
    "complex": Y.astype(complex),
    "objects": Y.astype(object),
    "strings": Y.astype(str),
    "ragged rows": [[1.0, 2.0], [3.0]] * 3,
    "masked": np.ma.masked_array(Y),
    "sparse": sp.csr_array(Y),
}


@pytest.mark.parametrize("kind", BAD_TARGETS)
@pytest.mark.parametrize("task", [dt.LeastSquares(), dt.Multinomial()])
def test_bad_targets(kind: str, task: Any) -> None:
    assert_one_sentence_about("y", refusal(task=task, y=BAD_TARGETS[kind]))


BAD_LABELS = {
    "two columns": np.column_stack([LABELS, LABELS]),
    "fractions": labels_with(1.5),
    "a negative one": labels_with(-1),
    "a negative float": labels_with(-1.0),
    "one class": np.zeros(6, int),
    "truth values": LABELS > 0,
    "strings": np.array(list("abcabc")),
    "NaN": labels_with(NAN),
    "infinity": labels_with(INF),
    "beyond all integers": labels_with(1e300),
    "unsigned beyond int64": labels_with(0).astype(np.uint64) + np.uint64(2**63) * (LABELS == 2),
}


@pytest.mark.parametrize("kind", BAD_LABELS)
def test_bad_labels(kind: str) -> None:
    assert_one_sentence_about("y", refusal(task=dt.Multinomial(), y=BAD_LABELS[kind]))


def test_a_label_beyond_the_classes_that_were_declared() -> None:
    message = refusal(task=dt.Multinomial(n_classes=2), y=LABELS)
    assert "2" in message
    assert_one_sentence_about("y", message)


NOT_NUMBERS = [None, "1", True, [1.0], np.array([1.0]), 1j, NAN]
BAD_ARGUMENTS = {
    "radius": [0, 0.0, -1.0, INF, -INF, 10**400, *NOT_NUMBERS],
    "max_iter": [-1, 0, 1.0, INF, *NOT_NUMBERS[1:]],
    "tol": [-1e-9, INF, *NOT_NUMBERS[1:]],
    "max_time": [0.0, -1.0, INF, *NOT_NUMBERS[1:]],
    "certify_every": [0, -1, 1.5, *NOT_NUMBERS[1:]],
    "random_state": [-1, 1.5, *NOT_NUMBERS[1:]],
    "solver": ["", "DFW", "fista", None, 3, True, ["dfw"], dt.solve],
    "lmo": ["", "power", "Power-1", "svd", 3, dt.lmo.Power, dt.lmo.Constant(2), lambda: None],
    "step": ["", "line", -0.1, 1.1, NAN, INF, True, [0.5], dt.LineSearch, dt.Harmonic],
    "representation": ["", "sparse", "Gram", None, 3, ["gram"]],
    "engine": ["local", "", 3, dt.LocalEngine, lambda: None],
    "task": ["least squares", "", None, 3, dt.LeastSquares, dt.losses.SquaredLoss(), lambda: None],
    "callback": [3, "print", [print]],
    "features": ["features", "", ["a", "b"], 3, ()],  # they name columns, and X is an array
    "label": ["label", "", ["a", "b"], 3, ()],
    "start": [
        np.zeros((2, 3)),
        0.0,
        dt.LowRankMatrix.zeros((3, 2)),
        dt.LowRankMatrix.zeros((2, 2)),
        dt.LowRankMatrix(np.eye(2)[:, :1], [1.001], np.eye(3)[:, :1]),
        dt.LowRankMatrix(np.eye(2), [0.6, 0.6], np.eye(3)[:, :2]),
        dt.LowRankMatrix(np.eye(2)[:, :1], [NAN], np.eye(3)[:, :1]),
        dt.LowRankMatrix(np.full((2, 1), INF), [1.0], np.eye(3)[:, :1]),
    ],
}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param(name, value, id=f"{name}-{k}")
        for name, values in BAD_ARGUMENTS.items()
        for k, value in enumerate(values)
    ],
)
def test_bad_arguments(name: str, value: Any) -> None:
    assert_one_sentence_about(name, refusal(**{name: value}))


@pytest.mark.parametrize("name", BAD_ARGUMENTS)
def test_an_array_where_none_belongs(name: str) -> None:
    assert_one_sentence_about(name, refusal(**{name: np.ones((30, 30))}))


@pytest.mark.parametrize(
    ("name", "value"), [("lmo", "power-2"), ("lmo", dt.lmo.Naive()), ("step", 0.5), ("step", "")]
)
def test_the_accelerated_solver_has_neither_an_oracle_nor_a_step(name: str, value: Any) -> None:
    message = refusal(solver="accelerated", **{name: value})
    assert_one_sentence_about(name, message)
    assert "'dfw'" in message


def test_a_representation_that_the_task_does_not_have() -> None:
    message = refusal(task=dt.Multinomial(), y=LABELS, representation="gram")
    assert_one_sentence_about("representation", message)
    assert "implicit" in message


@pytest.mark.parametrize("name", ["features", "label"])
def test_a_plan_refuses_names_of_columns_too(name: str) -> None:
    with pytest.raises(TypeError) as caught:
        dt.plan(dt.LeastSquares(), X, Y, **{name: "column"})
    assert_one_sentence_about(name, str(caught.value))
    assert "DataFrame" in str(caught.value)


def test_an_unknown_argument_is_not_swallowed() -> None:
    with pytest.raises(TypeError, match="raduis"):
        dt.solve(dt.LeastSquares(), X, Y, radius=1.0, raduis=2.0)  # type: ignore[call-arg]


def test_the_first_bad_row_is_named() -> None:
    bad = np.ones((100, 3))
    bad[41:, 1] = NAN
    assert "row 41" in refusal(X=bad, y=np.ones((100, 3)))
    assert "row 41" in refusal(X=np.ones((100, 3)), y=bad)


def test_large_finite_values_are_not_taken_for_infinity() -> None:
    # Their sum overflows, they do not.
    largest = np.finfo(np.float64).max
    for array in (np.full((4, 2), largest), sp.csr_array(np.full((4, 2), largest))):
        assert check_features(array) is array
    half = np.full((400, 2), np.finfo(np.float16).max, np.float16)
    assert check_targets(half, 400) is half


def test_good_features_are_not_copied() -> None:
    for good in (X, np.asfortranarray(X), X.astype(np.float32), sp.csr_array(X)):
        checked = as_floating(check_features(good))
        assert checked is good
    assert np.shares_memory(check_features(X[::2]), X)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (np.float16, np.float32),
        (np.float32, np.float32),
        (np.float64, np.float64),
        (np.longdouble, np.float64),
        (np.int8, np.float64),
        (np.uint64, np.float64),
        (bool, np.float64),
        (">f8", np.float64),
    ],
)
def test_precision_is_kept_where_it_can_be(given: Any, kept: Any) -> None:
    floating = as_floating(check_features(np.ones((2, 2), given)))
    assert floating.dtype == kept
    assert floating.dtype.isnative


def test_labels_far_beyond_the_rows_are_refused_unless_meant() -> None:
    labels = np.array([0, 1, 10**9])
    message = refusal(task=dt.Multinomial(), X=np.ones((3, 2)), y=labels)
    assert "n_classes" in message
    few = np.array([0, 1, 4999])
    result = dt.solve(
        dt.Multinomial(n_classes=5000), np.eye(3), few, radius=1.0, solver="dfw", max_iter=2
    )
    assert result.W.shape == (3, 5000)


def test_a_sparse_matrix_that_points_outside_is_refused() -> None:
    bad = sp.csr_array(np.eye(3))
    bad.indices[1] = 7
    assert_one_sentence_about("X", refusal(X=bad, y=np.ones((3, 3))))
