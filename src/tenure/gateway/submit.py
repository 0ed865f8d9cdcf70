"""New runs: submitting a workflow, retrying a run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from tenure.gateway.answers import hosts_in
from tenure.gateway.auth import check_queue, run_of
from tenure.gateway.calls import Answer, Call, Caller
from tenure.gateway.idempotency import RequestKey, key_of
from tenure.gateway.problems import TOO_LARGE, Refusal
from tenure.model.errors import (
    AlreadyRetried,
    ExpressionError,
    InvalidOptions,
    InvalidWorkflow,
    KeyReused,
    NotRunnable,
    RunExists,
)
from tenure.model.snapshot import RunSnapshot, summarize
from tenure.runtime.options import RunOptions
from tenure.runtime.prepare import Source
from tenure.runtime.retry import RetryOptions
from tenure.wire.runs import NewCallback, NoQuery, RetryRequest, Submission, SubmitOptions
from tenure.workflow.arguments import compile_loop
from tenure.workflow.callbacks import Signing
from tenure.workflow.parse import placed
from tenure.workflow.plan import Exports, PlannedStep, make_plan
from tenure.workflow.spec import CallbackSpec

_MAX_OPTIONS_BYTES = 1 << 20
_COUNTING_S = 5.0
"""For expressions of loops; what takes longer counts as too many."""


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
    """``KeyReused`` if the run of a key was created by another request."""
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
    most = call.parts.limits.run_tasks
    await asyncio.to_thread(_check_tasks, source, body.options, most)
    options = _options(body, call.caller, key)
    _check_signing(call.parts.desk.signing, source, options)
    return await call.parts.desk.submit(source, options, update_id=key.update_id if key else None)


def _check_signing(signing: Signing, source: Source, options: RunOptions) -> None:
    """Also checked where it is signed: the settings may change, and a worker has its own."""
    for index, target in enumerate(source.workflow.callbacks):
        if fault := signing.fault_of(target):
            found = ("callbacks", index, "secret_env"), fault.message, fault.hint or ""
            raise InvalidWorkflow(placed([found], source.source, source.text))
    for index, given in enumerate(options.callbacks):
        if fault := signing.fault_of(given):
            said = f"callbacks[{index}].secret_env: {fault.message}; {fault.hint}"
            raise InvalidOptions([said])


def _check_tasks(source: Source, options: SubmitOptions, most: int) -> None:
    """``InvalidWorkflow`` for a run whose record nothing could show: a small workflow may mean
    millions of tasks."""
    plan = make_plan(source.workflow, limit=options.limit, local=options.local)
    exports, until = Exports(plan, options.vars), monotonic() + _COUNTING_S
    tasks = 0
    for step in plan.steps:
        handlers = 1 + len(step.step.notify)
        for times in _times(step, exports):
            tasks += times * handlers
            if tasks > most or monotonic() > until:
                raise _too_many_tasks(source, most)


def _times(step: PlannedStep, exports: Exports) -> Iterator[int]:
    """How often it runs on each of its hosts; once, as far as it cannot be known before."""
    if step.step.loop is None:
        yield len(step.hosts)
        return
    loop = compile_loop(step.step.loop)
    for host in step.hosts:
        try:
            yield max(1, len(loop.items(exports.scope(host))))
        except ExpressionError:
            yield 1


def _too_many_tasks(source: Source, most: int) -> InvalidWorkflow:
    said = f"more than {most:,} tasks: hosts of all steps, with the items of loops and handlers"
    hint = "make several runs of it (limit), or raise gateway_run_tasks of the gateway"
    return InvalidWorkflow(placed([(("steps",), said, hint)], source.source, source.text))


def _text(workflow: str | dict[str, Any]) -> str:
    """An object is stored as JSON, which is YAML too."""
    if isinstance(workflow, str):
        return workflow
    return msgspec.json.format(msgspec.json.encode(workflow), indent=2).decode()


def _as_given(error: InvalidWorkflow, workflow: str | dict[str, Any]) -> InvalidWorkflow:
    """Mistakes in an object get a path only: it had no lines."""
    if isinstance(workflow, str):
        return error
    return InvalidWorkflow(replace(each, line=None, column=None) for each in error.mistakes)


def _check_size(options: SubmitOptions) -> None:
    """Options are part of the record, which is read again and again; files are not."""
    if len(msgspec.json.encode(options)) > _MAX_OPTIONS_BYTES:
        said = f"options may have {_MAX_OPTIONS_BYTES} bytes in all; send large values as files"
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
    if hosts_in(old) > call.parts.limits.run_tasks:
        said = f"run {old.run_id} has more than {call.parts.limits.run_tasks:,} tasks"
        raise InvalidOptions([f"run_id: {said}, the most that a run of this gateway may have"])
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
    return Answer(status=201, value=summarize(run), headers=headers)
