"""Where settings stand, and where runs are kept unless they say it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

FILE_NAME = "tenure.toml"
_LARGEST_FILE = 64 * 1024


def setting_files(environ: Mapping[str, str], folder: Path) -> tuple[Path, ...]:
    """Where settings are looked for; the later file counts more."""
    home = _user_folder(environ, "XDG_CONFIG_HOME", ".config")
    here = folder.absolute() / FILE_NAME
    return (here,) if home is None else (home / FILE_NAME, here)


def data_folder(environ: Mapping[str, str] | None = None) -> Path | None:
    """Where runs are kept unless a store is named; ``None`` for a user without a home."""
    environ = os.environ if environ is None else environ
    return _user_folder(environ, "XDG_DATA_HOME", ".local/share")


def default_store(environ: Mapping[str, str], problems: list[str]) -> str:
    folder = data_folder(environ)
    if folder is None:
        problems.append(
            "there is no place for runs: neither HOME nor XDG_DATA_HOME is set; name a store, for "
            "example --store sqlite:///runs.db"
        )
        return ""
    return f"sqlite:///{quote(str(folder / 'runs.db'))}"


def _user_folder(environ: Mapping[str, str], variable: str, otherwise: str) -> Path | None:
    """Relative paths are ignored, as the XDG specification wants."""
    named = environ.get(variable, "")
    if os.path.isabs(named):
        return Path(named) / "tenure"
    home = environ.get("HOME", "")
    return Path(home) / otherwise / "tenure" if os.path.isabs(home) else None


def read_file(path: Path, problems: list[str]) -> dict[str, Any]:
    try:
        return _toml(_text(path))
    except FileNotFoundError:
        return {}
    except OSError as error:
        problems.append(f"{path}: cannot be read: {error.strerror or error}")
    except UnicodeDecodeError as error:
        problems.append(f"{path}: is not UTF-8 text: byte {error.start}")
    except RecursionError:
        problems.append(f"{path}: is nested too deeply")
    except ValueError as error:
        problems.append(f"{path}: {error}")
    return {}


def _toml(text: str) -> dict[str, Any]:
    import tomllib  # most users have no such file, and every command asks

    return tomllib.loads(text)


def _text(path: Path) -> str:
    with path.open("rb") as stream:
        data = stream.read(_LARGEST_FILE + 1)
    if len(data) > _LARGEST_FILE:
        raise ValueError(f"is larger than {_LARGEST_FILE} bytes")
    return data.decode()
