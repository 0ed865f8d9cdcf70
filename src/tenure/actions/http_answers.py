"""What an answer means: as expected or not, and what is exported from it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tenure.actions.http_asking import public
from tenure.model.errors import InvalidExports
from tenure.ports.masking import Masking
from tenure.workflow.wording import called, listed

MOST = 1024 * 1024
"""Bytes of an answer that are read."""
_SHOWN = 4096
_QUOTED = 160


class Answer(Struct, frozen=True, kw_only=True):
    status: int
    reason: str = ""
    location: str = ""
    body: bytes = b""
    cut: bool = False
    """There was more of it than ``MOST``."""


def presentable(answer: Answer, masks: Masking) -> Answer:
    """Without secrets: what is shown of an answer is tidied, and cut, and taken from this one."""
    return replace(
        answer,
        reason=masks.text(answer.reason),
        location=masks.text(answer.location),
        body=masks.data(answer.body, cut=answer.cut),
    )


def unexpected(
    answer: Answer, seen: Answer, statuses: Collection[Any] | None, text: str | None = None
) -> str | None:
    """What is wrong with it, in words from the presentable one. ``statuses`` ``None``: any from
    200 to 299."""
    status = answer.status
    if not (200 <= status < 300 if statuses is None else status in statuses):
        if 300 <= status < 400 and answer.location:
            return (
                f"answered {status}, a redirect to {_line(public(seen.location))}; ask there, "
                "or set follow_redirects: true"
            )
        quoted = _line(seen.body.decode(errors="replace"))
        return f"answered {status}{f': {quoted}' if quoted else ''}"
    if text is not None and text.encode(errors="surrogateescape") not in answer.body:
        where = f" in its first {MOST} bytes" if answer.cut else ""
        return f"answered {status}, without what expect_body says{where}"
    return None


def exported(answer: Answer, paths: Mapping[str, str]) -> dict[str, Any]:
    """``InvalidExports`` names what is not there."""
    if not paths:
        return {}
    if answer.cut:
        raise InvalidExports(f"the answer is longer than {MOST} bytes: nothing is exported from it")
    try:
        whole = msgspec.json.decode(answer.body)
    except (ValueError, RecursionError) as error:
        raise InvalidExports("the answer is no JSON: nothing can be exported from it") from error
    return {name: _at(whole, str(path), name) for name, path in paths.items()}


def _at(value: Any, path: str, name: str) -> Any:
    for part in filter(None, path.split(".")):
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            raise InvalidExports(f"export.{name}: {path} is not in the answer; {_about(value)}")
    return value


def _about(value: Any) -> str:
    if isinstance(value, dict):
        return f"there is {listed(value, 5)}" if value else "there is an empty map"
    if isinstance(value, list):
        return f"there is a list of {len(value)}"
    return f"there is {called(value)}"


def shown(seen: Answer, length: int) -> bytes:
    """For the log: its status and the beginning of its body, which was of that length."""
    size = f"more than {MOST}" if seen.cut else str(length)
    head = " ".join(filter(None, ("HTTP", str(seen.status), _line(seen.reason))))
    body = seen.body[:_SHOWN]
    more = seen.cut or len(seen.body) > _SHOWN
    tail = f"\n… of {size} bytes\n".encode() if more else b"" if body.endswith(b"\n") else b"\n"
    return f"{head}\n".encode() + (body + tail if body else b"")


def _line(text: str) -> str:
    """Fit to stand in a message."""
    words = "".join(each if each.isprintable() else " " for each in text[:_SHOWN]).split()
    line = " ".join(words)
    return line if len(line) <= _QUOTED else f"{line[:_QUOTED]}…"
