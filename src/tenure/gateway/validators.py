"""Entity tags: whether a client has by now what it would get."""

from __future__ import annotations

from collections.abc import Mapping

from tenure.gateway.calls import Answer

PRIVATE = {"cache-control": "private, no-cache"}


def not_modified(tag: str, headers: Mapping[str, str]) -> Answer | None:
    """The answer to one that has it."""
    if not _is_known(tag, headers.get("if-none-match", "")):
        return None
    return Answer(status=304, headers={"etag": tag, "vary": "accept-encoding", **PRIVATE})


def _is_known(tag: str, known: str) -> bool:
    """By weak comparison: who stands between may have weakened it by compressing."""
    bare = tag.removeprefix("W/")
    each = (given.strip().removeprefix("W/") for given in known.split(","))
    return known.strip() == "*" or bare in each
