"""Places shared among receivers, decided without a clock or a socket."""

from __future__ import annotations

from collections import Counter
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.model.outbox import Delivery
from tenure.model.snapshot import CallbackTarget
from tenure.model.status import RunStatus
from tenure.model.update import RecordedEvent
from tenure.runtime.relay import Deadline, Held, Lanes
from tests.model.samples import AT

EVENT = RecordedEvent(type="run.success", run_id="run-00001", version=1, seq=0, at=AT, fence=1)
_numbers = count(1)


def held(
    host: str, begin_by: float = 100.0, *, run_id: str | None = None, attempts: int = 0
) -> Held:
    """Of a run of its own, unless one is named."""
    number = next(_numbers)
    delivery = Delivery(
        id=f"delivery-{number}",
        run_id=run_id or f"run-{number:05}",
        attempts=attempts,
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
            lanes.ended(one, 0, answered=True)
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
            lanes.ended(under_way.pop(), 0, answered=True)
            under_way += lanes.take(0)
            widths.append(len(under_way))
        assert widths == [3, 4, 5, 5, 5, 5]

    def test_every_failure_halves_it_down_to_one(self) -> None:
        lanes = grown(100, 10, "bad")
        fill(lanes, "bad", 50)
        under_way = lanes.take(0)
        assert len(under_way) == 10
        for one in under_way:
            lanes.ended(one, 0, answered=False)
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

    def test_fifty_that_never_answered_leave_room_for_the_next(self) -> None:
        lanes = Lanes(100, 10)
        for number in range(50):
            fill(lanes, f"hung-{number}", 50)
        assert len(hosts(lanes.take(0))) == 50
        fill(lanes, "healthy", 1)
        assert hosts(lanes.take(0)) == {"healthy": 1}

    def test_place_of_one_that_ended_is_given_on(self) -> None:
        lanes = grown(2, 1, "a", "b", "c")
        fill(lanes, "a", 1)
        fill(lanes, "b", 1)
        fill(lanes, "c", 1)
        first, _ = lanes.take(0)
        assert lanes.take(0) == []
        lanes.ended(first, 0, answered=False)
        assert hosts(lanes.take(0)) == {"c": 1}

    @pytest.mark.parametrize(("places", "per_origin"), [(0, 0), (1, 0), (1, 2), (10, -1)])
    def test_what_cannot_work_is_refused(self, places: int, per_origin: int) -> None:
        with pytest.raises(ValueError, match="places for one receiver"):
            Lanes(places, per_origin)


class TestClaims:
    def test_lane_with_two_windows_queued_is_full(self) -> None:
        lanes = Lanes(100, 10)
        fill(lanes, "new", 5)
        assert lanes.left_out(0) == ["https://new:443"]
        lanes.take(0)
        assert lanes.left_out(0) == []

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

    def test_late_ones_are_never_taken_and_go_back(self) -> None:
        lanes = Lanes(10, 5)
        late = [held("a", begin_by=5), held("b", begin_by=5)]
        for each in (late[0], held("a", begin_by=9), late[1]):
            lanes.put(each)
        assert lanes.pass_over(5) == []
        assert [each.begin_by for each in lanes.take(6)] == [9]
        assert lanes.pass_over(6) == late
        assert not list(lanes.queued())

    def test_what_went_back_is_left_out_for_a_while(self) -> None:
        lanes = Lanes(10, 5)
        lanes.put(held("a", begin_by=5))
        assert lanes.pass_over(6)
        assert lanes.left_out(35.9) == ["https://a:443"]
        assert lanes.left_out(36.1) == []

    def test_or_until_an_attempt_there_ends(self) -> None:
        lanes = grown(10, 1, "a")
        fill(lanes, "a", 1)
        (one,) = lanes.take(0)
        lanes.put(held("a", begin_by=5))
        assert lanes.pass_over(6)
        lanes.ended(one, 7, answered=True)
        assert lanes.left_out(7) == []


class TestShares:
    """Of a hundred places."""

    @pytest.fixture
    def lanes(self) -> Lanes:
        return grown(100, 10, "good")

    def silent(self, lanes: Lanes, number: int, **rest: Any) -> Counter[str]:
        """So many that nobody has heard of."""
        for each in range(number):
            lanes.put(held(f"silent-{each}", **rest))
        return hosts(lanes.take(0))

    def test_those_not_proven_never_take_the_last_places(self, lanes: Lanes) -> None:
        assert len(self.silent(lanes, 350)) == 80
        fill(lanes, "good", 20)
        assert hosts(lanes.take(0))["good"] == 10

    def test_one_run_leaves_places_to_receivers_that_other_runs_name(self, lanes: Lanes) -> None:
        assert len(self.silent(lanes, 350, run_id="run-wicked")) == 20
        fill(lanes, "healthy and new", 1)
        assert hosts(lanes.take(0)) == {"healthy and new": 1}

    def test_what_one_run_may_not_have_holds_up_nobody_at_the_same_receiver(
        self, lanes: Lanes
    ) -> None:
        assert len(self.silent(lanes, 20, run_id="run-wicked")) == 20
        lanes.put(held("new", run_id="run-wicked"))
        lanes.put(held("new", run_id="run-upright"))
        assert [each.delivery.run_id for each in lanes.take(0)] == ["run-upright"]

    def test_it_has_all_it_wants_at_those_who_answer(self, lanes: Lanes) -> None:
        self.silent(lanes, 350, run_id="run-wicked")
        lanes.put(held("good", run_id="run-wicked"))
        assert hosts(lanes.take(0)) == {"good": 1}

    def test_those_who_failed_before_leave_places_to_the_new(self, lanes: Lanes) -> None:
        """Whether they failed here, or in another process."""
        for number in range(10):
            lanes.put(held(f"failed-{number}"))
        for one in lanes.take(0):
            lanes.ended(one, 0, answered=False)
        for number in range(350):
            lanes.put(held(f"failed-{number}", attempts=int(number >= 10)))
        assert len(lanes.take(0)) == 25
        fill(lanes, "new", 1)
        assert hosts(lanes.take(0)) == {"new": 1}

    def test_who_answers_is_proven_and_who_fails_is_not(self, lanes: Lanes) -> None:
        lanes.put(held("repentant", attempts=1))
        lanes.ended(lanes.take(0)[0], 0, answered=True)
        lanes.put(held("good"))
        lanes.ended(lanes.take(0)[0], 0, answered=False)
        assert len(self.silent(lanes, 350)) == 80
        lanes.put(held("good"))
        lanes.put(held("repentant"))
        assert hosts(lanes.take(0)) == {"repentant": 1}

    def test_what_has_no_share_goes_back_at_once_and_is_left_out(self, lanes: Lanes) -> None:
        assert len(self.silent(lanes, 100)) == 80
        assert len(lanes.pass_over(0)) == 20
        assert len(lanes.left_out(0)) == 20
        assert lanes.room() == 100

    def test_place_given_back_lets_the_one_that_waits_for_longest_in(self, lanes: Lanes) -> None:
        for number in range(82):
            lanes.put(held(f"silent-{number}"))
        first, *_ = lanes.take(0)
        lanes.pass_over(0)
        assert lanes.left_out(0) == ["https://silent-80:443", "https://silent-81:443"]
        lanes.ended(first, 0, answered=False)
        assert lanes.left_out(0) == ["https://silent-81:443"]

    def test_nothing_is_claimed_while_too_many_are_left_out(self, lanes: Lanes) -> None:
        """Or else those left out first would be claimed again, and again."""
        self.silent(lanes, 10_080)
        lanes.pass_over(0)
        assert lanes.room() == 0
        lanes.left_out(31)
        assert lanes.room() == 100


class TestDeadline:
    SOON = Deadline(end_by=10.0, unheard_of=5.0)

    @pytest.mark.parametrize(("now", "goes"), [(0, True), (5, True), (5.1, False), (10, False)])
    def test_one_never_heard_of_needs_some_time(self, now: float, goes: bool) -> None:
        lanes = Lanes(10, 5)
        fill(lanes, "new", 1)
        assert bool(lanes.take(now, self.SOON)) is goes

    @pytest.mark.parametrize(("now", "goes"), [(6.9, True), (7.1, False)])
    @pytest.mark.parametrize("answered", [True, False])
    def test_one_that_took_long_needs_as_long(self, now: float, goes: bool, answered: bool) -> None:
        lanes = Lanes(10, 5)
        fill(lanes, "slow", 1)
        (one,) = lanes.take(0)
        lanes.ended(one, 3, answered=answered)
        fill(lanes, "slow", 1)
        assert bool(lanes.take(now, self.SOON)) is goes
        assert bool(lanes.pass_over(now, self.SOON)) is not goes

    def test_without_one_there_is_time_for_all(self) -> None:
        lanes = Lanes(10, 5)
        fill(lanes, "new", 1)
        assert lanes.take(99)


MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from("abcdefghij"), st.integers(1, 8)),
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
                    run_id = f"run-{number % 3:05}"
                    lanes.put(held(str(what), now + 4, run_id=run_id, attempts=number % 2))
                    put += 1
            case "end" if under_way:
                lanes.ended(under_way.pop(number % len(under_way)), now, answered=bool(what))
            case "pass":
                now += number
        taken = lanes.take(now)
        under_way += taken
        passed = {each.delivery.id for each in lanes.pass_over(now)}
        assert not seen & passed
        seen |= passed
        assert not seen & {each.delivery.id for each in taken}
        seen |= {each.delivery.id for each in taken}
        assert all(each.begin_by >= now for each in taken)
        assert len(under_way) <= places
        assert all(each <= min(per_origin, places) for each in hosts(under_way).values())
        assert under_way or not lanes
        assert bool(lanes) >= bool(under_way)
        assert 0 <= lanes.room() <= places
    assert len(seen) <= put


SILENT = st.tuples(st.integers(0, 60), st.integers(0, 5), st.integers(0, 1))
"""Which receiver, which run, and whether it failed before."""


@given(silent=st.lists(SILENT, max_size=150), wicked=st.integers(0, 60))
def test_whoever_answers_has_a_place_whatever_the_silent_do(
    silent: list[tuple[int, int, int]], wicked: int
) -> None:
    """And so has a new one, against whatever a single run names."""
    lanes = grown(20, 4, "good")
    for number, run, attempts in silent:
        lanes.put(held(f"silent-{number}", run_id=f"run-{run:05}", attempts=attempts))
    lanes.take(0)
    lanes.pass_over(0)
    lanes.put(held("good", run_id="run-00000"))
    assert hosts(lanes.take(0)) == {"good": 1}
    alone = Lanes(20, 4)
    for number in range(wicked):
        alone.put(held(f"silent-{number}", run_id="run-wicked"))
    alone.take(0)
    alone.put(held("new"))
    assert hosts(alone.take(0))["new"] == 1
