"""Damaged checkpoints: refused in one sentence, and no run goes on from them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from tests.checkpoints.runs import assert_same_run, every_epoch, stopped

import dfwtrace as dt
from dfwtrace.checkpoints import Checkpoint, Snapshots, resolve
from dfwtrace.checkpoints.packing import pack
from dfwtrace.io.container import read_container, write_container

X, Y, _ = dt.datasets.make_multitask(n=60, d=7, m=5, rank=3, noise=0.3, seed=1)
OPTIONS: dict[str, Any] = {
    "radius": 3.0,
    "representation": "implicit",
    "engine": dt.LocalEngine(3, 1),
    "epochs": 4,
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
        resolve(path)
        memory = Snapshots(Checkpoint(path), known[0]).read()
    except dt.CheckpointError as error:
        message = str(error)
        assert message.startswith(str(path))
        assert "\n" not in message
        return True
    assert fixed(*pack(memory)) == known[1]
    return False


def test_a_file_cut_short_anywhere_is_refused(
    whole: bytes, identity_and_memory: Any, tmp_path: Path
) -> None:
    path = tmp_path / "run.ckpt"
    lengths = {*range(300), *range(0, len(whole), 13), *range(len(whole) - 300, len(whole))}
    for length in sorted(lengths):
        assert refused_or_read_as_written(path, whole[:length], identity_and_memory), length
    assert not refused_or_read_as_written(path, whole, identity_and_memory)
    for more in (b"\0", b"\n", whole):
        assert refused_or_read_as_written(path, whole + more, identity_and_memory)


def test_changed_bytes_are_refused_or_do_not_matter(
    whole: bytes, identity_and_memory: Any, tmp_path: Path
) -> None:
    rng, path, refused = random.Random(0), tmp_path / "run.ckpt", 0
    for _ in range(1000):
        content = bytearray(whole)
        for _ in range(rng.choice([1, 1, 1, 2, 50])):
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        refused += refused_or_read_as_written(path, bytes(content), identity_and_memory)
    assert refused > 985  # but for the words that say which version wrote it, all of it counts


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


def test_a_checkpoint_that_lacks_something_is_refused(
    identity_and_memory: Any, tmp_path: Path
) -> None:
    """A file whose checksum is right, but that another program wrote."""
    path = tmp_path / "run.ckpt"
    for header in ({}, {"identity": 3, "memory": None}, {"identity": identity_and_memory[0]}):
        write_container(path, "checkpoint", header, {})
        refusal(path)
    write_container(
        path,
        "checkpoint",
        {"identity": {}, "memory": {"is": "array", "name": "0", "by_column": False}},
        {},
    )
    assert "belongs to another run: the version of dfwtrace was None" in refusal(path)


def test_a_checkpoint_of_another_layout_is_refused(
    identity_and_memory: Any, tmp_path: Path
) -> None:
    """One of an earlier state of this version, whose memory would not be understood."""
    path, identity = tmp_path / "run.ckpt", dict(identity_and_memory[0])
    memory = {"is": "array", "name": "0", "by_column": False}
    identity["layout of the checkpoint"] = 1
    write_container(path, "checkpoint", {"identity": identity, "memory": memory}, {})
    assert "the layout of the checkpoint was 1 and is 2" in refusal(path)
