"""Fitted estimators as ONNX graphs: two matrix products, a sum and, for classes, a softmax."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from dfwtrace._typing import Array
from dfwtrace.estimators.base import TraceNormEstimator

# Old enough for any runtime of recent years; the first in which Softmax works along one axis. And
# the version of the file format that came with it.
_OPSET, _IR_VERSION = 13, 7


def to_onnx(estimator: TraceNormEstimator) -> Any:
    """Return a fitted estimator as an `onnx.ModelProto`; see `TraceNormRegressor.to_onnx`."""
    check_is_fitted(estimator)
    try:
        import onnx
    except ImportError as error:
        raise ImportError("to_onnx needs onnx: pip install 'dfwtrace[onnx]'.") from error
    from onnx import TensorProto, helper, numpy_helper

    left, right, b = estimator._factors(np.dtype(np.float32))
    if left.shape[1] == 0:  # not every runtime multiplies by a matrix without columns
        left, right = np.zeros((len(left), 1), np.float32), np.zeros((1, len(b)), np.float32)
    constants = {"left": left, "right": right, "intercept": b}
    node, output = helper.make_node, helper.make_tensor_value_info
    last = "scores" if is_classifier(estimator) or estimator._one_target else "prediction"
    nodes = [
        node("MatMul", ["X", "left"], ["projected"]),
        node("MatMul", ["projected", "right"], ["products"]),
        node("Add", ["products", "intercept"], [last]),
    ]
    outputs = [output("prediction", TensorProto.FLOAT, ["n", len(b)])]
    if is_classifier(estimator):
        constants["classes"] = _plain_labels(estimator.classes_)
        label_type = helper.np_dtype_to_tensor_dtype(constants["classes"].dtype)
        nodes += [
            node("Softmax", ["scores"], ["probabilities"], axis=1),
            node("ArgMax", ["scores"], ["best"], axis=1, keepdims=0),
            node("Gather", ["classes", "best"], ["label"]),
        ]
        probabilities = output("probabilities", TensorProto.FLOAT, ["n", len(b)])
        outputs = [output("label", label_type, ["n"]), probabilities]
    elif estimator._one_target:
        constants["column"] = np.array([1], np.int64)
        nodes.append(node("Squeeze", ["scores", "column"], ["prediction"]))
        outputs = [output("prediction", TensorProto.FLOAT, ["n"])]
    X = output("X", TensorProto.FLOAT, ["n", len(left)])
    arrays = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, type(estimator).__name__, [X], outputs, arrays)
    opsets = [helper.make_opsetid("", _OPSET)]
    model = helper.make_model(
        graph, producer_name="dfwtrace", opset_imports=opsets, ir_version=_IR_VERSION
    )
    onnx.checker.check_model(model)
    return model


def _plain_labels(classes: Array) -> Array:
    """Labels of a type that runtimes know: strings, int64 or float64."""
    if classes.dtype.kind in "OUS":
        return np.array([str(label) for label in classes], dtype=object)
    return classes.astype(np.float64 if classes.dtype.kind == "f" else np.int64)
