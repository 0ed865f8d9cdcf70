"""Which runs closing has to ask for."""

from __future__ import annotations

from msgspec.structs import replace

from tenure.model.outbox import Delivery
from tenure.model.status import DeliveryState
from tenure.runtime.owing import Owing
from tests.runtime_relay.test_lanes import held


def settled(run_id: str, state: DeliveryState = DeliveryState.DELIVERED) -> Delivery:
    return replace(held("anywhere").delivery, run_id=run_id, state=state)


def test_a_run_is_owed_for_until_all_is_delivered_or_dead() -> None:
    owing = Owing()
    assert not owing
    owing.add("run-a", 2)
    owing.add("run-b", 1)
    owing.add("run-a", 1)
    for state in (DeliveryState.DELIVERED, DeliveryState.DEAD, DeliveryState.WAITING):
        owing.settled(settled("run-a", state))
    assert set(owing.run_ids) == {"run-a", "run-b"}
    owing.settled(settled("run-a"))
    owing.settled(settled("run-b"))
    assert not owing


def test_what_others_wrote_or_somebody_sent_again_is_not_counted() -> None:
    owing = Owing()
    owing.add("run-a", 1)
    owing.settled(settled("run-b"))
    owing.settled(replace(settled("run-a"), redelivery=True))
    assert owing.run_ids == ("run-a",)


def test_the_run_not_written_to_for_longest_is_forgotten_first() -> None:
    owing = Owing()
    for number in range(1000):
        owing.add(f"run-{number}", 1)
    owing.add("run-0", 1)
    owing.add("run-new", 1)
    assert len(owing.run_ids) == 1000
    assert "run-1" not in owing.run_ids
    assert {"run-0", "run-new"} <= set(owing.run_ids)
