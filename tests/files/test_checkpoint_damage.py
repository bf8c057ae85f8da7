"""Damaged checkpoints: refused in one sentence, and no run goes on from them."""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.files.checkpointed import assert_same_run, every_epoch, stopped

import dfwtrace as dt
from dfwtrace.files.checkpoint import Checkpoint, CheckpointFile, pack, resolve_checkpoint
from dfwtrace.files.container import read_container, write_container

X, Y, _ = dt.datasets.make_multitask(n=60, d=7, m=5, rank=3, noise=0.3, random_state=1)
OPTIONS: dict[str, Any] = {
    "radius": 3.0,
    "representation": "implicit",
    "engine": dt.LocalEngine(3, 1),
    "solver": "dfw",
    "max_iter": 4,
}


def refusal(path: Path) -> str:
    """Why the run does not go on from the file, which stays as it is."""
    before = path.read_bytes()
    with pytest.raises(dt.CheckpointError) as caught:
        dt.solve(dt.LeastSquares(), X, Y, checkpoint=every_epoch(path), **OPTIONS)
    assert path.read_bytes() == before
    return str(caught.value)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("whole") / "run.ckpt"
    stopped(dt.LeastSquares(), X, Y, 3, checkpoint=every_epoch(path), **OPTIONS)
    return path.read_bytes()


@pytest.fixture(scope="module")
def identity_and_memory(
    whole: bytes, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, Any], bytes]:
    """What the whole file says of its run, and the memory that it holds, as bytes."""
    path = tmp_path_factory.mktemp("read") / "run.ckpt"
    path.write_bytes(whole)
    header, arrays = read_container(path, "checkpoint")
    return header["identity"], fixed(header["memory"], arrays)


def fixed(packed: Any, arrays: Any) -> bytes:
    return repr(
        (packed, [(name, array.tobytes()) for name, array in sorted(arrays.items())])
    ).encode()


def refused_or_read_as_written(path: Path, content: bytes, known: tuple[Any, bytes]) -> bool:
    """Whether it is refused; if not, the memory must be that of the whole file."""
    path.write_bytes(content)
    try:
        resolve_checkpoint(path)
        memory = CheckpointFile(Checkpoint(path), known[0]).read()
    except dt.CheckpointError as error:
        message = str(error)
        assert message.startswith(str(path))
        assert "\n" not in message
        return True
    arrays: dict[str, Any] = {}
    assert fixed(pack(memory, arrays), arrays) == known[1]
    return False


def test_a_file_cut_short_anywhere_is_refused(
    whole: bytes, identity_and_memory: Any, tmp_path: Path
) -> None:
    path = tmp_path / "run.ckpt"
    lengths = {*range(20), *range(0, len(whole), 97), *range(len(whole) - 20, len(whole))}
    for length in sorted(lengths):
        assert refused_or_read_as_written(path, whole[:length], identity_and_memory), length
    assert not refused_or_read_as_written(path, whole, identity_and_memory)
    for more in (b"\0", b"\n", whole):
        assert refused_or_read_as_written(path, whole + more, identity_and_memory)


def test_changed_bytes_are_refused_or_do_not_matter(
    whole: bytes, identity_and_memory: Any, tmp_path: Path
) -> None:
    rng, path, refused = random.Random(0), tmp_path / "run.ckpt", 0
    for _ in range(200):
        content = bytearray(whole)
        for _ in range(rng.choice([1, 1, 1, 2, 50])):
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        refused += refused_or_read_as_written(path, bytes(content), identity_and_memory)
    assert refused > 195  # but for the words that say which version wrote it, all of it counts


@pytest.mark.parametrize("place", [0, 20, 2000, -2000, -1])
def test_no_run_goes_on_from_a_damaged_file(place: int, whole: bytes, tmp_path: Path) -> None:
    path = tmp_path / "run.ckpt"
    content = bytearray(whole)
    content[place] ^= 4
    path.write_bytes(bytes(content))
    assert str(path) in refusal(path)
    path.write_bytes(whole)
    result = dt.solve(dt.LeastSquares(), X, Y, checkpoint=path, **OPTIONS)
    assert_same_run(result, dt.solve(dt.LeastSquares(), X, Y, **OPTIONS))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"identity": 3}, "is not a whole checkpoint: its header is not one of a checkpoint"),
        ({"memory": None}, "is not a whole checkpoint: its header is not one of a checkpoint"),
        ({"memory": {"C": "0"}}, "is not a whole checkpoint: no '0'"),
        ({"memory": {"C": []}}, "is not a whole checkpoint: unhashable"),
        ({"memory": {"dict": {}, "tuple": []}}, "is not a whole checkpoint: too many values"),
        ({"memory": {"code": "print()"}}, "is not a whole checkpoint: it holds an unknown type"),
        ({"memory": {"dict": {"W": {"matrix": [1, 2]}}}}, "is not a whole checkpoint: "),
        ({"identity": {}, "memory": {"dict": {}}}, "to another run: the task was None and is"),
    ],
)
def test_a_checkpoint_that_another_program_wrote_is_refused(
    changed: dict[str, Any], words: str, identity_and_memory: Any, tmp_path: Path
) -> None:
    """A file whose checksum is right."""
    path = tmp_path / "run.ckpt"
    header = {"identity": identity_and_memory[0], "memory": {"dict": {}}}
    write_container(path, "checkpoint", header | changed, {})
    assert words in refusal(path)
    for name in header:
        lacking = {key: value for key, value in header.items() if key != name}
        write_container(path, "checkpoint", lacking, {})
        refusal(path)


@pytest.mark.parametrize("solver", ["dfw", "accelerated"])
def test_a_memory_that_lacks_something_is_refused(solver: str, tmp_path: Path) -> None:
    """At any depth, though checksum and identity are right."""
    path, options = tmp_path / "run.ckpt", {**OPTIONS, "solver": solver, "fit_intercept": True}
    options |= {"radius": 0.5, "certify_every": 2, "tol": None} | (
        {"lmo": "power-2"} if solver == "dfw" else {}
    )
    stopped(dt.LeastSquares(), X, Y, 4, checkpoint=every_epoch(path), **options)
    header, arrays = read_container(path, "checkpoint")
    places = list(dicts_in(header["memory"]))
    assert len(places) > 5
    for names in places:
        for name, value in list(names.items()):
            if name in ("start", "constants"):  # other oracles have them
                continue
            del names[name]
            write_container(path, "checkpoint", header, arrays)
            names[name] = value
            with pytest.raises(dt.CheckpointError) as caught:
                dt.solve(dt.LeastSquares(), X, Y, checkpoint=path, **options)
            assert str(caught.value).startswith(f"{path} is not a whole checkpoint: "), name
    write_container(path, "checkpoint", header, arrays)
    result = dt.solve(dt.LeastSquares(), X, Y, checkpoint=path, **options)
    assert_same_run(result, dt.solve(dt.LeastSquares(), X, Y, **options))


def dicts_in(packed: Any) -> Iterator[dict[str, Any]]:
    """All dicts that were packed; not tables, whose columns are the history's."""
    if isinstance(packed, dict):
        ((kind, content),) = packed.items()
        if kind == "dict":
            yield content
            packed = list(content.values())
        elif kind == "tuple":
            packed = content
    for part in packed if isinstance(packed, list) else ():
        yield from dicts_in(part)


def test_rows_that_are_no_list_are_refused(identity_and_memory: Any, tmp_path: Path) -> None:
    path, identity = tmp_path / "run.ckpt", {**identity_and_memory[0], "rows of the shards": 3}
    header = {"identity": identity, "memory": {"dict": {}}}
    write_container(path, "checkpoint", header, {})
    assert "the rows of the shards have changed" in refusal(path)


def test_deep_nesting_is_refused(identity_and_memory: Any, tmp_path: Path) -> None:
    path, memory, limit = tmp_path / "run.ckpt", 0, sys.getrecursionlimit()
    for _ in range(900):
        memory = [memory]  # type: ignore[assignment]
    header = {"identity": identity_and_memory[0], "memory": memory}
    sys.setrecursionlimit(10_000)
    try:
        write_container(path, "checkpoint", header, {})
    finally:
        sys.setrecursionlimit(limit)
    assert re.search("is (not a whole checkpoint|damaged): ", refusal(path))
