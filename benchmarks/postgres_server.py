"""A server that really writes to its disk before it answers, for whoever measures on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from tests.postgres.server import Server

from tenure.stores.postgres import PostgresStore


@contextmanager
def durable_server() -> Iterator[Server]:
    with Server(durable=True, autovacuum="on", shared_buffers="256MB") as server:
        yield server


async def fresh_store(server: Server, name: str) -> PostgresStore:
    """On a database of its own, on connections of its own: statements may be prepared."""
    server.execute(f"drop database if exists {name} with (force)")
    server.execute(f"create database {name}")
    store = PostgresStore(server.url(name, prepared="yes"))
    await store.migrate_store()
    return store


def commits(server: Server, name: str) -> int:
    """So far. Read from outside, so that the looking is not counted."""
    with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
        row = connection.execute(
            "select xact_commit from pg_stat_database where datname = %s", (name,)
        ).fetchone()
    return int(row[0]) if row else 0
