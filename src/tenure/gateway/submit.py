"""New runs: a workflow handed in, or what an old run left."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from tenure.gateway.auth import check_queue, run_of
from tenure.gateway.calls import Answer, Call, Caller
from tenure.gateway.idempotency import RequestKey, key_of
from tenure.gateway.problems import TOO_LARGE, Refusal
from tenure.gateway.runs import shown
from tenure.model.errors import AlreadyRetried, InvalidWorkflow, KeyReused, NotRunnable, RunExists
from tenure.model.snapshot import RunSnapshot
from tenure.runtime.options import RunOptions
from tenure.runtime.retry import RetryOptions
from tenure.wire.runs import NewCallback, NoQuery, RetryRequest, Submission, SubmitOptions
from tenure.workflow.spec import CallbackSpec

_MOST_OPTIONS = 1 << 20


@contextmanager
def _unnamed(caller: Caller) -> Iterator[None]:
    """The retry that is under way may be in a queue that is not the caller's."""
    try:
        yield
    except AlreadyRetried as error:
        if caller.queues is None:
            raise
        raise NotRunnable(error.run_id, "is being retried: wait until that has ended") from error


@contextmanager
def _named(key: RequestKey | None) -> Iterator[None]:
    """The run of a key is there, and another request made it."""
    try:
        yield
    except RunExists as error:
        if key is None:
            raise
        raise KeyReused from error


async def submit(call: Call[NoQuery, Submission]) -> Answer:
    body = call.body
    key = await key_of(call, body.options.run_id)
    _check_size(body.options)
    try:
        with _named(key):
            made = await _submitted(call, key)
            # Sent again, it may have gone on since.
            return _created(made if key is None else await call.parts.store.get_run(made.run_id))
    except InvalidWorkflow as error:
        raise _as_given(error, body.workflow) from error


async def _submitted(call: Call[NoQuery, Submission], key: RequestKey | None) -> RunSnapshot:
    body = call.body
    source = await asyncio.to_thread(call.parts.read, _text(body.workflow))
    check_queue(call.caller, body.options.queue or source.workflow.queue)
    options = _options(body, call.caller, key)
    return await call.parts.desk.submit(source, options, update_id=key.update_id if key else None)


def _text(workflow: str | dict[str, Any]) -> str:
    """An object is kept as JSON, which is YAML too."""
    if isinstance(workflow, str):
        return workflow
    return msgspec.json.format(msgspec.json.encode(workflow), indent=2).decode()


def _as_given(error: InvalidWorkflow, workflow: str | dict[str, Any]) -> InvalidWorkflow:
    """Of mistakes in an object only the path is told: nobody saw its lines."""
    if isinstance(workflow, str):
        return error
    return InvalidWorkflow(replace(each, line=None, column=None) for each in error.mistakes)


def _check_size(options: SubmitOptions) -> None:
    """They are in the record, which everybody reads again and again; files are not."""
    if len(msgspec.json.encode(options)) > _MOST_OPTIONS:
        said = f"options may have {_MOST_OPTIONS} bytes in all; what is large goes into files"
        raise Refusal(TOO_LARGE, said)


def _options(body: Submission, caller: Caller, key: RequestKey | None) -> RunOptions:
    given = asdict(body.options)
    approve = given.pop("approve")
    named = {
        "run_id": key.run_id if key else body.options.run_id,
        "callbacks": tuple(map(_callback, body.options.callbacks)),
        "approved_by": caller.name if approve else None,
        "requested_by": caller.name,
        "files": body.files,
    }
    return RunOptions(**given | named)


def _callback(given: NewCallback) -> CallbackSpec:
    return CallbackSpec(
        url=given.url, events=given.events, secret_env=given.secret_env, headers=given.headers
    )


async def retry(call: Call[NoQuery, RetryRequest]) -> Answer:
    old, given = await run_of(call), call.body
    key = await key_of(call, given.run_id)
    options = RetryOptions(
        run_id=key.run_id if key else given.run_id,
        only_failed=given.only_failed,
        from_step=given.from_step,
        again=given.again,
        limit=given.limit,
        approved_by=call.caller.name if given.approve else None,
        requested_by=call.caller.name,
    )
    update_id = key.update_id if key else None
    with _named(key), _unnamed(call.caller):
        made = await call.parts.desk.submit_retry(old.run_id, options, update_id=update_id)
    return _created(made)


def _created(run: RunSnapshot) -> Answer:
    headers = {"location": f"/v1/runs/{run.run_id}"}
    return Answer(status=201, value=shown(run), headers=headers)
