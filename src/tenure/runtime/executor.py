"""Executes one host of one step: rendering, attempts, time-out, retries. Knows no store and no
other host."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from tenure.aio import pause, times_cancelled
from tenure.model.errors import (
    ExpressionError,
    HostUnreachable,
    InvalidArguments,
    LeaseLost,
    StillRunning,
    SupervisorLost,
    TenureError,
    Untrusted,
)
from tenure.model.status import HostStatus
from tenure.ports.execution import (
    NOTHING_SECRET,
    Action,
    Endpoint,
    Masking,
    Output,
    Task,
    TaskResult,
    Transport,
)
from tenure.runtime.masking import Masks
from tenure.runtime.output import OutputSink, TaskOutput
from tenure.runtime.recipe import Recipe
from tenure.runtime.time_limit import TimeLimit
from tenure.workflow.durations import show_duration

_ENDS = frozenset(
    {HostStatus.SUCCESS, HostStatus.FAILED, HostStatus.SKIPPED, HostStatus.UNREACHABLE}
)
_TRIED_AGAIN = frozenset({HostStatus.FAILED, HostStatus.UNREACHABLE})
SUPERVISOR_LOST = "supervisor_lost"
"""Kind of a task that is ``unknown`` and yet gone: its step's ``on_takeover`` decides."""
_NO_FAILURES = (
    (Untrusted, HostStatus.INTERRUPTED, "lease"),
    (StillRunning, HostStatus.UNKNOWN, "still_running"),
    (SupervisorLost, HostStatus.UNKNOWN, SUPERVISOR_LOST),
    (HostUnreachable, HostStatus.UNREACHABLE, "unreachable"),
)
"""Errors that leave open whether the action succeeded, with the status and kind they lead to."""
_PLAIN_RESULT = TaskResult()
_CANCELED = TaskResult(status=HostStatus.CANCELED)
_CANCELLED_INSIDE = TaskResult(
    status=HostStatus.FAILED,
    kind="exception",
    message="CancelledError: what the action waited for was cancelled",
)
_MAX_MESSAGE_CHARS = 2000
_MAX_REASON_CHARS = 200
_LONG_WAIT_S = 1.0
"""A longer wait between two attempts is shown in the record at once."""


class Assignment(Struct, frozen=True, kw_only=True, gc=False):
    """One task: a step on one host, for one item."""

    run_id: str
    fence: int
    index: int
    recipe: Recipe
    host: Endpoint
    scope: Mapping[str, Any]
    item: int | None = None
    attempts: int = 0
    """Made by earlier owners, the last of which was lost during the last attempt."""
    probe: bool = False
    """A probe of a step's ``verify``; its output is not logged."""
    folder: str | None = None
    files: Mapping[str, bytes] = {}


class Outcome(Struct, frozen=True, kw_only=True, gc=False):
    """How a task ended, after all attempts."""

    status: HostStatus
    message: str | None = None
    kind: str | None = None
    exit_code: int | None = None
    attempts: int = 1
    changed: bool | None = None
    vars: dict[str, Any] = {}
    secret_vars: frozenset[str] = frozenset()
    """Names of variables with a secret in them: later steps see them, the record does not."""
    stdout: str | None = None
    stderr: str | None = None
    truncated: bool = False
    cut_short: bool = False
    """Cancelled, or not begun, because the run ends."""


PLAIN_SUCCESS = Outcome(status=HostStatus.SUCCESS)


class FailedAttempt(NamedTuple):
    """A failed attempt that is followed by another."""

    outcome: Outcome
    of: int
    wait: float
    """Seconds until the next one."""

    def message(self, now: datetime) -> str:
        """The host's message while it waits. Still true when the next attempt has begun."""
        failed, at = self.outcome, now + timedelta(seconds=self.wait)
        why = failed.message or (f"exit {failed.exit_code}" if failed.exit_code else failed.status)
        number = failed.attempts
        return (
            f"attempt {number} of {self.of} failed ({' '.join(why.split())[:_MAX_REASON_CHARS]}); "
            f"attempt {number + 1} at {at:%Y-%m-%d %H:%M:%S} UTC"
        )


Tried = Callable[[int, FailedAttempt | None], None]
"""Called with the number of the newest attempt; before a long wait also with what failed."""


class CutShort(asyncio.CancelledError):
    """A cancelled attempt, with its outcome so far, output included."""

    def __init__(self, seen: Outcome) -> None:
        super().__init__()
        self.seen = seen


class Executor:
    """``printed`` creates the sink for an attempt's output. Messages and output of an outcome are
    masked; exports may hold secrets and are listed in ``secret_vars``."""

    def __init__(
        self,
        transport: Transport,
        printed: Callable[[Assignment, int], OutputSink],
        masks: Masks | None = None,
    ) -> None:
        self._transport = transport
        self._printed = printed
        self._masks = masks

    def execute(
        self, assignment: Assignment, tried: Tried | None = None
    ) -> Coroutine[Any, Any, Outcome]:
        """``tried`` is called before each further attempt.

        Being cancelled ends the task's processes first, then raises ``CutShort``. ``LeaseLost`` is
        passed on. A task that could not be ended is ``unknown`` and not tried again; one that was
        ended because its lease is no longer trusted is ``interrupted``.
        """
        if assignment.recipe.retries.attempts == 1:
            return self._attempt(assignment, assignment.attempts + 1)
        return self._attempt_all(assignment, tried)

    async def _attempt_all(self, assignment: Assignment, tried: Tried | None) -> Outcome:
        policy = assignment.recipe.retries
        attempt = assignment.attempts + 1
        lost = min(assignment.attempts, 1)
        """An attempt lost with its owner does not use up a retry."""
        while True:
            outcome = await self._attempt(assignment, attempt)
            if outcome.status not in _TRIED_AGAIN:
                return outcome
            wait = policy.wait_after(attempt - lost, luck=random.random())  # noqa: S311
            if wait is None:
                return outcome
            long = wait >= _LONG_WAIT_S
            if tried is not None and long:  # instead of after the wait: no further update
                tried(attempt + 1, FailedAttempt(outcome, policy.attempts + lost, wait))
            try:
                if wait:
                    await pause(wait)
            except asyncio.CancelledError as cancelled:
                if tried is not None and long:
                    tried(attempt, None)  # the next one will not begin
                raise CutShort(outcome) from cancelled
            attempt += 1
            if tried is not None and not long:
                tried(attempt, None)

    async def _attempt(self, assignment: Assignment, attempt: int) -> Outcome:
        output = TaskOutput(partial(self._printed, assignment, attempt))
        recipe = assignment.recipe
        try:
            task, action = _task(assignment, attempt, self._masks), recipe.action
            if self._masks is not None:
                keep_out_of_sight(task, recipe.args.in_sight, self._masks)
            if recipe.timeout:
                applied = _apply_within(recipe.timeout, action, task, self._transport, output)
            else:
                applied = action.apply(task, self._transport, output)
            result = await applied
            plain = type(result) is TaskResult and result == _PLAIN_RESULT
            if plain and output.printed is None and attempt == 1:
                return PLAIN_SUCCESS  # the usual case: nothing to check or to mask
            result = _checked(result)
        except LeaseLost:
            raise
        except asyncio.CancelledError as cancelled:
            if times_cancelled():
                if output.printed is not None:
                    output.printed.end()
                raise CutShort(_outcome(_CANCELED, attempt, output.printed)) from cancelled
            result = _CANCELLED_INSIDE
        except Exception as error:  # noqa: BLE001  whatever an action raises is its failure
            result = _failed(error)
        finally:
            if output.printed is not None:
                await output.printed.close()
        outcome = _outcome(result, attempt, output.printed, self._masks or NOTHING_SECRET)
        return outcome if self._masks is None else _without_secrets(outcome, self._masks)


def _task(assignment: Assignment, attempt: int, masks: Masks | None) -> Task:
    recipe = assignment.recipe
    rendered = recipe.args.render(assignment.scope)
    item = "" if assignment.item is None else f".{assignment.item}"
    task_id = f"{assignment.run_id}:{assignment.index}{item}:{assignment.host.name}:{attempt}"
    env = rendered.env
    if recipe.action.spec.environment:
        env = {
            **env,
            "TENURE_RUN_ID": assignment.run_id,
            "TENURE_STEP": recipe.name,
            "TENURE_HOST": assignment.host.name,
            "TENURE_TASK_ID": task_id,
            "TENURE_FENCE": str(assignment.fence),
        }
    return Task(
        task_id=task_id,
        run_id=assignment.run_id,
        step=recipe.name,
        step_index=assignment.index,
        host=assignment.host,
        action=recipe.action.spec.name,
        args=rendered.args,
        env=env,
        vars=assignment.scope,
        item=assignment.item,
        attempt=attempt,
        fence=assignment.fence,
        folder=assignment.folder,
        files=assignment.files,
        become=recipe.become,
        masks=masks or NOTHING_SECRET,
    )


def keep_out_of_sight(task: Task, in_sight: Iterable[str], masks: Masks) -> None:
    """``InvalidArguments`` if a secret is in an argument that other users of the host can read."""
    for name in in_sight:
        if masks.is_in(task.args[name]):
            raise InvalidArguments(
                f"args.{name}: there is a secret in it, and every user of the host could read it; "
                "commands and scripts have secrets in their environment"
            )


async def _apply_within(
    at_most: float, action: Action, task: Task, transport: Transport, output: Output
) -> TaskResult:
    limit = TimeLimit(at_most)
    try:
        async with limit:
            return await action.apply(task, limit.timed(transport), output)
    except TimeoutError:
        if not limit.expired:
            raise  # the action's own
    except StillRunning as error:
        if not limit.expired:
            raise
        took = show_duration(at_most)
        raise StillRunning(f"timed out after {took}, and then: {error}") from error
    return TaskResult(
        status=HostStatus.FAILED,
        kind="timeout",
        message=f"timed out after {show_duration(at_most)}",
    )


def _checked(result: object) -> TaskResult:
    if isinstance(result, TaskResult) and result.status in _ENDS and isinstance(result.vars, dict):
        return result
    message = f"the action must return a TaskResult that says how it ended, not {result!r}"
    return TaskResult(status=HostStatus.FAILED, kind="exception", message=message)


def _failed(error: Exception) -> TaskResult:
    for raised, status, kind in _NO_FAILURES:
        if isinstance(error, raised):
            return TaskResult(status=status, kind=kind, message=str(error))
    kind = "exception"
    message = str(error) or type(error).__name__
    if isinstance(error, InvalidArguments | ExpressionError):
        kind = "arguments"
    elif not isinstance(error, TenureError | OSError):
        message = f"{type(error).__name__}: {message}"
    return TaskResult(status=HostStatus.FAILED, kind=kind, message=message)


def _outcome(
    result: TaskResult, attempt: int, printed: OutputSink | None, masks: Masking = NOTHING_SECRET
) -> Outcome:
    stdout, stderr = (printed.stdout, printed.stderr) if printed is not None else (None, None)
    return Outcome(
        status=HostStatus(result.status),
        message=result.message and _message(result.message, masks),
        kind=result.kind,
        exit_code=result.exit_code,
        attempts=attempt,
        changed=result.changed,
        vars=result.vars,
        stdout=stdout.text() if stdout is not None else None,
        stderr=stderr.text() if stderr is not None else None,
        truncated=printed is not None and printed.truncated,
    )


def _message(message: str, masks: Masking) -> str:
    """A message for the record: storable, masked, then shortened."""
    if not message.isascii():
        # Half a surrogate pair (from a file name, say) could not be stored. Masks know this form.
        message = message.encode("utf-8", "replace").decode()
    message = masks.text(message)
    return (
        message if len(message) <= _MAX_MESSAGE_CHARS else f"{message[: _MAX_MESSAGE_CHARS - 1]}…"
    )


def _without_secrets(outcome: Outcome, masks: Masks) -> Outcome:
    return replace(
        outcome,
        secret_vars=frozenset(name for name, value in outcome.vars.items() if masks.is_in(value)),
    )
