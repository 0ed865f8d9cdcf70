"""Where a store on disk is to be: a path that the system can be asked about."""

from __future__ import annotations

import os
from pathlib import Path

from tenure.model.errors import StoreUnavailable, UnknownStore


def absolute(path: str | os.PathLike[str]) -> Path:
    """It stays the same place when the process changes its folder. ``UnknownStore``,
    ``StoreUnavailable``."""
    if "\0" in os.fspath(path):
        raise UnknownStore(f"the path {os.fspath(path)!r} has a null byte in it; rename it")
    try:
        return Path(path).absolute()
    except FileNotFoundError as error:
        raise StoreUnavailable(
            f"{path} cannot be found: the working directory, from which it is meant, is gone; go "
            "to another, or write the whole path"
        ) from error
