"""``Definitions``: what a run executes, to the letter."""

from __future__ import annotations

import pytest

from tenure.model.errors import NotRunnable, RunExists, RunNotFound
from tenure.model.status import RunStatus
from tenure.ports.store import Definitions
from tenure.testing.contracts.acts import UNKNOWN_RUN_IDS, at_once, create, create_embedded, write
from tenure.testing.contracts.harness import ContractHarness, DefiningStore
from tenure.testing.factories import end_run, lease_request, new_run, operator_status

TEXTS = {
    "plain": "version: v1\nname: deploy\n",
    "line ends and spaces": "a: 1\r\nb:  2 \n\n\t# end \n ",
    "other scripts": "name: 部署 — naïve 🚀\u2028\n",
    "no text at all": "",
    "control characters": "bell: \x07 escape: \x1b[0m",
    "large": "step: x\n" * 100_000,
}


class DefinitionsContract(ContractHarness):
    async def test_store_keeps_definitions(self, store: DefiningStore) -> None:
        assert isinstance(store, Definitions)

    @pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
    async def test_definition_is_returned_exactly(self, store: DefiningStore, text: str) -> None:
        run = await create(store, definition=text)
        assert await store.get_definition(run.run_id) == text

    async def test_run_without_a_definition_has_none(self, store: DefiningStore) -> None:
        assert await store.get_definition((await create(store)).run_id) is None

    @pytest.mark.parametrize("run_id", UNKNOWN_RUN_IDS, ids=ascii)
    async def test_definition_of_an_unknown_run_is_refused(
        self, store: DefiningStore, run_id: str
    ) -> None:
        with pytest.raises(RunNotFound):
            await store.get_definition(run_id)

    async def test_definition_outlives_the_run(self, store: DefiningStore) -> None:
        run = await create_embedded(store, definition="name: kept")
        await write(store, end_run(run))
        assert await store.get_definition(run.run_id) == "name: kept"

    async def test_refused_creation_does_not_replace_the_definition(
        self, store: DefiningStore
    ) -> None:
        run = await create(store, definition="name: first")
        with pytest.raises(RunExists):
            await store.create_run(new_run(run_id=run.run_id, definition="name: second"))
        assert await store.get_definition(run.run_id) == "name: first"

    async def test_runs_may_share_a_text_and_differ_in_another(self, store: DefiningStore) -> None:
        texts = ["name: same", "name: other", "name: same"]
        runs = [await create(store, definition=text) for text in texts]
        assert [await store.get_definition(run.run_id) for run in runs] == texts


class OneRetryContract(ContractHarness):
    """What has a definition can be retried: two retries of a run would both do what is left."""

    async def test_second_retry_is_refused_and_the_active_one_is_named(
        self, store: DefiningStore
    ) -> None:
        old = await write(store, end_run(await create_embedded(store)))
        await create(store, run_id="first-retry", retry_of=old.run_id)
        with pytest.raises(NotRunnable, match="first-retry retries it and is queued") as refused:
            await store.create_run(new_run(run_id="second-retry", retry_of=old.run_id))
        assert refused.value.run_id == old.run_id
        with pytest.raises(RunNotFound):
            await store.get_run("second-retry")

    async def test_so_it_is_over_the_whole_chain_and_for_no_other(
        self, store: DefiningStore
    ) -> None:
        old = await write(store, end_run(await create_embedded(store)))
        retry = await write(store, end_run(await create_embedded(store, retry_of=old.run_id)))
        active = await create_embedded(store, retry_of=retry.run_id)
        for run in (old, retry, active):
            with pytest.raises(NotRunnable, match=f"{active.run_id} retries it and is running"):
                await store.create_run(new_run(retry_of=run.run_id))
        await create(store, retry_of=(await create(store)).run_id)
        await write(store, end_run(active))
        assert (await create(store, retry_of=old.run_id)).status is RunStatus.QUEUED

    async def test_retry_that_is_canceled_before_it_begins_makes_room(
        self, store: DefiningStore
    ) -> None:
        first = await create(store, retry_of="run-before-this")
        await write(store, operator_status(first, RunStatus.CANCELED))
        await create(store, retry_of="run-before-this")

    async def test_creation_of_a_retry_is_answered_again(self, store: DefiningStore) -> None:
        new = new_run(retry_of="run-before-this", lease=lease_request())
        first = await store.create_run(new)
        assert (await store.create_run(new)).version == first.version == 1

    async def test_of_several_at_once_one_is_made(self, store: DefiningStore) -> None:
        _, refused = await at_once(
            store.create_run(new_run(retry_of="run-before-this")) for _ in range(5)
        )
        assert len(refused) == 4
        assert all(isinstance(each, NotRunnable) for each in refused), refused
        assert len((await store.list_runs()).items) == 1
