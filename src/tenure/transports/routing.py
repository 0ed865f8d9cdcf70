"""Chooses the transport of a host by the kind of its address."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack

from tenure.model.errors import HostUnreachable
from tenure.ports.execution import (
    Command,
    Contacts,
    Endpoint,
    Exit,
    Output,
    Transport,
    TrustWindows,
)
from tenure.ports.store import TakesTurns

_LOCAL_ADDRESSES = frozenset({"local", "localhost", "127.0.0.1"})


def kind_of(address: str) -> str:
    """``local``, or the scheme of the address; ``ssh`` for a bare name."""
    if address in _LOCAL_ADDRESSES:
        return "local"
    scheme, separator, _ = address.partition("://")
    return scheme.lower() if separator else "ssh"


class RoutingTransport:
    def __init__(self, by_kind: Mapping[str, Transport], otherwise: Transport) -> None:
        self._by_kind = dict(by_kind)
        self._otherwise = otherwise
        self._windows = [each for each in self._all() if isinstance(each, TrustWindows)]

    async def run(self, host: Endpoint, command: Command, output: Output) -> Exit:
        return await self._reaching(host).run(host, command, output)

    async def contact(self, host: Endpoint) -> None:
        transport = self._reaching(host)
        if isinstance(transport, Contacts):
            await transport.contact(host)

    async def run_in_turn(
        self, host: Endpoint, command: Command, output: Output, begins: Callable[[], None]
    ) -> Exit:
        transport = self._reaching(host)
        if isinstance(transport, TakesTurns):
            return await transport.run_in_turn(host, command, output, begins)
        begins()
        return await transport.run(host, command, output)

    def trust(self, run_id: str, until: float, margin: float) -> None:
        for transport in self._windows:
            transport.trust(run_id, until, margin)

    def forget(self, run_id: str) -> None:
        for transport in self._windows:
            transport.forget(run_id)

    async def close(self) -> None:
        """Close all transports, also if one fails."""
        async with AsyncExitStack() as closing:
            for transport in self._all():
                closing.push_async_callback(transport.close)

    def _reaching(self, host: Endpoint) -> Transport:
        return self._by_kind.get(kind_of(host.address), self._otherwise)

    def _all(self) -> tuple[Transport, ...]:
        return (*self._by_kind.values(), self._otherwise)


class UnreachableTransport:
    """For hosts without a transport: they are ``unreachable``, never silently run elsewhere."""

    async def run(self, host: Endpoint, command: Command, output: Output) -> Exit:
        raise self._unreachable(host)

    async def contact(self, host: Endpoint) -> None:
        raise self._unreachable(host)

    def _unreachable(self, host: Endpoint) -> HostUnreachable:
        return HostUnreachable(
            host.name,
            host.address,
            "this version of Tenure reaches only `local`; try things here with --local",
        )

    async def close(self) -> None:
        """Nothing is held."""
