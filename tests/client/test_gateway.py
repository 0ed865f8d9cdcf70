"""The typed client: each thing that programs ask of a gateway, once."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

import tenure
from tenure.client import Gateway
from tenure.gateway_process import GatewayProcess
from tenure.model.errors import InvalidCursor, OutputNotFound
from tenure.model.leases import ClaimRequest
from tenure.model.status import DeliveryState, RunStatus
from tenure.stores.memory import InMemoryStore
from tenure.wire.runs import NewCallback, RetryRequest, SubmitOptions

pytestmark = pytest.mark.slow

WORKFLOW = """
version: v1
name: greet
steps:
  - {name: hello, action: cmd.run, args: {cmd: "echo hello"}}
"""
APPROVED = WORKFLOW + "plan: {mode: manual-approve}\n"


async def test_a_program_asks_for_all_of_it() -> None:
    kept = InMemoryStore()
    runner = tenure.Runner(kept)
    async with (
        GatewayProcess(kept, runner, no_token=True).open("127.0.0.1", 0) as address,
        Gateway(address) as gateway,
    ):
        hook = NewCallback(url="https://192.0.2.1/hook")
        options = SubmitOptions(labels={"order": "1"}, callbacks=(hook,))
        run = await gateway.submit(WORKFLOW, options, key="order-1")
        assert (await gateway.submit(WORKFLOW, options, key="order-1")).run_id == run.run_id
        assert (await gateway.get_run(run.run_id)).labels == {"order": "1"}
        (listed,) = (await gateway.list_runs(tenure.RunFilter(labels={"order": "1"}))).items
        assert listed.run_id == run.run_id
        assert "no worker" in (await gateway.explain(run.run_id)).text
        assert (await gateway.annotate(run.run_id, {"seen": True})).annotations[0].data == {
            "seen": True
        }
        canceled = await gateway.cancel(run.run_id, reason="enough")
        assert (canceled.status, canceled.message) == (RunStatus.CANCELED, "enough")
        again = await gateway.retry(run.run_id, RetryRequest(approve=True), key="retry-1")
        assert again.retry_of == run.run_id
        once_more = await gateway.retry(run.run_id, RetryRequest(approve=True), key="retry-1")
        assert once_more.run_id == again.run_id
        assert [each.run_id for each in (await gateway.list_runnable()).items] == [again.run_id]
        definition = await gateway.get_definition(again.run_id)
        assert definition is not None
        assert definition.workflow == WORKFLOW
        assert await gateway.list_output(again.run_id) == ()
        assert (await gateway.read_output(again.run_id, 0, "local")).text == ""
        waits = await gateway.submit(APPROVED)
        assert (await gateway.approve(waits.run_id, note="go")).approval.by is not None
        types = [event.type for event in await gateway.read_events(run.run_id)]
        assert types[0] == "run.queued"
        assert "run.canceled" in types

        callbacks = (await gateway.list_callbacks(run_id=run.run_id)).callbacks
        assert {each.type for each in callbacks} == {"run.queued", "run.canceled"}
        assert not (await gateway.list_callbacks(state=DeliveryState.DELIVERED)).callbacks
        one = await gateway.get_callback(callbacks[0].id)
        assert one.payload.run_id == run.run_id
        assert (await gateway.redeliver(one.id)).state is DeliveryState.WAITING

        assert await gateway.list_workers() == ()
        assert (await gateway.reconcile()).interrupted == ()
        asked = ClaimRequest(owner_id="worker-1", seconds=60, claim_id="c", limit=5)
        assert len(await kept.claim_runs(asked)) == 2
    await runner.close()


async def test_what_is_wrong_comes_as_the_library_says_it() -> None:
    kept = InMemoryStore()
    runner = tenure.Runner(kept)
    async with (
        GatewayProcess(kept, runner, no_token=True).open("127.0.0.1", 0) as address,
        Gateway(address) as gateway,
    ):
        with pytest.raises(tenure.RunNotFound, match="no-such-run"):
            await gateway.get_run("no-such-run")
        with pytest.raises(tenure.RunNotFound):
            await gateway.cancel("../../etc/passwd")
        with pytest.raises(tenure.InvalidWorkflow) as wrong:
            await gateway.submit("version: v1\nname: x\nsteps: [{name: a, action: cmd.rnu}]\n")
        assert [mistake.line for mistake in wrong.value.mistakes] == [3]
        with pytest.raises(InvalidCursor):
            await gateway.list_runs(cursor="made up")
        run = await gateway.submit(WORKFLOW, SubmitOptions(run_id="taken-id"))
        with pytest.raises(tenure.RunExists, match=run.run_id):
            await gateway.submit(WORKFLOW, SubmitOptions(run_id="taken-id"))
        await gateway.submit(WORKFLOW, key="order-1")
        with pytest.raises(tenure.KeyReused, match="a new key for a new request"):
            await gateway.submit(APPROVED, key="order-1")
        for key in ("", "a\nb", "käse", "k" * 256):
            with pytest.raises(tenure.InvalidOptions, match="key"):
                await gateway.submit(WORKFLOW, key=key)
        large = SubmitOptions(vars={"text": "x" * (1 << 20)})
        with pytest.raises(tenure.StoreRejected, match=r"^options may have \d+ bytes"):
            await gateway.submit(WORKFLOW, large)
        with pytest.raises(OutputNotFound, match="steps are 0 to 0"):
            await gateway.read_output(run.run_id, 7, "local")
    await runner.close()


async def test_one_client_serves_several_event_loops() -> None:
    kept = InMemoryStore()
    async with GatewayProcess(kept, tenure.Runner(kept), no_token=True).open(
        "127.0.0.1", 0
    ) as address:
        gateway = Gateway(address)

        def asked(run_id: str) -> str:
            async def twice() -> str:
                await gateway.get_run(run_id)
                return (await gateway.get_run(run_id)).run_id

            return asyncio.run(twice())

        submitted = await gateway.submit(WORKFLOW)
        for _ in range(2):  # at once, and one after the other
            asking = [asyncio.to_thread(asked, submitted.run_id) for _ in range(2)]
            assert set(await asyncio.gather(*asking)) == {submitted.run_id}
        assert (await gateway.get_run(submitted.run_id)).run_id == submitted.run_id
        await gateway.close()


async def test_statuses_may_be_written_in_any_letter_case() -> None:
    kept = InMemoryStore()
    async with (
        GatewayProcess(kept, tenure.Runner(kept), no_token=True).open("127.0.0.1", 0) as address,
        Gateway(address) as gateway,
        aiohttp.ClientSession() as plain,
    ):
        queued = await gateway.submit(WORKFLOW)
        where = tenure.RunFilter(statuses=frozenset({"QUEUED"}))  # type: ignore[arg-type]
        assert [each.run_id for each in (await gateway.list_runs(where)).items] == [queued.run_id]
        assert [each.run_id for each in (await kept.list_runs(where)).items] == [queued.run_id]
        async with plain.get(f"{address}/v1/runs?status=Queued&status=FAILED") as answer:
            assert [each["run_id"] for each in (await answer.json())["runs"]] == [queued.run_id]
        async with plain.get(f"{address}/v1/callbacks?state=DEAD") as answer:
            assert answer.status == 200
