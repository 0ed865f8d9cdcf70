"""Filters, pages, cursors."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tenure.model.errors import InvalidCursor
from tenure.model.query import (
    MAX_PAGE,
    RunFilter,
    bounded_limit,
    decode_cursor,
    encode_cursor,
)
from tenure.model.status import RunStatus
from tests.model.samples import ALICE, AT, BOB, after, queued, running

RUN = running(labels={"team": "web", "tier": "1"}, queue="blue")


@pytest.mark.parametrize(
    ("conditions", "matches"),
    [
        ({}, True),
        ({"statuses": frozenset({RunStatus.RUNNING, RunStatus.FAILED})}, True),
        ({"statuses": frozenset({RunStatus.QUEUED})}, False),
        ({"workflow_name": "deploy"}, True),
        ({"workflow_name": "deplo"}, False),
        ({"queue": "blue"}, True),
        ({"queue": "default"}, False),
        ({"labels": {"team": "web"}}, True),
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


def test_a_run_without_a_birth_time_is_in_no_period() -> None:
    unborn = replace(queued(), created_at=None)
    assert RunFilter().matches(unborn)
    assert not RunFilter(created_from=AT).matches(unborn)
    assert not RunFilter(created_to=AT).matches(unborn)


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
        _raw(b"5"),
        _raw(b"[]"),
        _raw(b"null"),
        _raw(b'"runs"'),
        _raw(b'["runs"]'),
        _raw(b'["runs","1"]'),
        _raw(b'["runs",1.5]'),
        _raw(b'["runs",null]'),
        _raw(b'["runs",1,2]'),
        _raw(b'["runs",[1]]'),
        _raw(b'{"runs":1}'),
        _raw(b"\xff\xff"),
        "A" * 100_000,
        encode_cursor("deliveries", 1),
    ],
)
def test_a_cursor_made_elsewhere_is_refused(cursor: str) -> None:
    with pytest.raises(InvalidCursor) as refused:
        decode_cursor("runs", cursor, 1)
    assert len(str(refused.value)) < 300


@settings(deadline=None)
@given(st.text(max_size=40))
def test_no_text_breaks_the_reader(text: str) -> None:
    with pytest.raises(InvalidCursor):
        decode_cursor("no such listing", text, 1)


def test_a_forged_cursor_does_not_reach_the_database() -> None:
    with pytest.raises(InvalidCursor):
        decode_cursor("runs", _raw(b'["runs",99999999999999999999999999]'), 1)
