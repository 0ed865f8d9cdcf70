"""How a run unfolds: steps, hosts, loops, failures, conditions."""

from __future__ import annotations

import tenure
from tenure.model.status import RunStatus
from tests.runtime.playing import (
    FAILED,
    SKIPPED,
    UNREACHABLE,
    Play,
    exporting,
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

    def test_a_result_and_the_next_start_share_an_update(self) -> None:
        play = Play(workflow(step("drain"), step("restart"), hosts=["a"]))
        play.end_all().end_all()
        assert play.record.version == 3

    def test_no_more_hosts_at_once_than_concurrency(self) -> None:
        play = Play(workflow(step("s", concurrency=2), hosts="abcd"))
        assert play.started == ["s/a", "s/b"]
        play.end("s/b")
        assert play.started == ["s/c"]
        play.end("s/a", "s/c")
        assert play.started == ["s/d"]

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

    def test_an_unreachable_host_fails_the_step_and_shows_as_unreachable(self) -> None:
        play = Play(workflow(step("one"))).end("one/a", outcome=UNREACHABLE).end_all()
        assert play.status is RunStatus.FAILED
        assert play.hosts("one") == {"a": "unreachable", "b": "success"}

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

    def test_a_step_that_needs_none_starts_at_once(self) -> None:
        play = Play(workflow(step("one"), step("free", needs=[]), hosts=["a"]))
        assert play.started == ["one/a", "free/a"]

    def test_a_step_may_need_a_later_one(self) -> None:
        play = Play(workflow(step("late", needs=["early"]), step("early", needs=[]), hosts=["a"]))
        assert play.started == ["early/a"]
        assert play.end_all().started == ["late/a"]

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

    def test_a_run_of_skipped_steps_succeeds(self) -> None:
        play = Play(workflow(step("one", when="false"), step("two", when="false")))
        assert play.status is RunStatus.SUCCESS
        assert play.statuses() == {"one": "skipped", "two": "skipped"}


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

    def test_must_vars_count_run_variables_and_exports(self) -> None:
        play = Play(workflow(step("ask"), step("do", must_vars=["A", "B"]), hosts=["a"]), B=1)
        assert play.end_all(exporting(A=1)).started == ["do/a"]

    def test_must_vars_are_asked_only_where_the_step_runs(self) -> None:
        there = tenure.HostSpec(address="local", vars={"wanted": True, "A": 1})
        elsewhere = tenure.HostSpec(address="local", vars={"wanted": False})
        inventory = tenure.Inventory(hosts={"a": there, "b": elsewhere})
        play = Play(workflow(step("one", when="wanted", must_vars=["A"]), inventory=inventory))
        assert play.started == ["one/a"]
        assert play.hosts("one") == {"a": "running", "b": "skipped"}

    def test_must_vars_missing_may_be_tolerated(self) -> None:
        play = Play(workflow(step("one", must_vars=["A"], continue_on_error=True), step("two")))
        assert play.started == ["two/a", "two/b"]

    def test_expect_vars_missing_fail_the_step_after_it(self) -> None:
        play = Play(workflow(step("one", expect_vars=["A", "B"]))).end_all(exporting(A=1))
        assert play.status is RunStatus.FAILED
        assert play.step("one").message == "expected vars missing: B"
        assert play.hosts("one") == {"a": "success", "b": "success"}

    def test_expect_vars_may_come_from_different_hosts(self) -> None:
        play = Play(workflow(step("one", expect_vars=["A", "B"])))
        play.end("one/a", outcome=exporting(A=1)).end("one/b", outcome=exporting(B=1))
        assert play.status is RunStatus.SUCCESS

    def test_nothing_is_expected_of_a_step_that_had_nothing_to_do(self) -> None:
        play = Play(workflow(step("one", loop=[], expect_vars=["A"])))
        assert (play.status, play.statuses()) == (RunStatus.SUCCESS, {"one": "skipped"})

    def test_what_hosts_export_differently_is_noted_on_the_step(self) -> None:
        play = Play(workflow(step("one")))
        play.end("one/a", outcome=exporting(A=1)).end("one/b", outcome=exporting(A=2))
        assert "different values of A" in (play.step("one").message or "")

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

    def test_of_the_last_step_it_is_remembered_too(self) -> None:
        play = Play(workflow(step("one", continue_on_error=True), hosts=["a"])).end_all(FAILED)
        assert play.status is RunStatus.SUCCESS
        assert play.record.last_error is not None

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

    def test_a_step_that_had_done_all_its_work_comes_to_its_end(self) -> None:
        play = Play(workflow(step("one"), step("two"), hosts=["a"])).halt().end("one/a").cancel()
        assert play.status is RunStatus.CANCELED
        assert play.statuses() == {"one": "success", "two": "canceled"}

    def test_what_had_finished_before_stands(self) -> None:
        play = Play(workflow(step("one"), hosts=["a"])).halt().end("one/a")
        assert play.status is RunStatus.SUCCESS

    def test_what_had_failed_before_stands(self) -> None:
        play = Play(workflow(step("one"), step("two"), hosts=["a"])).halt()
        assert play.end("one/a", outcome=FAILED).status is RunStatus.FAILED

    def test_a_tolerated_step_that_is_cut_short_is_no_success(self) -> None:
        play = Play(workflow(step("one", continue_on_error=True), hosts=["a"])).cancel()
        assert play.status is RunStatus.CANCELED
        assert play.statuses() == {"one": "canceled"}

    def test_a_host_between_two_items_is_canceled_and_not_unknown(self) -> None:
        play = Play(workflow(step("one", loop=[1, 2]))).halt().end("one/a[0]")
        assert play.started == []
        play.cancel()
        assert play.hosts("one") == {"a": "canceled", "b": "canceled"}
        assert play.step("one").hosts["b"].items[0].status == "canceled"
        assert play.record.unconfirmed_hosts == ()
