"""Output of tasks: list, read, follow, append."""

from __future__ import annotations

from typing import Any

from tenure.gateway.answers import prefers
from tenure.gateway.auth import check_holds, check_reaches, run_of
from tenure.gateway.calls import Answer, Call, RawAnswer, StreamAnswer
from tenure.gateway.problems import OUTPUT_NOT_FOUND, Refusal
from tenure.gateway.routing import place_after, wants_stream
from tenure.model.errors import NotSupported
from tenure.model.snapshot import HostState, ItemState, RunSnapshot
from tenure.model.update import Fencing
from tenure.ports.store import LogKey, LogListing, LogSlice, LogStore, RunStateStore
from tenure.wire.masking import readable
from tenure.wire.output import (
    OFFSET,
    Appended,
    Chunk,
    ChunkQuery,
    NewChunk,
    Output,
    OutputQuery,
    OutputStream,
    OutputStreams,
)
from tenure.wire.runs import NoQuery
from tenure.workflow.wording import did_you_mean

BYTES = "application/octet-stream"


async def list_output(call: Call[NoQuery, None]) -> Answer:
    store, run_id = call.parts.store, await check_reaches(call)
    if not isinstance(store, LogListing):
        raise NotSupported(f"{type(store).__name__} cannot list output")
    keys = await store.list_logs(run_id)
    streams = tuple(
        OutputStream(
            step=key.step, host=key.host, stream=key.stream, item=key.item, attempt=key.attempt
        )
        for key in keys
    )
    return Answer(value=OutputStreams(streams=streams))


async def read_output(call: Call[OutputQuery, None]) -> Answer | RawAnswer | StreamAnswer:
    store, asked = call.parts.store, call.query
    if not isinstance(store, LogStore):
        raise NotSupported(f"{type(store).__name__} keeps no full output")
    run = await run_of(call)
    key = await _key(store, run, call)
    if asked.follow or wants_stream(call):
        offset = int(place_after(call, OFFSET, str(asked.offset)))
        return StreamAnswer(parts=call.parts.live.output(store, run, key, offset))
    found = await store.read(run.run_id, key, asked.offset, limit=asked.limit)
    if prefers(call.headers.get("accept", ""), BYTES):
        return _raw(found, key)
    text, length = readable(found.data)
    shown = Output(
        offset=found.offset,
        next_offset=found.offset + length,
        size=found.size,
        attempt=key.attempt,
        text=text,
    )
    return Answer(value=shown)


def _raw(found: LogSlice, key: LogKey) -> RawAnswer:
    headers = {
        "tenure-log-offset": str(found.offset),
        "tenure-log-size": str(found.size),
        "tenure-log-attempt": str(key.attempt),
    }
    return RawAnswer(body=found.data, media_type=BYTES, headers=headers)


async def _key(store: RunStateStore, run: RunSnapshot, call: Call[OutputQuery, None]) -> LogKey:
    asked, state = call.query, _task(run, call)
    key = LogKey(
        step=int(call.path["step_index"]),
        host=call.path["host"],
        stream=asked.stream,
        item=asked.item,
        attempt=asked.attempt or max(state.attempts, 1),
    )
    if asked.attempt is not None or not isinstance(store, LogListing):
        return key
    tried = [
        each.attempt
        for each in await store.list_logs(run.run_id)
        if (each.step, each.host, each.item) == (key.step, key.host, key.item)
    ]
    return LogKey(
        step=key.step,
        host=key.host,
        stream=key.stream,
        item=key.item,
        attempt=max(tried, default=key.attempt),
    )


def _task(run: RunSnapshot, call: Call[OutputQuery, None]) -> ItemState:
    """The host or item of the query. ``Refusal`` if there is none."""
    word, name, item = call.path["step_index"], call.path["host"], call.query.item
    if not word.isdecimal() or not word.isascii() or int(word[:9]) >= len(run.steps):
        raise Refusal(OUTPUT_NOT_FOUND, f"steps are 0 to {len(run.steps) - 1}")
    hosts = run.steps[int(word)].hosts
    host: HostState | None = hosts.get(name)
    if host is None:
        hint = did_you_mean(name, hosts)
        said = f"step {word} has no host {name[:60]!r}"
        raise Refusal(OUTPUT_NOT_FOUND, f"{said}; {hint}" if hint else said)
    if item is None or item < len(host.items):
        return host if item is None else host.items[item]
    if not run.ended:
        return host
    raise Refusal(OUTPUT_NOT_FOUND, f"host {name[:60]!r} has {len(host.items)} items")


async def read_chunk(call: Call[ChunkQuery, None]) -> Answer:
    store, asked, run_id = _logs_of(call), call.query, await check_reaches(call)
    found = await store.read(run_id, _log_key(asked), asked.offset, limit=asked.limit)
    return Answer(value=Chunk(offset=found.offset, size=found.size, data=found.data))


async def append_chunk(call: Call[NoQuery, NewChunk]) -> Answer:
    store, given = _logs_of(call), call.body
    fencing = Fencing(given.owner_id, given.fence)
    run_id = await check_holds(call, fencing)
    size = await store.append(run_id, fencing, _log_key(given), given.offset, given.data)
    return Answer(value=Appended(size=size))


def _log_key(of: ChunkQuery | NewChunk) -> LogKey:
    return LogKey(step=of.step, host=of.host, stream=of.stream, item=of.item, attempt=of.attempt)


def _logs_of(call: Call[Any, Any]) -> LogStore:
    if isinstance(call.parts.store, LogStore):
        return call.parts.store
    raise NotSupported(f"{type(call.parts.store).__name__} keeps no full output")
