"""The composition root: the only place that names adapters.

A store is chosen by its URL, and so is a broker. Tenure's own kinds are named here; further ones
come from packages that declare the entry-point group ``tenure.stores`` or ``tenure.brokers``: the
name is the URL's scheme, the value a callable that takes the URL (for a broker also its visibility
time-out in seconds) and returns what it opened.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, cast
from urllib.parse import SplitResult, unquote, urlsplit

from tenure.model.errors import UnknownBroker, UnknownStore
from tenure.model.outbox import Delivery
from tenure.model.snapshot import CallbackTarget
from tenure.ports.callbacks import CallbackSender, NotTaken
from tenure.ports.environment import Broker
from tenure.ports.execution import Action, LocalTasks, Transport
from tenure.ports.store import RunStateStore
from tenure.stores.place import absolute
from tenure.wire.addresses import shown_address
from tenure.workflow.callbacks import Signing
from tenure.workflow.spec import CallbackSpec

if TYPE_CHECKING:
    from tenure.notifiers.http import Trace

ENTRY_POINTS = "tenure.stores"
BROKERS = "tenure.brokers"

_DROPPED = "\n\r\t"
"""Characters that ``urlsplit`` silently removes, which would change the path."""

_EXAMPLES = "examples: sqlite:///runs.db, file:///var/lib/runs, memory:"

_log = logging.getLogger("tenure")
_warned = threading.Event()


class OpenStore(RunStateStore, Protocol):
    """A store to be closed after use: ``async with open_store(url) as store``.

    Optional features are protocols: ``isinstance(store, LeaseStore)``.
    """

    async def close(self) -> None: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *exit_details: object) -> None: ...


class OpenBroker(Broker, Protocol):
    """A broker to be closed after use."""

    async def close(self) -> None: ...


Opener = Callable[[str], OpenStore]
BrokerOpener = Callable[[str, float], OpenBroker]


def open_store(url: str | None = None, *, patience: float | None = None) -> OpenStore:
    """The store behind ``memory:``, ``file:///dir``, ``sqlite:///path``, ``postgresql://…``,
    ``https://gateway`` or an installed kind.

    ``sqlite:///runs.db`` is relative to the working directory, ``sqlite:////var/runs.db``
    absolute. Without a URL runs live in memory, and a warning says so once. ``patience`` is how
    many seconds a SQLite file that another process holds is waited for; a minute unless given.
    """
    if url is None:
        store = open_memory("memory:")
        warn_unless_durable(store)
        return store
    if not isinstance(url, str):
        raise UnknownStore(f"a store URL is a string, no {type(url).__name__}; {_EXAMPLES}")
    scheme, separator, _ = url.partition(":")
    if not separator:
        raise UnknownStore(f"{shown_address(url)!r} is no store URL; {_EXAMPLES}")
    opener = _opener(scheme.lower())
    if patience is not None and opener is open_sqlite:
        opener = partial(open_sqlite, busy_timeout_s=patience)
    store = opener(url)
    warn_unless_durable(store)
    return store


def not_there_yet(url: str) -> Path | None:
    """The path where opening ``url`` would create a store; ``None`` if it exists, or for a kind
    that is not a path. Raises ``UnknownStore``, ``StoreUnavailable``."""
    if not is_on_disk(url):
        return None
    path = absolute(_path(url))
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return path
    except OSError:  # opening it raises a better error
        return None
    return None


def is_on_disk(url: str) -> bool:
    """In files of this machine, which processes of their owner can open."""
    return url.partition(":")[0].lower() in _ON_DISK


def kind_of_store(url: str) -> type[OpenStore] | None:
    """The class of store that ``url`` opens, to refuse it for a missing feature before it is
    created. ``None``: it has all features, or only the open store can tell."""
    if url.partition(":")[0].lower() != "file":
        return None
    from tenure.stores.file import FileStore

    return FileStore


def warn_unless_durable(store: RunStateStore) -> None:
    """One warning per process, visible with default logging."""
    if store.durable or _warned.is_set():
        return
    _warned.set()
    _log.warning(
        "runs are kept by a store that is not durable (%s): they do not survive this process. "
        "Open one that does, for example sqlite:///runs.db",
        type(store).__name__,
    )


def private_memory() -> RunStateStore:
    """A memory store without the warning, for runs that are not to be kept."""
    return open_memory("memory:")


def open_memory(url: str) -> OpenStore:
    from tenure.stores.memory import InMemoryStore

    return InMemoryStore()


def open_file(url: str) -> OpenStore:
    from tenure.stores.file import FileStore

    return FileStore(_path(url))


def open_sqlite(url: str, busy_timeout_s: float | None = None) -> OpenStore:
    try:
        from tenure.stores.sqlite import SQLiteStore
    except ModuleNotFoundError as error:
        raise UnknownStore(
            f"sqlite stores need the package {error.name!r}: pip install {error.name}"
        ) from error
    return SQLiteStore(_path(url), busy_timeout_s=busy_timeout_s)


def open_postgres(url: str) -> OpenStore:
    try:
        from tenure.stores.postgres import PostgresStore
    except ModuleNotFoundError as error:
        raise UnknownStore(
            f"postgresql stores need the package {error.name!r}: pip install 'tenure[postgres]'"
        ) from error
    return PostgresStore(url)


def open_http(url: str) -> OpenStore:
    from tenure.client import HttpStore
    from tenure.client.transport import TOKEN
    from tenure.local_tokens import token_for

    return HttpStore(url, None if os.environ.get(TOKEN) else token_for(url))


def open_broker(url: str, *, visibility_timeout: float = 30.0) -> OpenBroker:
    """The broker behind ``redis://…``, ``rediss://…`` or an installed kind; it connects when it is
    first used. ``UnknownBroker``."""
    scheme, separator, _ = url.partition(":")
    if not separator:
        raise UnknownBroker(
            f"{shown_address(url)!r} is no broker URL; an example: redis://localhost:6379/0"
        )
    own = _OWN_BROKERS.get(scheme.lower())
    opener = own or cast("BrokerOpener | None", _installed(BROKERS, scheme.lower()))
    if opener is None:
        raise UnknownBroker(_no_such_kind("broker", scheme, BROKERS, _OWN_BROKERS))
    return opener(url, visibility_timeout)


def open_redis(url: str, visibility_timeout: float) -> OpenBroker:
    try:
        from tenure.brokers.redis_streams import RedisStreams
    except ModuleNotFoundError as error:
        raise UnknownBroker(
            f"redis brokers need the package {error.name!r}: pip install 'tenure[redis]'"
        ) from error
    return RedisStreams(url, visibility_timeout)


def sqlite_version() -> str:
    """The version of the SQLite library in use, which may differ from the system's."""
    try:
        from tenure.stores.sqlite.connection import library_version
    except ModuleNotFoundError as error:
        return f"none: the package {error.name!r} is not installed"
    return library_version()


_OWN: dict[str, Opener] = {
    "memory": open_memory,
    "file": open_file,
    "sqlite": open_sqlite,
    "postgresql": open_postgres,
    "postgres": open_postgres,
    "http": open_http,
    "https": open_http,
}
_ON_DISK = ("file", "sqlite")
_OWN_BROKERS: dict[str, BrokerOpener] = {"redis": open_redis, "rediss": open_redis}


def _opener(scheme: str) -> Opener:
    opener = _OWN.get(scheme) or cast("Opener | None", _installed(ENTRY_POINTS, scheme))
    if opener is None:
        raise UnknownStore(_no_such_kind("store", scheme, ENTRY_POINTS, _OWN))
    return opener


def _installed(group: str, scheme: str) -> Any:
    from importlib.metadata import entry_points

    for entry in entry_points(group=group, name=scheme):
        return entry.load()
    return None


def _no_such_kind(what: str, scheme: str, group: str, own: Mapping[str, object]) -> str:
    from importlib.metadata import entry_points

    kind = shown_address(f"{scheme}:").removesuffix(":")
    known = ", ".join(sorted({*own, *entry_points(group=group).names}))
    return (
        f"no {what} kind {kind!r} is installed (there are: {known}); install the package that "
        f"declares it in the entry-point group {group!r}"
    )


def _path(url: str) -> Path:
    """The path of ``scheme:///relative`` or ``scheme:////absolute``; ``file:///`` is absolute."""
    if any(sign in url for sign in _DROPPED):
        raise UnknownStore(
            f"{shown_address(url)!r} has a line break or tab in it; if the path has, write it as "
            "%0A, %0D or %09"
        )
    parts = _split(url)
    if parts is None or parts.netloc or parts.query or parts.fragment:
        raise UnknownStore(
            f"{shown_address(url)!r} names a host, query or fragment; write three slashes and a "
            f"path: {url.partition(':')[0]}:///runs"
        )
    path = _unquoted(url, parts.path)
    if parts.scheme == "sqlite":
        path = path.removeprefix("/")
    if path == ":memory:":
        raise UnknownStore("for a store in memory write memory:")
    if not path:
        raise UnknownStore(
            f"{shown_address(url)!r} names no path; for example {parts.scheme}:///runs"
        )
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise UnknownStore(
            f"{shown_address(url)!r} is below a home folder that is not known here; write the "
            "whole path"
        ) from error


def _split(url: str) -> SplitResult | None:
    """``None`` if the host is invalid."""
    try:
        return urlsplit(url)
    except ValueError:
        return None


def _unquoted(url: str, quoted: str) -> str:
    """The path of a URL. Impossible file names are refused here; later they would be a library's
    error, or another file."""
    try:
        path = unquote(quoted, errors="strict")
        path.encode()
    except UnicodeError as error:
        raise UnknownStore(f"the path in {shown_address(url)!r} is not UTF-8; rename it") from error
    if "\0" in path:
        raise UnknownStore(f"the path in {shown_address(url)!r} has a null byte (%00) in it")
    return path


def default_actions(python_modules: Sequence[str] | None = None) -> Mapping[str, Action]:
    """Tenure's own actions, those of installed packages, and those made with ``@action``.
    ``python_modules``: whose functions may be called in this process; ``None``: any."""
    from tenure.actions import new_registry
    from tenure.actions.registry import ActionRegistry

    return new_registry() if python_modules is None else ActionRegistry(python_modules)


class _HttpOnDemand:
    """The HTTP sender, loaded with the first callback, since most processes send none."""

    def __init__(self, new_sender: Callable[[], CallbackSender]) -> None:
        self._new_sender = new_sender
        self._loading = asyncio.Lock()
        self._sender: CallbackSender | None = None

    async def send(self, delivery: Delivery) -> NotTaken | None:
        return await (self._sender or await self._loaded()).send(delivery)

    async def _loaded(self) -> CallbackSender:
        async with self._loading:
            if self._sender is None:
                self._sender = await asyncio.to_thread(self._new_sender)
            return self._sender

    async def close(self) -> None:
        if self._sender is not None:
            await self._sender.close()


def default_sender(
    timeout: float,
    allow_private: bool,
    signing: Signing,
    own: Sequence[CallbackSpec | CallbackTarget] = (),
) -> CallbackSender:
    """Callbacks by HTTP. ``timeout``: seconds for one attempt. ``own``: targets of this process's
    settings, which may have private addresses."""
    return _HttpOnDemand(partial(http_sender, timeout, allow_private, signing, own))


def http_sender(
    timeout: float,
    allow_private: bool,
    signing: Signing,
    own: Sequence[CallbackSpec | CallbackTarget] = (),
    trace: Trace | None = None,
) -> CallbackSender:
    from tenure.notifiers.http import HttpSender, HttpSettings

    settings = HttpSettings(
        total_timeout=timeout,
        connect_timeout=min(timeout, HttpSettings().connect_timeout),
        allow_private=allow_private,
    )
    return HttpSender(settings, signing=signing, own=own, trace=trace)


def default_transport(tasks: LocalTasks = LocalTasks()) -> Transport:
    from tenure.transports import new_transport

    return new_transport(supervised=True, tasks=tasks)
