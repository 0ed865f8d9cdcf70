"""What a token lets a worker, an operator, a viewer do with the store behind a gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from tenure.client import HttpStore
from tenure.client.errors import name_of, problem_in
from tenure.client.transport import encoded
from tenure.model.errors import NotPermitted, RunNotFound
from tenure.model.leases import Purpose
from tenure.model.query import RunFilter
from tenure.model.snapshot import Approval, CallbackTarget
from tenure.model.tokens import Role, Token, digest_of, written
from tenure.ports.store import LogKey
from tenure.runner import Runner
from tenure.runtime.recipe import Definition, decode_definition
from tenure.stores.memory import InMemoryStore
from tenure.testing.contracts.acts import claim, create, lease_of
from tenure.testing.factories import (
    LONG,
    annotate,
    approve,
    cancel,
    claim_request,
    embedded_run,
    end_run,
    fencing_of,
    lease_request,
    new_run,
    start_run,
)
from tenure.wire.leases import LeaseRenewal
from tests.remote_store.front import gateway

pytestmark = pytest.mark.slow

HOOK = CallbackTarget(name="hook", url="https://example.com/?key=hush", headers={"X-Key": "hush"})
TELLING = """\
version: v1
name: tell  # and nothing else
steps: [{name: hello, action: cmd.run, args: {cmd: "true"}}]
inventory: {hosts: {web1: {address: local}}}
callbacks: [{url: "https://example.com/?key=hush", headers: {X-Key: hush}}]
"""
OUT = LogKey(step=0, host="web1", stream="stdout")


class Guarded:
    """A gateway that asks for tokens; what is behind it, for arranging things."""

    def __init__(self, kept: InMemoryStore, address: str) -> None:
        self.kept = kept
        self._address = address

    @asynccontextmanager
    async def as_a(self, role: Role, *queues: str) -> AsyncIterator[HttpStore]:
        secret = f"secret of {role}"
        token = Token(
            id=role,
            name=f"the {role}",
            role=role,
            digest=digest_of(secret),
            queues=queues or None,
        )
        await self.kept.add_token(token)
        async with HttpStore(self._address, written(role, secret)) as store:
            yield store


@pytest.fixture
async def guarded() -> AsyncIterator[Guarded]:
    kept = InMemoryStore()
    async with gateway(kept) as address:
        yield Guarded(kept, address)


async def test_a_worker_executes_and_nobody_else_does(guarded: Guarded) -> None:
    async with guarded.as_a(Role.WORKER) as worker, guarded.as_a(Role.OPERATOR) as operator:
        run = await claim(worker, (await create(guarded.kept)).run_id)
        for refused in (
            operator.claim_runs(claim_request()),
            operator.claim_run(run.run_id, lease_request("somebody")),
            operator.renew_leases([lease_of(run)], LONG),
            operator.release_lease(run.run_id, fencing_of(run), "release"),
            operator.append(run.run_id, fencing_of(run), OUT, 0, b"x"),
            operator.update_run(start_run(run)),
            operator.create_run(embedded_run("somebody")),
        ):
            with pytest.raises(NotPermitted):
                await refused
        assert (await worker.update_run(start_run(run))).version == run.version + 1


async def test_a_worker_is_no_operator(guarded: Guarded) -> None:
    run = await create(guarded.kept, approval=Approval(required=True))
    async with guarded.as_a(Role.WORKER) as worker:
        for write in (
            approve(run),
            cancel(run),
            annotate(run, found="later"),
            new_run(),
            embedded_run("worker-1"),
        ):
            (outcome,) = await worker.update_runs([write])
            assert isinstance(outcome, NotPermitted)
    assert await guarded.kept.get_run(run.run_id) == run


async def test_a_viewer_reads_and_sees_no_credential(guarded: Guarded) -> None:
    run = await create(guarded.kept, callbacks=(HOOK,))
    async with guarded.as_a(Role.VIEWER) as viewer, guarded.as_a(Role.WORKER) as worker:
        seen = await viewer.get_run(run.run_id)
        assert "hush" not in str(seen)
        assert replace(seen, callbacks=()) == replace(run, callbacks=())
        assert await worker.get_run(run.run_id) == run
        with pytest.raises(NotPermitted):
            await viewer.update_run(annotate(run, found="later"))


async def test_who_retries_a_run_passes_on_credentials_it_was_never_shown(guarded: Guarded) -> None:
    definition = Definition(workflow=TELLING, local=True).encode()
    old = await create(guarded.kept, callbacks=(HOOK,), definition=definition)
    await guarded.kept.update_run(cancel(old))
    async with guarded.as_a(Role.OPERATOR) as operator, Runner(operator) as runner:
        assert "hush" not in str(await operator.get_definition(old.run_id))
        again = await runner.submit_retry(old.run_id)
        assert "hush" not in str(again)
    assert (await guarded.kept.get_run(again.run_id)).callbacks == (HOOK,)
    kept = decode_definition(await guarded.kept.get_definition(again.run_id) or "")
    assert kept.workflow == TELLING


class TestAWorkerLimitedToQueues:
    async def test_claims_from_these_only(self, guarded: Guarded) -> None:
        wanted = await create(guarded.kept, queue="gpu")
        other = await create(guarded.kept, queue="cpu")
        async with guarded.as_a(Role.WORKER, "gpu", "tpu") as worker:
            with pytest.raises(NotPermitted):
                await worker.claim_runs(claim_request(queues=("gpu", "cpu")))
            with pytest.raises(NotPermitted):
                await worker.claim_runs(claim_request(queues=(), purpose=Purpose.RECONCILE))
            with pytest.raises(RunNotFound):
                await worker.claim_run(other.run_id, lease_request("worker-1"))
            (claimed,) = await worker.claim_runs(claim_request(limit=5, queues=("gpu", "tpu")))
            assert claimed.lease.run_id == wanted.run_id
        assert (await guarded.kept.get_run(other.run_id)).owner_id is None

    async def test_touches_no_other_run_whoever_owns_it(self, guarded: Guarded) -> None:
        other = await claim(guarded.kept, (await create(guarded.kept, queue="cpu")).run_id)
        async with guarded.as_a(Role.WORKER, "gpu", "tpu") as worker:
            for refused in (
                worker.get_run(other.run_id),
                worker.update_run(start_run(other)),
                worker.release_lease(other.run_id, fencing_of(other), "release"),
                worker.append(other.run_id, fencing_of(other), OUT, 0, b"x"),
                worker.read(other.run_id, OUT),
                worker.get_definition(other.run_id),
            ):
                with pytest.raises(RunNotFound):
                    await refused
            (renewal,) = await worker.renew_leases([lease_of(other)], LONG)
            assert not renewal.ok
            with pytest.raises(NotPermitted):
                await worker.create_run(embedded_run("worker-1", queue="cpu"))
        assert await guarded.kept.get_run(other.run_id) == other

    async def test_finds_no_run_that_took_the_id_of_its_own(self, guarded: Guarded) -> None:
        """Which ended, and was forgotten."""
        mine = await create(guarded.kept, queue="gpu")
        async with guarded.as_a(Role.WORKER, "gpu") as worker:
            held = await claim(worker, mine.run_id)
            await worker.update_run(start_run(held))
            await worker.update_run(end_run(await guarded.kept.get_run(mine.run_id)))
            assert await guarded.kept.prune_runs(0.0) == 1
            await create(guarded.kept, run_id=mine.run_id, queue="cpu", callbacks=(HOOK,))
            theirs = await claim(guarded.kept, mine.run_id, "worker-2")
            for refused in (
                worker.claim_run(mine.run_id, lease_request("worker-1")),
                worker.update_run(start_run(theirs)),
                worker.append(mine.run_id, fencing_of(theirs), OUT, 0, b"x"),
                worker.read(mine.run_id, OUT),
            ):
                with pytest.raises(RunNotFound):
                    await refused
        assert await guarded.kept.get_run(mine.run_id) == theirs

    async def test_renews_no_lease_of_another_queue(self, guarded: Guarded) -> None:
        other = await claim(guarded.kept, (await create(guarded.kept, queue="cpu")).run_id)
        async with guarded.as_a(Role.WORKER, "gpu") as worker:
            line = worker._line
            body = encoded(LeaseRenewal(owner_id="owner-a", fence=other.fence, lease_seconds=LONG))
            reply = await line.send("PUT", f"/v1/runs/{other.run_id}/lease", body=body)
        assert (reply.status, name_of(problem_in(reply.status, reply.data))) == (
            404,
            "run-not-found",
        )

    async def test_sees_its_own_runs_in_every_list(self, guarded: Guarded) -> None:
        mine = [(await create(guarded.kept, queue=name)).run_id for name in ("gpu", "tpu")]
        await create(guarded.kept, queue="cpu")
        async with guarded.as_a(Role.WORKER, "gpu", "tpu") as worker:
            assert {run.run_id for run in (await worker.list_runs()).items} == set(mine)
            assert {run.run_id for run in (await worker.list_runnable()).items} == set(mine)
            held = RunFilter(owner_id="worker-1")
            assert not (await worker.list_runs(held)).items

    async def test_works_off_what_is_its_own(self, guarded: Guarded) -> None:
        run: Any = await create(guarded.kept, queue="gpu")
        async with guarded.as_a(Role.WORKER, "gpu") as worker:
            run = await claim(worker, run.run_id)
            await worker.update_run(start_run(run))
            assert await worker.append(run.run_id, fencing_of(run), OUT, 0, b"x") == 1
            (renewal,) = await worker.renew_leases([lease_of(run)], LONG)
            assert renewal.ok
            await worker.release_lease(run.run_id, fencing_of(run), "release")
