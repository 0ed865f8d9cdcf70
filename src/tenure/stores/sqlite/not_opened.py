"""Why SQLite cannot open or write a file, which it does not tell, and what to do about it."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from shlex import quote

from tenure.model.errors import StoreUnavailable

_LOOK = "Look at the path"
_MODE = "Check owner and mode"
_ADVICE = {
    errno.EACCES: f"{_MODE} of the folders above it",
    errno.ENAMETOOLONG: "Choose a shorter path",
    errno.EMFILE: "Raise the limit of open files (ulimit -n)",
    errno.ENFILE: "Raise the system's limit of open files",
    errno.EROFS: "Mount it writable: who only reads a database must write beside it, too",
}


def refuse_what_is_no_file(path: Path) -> None:
    """SQLite would open some of it, and fail later with an error that tells nothing."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return  # it is to be made, or opening it fails with a reason
    if stat.S_ISDIR(mode):
        raise StoreUnavailable(
            f"cannot open {path}: it is a folder, and a SQLite store is a file. Name one in it, "
            f"such as {path / 'runs.db'}"
        )
    if not stat.S_ISREG(mode):
        raise StoreUnavailable(f"cannot open {path}: it is no regular file. {_LOOK}")


def why_not_opened(path: Path, error: Exception) -> str:
    """No folder is made for it: a path with a typo would look like a healthy store without runs."""
    folder = path.parent
    try:
        path.stat()
    except FileNotFoundError:
        if not folder.exists():
            return (
                f"cannot open {path}: there is no folder {folder}. {_LOOK}; if it is right, make "
                f"the folder: mkdir -p {quote(str(folder))}"
            )
    except NotADirectoryError:
        return f"cannot open {path}: {folder} is no folder. {_LOOK}"
    except OSError as seen:
        return why_system_refused(seen, path)
    return f"cannot open {path}: {_hindrance(path, error)}"


def why_not_written(path: Path, error: Exception) -> str:
    return f"cannot write {path}: {_hindrance(path, error)}"


def why_system_refused(error: OSError, path: Path) -> str:
    """It may be another file than ``path``: the schema comes from files, too."""
    return f"cannot open {error.filename or path}: {_with_advice(error)}"


def _hindrance(path: Path, error: Exception) -> str:
    """Found without opening any of the files: closing one again would take this process's locks
    away from the connections it has."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
        mounted = os.statvfs(path.parent).f_flag
    except OSError as seen:
        return _with_advice(seen)
    if mounted & os.ST_RDONLY:
        return _with_advice(OSError(errno.EROFS, os.strerror(errno.EROFS)))
    for file in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        if file.exists() and not os.access(file, os.W_OK):
            return f"this user may not write {file}. {_MODE}"
    if not os.access(path.parent, os.W_OK | os.X_OK):
        return f"this user may not make files in {path.parent}. {_MODE}"
    return f"{error}. Check that it and its folder are writable"


def _with_advice(error: OSError) -> str:
    return f"{error.strerror or error}. {_ADVICE.get(error.errno or 0, _LOOK)}"
