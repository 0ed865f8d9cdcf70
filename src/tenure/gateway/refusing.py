"""Refusals of what is no request yet, or one too many: problem documents like all others."""

from __future__ import annotations

from http import HTTPStatus

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

from tenure.gateway.answering import STEADY
from tenure.gateway.endpoint import send_problem
from tenure.gateway.problems import BUSY, Kind, Refusal
from tenure.gateway.receiving import CLOSE
from tenure.wire.problem import MEDIA_TYPE


def raw_answer(kind: Kind, detail: str) -> bytes:
    """All of it, for a connection that is then closed."""
    body = msgspec.json.encode(kind.problem(detail))
    headers = [
        (b"content-type", MEDIA_TYPE.encode()),
        (b"content-length", b"%d" % len(body)),
        (b"connection", b"close"),
        (b"cache-control", b"no-store"),
        *STEADY,
    ]
    start = f"HTTP/1.1 {kind.status} {HTTPStatus(kind.status).phrase}".encode()
    return b"\r\n".join([start, *(b": ".join(pair) for pair in headers), b"", body])


def refusing(kind: Kind, detail: str) -> ASGIApp:
    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        await send_problem(scope, send, Refusal(kind, detail, CLOSE))

    return refuse


too_many_connections = refusing(BUSY, "it has as many connections as it may have")
