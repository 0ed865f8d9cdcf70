"""One path: from the raw request through admission and validation to its handler, and back."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from starlette.types import Receive, Scope, Send

from tenure.gateway.admission import Admission
from tenure.gateway.answering import JSON, send_answer
from tenure.gateway.calls import Answer, Call, RawAnswer, StreamAnswer
from tenure.gateway.live.sending import send_stream
from tenure.gateway.parts import Parts
from tenure.gateway.problems import MALFORMED, METHOD_NOT_ALLOWED, NOT_FOUND, Refusal, problem_of
from tenure.gateway.queries import read_query, repeatable
from tenure.gateway.receiving import ClientGone, Intake, check_is_json, decoded
from tenure.gateway.route import Route
from tenure.wire.full import full
from tenure.wire.problem import MEDIA_TYPE

_log = logging.getLogger("tenure.gateway")

Headers = dict[str, str]

CALLER = "tenure.caller"
MADE = "tenure.run_id"
"""Of a request that was admitted, and of the run it made: for the log."""
_DECIDING = frozenset({b"authorization", b"content-type", b"host", b"idempotency-key", b"origin"})
_AGAIN = {"retry-after": "1"}


class Resource:
    """All methods of one path, as an ASGI application."""

    def __init__(
        self, routes: Sequence[Route[Any, Any]], parts: Parts, admission: Admission, intake: Intake
    ) -> None:
        self._methods = {route.method: Method(route, parts, admission, intake) for route in routes}
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
        self, route: Route[Any, Any], parts: Parts, admission: Admission, intake: Intake
    ) -> None:
        self._route = route
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
                scope[MADE] = getattr(answer.value, "run_id", None)
            body, media_type = self._encoded(answer)
        except ClientGone:
            return
        except Exception as error:  # noqa: BLE001  (each becomes a problem document)
            await send_problem(scope, send, error)
            return
        await send_answer(
            send,
            answer.status,
            body,
            media_type,
            answer.headers,
            accept_encoding=header(scope, b"accept-encoding"),
            head=scope["method"] == "HEAD",
            packed=answer.packed if isinstance(answer, RawAnswer) else None,
        )

    async def _answer(
        self, scope: Scope, receive: Receive, headers: Headers
    ) -> Answer | RawAnswer | StreamAnswer:
        route = self._route
        caller = await self._admission.admit(scope, headers, route)
        scope[CALLER] = caller.name
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
        data = await self._intake.body(receive, headers, self._route.most_bytes)
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
    """For a path that no route has."""
    if scope["type"] == "http":
        said = "no such path; GET /docs shows those there are"
        await send_problem(scope, send, Refusal(NOT_FOUND, said))


async def send_problem(scope: Scope, send: Send, error: Exception) -> None:
    problem = problem_of(error)
    if problem.status == 500:
        _log.error("%s %r", scope["method"], scope["path"], exc_info=error)
    elif problem.status == 503:
        _log.warning("%s %r: %s", scope["method"], scope["path"], error)
    headers: Mapping[str, str] = error.headers if isinstance(error, Refusal) else {}
    if problem.status == 503:
        headers = {**_AGAIN, **headers}
    await send_answer(
        send,
        problem.status,
        msgspec.json.encode(problem),
        MEDIA_TYPE,
        headers,
        head=scope["method"] == "HEAD",
    )


def headers_of(scope: Scope) -> Headers:
    """``Refusal`` for one that came twice and decides something: who stands between might have
    looked at the other. Of the rest the first counts."""
    found: Headers = {}
    for name, value in scope["headers"]:
        if name in _DECIDING and name.decode() in found:
            raise Refusal(MALFORMED, f"the header {name.decode()} came more than once")
        found.setdefault(name.decode("latin-1"), value.decode("latin-1"))
    return found


def header(scope: Scope, name: bytes) -> str:
    return next((v.decode("latin-1") for n, v in scope["headers"] if n == name), "")
