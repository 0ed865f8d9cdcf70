"""One attempt: prepare, post, judge what came back.

The status decides, so it alone is waited for as long as ``total_timeout`` allows. The rest of an
answer only serves to use the connection again and to quote from: it gets a moment and a few
kilobytes (``receiving`` counts them), then the connection is closed. Nothing is decompressed, no
redirect followed, no cookie kept, no proxy taken from the environment.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping
from ssl import SSLContext
from typing import Protocol

import msgspec
from msgspec import Struct

from tenure.model.outbox import Delivery
from tenure.notifiers.http.addresses import off_limits
from tenure.notifiers.http.answer import Answer, taken, verdict
from tenure.notifiers.http.guard import Judge, OffLimits, anywhere
from tenure.notifiers.http.lookup import LookUp, SystemLookUp
from tenure.notifiers.http.names import Names
from tenure.notifiers.http.opening import Opening, system_certificates
from tenure.notifiers.http.pool import Pool
from tenure.notifiers.http.receiving import Reply
from tenure.notifiers.http.request import headers_of, request
from tenure.notifiers.http.settings import HttpSettings
from tenure.notifiers.http.signing import bare, secret_of, signature
from tenure.notifiers.http.target import NotFromHere, Origin, UnusableTarget, route_to
from tenure.notifiers.http.wording import excerpt, masked, trouble
from tenure.ports.callbacks import NotTaken
from tenure.ports.environment import Clock
from tenure.system import SystemClock
from tenure.wire.callbacks import payload

_encoder = msgspec.json.Encoder()


class Addressed(Protocol):
    """A target, as it is stored or as it was given."""

    @property
    def url(self) -> str | None: ...
    @property
    def secret_env(self) -> str | None: ...
    @property
    def headers(self) -> Mapping[str, str]: ...


class Witness(Protocol):
    """Sees what goes over the wire."""

    def sent(self, headers: dict[str, str]) -> None:
        """There is a connection, and a request goes over it with these."""

    def answered(self, status: int, reason: str) -> None: ...


class _Request(Struct, frozen=True):
    origin: Origin
    text: bytes
    """Head and body."""
    secrets: tuple[str, ...]
    """What no message may show."""


class HttpSender:
    """``CallbackSender`` for targets with a URL, for any number of tasks of one loop.

    ``judge`` says where callbacks may not go; ``allow_private`` lifts it for all, ``own`` for these
    targets: who runs this process has named them. A submitter who names the same can make it send
    nothing that it would not send anyway, for URL, headers and secret must be equal. The two kinds
    share no connection. ``tls`` takes the place of the system's certificates, for receivers behind
    an authority of one's own.
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
        witness: Witness | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock or SystemClock()
        self._environ = environ
        self._system = SystemLookUp()
        self._look_up = look_up or self._system
        self._judge = anywhere if settings.allow_private else judge
        self._tls = tls or system_certificates()
        self._witness = witness
        self._own = frozenset(map(_identity, own))
        self._pools: dict[Judge, Pool] = {}
        self._closed = False

    async def send(self, delivery: Delivery) -> NotTaken | None:
        if self._closed:
            return NotTaken(error="not sent: this process is about to end", again=True)
        try:
            prepared = self._prepare(delivery)
        except UnusableTarget as error:
            return NotTaken(error=str(error), again=isinstance(error, NotFromHere))
        try:
            reply = await self._post(prepared, self._pool(self._judge_of(delivery)))
        except OSError as error:
            return self._unanswered(error)
        return None if taken(reply.status) else self._refused(reply, prepared.secrets)

    async def close(self) -> None:
        """Ends all connections; attempts under way come back as not taken."""
        self._closed = True
        for pool in self._pools.values():
            await pool.close()
        self._system.close()

    def _prepare(self, delivery: Delivery) -> _Request:
        target, now = delivery.target, self._clock.now()
        route = route_to(target)
        body = _encoder.encode(payload(delivery.event, delivery.workflow_name, delivery.run_status))
        headers = {
            "webhook-id": delivery.id,
            "webhook-timestamp": str(int(now.timestamp())),
        }
        if delivery.redelivery:
            headers["tenure-redelivery"] = "true"
        secrets = route.secrets
        if target.secret_env is not None:
            secret = secret_of(target.secret_env, self._environ)
            headers["webhook-signature"] = signature(secret, delivery.id, now, body)
            secrets = (*secrets, bare(secret))
        return _Request(route.origin, request(route.opening, headers, body), secrets)

    async def _post(self, prepared: _Request, pool: Pool) -> Reply:
        origin = prepared.origin
        end_by = asyncio.get_running_loop().time() + self._settings.total_timeout
        connection = pool.take(origin)
        if connection is None:
            async with asyncio.timeout_at(end_by):
                connection = await pool.obtain(origin)
        try:
            answer = connection.ask(prepared.text, end_by)
            if self._witness is None:
                return await answer
            self._witness.sent(headers_of(prepared.text))
            reply = await answer
            self._witness.answered(reply.status, reply.reason)
            return reply
        finally:
            pool.give_back(origin, connection)

    def _refused(self, reply: Reply, secrets: tuple[str, ...]) -> NotTaken | None:
        said = {name: value.decode(errors="replace") for name, value in reply.headers.items()}
        answer = Answer(
            status=reply.status,
            retry_after=said.get(b"retry-after"),
            location=masked(said.get(b"location", ""), secrets),
            excerpt=excerpt(reply.beginning, secrets),
        )
        return verdict(answer, self._clock.now())

    def _unanswered(self, error: OSError) -> NotTaken:
        if isinstance(error, OffLimits):
            return NotTaken(error=str(error), again=False)
        words = trouble(
            error,
            connect_timeout=self._settings.connect_timeout,
            total_timeout=self._settings.total_timeout,
        )
        return NotTaken(error=words, again=True)

    def _judge_of(self, delivery: Delivery) -> Judge:
        ours = self._own and _identity(delivery.target) in self._own
        return anywhere if ours else self._judge

    def _pool(self, judge: Judge) -> Pool:
        """Made by the first who needs it: it belongs to the loop that runs then."""
        pool = self._pools.get(judge)
        if pool is None:
            settings = self._settings
            opening = Opening(settings, Names(self._look_up, judge), judge, self._tls)
            pool = Pool(opening, settings.connections, settings.connections_per_host)
            self._pools[judge] = pool
        return pool


def _identity(target: Addressed) -> tuple[object, ...]:
    """All of a target that decides what goes over the wire, and where to."""
    return target.url, target.secret_env, frozenset(target.headers.items())
