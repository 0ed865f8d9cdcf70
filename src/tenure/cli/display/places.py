"""Store URLs as people read them: short, and never with a password."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit


def place_of(url: str) -> str:
    """``~/.local/share/tenure/runs.db``, ``postgresql://me:***@db/runs``, ``memory:``."""
    if url.startswith("sqlite:///"):
        return _from_home(Path(unquote(url.removeprefix("sqlite:///"))).absolute())
    parts = urlsplit(url)
    if parts.password is None:
        return url
    user, _, host = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{user.partition(':')[0]}:***@{host}").geturl()


def _from_home(path: Path) -> str:
    try:
        return str(Path("~") / path.relative_to(Path.home()))
    except (ValueError, RuntimeError):
        return str(path)
