"""Reading runs: lists, one, why it is not moving, and what it executes."""

from __future__ import annotations

from msgspec.structs import replace

from tenure.gateway.calls import Answer, Call
from tenure.gateway.reaching import check_reaches, own, queue_for, run_of
from tenure.gateway.validators import PRIVATE, not_modified
from tenure.model.errors import NotSupported
from tenure.model.query import RunFilter
from tenure.model.snapshot import RunSnapshot
from tenure.ports.lease_store import LeaseStore
from tenure.runtime.queries import explain_run
from tenure.wire.listings import NoQuery, RunPage, RunsQuery
from tenure.wire.targets import masked


async def list_runs(call: Call[RunsQuery, None]) -> Answer:
    where = _filter(call)
    page = await call.parts.store.list_runs(where, limit=call.query.limit, cursor=call.query.cursor)
    return Answer(value=RunPage(runs=own(call.caller, page.items), cursor=page.cursor))


async def list_runnable(call: Call[RunsQuery, None]) -> Answer:
    store, where = call.parts.store, _filter(call)
    if not isinstance(store, LeaseStore):
        raise NotSupported(f"{type(store).__name__} keeps no leases: nothing can be claimed")
    page = await store.list_runnable(where, limit=call.query.limit, cursor=call.query.cursor)
    return Answer(value=RunPage(runs=own(call.caller, page.items), cursor=page.cursor))


def _filter(call: Call[RunsQuery, None]) -> RunFilter:
    asked = call.query
    labels = (label.partition("=") for label in asked.label)
    return RunFilter(
        statuses=frozenset(asked.status),
        workflow_name=asked.workflow,
        queue=queue_for(call.caller, asked.queue),
        labels={key: value for key, _, value in labels},
        created_from=asked.created_from,
        created_to=asked.created_to,
        owner_id=asked.owner,
        held=asked.held,
        unapproved=asked.unapproved,
        canceling=asked.canceling,
    )


async def get_run(call: Call[NoQuery, None]) -> Answer:
    run = await run_of(call)
    tag = entity_tag(run)
    unchanged = not_modified(tag, call.headers)
    return unchanged or Answer(value=shown(run), headers={"etag": tag, **PRIVATE})


def entity_tag(run: RunSnapshot) -> str:
    """Of all that can change: version, and what changes without raising it (lease, callback)."""
    lease = run.lease_expires_at.timestamp() if run.lease_expires_at else 0
    dead = run.callback_error.at.timestamp() if run.callback_error else 0
    return f'W/"{run.version}-{run.fence}-{lease:.6f}-{run.owner_lost:d}-{dead:.6f}"'


def shown(run: RunSnapshot) -> RunSnapshot:
    """Of its callbacks no credential is shown."""
    if not run.callbacks:
        return run
    return replace(run, callbacks=tuple(map(masked, run.callbacks)))


async def explain(call: Call[NoQuery, None]) -> Answer:
    parts, run_id = call.parts, await check_reaches(call)
    said = await explain_run(parts.store, run_id, now=parts.now(), presence=parts.presence)
    return Answer(value=said)
