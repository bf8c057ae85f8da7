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

# Errors of writing, to which Python adds no file name.
_DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
# Errors of a folder that cannot be synced. The file is in place by then.
_NO_FOLDER_SYNC = {errno.EACCES, errno.EPERM, errno.EINVAL, errno.ENOTSUP, errno.EBADF}


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a binary file that replaces `path` when the block ends without an error.

    The bytes go to a temporary file in the same folder, are forced to the disk, and the file is
    then renamed. Whatever goes wrong (an error in the block, a full disk, a killed process), `path`
    stays what it was. A killed process leaves its temporary file, ``.dfwtrace-….tmp``, behind.

    An existing file keeps its permissions and, where the system allows it, its owner and group. A
    new one gets what the umask leaves. A symbolic link stays, and the file that it points to is
    written.

    Parameters
    ----------
    path : str or path-like
        The file. Its folder must exist.

    Yields
    ------
    binary file
        The block may close it, as a text wrapper does.

    Examples
    --------
    >>> import io, tempfile
    >>> from pathlib import Path
    >>> from dfwtrace.files.atomic import atomic_write
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "table.csv"
    ...     with atomic_write(path) as file, io.TextIOWrapper(file, "utf-8") as text:
    ...         _ = text.write("a,b")
    ...     path.read_text()
    'a,b'
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
                _keep_permissions(temporary, old)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temporary, target)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError) and _is_about(error, temporary):
            raise _cannot_write(path, error.errno, error.strerror) from error
        raise
    _sync_folder(target.parent)


def check_writable(path: str | os.PathLike[str]) -> os.stat_result | None:
    """Refuse a path that `atomic_write` cannot write to; return the old file's status, if any."""
    target = Path(os.path.realpath(path))
    try:
        old = target.stat()
    except FileNotFoundError:
        if not target.parent.is_dir():
            why = f"there is no folder {target.parent}"
            raise _cannot_write(path, errno.ENOENT, why) from None
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


def _keep_permissions(temporary: Path, old: os.stat_result) -> None:
    if os.name == "posix":
        for owner, group in ((-1, old.st_gid), (old.st_uid, -1)):
            with suppress(OSError):  # only an administrator may give files away
                os.chown(temporary, owner, group)
    temporary.chmod(stat.S_IMODE(old.st_mode) & 0o777)


def _sync_folder(folder: Path) -> None:
    """Force the new name to the disk."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise


def _is_about(error: OSError, temporary: Path) -> bool:
    """Whether it came from writing, and not from something else in the block."""
    if error.filename is None:
        return error.errno in _DISK_ERRORS
    return str(error.filename) == str(temporary)


def _cannot_write(path: str | os.PathLike[str], number: int | None, why: str | None) -> OSError:
    return OSError(number or errno.EIO, f"{os.fspath(path)} cannot be written: {why}.")
