"""Checkpoints of other runs, and files that are none: one sentence, and nothing is overwritten."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from tests.files.checkpointed import assert_same_run, every_epoch, stopped

import dfwtrace as dt
from dfwtrace.files.checkpoint import settings_of
from dfwtrace.files.container import write_container
from dfwtrace.lmo import Constant, Power


class Pinched(dt.losses.Loss):
    """½ pinch (s - y)², a loss with a setting that its name does not tell."""

    name = "pinched"
    quadratic = True

    def __init__(self, pinch: Any) -> None:
        self.pinch = pinch
        self.smoothness = float(np.max(pinch))

    def check_targets(self, y: Any) -> Any:
        return y, y.shape[1]

    def evaluate(self, S: Any, y: Any, R: Any) -> float:
        np.multiply(S - y, self.pinch, out=R)
        return 0.5 * float(np.vdot(R, S - y))

    def curvature(self, S: Any, R: Any, D: Any) -> float:
        return float(np.vdot(D * self.pinch, D))


def harmonic(shift: float, t: int) -> float:
    return 2.0 / (t + 2.0 + shift)


ENGINE = dt.LocalEngine(3, 1)
X, Y, _ = dt.datasets.make_multitask(n=60, d=7, m=5, rank=3, noise=0.3, random_state=1)
LABELS = Y.argmax(axis=1)
GIVEN: dict[str, Any] = {
    "task": dt.LeastSquares(),
    "X": X,
    "y": Y,
    "radius": 3.0,
    "representation": "implicit",
    "engine": ENGINE,
    "solver": "dfw",
    "max_iter": 4,
}


def one_changed(array: Any, by: float = 1e-15) -> Any:
    changed = array.copy()
    changed[37, 2] += by
    return changed


CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "one number of X": ({"X": one_changed(X)}, "the rows of the shards have changed"),
    "one target": ({"y": one_changed(Y)}, "the rows of the shards have changed"),
    "the order of the rows": ({"X": X[::-1], "y": Y[::-1]}, "the rows of the shards have changed"),
    "fewer rows": ({"X": X[1:], "y": Y[1:]}, "the number of rows was 60 and is 59"),
    "a column less": ({"X": X[:, 1:]}, "the shape of W was [7, 5] and is [6, 5]"),
    "dtype": ({"X": X.astype(np.float32)}, "the precision of X was float64 and is float32"),
    "sparse": ({"X": sp.csr_array(X)}, "the rows of the shards have changed"),
    "radius": ({"radius": 3.0000000000000004}, "the radius was 3.0 and is 3.0000000000000004"),
    "seed": ({"random_state": 1}, "the seed was 0 and is 1"),
    "shards": ({"engine": dt.LocalEngine(4, 1)}, "the number of shards was 3 and is 4"),
    "solver": ({"solver": "accelerated"}, "the solver was FrankWolfe("),
    "lmo": ({"lmo": "power-2"}, "the solver was FrankWolfe(lmo=Power(schedule=Log("),
    "start of lmo": ({"lmo": Power(Constant(2), start="previous")}, "start='previous'"),
    "step": ({"step": "harmonic"}, "step=Harmonic()"),
    "form": ({"representation": "factored"}, "the representation was implicit and is factored"),
    "gram": ({"representation": "gram"}, "the representation was implicit and is gram"),
    "intercept": ({"fit_intercept": True}, "the intercept was False and is True"),
    "weights": (
        {"sample_weight": np.ones(60)},
        "the use of sample_weight was False and is True",
    ),
    "start": (
        {"start": dt.LowRankMatrix(np.ones((7, 1)) / 7, [1.0], np.ones((5, 1)) / 5)},
        "the start was zero and is a matrix of rank 1 (",
    ),
    "task": (
        {"task": dt.Multinomial(), "y": LABELS},
        "the task was SquaredLoss() and is MultinomialLoss(",
    ),
}


def solve(**given: Any) -> dt.Result:
    options = {**GIVEN, **given}
    return dt.solve(options.pop("task"), options.pop("X"), options.pop("y"), **options)


def refusal(path: Path, **given: Any) -> str:
    """Why the run does not go on from the file, which stays as it is."""
    before = path.read_bytes()
    with pytest.raises(dt.CheckpointError) as caught:
        solve(**given, checkpoint=every_epoch(path))
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith(".")
    return message


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A checkpoint of the run after epoch 2."""
    path = tmp_path_factory.mktemp("stopped") / "run.ckpt"
    stopped(dt.LeastSquares(), X, Y, 3, checkpoint=every_epoch(path), **rest(GIVEN))
    return path.read_bytes()


@pytest.fixture
def path(content: bytes, tmp_path: Path) -> Path:
    """The same, in a file that the test may do with as it likes."""
    path = tmp_path / "run.ckpt"
    path.write_bytes(content)
    return path


def rest(given: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name not in ("task", "X", "y")}


@pytest.mark.parametrize("what", CHANGES)
def test_another_run_is_refused(what: str, path: Path) -> None:
    changed, words = CHANGES[what]
    message = refusal(path, **changed)
    assert message.startswith(f"checkpoint {path} belongs to another run: the ")
    assert message.endswith("; delete it to start again.")
    assert words in message
    assert len(message) < 1000


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"step": 0.1}, {"step": 0.2}),
        ({"step": lambda t: 0.1}, {"step": lambda t: 0.2}),
        ({"step": lambda t: 1.0 / (t + 2)}, {"step": lambda t: 1.0 / (t + 1)}),
        ({"step": partial(harmonic, 1.0)}, {"step": partial(harmonic, 2.0)}),
        (
            {"task": dt.ScoresTask(Pinched(1.0))},
            {"task": dt.ScoresTask(Pinched(2.0))},
        ),
        (
            {"task": dt.ScoresTask(Pinched(np.linspace(1.0, 2.0, 5)))},
            {"task": dt.ScoresTask(Pinched(np.append(np.linspace(1.0, 2.0, 5)[:4], 2.5)))},
        ),
        ({"sample_weight": np.ones(60)}, {"sample_weight": np.arange(60.0)}),
        ({"lmo": Power(Constant(2))}, {"lmo": Power(Constant(3))}),
    ],
    ids=["constant", "lambda", "formula", "partial", "loss", "loss of arrays", "weights", "lmo"],
)
def test_settings_that_no_name_tells_are_seen(
    first: dict[str, Any], second: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "run.ckpt"
    expected = solve(**first, checkpoint=every_epoch(path))
    assert "belongs to another run" in refusal(path, **second)
    assert_same_run(solve(**first, checkpoint=every_epoch(path)), expected)


def test_what_does_not_matter_is_not_asked_for(path: Path) -> None:
    """The same run by another name, on other threads, with other limits."""
    same = {
        "lmo": Power(dt.lmo.Log(1.0)),
        "step": dt.LineSearch(),
        "X": np.asfortranarray(X),
        "engine": dt.LocalEngine(3, 2),
        "task": dt.LeastSquares(),
    }
    result = solve(**same, checkpoint=every_epoch(path), max_time=1e6, verbose=False)
    assert_same_run(result, solve())


def one_rule() -> Any:
    class Rule:
        def gamma(self, t: int) -> float:
            return 2.0 / (t + 2.0)

    return Rule()


def another_rule() -> Any:
    class Rule:
        def gamma(self, t: int) -> float:
            return 1.0 / (t + 2.0)

    return Rule()


@dataclass
class Settings:
    numbers: Any
    inner: Any = None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (0.0, -0.0),
        ("1", 1),
        ([1, 2], (1, 2)),
        ({"a": 1}, {"a": 2}),
        ({1, 2}, {1, 3}),
        (np.zeros(2000), np.append(np.zeros(1999), 1e-300)),
        (np.zeros(4), np.zeros((2, 2))),
        (np.zeros(4), np.zeros(4, np.float32)),
        (np.array([1, "a"], dtype=object), np.array([1, "b"], dtype=object)),
        (Settings(1), Settings(2)),
        (Settings(1, Settings([np.ones(3)])), Settings(1, Settings([np.zeros(3)]))),
        (harmonic, partial(harmonic, 1.0)),
        (Settings(1).__eq__, Settings(2).__eq__),
        (one_rule().gamma, another_rule().gamma),
        ("x" * 1000 + "a", "x" * 1000 + "b"),
    ],
)
def test_objects_are_told_apart_by_what_is_in_them(one: Any, other: Any) -> None:
    assert settings_of(one) == settings_of(one)
    assert settings_of(one) != settings_of(other)
    assert len(settings_of(one)) < 400
    assert " at 0x" not in settings_of(one)


def test_a_set_is_the_same_in_whatever_order_its_objects_lie_in_memory() -> None:
    class Part:
        def __init__(self, number: int) -> None:
            self.number = number

    parts = [Part(k) for k in range(20)]
    again = [Part(k) for k in reversed(range(20))]
    assert settings_of(set(parts)) == settings_of(set(again))


def test_an_object_that_holds_itself_is_told() -> None:
    ring = Settings(1)
    ring.inner = [ring]
    assert settings_of(ring) == "Settings(numbers=1, inner=list(…))"
    assert settings_of(object()) == "<object object>"


# Files that are none


def test_a_model_is_not_a_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    write_container(path, "model", {"radius": 3.0}, {"U": np.ones((2, 1))})
    assert refusal(path) == f"{path} holds a model, not a checkpoint: dfwtrace.load reads it."


@pytest.mark.parametrize("content", [b"", b"x", b"PK\x03\x04" + bytes(100), b"a,b\n1,2\n" * 100])
def test_a_foreign_file_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(content)
    assert refusal(path).startswith(f"{path} is ")


class NotToBeLookedAt:
    """Data that no refused call may touch."""

    def __array__(self, *args: Any, **options: Any) -> Any:
        raise AssertionError("the data were looked at")


def test_files_that_are_none_are_refused_before_the_data_are_looked_at(tmp_path: Path) -> None:
    with pytest.raises(dt.CheckpointError, match=r"is a folder, .* not a regular file\."):
        solve(X=NotToBeLookedAt(), checkpoint=tmp_path)
    (tmp_path / "a.txt").write_text("hello, this is no checkpoint")
    with pytest.raises(dt.CheckpointError, match=r"a\.txt is not a safetensors file"):
        solve(X=NotToBeLookedAt(), checkpoint=tmp_path / "a.txt")
    assert os.listdir(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("name", ["missing/run.ckpt", "missing/more/run.ckpt", "file/run.ckpt"])
def test_a_folder_that_is_not_there_is_refused_before_any_work(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        OSError, match=r"run\.ckpt cannot be written: (there is no folder|Not a directory)"
    ) as caught:
        solve(X=NotToBeLookedAt(), checkpoint=tmp_path / name)
    assert str(tmp_path / name) in str(caught.value)
    assert os.listdir(tmp_path) == ["file"]


def test_a_link_to_a_file_that_is_to_be(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link = tmp_path / "run.ckpt"
    link.symlink_to(tmp_path / "there" / "run.ckpt")
    stopped(dt.LeastSquares(), X, Y, 3, checkpoint=every_epoch(link), **rest(GIVEN))
    assert link.is_symlink()
    assert_same_run(solve(checkpoint=every_epoch(link)), solve())
    link.unlink()
    link.symlink_to(tmp_path / "nowhere" / "run.ckpt")
    with pytest.raises(OSError, match="there is no folder"):
        solve(checkpoint=link)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"path": 3}, TypeError, "checkpoint must be a path, got 3."),
        ({"path": None}, TypeError, "checkpoint must be a path, got None."),
        ({"path": "a", "epochs": 0}, ValueError, "epochs must be a whole number of at least 1"),
        ({"path": "a", "epochs": 1.5}, ValueError, "epochs must be a whole number of at least 1"),
        ({"path": "a", "epochs": True}, ValueError, "epochs must be a whole number of at least 1"),
        ({"path": "a", "seconds": 0.0}, ValueError, "seconds must be a finite number above 0"),
        ({"path": "a", "seconds": np.nan}, ValueError, "seconds must be a finite number above 0"),
        ({"path": "a", "seconds": "9"}, TypeError, "seconds must be a number, got '9'."),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error) as caught:
        dt.Checkpoint(**arguments)
    assert words in str(caught.value)


def test_a_checkpoint_must_be_a_path() -> None:
    with pytest.raises(TypeError, match="checkpoint must be a path, got 7"):
        solve(X=NotToBeLookedAt(), checkpoint=7)


def test_what_a_callback_says_must_be_such_that_it_can_be_kept(tmp_path: Path) -> None:
    for value in (object(), np.float16(1.0), {1: 2}, np.array(["a"]), 1j):
        with pytest.raises(TypeError, match="a checkpoint holds numbers, text and arrays, but"):
            solve(
                checkpoint=every_epoch(tmp_path / "run.ckpt"),
                callback=lambda W, record, value=value: {"x": value},
            )
    assert os.listdir(tmp_path) == []
