"""Files that an earlier version wrote: models load, checkpoints are refused by name."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from sklearn.base import is_classifier

import dfwtrace as dt
from dfwtrace.files.container import read_container

FOLDER = Path(__file__).parent / "written-by-0.1.0.dev0"
MODELS = sorted(path.stem for path in FOLDER.glob("*.safetensors"))
# The first feature, of those that were fitted to a frame.
NAMES = {"regressor-names": "höhe 0", "regressor-cv": "höhe 0", "classifier-two": "a"}
CHECKPOINTS = sorted(path.stem for path in FOLDER.glob("*.ckpt"))


@pytest.fixture(scope="module")
def expected() -> dict[str, Any]:
    with np.load(FOLDER / "expected.npz") as file:
        return dict(file)


def test_there_are_files_of_every_kind() -> None:
    assert (len(MODELS), len(CHECKPOINTS)) == (8, 4)


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize("name", MODELS)
def test_a_model_predicts_as_it_did(name: str, expected: dict[str, Any]) -> None:
    model = dt.load(FOLDER / f"{name}.safetensors")
    X = expected["classification/X" if is_classifier(model) else "regression/X"]
    X = X.astype(np.float32) if "float32" in name else X
    checked = 0
    for key, value in expected.items():
        owner, _, attribute = key.partition("/")
        if owner != name:
            continue
        found = getattr(model, attribute)
        found = np.asarray(found(X) if callable(found) else found)
        assert found.shape == value.shape
        if value.dtype.kind in "Ub":
            assert np.array_equal(found.astype(value.dtype), value)
        else:  # another processor may round a product differently
            assert found.dtype == value.dtype
            rounding = 50 * np.finfo(value.dtype).eps
            np.testing.assert_allclose(found, value, rtol=rounding, atol=rounding)
        checked += 1
    assert checked >= 4
    written = load_file(FOLDER / f"{name}.safetensors")
    for factor in ("U", "s", "V"):  # to the last bit
        assert getattr(model.low_rank_, factor).tobytes() == written[factor].tobytes()
    if model.fit_intercept:
        assert model.result_.intercept.tobytes() == written["intercept"].tobytes()
    names = getattr(model, "feature_names_in_", None)
    assert (None if names is None else names[0]) == NAMES.get(name)


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_checkpoint_names_the_version_that_wrote_it(name: str) -> None:
    path = FOLDER / f"{name}.ckpt"
    before = path.read_bytes()
    with pytest.raises(dt.CheckpointError) as caught:
        dt.solve(
            dt.LeastSquares(), None, radius=1.0, checkpoint=path
        )  # before the data are examined
    message = str(caught.value)
    assert message.startswith(f"{path} was written by dfwtrace 0.1.0.dev0 ")
    assert message.endswith("; start again without it or use that version.")
    assert path.read_bytes() == before


def test_the_former_module_of_containers_still_works() -> None:
    sys.modules.pop("dfwtrace.io.container", None)
    with pytest.warns(DeprecationWarning, match=r"use dfwtrace\.files\.container\.$"):
        former = import_module("dfwtrace.io.container")
    assert former.read_container is read_container
