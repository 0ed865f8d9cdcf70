"""Loops: item after item, together."""

from __future__ import annotations

from tenure.model.status import RunStatus
from tests.runtime.playing import FAILED, SKIPPED, Play, exporting, step, workflow


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


def test_an_item_is_started_before_it_ends() -> None:
    """The journal and the record must show it: an item that goes from nothing to its end has no
    beginning."""
    play = Play(workflow(step("one", loop=["x"]), hosts=["a"]))
    assert items(play, "one", "a") == ["running"]
    play.end_all()
    assert play.step("one").hosts["a"].items[0].started_at is not None


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


def test_a_last_item_that_is_skipped_leaves_no_message_on_the_host() -> None:
    play = Play(workflow(step("one", loop=[1, 2], when="item == 1"), hosts=["a"])).end_all()
    host = play.step("one").hosts["a"]
    assert (host.status, host.message) == ("success", None)


def test_a_host_whose_items_are_all_skipped_is_skipped() -> None:
    play = Play(workflow(step("one", loop=[1, 2], when="item > 5")))
    assert (play.status, play.statuses()) == (RunStatus.SUCCESS, {"one": "skipped"})
    assert play.hosts("one") == {"a": "skipped", "b": "skipped"}


def test_a_condition_that_cannot_be_evaluated_for_an_item_fails_the_host() -> None:
    play = Play(workflow(step("one", loop=[1], when="item == nonsense"), hosts=["a"]))
    assert play.status is RunStatus.FAILED
    assert "nonsense" in (play.step("one").hosts["a"].message or "")


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


def test_concurrency_counts_hosts_also_within_a_loop() -> None:
    play = Play(workflow(step("one", loop=[1, 2], concurrency=1)))
    for label in ("one/a[0]", "one/b[0]", "one/a[1]", "one/b[1]"):
        assert play.running.keys() == {label}
        play.end(label)
    assert play.status is RunStatus.SUCCESS


def test_an_action_that_skips_every_item_skips_the_host() -> None:
    play = Play(workflow(step("one", loop=[1, 2]), hosts=["a"])).end_all(SKIPPED).end_all(SKIPPED)
    assert play.statuses() == {"one": "skipped"}
