"""Why SQLite cannot open a file, which it does not tell, and what to do about it."""

from __future__ import annotations

import errno
from pathlib import Path
from shlex import quote

_LOOK = "Look at the path"
_ADVICE = {
    errno.EACCES: "Check owner and mode of the folders above it",
    errno.ENAMETOOLONG: "Choose a shorter path",
}


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
        advice = _ADVICE.get(seen.errno or 0, _LOOK)
        return f"cannot open {path}: {seen.strerror}. {advice}"
    return f"cannot open {path}: {error}. Check that it and its folder are writable"
