"""What surrounds the runs: upkeep (check, migrate, prune), registered workers, the gateway's
tokens.

*Pruning.* Old runs leave, in transactions so short that they are not noticed. First a run is gone
for every reader: the rows by which it is found, in one commit with a note in ``pruned``. What hung
on them, of whatever size, follows in portions, and the workflow text if no other run uses it; then
the note. A prune that is stopped in between leaves the note, and the next one goes on from there.
Several may prune at once: each takes notes that no other works on.

A text has a run that uses it, or a note that names it. The creator of a run holds its text until
the commit, so what is locked here and then not seen to be used is not about to be used either. What
another transaction holds is not waited for: the note stays, for the next prune.

What hangs on a run counts as well. Retention asks for a few runs a few times a second; so many rows
as these would have by rights are removed in that time, and no more: a run with a hundred thousand
rows of output takes as long as the five hundred runs it is as large as.

*Workers.* Each writes its own row, and forgets those of others that are silent: after an outage
that is all of them, at the same moment. So these are two transactions, and neither waits for a row.
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
"""Of one that is counted as one: most have a tenth of that."""
CALLS_PER_SECOND = 4
"""How often ``limit`` runs are asked for, at most (``runtime.retention``)."""

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
"""Nothing Tenure does leads to these; a database edited or restored by hand may show them."""

_tokens = msgspec.json.Decoder(Token)
_workers = msgspec.json.Decoder(WorkerInfo)


class Admin:
    _connections: Connections

    # Readiness and Upkeep

    async def check_ready(self) -> None:
        await self._connections.check_schema()

    async def check_store(self) -> StoreReport:
        """Everything in ``_facts``, and what is wrong. May read every row, hence its patience."""
        report = await self._facts()
        try:
            check_schema(self._connections.address.place, report.schema)
        except StoreIncompatible as wrong:
            return replace(report, problems=(f"{wrong}.",))
        async with self._connections.apart(_ADMIN_TIMEOUT_S) as session:
            problems = [problem async for problem in _disorder(session)]
        return replace(report, problems=tuple(problems))

    async def migrate_store(self) -> StoreReport:
        """A schema newer than this version's is refused."""
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

    # Retention

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
        """No connection is kept during a pause; stopped in one, the note is left."""
        now = asyncio.get_running_loop().time
        at_once = min(ROWS_AT_ONCE, max(rows_per_second // CALLS_PER_SECOND, 1))
        last: int | None = 0
        while last is not None:
            began = now()
            async with self._connections.session(Purpose.WRITING) as session:
                removed, last = await _clear_some(session, last, at_once)
            if last is not None:
                await pause(max(removed / rows_per_second - (now() - began), 0.0))

    # WorkerRegistry

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

    # TokenStore: what the server stamps has its own columns; the rest is as the token was given

    async def add_token(self, token: Token) -> Token:
        async with self._connections.session(Purpose.WRITING) as session:
            if not await session.count("add_token", token.id, rows.text(token)):
                await session.confirm()  # sent again
            return _token(await session.one("token", token.id))

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


async def _disorder(session: Session) -> AsyncIterator[str]:
    """The database is not asked to watch these with every write; the transactions keep them."""
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
    async for problem in _lacking_rights(session):
        yield problem
    (count,) = await session.one("unfinished_prunes")
    if count:
        yield (
            f"Pruned runs have left rows behind: {count}. Prune once more, unless a prune is at "
            "work right now."
        )


async def _lacking_rights(session: Session) -> AsyncIterator[str]:
    """Of a role that does not own the schema. What it lacks of tables is said by the call that
    meets it."""
    functions = [name for (name,) in await session.all("functions_out_of_reach")]
    if functions:
        yield (
            f"This role may not execute {', '.join(functions)}, so calls are refused. "
            "Give it the right: grant execute on all "
            "functions in schema tenure to its name."
        )


async def _hide(session: Session, older_than: float, limit: int) -> tuple[int, int]:
    """How many were found, and how many are gone. What was found is held when it is looked at once
    more: a callback may have been queued again meanwhile."""
    async with session.undone_on_error():
        _, _, found = await session.together(
            ("begin",), ("carefully",), ("lock_prunable", older_than, limit)
        )
        ((count,),), _ = await session.together(
            ("hide_locked", [seq for (seq,) in found]), ("commit",)
        )
    return len(found), count


async def _clear_some(session: Session, after: int, at_once: int) -> tuple[int, int | None]:
    """One portion of what hung on pruned runs, from the first noted after this one: how many rows.
    And after which to go on: ``None``, nothing is left to do."""
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
    """Their texts, if no other run uses them, and the notes: of how many nothing is left."""
    unused = [digest for (digest,) in await session.all("lock_unused_definitions", noted)]
    if unused:
        await session.all("delete_unused_definitions", unused)
    return await session.count("forget_pruned", noted)
