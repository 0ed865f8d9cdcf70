"""``Definitions``: what a run executes, to the letter."""

from __future__ import annotations

import pytest

from tenure.model.errors import RunExists, RunNotFound
from tenure.ports.definitions import Definitions
from tenure.testing.contracts.acts import UNKNOWN_RUN_IDS, create, create_embedded, write
from tenure.testing.contracts.harness import ContractHarness, DefiningStore
from tenure.testing.factories import end_run, new_run

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
