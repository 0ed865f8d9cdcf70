"""What goes into an update: words about the same thing add up."""

from __future__ import annotations

from msgspec import UNSET

from tenure.model.snapshot import ErrorInfo, HostState, RunSnapshot, StepState
from tenure.model.status import HostStatus, RunStatus, StepStatus
from tenure.model.update import Changes, HostChange, ItemChange, RunChange, StepChange
from tenure.runtime.schedule import PendingChanges
from tenure.runtime.writer import not_born, with_intents

RUNNING = HostChange(status=HostStatus.RUNNING, attempts=1)
ITEM_RUNNING = ItemChange(status=HostStatus.RUNNING)
ERROR = ErrorInfo(kind="exit", message="broken")


def test_an_empty_draft_is_no_update() -> None:
    assert not PendingChanges()
    assert PendingChanges().changes() == Changes()


def test_later_words_about_a_host_are_added() -> None:
    draft = PendingChanges()
    draft.item(0, "a", 0, ItemChange(status=HostStatus.SUCCESS))
    draft.item(0, "a", 1, ITEM_RUNNING)
    draft.host(0, "a", HostChange(attempts=2))
    assert draft.changes().steps[0].hosts["a"] == HostChange(
        attempts=2, items={0: ItemChange(status=HostStatus.SUCCESS), 1: ITEM_RUNNING}
    )


def test_a_message_stays_when_a_status_follows() -> None:
    draft = PendingChanges()
    draft.step(0, StepStatus.RUNNING, "why")
    draft.host(0, "a", RUNNING)
    assert draft.changes().steps[0] == StepChange(
        status=StepStatus.RUNNING, message="why", hosts={"a": RUNNING}
    )


def test_the_runs_end_does_not_take_back_its_last_error() -> None:
    draft = PendingChanges()
    draft.run_changes(RunChange(last_error=ERROR))
    draft.run_changes(RunChange(status=RunStatus.SUCCESS))
    assert draft.changes().run == RunChange(status=RunStatus.SUCCESS, last_error=ERROR)


def test_what_was_said_elsewhere_is_taken_over_whole() -> None:
    there, here = PendingChanges(), PendingChanges()
    there.step(0, StepStatus.RUNNING)
    there.host(0, "a", RUNNING)
    there.added(StepState(index=1, name="reload"))
    there.run_changes(RunChange(last_error=ERROR))
    here.host(0, "b", RUNNING)
    here.take(there.changes())
    said = here.changes()
    assert said.steps[0].hosts == {"a": RUNNING, "b": RUNNING}
    assert said.steps[0].status is StepStatus.RUNNING
    assert said.steps[1].plan == StepState(index=1, name="reload")
    assert said.run.last_error == ERROR


class TestBirth:
    """A run is born with what starts at once; the rest follows in the first update."""

    planned = RunSnapshot(
        run_id="a-run-to-be",
        workflow_name="w",
        status=RunStatus.RUNNING,
        steps=tuple(
            StepState(index=index, name=f"s{index}", hosts={"a": HostState(), "b": HostState()})
            for index in range(2)
        ),
    )
    first = Changes(
        steps={
            0: StepChange(
                status=StepStatus.RUNNING,
                hosts={
                    "a": HostChange(status=HostStatus.RUNNING, items={0: ITEM_RUNNING}),
                    "b": HostChange(status=HostStatus.SKIPPED),
                },
            ),
            1: StepChange(status=StepStatus.SKIPPED, message="its condition holds on no host"),
        }
    )

    def test_what_starts_is_born(self) -> None:
        born = with_intents(self.planned, self.first)
        assert [step.status for step in born.steps] == ["running", "pending"]
        assert born.steps[0].hosts["a"] == HostState(status=HostStatus.RUNNING, attempts=1)
        assert born.steps[0].hosts["b"].status == "pending"

    def test_what_cannot_be_born_is_left(self) -> None:
        left = not_born(self.first)
        assert left.steps[1] == self.first.steps[1]
        assert left.steps[0].status is UNSET
        assert left.steps[0].hosts == {
            "a": HostChange(items={0: ITEM_RUNNING}),
            "b": HostChange(status=HostStatus.SKIPPED),
        }

    def test_of_plain_starts_nothing_is_left(self) -> None:
        plain = Changes(steps={0: StepChange(status=StepStatus.RUNNING, hosts={"a": RUNNING})})
        assert not_born(plain) == Changes()
