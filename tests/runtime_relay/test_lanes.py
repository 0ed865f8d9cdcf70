"""Places shared among receivers, decided without a clock or a socket."""

from __future__ import annotations

from collections import Counter
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.model.events import RecordedEvent
from tenure.model.outbox import Delivery
from tenure.model.snapshot import CallbackTarget
from tenure.model.status import RunStatus
from tenure.runtime.lanes import Held, Lanes
from tests.model.samples import AT

EVENT = RecordedEvent(type="run.success", run_id="run-00001", version=1, seq=0, at=AT, fence=1)
_numbers = count(1)


def held(host: str, begin_by: float = 100.0) -> Held:
    delivery = Delivery(
        id=f"delivery-{next(_numbers)}",
        run_id="run-00001",
        workflow_name="deploy",
        target=CallbackTarget(name="hook", url=f"https://{host}/hook"),
        event=EVENT,
        run_status=RunStatus.SUCCESS,
        due_at=AT,
    )
    return Held(delivery, begin_by, begin_by + 20)


def fill(lanes: Lanes, host: str, number: int) -> None:
    for _ in range(number):
        lanes.put(held(host))


def hosts(taken: list[Held]) -> Counter[str]:
    return Counter((each.delivery.target.url or "").split("/")[2] for each in taken)


def grown(places: int, per_origin: int, *names: str) -> Lanes:
    """Lanes whose receivers have answered often."""
    lanes = Lanes(places, per_origin)
    for name in names:
        for _ in range(per_origin):
            lanes.put(held(name))
            (one,) = lanes.take(0)
            lanes.ended(one, answered=True)
    return lanes


class TestWindow:
    def test_new_receiver_gets_two_at_once(self) -> None:
        lanes = Lanes(100, 10)
        fill(lanes, "new", 20)
        assert len(lanes.take(0)) == 2
        assert lanes.take(0) == []

    def test_every_answer_opens_it_up_to_the_most(self) -> None:
        lanes = Lanes(100, 5)
        fill(lanes, "good", 50)
        under_way = lanes.take(0)
        widths = []
        for _ in range(6):
            lanes.ended(under_way.pop(), answered=True)
            under_way += lanes.take(0)
            widths.append(len(under_way))
        assert widths == [3, 4, 5, 5, 5, 5]

    def test_every_failure_halves_it_down_to_one(self) -> None:
        lanes = grown(100, 10, "bad")
        fill(lanes, "bad", 50)
        under_way = lanes.take(0)
        assert len(under_way) == 10
        for one in under_way:
            lanes.ended(one, answered=False)
        assert len(lanes.take(0)) == 1

    def test_it_is_remembered_while_nothing_goes_there(self) -> None:
        lanes = grown(100, 10, "good")
        assert not lanes
        fill(lanes, "good", 20)
        assert len(lanes.take(0)) == 10


class TestPlaces:
    def test_ten_that_hang_leave_room(self) -> None:
        """Also if they were good until now, and had their windows wide open."""
        names = [f"hung-{number}" for number in range(10)]
        lanes = grown(100, 10, *names)
        for name in names:
            fill(lanes, name, 50)
        assert max(hosts(lanes.take(0)).values()) == 10
        fill(lanes, "healthy", 10)
        assert hosts(lanes.take(0))["healthy"] >= 2

    def test_fifty_that_never_answered_leave_room(self) -> None:
        lanes = Lanes(101, 10)
        for number in range(50):
            fill(lanes, f"hung-{number}", 50)
        assert len(lanes.take(0)) == 100
        fill(lanes, "healthy", 1)
        assert hosts(lanes.take(0)) == {"healthy": 1}

    def test_place_of_one_that_ended_is_given_on(self) -> None:
        lanes = Lanes(2, 1)
        fill(lanes, "a", 1)
        fill(lanes, "b", 1)
        fill(lanes, "c", 1)
        first, _ = lanes.take(0)
        assert lanes.take(0) == []
        lanes.ended(first, answered=False)
        assert hosts(lanes.take(0)) == {"c": 1}

    @pytest.mark.parametrize(("places", "per_origin"), [(0, 0), (1, 0), (1, 2), (10, -1)])
    def test_what_cannot_work_is_refused(self, places: int, per_origin: int) -> None:
        with pytest.raises(ValueError, match="places for one receiver"):
            Lanes(places, per_origin)


class TestClaims:
    def test_lane_with_two_windows_queued_is_full(self) -> None:
        lanes = Lanes(100, 10)
        fill(lanes, "new", 5)
        assert lanes.full() == ["https://new:443"]
        lanes.take(0)
        assert lanes.full() == []

    def test_what_waits_behind_a_window_takes_no_room(self) -> None:
        lanes = Lanes(10, 5)
        fill(lanes, "hung", 50)
        lanes.take(0)
        assert lanes.room() == 10

    def test_no_room_once_all_places_could_be_filled(self) -> None:
        lanes = Lanes(4, 2)
        for name in ("a", "b", "c", "d"):
            fill(lanes, name, 2)
        assert lanes.room() == 0
        lanes.take(0)
        assert lanes.room() < 4

    def test_late_ones_are_forgotten_and_never_taken(self) -> None:
        lanes = Lanes(10, 5)
        lanes.put(held("a", begin_by=5))
        lanes.put(held("a", begin_by=9))
        lanes.put(held("b", begin_by=5))
        lanes.forget_late(5)
        lanes.forget_late(6)
        assert [each.begin_by for each in lanes.take(6)] == [9]
        assert lanes.full() == []

    def test_late_ones_are_not_taken_though_nobody_forgot_them(self) -> None:
        lanes = Lanes(10, 5)
        lanes.put(held("a", begin_by=5))
        assert lanes.take(5.1) == []
        lanes.forget_late(5.1)
        assert not lanes


MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from("abcde"), st.integers(1, 8)),
        st.tuples(st.just("end"), st.booleans(), st.integers(0, 100)),
        st.tuples(st.just("pass"), st.just(None), st.integers(1, 3)),
    ),
    max_size=60,
)


@given(places=st.integers(1, 12), per_origin=st.integers(1, 12), moves=MOVES)
def test_bounds_hold_and_nothing_is_stuck(
    places: int, per_origin: int, moves: list[tuple[str, object, int]]
) -> None:
    """Whatever happens: never more than allowed, never late, never twice; and if nothing is under
    way, something goes."""
    lanes = Lanes(places, min(per_origin, places))
    now, put, under_way, seen = 0.0, 0, list[Held](), set[str]()
    for move, what, number in moves:
        match move:
            case "put":
                for _ in range(number):
                    lanes.put(held(str(what), begin_by=now + 4))
                    put += 1
            case "end" if under_way:
                lanes.ended(under_way.pop(number % len(under_way)), answered=bool(what))
            case "pass":
                now += number
                lanes.forget_late(now)
        taken = lanes.take(now)
        under_way += taken
        assert not seen & {each.delivery.id for each in taken}
        seen |= {each.delivery.id for each in taken}
        assert all(each.begin_by >= now for each in taken)
        assert len(under_way) <= places
        assert all(each <= min(per_origin, places) for each in hosts(under_way).values())
        assert under_way or not lanes
        assert bool(lanes) >= bool(under_way)
        assert 0 <= lanes.room() <= places
    assert len(seen) <= put
