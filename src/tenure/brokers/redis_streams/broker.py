"""The Redis broker (``RedisStreams``), its URL (``Address``) and its connections (``Server``)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib.resources import files
from itertools import groupby
from math import ceil, inf
from typing import Any, Self
from urllib.parse import parse_qsl, urlencode, urlsplit

from msgspec import Struct
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import RedisError

from tenure.aio import end
from tenure.model.errors import BrokerUnavailable, InvalidRunId, UnknownBroker
from tenure.model.ids import check_run_id
from tenure.ports.environment import Hint
from tenure.system import new_owner_id
from tenure.wire.addresses import shown_address

# ``redis://[user:password@]host[:port][/database][?namespace=…]``, and ``rediss://`` for TLS. The
# driver takes any of its settings from a URL, with precedence over those given here (protocol,
# time-outs, text instead of bytes). So only options for address, credentials and TLS are allowed.

ANSWERS_WITHIN = 3.0
"""Seconds, for one call; longer than ``_MAX_BLOCK_S``."""
_CONNECT_TIMEOUT_S = 2.0
_MAX_CONNECTIONS = 8
_EXAMPLE = "redis://localhost:6379/0"
_NAMESPACE = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)
_DATABASE = re.compile(r"/?[0-9]*", re.ASCII)
_OPTIONS = ("namespace", "db", "username", "password")
_TLS_OPTIONS = (
    "ssl_ca_certs",
    "ssl_ca_path",
    "ssl_certfile",
    "ssl_keyfile",
    "ssl_password",
    "ssl_cert_reqs",
    "ssl_check_hostname",
)


class Address(Struct, frozen=True, kw_only=True):
    url: str
    namespace: str
    place: str
    """For messages: without user, password and options."""


def read_address(url: str) -> Address:
    """Raises ``UnknownBroker``, whose message never contains a password."""
    try:
        parts = urlsplit(url)
        place = f"{parts.scheme}://{parts.hostname}:{parts.port or 6379}"
    except ValueError:  # its message may contain a part of a password
        raise UnknownBroker(
            f"{shown_address(url)} is no Redis URL: its host or port cannot be read; write one "
            f"like {_EXAMPLE}"
        ) from None
    if not parts.hostname:
        raise UnknownBroker(f"a Redis URL names a host: {_EXAMPLE}")
    if not _DATABASE.fullmatch(parts.path):
        raise UnknownBroker(f"{shown_address(url)}: the database is a number, as in {_EXAMPLE}")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    _check_options(url, options, tls=parts.scheme == "rediss")
    namespace = options.pop("namespace", "tenure")
    if not _NAMESPACE.fullmatch(namespace):
        raise UnknownBroker(
            "the broker URL's namespace may have letters, digits, '_', '.' and '-', 64 at most"
        )
    driver_url = parts._replace(query=urlencode(options)).geturl()
    return Address(url=driver_url, namespace=namespace, place=place)


def _check_options(url: str, names: Iterable[str], *, tls: bool) -> None:
    allowed = (*_OPTIONS, *_TLS_OPTIONS) if tls else _OPTIONS
    strange = [name for name in names if name not in allowed]
    if strange:
        shown = shown_address(url)  # what it does not show may be a part of a password
        named = [repr(name) for name in strange if f"{name}=" in shown]
        raise UnknownBroker(
            f"{shown}: a broker URL has no option {' or '.join(named) or 'like that'}; it may have "
            f"{', '.join(_OPTIONS)}, and with rediss:// {', '.join(_TLS_OPTIONS)}"
        )


def open_pool(address: Address) -> BlockingConnectionPool:
    """Connects at its first use. ``UnknownBroker`` for values that the driver refuses.

    A broken connection is replaced once, at once: it may have been broken for long, as after a
    restart of the server. Further retries are the caller's.
    """
    try:
        pool = BlockingConnectionPool.from_url(
            address.url,
            max_connections=_MAX_CONNECTIONS,
            timeout=ANSWERS_WITHIN,
            socket_timeout=ANSWERS_WITHIN,
            socket_connect_timeout=_CONNECT_TIMEOUT_S,
            retry=Retry(NoBackoff(), 1, supported_errors=(Disconnected,)),
            protocol=2,
        )
        pool.make_connection()  # type: ignore[no-untyped-call]
    except (TypeError, ValueError, RedisError) as error:
        raise UnknownBroker(f"no URL for the broker at {address.place}: {error}") from None
    return pool


_SCRIPTS = {
    name: (files(__package__) / f"{name}.lua").read_text(encoding="utf-8")
    for name in ("tend", "settle", "give_back", "put_back", "forget", "leave")
}


class NoGroup(BrokerUnavailable):
    """The stream or its group does not exist and has to be created."""


class Server:
    """Calls of the server, each with a time-out and a connection of its own.

    An exchange is not cancelled until ``close``: interrupting the client may lose the connection,
    or the cancellation. If its caller is cancelled, it ends in the background.
    """

    def __init__(self, address: Address) -> None:
        self._place = address.place
        self._pool = open_pool(address)
        self._client = Redis(connection_pool=self._pool)
        self._exchanges: set[asyncio.Task[Any]] = set()
        self._closed = False

    async def call(self, *words: str | int) -> Any:
        """Raises ``NoGroup``, ``BrokerUnavailable``."""
        if self._closed:  # a new connection would never be closed
            raise BrokerUnavailable(f"the broker at {self._place} was closed here")
        exchange = asyncio.create_task(self._exchange(words))
        self._exchanges.add(exchange)
        exchange.add_done_callback(self._over)
        return await asyncio.shield(exchange)

    def _over(self, exchange: asyncio.Task[Any]) -> None:
        self._exchanges.discard(exchange)
        if not exchange.cancelled():
            exchange.exception()  # retrieved, or asyncio logs it

    async def _exchange(self, words: Sequence[str | int]) -> Any:
        try:
            answer = self._client.execute_command(*words)  # type: ignore[no-untyped-call]
            return await answer
        except (RedisError, OSError) as error:
            said = str(error) or type(error).__name__
            if "NOGROUP" in said or "UNBLOCKED" in said:
                raise NoGroup(said) from error
            raise BrokerUnavailable(f"the broker at {self._place}: {said}") from error

    async def run(self, script: str, keys: Sequence[str], *arguments: str | int) -> Any:
        """The script is sent each time: a restarted server has none."""
        return await self.call("EVAL", _SCRIPTS[script], len(keys), *keys, *arguments)

    async def left_behind(self) -> None:
        """Wait for the exchanges under way."""
        if self._exchanges:
            await asyncio.wait(self._exchanges)

    async def close(self) -> None:
        """Exchanges under way are cancelled."""
        self._closed = True
        await end(*self._exchanges)
        await self._client.aclose()
        await self._pool.disconnect()


_GROUP = "workers"
_MAX_HINTS = 10_000
"""Of one queue, approximately. A run whose hint was dropped is found by polling."""
_MAX_BLOCK_S = 0.5
"""The server blocks a reader for no longer: well below the time-out of a call, and the longest that
closing waits."""
_FORGOTTEN_AFTER_TIMEOUTS = 10
"""A consumer that was silent for so many visibility time-outs is removed."""

Entry = tuple[bytes, Iterable[tuple[bytes, bytes]]]


class RedisStreams:
    """``Broker`` in Redis or Valkey. Belongs to the event loop that uses it first."""

    def __init__(self, url: str, visibility_timeout: float = 30.0) -> None:
        """Connects at its first use. Raises ``UnknownBroker``."""
        address = read_address(url)
        self._server = Server(address)
        self._namespace = address.namespace
        self._consumer = new_owner_id()
        self._hidden_for = ceil(visibility_timeout * 1000)
        self._forget_at = 0.0
        self._served: set[str] = set()
        self._turn = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exit_details: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Hints that were taken and not answered are available to other consumers at once."""
        try:
            if self._served:  # a cancelled reader may still receive hints
                await self._server.left_behind()
            for queue in sorted(self._served):
                with suppress(NoGroup):
                    keys = [self._stream(queue)]
                    await self._server.run("leave", keys, _GROUP, self._consumer)
        except BrokerUnavailable:
            pass  # other consumers remove this one later
        finally:
            await self._server.close()

    async def publish(self, queue: str, run_id: str) -> None:
        stream = self._stream(queue)
        await self._server.call("XADD", stream, "MAXLEN", "~", _MAX_HINTS, "*", "run", run_id)

    async def take(self, queues: Sequence[str], *, limit: int, wait: float) -> list[Hint]:
        self._served.update(queues)
        in_turn = self._in_turn(queues)
        hints: list[Hint] = []
        next_due = wait
        for queue in in_turn:
            entries, due = await self._tend(queue, limit - len(hints))
            hints += await self._readable(queue, entries)
            next_due = min(next_due, due)
            if len(hints) >= limit:
                return hints
        await self._forget_the_silent(queues)
        return hints or await self._wait_for(in_turn, limit, next_due)

    async def acknowledge(self, hints: Sequence[Hint]) -> None:
        by_queue = sorted(hints, key=lambda hint: hint.queue)
        for queue, of_queue in groupby(by_queue, key=lambda hint: hint.queue):
            await self._settle(queue, [hint.receipt for hint in of_queue])

    async def give_back(self, hint: Hint, delay: float) -> None:
        keys = [self._stream(hint.queue), self._later(hint.queue)]
        milliseconds = ceil(max(delay, 0.0) * 1000)
        with suppress(NoGroup):  # purged
            await self._server.run(
                "give_back",
                keys,
                _GROUP,
                self._consumer,
                hint.receipt,
                hint.run_id,
                milliseconds,
                _MAX_HINTS,
            )

    async def purge(self, queue: str) -> None:
        await self._server.call("DEL", self._stream(queue), self._later(queue))

    async def ping(self) -> None:
        await self._server.call("PING")

    # Taking.

    def _in_turn(self, queues: Sequence[str]) -> list[str]:
        """Rotated with each call, so that a queue that is never empty blocks no other."""
        first = self._turn % len(queues) if queues else 0
        self._turn += 1
        return [*queues[first:], *queues[:first]]

    async def _tend(self, queue: str, limit: int) -> tuple[list[Entry], float]:
        """Hints held for too long by other consumers, then new ones; and the seconds until the next
        delayed one is due."""
        stream = self._stream(queue)
        keys = [stream, self._later(queue)]
        arguments = (_GROUP, self._consumer, self._hidden_for, limit, _MAX_HINTS)
        try:
            taken, due = await self._server.run("tend", keys, *arguments)
        except NoGroup:
            await self._make_group(stream)
            taken, due = await self._server.run("tend", keys, *arguments)
        return [_from_script(entry) for entry in taken if entry], due / 1000 if due >= 0 else inf

    async def _make_group(self, stream: str) -> None:
        """From the first entry on: hints may have come before the queue had a consumer."""
        try:
            await self._server.call("XGROUP", "CREATE", stream, _GROUP, "0", "MKSTREAM")
        except BrokerUnavailable as error:
            if "BUSYGROUP" not in str(error):  # another consumer was faster
                raise

    async def _wait_for(self, queues: Sequence[str], limit: int, wait: float) -> list[Hint]:
        """The server's COUNT is per stream: with many queues it may send more than ``limit``; the
        rest is put back at once."""
        if wait <= 0:
            return []
        by_stream = {self._stream(queue).encode(): queue for queue in queues}
        try:
            answer = await self._server.call(
                "XREADGROUP", "GROUP", _GROUP, self._consumer,
                "COUNT", max(1, limit // len(by_stream)),
                "BLOCK", ceil(min(wait, _MAX_BLOCK_S) * 1000),
                "STREAMS", *(stream.decode() for stream in by_stream), *[">"] * len(by_stream),
            )  # fmt: skip
        except NoGroup:  # the streams vanished meanwhile
            return []
        hints: list[Hint] = []
        for stream, entries in answer or ():
            read = [(entry_id, fields.items()) for entry_id, fields in entries]
            hints += await self._readable(by_stream[stream], read)
        await self._put_back(hints[limit:])
        return hints[:limit]

    async def _put_back(self, hints: Sequence[Hint]) -> None:
        for hint in hints:
            with suppress(NoGroup):  # purged
                keys = [self._stream(hint.queue)]
                await self._server.run("put_back", keys, _GROUP, self._consumer, hint.receipt)

    async def _readable(self, queue: str, entries: Sequence[Entry]) -> list[Hint]:
        """The hints of entries; foreign entries are removed, so that they do not come again."""
        hints = [_hint_of(queue, entry) for entry in entries]
        strange = [
            entry_id.decode()
            for (entry_id, _), hint in zip(entries, hints, strict=True)
            if hint is None
        ]
        if strange:
            await self._settle(queue, strange)
        return [hint for hint in hints if hint is not None]

    async def _settle(self, queue: str, receipts: Sequence[str]) -> None:
        with suppress(NoGroup):  # purged
            await self._server.run(
                "settle", [self._stream(queue)], _GROUP, self._consumer, *receipts
            )

    async def _forget_the_silent(self, queues: Sequence[str]) -> None:
        now = asyncio.get_running_loop().time()
        if now < self._forget_at:
            return
        self._forget_at = now + self._hidden_for / 1000
        for queue in queues:
            with suppress(NoGroup):
                keys = [self._stream(queue)]
                await self._server.run(
                    "forget", keys, _GROUP, self._hidden_for * _FORGOTTEN_AFTER_TIMEOUTS
                )

    # Names on the server.

    def _stream(self, queue: str) -> str:
        return f"{self._namespace}:hints:{queue}"

    def _later(self, queue: str) -> str:
        return f"{self._namespace}:later:{queue}"


def _from_script(entry: Any) -> Entry:
    """An entry as scripts return it: fields and values in one list, empty for a deleted one."""
    entry_id, words = entry
    words = words or ()
    return entry_id, zip(words[::2], words[1::2], strict=False)


def _hint_of(queue: str, entry: Entry) -> Hint | None:
    entry_id, fields = entry
    try:
        ((name, value),) = fields
        run_id = check_run_id(value.decode("ascii"))
    except (ValueError, InvalidRunId):
        return None
    return Hint(queue=queue, run_id=run_id, receipt=entry_id.decode()) if name == b"run" else None
