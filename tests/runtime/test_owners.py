"""Runs that nobody keeps are found and counted, however many others there are."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tenure.model.query import Ownership, RunFilter, ownerships
from tenure.model.snapshot import RunSummary
from tenure.model.status import Recovery
from tenure.ports.leases import Presence
from tenure.runtime.owners import UNFINISHED, doubt_about, owned_runs, unattended
from tenure.stores.memory import InMemoryStore
from tenure.testing.clock import ManualClock
from tenure.testing.factories import embedded_run, new_run
from tests.runtime.puppets import Between

OWNERS = ("alive", "gone", "ending", "elsewhere")
SEEN = {
    "alive": Presence.ALIVE,
    "gone": Presence.GONE,
    "ending": Presence.ENDING,
    "elsewhere": Presence.UNSEEN,
}
RUNS = st.lists(
    st.builds(
        RunSummary,
        run_id=st.just("run-of-somebody"),
        workflow_name=st.just("deploy"),
        status=st.sampled_from(sorted(UNFINISHED)),
        owner_id=st.sampled_from([None, *OWNERS]),
        owner_lost=st.booleans(),
        recovery=st.sampled_from(Recovery),
        cancel_requested_at=st.sampled_from([None, datetime(2026, 5, 1, tzinfo=UTC)]),
    )
)


@given(RUNS)
def test_counted_together_they_are_as_many_as_one_by_one(runs: list[RunSummary]) -> None:
    doubtful = sum(doubt_about(run, SEEN.__getitem__) is not None for run in runs)
    assert sum(unattended(ownerships(runs), SEEN.__getitem__)) == doubtful


def test_workers_come_for_those_that_resume_and_were_not_asked_to_stop() -> None:
    gone = Ownership(owner_id="gone", recovery=Recovery.RESUME, runs=5, lost=0, canceling=2)
    silent = Ownership(owner_id="elsewhere", recovery=Recovery.RESUME, runs=3, lost=2)
    never = Ownership(owner_id="gone", recovery=Recovery.INTERRUPT, runs=7, lost=0)
    assert unattended([gone, silent, never], SEEN.__getitem__) == (2 + 7, 3 + 2)


class Plain:
    """A store that lists runs, and no more."""

    durable = False

    def __init__(self, real: InMemoryStore) -> None:
        self.list_runs = real.list_runs

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


async def test_one_behind_a_thousand_that_wait_is_found() -> None:
    clock = ManualClock()
    store = InMemoryStore(clock)
    await store.create_run(embedded_run("elsewhere", run_id="a-lost-run"))
    clock.advance(7 * 86400.0)
    for number in range(1500):
        await store.create_run(new_run(run_id=f"waiting-{number:04}"))
    await store.create_run(embedded_run("alive"))
    where = RunFilter(statuses=UNFINISHED)
    plain: Any = Plain(store)
    for asked in (store, plain):
        assert sum(unattended(await owned_runs(asked, where), SEEN.__getitem__)) == 1


async def test_a_store_that_can_be_asked_is_asked_once() -> None:
    store = Between(InMemoryStore())
    for number in range(1200):
        await store.real.create_run(embedded_run("alive", run_id=f"held-run-{number:04}"))
    asked: Any = store
    (owned,) = await owned_runs(asked)
    assert (owned.owner_id, owned.runs, owned.lost) == ("alive", 1200, 0)
    assert [name for name, _ in store.calls] == ["list_owners"]
