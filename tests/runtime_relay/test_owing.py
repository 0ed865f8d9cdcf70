"""Which runs closing has to ask for."""

from __future__ import annotations

from msgspec.structs import replace

from tenure.model.outbox import Delivery
from tenure.model.status import DeliveryState
from tenure.runtime.callbacks import OwedCallbacks
from tests.runtime_relay.test_lanes import held


def settled(
    run_id: str, delivery_id: str, state: DeliveryState = DeliveryState.DELIVERED
) -> Delivery:
    return replace(held("anywhere").delivery, run_id=run_id, id=delivery_id, state=state)


def test_a_run_is_owed_for_until_all_is_delivered_or_dead() -> None:
    owing = OwedCallbacks()
    assert not owing
    owing.add("run-a", ("1", "2"))
    owing.add("run-b", ("4",))
    owing.add("run-a", ("3",))
    owing.settled(settled("run-a", "1"))
    owing.settled(settled("run-a", "2", DeliveryState.DEAD))
    owing.settled(settled("run-a", "3", DeliveryState.WAITING))
    assert set(owing.run_ids) == {"run-a", "run-b"}
    owing.settled(settled("run-a", "3"))
    owing.settled(settled("run-b", "4"))
    assert not owing


def test_what_others_wrote_or_somebody_sent_again_is_not_ours() -> None:
    """A run taken over still owes what its dead owner wrote; that goes out first."""
    owing = OwedCallbacks()
    owing.add("run-a", ("mine", "mine too"))
    owing.settled(settled("run-b", "mine"))
    for _ in range(2):
        owing.settled(settled("run-a", "of the dead owner"))
        owing.settled(settled("run-a", "mine"))
    assert owing.run_ids == ("run-a",)


def test_the_run_not_written_to_for_longest_is_forgotten_first() -> None:
    owing = OwedCallbacks()
    for number in range(1000):
        owing.add(f"run-{number}", ("1",))
    owing.add("run-0", ("2",))
    owing.add("run-new", ("3",))
    assert len(owing.run_ids) == 1000
    assert "run-1" not in owing.run_ids
    assert {"run-0", "run-new"} <= set(owing.run_ids)


def test_noting_one_more_copies_nothing_that_was_noted() -> None:
    """A run may owe a hundred thousand."""
    owing = OwedCallbacks()
    owing.add("run-a", ("1",))
    noted = owing._left["run-a"]
    owing.add("run-a", ("2",))
    assert owing._left["run-a"] is noted
    assert noted == {"1", "2"}
