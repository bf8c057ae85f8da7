"""A file is written whole or not at all, whatever happens in between."""

from __future__ import annotations

import errno
import io
import os
import resource
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

import numpy as np
import pytest

from dfwtrace.files.atomic import atomic_write
from dfwtrace.files.checkpoint import resolve_checkpoint
from dfwtrace.files.container import read_container, write_container

OLD, NEW = b"old " * 1000, b"new!" * 5000
NOBODY = 65534


def write(
    path: Path | str,
    content: bytes,
    *,
    piece: int = len(NEW),
    then: Callable[[BinaryIO], object] = lambda file: None,
) -> None:
    with atomic_write(path) as file:
        for start in range(0, len(content), piece):
            file.write(content[start : start + piece])
        then(file)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with an old content, alone in its folder."""
    folder = tmp_path / "folder"
    folder.mkdir()
    path = folder / "file.bin"
    path.write_bytes(OLD)
    return path


def assert_untouched(path: Path) -> None:
    assert path.read_bytes() == OLD
    assert os.listdir(path.parent) == [path.name]


@contextmanager
def ordinary_user() -> Iterator[Path]:
    """A folder of a user for whom permissions hold: an administrator becomes one for a while."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        if os.geteuid() != 0:
            yield folder
            return
        os.chown(folder, NOBODY, NOBODY)
        os.seteuid(NOBODY)
        try:
            yield folder
        finally:
            os.seteuid(0)


def test_a_new_file_and_an_old_one_get_the_content(tmp_path: Path) -> None:
    path = tmp_path / "file.bin"
    for content in (b"", OLD, NEW, b"x"):
        write(path, content)
        assert path.read_bytes() == content
    assert os.listdir(tmp_path) == ["file.bin"]


def test_nothing_is_seen_of_it_before_the_block_ends(path: Path) -> None:
    with atomic_write(path) as file:
        file.write(NEW)
        file.flush()
        assert path.read_bytes() == OLD
    assert path.read_bytes() == NEW


def test_relative_paths_and_plain_strings(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    write(path.name, NEW)
    assert path.read_bytes() == NEW


def test_the_longest_name_that_a_folder_takes(tmp_path: Path) -> None:
    path = tmp_path / ("x" * os.pathconf(tmp_path, "PC_NAME_MAX"))
    write(path, NEW)
    assert path.read_bytes() == NEW


def test_a_text_wrapper_may_close_the_file(path: Path) -> None:
    with atomic_write(path) as file, io.TextIOWrapper(file, "utf-8", newline="") as text:
        text.write("ü\n")
    assert path.read_bytes() == "ü\n".encode()


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), OSError(5, "x", "other")])
@pytest.mark.parametrize("close", [False, True])
def test_an_error_in_the_block_leaves_the_old_file_and_no_other(
    error: BaseException, close: bool, path: Path
) -> None:
    def fail(file: BinaryIO) -> None:
        if close:
            file.close()
        raise error

    with pytest.raises(type(error)) as caught:
        write(path, NEW, then=fail)
    assert caught.value is error
    with pytest.raises(type(error)):
        write(path.with_name("new.bin"), NEW, then=fail)
    assert_untouched(path)


# Permissions and links


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o777])
def test_an_old_file_keeps_its_permissions(mode: int, path: Path) -> None:
    path.chmod(mode)
    write(path, NEW)
    assert (path.read_bytes(), mode_of(path)) == (NEW, mode)


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_a_new_file_gets_what_the_umask_leaves(umask: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        write(tmp_path / "file.bin", NEW)
    finally:
        os.umask(before)
    assert mode_of(tmp_path / "file.bin") == 0o666 & ~umask


@pytest.mark.skipif(os.geteuid() != 0, reason="only an administrator may give files away")
def test_an_administrator_leaves_a_file_to_its_owner(path: Path) -> None:
    os.chown(path, NOBODY, NOBODY)
    write(path, NEW)
    assert (path.stat().st_uid, path.stat().st_gid) == (NOBODY, NOBODY)


@pytest.mark.skipif(os.geteuid() != 0, reason="only an administrator may give files away")
def test_who_may_not_give_a_file_away_writes_it_all_the_same() -> None:
    with ordinary_user() as folder:
        path = folder / "file.bin"
        os.seteuid(0)
        path.write_bytes(OLD)
        path.chmod(0o666)
        os.seteuid(NOBODY)
        write(path, NEW)
        assert path.read_bytes() == NEW
        assert (mode_of(path), path.stat().st_uid) == (0o666, NOBODY)


def test_a_link_stays_and_its_target_is_written(path: Path, tmp_path: Path) -> None:
    link, second = tmp_path / "link", tmp_path / "second"
    link.symlink_to(Path("folder") / "file.bin")
    second.symlink_to(link)
    write(second, NEW)
    assert link.is_symlink()
    assert second.is_symlink()
    assert path.read_bytes() == NEW
    assert not path.is_symlink()


def test_a_link_to_nothing_makes_what_it_points_to(path: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(path.with_name("other.bin"))
    write(tmp_path / "link", NEW)
    assert (tmp_path / "link").is_symlink()
    assert path.with_name("other.bin").read_bytes() == NEW


# What cannot be written


def assert_refused(path: Path, kind: type[OSError], why: str) -> None:
    began = False
    with pytest.raises(kind) as caught, atomic_write(path):
        began = True
    assert not began
    message = str(caught.value)
    assert f"{path} cannot be written: {why}" in message
    assert message.endswith(".")
    assert "\n" not in message


def test_what_is_no_place_for_a_file_is_refused(path: Path, tmp_path: Path) -> None:
    missing, pipe, ring = tmp_path / "no" / "such", tmp_path / "pipe", tmp_path / "a"
    os.mkfifo(pipe)
    ring.symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(ring)
    before = set(os.listdir(tmp_path))
    assert_refused(path.parent, IsADirectoryError, "it is a folder.")
    assert_refused(missing / "file.bin", FileNotFoundError, f"there is no folder {missing}.")
    assert_refused(path / "file.bin", NotADirectoryError, "")
    assert_refused(pipe, OSError, "it is not a regular file.")
    assert_refused(ring, OSError, "")
    assert_refused(tmp_path / ("x" * 300), OSError, "")
    assert_untouched(path)
    assert set(os.listdir(tmp_path)) == before
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_read_only_folder_is_refused() -> None:
    with ordinary_user() as folder:
        path = folder / "file.bin"
        path.write_bytes(OLD)
        folder.chmod(0o500)
        assert_refused(path, PermissionError, "")
        assert_refused(folder / "other.bin", PermissionError, "its folder is read-only.")
        with pytest.raises(PermissionError, match="its folder is read-only"):
            resolve_checkpoint(folder / "run.ckpt")  # and so before any work
        assert_untouched(path)
        folder.chmod(0o700)


def test_a_folder_that_may_not_be_entered_is_refused() -> None:
    with ordinary_user() as folder:
        (folder / "closed").mkdir(mode=0)
        assert_refused(folder / "closed" / "file.bin", PermissionError, "")


def test_a_folder_that_may_not_be_listed_is_written_to() -> None:
    with ordinary_user() as folder:
        folder.chmod(0o300)
        write(folder / "file.bin", NEW)
        assert (folder / "file.bin").read_bytes() == NEW
        folder.chmod(0o700)


def test_a_read_only_file_is_refused() -> None:
    with ordinary_user() as folder:
        path = folder / "file.bin"
        path.write_bytes(OLD)
        path.chmod(0o444)
        assert_refused(path, PermissionError, "it is read-only.")
        assert_untouched(path)


def test_a_folder_that_takes_the_place_meanwhile_is_no_file(path: Path) -> None:
    def take_its_place(file: BinaryIO) -> None:
        path.unlink()
        path.mkdir()

    with pytest.raises(OSError, match=r"file\.bin cannot be written: ") as caught:
        write(path, NEW, then=take_its_place)
    assert caught.value.errno == errno.EISDIR
    assert os.listdir(path.parent) == [path.name]
    assert path.is_dir()


# Full disks


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """No file of this process grows beyond `size`: what a quota does, without an administrator."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("limit", [0, 1, 8192, len(NEW) - 1])
@pytest.mark.parametrize("piece", [len(NEW), 1000, 7])
def test_a_limit_on_the_size_leaves_the_old_file(limit: int, piece: int, path: Path) -> None:
    with file_size_limit(limit), pytest.raises(OSError, match=r"file\.bin cannot") as caught:
        write(path, NEW, piece=piece)
    assert caught.value.errno == errno.EFBIG
    assert_untouched(path)


@pytest.mark.parametrize("kib", [62, 64, 65, 200])
def test_a_full_disk_leaves_the_old_file(kib: int, small_disk: Path) -> None:
    path = small_disk / "file.bin"
    path.write_bytes(OLD)
    with pytest.raises(OSError, match=r"file\.bin cannot be written: No space left") as caught:
        write(path, b"x" * (kib * 1024))
    assert caught.value.errno == errno.ENOSPC
    assert_untouched(path)
    write(path, NEW)  # and what fits is written
    assert path.read_bytes() == NEW


def test_a_full_disk_leaves_the_old_model(small_disk: Path) -> None:
    path = small_disk / "model.safetensors"
    write_container(path, "model", {"version": 1}, {"x": np.ones(1000)})
    with pytest.raises(OSError, match=r"model\.safetensors cannot be written: No space left"):
        write_container(path, "model", {"version": 2}, {"x": np.ones(10_000)})
    header, arrays = read_container(path, "model")
    assert header == {"version": 1}
    assert np.array_equal(arrays["x"], np.ones(1000))
    assert os.listdir(small_disk) == [path.name]


# Others at the same time


def test_readers_see_one_version_or_another_and_never_a_mixture(path: Path) -> None:
    versions = [bytes([k]) * (1000 + 300 * k) for k in range(20)]
    start = threading.Barrier(3)
    failures: list[BaseException] = []

    def keep_writing(order: list[bytes]) -> None:
        start.wait()
        try:
            for content in order:
                write(path, content)
        except BaseException as error:
            failures.append(error)

    writers = [
        threading.Thread(target=keep_writing, args=(order,)) for order in (versions, versions[::-1])
    ]
    for writer in writers:
        writer.start()
    start.wait()
    seen = set()
    while any(writer.is_alive() for writer in writers):
        seen.add(path.read_bytes())
    for writer in writers:
        writer.join()
    assert failures == []
    assert seen <= {OLD, *versions}
    assert path.read_bytes() in (versions[0], versions[-1])
    assert os.listdir(path.parent) == [path.name]


# A process that has imported all it needs forks one that writes, kills it, and says so.
KILLED = """
import os, random, signal, sys, time
import numpy as np
from dfwtrace.files.container import write_container

path, seed = sys.argv[1], int(sys.argv[2])
rng = random.Random(seed)
for kill in range(1, 16):
    written, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        version = 1_000_000 * kill
        while True:
            version += 1
            array = np.full(1 + version * 7919 % 40_000, float(version))
            write_container(path, "checkpoint", {"version": version}, {"x": array})
            if version == 1_000_000 * kill + 1:
                os.write(told, b"1")
    os.read(written, 1)
    time.sleep(rng.uniform(0.0, 0.03))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    print("killed", flush=True)
    sys.stdin.readline()
"""


def test_a_killed_writer_leaves_one_version_or_another(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.safetensors"
    write_container(path, "checkpoint", {"version": 0}, {"x": np.zeros(1)})
    versions = []
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(path), "0"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        while process.stdout.readline() == "killed\n":
            header, arrays = read_container(path, "checkpoint")
            version = header["version"]
            versions.append(version)
            assert len(arrays["x"]) == 1 + version * 7919 % 40_000
            assert np.all(arrays["x"] == version)
            process.stdin.write("\n")
            process.stdin.flush()
    assert process.returncode == 0
    assert [version // 1_000_000 for version in versions] == list(range(1, 16))
    left = {name for name in os.listdir(tmp_path) if name != path.name}
    assert all(name.startswith(".dfwtrace-") and name.endswith(".tmp") for name in left)
