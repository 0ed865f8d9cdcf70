"""TERM, grace, STOP, KILL: what is sent when, and when nothing more is to be expected."""

from __future__ import annotations

from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM

from tenure.transports.supervisor.census import Process
from tenure.transports.supervisor.demise import AFTER_KILL, TO_CLEAR_UP, Demise, Orders


def alive(pid: int) -> Process:
    return Process(pid, 1, pid, pid, 1000 + pid, True)


def zombie(pid: int) -> Process:
    return Process(pid, 1, pid, pid, 1000 + pid, False)


def sent(orders: Orders) -> list[tuple[int, int]]:
    return [(process.pid, number) for process, number in orders]


def test_term_comes_once_and_wakes_who_was_stopped() -> None:
    demise = Demise(0.0, 5.0)
    assert sent(demise.step(0.0, [alive(1), zombie(2)])) == [(1, SIGTERM), (1, SIGCONT)]
    assert sent(demise.step(1.0, [alive(1), alive(3)])) == []


def test_after_the_grace_all_stand_still_before_any_is_killed() -> None:
    demise = Demise(0.0, 5.0)
    demise.step(0.0, [alive(1)])
    assert sent(demise.step(5.0, [alive(1)])) == [(1, SIGSTOP)]
    assert sent(demise.step(5.0, [alive(1), alive(2)])) == [(2, SIGSTOP)]
    assert sent(demise.step(5.0, [alive(1), alive(2)])) == [(1, SIGKILL), (2, SIGKILL)]
    assert demise.killing


def test_who_comes_later_is_killed_too() -> None:
    demise = Demise(0.0, 0.0)
    demise.step(0.0, [alive(1)])
    demise.step(0.0, [alive(1)])
    assert sent(demise.step(0.1, [alive(7)])) == [(7, SIGKILL)]


def test_a_number_given_anew_has_to_be_stopped_anew() -> None:
    demise = Demise(0.0, 0.0)
    assert sent(demise.step(0.0, [alive(1)])) == [(1, SIGSTOP)]
    again = Process(1, 1, 1, 1, 5, True)
    assert sent(demise.step(0.0, [again])) == [(1, SIGSTOP)]


def test_a_tree_that_never_stands_still_is_killed_all_the_same() -> None:
    demise = Demise(0.0, 0.0)
    rounds = 0
    while not demise.killing:
        rounds += 1
        assert rounds < 100
        demise.step(0.0, [alive(rounds)])


def test_without_grace_there_is_no_term() -> None:
    demise = Demise(0.0, 0.0)
    assert sent(demise.step(0.0, [alive(1)])) == [(1, SIGSTOP)]


def test_what_stayed_in_its_group_is_not_warned() -> None:
    """It had its grace: it may not hold up the runner any more."""
    demise = Demise(0.0, 0.0, only_group=True)
    assert sent(demise.step(0.0, [alive(1)])) == [(1, SIGSTOP)]
    demise.step(0.0, [alive(1)])
    assert demise.signalled == 1


def test_whoever_has_the_least_patience_counts() -> None:
    demise = Demise(0.0, 5.0)
    demise.step(0.0, [alive(1)])
    demise.hasten(1.0, 10.0)
    assert demise.kill_at == 5.0
    demise.hasten(1.0, 0.0)
    assert sent(demise.step(1.0, [alive(1)])) == [(1, SIGSTOP)]


def test_it_is_looked_at_more_and_more_rarely_but_not_later_than_the_grace() -> None:
    demise, now, looks = Demise(0.0, 1.0), 0.0, 0
    while now < 1.0:
        demise.step(now, [alive(1)])
        assert now < demise.look_at <= 1.0
        now, looks = demise.look_at, looks + 1
    assert now == 1.0
    assert looks < 30


def test_gone_is_said_when_nothing_is_there_not_even_somebody_who_just_died() -> None:
    demise = Demise(0.0, 5.0)
    assert demise.over(0.0, [], hidden=False) is True
    assert demise.over(0.0, [alive(1)], hidden=False) is None
    assert demise.over(0.0, [zombie(1)], hidden=False) is None
    assert demise.look_at == 0.0, "at once: what it left may be gone from sight soon"
    assert demise.over(0.0, [], hidden=True) is None


def test_what_does_not_die_is_given_up_some_time_after_the_kill() -> None:
    demise = Demise(0.0, 5.0)
    demise.step(0.0, [alive(1)])
    assert demise.over(1000.0, [alive(1)], hidden=False) is None, "nobody has killed it yet"
    demise.step(5.0, [alive(1)])
    demise.step(5.0, [alive(1)])
    assert demise.over(5.0 + AFTER_KILL - 0.1, [alive(1)], hidden=False) is None
    assert demise.over(5.0 + AFTER_KILL, [alive(1)], hidden=False) is False
    assert demise.over(5.0 + AFTER_KILL, [], hidden=True) is False
    assert demise.over(5.0 + AFTER_KILL, [], hidden=False) is True


def test_what_may_be_anothers_is_waited_for_through_the_grace_and_not_called_gone() -> None:
    demise = Demise(0.0, 5.0)
    demise.step(0.0, [])
    assert demise.over(0.0, [], hidden=False, doubtful=True) is None
    assert demise.over(5.0, [], hidden=False, doubtful=True) is None, (
        "others may be told any moment"
    )
    assert demise.over(5.0 + TO_CLEAR_UP, [], hidden=False, doubtful=True) is False
    assert demise.over(5.0 + TO_CLEAR_UP, [], hidden=False) is True
