"""Model files as the command line writes and reads them: with the names of the targets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dfwtrace import ModelFormatError
from dfwtrace.cli.guard import CommandError
from dfwtrace.io.container import read_container

_KIND = "model"


class Model(NamedTuple):
    """A fitted estimator and what the command line knows about it.

    Attributes
    ----------
    estimator : TraceNormRegressor, TraceNormClassifier, …CV
        Without names of its own: rows are brought into its order before.
    feature_names : list of str, or None
    target : list of str, or None
        What ``--target`` said when it was fitted.
    target_names : list of str, or None
        One for each column of targets.
    """

    estimator: Any
    feature_names: list[str] | None = None
    target: list[str] | None = None
    target_names: list[str] | None = None

    @property
    def classifies(self) -> bool:
        return hasattr(self.estimator, "classes_")

    @property
    def task(self) -> str:
        return "classification" if self.classifies else "regression"

    @property
    def n_features(self) -> int:
        return int(self.estimator.low_rank_.shape[0])

    @property
    def kind(self) -> str:
        return type(self.estimator).__name__


def save_model(model: Model, path: Path) -> None:
    """Write a model that `load_model` and `dfwtrace.load` read, whole or not at all."""
    from dfwtrace.estimators.saving import save

    estimator = model.estimator
    estimator.n_features_in_ = model.n_features
    if model.feature_names is not None:
        estimator.feature_names_in_ = np.array(model.feature_names, dtype=object)
    try:
        save(estimator, path, {"target": model.target, "target_names": model.target_names})
    finally:
        vars(estimator).pop("feature_names_in_", None)


def load_model(path: Path) -> Model:
    """Read a model, from the command line or from Python."""
    from dfwtrace.estimators import load

    try:
        estimator = load(path)
        notes = read_container(path, _KIND).header.get("notes")
    except FileNotFoundError as error:
        raise CommandError(f"{path} is not there.") from error
    except (OSError, ModelFormatError) as error:
        raise CommandError(_about(error, path)) from error
    notes = notes if isinstance(notes, dict) else {}
    names = vars(estimator).pop("feature_names_in_", None)
    width = None if hasattr(estimator, "classes_") else int(estimator.low_rank_.shape[1])
    return Model(
        estimator,
        None if names is None else [str(name) for name in names],
        _texts(notes.get("target")),
        _texts(notes.get("target_names"), width),
    )


def _texts(value: Any, width: int | None = None) -> list[str] | None:
    """A list of texts as a file should have it; None for anything else."""
    if not isinstance(value, Sequence) or isinstance(value, str):
        return None
    if not all(isinstance(item, str) for item in value) or width not in (None, len(value)):
        return None
    return list(value)


def _about(error: Exception, path: Path) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{path} cannot be read: {error.strerror.rstrip('.').lower()}."
    return " ".join(str(error).split())
