"""Model files: what is read is what was written, and a file that lies is refused."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import KFold

import dfwtrace as dt
from dfwtrace.files.container import read_container, write_container

# Few radii are tried here, on purpose.
pytestmark = pytest.mark.filterwarnings("ignore:The best radius:UserWarning")

Data = tuple[Any, Any]


def again(model: Any, folder: Path) -> Any:
    """The model, by way of a file."""
    model.save(folder / "model.safetensors")
    return dt.load(folder / "model.safetensors")


def assert_same(one: Any, other: Any, X: Any) -> None:
    assert type(one) is type(other)
    for method in ("predict", "transform", "predict_proba", "decision_function"):
        if hasattr(one, method):
            told, expected = getattr(one, method)(X), getattr(other, method)(X)
            assert np.array_equal(told, expected)
            assert told.dtype == expected.dtype
    assert np.array_equal(one.coef_, other.coef_)
    assert np.array_equal(one.intercept_, other.intercept_)
    for name in ("n_iter_", "radius_", "status_", "duality_gap_", "n_features_in_"):
        assert getattr(one, name) == getattr(other, name)
    for name in ("objective", "objective_at_zero", "message"):
        assert getattr(one.result_, name) == getattr(other.result_, name)
    np.testing.assert_array_equal(
        one.history_.column("objective"), other.history_.column("objective")
    )
    assert repr(one.result_) == repr(other.result_)


LABELS = {
    "str": np.array(["pear", "fig", "äpple", "plum"]),
    "object": np.array(["pear", "fig", "äpple", "plum"], dtype=object),
    "int": np.array([-7, 100, 3, 0]),
    "uint8": np.array([200, 3, 7, 0], dtype=np.uint8),
    "float": np.array([2.0, -1.0, 0.0, 9.0]),
    "float32": np.array([2.0, -1.0, 0.0, 9.0], dtype=np.float32),
    "bool": np.array([True, False, True, False]),
}


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
def test_a_classifier_comes_back(labels: Any, multiclass: Data, tmp_path: Path) -> None:
    X, y = multiclass
    model = dt.TraceNormClassifier(5.0, tol=1e-2, n_jobs=1).fit(X, labels[y])
    loaded = again(model, tmp_path)
    assert_same(loaded, model, X)
    assert np.array_equal(loaded.classes_, model.classes_)
    assert loaded.classes_.dtype == model.classes_.dtype
    assert loaded.get_params() == model.get_params()


@pytest.mark.parametrize("intercept", [True, False])
def test_a_regressor_comes_back(intercept: bool, multitask: Data, tmp_path: Path) -> None:
    X, Y = multitask
    for y in (Y, Y[:, :1], Y[:, 0]):
        model = dt.TraceNormRegressor(1.0, fit_intercept=intercept, n_jobs=1).fit(X, y)
        loaded = again(model, tmp_path)
        assert_same(loaded, model, X)
        assert loaded.predict(X).shape == y.shape
        assert type(loaded.intercept_) is type(model.intercept_)


def test_a_model_of_rank_zero_comes_back(tmp_path: Path) -> None:
    X, y = np.random.default_rng(0).standard_normal((20, 3)), np.ones(20)
    model = dt.TraceNormRegressor().fit(X, y)
    assert model.low_rank_.rank == 0
    assert_same(again(model, tmp_path), model, X)


@pytest.mark.parametrize(
    "settings",
    [
        {"radii": [0.5, 2.0], "cv": 2},
        {"radii": np.array([0.5, 2.0]), "cv": KFold(3)},
        {"radii": (0.5, 2), "cv": list(KFold(2).split(np.ones((60, 1))))},
        {"radii": 3, "scoring": "r2"},
        {"radii": np.int64(3), "scoring": lambda model, X, y: model.score(X, y)},
    ],
)
def test_a_search_comes_back(settings: Any, multitask: Data, tmp_path: Path) -> None:
    model = dt.TraceNormRegressorCV(tol=1e-2, **settings).fit(*multitask)
    loaded = again(model, tmp_path)
    assert_same(loaded, model, multitask[0])
    for name in ("radii_", "scores_", "validation_"):
        assert np.array_equal(getattr(loaded, name), getattr(model, name))
    assert np.array_equal(loaded.radii, model.radii)
    assert (loaded.tol, loaded.cv) == (1e-2, settings["cv"] if settings.get("cv") == 2 else None)
    clone(loaded).fit(*multitask)


def test_a_search_for_classes_comes_back(multiclass: Data, tmp_path: Path) -> None:
    model = dt.TraceNormClassifierCV([1.0, 5.0], cv=2, tol=1e-2).fit(*multiclass)
    assert_same(again(model, tmp_path), model, multiclass[0])


def test_names_of_features_come_back(multitask: Data, tmp_path: Path) -> None:
    X, Y = multitask
    frame = pd.DataFrame(X, columns=[f"höhe {k}" for k in range(7)])
    model = dt.TraceNormRegressor(1.0).fit(frame, Y)
    loaded = again(model, tmp_path)
    assert_same(loaded, model, frame)
    assert np.array_equal(loaded.feature_names_in_, model.feature_names_in_)
    with pytest.raises(ValueError, match="must be in the same order"):
        loaded.predict(frame[frame.columns[::-1]])


def test_objects_of_this_process_are_left_out(multiclass: Data, tmp_path: Path) -> None:
    model = dt.TraceNormClassifier(
        np.float64(5.0),
        tol=1e-2,
        class_weight={0: 2.0},
        engine=dt.LocalEngine(2),
        random_state=np.random.RandomState(0),
        checkpoint=tmp_path / "run.ckpt",
        max_iter=50,
    ).fit(*multiclass)
    loaded = again(model, tmp_path)
    assert_same(loaded, model, multiclass[0])
    for name in ("class_weight", "random_state", "checkpoint"):
        assert getattr(loaded, name) is None
    assert (loaded.engine, loaded.max_iter, loaded.radius) == ("local", 50, 5.0)


def test_a_loaded_model_can_be_saved_and_go_on(multitask: Data, tmp_path: Path) -> None:
    model = dt.TraceNormRegressor(1.0, warm_start=True, tol=1e-6).fit(*multitask)
    loaded = again(again(model, tmp_path), tmp_path)
    assert_same(loaded, model, multitask[0])
    assert loaded.fit(*multitask).n_iter_ < model.n_iter_


def test_labels_that_no_file_can_hold_are_refused(multiclass: Data, tmp_path: Path) -> None:
    X, y = multiclass
    model = dt.TraceNormClassifier(5.0, tol=1e-2).fit(X, y)
    model.classes_ = np.array([(1, 2), (3, 4), (5, 6), (7, 8)], dtype="i4,i4")
    with pytest.raises(TypeError, match=r"classes_ of .* cannot be written to a file\."):
        model.save(tmp_path / "model.safetensors")
    assert list(tmp_path.iterdir()) == []


class TraceNormClassifier(dt.TraceNormClassifier):
    """A class of one's own, of the same name."""


class Own(dt.TraceNormRegressorCV):
    """And one of another."""


def test_a_class_of_ones_own_is_not_saved(
    multiclass: Data, multitask: Data, tmp_path: Path
) -> None:
    path = tmp_path / "model.safetensors"
    path.write_text("old")
    fitted: list[Any] = [
        TraceNormClassifier(5.0, tol=1e-2).fit(*multiclass),
        Own([1.0], cv=2, tol=1e-2).fit(*multitask),
    ]
    for model in fitted:
        with pytest.raises(TypeError, match=rf"^{type(model).__name__} cannot be saved: .*\.$"):
            model.save(path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_an_unfitted_estimator_is_not_saved(tmp_path: Path) -> None:
    for model in (dt.TraceNormRegressor(), dt.TraceNormClassifierCV()):
        with pytest.raises(NotFittedError):
            model.save(tmp_path / "model.safetensors")
    assert list(tmp_path.iterdir()) == []


# Files that are not what they should be


@pytest.fixture(scope="module")
def saved(multiclass: Data, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a classifier with names."""
    path = tmp_path_factory.mktemp("saved") / "model.safetensors"
    X, y = multiclass
    frame = pd.DataFrame(X, columns=list("abcdefg"))
    dt.TraceNormClassifier(5.0, tol=1e-2).fit(frame, np.array(list("pqrs"))[y]).save(path)
    return path


def test_a_damaged_file_is_refused(saved: Path, tmp_path: Path) -> None:
    content = saved.read_bytes()
    path = tmp_path / "damaged.safetensors"
    middle = len(content) // 2
    flipped = [
        content[:k] + bytes([content[k] ^ 1]) + content[k + 1 :]
        for k in (9, 300, middle, len(content) - 1)
    ]
    for damaged in (b"", b"PK", content[:middle], content + b"\0", *flipped):
        path.write_bytes(damaged)
        with pytest.raises(dt.ModelFormatError) as caught:
            dt.load(path)
        assert str(caught.value).startswith(str(path))
        assert str(caught.value).endswith(".")
    with pytest.raises(FileNotFoundError):
        dt.load(tmp_path / "missing.safetensors")


def change(**news: Any) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    return lambda header, arrays: header.update(news)


def change_settings(**news: Any) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    return lambda header, arrays: header["settings"].update(news)


def change_arrays(**news: Any) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    return lambda header, arrays: arrays.update(news)


def classes(values: Any, dtype: Any = "<U1") -> Callable[[dict[str, Any], dict[str, Any]], None]:
    return change(classes={"values": values, "dtype": dtype})


HOSTILE = {
    "another name": change(estimator="os.system"),
    "a function": change(estimator="load"),
    "no name": change(estimator=None),
    "a list of names": change(estimator=["TraceNormClassifier"]),
    "a regressor": change(estimator="TraceNormRegressor", one_target=True),
    "unknown setting": change_settings(command="rm"),
    "a file to write to": change_settings(checkpoint="/tmp/victim"),
    "an engine": change_settings(engine="x"),
    "self": change_settings(self=1),
    "settings that are a list": change(settings=["radius"]),
    "too few classes": classes(["p", "q", "r"]),
    "too many classes": classes(list("pqrst")),
    "the same class twice": classes(list("pqrr")),
    "classes within classes": classes([["p"]] * 4),
    "numbers for strings": classes([1, 2, 3, 4]),
    "strings for numbers": classes(list("1234"), "<i8"),
    "halves for whole numbers": classes([0.5, 1.5, 2.5, 3.5], "<i8"),
    "numbers that do not fit": classes([1, 2, 3, 10**30], "<i8"),
    "objects": classes([{"a": 1}] * 4, "object"),
    "dates": classes(list("pqrs"), "<M8[D]"),
    "records": classes(list("pqrs"), "i4,i4"),
    "no dtype": classes(list("pqrs"), 3),
    "no classes": change(classes=None),
    "other features": change(n_features=8),
    "too few names": change(feature_names=["a"]),
    "names that are numbers": change(feature_names=[1, 2, 3, 4, 5, 6, 7]),
    "an unknown end": change(status="perfect"),
    "an end that is a list": change(status=["optimal"]),
    "a radius that is none": change(radius="five"),
    "an objective that is none": change(objective=None),
    "a history that is a number": change(history=3),
    "records that are numbers": change(history=[3]),
    "a plan that is a string": change(plan="gram"),
    "a plan with more": change(plan={"representation": "x", "reason": "y", "workload": {"z": 1}}),
    "U of another rank": change_arrays(U=np.ones((7, 9))),
    "U in one dimension": change_arrays(U=np.ones(7)),
    "U that is not finite": change_arrays(
        U=np.full((7, 1), np.nan), s=np.ones(1), V=np.ones((4, 1))
    ),
    "V of other classes": change_arrays(V=np.ones((5, 9))),
    "an intercept of another length": change_arrays(intercept=np.ones(5)),
    "an intercept that is not finite": change_arrays(intercept=np.full(4, np.inf)),
}


@pytest.mark.parametrize("lie", HOSTILE.values(), ids=HOSTILE)
def test_a_file_that_lies_is_refused(lie: Any, saved: Path, tmp_path: Path) -> None:
    header, arrays = copy.deepcopy(tuple(read_container(saved, "model")))
    lie(header, arrays)
    path = tmp_path / "lie.safetensors"
    write_container(path, "model", header, arrays)
    with pytest.raises(dt.ModelFormatError) as caught:
        dt.load(path)
    message = str(caught.value)
    assert message.startswith(f"{path} is not a whole model: ")
    assert message.endswith(".")
    assert not message.endswith("..")


def test_a_file_that_lacks_something_is_refused(saved: Path, tmp_path: Path) -> None:
    header, arrays = read_container(saved, "model")
    path = tmp_path / "part.safetensors"
    for name in set(header) - {"one_target", "notes"}:
        write_container(path, "model", {k: v for k, v in header.items() if k != name}, arrays)
        with pytest.raises(dt.ModelFormatError, match=rf"is not a whole model: no '{name}'\."):
            dt.load(path)
    for name in ("U", "s", "V"):
        write_container(path, "model", header, {k: v for k, v in arrays.items() if k != name})
        with pytest.raises(dt.ModelFormatError, match=rf"is not a whole model: no '{name}'\."):
            dt.load(path)


def test_a_regressor_with_more_targets_than_it_tells_is_refused(
    multitask: Data, tmp_path: Path
) -> None:
    path = tmp_path / "model.safetensors"
    dt.TraceNormRegressor(1.0).fit(*multitask).save(path)
    header, arrays = read_container(path, "model")
    write_container(path, "model", header | {"one_target": True}, arrays)
    with pytest.raises(dt.ModelFormatError, match="it has 5 targets, but its header says one"):
        dt.load(path)


def test_a_wide_string_type_takes_no_memory(saved: Path, tmp_path: Path) -> None:
    header, arrays = read_container(saved, "model")
    header["classes"]["dtype"] = "<U500000000"
    path = tmp_path / "wide.safetensors"
    write_container(path, "model", header, arrays)
    assert dt.load(path).classes_.nbytes == 16


def test_another_kind_of_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.safetensors"
    write_container(path, "checkpoint", {}, {})
    with pytest.raises(dt.ModelFormatError, match="holds a checkpoint, not a model"):
        dt.load(path)


def test_loading_runs_and_imports_nothing_that_the_file_names(saved: Path, tmp_path: Path) -> None:
    header, arrays = read_container(saved, "model")
    (tmp_path / "dfwtrace_trap.py").write_text("raise AssertionError('run')")
    path = tmp_path / "trap.safetensors"
    write_container(path, "model", header | {"estimator": "dfwtrace_trap.Trap"}, arrays)
    sys.path.insert(0, str(tmp_path))
    try:
        with pytest.raises(dt.ModelFormatError, match="unknown estimator"):
            dt.load(path)
    finally:
        sys.path.remove(str(tmp_path))
    assert "dfwtrace_trap" not in sys.modules


def test_a_save_that_fails_keeps_the_file(multiclass: Data, tmp_path: Path) -> None:
    X, y = multiclass
    path = tmp_path / "model.safetensors"
    model = dt.TraceNormClassifier(5.0, tol=1e-2).fit(X, y)
    model.save(path)
    before = path.read_bytes()
    other = dt.TraceNormClassifier(2.0, tol=1e-2).fit(X, y)
    other.classes_ = np.array([object()] * 4)
    with pytest.raises(TypeError, match="cannot be written"):
        other.save(path)
    with pytest.raises(NotFittedError):
        dt.TraceNormRegressor().save(path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["model.safetensors"]
    with pytest.raises(OSError, match="missing"):
        model.save(tmp_path / "missing" / "model.safetensors")
