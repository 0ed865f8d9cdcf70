"""A request, made ready from the arguments of a task."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from tenure.actions.durations import seconds_of
from tenure.actions.sources import encoded
from tenure.model.errors import InvalidArguments
from tenure.ports.action import Task
from tenure.workflow.checks import is_web_address
from tenure.workflow.environment import text_of
from tenure.workflow.wording import quoted

TIMEOUT = "30s"
HARMLESS = frozenset({"accept", "accept-encoding", "accept-language", "content-type", "user-agent"})
"""Headers that a request takes along to another origin."""
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
_UNFIT_IN_HEADER = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class Request(Struct, frozen=True, kw_only=True):
    method: str
    url: str
    headers: dict[str, str]
    body: bytes | None
    timeout: float
    follow_redirects: bool
    verify: bool
    place: str
    """The URL for messages: what may be secret about it is left out."""

    def __str__(self) -> str:
        return f"{self.method} {self.place}"


def request_of(task: Task) -> Request:
    """``InvalidArguments``."""
    args = task.args
    url = str(args["url"])
    if not is_web_address(url):
        raise InvalidArguments("url must be an http or https address")
    body, kind = _body(task)
    return Request(
        method=str(args.get("method") or ("GET" if body is None else "POST")),
        url=url,
        headers=_headers(args.get("headers") or {}, kind),
        body=body,
        timeout=seconds_of(task, "timeout", TIMEOUT) or 0,
        follow_redirects=bool(args.get("follow_redirects", False)),
        verify=bool(args.get("verify", True)),
        place=public(task.masks.text(url)),
    )


def public(url: str) -> str:
    """Without user, password, query and fragment."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "another address"
    place = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{place}{parts.path}" if place else parts.path


def are_headers(headers: dict[str, Any]) -> bool:
    return all(
        _HEADER.fullmatch(name) and not isinstance(value, list | dict)
        for name, value in headers.items()
    )


def _headers(given: dict[str, Any], kind: str | None) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in given.items():
        headers[name] = text_of(value)
        if not are_headers({name: "fine"}):
            raise InvalidArguments(f"headers: {quoted(name)} is no header a request could carry")
        if not are_headers({name: value}) or _UNFIT_IN_HEADER.search(headers[name]):
            raise InvalidArguments(f"headers: {quoted(name)}: no request could carry its value")
    if kind is not None and "content-type" not in map(str.lower, headers):
        headers["Content-Type"] = kind
    return headers


def _body(task: Task) -> tuple[bytes | None, str | None]:
    """And what kind of contents it is."""
    if task.args.get("body") is not None:
        return encoded(text_of(task.args["body"]), "body"), "text/plain; charset=utf-8"
    if task.args.get("json") is not None:
        return msgspec.json.encode(task.args["json"]), "application/json"
    return None, None
