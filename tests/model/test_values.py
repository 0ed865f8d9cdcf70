"""Small values: run ids, filters and cursors, waits between attempts."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from math import inf, nan
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.model.errors import InvalidCursor, InvalidOptions, InvalidRunId, TenureError
from tenure.model.ids import RunIds, check_run_id, encode_ulid
from tenure.model.query import (
    MAX_PAGE,
    RunFilter,
    bounded_limit,
    decode_cursor,
    encode_cursor,
)
from tenure.model.retry_policy import RetryPolicy
from tenure.model.status import RunStatus
from tests.model.samples import ALICE, AT, BOB, after, running

FULL = (1 << 80) - 1


def source(times: list[int], bits: list[int]) -> RunIds:
    clock, luck = iter(times), iter(bits)
    return RunIds(lambda: next(clock), lambda width: next(luck))


def test_a_ulid_is_what_the_standard_says() -> None:
    assert encode_ulid(0) == "0" * 26
    assert encode_ulid((1 << 128) - 1) == "7" + "Z" * 25
    made = source([1469918176385], [FULL]).next()
    assert made == "01ARYZ6S41" + "Z" * 16


def test_ids_grow_when_the_clock_steps_back() -> None:
    ids = source([1000, 1, 1, 2000, 1999], [5, 7])
    made = [ids.next() for _ in range(5)]
    assert made == sorted(set(made))
    assert made[1] == encode_ulid((1000 << 80) + 6)
    assert made[4] == encode_ulid((2000 << 80) + 8)


def test_a_millisecond_that_overflows_runs_into_the_next_one_and_on() -> None:
    ids = source([1000, 1000, 1001, 1002], [FULL, 0])
    made = [ids.next() for _ in range(4)]
    assert made[1] == encode_ulid(1001 << 80)
    assert made[2] == encode_ulid((1001 << 80) + 1)
    assert made == sorted(set(made))


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, (1 << 48) - 2), st.integers(0, FULL)), min_size=1, max_size=50
    )
)
def test_any_clock_and_any_luck_give_growing_valid_ids(ticks: list[tuple[int, int]]) -> None:
    ids = source([at for at, _ in ticks], [bits for _, bits in ticks])
    made = [ids.next() for _ in ticks]
    assert made == sorted(set(made))
    assert all(len(check_run_id(run_id)) == 26 for run_id in made)


@pytest.mark.parametrize(
    "run_id",
    [
        "",
        "a" * 7,
        "a" * 129,
        "-aaaaaaaa",
        "../../etc/passwd",
        "run 00001",
        "run-00001\n",
        "run-00001\x00",
        "rün-00001",
        "run-0000１",
        "run-\ud800-00001",
    ],
)
def test_bad_ids_are_refused_with_the_rule(run_id: str) -> None:
    with pytest.raises(InvalidRunId, match="8-128 characters") as refused:
        check_run_id(run_id)
    assert isinstance(refused.value, TenureError)
    assert isinstance(refused.value, ValueError)
    assert len(str(refused.value)) < 500


@settings(deadline=None)
@given(st.text(max_size=140))
def test_no_text_gets_by_that_the_rule_forbids(text: str) -> None:
    letters = "abcdefghijklmnopqrstuvwxyz"
    first = set(letters + letters.upper() + "0123456789")
    allowed = 8 <= len(text) <= 128 and text[0] in first and set(text) <= first | set("._:-")
    try:
        assert check_run_id(text) == text
        assert allowed
    except InvalidRunId:
        assert not allowed


RUN = running(labels={"team": "web", "tier": "1"}, queue="blue")


@pytest.mark.parametrize(
    ("conditions", "matches"),
    [
        ({}, True),
        ({"statuses": frozenset({RunStatus.RUNNING, RunStatus.FAILED})}, True),
        ({"statuses": frozenset({RunStatus.QUEUED})}, False),
        ({"workflow_name": "deplo"}, False),
        ({"queue": "default"}, False),
        ({"labels": {"team": "web", "tier": "1"}}, True),
        ({"labels": {"team": "web", "tier": "2"}}, False),
        ({"labels": {"unheard": "of"}}, False),
        ({"created_from": AT}, True),
        ({"created_from": after(0.001)}, False),
        ({"created_to": after(0.001)}, True),
        ({"created_to": AT}, False),
        ({"owner_id": ALICE}, True),
        ({"owner_id": BOB}, False),
        ({"queue": "blue", "owner_id": BOB}, False),
        ({"held": True}, True),
        ({"held": True, "owner_id": BOB}, False),
        ({"unapproved": True}, False),
    ],
)
def test_all_given_conditions_must_hold(conditions: dict[str, Any], matches: bool) -> None:
    assert RunFilter(**conditions).matches(RUN) is matches


@pytest.mark.parametrize(
    ("asked", "given_"), [(-5, 1), (0, 1), (1, 1), (50, 50), (MAX_PAGE, MAX_PAGE), (10**9, 1000)]
)
def test_pages_are_never_empty_by_request_nor_unbounded(asked: int, given_: int) -> None:
    assert bounded_limit(asked) == given_


@settings(deadline=None)
@given(st.text(max_size=12), st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4))
def test_a_cursor_brings_its_position_back(listing: str, position: list[int]) -> None:
    cursor = encode_cursor(listing, *position)
    assert decode_cursor(listing, cursor, len(position)) == tuple(position)
    assert "=" not in cursor


def _raw(text: bytes) -> str:
    return urlsafe_b64encode(text).decode()


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "x",
        "!!!!",
        "ü",
        "\x00",
        _raw(b"null"),
        _raw(b'["runs"]'),
        _raw(b'["runs","1"]'),
        _raw(b'["runs",1,2]'),
        _raw(b'["runs",99999999999999999999999999]'),
        _raw(b"\xff\xff"),
        "A" * 100_000,
        encode_cursor("deliveries", 1),
    ],
)
def test_a_cursor_made_elsewhere_is_refused(cursor: str) -> None:
    with pytest.raises(InvalidCursor) as refused:
        decode_cursor("runs", cursor, 1)
    assert len(str(refused.value)) < 300


CALLBACKS = RetryPolicy(attempts=8, delay=5, backoff=4, max_delay=3600, jitter=0.5)


def test_waits_grow_up_to_the_cap_and_then_it_gives_up() -> None:
    waits = [CALLBACKS.wait_after(n) for n in range(1, 10)]
    assert waits == [5, 20, 80, 320, 1280, 3600, 3600, None, None]


@pytest.mark.parametrize(("luck", "wait"), [(0.0, 20), (0.5, 15), (0.999, 10.01)])
def test_jitter_only_takes_away(luck: float, wait: float) -> None:
    assert CALLBACKS.wait_after(2, luck=luck) == pytest.approx(wait)


@pytest.mark.parametrize(
    ("asked", "wait"), [(0, 20), (10, 20), (30, 30), (3600, 3600), (1e9, 3600), (-5, 20)]
)
def test_what_the_other_side_asked_for_counts_within_the_cap(asked: float, wait: float) -> None:
    assert CALLBACKS.wait_after(2, at_least=asked) == wait


@pytest.mark.parametrize(
    "fields",
    [
        {"attempts": 0},
        {"attempts": 2.5},
        {"delay": -0.1},
        {"delay": "5s"},
        {"max_delay": inf},
        {"backoff": 0.5},
        {"jitter": 1.1},
        {"jitter": nan},
    ],
)
def test_impossible_policies_are_refused(fields: dict[str, Any]) -> None:
    [name] = fields
    with pytest.raises(InvalidOptions, match=f"^{name} must be "):
        RetryPolicy(**fields)


@settings(deadline=None)
@given(
    st.integers(1, 100),
    st.floats(0, 1e4),
    st.floats(1, 1e4),
    st.floats(0, 1e5),
    st.floats(0, 1),
    st.integers(1, 200),
    st.floats(0, 1, exclude_max=True),
    st.floats(0, 1e9),
)
def test_a_wait_is_always_between_zero_and_the_cap(
    attempts: int,
    delay: float,
    backoff: float,
    max_delay: float,
    jitter: float,
    failed: int,
    luck: float,
    at_least: float,
) -> None:
    policy = RetryPolicy(
        attempts=attempts, delay=delay, backoff=backoff, max_delay=max_delay, jitter=jitter
    )
    wait = policy.wait_after(failed, luck=luck, at_least=at_least)
    if failed >= attempts:
        assert wait is None
    else:
        assert wait is not None
        assert min(at_least, max_delay) <= wait <= max_delay
