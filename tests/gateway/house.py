"""A gateway in a thread of its own, on a loopback port, and a client that keeps its connection."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime
from http.client import HTTPConnection
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

from tenure.gateway.calls import Limits
from tenure.gateway_process import GatewayProcess
from tenure.model.tokens import Role, Token, digest_of, written
from tenure.ports.store import RunStateStore, TokenStore
from tenure.runner import Runner
from tenure.runtime.options import CallbackSettings
from tenure.stores.postgres import PostgresStore
from tenure.stores.sqlite import SQLiteStore

LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def problem(self) -> str:
        """By its name; an answer that is none has no name."""
        assert self.headers["content-type"] == "application/problem+json", self
        return str(self.json["type"]).removeprefix("urn:tenure:problem:")


ANY_PACE = Limits(rate=0, idle_seconds=3600)
"""Between two tests of one client there may be many others."""


class House:
    """Serves from the first moment it is entered to the last."""

    def __init__(self, store: RunStateStore, limits: Limits = ANY_PACE, **rest: Any) -> None:
        self.store = store
        self._limits = limits
        self._rest = rest
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._open = AsyncExitStack()
        self._tokens: dict[str, str] = {}
        self.address = ""

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self.address = self.run(self._begin())
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exit_details: object) -> None:
        self.run(self._open.aclose())
        if isinstance(self.store, SQLiteStore | PostgresStore):
            self.run(self.store.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, work: Any) -> Any:
        """In the gateway's own loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    async def _begin(self) -> str:
        hooks = CallbackSettings(hooks={"LISTED": ["https://listed.example"]})
        runner = Runner(self.store, reconcile_interval=60, callbacks=hooks)
        await self._open.enter_async_context(runner)
        gatehouse = GatewayProcess(self.store, runner, limits=self._limits, **self._rest)
        return await self._open.enter_async_context(gatehouse.open("127.0.0.1", 0))

    @property
    def port(self) -> int:
        return urlsplit(self.address).port or 0

    def token(self, role: str, name: str | None = None, **rest: Any) -> str:
        """A new one, as its bearer carries it."""
        assert isinstance(self.store, TokenStore)
        number = len(self.run(self.store.list_tokens()))
        token_id, secret = f"{role}{number}", f"secret-of-{role}{number}"
        token = Token(
            id=token_id, name=name or role, role=Role(role), digest=digest_of(secret), **rest
        )
        self.run(self.store.add_token(token))
        return written(token_id, secret)

    def tokens(self) -> dict[str, str]:
        """One of each role, the same each time."""
        if not self._tokens:
            self._tokens = {role.value: self.token(role) for role in Role}
        return self._tokens

    def client(self, token: str | None = None) -> Client:
        return Client(self.port, token)

    def raw(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)


class Client:
    def __init__(self, port: int, token: str | None = None) -> None:
        self._connection = HTTPConnection("127.0.0.1", port, timeout=30)
        self._token = token

    def __call__(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: dict[str, str] | None = None,
        data: bytes | None = None,
    ) -> Answer:
        given = dict(headers or {})
        if self._token is not None:
            given.setdefault("authorization", f"Bearer {self._token}")
        if body is not None:
            data = json.dumps(body).encode()
            given.setdefault("content-type", "application/json")
        try:
            self._send(method, path, data, given)
            answer = self._connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, found, answer.read())
        except OSError:
            self._connection.close()  # the next request begins anew
            raise

    def _send(self, method: str, path: str, data: bytes | None, given: dict[str, str]) -> None:
        """A body that is refused need not be taken to its end: the answer is there all the same."""
        connection, named = self._connection, {name.lower() for name in given}
        connection.putrequest(
            method,
            path,
            skip_host="host" in named,
            skip_accept_encoding="accept-encoding" in named,
        )
        for name, value in given.items():
            connection.putheader(name, value)
        has_body = data is not None or method not in ("GET", "HEAD")
        if has_body and not {"content-length", "transfer-encoding"} & named:
            connection.putheader("content-length", str(len(data or b"")))
        connection.endheaders()
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.send(data or b"")

    def get(self, path: str, **headers: str) -> Answer:
        return self("GET", path, headers={k.replace("_", "-"): v for k, v in headers.items()})

    def post(self, path: str, body: Any = None, **headers: str) -> Answer:
        named = {k.replace("_", "-"): v for k, v in headers.items()}
        return self("POST", path, body, headers=named)

    def close(self) -> None:
        self._connection.close()
