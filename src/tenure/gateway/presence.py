"""Workers that say they are there, and wait to be told of something to do."""

from __future__ import annotations

import re
from typing import Any

from tenure.gateway.calls import Answer, Call
from tenure.gateway.problems import FORBIDDEN, MALFORMED, Refusal
from tenure.gateway.reaching import check_queue
from tenure.model.errors import NotSupported
from tenure.ports.workers import WorkerInfo, WorkerRegistry
from tenure.wire.bounds import PRINTABLE
from tenure.wire.listings import NoQuery
from tenure.wire.presence import Heartbeat, Wakeup, WakeupRequest

_QUEUE = "queue:"


async def heartbeat(call: Call[NoQuery, Heartbeat]) -> Answer:
    said, registry = call.body, _registry_of(call)
    for queue in said.queues:
        check_queue(call.caller, queue)
    worker = WorkerInfo(
        owner_id=await _own_worker(call, registry),
        queues=said.queues,
        concurrency=said.concurrency,
        running=said.running,
        draining=said.draining,
        details=said.details,
    )
    await registry.heartbeat(worker, said.seconds)
    return Answer(status=204)


async def leave(call: Call[NoQuery, None]) -> Answer:
    registry = _registry_of(call)
    await registry.heartbeat(WorkerInfo(owner_id=await _own_worker(call, registry)), 0)
    return Answer(status=204)


async def _own_worker(call: Call[Any, Any], registry: WorkerRegistry) -> str:
    """Who serves a queue beyond the caller's is not the caller's to speak for."""
    owner_id = _worker_of(call)
    if call.caller.queues is not None:
        for worker in await registry.list_workers():
            if worker.owner_id == owner_id and not all(map(call.caller.may_touch, worker.queues)):
                said = f"worker {owner_id[:60]!r} serves queues that are not this token's"
                raise Refusal(FORBIDDEN, said)
    return owner_id


async def wait_for_wakeup(call: Call[NoQuery, WakeupRequest]) -> Answer:
    asked, hearing = call.body, call.parts.hearing
    for topic in asked.topics:
        if topic.startswith(_QUEUE):
            check_queue(call.caller, topic.removeprefix(_QUEUE))
    if not hearing.hears:
        kind = type(call.parts.store).__name__
        raise NotSupported(f"{kind} wakes nobody: look for runs now and then")
    whose = call.caller.token_id
    after = await hearing.news(whose, asked.topics, asked.after, asked.wait)
    return Answer(value=Wakeup(after=after))


def _worker_of(call: Call[Any, Any]) -> str:
    owner_id = call.path["owner_id"]
    if not re.match(PRINTABLE, owner_id):
        raise Refusal(MALFORMED, "the name of a worker has no control characters")
    return owner_id


def _registry_of(call: Call[Any, Any]) -> WorkerRegistry:
    if isinstance(call.parts.store, WorkerRegistry):
        return call.parts.store
    raise NotSupported(f"{type(call.parts.store).__name__} keeps no list of workers")
