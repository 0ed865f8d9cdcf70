"""A gateway process before the store of a fleet: killed, and there again at the same address."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from itertools import count

from tests.cli.conftest import TENURE
from tests.free_port import free_port
from tests.system.workers.fleet import PATIENCE, Fleet, WorkerProcess


class Front:
    """``async with Front(fleet):`` the fleet's workers come through it from then on."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._port = free_port()
        self._names = (f"gateway-{number}" for number in count(1))
        self.address = f"http://127.0.0.1:{self._port}"
        self.processes: list[WorkerProcess] = []

    async def __aenter__(self) -> Front:
        self._fleet.reached_at = self.address
        self.start()
        await self.serves()
        return self

    async def __aexit__(self, *exit_details: object) -> None:
        for process in self.processes:
            if process.lives:
                process.put_down()

    def start(self) -> None:
        argv = [TENURE, "gateway", "--no-token", "--store", self._fleet.url, "--listen"]
        env = self._fleet.surroundings()
        self.processes.append(
            WorkerProcess(
                next(self._names), self._fleet.folder, [*argv, f"127.0.0.1:{self._port}"], env
            )
        )

    async def serves(self) -> None:
        async with asyncio.timeout(PATIENCE):
            while not await self._answers():
                assert self.processes[-1].lives, self.processes[-1].complaints
                await asyncio.sleep(0.02)

    async def restarts(self, how: signal.Signals = signal.SIGKILL) -> None:
        process = self.processes[-1]
        process.send(how)
        code = await process.ends()
        assert code == (0 if how is signal.SIGTERM else -how), process.complaints
        self.start()
        await self.serves()

    async def _answers(self) -> bool:
        """From its store, not only by itself."""
        with suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            writer.write(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            said = await reader.readline()
            writer.close()
            return b" 200 " in said
        return False
