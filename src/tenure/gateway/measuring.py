"""The numbers, for who scrapes them."""

from __future__ import annotations

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from tenure.gateway.calls import Call, RawAnswer
from tenure.gateway.reaching import check_unlimited
from tenure.wire.listings import NoQuery


async def metrics(call: Call[NoQuery, None]) -> RawAnswer:
    check_unlimited(call.caller, "these numbers are of all runs")
    await call.parts.numbers.refresh()
    body = generate_latest(call.parts.meters.registry)
    return RawAnswer(body=body, media_type=CONTENT_TYPE_PLAIN_0_0_4)
