"""Run options of the wrong type are told, all of them, before anything happens."""

from __future__ import annotations

from datetime import datetime
from math import inf, nan
from typing import Any

import pytest

import tenure
from tenure.model.status import Recovery
from tests.runtime.conftest import NewRunner
from tests.runtime.puppets import Puppet, step, workflow

ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)

WRONG: list[tuple[str, Any, str]] = [
    ("run_id", 1234, "run_id must be text, and is 1234"),
    ("store", "sqlite:///runs.db", "store must be an open store, as tenure.open_store(url) gives"),
    ("notifier", print, "notifier must be an object with an async method notify"),
    ("vars", None, "vars must be a map from names to values, and is null"),
    ("vars", {1: "one"}, "vars must be a map from names to values"),
    ("vars", {"x": object()}, "vars.x is of the type object, which no record can hold: give text"),
    ("vars", {"x": {"y": [1, object()]}}, "vars.x.y[1] is of the type object"),
    ("vars", {"x": None, "y": [nan]}, "vars.y[0] is nan, a number that has no form in JSON"),
    ("vars", {"x": "\ud800"}, "vars.x is text that is no Unicode"),
    ("vars", {"x": ENDLESS}, "vars holds something nested without end"),
    ("secrets", {"pin": 1234}, "secrets must be a map from names to text, and is a map"),
    ("labels", {"tries": 3}, "labels must be a map from text to text"),
    ("callbacks", "https://shop.example", "callbacks must be a list of CallbackSpec, and is text"),
    ("callbacks", [{"url": "https://shop.example"}], "callbacks must be a list of CallbackSpec"),
    (
        "callbacks",
        [tenure.CallbackSpec(url="https://ada:opensesame@shop.example")],
        "callbacks[0].url: holds a user name or a password, and "
        "addresses are shown to people; give it in a header, Authorization",
    ),
    (
        "callbacks",
        [tenure.CallbackSpec(url="htps://ada:opensesame@shop.example")],
        "callbacks[0].url: must begin with http:// or https://",
    ),
    ("queue", 7, "queue must be a queue's name: printable, 1 to 100 characters, and is 7"),
    ("priority", "high", "priority must be a whole number from -100 to 100, and is text"),
    ("priority", 101, "and is 101"),
    ("priority", True, "and is true or false"),
    (
        "run_after",
        datetime(2030, 1, 1),  # noqa: DTZ001  that is the mistake
        "run_after must be a datetime with its time zone",
    ),
    ("recovery", "restart", "recovery must be 'interrupt' or 'resume', and is 'restart'"),
    ("timeout", "2h", "timeout must be a number of seconds, zero or more, and is text"),
    ("timeout", -1, "and is -1"),
    ("timeout", nan, "and is nan"),
    ("timeout", inf, "and is inf"),
    ("limit", "web1", "limit must be a list of hosts and groups, and is text"),
    ("local", "yes", "local must be True or False, and is text"),
    ("retry_of", 1, "retry_of must be text"),
    ("approved_by", ["me"], "approved_by must be text, and is a list"),
    ("requested_by", 1, "requested_by must be text, and is 1"),
    ("files", {"notes.txt": "text"}, "files must be a map from names to bytes, and is a map"),
]


@pytest.mark.parametrize(("name", "value", "words"), WRONG, ids=lambda each: str(each)[:20])
def test_a_wrong_type_is_named_with_what_was_expected(name: str, value: Any, words: str) -> None:
    with pytest.raises(tenure.TenureError) as refused:
        tenure.RunOptions(**{name: value})
    assert words in str(refused.value)


def test_all_of_them_are_told_and_no_value_that_could_be_a_secret() -> None:
    wrong: Any = {"secrets": "hunter2", "labels": {"token": b"hunter2"}, "limit": "hunter2"}
    with pytest.raises(tenure.InvalidOptions) as refused:
        tenure.RunOptions(**wrong)
    assert len(refused.value.problems) == 3
    assert "hunter2" not in str(refused.value)


def test_every_option_has_its_rule() -> None:
    assert {name for name, *_ in WRONG} == set(tenure.RunOptions.__struct_fields__)


def test_a_recovery_may_be_given_by_its_name() -> None:
    by_name: Any = "resume"
    assert tenure.RunOptions(recovery=by_name).recovery is Recovery.RESUME


async def test_what_is_no_workflow_or_no_options_is_refused(
    new_runner: NewRunner, act: Puppet
) -> None:
    runner, anything = new_runner(), {"run_id": "order-1234"}
    with pytest.raises(tenure.InvalidOptions, match="options must be RunOptions, and is a map"):
        await runner.run(workflow(step("one")), anything)  # type: ignore[arg-type]
    with pytest.raises(tenure.InvalidWorkflow, match="as load_workflow reads it, and got text"):
        await runner.run("deploy.yaml")  # type: ignore[arg-type]
    assert act.begun == []
