"""``http.request``: one request, made by the process that executes the run."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import msgspec
from aiohttp import (
    ClientConnectorCertificateError,
    ClientConnectorDNSError,
    ClientError,
    ClientResponse,
    ClientResponseError,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    InvalidURL,
    ServerDisconnectedError,
    TCPConnector,
    TooManyRedirects,
    TraceConfig,
    TraceRequestRedirectParams,
)
from msgspec import Struct
from msgspec.structs import replace
from yarl import URL

from tenure._version import __version__
from tenure.actions.arguments import duration, encoded, seconds_of
from tenure.model.errors import InvalidArguments, InvalidExports, TransportError
from tenure.model.status import HostStatus
from tenure.ports.execution import CheckResult, Masking, Output, Task, TaskResult, Transport
from tenure.workflow.catalogue import ActionSpec, Argument, Form
from tenure.workflow.checks import is_web_address
from tenure.workflow.durations import show_duration
from tenure.workflow.environment import text_of
from tenure.workflow.sandbox import number_of
from tenure.workflow.wording import called, listed, quoted

# A request, made ready from the arguments of a task.


TIMEOUT = "30s"
HARMLESS = frozenset({"accept", "accept-encoding", "accept-language", "content-type", "user-agent"})
"""Headers that a request takes along to another origin."""
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
_UNFIT_IN_HEADER = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class Request(Struct, frozen=True, kw_only=True):
    method: str
    url: str
    headers: dict[str, str]
    body: bytes | None
    timeout: float
    follow_redirects: bool
    verify: bool
    place: str
    """The URL for messages: what may be secret about it is left out."""

    def __str__(self) -> str:
        return f"{self.method} {self.place}"


def request_of(task: Task) -> Request:
    """``InvalidArguments``."""
    args = task.args
    url = str(args["url"])
    if not is_web_address(url):
        raise InvalidArguments("url must be an http or https address")
    body, kind = _body(task)
    return Request(
        method=str(args.get("method") or ("GET" if body is None else "POST")),
        url=url,
        headers=_headers(args.get("headers") or {}, kind),
        body=body,
        timeout=seconds_of(task, "timeout", TIMEOUT) or 0,
        follow_redirects=bool(args.get("follow_redirects", False)),
        verify=bool(args.get("verify", True)),
        place=public(task.masks.text(url)),
    )


def public(url: str) -> str:
    """Without user, password, query and fragment."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "another address"
    place = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{place}{parts.path}" if place else parts.path


def are_headers(headers: dict[str, Any]) -> bool:
    return all(
        _HEADER.fullmatch(name) and not isinstance(value, list | dict)
        for name, value in headers.items()
    )


def _headers(given: dict[str, Any], kind: str | None) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in given.items():
        headers[name] = text_of(value)
        if not are_headers({name: "fine"}):
            raise InvalidArguments(f"headers: {quoted(name)} is no header a request could carry")
        if not are_headers({name: value}) or _UNFIT_IN_HEADER.search(headers[name]):
            raise InvalidArguments(f"headers: {quoted(name)}: no request could carry its value")
    if kind is not None and "content-type" not in map(str.lower, headers):
        headers["Content-Type"] = kind
    return headers


def _body(task: Task) -> tuple[bytes | None, str | None]:
    """And what kind of contents it is."""
    if task.args.get("body") is not None:
        return encoded(text_of(task.args["body"]), "body"), "text/plain; charset=utf-8"
    if task.args.get("json") is not None:
        return msgspec.json.encode(task.args["json"]), "application/json"
    return None, None


# What an answer means: as expected or not, and what is exported from it.


MOST = 1024 * 1024
"""Bytes of an answer that are read."""
_SHOWN = 4096
_QUOTED = 160


class Answer(Struct, frozen=True, kw_only=True):
    status: int
    reason: str = ""
    location: str = ""
    body: bytes = b""
    cut: bool = False
    """There was more of it than ``MOST``."""


def presentable(answer: Answer, masks: Masking) -> Answer:
    """Without secrets: what is shown of an answer is tidied, and cut, and taken from this one."""
    return replace(
        answer,
        reason=masks.text(answer.reason),
        location=masks.text(answer.location),
        body=masks.data(answer.body, cut=answer.cut),
    )


def unexpected(
    answer: Answer, seen: Answer, statuses: Collection[Any] | None, text: str | None = None
) -> str | None:
    """What is wrong with it, in words from the presentable one. ``statuses`` ``None``: any from
    200 to 299."""
    status = answer.status
    if not (200 <= status < 300 if statuses is None else status in statuses):
        if 300 <= status < 400 and answer.location:
            return (
                f"answered {status}, a redirect to {_line(public(seen.location))}; ask there, "
                "or set follow_redirects: true"
            )
        quoted = _line(seen.body.decode(errors="replace"))
        return f"answered {status}{f': {quoted}' if quoted else ''}"
    if text is not None and text.encode(errors="surrogateescape") not in answer.body:
        where = f" in its first {MOST} bytes" if answer.cut else ""
        return f"answered {status}, without what expect_body says{where}"
    return None


def exported(answer: Answer, paths: Mapping[str, str]) -> dict[str, Any]:
    """``InvalidExports`` names what is not there."""
    if not paths:
        return {}
    if answer.cut:
        raise InvalidExports(f"the answer is longer than {MOST} bytes: nothing is exported from it")
    try:
        whole = msgspec.json.decode(answer.body)
    except (ValueError, RecursionError) as error:
        raise InvalidExports("the answer is no JSON: nothing can be exported from it") from error
    return {name: _at(whole, str(path), name) for name, path in paths.items()}


def _at(value: Any, path: str, name: str) -> Any:
    for part in filter(None, path.split(".")):
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            raise InvalidExports(f"export.{name}: {path} is not in the answer; {_about(value)}")
    return value


def _about(value: Any) -> str:
    if isinstance(value, dict):
        return f"there is {listed(value, 5)}" if value else "there is an empty map"
    if isinstance(value, list):
        return f"there is a list of {len(value)}"
    return f"there is {called(value)}"


def shown(seen: Answer, length: int) -> bytes:
    """For the log: its status and the beginning of its body, which was of that length."""
    size = f"more than {MOST}" if seen.cut else str(length)
    head = " ".join(filter(None, ("HTTP", str(seen.status), _line(seen.reason))))
    body = seen.body[:_SHOWN]
    more = seen.cut or len(seen.body) > _SHOWN
    tail = f"\n… of {size} bytes\n".encode() if more else b"" if body.endswith(b"\n") else b"\n"
    return f"{head}\n".encode() + (body + tail if body else b"")


def _line(text: str) -> str:
    """Fit to stand in a message."""
    words = "".join(each if each.isprintable() else " " for each in text[:_SHOWN]).split()
    line = " ".join(words)
    return line if len(line) <= _QUOTED else f"{line[:_QUOTED]}…"


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

HTTP_REQUEST_SPEC = ActionSpec(
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
    spec = HTTP_REQUEST_SPEC

    async def apply(self, task: Task, transport: Transport, output: Output) -> TaskResult:
        request, expected = request_of(task), _expected(task)
        # A workflow that makes no request need not load what is needed for one.

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


HTTP_REQUEST = HttpRequest()


# What a request does not take along to another origin: any header might be a key to the first one,
# so only those that cannot be are. What is left behind does not come back with a later redirect.


def cautious() -> TraceConfig:
    """For a session. The library hands over the very headers that its next request will have."""
    config = TraceConfig()
    config.on_request_redirect.append(_redirected)
    return config


async def _redirected(
    session: ClientSession, context: SimpleNamespace, hop: TraceRequestRedirectParams
) -> None:
    said = hop.response.headers
    if not _stays(
        hop.url, said.get("location") or said.get("uri") or ""
    ):  # as the library reads it
        for name in set(hop.headers):
            if name.lower() not in HARMLESS:
                hop.headers.popall(name, None)


def _stays(url: URL, to: str) -> bool:
    try:
        return bool(url.join(URL(to)).origin() == url.origin())
    except ValueError:
        return False


# One request over the wire, and what comes back of it.
#
# A connection of its own, closed afterwards; no cookies, no proxy and no credentials from the
# environment. Nothing is decompressed, so what is read is bounded by what was sent.


_MOST_REDIRECTS = 10
_ALWAYS = {"User-Agent": f"tenure/{__version__}", "Accept-Encoding": "identity"}


async def exchange(request: Request) -> Answer:
    """``TransportError`` if there is no answer."""
    try:
        async with (
            _session(request) as session,
            session.request(
                request.method,
                request.url,
                data=request.body,
                headers=request.headers,
                allow_redirects=request.follow_redirects,
                max_redirects=_MOST_REDIRECTS,
            ) as response,
        ):
            body = await _beginning(response)
            return Answer(
                status=response.status,
                reason=response.reason or "",
                location=response.headers.get("location", ""),
                body=body[:MOST],
                cut=len(body) > MOST,
            )
    except (ClientError, OSError) as error:
        raise TransportError(_why(error, request)) from error


def _session(request: Request) -> ClientSession:
    return ClientSession(
        connector=TCPConnector(ssl=request.verify, force_close=True),
        timeout=ClientTimeout(total=request.timeout),
        headers=_ALWAYS,
        cookie_jar=DummyCookieJar(),
        auto_decompress=False,
        trace_configs=[cautious()],
    )


async def _beginning(response: ClientResponse) -> bytes:
    body = bytearray()
    while len(body) <= MOST and (chunk := await response.content.readany()):
        body += chunk
    return bytes(body)


def _why(error: ClientError | OSError, request: Request) -> str:
    """In our words: the library's may hold the whole URL."""
    match error:
        case ClientConnectorDNSError():
            return "the name of its host cannot be resolved"
        case ClientConnectorCertificateError():
            why = getattr(error.certificate_error, "verify_message", "")
            return f"its certificate is not accepted: {why}"
        case TimeoutError():
            return f"no whole answer within {show_duration(request.timeout)}"
        case TooManyRedirects():
            return f"redirected more than {_MOST_REDIRECTS} times"
        case InvalidURL():
            return "the url, or where it redirects to, cannot be asked"
        case ServerDisconnectedError():
            return "the connection was closed without an answer"
        case ClientResponseError():
            return "the answer is not HTTP"
        case OSError() if error.errno:
            return f"no connection: {os.strerror(error.errno)}"
    return "the connection was lost"
