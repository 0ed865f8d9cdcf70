"""``http.request``: one request, made by the process that executes the run."""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

from tenure.actions.durations import duration
from tenure.actions.http_answers import MOST, exported, presentable, shown, unexpected
from tenure.actions.http_asking import TIMEOUT, Request, are_headers, request_of
from tenure.model.errors import InvalidArguments, InvalidExports, TransportError
from tenure.model.status import HostStatus
from tenure.ports.action import CheckResult, Task, TaskResult
from tenure.ports.transport import Output, Transport
from tenure.workflow.catalogue import ActionSpec, Argument, Form
from tenure.workflow.checks import is_web_address
from tenure.workflow.comparing import number_of

_CHANGES_NOTHING = frozenset({"GET", "HEAD", "OPTIONS"})
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def _is_status(value: Any) -> bool:
    """In a file an expression may stand for it."""
    status = number_of(value)
    return (isinstance(status, int) and 100 <= status <= 599) or "${" in str(value)


def _are_statuses(value: Any) -> bool:
    return all(map(_is_status, value)) if isinstance(value, list) else _is_status(value)


def _are_paths(value: dict[str, Any]) -> bool:
    return all(_VARIABLE.fullmatch(name) and isinstance(path, str) for name, path in value.items())


_STATUSES = Form(called="a status from 100 to 599, or a list of them", fits=_are_statuses)
_PATHS = Form(called="a map of variables and paths", fits=_are_paths)

SPEC = ActionSpec(
    name="http.request",
    description="Make an HTTP request from the process that executes the run, once for each host "
    f"of the step. Of the answer at most {MOST // 1024 // 1024} MiB is read; its beginning is in "
    "the step's output. `retries` of the step try again.",
    arguments=(
        Argument(
            name="url",
            required=True,
            form=Form(called="an http or https address", fits=is_web_address, pattern="^https?://"),
            description="Where to; http or https.",
        ),
        Argument(
            name="method",
            choices=("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"),
            description="GET if not given, or POST if there is a body.",
        ),
        Argument(
            name="headers",
            types=("object",),
            form=Form(called="a map of header names and texts", fits=are_headers),
            description="Further headers.",
        ),
        Argument(name="body", description="Text to send."),
        Argument(name="json", types=(), description="A value to send as JSON."),
        Argument(
            name="expect_status",
            types=("integer", "array"),
            form=_STATUSES,
            description="The status, or a list of those, that is a success; any from 200 to 299 if "
            "not given.",
        ),
        Argument(name="expect_body", description="Text that the answer must hold."),
        Argument(
            name="export",
            types=("object",),
            form=_PATHS,
            description="Variables to export from a JSON answer: name and dotted path, as in "
            "`VERSION: data.releases.0.name`.",
        ),
        duration("timeout", f"For the whole exchange; {TIMEOUT} if not given."),
        Argument(
            name="follow_redirects",
            types=("boolean",),
            description="Go where a redirect leads. To another scheme, host or port only the "
            "headers Accept, Accept-Encoding, Accept-Language, Content-Type and User-Agent are "
            "taken along, and the body if the redirect keeps it, as 307 and 308 do. If not given, "
            "a redirect is an answer like others.",
        ),
        Argument(
            name="verify",
            types=("boolean",),
            description="Whether the server's certificate must be valid; yes if not given.",
        ),
    ),
    at_most_one_of=(("body", "json"),),
    exports="export",
    in_process=True,
)


class _Expected(Struct, frozen=True):
    statuses: list[Any] | None
    text: str | None
    paths: dict[str, str]


class HttpRequest:
    spec = SPEC

    async def apply(self, task: Task, transport: Transport, output: Output) -> TaskResult:
        request, expected = request_of(task), _expected(task)
        # A workflow that makes no request need not load what is needed for one.
        from tenure.actions.http_exchange import exchange

        try:
            answer = await exchange(request)
        except TransportError as error:
            return _failed(request, "http", str(error))
        seen = presentable(answer, task.masks)
        await output.write("stdout", shown(seen, len(answer.body)))
        wrong = unexpected(answer, seen, expected.statuses, expected.text)
        if wrong is not None:
            return _failed(request, "http", wrong)
        try:
            found = exported(answer, expected.paths)
        except InvalidExports as error:
            return _failed(request, "exports", str(error))
        changed = False if request.method in _CHANGES_NOTHING else None
        return TaskResult(vars=found, changed=changed)

    async def check(self, task: Task, transport: Transport) -> CheckResult:
        request, expected = request_of(task), _expected(task)
        body = "" if request.body is None else f", {len(request.body)} bytes"
        exports = f"; exports {', '.join(expected.paths)}" if expected.paths else ""
        return CheckResult(summary=f"would send {request}{body}{exports}")


def _failed(request: Request, kind: str, why: str) -> TaskResult:
    return TaskResult(status=HostStatus.FAILED, kind=kind, message=f"{request}: {why}")


def _expected(task: Task) -> _Expected:
    """``InvalidArguments``."""
    status, text = task.args.get("expect_status"), task.args.get("expect_body")
    paths = task.args.get("export") or {}
    if status is not None and not _are_statuses(status):
        raise InvalidArguments(f"expect_status must be {_STATUSES.called}")
    if not isinstance(paths, dict) or not _are_paths(paths):
        raise InvalidArguments(f"export must be {_PATHS.called}")
    statuses = [status] if isinstance(status, int | str) else status
    wanted = None if statuses is None else [number_of(each) for each in statuses]
    return _Expected(wanted, text, paths)


ACTION = HttpRequest()
