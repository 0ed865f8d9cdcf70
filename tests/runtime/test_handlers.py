"""Handlers: after each wave, in order, on the hosts that did the work."""

from __future__ import annotations

from tenure.model.snapshot import StepState
from tenure.model.status import RunStatus, StepKind
from tenure.workflow.spec import Rolling
from tests.runtime.playing import (
    CHANGED,
    FAILED,
    SKIPPED,
    UNCHANGED,
    Play,
    exporting,
    handler,
    step,
    workflow,
)

RELOAD, CHECK = handler("reload"), handler("check")


def handlers_of(play: Play) -> list[StepState]:
    return [each for each in play.record.steps if each.kind is StepKind.HANDLER]


def test_they_run_after_the_step_and_before_the_next() -> None:
    play = Play(workflow(step("one", notify=["reload"]), step("two"), handlers=[RELOAD]))
    play.end("one/a")
    assert play.started == []
    play.end("one/b")
    assert play.started == ["reload/a", "reload/b"]
    assert play.statuses()["one"] == "running", "a step has not ended before its handlers have"
    play.end_all()
    assert play.started == ["two/a", "two/b"]
    assert play.statuses() == {"one": "success", "two": "running", "reload": "success"}


def test_they_are_recorded_as_handlers_with_their_hosts() -> None:
    play = Play(workflow(step("one", notify=["reload"]), handlers=[RELOAD])).end_all().end_all()
    (reload,) = handlers_of(play)
    assert (reload.index, reload.name, reload.action) == (1, "reload", "idle")
    assert reload.hosts.keys() == {"a", "b"}
    assert play.status is RunStatus.SUCCESS


def test_the_record_says_which_step_notified_each_of_them() -> None:
    play = Play(
        workflow(
            step("one", notify=["reload"], loop=["x", "y"]),
            step("two", notify=["check", "reload"]),
            handlers=[RELOAD, CHECK],
            hosts=["a"],
        )
    )
    while play.status is None:
        play.end_all()
    assert [(each.name, each.notified_by) for each in handlers_of(play)] == [
        ("reload", 0),
        ("reload", 0),
        ("check", 1),
        ("reload", 1),
    ]
    assert [each.notified_by for each in play.record.steps[:2]] == [None, None]


def test_one_after_another_in_the_order_given_each_once() -> None:
    play = Play(
        workflow(step("one", notify=["check", "reload", "check"]), handlers=[RELOAD, CHECK])
    )
    assert play.end_all().started == ["check/a", "check/b"]
    assert play.end_all().started == ["reload/a", "reload/b"]
    assert play.end_all().status is RunStatus.SUCCESS


def test_only_on_hosts_that_did_the_work() -> None:
    play = Play(workflow(step("one", notify=["reload"]), handlers=[RELOAD]))
    play.end("one/a", outcome=SKIPPED)
    assert play.end("one/b").started == ["reload/b"]
    assert handlers_of(play)[0].hosts.keys() == {"b"}


def test_not_when_nothing_was_done() -> None:
    play = Play(workflow(step("one", notify=["reload"]), handlers=[RELOAD])).end_all(SKIPPED)
    assert play.status is RunStatus.SUCCESS
    assert handlers_of(play) == []


def test_a_host_that_knows_it_changed_nothing_notifies_nobody() -> None:
    play = Play(workflow(step("one", notify=["reload"]), handlers=[RELOAD], hosts="abc"))
    play.end("one/a", outcome=UNCHANGED).end("one/b", outcome=CHANGED)
    assert play.end("one/c").started == ["reload/b", "reload/c"], "who cannot know, notifies"


def test_not_of_a_step_that_fails() -> None:
    play = Play(workflow(step("one", notify=["reload"]), handlers=[RELOAD]))
    play.end("one/a", outcome=FAILED).end("one/b")
    assert play.status is RunStatus.FAILED
    assert handlers_of(play) == []


def test_not_of_a_step_that_has_failed_with_an_earlier_item() -> None:
    play = Play(workflow(step("one", loop=[1, 2], notify=["reload"]), handlers=[RELOAD]))
    play.end("one/a[0]", outcome=FAILED).end("one/b[0]").end("one/b[1]")
    assert play.status is RunStatus.FAILED
    assert handlers_of(play) == []


def test_after_each_item_of_a_loop_and_they_see_it() -> None:
    noticing = handler("notice", when="item == 'y'")
    play = Play(
        workflow(step("one", loop=["x", "y"], notify=["notice"]), handlers=[noticing], hosts=["a"])
    )
    play.end("one/a[0]")
    assert play.started == ["one/a[1]"], "its condition does not hold for x"
    play.end("one/a[1]")
    assert play.started == ["notice/a"]
    course = play.running["notice/a"].course
    assert play.unfolding.scope(course, "a")["item"] == "y"
    play.end_all()
    assert [each.status.value for each in handlers_of(play)] == ["skipped", "success"]
    assert play.status is RunStatus.SUCCESS


def test_after_each_batch_of_a_rolling_step() -> None:
    rolling = step("one", rolling=Rolling(batch=1), notify=["reload"])
    play = Play(workflow(rolling, handlers=[RELOAD]))
    for label in ("one/a", "reload/a", "one/b", "reload/b"):
        assert play.running.keys() == {label}
        play.end(label)
    assert play.status is RunStatus.SUCCESS


def test_a_failure_within_the_budget_silences_nobody_else() -> None:
    rolling = step("one", rolling=Rolling(batch=3, max_failures=1), notify=["reload", "check"])
    play = Play(workflow(rolling, handlers=[RELOAD, CHECK], hosts="abcd"))
    play.end("one/b", outcome=FAILED).end("one/a").end("one/c")
    assert play.started == ["reload/a", "reload/c"], "the failed host notifies nobody"
    assert play.end_all().started == ["check/a", "check/c"]
    assert play.end_all().started == ["one/d"]
    assert play.end_all().started == ["reload/d"]
    assert play.end_all().end_all().status is RunStatus.SUCCESS


def test_a_failure_within_the_budget_leaves_the_handlers_of_later_items_alone() -> None:
    rolling = step("one", rolling=Rolling(batch=2, max_failures=1), loop=[1, 2], notify=["reload"])
    play = Play(workflow(rolling, handlers=[RELOAD]))
    play.end("one/a[0]", outcome=FAILED).end("one/b[0]")
    assert play.started == ["reload/b"]
    assert play.end_all().started == ["one/b[1]"]
    assert play.end_all().started == ["reload/b"]
    assert play.end_all().status is RunStatus.SUCCESS


def test_none_runs_once_the_budget_is_spent() -> None:
    rolling = step("one", rolling=Rolling(batch=3, max_failures=1), notify=["reload"])
    play = Play(workflow(rolling, handlers=[RELOAD], hosts="abcd"))
    play.end("one/a", "one/b", outcome=FAILED).end("one/c")
    assert play.status is RunStatus.FAILED
    assert handlers_of(play) == []


def test_a_failing_handler_fails_its_step_and_the_run() -> None:
    play = Play(
        workflow(step("one", notify=["reload", "check"]), step("two"), handlers=[RELOAD, CHECK])
    )
    play.end_all()
    play.end("reload/a", outcome=FAILED).end("reload/b")
    assert play.running == {}, "the next handler does not run"
    assert play.status is RunStatus.FAILED
    assert play.statuses() == {"one": "failed", "two": "skipped", "reload": "failed"}
    assert play.hosts("one") == {"a": "success", "b": "success"}
    assert play.record.error is not None
    assert play.record.error.kind == "handler"
    assert "handler 'reload' failed on 1 of 2 hosts (a): it broke" in play.record.error.message


def test_a_failing_handler_may_be_tolerated_with_its_step() -> None:
    play = Play(
        workflow(
            step("one", notify=["reload"], continue_on_error=True), step("two"), handlers=[RELOAD]
        )
    )
    play.end_all().end_all(FAILED)
    assert play.running.keys() == {"two/a", "two/b"}


def test_a_handler_failing_between_two_items_ends_the_hosts_too() -> None:
    play = Play(workflow(step("one", loop=[1, 2], notify=["reload"]), handlers=[RELOAD]))
    play.end_all().end_all(FAILED)
    assert play.status is RunStatus.FAILED
    assert play.hosts("one") == {"a": "failed", "b": "failed"}
    said = play.step("one").hosts["a"]
    assert "handler 'reload' failed" in (said.message or "")
    assert [item.status.value for item in said.items] == ["success"]


def test_a_handler_that_fails_on_a_condition_fails_its_step() -> None:
    asking = handler("reload", when="nonsense")
    play = Play(workflow(step("one", notify=["reload"]), handlers=[asking])).end_all()
    assert play.status is RunStatus.FAILED
    assert play.statuses() == {"one": "failed", "reload": "failed"}


def test_they_see_what_their_host_exported_in_the_step() -> None:
    telling = handler("tell", when="PORT == 2")
    play = Play(workflow(step("one", notify=["tell"]), step("two"), handlers=[telling]))
    play.end("one/a", outcome=exporting(PORT=1)).end("one/b", outcome=exporting(PORT=2))
    assert play.started == ["tell/b"]
    assert play.hosts("tell") == {"a": "skipped", "b": "running"}


def test_an_item_counts_more_than_an_export_of_that_name() -> None:
    play = Play(
        workflow(step("one", loop=["x"], notify=["reload"]), handlers=[RELOAD], hosts=["a"])
    )
    play.end_all(exporting(item="mine"))
    course = play.running["reload/a"].course
    assert play.unfolding.scope(course, "a")["item"] == "x"


def test_what_they_export_is_nobodys() -> None:
    play = Play(workflow(step("one", notify=["reload"]), step("two"), handlers=[RELOAD]))
    play.end_all(exporting(A=1)).end_all(exporting(B=1))
    scope = play.exports.scope("a")
    assert ("A" in scope, "B" in scope) == (True, False)


def test_two_branches_notify_the_same_handler_each_for_itself() -> None:
    play = Play(
        workflow(
            step("left", needs=[], notify=["reload"]),
            step("right", needs=[], notify=["reload"]),
            handlers=[RELOAD],
            hosts=["a"],
        )
    )
    play.end("left/a")
    assert play.started == ["reload/a"]
    play.end("reload/a").end("right/a").end("reload/a")
    assert play.status is RunStatus.SUCCESS
    assert [each.index for each in handlers_of(play)] == [2, 3]


def test_none_begins_after_a_cancel() -> None:
    play = Play(workflow(step("one", notify=["reload"]), handlers=[RELOAD]))
    play.halt().end_all()
    assert (play.started, play.status) == ([], None)
    assert play.cancel().statuses() == {"one": "canceled"}


def test_a_cancel_while_one_runs_cancels_its_step_too() -> None:
    play = Play(workflow(step("one", notify=["reload", "check"]), handlers=[RELOAD, CHECK]))
    play.end_all().cancel()
    assert play.statuses() == {"one": "canceled", "reload": "canceled"}
    assert play.hosts("one") == {"a": "success", "b": "success"}
    assert play.record.unconfirmed_hosts == ()
