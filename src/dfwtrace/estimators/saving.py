"""Fitted estimators in files, of arrays and JSON and nothing that could run, and as ONNX graphs."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from dfwtrace._typing import Array
from dfwtrace.estimators.base import Named, TraceNormEstimator
from dfwtrace.estimators.cv import TraceNormClassifierCV, TraceNormRegressorCV
from dfwtrace.estimators.linear import TraceNormClassifier, TraceNormRegressor
from dfwtrace.files.container import Container, plain, read_container, whole, write_container
from dfwtrace.result import pack, unpack
from dfwtrace.validation import describe

# Settings that hold objects of this process, or belong to the fit alone.
_LEFT_OUT = {"engine", "lmo", "step", "checkpoint", "random_state"}
# What an estimator that has searched for its radius knows besides; its path is not written.
_OF_SEARCH = ("radii_", "validation_", "scores_")
_KINDS = (TraceNormClassifier, TraceNormClassifierCV, TraceNormRegressor, TraceNormRegressorCV)
_ESTIMATORS: dict[str, type[TraceNormEstimator]] = {kind.__name__: kind for kind in _KINDS}
# By the kind of a dtype, what its values are in JSON.
_LABELS = {"O": str, "U": str, "S": str, "b": bool, "i": int, "u": int, "f": float}


def save(
    estimator: TraceNormEstimator, path: str | os.PathLike[str], notes: Named | None = None
) -> None:
    """Write a fitted estimator; `load` reads it. Notes are kept in the header."""
    name = type(estimator).__name__
    if type(estimator) not in _KINDS:  # it might predict differently
        raise TypeError(f"{name} cannot be saved: it must be one of {', '.join(_ESTIMATORS)}.")
    check_is_fitted(estimator)
    known, (of_result, arrays) = vars(estimator), pack(estimator.result_)
    arrays |= {key: np.asarray(known[key], np.float64) for key in _OF_SEARCH if key in known}
    names, params = known.get("feature_names_in_"), estimator.get_params(deep=False)
    settings = plain({key: value for key, value in params.items() if key not in _LEFT_OUT})
    if np.ndim(params.get("radii")):
        settings["radii"] = [float(radius) for radius in params["radii"]]
    header = {
        "notes": dict(notes or {}),
        "estimator": name,
        "settings": settings,
        "n_features": int(estimator.n_features_in_),
        "feature_names": None if names is None else [str(feature) for feature in names],
        "classes": _pack_labels(known["classes_"]) if is_classifier(estimator) else None,
        "one_target": bool(known.get("_one_target", False)),
        **of_result,
    }
    write_container(path, "model", header, arrays)


def load(path: str | os.PathLike[str]) -> Any:
    """Read an estimator that was written with its `save`.

    Nothing in the file is run. Settings that hold objects, such as an engine, a splitter or a
    dictionary of class weights, are at their defaults; a search's `path_` is missing.

    Parameters
    ----------
    path : str or path-like
        The model file.

    Returns
    -------
    TraceNormRegressor, TraceNormClassifier, TraceNormRegressorCV or TraceNormClassifierCV
        The fitted estimator.

    Raises
    ------
    ModelFormatError
        The file is damaged or not a model.
    OSError
        The file is missing or may not be read.

    Examples
    --------
    >>> import tempfile, pathlib, numpy as np, dfwtrace as dt
    >>> X, y, _ = dt.datasets.make_multiclass(n=100, d=8, m=4, rank=2, random_state=0)
    >>> model = dt.TraceNormClassifier(radius=10.0).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "model.safetensors"
    ...     model.save(path)
    ...     again = dt.load(path)
    >>> bool(np.array_equal(again.predict_proba(X), model.predict_proba(X)))
    True
    """
    container = read_container(path, "model")
    with whole(path, "model"):
        return _restore(container)


def _restore(container: Container) -> TraceNormEstimator:
    header, arrays = container
    kind, settings = _ESTIMATORS.get(header["estimator"]), header["settings"]
    if kind is None:
        raise ValueError(f"it holds an unknown estimator, {describe(header['estimator'])}")
    # Only what `save` writes: not, say, a file that the next fit would write to.
    allowed = kind().get_params(deep=False).keys() - _LEFT_OUT
    if not isinstance(settings, dict) or not allowed >= settings.keys():
        raise ValueError("its settings are not those of its estimator")
    estimator: TraceNormEstimator = kind(**settings)
    result = unpack(header, arrays)
    d, m = result.W.shape
    if header["n_features"] != d:
        raise ValueError("its arrays do not fit together")
    if header["radius"] is None:
        raise ValueError("its radius is no number")
    names = header["feature_names"]
    if names is not None:
        if not isinstance(names, list) or len(names) != d or {type(n) for n in names} != {str}:
            raise ValueError(f"it has no names for its {d} features")
        estimator.feature_names_in_ = np.array(names, dtype=object)
    if is_classifier(estimator):
        estimator.classes_ = _unpack_labels(header["classes"], m)
    else:
        estimator._one_target = header["one_target"] is True
        if estimator._one_target and m != 1:
            raise ValueError(f"it has {m} targets, but its header says one")
    estimator._keep(result)
    estimator.__dict__.update({name: arrays[name] for name in _OF_SEARCH if name in arrays})
    return estimator


def _pack_labels(classes: Array) -> Named:
    kind = classes.dtype.kind
    if kind not in _LABELS or (kind == "O" and not all(isinstance(c, str) for c in classes)):
        raise TypeError(f"classes_ of {classes.dtype} cannot be written to a file.")
    dtype = "object" if kind == "O" else classes.dtype.str
    return {"dtype": dtype, "values": classes.astype(str if kind == "S" else object).tolist()}


def _unpack_labels(packed: Named, m: int) -> Array:
    values, dtype = packed["values"], packed["dtype"]
    if not isinstance(values, list) or len(values) != m:
        raise ValueError("its classes do not fit its coefficients")
    kind = "O" if dtype == "object" else np.dtype(dtype).kind
    if kind not in _LABELS or not all(type(value) is _LABELS[kind] for value in values):
        raise ValueError("its classes are not of the type that its header says")
    # Strings are as wide as they need be, whatever width the header says.
    classes: Array = np.array(values, {"O": object, "U": str, "S": bytes}.get(kind, dtype))
    if len(np.unique(classes)) != m:
        raise ValueError("its classes are not all different")
    return classes


def to_onnx(estimator: TraceNormEstimator) -> Any:
    """Return an `onnx.ModelProto`: two matrix products, a sum and, for classes, a softmax."""
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
        labels = estimator.classes_
        if labels.dtype.kind in "OUS":
            labels = np.array([str(label) for label in labels], dtype=object)
        else:  # to a type that every runtime knows
            labels = labels.astype(np.float64 if labels.dtype.kind == "f" else np.int64)
        constants["classes"], label_type = labels, helper.np_dtype_to_tensor_dtype(labels.dtype)
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
    # The first in which Softmax works along one axis, so that runtimes of many years know it.
    opsets = [helper.make_opsetid("", 13)]
    versions = {"opset_imports": opsets, "ir_version": 7}
    model = helper.make_model(graph, producer_name="dfwtrace", **versions)
    onnx.checker.check_model(model)
    return model
