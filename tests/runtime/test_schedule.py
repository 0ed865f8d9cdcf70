"""How a run unfolds: steps, hosts, loops, handlers, failures, conditions."""

from __future__ import annotations

import tenure
from tenure.model.snapshot import StepState
from tenure.model.status import RunStatus, StepKind
from tenure.workflow.spec import Defaults, Rolling
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


class TestSteps:
    def test_follow_one_another(self) -> None:
        play = Play(workflow(step("drain"), step("restart")))
        assert play.started == ["drain/a", "drain/b"]
        play.end("drain/a")
        assert play.started == []
        play.end("drain/b")
        assert play.started == ["restart/a", "restart/b"]
        play.end_all()
        assert play.status is RunStatus.SUCCESS
        assert play.statuses() == {"drain": "success", "restart": "success"}

    def test_defaults_fill_what_a_step_does_not_say(self) -> None:
        mine = step("mine", needs=[], concurrency=2)
        play = Play(workflow(step("one"), mine, defaults=Defaults(concurrency=1)))
        assert play.started == ["one/a", "mine/a", "mine/b"]

    def test_a_result_and_the_next_start_share_an_update(self) -> None:
        play = Play(workflow(step("drain"), step("restart"), hosts=["a"]))
        play.end_all().end_all()
        assert play.record.version == 3

    def test_a_failure_lets_siblings_finish_and_keeps_the_rest_from_beginning(self) -> None:
        play = Play(workflow(step("one", concurrency=1), step("two")))
        play.end("one/a", outcome=FAILED)
        assert play.started == ["one/b"]
        play.end_all()
        assert play.status is RunStatus.FAILED
        assert play.statuses() == {"one": "failed", "two": "skipped"}
        assert play.hosts("one") == {"a": "failed", "b": "success"}
        assert play.hosts("two") == {"a": "skipped", "b": "skipped"}

    def test_the_error_says_where_and_why(self) -> None:
        play = Play(workflow(step("one"))).end("one/b", outcome=FAILED).end_all()
        error = play.record.error
        assert error is not None
        assert (error.kind, error.step, error.host, error.exit_code) == ("exit", "one", "b", 3)
        assert error.message == "step 'one' failed on 1 of 2 hosts (b): it broke"
        assert (error.failed_hosts, error.failed_count) == (("b",), 1)
        assert play.record.last_error == error
        assert play.record.message == error.message

    def test_of_many_failed_hosts_twenty_are_named_and_all_are_counted(self) -> None:
        hosts = [f"h{number:02}" for number in range(30)]
        play = Play(workflow(step("one"), hosts=hosts)).end_all(FAILED)
        error = play.record.error
        assert error is not None
        assert (list(error.failed_hosts), error.failed_count) == (hosts[:20], 30)

    def test_a_step_no_host_had_work_for_is_skipped(self) -> None:
        play = Play(workflow(step("one"))).end_all(SKIPPED)
        assert (play.status, play.statuses()) == (RunStatus.SUCCESS, {"one": "skipped"})


class TestNeeds:
    def diamond(self) -> Play:
        return Play(
            workflow(
                step("top"),
                step("left", needs=["top"]),
                step("right", needs=["top"]),
                step("bottom", needs=["left", "right"]),
                hosts=["a"],
            )
        )

    def test_branches_run_side_by_side_and_meet_again(self) -> None:
        play = self.diamond().end_all()
        assert play.started == ["left/a", "right/a"]
        play.end("right/a")
        assert play.started == []
        play.end("left/a")
        assert play.started == ["bottom/a"]

    def test_a_failing_branch_lets_the_other_finish_and_starts_nothing_new(self) -> None:
        play = Play(
            workflow(
                step("left", needs=[]),
                step("right", needs=[], concurrency=1),
                step("after-right", needs=["right"]),
            )
        )
        play.end("left/a", outcome=FAILED).end("left/b")
        assert play.running.keys() == {"right/a"}
        play.end("right/a")
        assert play.started == ["right/b"], "a step that runs comes to its end on all its hosts"
        play.end("right/b")
        assert play.status is RunStatus.FAILED
        assert play.statuses() == {"left": "failed", "right": "success", "after-right": "skipped"}

    def test_the_first_failure_in_time_is_the_runs_error(self) -> None:
        play = Play(workflow(step("one", needs=[]), step("two", needs=[]), hosts=["a"]))
        play.end("two/a", outcome=FAILED).end("one/a", outcome=FAILED)
        assert play.record.error is not None
        assert play.record.error.step == "two"


class TestConditions:
    def test_a_step_it_holds_for_nowhere_is_recorded_as_skipped(self) -> None:
        play = Play(workflow(step("one", when="mode == 'x'"), step("two")), mode="y")
        assert play.started == ["two/a", "two/b"]
        play.end_all()
        assert play.statuses() == {"one": "skipped", "two": "success"}
        assert play.step("one").message == "its condition holds on no host"
        assert play.hosts("one") == {"a": "skipped", "b": "skipped"}

    def test_when_is_asked_with_what_earlier_steps_exported(self) -> None:
        play = Play(workflow(step("ask"), step("do", when="wanted"), hosts=["a"]))
        assert play.end_all(exporting(wanted=True)).started == ["do/a"]

    def test_each_host_is_asked_with_its_own_variables(self) -> None:
        play = Play(workflow(step("ask"), step("do", when="mine == 1")))
        play.end("ask/a", outcome=exporting(mine=1)).end("ask/b", outcome=exporting(mine=2))
        assert play.started == ["do/a"]
        assert play.end_all().hosts("do") == {"a": "success", "b": "skipped"}

    def test_an_undefined_name_fails_the_host_and_says_which(self) -> None:
        play = Play(workflow(step("one", when="nonsense == 1"), hosts=["a"]))
        assert play.status is RunStatus.FAILED
        host = play.step("one").hosts["a"]
        assert host.status == "failed"
        assert "nonsense" in (host.message or "")
        assert play.record.error is not None
        assert play.record.error.kind == "expression"


class TestVariablesAskedFor:
    def test_must_vars_missing_fail_the_step_before_anything_starts(self) -> None:
        play = Play(workflow(step("one", must_vars=["A", "B"]), step("two")), B=1)
        assert play.running == {}
        assert play.status is RunStatus.FAILED
        assert play.step("one").message == ("required vars missing for 2 of 2 hosts (a, b): A")
        assert play.record.error is not None
        assert play.record.error.kind == "must_vars"
        assert play.hosts("one") == {"a": "skipped", "b": "skipped"}
        assert play.statuses()["two"] == "skipped"

    def test_every_host_must_have_them(self) -> None:
        has = tenure.HostSpec(address="local", vars={"A": 1, "B": 2})
        lacks = tenure.HostSpec(address="local", vars={"A": 1})
        play = Play(
            workflow(
                step("one", must_vars=["A", "B"]),
                inventory=tenure.Inventory(hosts={"a": has, "b": lacks}),
            )
        )
        assert play.running == {}
        assert play.step("one").message == "required vars missing for host b: B"

    def test_expect_vars_missing_fail_the_step_after_it(self) -> None:
        play = Play(workflow(step("one", expect_vars=["A", "B"]))).end_all(exporting(A=1))
        assert play.status is RunStatus.FAILED
        assert play.step("one").message == "expected vars missing: B"
        assert play.hosts("one") == {"a": "success", "b": "success"}

    def test_a_failed_host_exports_nothing(self) -> None:
        play = Play(workflow(step("one", loop=[1, 2], continue_on_error=True), step("two")))
        play.end("one/a[0]", outcome=exporting(A=1)).end("one/b[0]")
        play.end("one/a[1]", outcome=FAILED).end("one/b[1]")
        assert "A" not in play.exports.scope("a")


class TestToleratedFailures:
    def test_the_run_goes_on_and_remembers(self) -> None:
        play = Play(workflow(step("one", continue_on_error=True), step("two"), hosts=["a"]))
        play.end_all(FAILED)
        assert play.started == ["two/a"]
        play.end_all()
        assert play.status is RunStatus.SUCCESS
        assert play.statuses() == {"one": "failed", "two": "success"}
        assert play.record.error is None
        assert play.record.last_error is not None
        assert play.record.last_error.step == "one"

    def test_a_later_failure_is_the_runs_error(self) -> None:
        play = Play(workflow(step("one", continue_on_error=True), step("two"), hosts=["a"]))
        play.end_all(FAILED).end_all(FAILED)
        assert play.record.error is not None
        assert play.record.error.step == "two"
        assert play.record.last_error == play.record.error


class TestCutShort:
    """What a cancel, a time-out or a lost lease does to what is under way."""

    def test_nothing_starts_any_more(self) -> None:
        play = Play(workflow(step("one", concurrency=1), step("two"))).cancel()
        assert (play.started, play.status) == ([], RunStatus.CANCELED)
        assert play.hosts("one") == {"a": "canceled", "b": "canceled"}
        assert play.statuses() == {"one": "canceled", "two": "canceled"}
        assert play.record.unconfirmed_hosts == ()

    def test_what_had_finished_before_stands(self) -> None:
        play = Play(workflow(step("one"), hosts=["a"])).halt().end("one/a")
        assert play.status is RunStatus.SUCCESS

    def test_a_host_between_two_items_is_canceled_and_not_unknown(self) -> None:
        play = Play(workflow(step("one", loop=[1, 2]))).halt().end("one/a[0]")
        assert play.started == []
        play.cancel()
        assert play.hosts("one") == {"a": "canceled", "b": "canceled"}
        assert play.step("one").hosts["b"].items[0].status == "canceled"
        assert play.record.unconfirmed_hosts == ()


def items(play: Play, name: str, host: str) -> list[str]:
    return [item.status.value for item in play.step(name).hosts[host].items]


def test_each_item_waits_until_all_hosts_have_done_the_one_before() -> None:
    play = Play(workflow(step("one", loop=["x", "y"])))
    assert play.started == ["one/a[0]", "one/b[0]"]
    play.end("one/b[0]")
    assert play.started == []
    play.end("one/a[0]")
    assert play.started == ["one/a[1]", "one/b[1]"]
    assert play.hosts("one") == {"a": "running", "b": "running"}
    play.end_all()
    assert play.status is RunStatus.SUCCESS
    assert items(play, "one", "a") == items(play, "one", "b") == ["success", "success"]


def test_the_next_item_starts_in_the_update_that_ends_the_last_one() -> None:
    play = Play(workflow(step("one", loop=[1, 2, 3]), hosts=["a"]))
    born = play.record.version
    play.end_all().end_all().end_all()
    assert play.record.version == born + 3


def test_a_failed_host_drops_out_and_the_others_go_on() -> None:
    play = Play(workflow(step("one", loop=[1, 2])))
    play.end("one/a[0]", outcome=FAILED).end("one/b[0]")
    assert play.started == ["one/b[1]"]
    play.end_all()
    assert play.status is RunStatus.FAILED
    assert play.hosts("one") == {"a": "failed", "b": "success"}
    assert (items(play, "one", "a"), items(play, "one", "b")) == (["failed"], ["success"] * 2)


def test_a_condition_about_the_item_is_asked_for_each() -> None:
    play = Play(workflow(step("one", loop=[1, 2, 3], when="item != 2"), hosts=["a"]))
    play.end("one/a[0]")
    assert play.running.keys() == {"one/a[2]"}
    play.end_all()
    assert items(play, "one", "a") == ["success", "skipped", "success"]
    assert play.step("one").hosts["a"].status == "success"


def test_a_host_whose_items_are_all_skipped_is_skipped() -> None:
    play = Play(workflow(step("one", loop=[1, 2], when="item > 5")))
    assert (play.status, play.statuses()) == (RunStatus.SUCCESS, {"one": "skipped"})
    assert play.hosts("one") == {"a": "skipped", "b": "skipped"}


def test_an_empty_loop_is_a_skipped_step_that_says_so() -> None:
    play = Play(workflow(step("one", loop=[]), step("two"), hosts=["a"]))
    assert play.running.keys() == {"two/a"}
    assert play.statuses() == {"one": "skipped", "two": "running"}


def test_each_host_loops_over_its_own_items() -> None:
    play = Play(workflow(step("ask"), step("do", loop="${{ mine }}"), hosts="abc"))
    play.end("ask/a", outcome=exporting(mine=[1, 2]))
    play.end("ask/b", outcome=exporting(mine=[1]))
    play.end("ask/c", outcome=exporting(mine=[]))
    assert play.running.keys() == {"do/a[0]", "do/b[0]"}
    assert play.hosts("do") == {"a": "running", "b": "running", "c": "skipped"}
    play.end("do/a[0]", "do/b[0]")
    assert play.running.keys() == {"do/a[1]"}
    assert play.hosts("do")["b"] == "success"
    assert play.end_all().status is RunStatus.SUCCESS


def test_a_loop_that_is_no_list_fails_its_host_only() -> None:
    play = Play(workflow(step("ask"), step("do", loop="${{ mine }}")))
    play.end("ask/a", outcome=exporting(mine="text")).end("ask/b", outcome=exporting(mine=[1]))
    assert play.hosts("do") == {"a": "failed", "b": "running"}
    play.end_all()
    assert play.status is RunStatus.FAILED
    assert "needs a list" in (play.step("do").hosts["a"].message or "")


def test_variables_of_all_items_are_exported_the_later_ones_winning() -> None:
    play = Play(workflow(step("one", loop=[1, 2]), step("two"), hosts=["a"]))
    play.end_all(exporting(A=1, B=1)).end_all(exporting(A=2))
    scope = play.exports.scope("a")
    assert (scope["A"], scope["B"]) == (2, 1)
    assert play.step("one").hosts["a"].vars == {"A": 2, "B": 1}


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


def test_a_host_that_knows_it_changed_nothing_notifies_nobody() -> None:
    play = Play(workflow(step("one", notify=["reload"]), handlers=[RELOAD], hosts="abc"))
    play.end("one/a", outcome=UNCHANGED).end("one/b", outcome=CHANGED)
    assert play.end("one/c").started == ["reload/b", "reload/c"], "who cannot know, notifies"


def test_not_of_a_step_that_fails() -> None:
    play = Play(workflow(step("one", notify=["reload"]), handlers=[RELOAD]))
    play.end("one/a", outcome=FAILED).end("one/b")
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
    progress = play.running["notice/a"].progress
    assert play.unfolding.scope(progress, "a")["item"] == "y"
    play.end_all()
    assert [each.status.value for each in handlers_of(play)] == ["skipped", "success"]
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


def test_a_handler_failing_between_two_items_ends_the_hosts_too() -> None:
    play = Play(workflow(step("one", loop=[1, 2], notify=["reload"]), handlers=[RELOAD]))
    play.end_all().end_all(FAILED)
    assert play.status is RunStatus.FAILED
    assert play.hosts("one") == {"a": "failed", "b": "failed"}
    said = play.step("one").hosts["a"]
    assert "handler 'reload' failed" in (said.message or "")
    assert [item.status.value for item in said.items] == ["success"]


def test_they_see_what_their_host_exported_in_the_step() -> None:
    telling = handler("tell", when="PORT == 2")
    play = Play(workflow(step("one", notify=["tell"]), step("two"), handlers=[telling]))
    play.end("one/a", outcome=exporting(PORT=1)).end("one/b", outcome=exporting(PORT=2))
    assert play.started == ["tell/b"]
    assert play.hosts("tell") == {"a": "skipped", "b": "running"}


def test_none_begins_after_a_cancel() -> None:
    play = Play(workflow(step("one", notify=["reload"]), handlers=[RELOAD]))
    play.halt().end_all()
    assert (play.started, play.status) == ([], None)
    assert play.cancel().statuses() == {"one": "canceled"}
