"""Three no-op steps on DBOS, many workflows at a time: run by an environment that has it.

python dbos_process.py DATABASE WORKFLOWS AT_ONCE -> workflows a second
"""

# mypy: ignore-errors
# (DBOS is not among our own dependencies.)

import asyncio
import sys
from time import perf_counter

from dbos import DBOS


@DBOS.step()
async def nothing() -> None:
    pass


@DBOS.workflow()
async def three_steps() -> None:
    for _ in range(3):
        await nothing()


async def measured(count: int, at_once: int) -> float:
    waiting = iter(range(count))

    async def one_after_another() -> None:
        for _ in waiting:
            await three_steps()

    await three_steps()
    start = perf_counter()
    await asyncio.gather(*(one_after_another() for _ in range(at_once)))
    return count / (perf_counter() - start)


def main(database: str, count: str, at_once: str) -> None:
    DBOS(
        config={
            "name": "rival",
            "system_database_url": database,
            "log_level": "ERROR",
            "run_admin_server": False,
        }
    )
    DBOS.launch()
    try:
        print(asyncio.run(measured(int(count), int(at_once))))
    finally:
        DBOS.destroy()


if __name__ == "__main__":
    main(*sys.argv[1:])
