"""Texts that PostgreSQL cannot hold: those with a NUL or half a character in them."""

from __future__ import annotations

import re

from tenure.model.errors import InvalidRunId, RunNotFound
from tenure.model.ids import check_run_id

_ESCAPED = re.compile(r"\\(.)")


def can_exist(run_id: str) -> bool:
    """Not with an id against the rules: nobody can have created it, and the driver might not even
    be able to ask for it."""
    try:
        check_run_id(run_id)
    except InvalidRunId:
        return False
    return True


def must_exist(run_id: str) -> str:
    """``RunNotFound`` at once for a run that cannot exist."""
    if not can_exist(run_id):
        raise RunNotFound(run_id)
    return run_id


def can_be_stored(text: str) -> bool:
    """No other is in the database, and the driver would not even ask for it."""
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False


def escaped(name: str) -> str:
    """Any name, as a text column can hold it. Usual ones stay as they are."""
    return name.replace("\\", "\\\\").replace("\0", "\\0")


def unescaped(name: str) -> str:
    return _ESCAPED.sub(lambda found: "\0" if found[1] == "0" else found[1], name)
