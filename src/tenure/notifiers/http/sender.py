"""One attempt to deliver a callback over HTTP."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from ssl import SSLContext

import msgspec
from yarl import URL

from tenure.model.outbox import Delivery
from tenure.model.snapshot import CallbackTarget
from tenure.notifiers.http.answer import verdict
from tenure.notifiers.http.client import Client, HttpSettings, NoAnswer, Trace
from tenure.notifiers.http.guard import (
    AddressPolicy,
    LookUp,
    OffLimits,
    SystemLookUp,
    allow_all,
    off_limits,
)
from tenure.notifiers.http.signing import bare, secret_of, signature
from tenure.notifiers.http.target import NotFromHere, UnusableTarget, route_to
from tenure.ports.callbacks import NotTaken
from tenure.ports.environment import Clock
from tenure.system import SystemClock
from tenure.wire.callbacks import payload
from tenure.workflow.callbacks import Signing
from tenure.workflow.spec import CallbackSpec

_encoder = msgspec.json.Encoder()


class HttpSender:
    """``CallbackSender`` for targets with a URL, for any number of tasks of one loop.

    ``policy`` forbids addresses; ``allow_private`` lifts it for all targets, ``own`` for those in
    the settings of this process. A submitter's target counts as one of these only if URL, headers
    and secret are equal. The two kinds share no connection.
    """

    def __init__(
        self,
        settings: HttpSettings = HttpSettings(),
        *,
        clock: Clock | None = None,
        environ: Mapping[str, str] = os.environ,
        look_up: LookUp | None = None,
        policy: AddressPolicy = off_limits,
        signing: Signing | None = None,
        own: Iterable[CallbackSpec | CallbackTarget] = (),
        tls: SSLContext | bool = True,
        trace: Trace | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock or SystemClock()
        self._environ = environ
        self._look_up = look_up or SystemLookUp()
        self._policy = allow_all if settings.allow_private else policy
        self._tls = tls
        self._trace = trace
        self._signing = signing or Signing()
        self._own = frozenset(map(_identity, own))
        self._clients: dict[AddressPolicy, Client] = {}
        self._closed = False

    async def send(self, delivery: Delivery) -> NotTaken | None:
        if self._closed:
            return NotTaken(error="not sent: this process is about to end", again=True)
        try:
            url, headers, body, secrets = self._prepare(delivery)
        except UnusableTarget as error:
            return NotTaken(error=str(error), again=isinstance(error, NotFromHere))
        client = self._client(self._policy_for(delivery.target))
        try:
            answer = await client.post(url, headers, body)
        except OffLimits as error:
            return NotTaken(error=str(error), again=False)
        except NoAnswer as error:
            return NotTaken(error=str(error), again=True)
        return verdict(answer, self._clock.now(), secrets)

    async def close(self) -> None:
        """Close all connections; active attempts fail and are retried."""
        self._closed = True
        for client in self._clients.values():
            await client.close()

    def _prepare(self, delivery: Delivery) -> tuple[URL, dict[str, str], bytes, tuple[str, ...]]:
        """URL, headers, body, and the secrets to mask."""
        target, now = delivery.target, self._clock.now()
        route = route_to(target)
        if not (delivery.id.isascii() and delivery.id.isprintable()):
            raise UnusableTarget("the callback's id cannot be sent in a header")
        body = _encoder.encode(payload(delivery.event, delivery.workflow_name, delivery.run_status))
        headers = {
            **route.headers,
            "webhook-id": delivery.id,
            "webhook-timestamp": str(int(now.timestamp())),
        }
        if delivery.redelivery:
            headers["tenure-redelivery"] = "true"
        secrets = tuple(target.headers.values())
        if target.secret_env is not None:
            secret = secret_of(target.secret_env, self._environ)
            fault = self._signing.fault_of(target)
            if fault is not None:
                kind = NotFromHere if self._signing.others_may else UnusableTarget
                raise kind(f"{fault.message}; {fault.hint}")
            headers["webhook-signature"] = signature(secret, delivery.id, now, body)
            secrets = (*secrets, bare(secret))
        return route.url, headers, body, secrets

    def _policy_for(self, target: CallbackSpec | CallbackTarget) -> AddressPolicy:
        return allow_all if self._own and _identity(target) in self._own else self._policy

    def _client(self, policy: AddressPolicy) -> Client:
        """Made on first use, for the running event loop."""
        client = self._clients.get(policy)
        if client is None:
            client = Client(self._settings, policy, self._look_up, self._tls, self._trace)
            self._clients[policy] = client
        return client


def _identity(target: CallbackSpec | CallbackTarget) -> tuple[object, ...]:
    """Everything that decides what is sent, and where."""
    return target.url, target.secret_env, frozenset(target.headers.items())
