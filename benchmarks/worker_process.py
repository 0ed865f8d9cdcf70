"""A worker in a process of its own, with the actions that benchmarks use.

python -m benchmarks.worker_process URL STAMPS [BROKER]
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time

import benchmarks.runs  # noqa: F401  (its action)
import tenure
from tenure.system import settle_down


@tenure.action("benchmark.stamp")
async def stamp() -> None:
    """Say when it ran, by the clock all processes of this machine share."""
    line = f"{time.monotonic_ns()}\n".encode()
    os.write(_stamps, line)


async def main(url: str, *broker: str) -> None:
    pace = tenure.Pace(concurrency=200, claim_batch=100)
    worker = tenure.Worker(url, pace=pace, broker=broker[0] if broker else None)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.drain)
    await worker.run()


if __name__ == "__main__":
    _stamps = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND)
    settle_down()
    asyncio.run(main(sys.argv[1], *sys.argv[3:]))
