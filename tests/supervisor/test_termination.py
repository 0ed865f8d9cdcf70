"""TERM, grace, STOP, KILL: what is sent when, and when nothing more is to be expected."""

from __future__ import annotations

from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM

from tenure.transports.supervisor.processes import (
    KILL_TIMEOUT_S,
    TO_CLEAR_UP_S,
    Orders,
    Process,
    Termination,
)


def alive(pid: int) -> Process:
    return Process(pid, 1, pid, pid, 1000 + pid, True)


def zombie(pid: int) -> Process:
    return Process(pid, 1, pid, pid, 1000 + pid, False)


def sent(orders: Orders) -> list[tuple[int, int]]:
    return [(process.pid, number) for process, number in orders]


def test_term_comes_once_and_wakes_who_was_stopped() -> None:
    termination = Termination(0.0, 5.0)
    assert sent(termination.step(0.0, [alive(1), zombie(2)])) == [(1, SIGTERM), (1, SIGCONT)]
    assert sent(termination.step(1.0, [alive(1), alive(3)])) == []


def test_after_the_grace_all_stand_still_before_any_is_killed() -> None:
    termination = Termination(0.0, 5.0)
    termination.step(0.0, [alive(1)])
    assert sent(termination.step(5.0, [alive(1)])) == [(1, SIGSTOP)]
    assert sent(termination.step(5.0, [alive(1), alive(2)])) == [(2, SIGSTOP)]
    assert sent(termination.step(5.0, [alive(1), alive(2)])) == [(1, SIGKILL), (2, SIGKILL)]
    assert termination.killing


def test_who_comes_later_is_killed_too() -> None:
    termination = Termination(0.0, 0.0)
    termination.step(0.0, [alive(1)])
    termination.step(0.0, [alive(1)])
    assert sent(termination.step(0.1, [alive(7)])) == [(7, SIGKILL)]


def test_a_number_given_anew_has_to_be_stopped_anew() -> None:
    termination = Termination(0.0, 0.0)
    assert sent(termination.step(0.0, [alive(1)])) == [(1, SIGSTOP)]
    again = Process(1, 1, 1, 1, 5, True)
    assert sent(termination.step(0.0, [again])) == [(1, SIGSTOP)]


def test_a_tree_that_never_stands_still_is_killed_all_the_same() -> None:
    termination = Termination(0.0, 0.0)
    rounds = 0
    while not termination.killing:
        rounds += 1
        assert rounds < 100
        termination.step(0.0, [alive(rounds)])


def test_without_grace_there_is_no_term() -> None:
    termination = Termination(0.0, 0.0)
    assert sent(termination.step(0.0, [alive(1)])) == [(1, SIGSTOP)]


def test_what_stayed_in_its_group_is_not_warned() -> None:
    """It had its grace: it may not hold up the runner any more."""
    termination = Termination(0.0, 0.0, only_group=True)
    assert sent(termination.step(0.0, [alive(1)])) == [(1, SIGSTOP)]
    termination.step(0.0, [alive(1)])
    assert termination.signalled == 1


def test_whoever_has_the_least_patience_counts() -> None:
    termination = Termination(0.0, 5.0)
    termination.step(0.0, [alive(1)])
    termination.hasten(1.0, 10.0)
    assert termination.kill_at == 5.0
    termination.hasten(1.0, 0.0)
    assert sent(termination.step(1.0, [alive(1)])) == [(1, SIGSTOP)]


def test_it_is_looked_at_more_and_more_rarely_but_not_later_than_the_grace() -> None:
    termination, now, looks = Termination(0.0, 1.0), 0.0, 0
    while now < 1.0:
        termination.step(now, [alive(1)])
        assert now < termination.look_at <= 1.0
        now, looks = termination.look_at, looks + 1
    assert now == 1.0
    assert looks < 30


def test_gone_is_said_when_nothing_is_there_not_even_somebody_who_just_died() -> None:
    termination = Termination(0.0, 5.0)
    assert termination.over(0.0, [], hidden=False) is True
    assert termination.over(0.0, [alive(1)], hidden=False) is None
    assert termination.over(0.0, [zombie(1)], hidden=False) is None
    assert termination.look_at == 0.0, "at once: what it left may be gone from sight soon"
    assert termination.over(0.0, [], hidden=True) is None


def test_what_does_not_die_is_given_up_some_time_after_the_kill() -> None:
    termination = Termination(0.0, 5.0)
    termination.step(0.0, [alive(1)])
    assert termination.over(1000.0, [alive(1)], hidden=False) is None, "nobody has killed it yet"
    termination.step(5.0, [alive(1)])
    termination.step(5.0, [alive(1)])
    assert termination.over(5.0 + KILL_TIMEOUT_S - 0.1, [alive(1)], hidden=False) is None
    assert termination.over(5.0 + KILL_TIMEOUT_S, [alive(1)], hidden=False) is False
    assert termination.over(5.0 + KILL_TIMEOUT_S, [], hidden=True) is False
    assert termination.over(5.0 + KILL_TIMEOUT_S, [], hidden=False) is True


def test_what_may_be_anothers_is_waited_for_through_the_grace_and_not_called_gone() -> None:
    termination = Termination(0.0, 5.0)
    termination.step(0.0, [])
    assert termination.over(0.0, [], hidden=False, doubtful=True) is None
    assert termination.over(5.0, [], hidden=False, doubtful=True) is None, (
        "others may be told any moment"
    )
    assert termination.over(5.0 + TO_CLEAR_UP_S, [], hidden=False, doubtful=True) is False
    assert termination.over(5.0 + TO_CLEAR_UP_S, [], hidden=False) is True
