"""How far the store's clock is from ours, whatever time the question takes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from tenure.ports.store import StoreClock
from tenure.runtime.explain import Answer, offset
from tenure.stores.memory import InMemoryStore

NOON = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


@given(
    ahead=st.floats(-3600, 3600),
    there=st.floats(0, 4),
    back=st.floats(0, 4),
)
def test_only_what_the_two_ways_differ_by_can_be_wrong(
    ahead: float, there: float, back: float
) -> None:
    told = NOON + timedelta(seconds=there + ahead)
    found = offset([Answer(NOON, told, there + back)])
    assert abs(found - ahead) <= abs(there - back) / 2 + 0.001


def test_the_quickest_answer_counts() -> None:
    held_up = Answer(NOON, NOON + timedelta(seconds=8), took=8.0)
    quick = Answer(NOON, NOON + timedelta(seconds=3.05), took=0.1)
    assert abs(offset([held_up, quick, held_up]) - 3.0) < 0.001


def test_a_store_in_memory_tells_its_time() -> None:
    assert isinstance(InMemoryStore(), StoreClock)
