"""Workers that say they are there, and wait to be told of something to do."""

from __future__ import annotations

import re
from typing import Any

from tenure.gateway.calls import Answer, Call
from tenure.gateway.problems import FORBIDDEN, MALFORMED, Refusal
from tenure.model.errors import NotSupported
from tenure.ports.workers import WorkerInfo, WorkerRegistry
from tenure.wire.bounds import PRINTABLE
from tenure.wire.listings import NoQuery
from tenure.wire.presence import Heartbeat, Wakeup, WakeupRequest

_QUEUE = "queue:"


async def heartbeat(call: Call[NoQuery, Heartbeat]) -> Answer:
    said = call.body
    worker = WorkerInfo(
        owner_id=_worker_of(call),
        queues=said.queues,
        concurrency=said.concurrency,
        running=said.running,
        details=said.details,
    )
    await _registry_of(call).heartbeat(worker, said.seconds)
    return Answer(status=204)


async def leave(call: Call[NoQuery, None]) -> Answer:
    await _registry_of(call).heartbeat(WorkerInfo(owner_id=_worker_of(call)), 0)
    return Answer(status=204)


async def wait_for_wakeup(call: Call[NoQuery, WakeupRequest]) -> Answer:
    asked, hearing = call.body, call.parts.hearing
    for topic in asked.topics:
        queue = topic.removeprefix(_QUEUE)
        if topic != queue and not call.caller.may_touch(queue):
            raise Refusal(FORBIDDEN, f"queue {queue[:60]!r} is not one of this token's")
    if not hearing.hears:
        kind = type(call.parts.store).__name__
        raise NotSupported(f"{kind} wakes nobody: look for runs now and then")
    return Answer(value=Wakeup(after=await hearing.news(asked.topics, asked.after, asked.wait)))


def _worker_of(call: Call[Any, Any]) -> str:
    owner_id = call.path["owner_id"]
    if not re.match(PRINTABLE, owner_id):
        raise Refusal(MALFORMED, "the name of a worker has no control characters")
    return owner_id


def _registry_of(call: Call[Any, Any]) -> WorkerRegistry:
    if isinstance(call.parts.store, WorkerRegistry):
        return call.parts.store
    raise NotSupported(f"{type(call.parts.store).__name__} keeps no list of workers")
