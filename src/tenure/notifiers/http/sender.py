"""One attempt: prepare, post, judge what came back.

The status decides, so it alone is waited for as long as ``total_timeout`` allows. The rest of an
answer only serves to use the connection again and to quote from: it gets a moment and a few
kilobytes (``receiving`` counts them), then the connection is closed. Nothing is decompressed, no
redirect followed, no cookie kept, no proxy taken from the environment.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from ssl import SSLContext
from typing import Protocol

import msgspec
from aiohttp import (
    ClientConnectorError,
    ClientError,
    ClientResponse,
    ClientSession,
    InvalidURL,
    TraceConfig,
)
from msgspec import Struct
from yarl import URL

from tenure.model.outbox import Delivery
from tenure.notifiers.http.addresses import off_limits
from tenure.notifiers.http.answer import Answer, taken, verdict
from tenure.notifiers.http.guard import Judge, OffLimits, anywhere
from tenure.notifiers.http.lookup import LookUp, SystemLookUp
from tenure.notifiers.http.session import new_session
from tenure.notifiers.http.settings import HttpSettings
from tenure.notifiers.http.signing import bare, secret_of, signature
from tenure.notifiers.http.target import NotFromHere, UnusableTarget, route_to
from tenure.notifiers.http.wording import LOOKED_AT, excerpt, masked, trouble
from tenure.ports.clock import Clock
from tenure.ports.sender import NotTaken
from tenure.system import SystemClock
from tenure.wire.callback import payload

_encoder = msgspec.json.Encoder()


class Addressed(Protocol):
    """A target, as it is stored or as it was given."""

    @property
    def url(self) -> str | None: ...
    @property
    def secret_env(self) -> str | None: ...
    @property
    def headers(self) -> Mapping[str, str]: ...


class _Request(Struct, frozen=True):
    url: URL
    headers: dict[str, str]
    body: bytes
    secrets: tuple[str, ...]
    """What no message may show."""


class HttpSender:
    """``CallbackSender`` for targets with a URL, for any number of tasks of one loop.

    ``judge`` says where callbacks may not go; ``allow_private`` lifts it for all, ``own`` for these
    targets: who runs this process has named them. A submitter who names the same can make it send
    nothing that it would not send anyway, for URL, headers and secret must be equal. The two kinds
    share no connection. ``tls`` takes the place of the system's certificates, for receivers behind
    an authority of one's own. ``traces`` see what goes over the wire.
    """

    def __init__(
        self,
        settings: HttpSettings = HttpSettings(),
        *,
        clock: Clock | None = None,
        environ: Mapping[str, str] = os.environ,
        look_up: LookUp | None = None,
        judge: Judge = off_limits,
        own: Iterable[Addressed] = (),
        tls: SSLContext | None = None,
        traces: Sequence[TraceConfig] = (),
    ) -> None:
        self._settings = settings
        self._clock = clock or SystemClock()
        self._environ = environ
        self._system = SystemLookUp()
        self._look_up = look_up or self._system
        self._judge = anywhere if settings.allow_private else judge
        self._tls = tls
        self._traces = traces
        self._own = frozenset(map(_identity, own))
        self._sessions: dict[Judge, ClientSession] = {}
        self._closed = False

    async def send(self, delivery: Delivery) -> NotTaken | None:
        if self._closed:
            return NotTaken(error="not sent: this process is about to end", again=True)
        try:
            request = self._prepare(delivery)
        except UnusableTarget as error:
            return NotTaken(error=str(error), again=isinstance(error, NotFromHere))
        judge = anywhere if _identity(delivery.target) in self._own else self._judge
        try:
            return await self._post(request, self._connections(judge))
        except (ClientError, OSError) as error:
            return self._unanswered(error)

    async def close(self) -> None:
        """Ends all connections; attempts under way come back as not taken."""
        self._closed = True
        for session in self._sessions.values():
            await session.close()
        self._system.close()

    def _prepare(self, delivery: Delivery) -> _Request:
        target, now = delivery.target, self._clock.now()
        route = route_to(target)
        body = _encoder.encode(payload(delivery.event, delivery.workflow_name, delivery.run_status))
        headers = {
            **route.headers,
            "webhook-id": delivery.id,
            "webhook-timestamp": str(int(now.timestamp())),
        }
        if delivery.redelivery:
            headers["tenure-redelivery"] = "true"
        secrets = tuple(route.headers.values())
        if target.secret_env is None:
            return _Request(route.url, headers, body, secrets)
        secret = secret_of(target.secret_env, self._environ)
        headers["webhook-signature"] = signature(secret, delivery.id, now, body)
        return _Request(route.url, headers, body, (*secrets, bare(secret)))

    async def _post(self, request: _Request, session: ClientSession) -> NotTaken | None:
        async with session.post(
            request.url, data=request.body, headers=request.headers, allow_redirects=False
        ) as response:
            if taken(response.status) and response.content.is_eof():
                return None
            beginning = await self._rest_of(response)
            answer = Answer(
                status=response.status,
                retry_after=response.headers.get("retry-after"),
                location=masked(response.headers.get("location", ""), request.secrets),
                excerpt=excerpt(beginning, request.secrets),
            )
            return verdict(answer, self._clock.now())

    async def _rest_of(self, response: ClientResponse) -> bytes:
        """The beginning of what comes in time and within bounds. A connection that has still more
        to say is not used again."""
        kept = bytearray()
        with suppress(ClientError, OSError):
            async with asyncio.timeout(self._settings.read_timeout):
                while chunk := await response.content.readany():
                    kept += chunk[: LOOKED_AT - len(kept)]
        return bytes(kept)

    def _unanswered(self, error: ClientError | OSError) -> NotTaken:
        if isinstance(error, ClientConnectorError) and isinstance(error.os_error, OffLimits):
            return NotTaken(error=str(error.os_error), again=False)
        words = trouble(
            error,
            connect_timeout=self._settings.connect_timeout,
            total_timeout=self._settings.total_timeout,
        )
        return NotTaken(error=words, again=not isinstance(error, InvalidURL))

    def _connections(self, judge: Judge) -> ClientSession:
        """Made by the first who needs them: they belong to the loop that runs then."""
        session = self._sessions.get(judge)
        if session is None:
            session = self._sessions[judge] = new_session(
                self._settings, self._look_up, judge, self._tls, self._traces
            )
        return session


def _identity(target: Addressed) -> tuple[object, ...]:
    """All of a target that decides what goes over the wire, and where to."""
    return target.url, target.secret_env, frozenset(target.headers.items())
