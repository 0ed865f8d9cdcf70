"""Rolling: batch after batch, within a budget that counts over the whole step."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.model.status import RunStatus
from tenure.workflow.spec import Rolling
from tests.runtime.playing import FAILED, UNREACHABLE, Play, exporting, step, workflow


def rolling(hosts: str = "abcdef", loop: Any = None, **settings: Any) -> Play:
    return Play(workflow(step("roll", rolling=Rolling(**settings), loop=loop), hosts=hosts))


def test_a_batch_waits_for_the_one_before() -> None:
    play = rolling(batch=2)
    assert play.started == ["roll/a", "roll/b"]
    play.end("roll/b")
    assert play.started == []
    play.end("roll/a")
    assert play.started == ["roll/c", "roll/d"]
    play.end_all().end_all()
    assert play.status is RunStatus.SUCCESS


@pytest.mark.parametrize(("batch", "first"), [("50%", 3), ("20%", 1), ("1%", 1), (4, 4), (99, 6)])
def test_a_batch_is_a_number_or_a_share_of_the_steps_hosts(batch: int | str, first: int) -> None:
    assert len(rolling(batch=batch).started) == first


def test_one_failure_too_many_starts_no_further_host() -> None:
    play = rolling(batch=2, max_failures=1)
    play.end("roll/a", outcome=FAILED).end("roll/b")
    assert play.started == ["roll/c", "roll/d"], "the budget is used up, not overdrawn"
    play.end("roll/c", outcome=FAILED)
    assert play.started == []
    play.end("roll/d")
    assert play.status is RunStatus.FAILED
    assert play.hosts("roll") == {
        "a": "failed",
        "b": "success",
        "c": "failed",
        "d": "success",
        "e": "skipped",
        "f": "skipped",
    }


def test_without_a_budget_the_first_failure_is_the_last() -> None:
    play = rolling(batch=1).end("roll/a", outcome=FAILED)
    assert play.started == []
    assert play.status is RunStatus.FAILED


def test_the_rest_of_a_batch_that_waits_for_its_turn_does_not_start_either() -> None:
    hosts = workflow(step("roll", rolling=Rolling(batch=4), concurrency=1), hosts="abcd")
    play = Play(hosts).end("roll/a", outcome=FAILED)
    assert play.running == {}
    assert play.hosts("roll") == {"a": "failed", "b": "skipped", "c": "skipped", "d": "skipped"}


def test_failures_within_the_budget_are_tolerated_and_remembered() -> None:
    play = rolling("ab", batch=1, max_failures="50%").end("roll/a", outcome=FAILED).end("roll/b")
    assert play.status is RunStatus.SUCCESS
    assert play.statuses() == {"roll": "success"}
    assert play.step("roll").message == "failed on 1 of 2 hosts (a): it broke"
    assert play.record.last_error is not None
    assert play.record.last_error.failed_hosts == ("a",)


def test_a_tolerated_failure_excuses_nobody_from_what_the_step_must_export() -> None:
    roll = step("roll", rolling=Rolling(batch=2, max_failures=1), expect_vars=["A"])
    play = Play(workflow(roll)).end("roll/a", outcome=FAILED).end("roll/b")
    assert (play.status, play.step("roll").message) == (
        RunStatus.FAILED,
        "expected vars missing: A",
    )
    play = Play(workflow(roll)).end("roll/a", outcome=FAILED).end("roll/b", outcome=exporting(A=1))
    assert play.status is RunStatus.SUCCESS


def test_unreachable_hosts_count_as_failures() -> None:
    play = rolling(batch=2, max_failures=0).end("roll/a", outcome=UNREACHABLE).end("roll/b")
    assert play.status is RunStatus.FAILED


def test_unreachable_hosts_may_have_a_budget_of_their_own() -> None:
    play = rolling(batch=2, max_failures=0, max_unreachable=1)
    play.end("roll/a", outcome=UNREACHABLE).end("roll/b")
    assert play.started == ["roll/c", "roll/d"]
    play.end("roll/c", outcome=UNREACHABLE).end("roll/d")
    assert (play.started, play.status) == ([], RunStatus.FAILED)


def test_a_batch_goes_through_its_whole_loop_before_the_next() -> None:
    play = rolling("ab", loop=[1, 2], batch=1)
    for label in ("roll/a[0]", "roll/a[1]", "roll/b[0]", "roll/b[1]"):
        assert play.running.keys() == {label}
        play.end(label)
    assert play.status is RunStatus.SUCCESS


def test_hosts_that_have_begun_their_loop_finish_it_when_the_budget_is_spent() -> None:
    play = rolling("abcd", loop=[1, 2], batch=2)
    play.end("roll/a[0]", outcome=FAILED).end("roll/b[0]")
    assert play.started == ["roll/b[1]"]
    play.end_all()
    assert play.status is RunStatus.FAILED
    assert play.hosts("roll") == {"a": "failed", "b": "success", "c": "skipped", "d": "skipped"}


def test_hosts_of_a_spent_batch_that_had_not_begun_their_loop_never_do() -> None:
    play = Play(
        workflow(step("roll", loop=[1, 2], rolling=Rolling(batch=3), concurrency=2), hosts="abc")
    )
    play.end("roll/b[0]")
    assert play.started == ["roll/c[0]"]
    play.end("roll/a[0]", outcome=FAILED).end("roll/c[0]")
    assert play.running.keys() == {"roll/b[1]", "roll/c[1]"}
    play.end_all()
    assert play.hosts("roll") == {"a": "failed", "b": "success", "c": "success"}
