"""Before a gateway a runner executes and nothing else: what is to be done for the store besides,
somebody else does."""

from __future__ import annotations

import pytest

import tenure
from tenure.model.status import RunStatus
from tenure.stores.memory import InMemoryStore
from tenure.testing.contracts.acts import create_embedded
from tests.remote_store.front import gateway

pytestmark = pytest.mark.slow

GREETING = tenure.Workflow(
    name="greet",
    steps=[tenure.Step(name="hello", action="cmd.run", args={"cmd": "echo hello"})],
)


async def test_callbacks_are_left_to_the_gateway() -> None:
    kept = InMemoryStore()
    hook = tenure.CallbackSpec(url="http://127.0.0.1:1/hook", events=("run", "step"))
    async with gateway(kept) as address, tenure.Runner(address) as runner:
        run = await runner.run(GREETING, tenure.RunOptions(callbacks=(hook,)))
        queued = await runner.submit(GREETING, tenure.RunOptions(callbacks=(hook,)))
        await runner.cancel(queued.run_id)
    assert run.status is RunStatus.SUCCESS
    owed = (await kept.list_deliveries()).items
    assert [each.event.type for each in reversed(owed)] == [
        "run.queued",
        "run.running",
        "step.running",
        "step.success",
        "run.success",
        "run.queued",
        "run.canceled",
    ]


async def test_what_a_dead_process_left_is_left_to_the_gateway(dead_owner: str) -> None:
    kept = InMemoryStore()
    left = await create_embedded(kept, dead_owner)
    async with gateway(kept) as address, tenure.Runner(address) as runner:
        assert (await runner.run(GREETING)).status is RunStatus.SUCCESS
        assert await kept.get_run(left.run_id) == left
        await runner.reconcile()  # asks the gateway, which looks
        assert (await kept.get_run(left.run_id)).status is RunStatus.INTERRUPTED


async def test_the_output_of_a_run_goes_through_the_gateway() -> None:
    kept = InMemoryStore()
    async with gateway(kept) as address, tenure.Runner(address) as runner:
        run = await runner.run(GREETING)
    (key,) = [key for key in await kept.list_logs(run.run_id) if key.stream == "stdout"]
    assert (await kept.read(run.run_id, key)).data == b"hello\n"
