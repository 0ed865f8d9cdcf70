"""``RunStateStore``, the contract of every store, and ``Definitions``."""

from __future__ import annotations

from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from tenure.model.errors import (
    InvalidRunId,
    InvalidTransition,
    LeaseLost,
    NotRunnable,
    RunExists,
    RunNotFound,
    StoreRejected,
)
from tenure.model.snapshot import (
    Approval,
    CallbackTarget,
    Counts,
    HostState,
    RunSnapshot,
    StepState,
)
from tenure.model.status import HostStatus, Recovery, RunStatus, StepKind, StepStatus
from tenure.model.update import Changes, NewDelivery, StepChange
from tenure.ports.store import Definitions, RunStateStore
from tenure.testing.contracts.acts import (
    UNKNOWN_RUN_IDS,
    at_once,
    create,
    create_embedded,
    refused,
    write,
)
from tenure.testing.contracts.harness import ContractHarness, DefiningStore
from tenure.testing.contracts.run_records import FewAmongMany, RunListing, WholeRecords
from tenure.testing.contracts.run_states import RunApproval, RunEndings, RunTransitions
from tenure.testing.contracts.run_updates import OperatorUpdates, OrderOfChecks, RunUpdates
from tenure.testing.factories import (
    HOOK,
    embedded_run,
    end_run,
    lease_request,
    new_run,
    operator_status,
    owner_update,
    planned_steps,
    start_step,
)

_ELSEWHEN = datetime(1999, 12, 31, tzinfo=UTC)
_NAIVE = _ELSEWHEN.replace(tzinfo=None)

INVALID_RUN_IDS = [
    "",
    "short-7",
    "x" * 129,
    "-starts-with-a-dash",
    ".starts-with-a-dot",
    "has a space",
    "has/a/slash",
    "../../etc/passwd",
    "has\\backslash",
    "ends-with-newline\n",
    "nul-inside-\0-it",
    "ümlaut-first",
    "umlaut-insidé",
    "digits-١٢٣",
    "half-a-pair-\ud800",
]
VALID_RUN_IDS = ["eight-ch", "0" * 128, "a.b_c:d-E9", "CON.aux-1", "run-id..", "ends-with-dot."]

EVERY_FIELD: dict[str, Any] = {
    "workflow_name": "naïve — 部署",
    "workflow_version": "v1",
    "workflow_digest": "sha256:abc",
    "message": 'waiting\nfor "its" turn\t\x01\'; --',
    "recovery": Recovery.INTERRUPT,
    "approval": Approval(required=True, expires_at=datetime(2040, 1, 1, tzinfo=UTC)),
    "queue": "gpu",
    "priority": -100,
    "run_after": datetime(2039, 1, 1, 12, 30, 15, 123456, tzinfo=UTC),
    "timeout": 12.5,
    "labels": {"team": "web", "": "empty", "ключ": "значение"},
    "vars": {"deep": [{"n": None, "f": 1.5, "big": 2**63 - 1, "t": True}], "empty": {}},
    "callbacks": (CallbackTarget(name="hook", events=("run", "host"), headers={"X-A": "b"}),),
    "retry_of": "run-before-this",
    "cancel_reason": None,
    "steps": (
        StepState(index=0, name="drain", action="cmd.run", hosts={"wéb 1": HostState()}),
        StepState(index=1, name="reload", kind=StepKind.HANDLER, action="cmd.run", notified_by=0),
    ),
}


class RunCreation(ContractHarness):
    """Creation; what is returned is the caller's own."""

    async def test_create_and_fetch_by_run_id(self, store: RunStateStore) -> None:
        new = new_run(run_id="release-1.4", vars={"release": "1.4"})
        receipt = await store.create_run(new)
        run = await store.get_run("release-1.4")
        assert run == replace(
            new.snapshot,
            version=1,
            created_at=run.created_at,
            updated_at=run.created_at,
            counts=Counts(steps_total=2, hosts_total=4),
        )
        assert run.created_at is not None
        assert (receipt.run_id, receipt.version, receipt.fence) == ("release-1.4", 1, 0)
        assert (receipt.status, receipt.updated_at) == (RunStatus.QUEUED, run.updated_at)

    async def test_every_field_of_a_new_run_survives(self, store: RunStateStore) -> None:
        run = await create(store, **EVERY_FIELD)
        for name, value in EVERY_FIELD.items():
            assert getattr(run, name) == value, name

    async def test_run_born_running_has_its_first_lease_and_intent(
        self, store: RunStateStore
    ) -> None:
        """In one commit, so that an embedded run is never claimable."""
        running = HostState(status=HostStatus.RUNNING, attempts=1)
        first, second = planned_steps()
        first = replace(first, status=StepStatus.RUNNING, hosts={**first.hosts, "web1": running})
        new = embedded_run("owner-a", steps=(first, second))
        receipt = await store.create_run(new)
        run = await store.get_run(new.snapshot.run_id)
        assert (run.status, run.version, run.fence, run.owner_id) == ("running", 1, 1, "owner-a")
        assert run.started_at == run.created_at == run.updated_at
        assert run.steps[0].started_at == run.steps[0].hosts["web1"].started_at == run.created_at
        assert run.steps[0].hosts["web2"] == HostState()
        assert run.steps[1].started_at is None
        assert not run.owner_lost
        assert run.takeovers == 0
        assert run.counts == Counts(
            steps={StepStatus.RUNNING: 1},
            hosts={HostStatus.RUNNING: 1},
            steps_total=2,
            hosts_total=4,
        )
        assert (receipt.fence, receipt.status) == (1, RunStatus.RUNNING)

    async def test_queued_run_may_be_born_owned(self, store: RunStateStore) -> None:
        new = new_run(lease=lease_request("owner-a"))
        await store.create_run(new)
        run = await store.get_run(new.snapshot.run_id)
        assert (run.status, run.owner_id, run.fence) == (RunStatus.QUEUED, "owner-a", 1)
        assert run.started_at is None

    async def test_store_sets_version_fence_and_times_itself(self, store: RunStateStore) -> None:
        run = await create(
            store,
            version=7,
            fence=9,
            owner_id="pretender",
            takeovers=3,
            created_at=_ELSEWHEN,
            started_at=_ELSEWHEN,
            finished_at=_ELSEWHEN,
            updated_at=_ELSEWHEN,
            cancel_requested_at=_ELSEWHEN,
        )
        assert (run.version, run.fence, run.owner_id, run.takeovers) == (1, 0, None, 0)
        assert run.created_at is not None
        assert run.created_at > _ELSEWHEN
        assert run.updated_at == run.created_at
        assert (run.started_at, run.finished_at, run.cancel_requested_at) == (None, None, None)

    async def test_times_are_in_utc(self, store: RunStateStore) -> None:
        run = await create(store)
        assert run.created_at is not None
        assert run.created_at.utcoffset() == UTC.utcoffset(None)

    async def test_create_with_a_used_id_is_refused_and_changes_nothing(
        self, store: RunStateStore
    ) -> None:
        first = await create(store, run_id="taken-id", vars={"mine": 1})
        with pytest.raises(RunExists):
            await store.create_run(new_run(run_id="taken-id", vars={"mine": 2}, priority=5))
        assert await store.get_run("taken-id") == first

    async def test_run_ids_differing_in_case_are_different_runs(self, store: RunStateStore) -> None:
        await create(store, run_id="release-a", vars={"case": "lower"})
        await create(store, run_id="RELEASE-A", vars={"case": "upper"})
        assert (await store.get_run("release-a")).vars == {"case": "lower"}
        assert (await store.get_run("RELEASE-A")).vars == {"case": "upper"}

    async def test_creation_sent_again_gets_the_first_answer(self, store: RunStateStore) -> None:
        new = embedded_run()
        first = await store.create_run(new)
        again = await store.create_run(new)
        assert (again.version, again.fence) == (first.version, first.fence)
        run = await store.get_run(new.snapshot.run_id)
        moved = await write(store, start_step(run))
        late = await store.create_run(new)
        assert late.version == 1
        assert (await store.get_run(run.run_id)).version == moved.version == 2

    async def test_creation_sent_again_after_its_owner_lost_the_run_is_lost(
        self, store: RunStateStore
    ) -> None:
        """An owner that hears "ok" would execute a run of another owner."""
        new = embedded_run()
        await store.create_run(new)
        run = await store.get_run(new.snapshot.run_id)
        released = await write(store, owner_update(run, Changes(), release=True))
        ended = await write(store, operator_status(released, RunStatus.CANCELED))
        await refused(LeaseLost, store.create_run(new))
        assert await store.get_run(run.run_id) == ended

    async def test_creation_sent_again_after_its_owner_ended_the_run_is_answered(
        self, store: RunStateStore
    ) -> None:
        new = embedded_run()
        await store.create_run(new)
        ended = await write(store, end_run(await store.get_run(new.snapshot.run_id)))
        again = await store.create_run(new)
        assert (again.version, again.status) == (1, RunStatus.SUCCESS)
        assert await store.get_run(ended.run_id) == ended

    async def test_one_of_many_creations_of_one_id_wins(self, store: RunStateStore) -> None:
        news = [new_run(run_id="contested", vars={"number": number}) for number in range(20)]
        receipts, errors = await at_once(store.create_run(new) for new in news)
        assert len(receipts) == 1
        assert [type(error) for error in errors] == [RunExists] * 19
        assert len((await store.list_runs()).items) == 1

    async def test_one_creation_sent_many_times_at_once_creates_once(
        self, store: RunStateStore
    ) -> None:
        new = new_run()
        receipts, errors = await at_once(store.create_run(new) for _ in range(20))
        assert not errors
        assert {receipt.version for receipt in receipts} == {1}
        assert (await store.get_run(new.snapshot.run_id)).version == 1

    @pytest.mark.parametrize("run_id", INVALID_RUN_IDS, ids=ascii)
    async def test_invalid_run_id_is_refused_before_anything_is_stored(
        self, store: RunStateStore, run_id: str
    ) -> None:
        new = new_run()
        with pytest.raises(InvalidRunId):
            await store.create_run(replace(new, snapshot=replace(new.snapshot, run_id=run_id)))
        assert (await store.list_runs()).items == ()

    @pytest.mark.parametrize("run_id", VALID_RUN_IDS)
    async def test_run_id_at_the_edge_of_the_rule_is_kept_exactly(
        self, store: RunStateStore, run_id: str
    ) -> None:
        await store.create_run(new_run(run_id=run_id))
        assert (await store.get_run(run_id)).run_id == run_id

    @pytest.mark.parametrize("run_id", UNKNOWN_RUN_IDS, ids=ascii)
    async def test_unknown_run_is_not_invented(self, store: RunStateStore, run_id: str) -> None:
        await refused(RunNotFound, store.get_run(run_id))

    @pytest.mark.parametrize(
        "fields",
        [
            {"status": RunStatus.SUCCESS},
            {"status": RunStatus.INTERRUPTED},
            {"priority": 101},
            {"priority": -101},
            {"steps": (StepState(index=1, name="misnumbered"),)},
            {"steps": (StepState(index=0, status=StepStatus.SUCCESS),)},
            {"steps": (StepState(index=0, status=StepStatus.RUNNING),)},
            {"steps": (StepState(index=0, hosts={"web1": HostState(status=HostStatus.RUNNING)}),)},
            {"callbacks": (HOOK, HOOK)},
            {"vars": {"poison": "\ud800"}},
            {"labels": {"poison": "\udfff"}},
            {"message": "\ud800"},
        ],
        ids=ascii,
    )
    async def test_run_that_can_never_be_stored_is_rejected(
        self, store: RunStateStore, fields: dict[str, Any]
    ) -> None:
        await refused(StoreRejected, store.create_run(new_run(run_id="impossible", **fields)))
        await refused(RunNotFound, store.get_run("impossible"))
        assert (await create(store, run_id="impossible")).version == 1

    async def test_callback_to_a_target_the_run_does_not_have_is_rejected(
        self, store: RunStateStore
    ) -> None:
        stray = NewDelivery(id="stray-delivery", target="elsewhere", seq=0)
        with pytest.raises(StoreRejected):
            await store.create_run(replace(new_run(run_id="astray-run"), deliveries=(stray,)))
        await refused(RunNotFound, store.get_run("astray-run"))

    async def test_returned_values_share_nothing_with_the_store(self, store: RunStateStore) -> None:
        run = await create(store, vars={"list": [1]}, labels={"team": "web"})
        before = deepcopy(run)
        _vandalise(await store.get_run(run.run_id))
        (await store.list_runs()).items[0].labels.clear()
        assert await store.get_run(run.run_id) == before

    async def test_given_values_share_nothing_with_the_store(self, store: RunStateStore) -> None:
        new = new_run(vars={"list": [1]}, labels={"team": "web"})
        await store.create_run(new)
        before = deepcopy(await store.get_run(new.snapshot.run_id))
        _vandalise(new.snapshot)
        assert await store.get_run(new.snapshot.run_id) == before

    async def test_given_update_shares_nothing_with_the_store(self, store: RunStateStore) -> None:
        run = await create_embedded(store)
        update = start_step(run)
        before = deepcopy(await write(store, update))
        update.effect.changes.steps[0].hosts.clear()
        update.effect.changes.steps.clear()
        assert (await store.get_run(run.run_id)).steps == before.steps

    @pytest.mark.parametrize(
        "fields",
        [
            {"queue": ""},
            {"run_after": _NAIVE},
            {"approval": Approval(expires_at=_NAIVE)},
            {"run_after": datetime.fromisoformat("9999-12-31T23:59:59-01:00")},
            {"run_after": datetime.fromisoformat("0001-01-01T00:00:00+01:00")},
        ],
        ids=[
            "no queue",
            "run_after without time zone",
            "expiry without time zone",
            "after the last year",
            "before the first",
        ],
    )
    async def test_what_no_store_could_order_is_rejected(
        self, store: RunStateStore, fields: dict[str, Any]
    ) -> None:
        await refused(StoreRejected, create(store, **fields))

    async def test_steps_of_a_queued_run_cannot_start(self, store: RunStateStore) -> None:
        new = new_run(lease=lease_request("owner-a"))
        await store.create_run(new)
        run = await store.get_run(new.snapshot.run_id)
        step = Changes(steps={0: StepChange(status=StepStatus.RUNNING)})
        await refused(InvalidTransition, store.update_run(owner_update(run, step)))
        assert (await store.get_run(run.run_id)).version == run.version


def _vandalise(run: RunSnapshot) -> None:
    """Change the dictionaries inside a frozen value."""
    run.vars["list"].append(2)
    run.vars.clear()
    run.labels["team"] = "ours now"
    run.steps[0].hosts.clear()
    run.counts.steps[StepStatus.FAILED] = 99


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
        await refused(RunNotFound, store.get_definition(run_id))

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
    """Runs with a definition can be retried, once at a time."""

    async def test_second_retry_is_refused_and_the_active_one_is_named(
        self, store: DefiningStore
    ) -> None:
        old = await write(store, end_run(await create_embedded(store)))
        await create(store, run_id="first-retry", retry_of=old.run_id)
        with pytest.raises(NotRunnable, match="first-retry retries it and is queued") as error:
            await store.create_run(new_run(run_id="second-retry", retry_of=old.run_id))
        assert error.value.run_id == old.run_id
        await refused(RunNotFound, store.get_run("second-retry"))

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


class RunStateStoreContract(
    RunCreation,
    RunUpdates,
    OrderOfChecks,
    OperatorUpdates,
    RunApproval,
    RunTransitions,
    RunEndings,
    RunListing,
    FewAmongMany,
    WholeRecords,
):
    """``RunStateStore``: create, update, get, list."""

    async def test_store_says_whether_it_is_durable(self, store: RunStateStore) -> None:
        assert isinstance(store.durable, bool)
        assert isinstance(store, RunStateStore)
