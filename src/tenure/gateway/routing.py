"""From the raw request to its handler and back: query, body, headers, problems, entity tags."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar, get_origin, get_type_hints
from urllib.parse import parse_qsl

import msgspec
from msgspec import ValidationError, convert
from starlette.types import Receive, Scope, Send

from tenure.gateway.answers import (
    JSON,
    LARGE_BYTES,
    LargeAnswers,
    is_large,
    prefers,
    send_answer,
    send_large,
)
from tenure.gateway.auth import Admission
from tenure.gateway.calls import Answer, Call, GatewayState, Limits, RawAnswer, Route, StreamAnswer
from tenure.gateway.live.streams import SSE_MEDIA_TYPE, send_stream
from tenure.gateway.problems import (
    BUSY,
    MALFORMED,
    METHOD_NOT_ALLOWED,
    NOT_FOUND,
    TOO_LARGE,
    TOO_SLOW,
    UNSUPPORTED_MEDIA,
    Refusal,
    problem_of,
)
from tenure.wire.answers import PROBLEM_MEDIA_TYPE, full

Q = TypeVar("Q")

_MAX_QUERY_FIELDS = 100


def read_query(kind: type[Q], several: Collection[str], text: bytes) -> Q:
    """The query string as a ``kind``; ``several`` are the names that may be repeated. ``Refusal``
    for an unknown name, a repeated one, or a value out of bounds."""
    try:
        pairs = _pairs(text.decode("ascii")) if text else []
    except ValueError as error:
        raise Refusal(MALFORMED, "the query string cannot be read") from error
    given: dict[str, Any] = {}
    for name, value in pairs:
        if name in several:
            given.setdefault(name, []).append(value)
        elif name in given:
            raise Refusal(MALFORMED, f"{name[:60]!r} is given more than once")
        else:
            given[name] = value
    try:
        return convert(given, kind, strict=False)
    except ValidationError as error:
        raise Refusal(MALFORMED, f"the query: {error}") from error


def _pairs(text: str) -> list[tuple[str, str]]:
    return parse_qsl(
        text,
        keep_blank_values=True,
        strict_parsing=True,
        errors="strict",
        max_num_fields=_MAX_QUERY_FIELDS,
    )


def repeatable(kind: type[Any]) -> frozenset[str]:
    hints = get_type_hints(kind)
    return frozenset(name for name, of in hints.items() if get_origin(of) is tuple)


CLOSE = {"connection": "close"}
"""After a body that was not read to its end the connection cannot be reused."""

_MAX_DROPPED_BYTES = 16 << 20
_DROP_TIMEOUT_S = 2.0


class ClientGone(Exception):
    """The client has disconnected."""


class Intake:
    """Receives request bodies in bounded time and memory."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._held = 0

    async def body(self, receive: Receive, headers: dict[str, str], most: int | None) -> bytes:
        """The body, of ``most`` bytes if given. ``Refusal``; ``ClientGone``."""
        most = most or self._limits.body_bytes
        try:
            _check_length(headers.get("content-length"), most)
            return await self._received(receive, most)
        except Refusal as refusal:
            if refusal.problem.status == TOO_LARGE.status:
                await _drop_some(receive, min(_DROP_TIMEOUT_S, self._limits.body_seconds))
            raise

    async def _received(self, receive: Receive, most: int) -> bytes:
        chunks: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                more = True
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientGone
                    chunk = message.get("body", b"")
                    size += len(chunk)
                    self._held += len(chunk)
                    if size > most:
                        raise _too_large(most)
                    if self._held > self._limits.all_bodies:
                        raise Refusal(BUSY, "too many large requests at once", CLOSE)
                    chunks.append(chunk)
                    more = message.get("more_body", False)
        except TimeoutError as error:
            seconds = self._limits.body_seconds
            said = f"the body did not arrive within {seconds:g} seconds"
            raise Refusal(TOO_SLOW, said, CLOSE) from error
        finally:
            self._held -= size
        return b"".join(chunks)


async def _drop_some(receive: Receive, seconds: float) -> None:
    """Read on for a moment: a client that is still sending would not see our answer before the
    connection is closed."""
    dropped = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while dropped < _MAX_DROPPED_BYTES:
                message = await receive()
                dropped += len(message.get("body", b""))
                if not message.get("more_body", False):
                    return


def _check_length(given: str | None, most: int) -> None:
    if given is not None and given.isdecimal() and (len(given) > 18 or int(given) > most):
        raise _too_large(most)


def _too_large(most: int) -> Refusal:
    return Refusal(TOO_LARGE, f"the body may have {most} bytes at most", CLOSE)


def check_is_json(headers: dict[str, str]) -> None:
    """JSON is required: another site's page can send forms without a preflight, but not JSON."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refusal(UNSUPPORTED_MEDIA, "send JSON with content-type: application/json")


def decoded(decoder: msgspec.json.Decoder[Any], data: bytes) -> Any:
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        raise Refusal(MALFORMED, f"the body: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refusal(MALFORMED, f"the body is not JSON: {error}") from error
    except RecursionError as error:
        raise Refusal(MALFORMED, "the body is nested too deeply") from error


_log = logging.getLogger("tenure.gateway")

Headers = dict[str, str]

CALLER = "tenure.caller"
CREATED_RUN_ID = "tenure.run_id"
TOKEN = "tenure.token_id"  # noqa: S105  (a key of the scope)
"""Scope keys: the admitted caller, the run it created, its token."""
_SINGLE_HEADERS = frozenset(
    {b"authorization", b"content-type", b"host", b"idempotency-key", b"origin"}
)
_RETRY_AFTER = {"retry-after": "1"}


class Resource:
    """All methods of one path, as an ASGI application."""

    def __init__(
        self,
        routes: Sequence[Route[Any, Any]],
        parts: GatewayState,
        admission: Admission,
        intake: Intake,
        large: LargeAnswers,
    ) -> None:
        self._methods = {
            route.method: Method(route, parts, admission, intake, large) for route in routes
        }
        if "GET" in self._methods:
            self._methods["HEAD"] = self._methods["GET"]
        self._allowed = ", ".join(sorted(self._methods))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = self._methods.get(scope["method"])
        if method is not None:
            await method(scope, receive, send)
            return
        said = f"{scope['path'][:200]} takes {self._allowed}"
        refusal = Refusal(METHOD_NOT_ALLOWED, said, {"allow": self._allowed})
        await send_problem(scope, send, refusal)


class Method:
    def __init__(
        self,
        route: Route[Any, Any],
        parts: GatewayState,
        admission: Admission,
        intake: Intake,
        large: LargeAnswers,
    ) -> None:
        self._route = route
        self._large = large
        self._parts = parts
        self._admission = admission
        self._intake = intake
        self._decoder = None if route.body is None else msgspec.json.Decoder(route.body)
        self._several = repeatable(route.query)
        self._shown = {status: full(kind) for status, kind in route.answers.items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            headers = headers_of(scope)
            answer = await self._answer(scope, receive, headers)
            if isinstance(answer, StreamAnswer):
                dismissal = partial(self._admission.dismissal, scope, headers)
                closing, patience = self._parts.closing, self._parts.patience
                await send_stream(scope, receive, send, answer.parts, closing, dismissal, patience)
                return
            if isinstance(answer, Answer):
                scope[CREATED_RUN_ID] = getattr(answer.value, "run_id", None)
                if is_large(answer.value):
                    await self._send_large(scope, send, answer)
                    return
            body, media_type = self._encoded(answer)
            if len(body) > LARGE_BYTES:
                with self._large.one(scope[TOKEN]):
                    await self._send(scope, send, answer, body, media_type)
                return
        except ClientGone:
            return
        except Exception as error:  # noqa: BLE001  (each becomes a problem document)
            await send_problem(scope, send, error)
            return
        await self._send(scope, send, answer, body, media_type)

    async def _send(
        self, scope: Scope, send: Send, answer: Answer | RawAnswer, body: bytes, media_type: str
    ) -> None:
        await send_answer(
            send,
            answer.status,
            body,
            media_type,
            answer.headers,
            accept_encoding=header(scope, b"accept-encoding"),
            head=scope["method"] == "HEAD",
            packed=answer.packed if isinstance(answer, RawAnswer) else None,
            send_timeout=self._parts.limits.send_seconds,
        )

    async def _send_large(self, scope: Scope, send: Send, answer: Answer) -> None:
        """``Refusal``, before anything was sent."""
        with self._large.one(scope[TOKEN]):
            await send_large(
                send,
                answer.status,
                answer.value,
                answer.headers,
                accept_encoding=header(scope, b"accept-encoding"),
                head=scope["method"] == "HEAD",
                send_timeout=self._parts.limits.send_seconds,
            )

    async def _answer(
        self, scope: Scope, receive: Receive, headers: Headers
    ) -> Answer | RawAnswer | StreamAnswer:
        route = self._route
        caller = await self._admission.admit(scope, headers, route)
        scope[CALLER], scope[TOKEN] = caller.name, caller.token_id
        query = read_query(route.query, self._several, scope["query_string"])
        body = await self._body(receive, headers)
        call: Call[Any, Any] = Call(
            parts=self._parts,
            caller=caller,
            path=scope["path_params"],
            query=query,
            body=body,
            headers=headers,
        )
        return await route.handler(call)

    async def _body(self, receive: Receive, headers: Headers) -> Any:
        if self._decoder is None or self._route.body is None:
            return None
        data = await self._intake.body(receive, headers, self._route.max_body_bytes)
        if not data and self._route.body_optional:
            return self._route.body()
        check_is_json(headers)
        return decoded(self._decoder, data)

    def _encoded(self, answer: Answer | RawAnswer) -> tuple[bytes, str]:
        if isinstance(answer, RawAnswer):
            return answer.body, answer.media_type
        shown = self._shown.get(answer.status)
        if answer.value is None or shown is None:
            return b"", JSON
        return msgspec.json.encode(msgspec.convert(answer.value, shown, from_attributes=True)), JSON


async def nothing_here(scope: Scope, receive: Receive, send: Send) -> None:
    """For a path without a route."""
    if scope["type"] == "http":
        said = "no such path; see GET /docs"
        await send_problem(scope, send, Refusal(NOT_FOUND, said))


async def send_problem(scope: Scope, send: Send, error: Exception) -> None:
    problem = problem_of(error)
    if problem.status == 500:
        _log.error("%s %r", scope["method"], scope["path"], exc_info=error)
    elif problem.status == 503:
        _log.warning("%s %r: %s", scope["method"], scope["path"], error)
    headers: Mapping[str, str] = error.headers if isinstance(error, Refusal) else {}
    if problem.status == 503:
        headers = {**_RETRY_AFTER, **headers}
    await send_answer(
        send,
        problem.status,
        msgspec.json.encode(problem),
        PROBLEM_MEDIA_TYPE,
        headers,
        head=scope["method"] == "HEAD",
    )


def headers_of(scope: Scope) -> Headers:
    """The request's headers, the first of each name. ``Refusal`` for a repeated header that
    decides something: a proxy in between might have used the other one."""
    found: Headers = {}
    for name, value in scope["headers"]:
        if name in _SINGLE_HEADERS and name.decode() in found:
            raise Refusal(MALFORMED, f"the header {name.decode()} came more than once")
        found.setdefault(name.decode("latin-1"), value.decode("latin-1"))
    return found


def header(scope: Scope, name: bytes) -> str:
    return next((v.decode("latin-1") for n, v in scope["headers"] if n == name), "")


def wants_stream(call: Call[Any, Any]) -> bool:
    return prefers(call.headers.get("accept", ""), SSE_MEDIA_TYPE)


def place_after(call: Call[Any, Any], pattern: str, asked: str) -> str:
    """The position of a reconnecting client, which takes precedence over the ``asked`` one."""
    last = call.headers.get("last-event-id", "")
    if not last:
        return asked
    if re.fullmatch(pattern, last, re.ASCII) is None:
        raise Refusal(MALFORMED, f"Last-Event-ID: {last[:80]!r} is not an id of this stream")
    return last


def comes_back(call: Call[Any, Any]) -> bool:
    return bool(call.headers.get("last-event-id"))


PRIVATE = {"cache-control": "private, no-cache"}


def not_modified(tag: str, headers: Mapping[str, str]) -> Answer | None:
    """A 304 if the client has this version."""
    if not _is_known(tag, headers.get("if-none-match", "")):
        return None
    return Answer(status=304, headers={"etag": tag, "vary": "accept-encoding", **PRIVATE})


def _is_known(tag: str, known: str) -> bool:
    """By weak comparison: a proxy may have weakened the tag by compressing."""
    bare = tag.removeprefix("W/")
    each = (given.strip().removeprefix("W/") for given in known.split(","))
    return known.strip() == "*" or bare in each
