"""A worker whose token is revoked."""

from __future__ import annotations

import asyncio

import pytest

from tenure.client import HttpStore
from tenure.model.status import RunStatus
from tenure.model.tokens import Role, Token, digest_of, written
from tests.system.workers.fleet import Fleet, Leases
from tests.system.workers.front import Front

pytestmark = pytest.mark.slow


def token_for(name: str) -> tuple[Token, str]:
    made = Token(id=name, name=name, role=Role.WORKER, digest=digest_of("hush"), queues=("site",))
    return made, written(name, "hush")


async def test_it_stops_with_an_error_and_another_goes_on(fleet: Fleet) -> None:
    """Nothing of its run is left here, and whoever may goes on with it when its lease has ended."""
    fleet.leases = Leases(lease=4.0, renew=1.0)
    gate = fleet.folder / "gate"
    async with Front(fleet) as front:
        kept, first = token_for("first")
        await fleet.store.add_token(kept)
        other, second = token_for("second")
        await fleet.store.add_token(other)
        run_id = await fleet.submit(fleet.workflow(f"test -e {gate} || sleep 30"), queue="site")
        worker = fleet.start("--queue", "site", env={"TENURE_TOKEN": first})
        await fleet.starts(run_id)
        async with HttpStore(front.address, first) as store:
            assert (await store.get_run(run_id)).status is RunStatus.RUNNING
        await fleet.store.revoke_token(kept.id)
        assert await worker.ends() == 7
        assert "unknown, expired or revoked" in worker.complaints
        assert "hush" not in worker.complaints
        fleet.lost[worker.name] = (await fleet.get(run_id)).updated_at or pytest.fail("no time")
        gate.touch()
        fleet.start("--queue", "site", env={"TENURE_TOKEN": second})
        async with asyncio.timeout(40):
            assert (await fleet.ended(run_id)).status is RunStatus.SUCCESS
        await fleet.sound()
