"""A NUL, which JSON can hold and the server's texts cannot, is kept, and nobody else's trouble."""

from __future__ import annotations

import pytest

from tenure.model.status import HostStatus, StepStatus
from tenure.model.update import Changes, HostChange, Receipt, StepChange
from tenure.stores.postgres import PostgresStore
from tenure.testing.contracts.acts import create, create_embedded
from tenure.testing.factories import owner_update
from tests.postgres.database import TestDatabase

pytestmark = pytest.mark.slow

ODD = 'before\0after, \\u0000, "ü"'


def _started(text: str) -> Changes:
    host = HostChange(status=HostStatus.RUNNING, stdout=text, vars={text: [text]})
    return Changes(
        steps={0: StepChange(status=StepStatus.RUNNING, message=text, hosts={"web1": host})}
    )


async def test_nul_in_somebodys_output_is_kept_beside_usual_ones(
    postgres_database: TestDatabase,
) -> None:
    async with PostgresStore(postgres_database.url) as store:
        odd, usual = await create_embedded(store), await create_embedded(store)
        outcomes = await store.update_runs(
            [owner_update(odd, _started(ODD)), owner_update(usual, _started("usual"))]
        )
        assert [type(outcome) for outcome in outcomes] == [Receipt, Receipt]
        (step, _), (other, _) = [(await store.get_run(run.run_id)).steps for run in (odd, usual)]
        assert (step.message, other.message) == (ODD, "usual")
        assert step.hosts["web1"].stdout == ODD
        assert step.hosts["web1"].vars == {ODD: [ODD]}
        events = await store.read_events(odd.run_id)
        assert ODD in {event.message for event in events}


async def test_run_can_be_born_with_a_nul(postgres_database: TestDatabase) -> None:
    async with PostgresStore(postgres_database.url) as store:
        run = await create_embedded(store, vars={"odd": ODD}, message=ODD)
        assert (run.vars, run.message) == ({"odd": ODD}, ODD)


async def test_whatever_encoding_a_url_names_ours_is_utf_8(postgres_database: TestDatabase) -> None:
    async with PostgresStore(f"{postgres_database.url}?client_encoding=LATIN1") as store:
        run = await create(store, queue="büro", vars={"odd": "✓"})
        (found,) = await store.find_waiting(["büro"], limit=2)
        assert found.snapshot.run_id == run.run_id
        assert found.snapshot.vars == {"odd": "✓"}
