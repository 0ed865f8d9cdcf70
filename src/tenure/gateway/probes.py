"""For those who watch over the process, and those who want to read how to talk to it."""

from __future__ import annotations

import hashlib

from tenure.gateway.answering import JSON, compressed
from tenure.gateway.calls import Answer, Call, RawAnswer
from tenure.gateway.page import PAGE_POLICY, page
from tenure.gateway.validators import PRIVATE, not_modified
from tenure.wire.listings import NoQuery
from tenure.wire.probes import Health, Readiness


async def healthz(call: Call[NoQuery, None]) -> Answer:
    """Looks at nothing else: a process must not be killed because its store is away."""
    return Answer(value=Health())


async def readyz(call: Call[NoQuery, None]) -> Answer:
    """Whether it makes sense to send requests here."""
    word = "closing" if call.parts.closing.is_set() else await call.parts.watch.state()
    ready = word == "ok"
    return Answer(status=200 if ready else 503, value=Readiness(ready=ready, store=word))


async def openapi(call: Call[NoQuery, None]) -> Answer | RawAnswer:
    return await _steady(call, call.parts.document, JSON, {})


async def docs(call: Call[NoQuery, None]) -> Answer | RawAnswer:
    policy = {"content-security-policy": PAGE_POLICY}
    return await _steady(call, page(call.parts.document), "text/html; charset=utf-8", policy)


async def _steady(
    call: Call[NoQuery, None], body: bytes, media_type: str, headers: dict[str, str]
) -> Answer | RawAnswer:
    """The same as long as the process lives: made once, for those who need no token to ask."""
    kept = call.parts.steady.get(media_type)
    if kept is None:
        tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        kept = call.parts.steady[media_type] = (tag, await compressed(body))
    tag, packed = kept
    return not_modified(tag, call.headers) or RawAnswer(
        body=body, media_type=media_type, packed=packed, headers={"etag": tag, **PRIVATE, **headers}
    )
