"""Settings that would stop callbacks without a word are refused, and say which field it is."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest

import tenure
from tenure.model.snapshot import CallbackTarget

GOOD = tenure.CallbackSpec(url="https://shop.example/")
FINITE = ("delay", "backoff", "max_delay", "timeout", "flush")
WRONG: list[tuple[str, Any, str]] = [
    *((name, value, f"{name} must be ") for name in FINITE for value in (nan, inf, -1, "5s", None)),
    *((name, True, "and is true or false") for name in (*FINITE, "attempts")),
    *(("attempts", value, "a whole number from 1 to 1000") for value in (0, 2.5, nan, "8", 1001)),
    ("delay", 31 * 86400, "seconds from 0 to 2.592e+06"),
    ("max_delay", 31 * 86400, "seconds from 0 to 2.592e+06"),
    ("backoff", 1001, "a number from 1 to 1000"),
    ("timeout", 0, "more than 0 and at most 3600"),
    ("timeout", 3601, "more than 0 and at most 3600"),
    ("flush", 86401, "seconds from 0 to 86400"),
    ("allow_private", "no", "allow_private must be True or False"),
    ("targets", "http://shop.example/", "targets must be a list of CallbackSpec, and is text"),
    ("targets", [{"url": "http://shop.example/"}], "targets must be a list of CallbackSpec"),
    ("targets", GOOD, "targets must be a list of CallbackSpec"),
    ("targets", None, "targets must be a list of CallbackSpec"),
]


@pytest.mark.parametrize(("name", "value", "said"), WRONG, ids=repr)
def test_what_cannot_be_meant_is_named(name: str, value: Any, said: str) -> None:
    with pytest.raises(tenure.InvalidOptions) as refused:
        tenure.CallbackSettings(**{name: value})
    assert refused.value.problems[0].startswith(f"{name} must be ")
    assert said in str(refused.value)


def test_all_of_it_is_told_at_once() -> None:
    with pytest.raises(tenure.InvalidOptions) as refused:
        tenure.CallbackSettings(timeout=nan, flush=nan, attempts=0)
    assert len(refused.value.problems) == 3


def test_every_setting_has_its_rule() -> None:
    assert {name for name, *_ in WRONG} == set(tenure.CallbackSettings.__struct_fields__)


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


def test_targets_given_as_a_list_are_kept_as_they_were() -> None:
    targets: Any = [GOOD]
    settings = tenure.CallbackSettings(targets=targets)
    targets.append("no target")
    assert settings.targets == (GOOD,)
