"""Is the store sound? Looked at without changing anything."""

from __future__ import annotations

from collections.abc import AsyncIterator

from msgspec.structs import replace

from tenure.model.errors import StoreIncompatible
from tenure.ports.store import StoreReport
from tenure.stores.postgres.connections import Connections, Purpose
from tenure.stores.postgres.migrating import check_schema, migrate, newest_schema, schema_of
from tenure.stores.postgres.session import Session

_AN_HOUR = 3600.0
_RELATIONS = {
    "runs_without_spec": "runs that lack what they were given",
    "runs_with_gaps": "runs of which changes are not in the journal",
    "specs_without_definition": "runs whose workflow text is gone",
    "rows_without_run": "runs of which only parts are left",
}
"""Nothing Tenure does leads to these; a database edited or restored by hand may show them."""


class Checking:
    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    async def check(self) -> StoreReport:
        """Everything in ``facts``, and what is wrong. May read every row, hence its patience."""
        report = await self.facts()
        place = self._connections.address.place
        try:
            check_schema(place, report.schema)
        except StoreIncompatible as wrong:
            return replace(report, problems=(f"{wrong}.",))
        async with self._connections.session(Purpose.READING, seconds=_AN_HOUR) as session:
            problems = [problem async for problem in _disorder(session)]
        return replace(report, problems=tuple(problems))

    async def migrate(self) -> StoreReport:
        async with self._connections.session(
            Purpose.WRITING, any_schema=True, seconds=_AN_HOUR
        ) as session:
            await migrate(session.connection, self._connections.address.place)
        return await self.facts()

    async def facts(self) -> StoreReport:
        async with self._connections.session(
            Purpose.READING, any_schema=True, seconds=_AN_HOUR
        ) as session:
            schema = await schema_of(session.connection)
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
    """Of a role that does not own the schema. Other tables are not looked at: what lacks there is
    said by whoever meets it, while the seal is done without."""
    functions = [name for (name,) in await session.all("functions_out_of_reach")]
    if functions:
        yield (
            f"This role may not execute {', '.join(functions)}, so calls are refused, or runs "
            "begin a moment later than they could. Give it the right: grant execute on all "
            "functions in schema tenure to its name."
        )
    (may_read,) = await session.one("may_read_seal")
    if not may_read:
        yield (
            "This role may not read what announcements are sealed with, so runs begin a moment "
            "later than they could. Give it the right: grant select on tenure.seal to its name."
        )
    elif await session.first("seal") is None:
        yield "There is nothing to seal announcements with. Run `tenure store migrate`."
