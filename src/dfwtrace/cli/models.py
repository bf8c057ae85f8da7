"""Model files as the command line writes and reads them: with the names of the targets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dfwtrace import ModelFormatError
from dfwtrace.cli.data import Wanted
from dfwtrace.cli.guard import CommandError
from dfwtrace.files.container import read_container

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
    array : str, or None
        The array of an .npz file that held the features.
    first_index : 0, 1 or None
        The number that an svmlight file gave its first column.
    """

    estimator: Any
    feature_names: list[str] | None = None
    target: list[str] | None = None
    target_names: list[str] | None = None
    array: str | None = None
    first_index: int | None = None

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
    def wanted(self) -> Wanted:
        """What it takes from other files."""
        return Wanted(
            self.feature_names,
            self.n_features,
            self.target,
            self.target_names,
            self.array,
            self.first_index,
        )

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
    kept = ("target", "target_names", "array", "first_index")
    try:
        save(estimator, path, {name: getattr(model, name) for name in kept})
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
    array, first_index = notes.get("array"), notes.get("first_index")
    return Model(
        estimator,
        None if names is None else [str(name) for name in names],
        _texts(notes.get("target")),
        _texts(notes.get("target_names"), width),
        array if isinstance(array, str) else None,
        first_index if type(first_index) is int and first_index in (0, 1) else None,
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
