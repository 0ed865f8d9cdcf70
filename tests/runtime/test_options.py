"""Options that cannot be meant are told, all of them, before anything happens: of runs, callbacks,
leases, retention."""

from __future__ import annotations

from datetime import datetime
from math import inf, nan
from typing import Any

import pytest

import tenure
from tenure.model.snapshot import CallbackTarget
from tenure.model.status import Recovery
from tenure.runtime.options import RetentionPolicy, Timing
from tests.runtime.conftest import NewRunner
from tests.runtime.puppets import Puppet, step, workflow

ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)

WRONG: list[tuple[str, Any, str]] = [
    ("run_id", 1234, "run_id must be text, and is 1234"),
    ("store", "sqlite:///runs.db", "store must be an open store, as tenure.open_store(url) gives"),
    ("notifier", print, "notifier must be an object with an async method notify"),
    ("vars", None, "vars must be a map from names to values, and is null"),
    ("vars", {"x": object()}, "vars.x is of the type object, which no record can hold: give text"),
    ("vars", {"x": {"y": [1, object()]}}, "vars.x.y[1] is of the type object"),
    ("vars", {"x": "\ud800"}, "vars.x is text that is no Unicode"),
    ("vars", {"x": ENDLESS}, "vars holds something nested without end"),
    ("secrets", {"pin": 1234}, "secrets must be a map from names to text, and is a map"),
    ("labels", {"tries": 3}, "labels must be a map from text to text"),
    ("callbacks", "https://shop.example", "callbacks must be a list of CallbackSpec, and is text"),
    ("queue", 7, "queue must be a queue's name: printable, 1 to 100 characters, and is 7"),
    ("priority", 101, "priority must be a whole number from -100 to 100, and is 101"),
    (
        "run_after",
        datetime(2030, 1, 1),  # noqa: DTZ001  that is the mistake
        "run_after must be a datetime with its time zone",
    ),
    ("recovery", "restart", "recovery must be 'interrupt' or 'resume', and is 'restart'"),
    ("timeout", "2h", "timeout must be a number of seconds, zero or more, and is text"),
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


GOOD = tenure.CallbackSpec(url="https://shop.example/")
CALLBACKS: list[tuple[str, Any, str]] = [
    ("delay", 31 * 86400, "seconds from 0 to 2.592e+06"),
    ("backoff", nan, "a number from 1 to 1000"),
    ("max_delay", "5s", "seconds from 0 to 2.592e+06"),
    ("timeout", 0, "more than 0 and at most 3600"),
    ("flush", inf, "seconds from 0 to 86400"),
    ("attempts", 2.5, "a whole number from 1 to 1000"),
    ("attempts", True, "and is true or false"),
    ("allow_private", "no", "allow_private must be True or False"),
    ("targets", GOOD, "targets must be a list of CallbackSpec"),
    ("hooks", ["SHOP"], "hooks must be a map from names to origins"),
]
LEASES: list[tuple[dict[str, float], str]] = [
    ({"renew_interval": 31}, "renew_interval ≤ lease_duration / 2 does not hold"),
    ({"lease_duration": 39}, "renew_interval is 20s, lease_duration is 39s"),
    ({"renew_interval": 0}, "renew_interval must be .* more than zero, and is 0"),
    ({"control_interval": nan}, "control_interval must be"),
    ({"margin": -1}, "margin must be .* zero or more"),
]
RETENTION: list[tuple[str, Any]] = [("seconds", inf), ("seconds", "30d"), ("per_second", 1.5)]


@pytest.mark.parametrize(("name", "value", "said"), CALLBACKS, ids=repr)
def test_a_callback_setting_that_cannot_be_meant_is_named(name: str, value: Any, said: str) -> None:
    """It would stop callbacks without a word."""
    with pytest.raises(tenure.InvalidOptions) as refused:
        tenure.CallbackSettings(**{name: value})
    assert refused.value.problems[0].startswith(f"{name} must be ")
    assert said in str(refused.value)


def test_every_callback_setting_has_its_rule() -> None:
    assert {name for name, *_ in CALLBACKS} == set(tenure.CallbackSettings.__struct_fields__)


GIVEN: list[tuple[Any, str]] = [
    (tenure.CallbackSpec(url="https://ada:opensesame@shop.example"), ".url: holds a user name"),
    (CallbackTarget(name="hook"), ".url: must begin with http:// or https://"),
    (
        tenure.CallbackSpec(url="https://a.example", headers={"Webhook-Id": "1"}),
        ".headers.Webhook-Id: is set by Tenure",
    ),
    (tenure.CallbackSpec(url="https://a.example", secret_env="AWS_KEY"), ".secret_env: must be"),
    (tenure.CallbackSpec(url="https://a.example", events=("runs",)), ".events[0]: must be one of"),
    (CallbackTarget(name="hook", url="https://127.1/"), ".url: names its host by numbers"),
]


@pytest.mark.parametrize(("target", "said"), GIVEN, ids=[said for _, said in GIVEN])
def test_targets_keep_the_rules_of_a_workflow(target: Any, said: str) -> None:
    for name, give in (("targets", tenure.CallbackSettings), ("callbacks", tenure.RunOptions)):
        options: dict[str, Any] = {name: [GOOD, target]}
        with pytest.raises(tenure.InvalidOptions) as refused:
            give(**options)
        assert str(refused.value).startswith(f"{name}[1].")
        assert said in str(refused.value)


@pytest.mark.parametrize(("fields", "rule"), LEASES)
def test_a_lease_that_cannot_work_is_refused(fields: dict[str, float], rule: str) -> None:
    with pytest.raises(tenure.InvalidOptions, match=rule):
        Timing(**fields)


@pytest.mark.parametrize("margin", [None, 0, 8, 1000])
@pytest.mark.parametrize("renew", [0.001, 20, 30])
def test_a_lease_is_never_trusted_longer_than_it_lasts(margin: float | None, renew: float) -> None:
    timing = Timing(lease_duration=60, renew_interval=renew, margin=margin)
    assert timing.renew_interval < timing.trust <= timing.lease_duration


@pytest.mark.parametrize(("lease", "trusted"), [(60, 52), (4, 3)])
def test_a_short_lease_is_trusted_for_most_of_its_time(lease: float, trusted: float) -> None:
    """Or a worker that is kept waiting for a moment would give up runs that no other wanted."""
    assert Timing(lease_duration=lease, renew_interval=lease / 3).trust == trusted


@pytest.mark.parametrize(("name", "value"), RETENTION)
def test_a_retention_that_cannot_be_meant_is_refused(name: str, value: Any) -> None:
    fields: dict[str, Any] = {"seconds": 60, name: value}
    with pytest.raises(tenure.InvalidOptions, match=f"^{name} must be"):
        RetentionPolicy(**fields)


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        (tenure.CallbackSettings, {"timeout": nan, "flush": nan, "attempts": 0}),
        (Timing, {"lease_duration": 0, "renew_interval": -1, "margin": -1}),
    ],
)
def test_all_that_is_wrong_is_told_at_once(options: Any, wrong: dict[str, float]) -> None:
    with pytest.raises(tenure.InvalidOptions) as refused:
        options(**wrong)
    assert len(refused.value.problems) == 3
