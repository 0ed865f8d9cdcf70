"""Upkeep (check, migrate, prune), registered workers, and the gateway's tokens.

Pruning works in short transactions. The rows by which a run is found are deleted first, in one
commit with a note in ``pruned``; then its other rows in portions, its workflow text if no other run
uses it, and the note. After an interruption the next prune resumes from the notes. Several
processes may prune at once: each takes notes that no other has locked, and rows that another
transaction holds are left to the next prune. The creator of a run locks its text until the commit,
so a text locked here and unused is safe to delete. The rate is limited by rows: a run with very
many rows takes as long as many small ones.

A heartbeat writes the worker's own row and deletes rows of silent workers in two transactions,
neither of which waits for a row: after an outage all workers do so at the same time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection

import msgspec
from msgspec.structs import replace

from tenure.model.codec import decode
from tenure.model.errors import StoreIncompatible
from tenure.model.leases import LeaseToken
from tenure.model.query import check_age
from tenure.model.tokens import Token
from tenure.ports.leases import WorkerInfo
from tenure.ports.store import StoreReport
from tenure.stores import rows
from tenure.stores.postgres.connection import PAUSES_S, Row, Session, locked, pause
from tenure.stores.postgres.pools import Connections, Purpose
from tenure.stores.postgres.rows import can_exist
from tenure.stores.postgres.schema import check_schema, look, migrate, newest_schema

RUNS_AT_ONCE = 50
ROWS_AT_ONCE = 2000
ROWS_OF_A_RUN = 200
"""For the rate limit; most have a tenth of that."""
CALLS_PER_SECOND = 4
"""Prunes of ``limit`` runs, at most (``runtime.retention``)."""

_ADMIN_TIMEOUT_S = 3600.0
_PORTIONS = (
    "delete_some_log_chunks",
    "delete_some_deliveries",
    "delete_some_journal",
    "delete_some_steps",
    "delete_some_tasks",
)
_RELATIONS = {
    "runs_without_spec": "runs that lack what they were given",
    "runs_with_gaps": "runs of which changes are not in the journal",
    "specs_without_definition": "runs whose workflow text is gone",
    "rows_without_run": "runs of which only parts are left",
}
"""Only possible in a database edited or restored by hand."""

_tokens = msgspec.json.Decoder(Token)
_workers = msgspec.json.Decoder(WorkerInfo)


class Admin:
    _connections: Connections

    # ReadinessCheck and Upkeep.

    async def check_ready(self) -> None:
        await self._connections.check_schema()

    async def check_store(self) -> StoreReport:
        """Schema, number of runs and size, and all problems found; may read every row."""
        report = await self._facts()
        try:
            check_schema(self._connections.address.place, report.schema)
        except StoreIncompatible as wrong:
            return replace(report, problems=(f"{wrong}.",))
        async with self._connections.apart(_ADMIN_TIMEOUT_S) as session:
            problems = [problem async for problem in _problems(session)]
        return replace(report, problems=tuple(problems))

    async def migrate_store(self) -> StoreReport:
        """``StoreIncompatible`` for a schema newer than this version's."""
        async with self._connections.apart(_ADMIN_TIMEOUT_S) as session:
            await migrate(session.connection, self._connections.address.place)
        return await self._facts()

    async def _facts(self) -> StoreReport:
        async with self._connections.apart(_ADMIN_TIMEOUT_S) as session:
            schema = (await look(session.connection)).schema
            runs = used = None
            if schema == newest_schema():
                ((runs,),), ((used,),) = await session.together(("count_runs",), ("bytes_used",))
        return StoreReport(
            place=self._connections.address.place,
            schema=schema,
            newest_schema=newest_schema(),
            runs=runs,
            bytes_used=used,
        )

    # Retention.

    async def prune_runs(self, older_than: float, *, limit: int = 100) -> int:
        check_age(older_than)
        pruned = 0
        while pruned < limit:
            room = min(limit - pruned, RUNS_AT_ONCE)
            async with self._connections.session(Purpose.WRITING) as session:
                found, count = await _hide(session, older_than, room)
            pruned += count
            if found < room:
                break
        await self._clear_up(max(limit, 1) * ROWS_OF_A_RUN * CALLS_PER_SECOND)
        return pruned

    async def _clear_up(self, rows_per_second: int) -> None:
        """Keeps no connection during a pause."""
        now = asyncio.get_running_loop().time
        at_once = min(ROWS_AT_ONCE, max(rows_per_second // CALLS_PER_SECOND, 1))
        last: int | None = 0
        while last is not None:
            began = now()
            async with self._connections.session(Purpose.WRITING) as session:
                removed, last = await _clear_some(session, last, at_once)
            if last is not None:
                await pause(max(removed / rows_per_second - (now() - began), 0.0))

    # WorkerRegistry.

    async def heartbeat(self, worker: WorkerInfo, seconds: float) -> None:
        async with self._connections.session(Purpose.KEEPING) as session:
            seen = rows.text(replace(worker, seen_at=await session.now()))
            for wait in PAUSES_S:
                await pause(wait)
                if await session.all("put_worker", worker.owner_id, seconds, seen):
                    break
            else:
                raise locked(f"worker {worker.owner_id}", self._connections.address.place)
            await session.all("forget_silent_workers")

    async def list_workers(self) -> list[WorkerInfo]:
        async with self._connections.session(Purpose.READING) as session:
            found = await session.all("workers")
        return [decode(_workers, body) for (body,) in found]

    # TokenStore: times of the server have their own columns, the rest is one JSON text.

    async def add_token(self, token: Token) -> Token:
        async with self._connections.session(Purpose.WRITING) as session:
            if not await session.count("add_token", token.id, rows.text(token)):
                await session.confirm()  # sent again
            return _token(await session.one("token", token.id))

    async def add_first_token(self, token: Token) -> bool:
        async with self._connections.session(Purpose.WRITING) as session:
            if not await session.count("add_first_token", token.id, rows.text(token)):
                await session.confirm()  # sent again
            row = await session.first("token", token.id)
            return row is not None and _token(row).digest == token.digest

    async def list_tokens(self) -> list[Token]:
        async with self._connections.session(Purpose.READING) as session:
            return [_token(row) for row in await session.all("tokens")]

    async def revoke_token(self, token_id: str) -> Token | None:
        async with self._connections.session(Purpose.WRITING) as session:
            row = await session.first("revoke_token", token_id)
        return None if row is None else _token(row)

    async def lease_tokens(self, run_ids: Collection[str]) -> dict[str, LeaseToken]:
        asked = [run_id for run_id in run_ids if can_exist(run_id)]
        async with self._connections.session(Purpose.READING) as session:
            found = await session.all("lease_tokens", asked)
        return {run_id: LeaseToken(fence, token_id) for run_id, fence, token_id in found}

    async def token_secret(self) -> bytes:
        async with self._connections.session(Purpose.READING) as session:
            (secret,) = await session.one("token_secret")
        return str(secret).encode()


def _token(row: Row) -> Token:
    body, created_at, revoked_at = row
    return replace(decode(_tokens, body), created_at=created_at, revoked_at=revoked_at)


async def _problems(session: Session) -> AsyncIterator[str]:
    for name, what in _RELATIONS.items():
        (count,) = await session.one(name)
        if count:
            yield f"There are {what}: {count}. Stop Tenure, and restore a backup."
    (count,) = await session.one("changes_of_another_server")
    if count:
        yield (
            f"The feed of all runs lacks changes from the dump of another server: {count}. Run "
            "`tenure store migrate`."
        )
    (count,) = await session.one("unused_definitions")
    if count:
        yield f"There are workflow texts that no run uses: {count}. Run `tenure store migrate`."
    functions = [name for (name,) in await session.all("functions_out_of_reach")]
    if functions:
        yield (
            f"This role may not execute {', '.join(functions)}, so calls are refused. "
            "Give it the right: grant execute on all "
            "functions in schema tenure to its name."
        )
    (count,) = await session.one("unfinished_prunes")
    if count:
        yield (
            f"Pruned runs have left rows behind: {count}. Prune once more, unless a prune is at "
            "work right now."
        )


async def _hide(session: Session, older_than: float, limit: int) -> tuple[int, int]:
    """Returns how many runs were found and how many were pruned: checked again once locked, a run
    may have a requeued callback."""
    async with session.undone_on_error():
        _, _, found = await session.together(
            ("begin",), ("carefully",), ("lock_prunable", older_than, limit)
        )
        ((count,),), _ = await session.together(
            ("hide_locked", [seq for (seq,) in found]), ("commit",)
        )
    return len(found), count


async def _clear_some(session: Session, after: int, at_once: int) -> tuple[int, int | None]:
    """Delete a portion of the rows of pruned runs, from the first noted after ``after``. Returns
    the number of rows and the next ``after``, or ``None`` at the end."""
    async with session.undone_on_error():
        *_, found = await session.together(
            ("begin",), ("carefully",), ("pruned", after, RUNS_AT_ONCE)
        )
        noted = [seq for (seq,) in found]
        room = at_once
        for portion in _PORTIONS:
            if noted and room > 0:
                room -= await session.count(portion, noted, room)
        forgotten = await _forget(session, noted) if noted and room > 0 else 0
        await session.all("commit")
    removed = at_once - room
    if not noted:
        return removed, None
    return removed, after if removed and forgotten < len(noted) else noted[-1]


async def _forget(session: Session, noted: list[int]) -> int:
    """Delete their unused texts, and the notes of runs without rows left; returns how many."""
    unused = [digest for (digest,) in await session.all("lock_unused_definitions", noted)]
    if unused:
        await session.all("delete_unused_definitions", unused)
    return await session.count("forget_pruned", noted)
