"""Store URLs as people read them: short, and never with a password."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

_OF_SECRETS = re.compile("pass|secret|_key|token", re.IGNORECASE)


def place_of(url: str) -> str:
    """``~/.local/share/tenure/runs.db``, ``postgresql://me:***@db/runs``, ``memory:``."""
    if url.startswith("sqlite:///"):
        return _from_home(Path(unquote(url.removeprefix("sqlite:///"))).absolute())
    scheme, mark, rest = url.partition("://" if "://" in url else ":")
    if scheme in ("file", "memory"):
        return url
    # A password that was typed as it is may hold any of the signs that URLs are taken apart by.
    login, at, rest = rest.rpartition("@")
    user, colon, _ = login.partition(":")
    place, question, query = rest.partition("?")
    shown = "&".join(map(_harmless, query.split("&")))
    return f"{scheme}{mark}{user}{':***' if colon else ''}{at}{place}{question}{shown}"


def _harmless(setting: str) -> str:
    name, equals, _ = setting.partition("=")
    if setting and not equals:
        return "***"
    return f"{name}=***" if _OF_SECRETS.search(unquote(name)) else setting


def _from_home(path: Path) -> str:
    try:
        return str(Path("~") / path.relative_to(Path.home()))
    except (ValueError, RuntimeError):
        return str(path)
