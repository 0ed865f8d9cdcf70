"""Store URLs as people read them: short, and never with a password."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

from tenure.wire.addresses import shown_address


def place_of(url: str) -> str:
    """``~/.local/share/tenure/runs.db``, ``postgresql://me:***@db/runs``, ``memory:``."""
    if url.startswith("sqlite:///") and not {"?", "#"} & set(url):
        return _from_home(Path(unquote(url.removeprefix("sqlite:///"))).absolute())
    return shown_address(url)


def _from_home(path: Path) -> str:
    try:
        return str(Path("~") / path.relative_to(Path.home()))
    except (ValueError, RuntimeError):
        return str(path)
