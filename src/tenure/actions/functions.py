"""Calling Python functions: what they may return, and how their failures are told."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from functools import partial
from inspect import isawaitable
from typing import Any

from tenure.actions.threads import in_thread
from tenure.model.status import HostStatus
from tenure.ports.action import LET_THROUGH, TaskResult
from tenure.ports.transport import Output

_DONE = TaskResult()


async def call(
    function: Callable[..., Any],
    args: Mapping[str, Any],
    awaited: bool,
    name: str,
    output: Output,
) -> TaskResult:
    """Await it, or call it in a thread. Its traceback goes where output goes."""
    try:
        if awaited:
            returned = await function(**args)
        else:
            returned = await in_thread(partial(function, **args), name)
            if isawaitable(returned):  # an async function behind a plain wrapper
                returned = await returned
    except LET_THROUGH:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it raises is its failure
        await output.write("stderr", traceback.format_exc().encode("utf-8", "replace"))
        return failed(error)
    return result_of(returned, name)


def result_of(returned: object, name: str) -> TaskResult:
    if returned is None:
        return _DONE
    if isinstance(returned, TaskResult):
        return returned
    if isinstance(returned, dict) and all(isinstance(key, str) for key in returned):
        return TaskResult(vars=returned)
    return TaskResult(
        status=HostStatus.FAILED,
        kind="exception",
        message=f"{name} returned {type(returned).__name__}; return None, a dict of variables by "
        "name, or a TaskResult",
    )


def failed(error: Exception) -> TaskResult:
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return TaskResult(status=HostStatus.FAILED, kind="exception", message=text)
