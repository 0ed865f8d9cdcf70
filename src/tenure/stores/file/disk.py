"""Files as this store uses them: locked, written whole, synced, and with errors that help."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote

from tenure.model.errors import StoreUnavailable

_NO_SPACE = "free some space and send the same call again"
_NO_RIGHT = "check owner and mode of the directory and its files, and the mount options"
_NO_DIRECTORY = (
    "a file store is a directory: name one that is there or can be made; a database file is "
    "sqlite:///path"
)
_NO_LOCKS = "put the store on a local file system"
_ADVICE = {
    errno.ENOSPC: _NO_SPACE,
    errno.EDQUOT: _NO_SPACE,
    errno.EFBIG: _NO_SPACE,
    errno.EACCES: _NO_RIGHT,
    errno.EPERM: _NO_RIGHT,
    errno.EROFS: _NO_RIGHT,
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "raise the limit of open files",
    errno.ENOENT: "check that the store's directory is still there",
    errno.EEXIST: _NO_DIRECTORY,
    errno.ENOTDIR: _NO_DIRECTORY,
    errno.ENAMETOOLONG: "choose a shorter path",
    errno.ELOOP: "look at the path",
    errno.ENOLCK: _NO_LOCKS,
    errno.EOPNOTSUPP: _NO_LOCKS,
    errno.EIO: "check the disk; then send the same call again",
}


@contextmanager
def reported(path: Path) -> Iterator[None]:
    """Name the file and what to do about it, instead of letting the system's error through."""
    try:
        yield
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0, "send the same call again")
        raise StoreUnavailable(f"{path}: {error.strerror or error}; {advice}") from error


def make_directory(path: Path) -> None:
    """If it is not there. Nothing above it is made: a path with a typo would look like a healthy
    store without runs. A new one is durable before anything in it is."""
    with reported(path):
        if path.is_dir():
            return
        try:
            path.mkdir(exist_ok=True)
        except FileNotFoundError as error:
            raise StoreUnavailable(
                f"cannot open {path}: there is no folder {path.parent}. Look at the path; if it is "
                f"right, make the folder: mkdir -p {quote(str(path.parent))}"
            ) from error
        sync_directory(path.parent)


class OpenFile:
    """A descriptor that a forked child lets go of: it shares the lock, and would keep it."""

    def __init__(self, path: Path, flags: int) -> None:
        self.path = path
        self.fd = os.open(path, flags | os.O_CLOEXEC, 0o666)
        _open.add(self)

    def __enter__(self) -> int:
        return self.fd

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        return self.fd < 0

    def lock(self, how: int) -> bool:
        """False if somebody else has it and ``how`` says not to wait."""
        try:
            fcntl.flock(self.fd, how)
        except BlockingIOError:
            return False
        return True

    def unlock(self) -> None:
        fcntl.flock(self.fd, fcntl.LOCK_UN)

    def close(self) -> None:
        _open.discard(self)
        if not self.closed:
            os.close(self.fd)
            self.fd = -1


_open: set[OpenFile] = set()


def _let_go_after_fork() -> None:
    for file in list(_open):
        file.close()


os.register_at_fork(after_in_child=_let_go_after_fork)


class Locked(Exception):
    """Somebody else has the file just now."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self.path = path


def open_locked(path: Path, *, exclusive: bool) -> OpenFile:
    """The file, while nobody else writes it. ``FileNotFoundError`` if there is none; ``Locked``.

    A file that was taken back between our opening and locking it is not the one we asked for.
    """
    flags, how = (os.O_RDWR, fcntl.LOCK_EX) if exclusive else (os.O_RDONLY, fcntl.LOCK_SH)
    while True:
        file = OpenFile(path, flags)
        try:
            locked = not file.lock(how | fcntl.LOCK_NB)
            if not locked and os.fstat(file.fd).st_nlink:
                return file
        except BaseException:
            file.close()
            raise
        file.close()
        if locked:
            raise Locked(path)


def write_all(fd: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, offset)
        view = view[written:]
        offset += written


def sync(fd: int) -> None:
    """Down to the medium. macOS' ``fsync`` stops at the drive's cache."""
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is None:
        os.fsync(fd)
    else:
        fcntl.fcntl(fd, full)


def sync_directory(directory: Path) -> None:
    """Makes the names in it durable."""
    with OpenFile(directory, os.O_RDONLY | os.O_DIRECTORY) as fd:
        os.fsync(fd)
