"""What a token may write past the verbs: an operator the verbs' own writes, in its own name; an
owner what is an owner's to say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tenure.model.snapshot import Annotation, Approval, CallbackTarget, RunSnapshot
from tenure.model.status import RunStatus
from tenure.model.update import (
    CallbackFailure,
    CancelRequest,
    Changes,
    Consent,
    Effect,
    Event,
    NewRun,
    RunChange,
    StepChange,
    Update,
)
from tenure.testing.factories import (
    annotate,
    approve,
    cancel,
    embedded_run,
    expire,
    new_run,
    operator_status,
    owner_update,
    unique,
)
from tests.gateway.conftest import stored
from tests.gateway.house import Client, House

HOOK = CallbackTarget(name="hook", url="http://127.0.0.1:9/hook")
"""An address that is never reached: its callback is given up at the first attempt."""


@pytest.fixture(scope="module")
def mallory(house: House) -> Iterator[Client]:
    client = house.client(house.token("operator", "mallory"))
    yield client
    client.close()


def waiting(house: House, **fields: Any) -> RunSnapshot:
    """A run that wants approval, and has a callback."""
    new = new_run(
        run_id=unique("deed"), approval=Approval(required=True), callbacks=(HOOK,), **fields
    )
    house.run(house.store.create_run(new))
    return stored(house, new.snapshot.run_id)


def owned(house: House) -> RunSnapshot:
    new = embedded_run("worker-7", run_id=unique("deed"))
    house.run(house.store.create_run(new))
    return stored(house, new.snapshot.run_id)


def written(client: Client, write: Update | NewRun) -> Any:
    answer = client(
        "POST",
        "/v1/updates",
        data=msgspec.json.encode({"writes": [write]}),
        headers={"content-type": "application/json"},
    )
    assert answer.status == 200, answer
    (outcome,) = answer.json["outcomes"]
    return outcome


def accepted(client: Client, write: Update | NewRun) -> None:
    assert written(client, write)["problem"] is None


def refused(client: Client, write: Update | NewRun) -> str:
    return str(written(client, write)["problem"]["type"]).removeprefix("urn:tenure:problem:")


def journal(client: Client, run_id: str) -> list[tuple[str, Any]]:
    events = client.get(f"/v1/runs/{run_id}/events").json["events"]
    return [(each["type"], (each["data"] or {}).get("by")) for each in events]


def bare(run: RunSnapshot, **fields: Any) -> Update:
    """As somebody sends it who would rather not be in the journal."""
    effect = Effect(changes=Changes(run=RunChange(**fields)))
    return Update(run_id=run.run_id, update_id=f"bare-{run.run_id}", effect=effect)


class TestAnOperator:
    def test_approves_in_its_own_name(self, house: House, mallory: Client) -> None:
        for hidden in (False, True):
            run = waiting(house)
            consent = Consent(by="the-ceo")
            accepted(mallory, bare(run, approve=consent) if hidden else approve(run, "the-ceo"))
            assert stored(house, run.run_id).approval.by == "mallory"
            assert journal(mallory, run.run_id)[1:] == [("run.approved", "mallory")]

    def test_cancels_in_its_own_name_and_callbacks_say_so(
        self, house: House, mallory: Client
    ) -> None:
        request = CancelRequest(by="the-ceo", reason="enough")
        for hidden in (False, True):
            run = waiting(house)
            accepted(mallory, bare(run, cancel=request) if hidden else cancel(run, "enough"))
            after = stored(house, run.run_id)
            assert (after.status, after.cancel_reason) == ("canceled", "enough")
            said = journal(mallory, run.run_id)[1:]
            assert said == [("run.canceled", None), ("cancel.requested", "mallory")]
            told = mallory.get(f"/v1/callbacks?run_id={run.run_id}").json["callbacks"]
            assert "run.canceled" in {each["type"] for each in told}

    def test_asks_an_owner_in_its_own_name(self, house: House, mallory: Client) -> None:
        run = owned(house)
        accepted(mallory, cancel(run, by="the-ceo"))
        assert stored(house, run.run_id).status == "running"
        assert journal(mallory, run.run_id)[-1] == ("cancel.requested", "mallory")

    def test_annotates_in_its_own_name(self, house: House, mallory: Client) -> None:
        run = waiting(house)
        note = Annotation(id="note-1", data={"ok": True}, by="auditor")
        accepted(mallory, bare(run, annotate=(note,)))
        (kept,) = stored(house, run.run_id).annotations
        assert (kept.by, kept.data) == ("mallory", {"ok": True})
        assert journal(mallory, run.run_id)[-1] == ("run.annotated", "mallory")

    def test_ends_what_nobody_approved_once_that_is_so(self, house: House, mallory: Client) -> None:
        run = waiting(house)
        assert refused(mallory, expire(run)) == "invalid-transition"

    def test_tells_an_invented_event_to_nobody(self, house: House, mallory: Client) -> None:
        run = waiting(house)
        invented = Event(type="run.success", status="success", data={"by": "the-ceo"})
        given = annotate(run, found="later")
        effect = msgspec.structs.replace(given.effect, events=(invented,))
        accepted(mallory, msgspec.structs.replace(given, effect=effect))
        assert journal(mallory, run.run_id)[1:] == [("run.annotated", "mallory")]

    def test_writes_nothing_else(self, house: House, mallory: Client) -> None:
        run = waiting(house)
        failure = CallbackFailure(target="hook", event="run.queued", error="x", attempts=1)
        consent, request = Consent(by="mallory"), CancelRequest()
        notes = tuple(Annotation(id=name, data={}) for name in "ab")
        for write in (
            operator_status(run, RunStatus.FAILED),
            operator_status(run, RunStatus.CANCELED),
            bare(run, message="all is well"),
            bare(run, callback_failed=failure),
            bare(run, approve=consent, cancel=request),
            bare(run, approve=consent, message="all is well"),
            bare(run, annotate=notes),
            bare(run),
            Update(
                run_id=run.run_id,
                update_id="steps",
                effect=Effect(
                    changes=Changes(run=RunChange(approve=consent), steps={0: StepChange()})
                ),
            ),
        ):
            assert refused(mallory, write) == "forbidden", write
        assert stored(house, run.run_id) == run


class TestAnOperatorsNewRun:
    def test_is_in_its_own_name(self, house: House, mallory: Client) -> None:
        approval = Approval(required=True, by="the-ceo", note="fine")
        new = new_run(run_id=unique("deed"), approval=approval, callbacks=(HOOK,))
        accepted(mallory, msgspec.structs.replace(new, events=(), deliveries=()))
        run = stored(house, new.snapshot.run_id)
        assert (run.approval.by, run.approval.note) == ("mallory", None)
        assert journal(mallory, run.run_id) == [("run.queued", "mallory")]
        (told,) = mallory.get(f"/v1/callbacks?run_id={run.run_id}").json["callbacks"]
        assert told["type"] == "run.queued"

    def test_waits_for_a_worker(self, mallory: Client) -> None:
        assert refused(mallory, new_run(status=RunStatus.RUNNING)) == "forbidden"

    def test_is_something_that_can_be_executed(self, mallory: Client) -> None:
        assert refused(mallory, new_run(definition="rubbish")) == "store-rejected"


class TestAWorker:
    def test_creates_nothing(self, worker: Client, mallory: Client) -> None:
        for new in (
            new_run(run_id=unique("deed")),
            embedded_run("worker-7", run_id=unique("deed")),
        ):
            assert refused(worker, new) == "forbidden"
            assert mallory.get(f"/v1/runs/{new.snapshot.run_id}").status == 404
        assert refused(mallory, embedded_run("worker-7")) == "forbidden"

    def test_says_under_its_lease_what_an_owner_says(self, house: House, worker: Client) -> None:
        run = owned(house)
        note = Annotation(id="note-1", data={})
        failure = CallbackFailure(target="hook", event="run.queued", error="x", attempts=1)
        for change in (
            RunChange(cancel=CancelRequest(by="alice")),
            RunChange(approve=Consent(by="alice")),
            RunChange(annotate=(note,)),
            RunChange(callback_failed=failure),
            RunChange(message="all is well", cancel=CancelRequest(by="alice")),
        ):
            assert refused(worker, owner_update(run, Changes(run=change))) == "forbidden", change
        for word in ("cancel.requested", "run.approved", "run.annotated", "callback.redelivered"):
            update = owner_update(run, Changes(run=RunChange(message="all is well")))
            effect = msgspec.structs.replace(update.effect, events=(Event(type=word),))
            assert refused(worker, msgspec.structs.replace(update, effect=effect)) == "forbidden"
        hidden = owner_update(run, Changes(run=RunChange(message="all is well")))
        deed = Effect(changes=Changes(run=RunChange(approve=Consent(by="alice"))))
        hidden = msgspec.structs.replace(hidden, if_unowned=deed)
        assert refused(worker, hidden) == "forbidden"
        assert stored(house, run.run_id) == run
        accepted(worker, owner_update(run, Changes(run=RunChange(message="all is well"))))


def test_an_admin_does_both_and_is_named(house: House, admin: Client) -> None:
    new = embedded_run("worker-7", run_id=unique("deed"))
    accepted(admin, new)
    assert journal(admin, new.snapshot.run_id)[0] == ("run.running", "admin")
    accepted(admin, cancel(new.snapshot, by="the-ceo"))
    assert journal(admin, new.snapshot.run_id)[-1] == ("cancel.requested", "admin")
