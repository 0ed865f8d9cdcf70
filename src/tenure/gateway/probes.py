"""For those who watch over the process, and those who want to read how to talk to it."""

from __future__ import annotations

from tenure.gateway.answering import JSON
from tenure.gateway.calls import Answer, Call, RawAnswer
from tenure.gateway.page import PAGE_POLICY, page
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


async def openapi(call: Call[NoQuery, None]) -> RawAnswer:
    return RawAnswer(body=call.parts.document, media_type=JSON)


async def docs(call: Call[NoQuery, None]) -> RawAnswer:
    return RawAnswer(
        body=page(call.parts.document),
        media_type="text/html; charset=utf-8",
        headers={"content-security-policy": PAGE_POLICY},
    )
