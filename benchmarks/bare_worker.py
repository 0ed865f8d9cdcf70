"""The least that a worker can do: hear of a job, claim it with one statement, and say when. (And
once before, when it listens.)

python -m benchmarks.bare_worker URL STAMPS
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

import psycopg

TABLE = """
create table jobs (id bigserial primary key, state text not null, body text not null);
create index on jobs (id) where state = 'queued'
"""
INSERT = "insert into jobs (state, body) values ('queued', 'x')"
CLAIM = """
update jobs set state = 'running' where id = any(array(
  select id from jobs where state = 'queued' order by id limit 1 for update skip locked))
returning id
"""


async def main(url: str, stamps: int) -> None:
    async with (
        await psycopg.AsyncConnection.connect(url, autocommit=True) as ear,
        await psycopg.AsyncConnection.connect(url, autocommit=True, prepare_threshold=0) as hand,
    ):
        await ear.execute("listen jobs")
        _say(stamps)
        async for _ in ear.notifies():
            await hand.execute(CLAIM)
            _say(stamps)


def _say(stamps: int) -> None:
    os.write(stamps, f"{time.monotonic_ns()}\n".encode())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND)))
