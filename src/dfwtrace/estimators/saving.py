"""Fitted estimators in files: arrays and JSON, nothing that could run."""

from __future__ import annotations

import math
import os
from typing import Any, get_args

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from dfwtrace.io.container import Container, read_container, write_container
from dfwtrace.io.frame import ModelFormatError
from dfwtrace.linalg.lowrank import LowRankMatrix
from dfwtrace.result import History, Result, Status
from dfwtrace.tasks.planning import Plan, Workload
from dfwtrace.validation import describe

_KIND = "model"
# Settings that hold objects of this process, or belong to the fit alone.
_LEFT_OUT = ("engine", "lmo", "step", "checkpoint", "random_state")
# The arrays that predictions are made from; the last is not always there.
_NUMBERS = ("U", "s", "V", "intercept")
# What an estimator that has searched for its radius knows besides; its path is not written.
_OF_SEARCH = ("radii_", "validation_", "scores_")


def save(estimator: Any, path: str | os.PathLike[str], notes: dict[str, Any] | None = None) -> None:
    """Write a fitted estimator; `load` reads it. Notes are kept for those who look for them."""
    _check_kind(estimator)
    check_is_fitted(estimator)
    result: Result = estimator.result_
    W = result.W
    arrays = {"U": W.U, "s": W.s, "V": W.V}
    if result.intercept is not None:
        arrays["intercept"] = result.intercept
    for name in _OF_SEARCH:
        if hasattr(estimator, name):
            arrays[name] = np.asarray(getattr(estimator, name), np.float64)
    header = {
        "notes": dict(notes or {}),
        "estimator": type(estimator).__name__,
        "settings": _settings(estimator),
        "n_features": int(estimator.n_features_in_),
        "feature_names": _names(estimator),
        "classes": _pack_labels(getattr(estimator, "classes_", None)),
        "one_target": bool(getattr(estimator, "_one_target", False)),
        "radius": float(estimator.radius_),
        "objective": float(result.objective),
        "objective_at_zero": float(result.objective_at_zero),
        "gap": float(result.gap),
        "status": result.status,
        "history": [_plain(record) for record in result.history],
        "plan": _pack_plan(result.plan),
    }
    write_container(path, _KIND, header, arrays)


def load(path: str | os.PathLike[str]) -> Any:
    """Read an estimator that was written with its `save`.

    Nothing in the file is run. Settings that hold objects, such as an engine, a splitter or a
    dictionary of class weights, are at their defaults; a search's `path_` is not there.

    Parameters
    ----------
    path : str or path

    Returns
    -------
    TraceNormRegressor, TraceNormClassifier, TraceNormRegressorCV or TraceNormClassifierCV

    Examples
    --------
    >>> import tempfile, pathlib, numpy as np, dfwtrace as dt
    >>> X, y, _ = dt.datasets.make_multiclass(n=100, d=8, m=4, rank=2, seed=0)
    >>> model = dt.TraceNormClassifier(radius=10.0).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "model.safetensors"
    ...     model.save(path)
    ...     again = dt.load(path)
    >>> bool(np.array_equal(again.predict_proba(X), model.predict_proba(X)))
    True
    """
    container = read_container(path, _KIND)
    try:
        return _restore(container)
    except KeyError as error:
        raise ModelFormatError(f"{os.fspath(path)} is not a whole model: no {error}.") from error
    except Exception as error:  # whatever can be wrong in a file that others may have made
        why = str(error).rstrip(".")
        raise ModelFormatError(f"{os.fspath(path)} is not a whole model: {why}.") from error


def _restore(container: Container) -> Any:
    header, arrays = container
    kind = _kinds().get(header["estimator"])
    if kind is None:
        raise ValueError(f"it holds an unknown estimator, {describe(header['estimator'])}")
    estimator = kind(**_checked_settings(kind, header["settings"]))
    W = LowRankMatrix(arrays["U"], arrays["s"], arrays["V"])
    intercept = arrays.get("intercept")
    d, m = W.shape
    if header["n_features"] != d or (intercept is not None and intercept.shape != (m,)):
        raise ValueError("its arrays do not fit together")
    if not all(np.isfinite(arrays[key]).all() for key in _NUMBERS if key in arrays):
        raise ValueError("its arrays must be finite, but hold NaN or infinity")
    if header["feature_names"] is not None:
        estimator.feature_names_in_ = _unpack_names(header["feature_names"], d)
    if is_classifier(estimator):
        estimator.classes_ = _unpack_labels(header["classes"], m)
    else:
        estimator._one_target = header["one_target"] is True
        if estimator._one_target and m != 1:
            raise ValueError(f"it has {m} targets, where one was told of")
    result = Result(
        W,
        _number(header, "objective"),
        _number(header, "gap"),
        _unpack_status(header["status"]),
        _unpack_history(header["history"]),
        _number(header, "objective_at_zero"),
        None,
        _unpack_plan(header["plan"]),
        History(),
        intercept,
    )
    estimator._restore(result, _number(header, "radius"))
    for name in _OF_SEARCH:
        if name in arrays:
            setattr(estimator, name, arrays[name])
    return estimator


def _kinds() -> dict[str, Any]:
    """The estimators that a file can hold, by name."""
    from dfwtrace import estimators

    return {
        name: getattr(estimators, name)
        for name in estimators.__all__
        if name.startswith("TraceNorm")
    }


def _check_kind(estimator: Any) -> None:
    """A class that is derived from one of them may predict otherwise, which no file would tell."""
    kind = type(estimator)
    if _kinds().get(kind.__name__) is not kind:
        raise TypeError(
            f"{kind.__name__} cannot be saved: a model file holds dfwtrace's own estimators, not "
            "classes derived from them."
        )


def _checked_settings(kind: Any, settings: Any) -> dict[str, Any]:
    """Settings that `save` would have written: not, say, a file that the next fit writes to."""
    allowed = set(kind._get_param_names()).difference(_LEFT_OUT)
    if not isinstance(settings, dict) or not allowed.issuperset(settings):
        raise ValueError("its settings are not those of its estimator")
    return settings


def _number(header: dict[str, Any], name: str) -> float:
    value = header[name]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"its {name} is no number")
    return float(value)


def _settings(estimator: Any) -> dict[str, Any]:
    """The parameters that a file can hold: numbers, strings, and the list of radii."""
    kept: dict[str, Any] = {}
    for name, value in estimator.get_params(deep=False).items():
        if name in _LEFT_OUT:
            continue
        if isinstance(value, np.generic):
            value = value.item()
        if name == "radii" and np.ndim(value):
            kept[name] = [float(radius) for radius in value]
        elif value is None or isinstance(value, bool | int | float | str):
            kept[name] = value
    return kept


def _names(estimator: Any) -> list[str] | None:
    names = getattr(estimator, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def _pack_labels(classes: Any) -> dict[str, Any] | None:
    if classes is None:
        return None
    kind = classes.dtype.kind
    if kind not in "OUSbiuf" or (kind == "O" and not all(isinstance(c, str) for c in classes)):
        raise TypeError(f"classes_ of {classes.dtype} cannot be written to a file.")
    dtype = "object" if kind == "O" else classes.dtype.str
    return {"dtype": dtype, "values": classes.astype(str if kind == "S" else object).tolist()}


def _unpack_labels(packed: Any, m: int) -> Any:
    values, dtype = packed["values"], packed["dtype"]
    if not isinstance(values, list) or len(values) != m:
        raise ValueError("its classes do not fit its coefficients")
    kind = "O" if dtype == "object" else np.dtype(dtype).kind
    of_kind = {"O": str, "U": str, "S": str, "b": bool, "i": int, "u": int, "f": float}
    if kind not in of_kind or not all(type(value) is of_kind[kind] for value in values):
        raise ValueError("its classes are not of the kind that is told")
    # Strings are as wide as they need be, whatever width is told.
    wanted = {"O": object, "U": str, "S": bytes}.get(kind, dtype)
    classes = np.array(values, dtype=wanted)
    if len(np.unique(classes)) != m:
        raise ValueError("its classes are not all different")
    return classes


def _unpack_names(names: Any, d: int) -> Any:
    if not isinstance(names, list) or len(names) != d or not all(type(n) is str for n in names):
        raise ValueError(f"it has no names for its {d} features")
    return np.array(names, dtype=object)


def _unpack_status(status: Any) -> Status:
    if status not in get_args(Status):
        raise ValueError(f"it ended in an unknown way, {describe(status)}")
    known: Status = status
    return known


def _unpack_history(records: list[dict[str, Any]]) -> History:
    history = History()
    for record in records:
        history.append(record)
    return history


def _plain(record: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in record.items()
        if isinstance(value, bool | int | float | str | np.generic)
    }


def _pack_plan(plan: Plan) -> dict[str, Any]:
    workload = {name: _finite(value) for name, value in vars(plan.workload).items()}
    return {"representation": plan.representation, "reason": plan.reason, "workload": workload}


def _unpack_plan(packed: dict[str, Any]) -> Plan:
    return Plan(packed["representation"], packed["reason"], {}, Workload(**packed["workload"]))


def _finite(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    return value if not isinstance(value, float) or math.isfinite(value) else 0.0
