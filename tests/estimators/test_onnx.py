"""ONNX graphs say what the estimators say."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import onnx
import onnxruntime  # type: ignore[import-untyped]
import pytest
from sklearn.exceptions import NotFittedError

import dfwtrace as dt

# Few radii are tried here, on purpose.
pytestmark = pytest.mark.filterwarnings("ignore:The best radius:UserWarning")

Data = tuple[Any, Any]


def run(model: Any, X: Any) -> dict[str, Any]:
    """The graph's outputs by their names, after a way through bytes."""
    content = model.to_onnx().SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, {"X": X.astype(np.float32)}), strict=True))


LABELS = {
    "numbers": (np.array([-7, 100, 3, 0]), np.int64),
    "small numbers": (np.array([200, 3, 7, 0], dtype=np.uint8), np.int64),
    "strings": (np.array(["pear", "fig", "äpple", "plum"]), object),
    "objects": (np.array(["pear", "fig", "äpple", "plum"], dtype=object), object),
    "floats": (np.array([2.0, -1.0, 0.0, 9.0]), np.float64),
    "truths": (np.array([True, False, True, False]), np.int64),
}


@pytest.mark.parametrize(("labels", "dtype"), LABELS.values(), ids=LABELS)
def test_a_classifier_is_its_graph(labels: Any, dtype: Any, multiclass: Data) -> None:
    X, y = multiclass
    model = dt.TraceNormClassifier(5.0, tol=1e-2).fit(X, labels[y])
    for rows in (X, X[:1], X[:17]):  # any number of rows
        told = run(model, rows)
        assert set(told) == {"label", "probabilities"}
        assert told["probabilities"].dtype == np.float32
        np.testing.assert_allclose(
            told["probabilities"], model.predict_proba(rows), rtol=1e-4, atol=1e-6
        )
        assert told["label"].dtype == dtype
        assert np.array_equal(told["label"], model.predict(rows))


@pytest.mark.parametrize("intercept", [True, False])
def test_a_regressor_is_its_graph(intercept: bool, multitask: Data) -> None:
    X, Y = multitask
    for y in (Y, Y[:, :1], Y[:, 0]):
        model = dt.TraceNormRegressor(1.0, fit_intercept=intercept).fit(X, y)
        for rows in (X, X[:1]):
            told = run(model, rows)
            expected = model.predict(rows)
            assert set(told) == {"prediction"}
            assert told["prediction"].shape == expected.shape
            np.testing.assert_allclose(told["prediction"], expected, rtol=1e-4, atol=1e-5)


def test_searches_have_graphs_too(multitask: Data, multiclass: Data) -> None:
    model: Any = dt.TraceNormRegressorCV([0.5, 1.0], cv=2).fit(*multitask)
    told = run(model, multitask[0])["prediction"]
    np.testing.assert_allclose(told, model.predict(multitask[0]), rtol=1e-4, atol=1e-5)
    model = dt.TraceNormClassifierCV([5.0], cv=2, tol=1e-2).fit(*multiclass)
    assert np.array_equal(run(model, multiclass[0])["label"], model.predict(multiclass[0]))


def test_a_model_that_has_learnt_nothing_has_a_graph() -> None:
    X, y = np.random.default_rng(0).standard_normal((20, 3)), np.full(20, 2.0)
    model = dt.TraceNormRegressor().fit(X, y)
    assert model.low_rank_.rank == 0
    np.testing.assert_allclose(run(model, X)["prediction"], 2.0)


def test_a_graph_is_small_and_widely_understood(multiclass: Data) -> None:
    """The factors are multiplied one after the other; the dense matrix is not there."""
    X, y, _ = dt.datasets.make_multiclass(n=100, d=50, m=40, rank=1, random_state=0)
    model = dt.TraceNormClassifier(2.0, tol=1e-2).fit(X, y)
    assert model.low_rank_.rank < 20
    graph = model.to_onnx()
    onnx.checker.check_model(graph, full_check=True)
    assert [node.op_type for node in graph.graph.node].count("MatMul") == 2
    assert max(np.prod(array.dims) for array in graph.graph.initializer) < 50 * 40
    assert [(entry.domain, entry.version) for entry in graph.opset_import] == [("", 13)]
    assert graph.producer_name == "dfwtrace"


def test_only_fitted_models_have_graphs() -> None:
    with pytest.raises(NotFittedError):
        dt.TraceNormRegressor().to_onnx()


def test_without_onnx_one_sentence_says_so(
    multitask: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = dt.TraceNormRegressor(1.0).fit(*multitask)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(
        ImportError, match=r"^to_onnx needs onnx: pip install 'dfwtrace\[onnx\]'\.$"
    ):
        model.to_onnx()
