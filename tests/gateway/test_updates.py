"""What a token may write past the verbs: an operator nothing, an owner what is an owner's to
say, an admin anything."""

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
from tests.gateway.house import Answer, Client, House

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


def owned(house: House, worker: Client) -> RunSnapshot:
    new = new_run(run_id=unique("deed"))
    house.run(house.store.create_run(new))
    lease = {"owner_id": "worker-7", "lease_seconds": 60}
    assert worker.post(f"/v1/runs/{new.snapshot.run_id}/lease", lease).status == 200
    return stored(house, new.snapshot.run_id)


def written_by(client: Client, write: Update | NewRun) -> Answer:
    return client(
        "POST",
        "/v1/updates",
        data=msgspec.json.encode({"writes": [write]}),
        headers={"content-type": "application/json"},
    )


def written(client: Client, write: Update | NewRun) -> Any:
    answer = written_by(client, write)
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


class TestAnOperator:
    def test_writes_nothing_past_the_verbs(self, house: House, mallory: Client) -> None:
        """Not even what a verb would write: approval, name, digest and steps are never sent."""
        run = waiting(house)
        for write in (
            approve(run, "the-ceo"),
            cancel(run, "enough"),
            annotate(run, found="later"),
            expire(run),
            operator_status(run, RunStatus.FAILED),
            new_run(run_id=unique("deed"), definition="rubbish"),
            embedded_run("worker-7", run_id=unique("deed")),
        ):
            answer = written_by(mallory, write)
            assert (answer.status, answer.problem) == (403, "forbidden"), write
        assert stored(house, run.run_id) == run


class TestAWorker:
    def test_creates_nothing(self, worker: Client, mallory: Client) -> None:
        for new in (
            new_run(run_id=unique("deed")),
            embedded_run("worker-7", run_id=unique("deed")),
        ):
            assert refused(worker, new) == "forbidden"
            assert mallory.get(f"/v1/runs/{new.snapshot.run_id}").status == 404

    def test_says_under_its_lease_what_an_owner_says(self, house: House, worker: Client) -> None:
        run = owned(house, worker)
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


def test_an_admins_writes_are_stored_as_sent(house: House, admin: Client) -> None:
    """A run without a definition, one that it executes itself, and what operators do."""
    for new in (new_run(run_id=unique("deed")), embedded_run("worker-7", run_id=unique("deed"))):
        accepted(admin, new)
        run = stored(house, new.snapshot.run_id)
        assert run.steps == new.snapshot.steps or run.status == "running"
        accepted(admin, cancel(run, by="the-ceo"))
        assert journal(admin, run.run_id)[-1] == ("cancel.requested", "the-ceo")


def test_an_admin_limited_to_queues_stays_in_them(house: House) -> None:
    limited = house.client(house.token("admin", "limited", queues=("a",)))
    mine, other = waiting(house, queue="a"), waiting(house, queue="b")
    accepted(limited, annotate(mine, found="later"))
    assert refused(limited, annotate(other, found="later")) == "run-not-found"
    assert refused(limited, new_run(run_id=unique("deed"), queue="b")) == "forbidden"
    limited.close()
