"""Paths of stores on disk."""

from __future__ import annotations

import os
from pathlib import Path

from tenure.model.errors import StoreUnavailable, UnknownStore


def absolute(path: str | os.PathLike[str]) -> Path:
    """The absolute path, so that changing the working directory has no effect. ``UnknownStore``,
    ``StoreUnavailable``."""
    if "\0" in os.fspath(path):
        raise UnknownStore(f"the path {os.fspath(path)!r} has a null byte in it; rename it")
    try:
        return Path(path).absolute()
    except FileNotFoundError as error:
        raise StoreUnavailable(
            f"{path} cannot be found: the working directory has been removed; change to another, "
            "or give an absolute path"
        ) from error
