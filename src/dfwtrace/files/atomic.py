"""A file that is written whole or not at all."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a binary file that replaces `path` when the block ends without an error.

    The bytes go to a temporary file in the same folder, ``.dfwtrace-….tmp``, which is forced to the
    disk and renamed: whatever goes wrong, `path` stays what it was. An existing file keeps its
    permissions and, where the system allows it, its owner and group. The target of a symbolic link
    is written. The block may close the file, as a text wrapper does.
    """
    old, target = check_writable(path), Path(os.path.realpath(path))
    # A name of its own: nothing can be added to one that is as long as the folder allows.
    temporary = target.with_name(f".dfwtrace-{secrets.token_hex(8)}.tmp")
    try:
        # With this mode the system itself applies the umask, which cannot be read safely.
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        descriptor = os.open(temporary, flags, 0o666)
        try:
            # The descriptor stays open, so that it can be synced after the block closed the file.
            with os.fdopen(descriptor, "wb", closefd=False) as file:
                yield file
            if old is not None:
                for owner, group in ((-1, old.st_gid), (old.st_uid, -1)):
                    with suppress(OSError, AttributeError):  # only an administrator may, on POSIX
                        os.chown(temporary, owner, group)
                temporary.chmod(stat.S_IMODE(old.st_mode) & 0o777)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temporary, target)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink()
        # Python adds no file name to errors of writing; one of another file is another error.
        if isinstance(error, OSError) and str(error.filename) in ("None", str(temporary)):
            raise _cannot_write(path, error.errno, error.strerror or str(error)) from error
        raise
    with suppress(OSError):  # force the new name to the disk too, where folders can be synced
        descriptor = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def check_writable(path: str | os.PathLike[str]) -> os.stat_result | None:
    """Refuse a path that `atomic_write` cannot write to; return the old file's status, if any."""
    target = Path(os.path.realpath(path))
    try:
        old = target.stat()
    except FileNotFoundError:
        if not target.parent.is_dir():
            raise _cannot_write(path, errno.ENOENT, f"there is no folder {target.parent}") from None
        if not _may_write(target.parent):
            raise _cannot_write(path, errno.EACCES, "its folder is read-only") from None
        return None
    except OSError as error:  # a ring of links, a folder that may not be entered, too long a name
        raise _cannot_write(path, error.errno, error.strerror) from error
    if stat.S_ISDIR(old.st_mode):
        raise _cannot_write(path, errno.EISDIR, "it is a folder")
    if not stat.S_ISREG(old.st_mode):  # renaming would replace a device or a pipe by a file
        raise _cannot_write(path, errno.EINVAL, "it is not a regular file")
    # Renaming needs the folder's permission only, which would defeat a read-only file.
    if not _may_write(target):
        raise _cannot_write(path, errno.EACCES, "it is read-only")
    return old


def _may_write(path: Path) -> bool:
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def _cannot_write(path: str | os.PathLike[str], number: int | None, why: str | None) -> OSError:
    return OSError(number or errno.EIO, f"{os.fspath(path)} cannot be written: {why}.")
