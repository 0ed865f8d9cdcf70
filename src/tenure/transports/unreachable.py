"""For addresses nothing here can reach."""

from __future__ import annotations

from tenure.model.errors import HostUnreachable
from tenure.ports.execution import Command, Endpoint, Exit, Output


class UnreachableTransport:
    """Truth instead of a guess: such a host is ``unreachable``, never silently run elsewhere."""

    async def run(self, host: Endpoint, command: Command, output: Output) -> Exit:
        raise HostUnreachable(
            host.name,
            host.address,
            "this version of Tenure reaches only `local`; try things here with --local",
        )

    async def close(self) -> None:
        """Nothing is held."""
