"""A program that runs one tree, to be killed or frozen: ``python -m … TREE RUN_ID FOLDER TRUST``.

It says ``up`` and the number of its supervisor when the tree stands, and how the call ended. While
it runs it says again and again that it may be trusted for ``TRUST`` seconds more (0: for ever).
"""

from __future__ import annotations

import asyncio
import sys
from math import inf
from pathlib import Path

from tenure.model.errors import TransportError
from tenure.transports.local import LocalTransport
from tenure.transports.supervisor.client import SupervisedStarter
from tests.supervisor.hostile import tree
from tests.transports.keeping import HERE, Kept, children


async def main(name: str, run_id: str, folder: Path, trust: float) -> None:
    starter, kept = SupervisedStarter(), Kept()
    transport = LocalTransport(starter)
    loop = asyncio.get_running_loop()

    async def keep() -> None:
        while True:
            transport.trust(run_id, loop.time() + (trust or inf), margin=8)
            await asyncio.sleep(trust / 10 or 1)

    keeping = asyncio.create_task(keep())
    await asyncio.sleep(0)
    task = asyncio.create_task(transport.run(HERE, tree(name, run_id, folder), kept))
    await kept.shows(b"up")
    [supervisor] = children()
    print("up", supervisor, flush=True)
    try:
        print("ended", await task, flush=True)
    except TransportError as error:
        print("failed", error, flush=True)
    keeping.cancel()
    await transport.close()


if __name__ == "__main__":
    _, tree_name, run, place, trusted_for = sys.argv
    asyncio.run(asyncio.wait_for(main(tree_name, run, Path(place), float(trusted_for)), 30))
