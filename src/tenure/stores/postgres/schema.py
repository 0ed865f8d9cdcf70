"""The schema's version and its migrations.

Unlike a file of one machine, a shared store is migrated explicitly, by ``tenure store migrate``. A
process refuses a schema other than its own (``pools`` checks).
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from psycopg import AsyncConnection, IsolationLevel, errors

from tenure.model.errors import StoreIncompatible
from tenure.stores.postgres.statements import SQL

_LOCK = 0x54_4E_55_52
"""One migration at a time ("TNUR")."""


class SchemaState(NamedTuple):
    schema: int
    """Zero: none."""
    read_only: bool


@cache
def migrations() -> tuple[tuple[int, str], ...]:
    folder = files("tenure.stores.postgres") / "migrations"
    found = [entry for entry in folder.iterdir() if re.match(r"\d{4}_.*\.sql$", entry.name)]
    return tuple(
        sorted((int(entry.name[:4]), entry.read_text(encoding="utf-8")) for entry in found)
    )


def newest_schema() -> int:
    return migrations()[-1][0]


def check_schema(place: str, present: int) -> None:
    newest = newest_schema()
    if present > newest:
        raise StoreIncompatible(
            f"{place} has schema {present}, this version of Tenure knows up to {newest}: upgrade "
            "Tenure on this machine"
        )
    if present == 0:
        raise StoreIncompatible(
            f"{place} is no Tenure store yet: run `tenure store migrate` once to make it one"
        )
    if present < newest:
        raise StoreIncompatible(
            f"{place} has schema {present}, this version of Tenure needs {newest}: run `tenure "
            "store migrate` when all of its processes can be brought to this version"
        )


async def look(connection: AsyncConnection[Any], statement_timeout: float = 0.0) -> SchemaState:
    """Check schema and server, and set up the connection. The server stops statements after
    ``statement_timeout`` seconds, in case the client is gone."""
    given = (connection.info.backend_pid, str(round(statement_timeout * 1000)))
    try:
        cursor = await connection.execute(SQL["schema"], given, prepare=False)
    except (errors.UndefinedTable, errors.InvalidSchemaName):
        return SchemaState(0, read_only=False)
    row = await cursor.fetchone()
    return SchemaState(int(row[0]), bool(row[1])) if row else SchemaState(0, read_only=False)


async def migrate(connection: AsyncConnection[Any], place: str) -> None:
    """In one transaction, by one process at a time. ``StoreIncompatible`` for a newer schema."""
    await connection.set_isolation_level(IsolationLevel.READ_COMMITTED)
    async with connection.transaction():
        await connection.execute("select pg_advisory_xact_lock($1)", (_LOCK,), prepare=False)
        await _make_schema(connection, place)
        await connection.execute(
            "create table if not exists tenure.migrations (number integer primary key, "
            "at timestamptz not null default clock_timestamp())"
        )
        present = (await look(connection)).schema
        if present > newest_schema():
            check_schema(place, present)
        for number, text in migrations():
            if number > present:
                # Without values: the only way to send several statements at once.
                await connection.execute(text)
                await connection.execute(
                    "insert into tenure.migrations (number) values ($1)", (number,), prepare=False
                )
        for adopting in ("adopt_runs", "adopt_journal"):
            await connection.execute(SQL[adopting])
        await _remove_unused_texts(connection)
        await connection.execute(SQL["confirm"])  # also if another process has migrated it


async def _make_schema(connection: AsyncConnection[Any], place: str) -> None:
    """Only if missing: it takes a right on the database even if the schema exists, which may have
    been created for a role without that right."""
    found = await connection.execute("select to_regnamespace('tenure') is null", prepare=False)
    if await found.fetchone() == (False,):
        return
    try:
        await connection.execute("create schema tenure")
    except errors.InsufficientPrivilege as error:
        reason = str(error).splitlines()[0]
        raise StoreIncompatible(
            f"{place} has no schema 'tenure', and this user may not create it ({reason}): let a "
            "role with that right run `create schema tenure authorization` with this user's name, "
            "and migrate again"
        ) from error


async def _remove_unused_texts(connection: AsyncConnection[Any]) -> None:
    """Left by interrupted prunes of schema 3. Locked first: a run may be about to use one."""
    found = await connection.execute(SQL["lock_all_unused_definitions"], prepare=False)
    unused = [digest for (digest,) in await found.fetchall()]
    if unused:
        await connection.execute(SQL["delete_unused_definitions"], (unused,), prepare=False)
