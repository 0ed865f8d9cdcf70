"""Health, API documents, metrics, workers and wake-ups."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from typing import Any

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from tenure.gateway.answers import JSON, compressed
from tenure.gateway.auth import check_queue, check_unlimited, lease_token_of
from tenure.gateway.calls import Answer, Call, RawAnswer
from tenure.gateway.openapi import PAGE_POLICY, page
from tenure.gateway.problems import FORBIDDEN, MALFORMED, Refusal
from tenure.gateway.routing import PRIVATE, not_modified
from tenure.model.errors import NotSupported
from tenure.model.query import MAX_PAGE, RunFilter
from tenure.model.tokens import Role
from tenure.ports.leases import WorkerInfo, WorkerRegistry
from tenure.ports.store import RunStateStore
from tenure.runtime.owners import NO_LONGER
from tenure.wire.answers import PRINTABLE, Health, Readiness
from tenure.wire.leases import Heartbeat, Wakeup, WakeupRequest
from tenure.wire.runs import NoQuery, PresentWorker, Workers


async def healthz(call: Call[NoQuery, None]) -> Answer:
    """Does not look at the store: a process must not be killed because its store is away."""
    return Answer(value=Health())


async def readyz(call: Call[NoQuery, None]) -> Answer:
    """Whether this gateway can serve requests."""
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
    """A constant answer, compressed once: these routes need no token."""
    kept = call.parts.steady.get(media_type)
    if kept is None:
        tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        kept = call.parts.steady[media_type] = (tag, await compressed(body))
    tag, packed = kept
    return not_modified(tag, call.headers) or RawAnswer(
        body=body, media_type=media_type, packed=packed, headers={"etag": tag, **PRIVATE, **headers}
    )


async def metrics(call: Call[NoQuery, None]) -> RawAnswer:
    check_unlimited(call.caller, "these metrics are of all runs")
    await call.parts.numbers.refresh()
    body = generate_latest(call.parts.meters.registry)
    return RawAnswer(body=body, media_type=CONTENT_TYPE_PLAIN_0_0_4)


async def list_workers(call: Call[NoQuery, None]) -> Answer:
    store, caller = call.parts.store, call.caller
    if not isinstance(store, WorkerRegistry):
        raise NotSupported(f"{type(store).__name__} keeps no list of workers")
    present = [
        worker
        for worker in await store.list_workers()
        if call.parts.presence(worker.owner_id) not in NO_LONGER
        and any(map(caller.may_touch, worker.queues))
    ]
    held = await _held(store, caller.queues)
    return Answer(value=Workers(workers=tuple(_shown(each, held) for each in present)))


async def _held(store: RunStateStore, queues: frozenset[str] | None) -> dict[str, tuple[str, ...]]:
    """Run ids by owner; the newest, if there are too many to list at once."""
    page = await store.list_runs(RunFilter(held=True), limit=MAX_PAGE)
    held: dict[str, tuple[str, ...]] = defaultdict(tuple)
    for run in page.items:
        if run.owner_id is not None and (queues is None or run.queue in queues):
            held[run.owner_id] += (run.run_id,)
    return held


def _shown(worker: WorkerInfo, held: dict[str, tuple[str, ...]]) -> PresentWorker:
    return PresentWorker(
        owner_id=worker.owner_id,
        queues=worker.queues,
        concurrency=worker.concurrency,
        running=worker.running,
        details=worker.details,
        seen_at=worker.seen_at,
        runs=held.get(worker.owner_id, ()),
        draining=worker.draining,
    )


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
        token_id=lease_token_of(call.caller),
    )
    await registry.heartbeat(worker, said.seconds)
    return Answer(status=204)


async def leave(call: Call[NoQuery, None]) -> Answer:
    registry = _registry_of(call)
    await registry.heartbeat(WorkerInfo(owner_id=await _own_worker(call, registry)), 0)
    return Answer(status=204)


async def _own_worker(call: Call[Any, Any], registry: WorkerRegistry) -> str:
    """The caller may only report workers of its own token. Admins may report any, in their
    queues."""
    owner_id, caller = _worker_of(call), call.caller
    if caller.role is Role.ADMIN and caller.queues is None:
        return owner_id
    for worker in await registry.list_workers():
        if worker.owner_id != owner_id:
            continue
        allowed = all(map(caller.may_touch, worker.queues))
        if not allowed or (caller.role is not Role.ADMIN and worker.token_id != caller.token_id):
            said = f"worker {owner_id[:60]!r} is not one of this token's"
            raise Refusal(FORBIDDEN, said)
    return owner_id


async def wait_for_wakeup(call: Call[NoQuery, WakeupRequest]) -> Answer:
    asked, hearing = call.body, call.parts.hearing
    for topic in asked.topics:
        if topic.startswith(_QUEUE):
            check_queue(call.caller, topic.removeprefix(_QUEUE))
    if not hearing.hears:
        kind = type(call.parts.store).__name__
        raise NotSupported(f"{kind} has no wake-ups: poll for runs")
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
