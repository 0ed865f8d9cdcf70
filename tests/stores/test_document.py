"""A run as one value: what a store over a key-value service stands on."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tenure.model.codec import SCHEMA
from tenure.model.errors import LeaseHeld, RunExists, StoreIncompatible, StoreRejected
from tenure.model.query import RunFilter
from tenure.model.status import RunStatus
from tenure.stores.document import RunDocument, newest_page
from tenure.stores.lease_clock import Instant, LeaseClock
from tenure.testing.clock import ManualClock
from tenure.testing.factories import (
    LONG,
    cancel,
    change_run,
    embedded_run,
    end_run,
    new_run,
    operator_status,
)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def instant(clock: ManualClock) -> Instant:
    return LeaseClock(clock).read()


def held(clock: ManualClock, **fields: Any) -> RunDocument:
    """Owned under a long lease, as read back from bytes."""
    born = RunDocument.born(embedded_run(**fields), instant(clock), 1)
    return RunDocument.decode(born.encode())


def test_every_part_survives_bytes(clock: ManualClock) -> None:
    born = RunDocument.born(embedded_run(definition="steps: []\n"), instant(clock), 7)
    after, _ = born.updated(change_run(born.snapshot, message="on"), instant(clock))
    assert after.lease_until is not None
    assert (after.number, after.definition, len(after.update_ids)) == (7, "steps: []\n", 2)
    assert RunDocument.decode(after.encode()) == after


def test_a_newer_schema_is_refused_by_its_number(clock: ManualClock) -> None:
    data = held(clock).encode().replace(b'"schema":%d' % SCHEMA, b'"schema":9', 1)
    with pytest.raises(StoreIncompatible, match=r"schema 9.*Upgrade"):
        RunDocument.decode(data)


@pytest.mark.parametrize("damaged", [b"", b"{}", b'{"schema": 1, "run": {"number": 1}}'])
def test_damage_is_named(damaged: bytes) -> None:
    with pytest.raises(StoreIncompatible, match="cannot be read"):
        RunDocument.decode(damaged)


@pytest.mark.parametrize("jump", [timedelta(days=-400), timedelta(days=400)], ids=str)
def test_a_jump_of_the_wall_clock_ends_no_lease(clock: ManualClock, jump: timedelta) -> None:
    document = held(clock)
    clock.set_wall(clock.now() + jump)
    assert not document.seen(instant(clock)).owner_lost
    with pytest.raises(LeaseHeld):
        document.updated(operator_status(document.snapshot, RunStatus.FAILED), instant(clock))


@pytest.mark.parametrize("jump", [timedelta(days=-400), timedelta(days=400)], ids=str)
def test_a_jump_of_the_wall_clock_prolongs_no_lease(clock: ManualClock, jump: timedelta) -> None:
    document = held(clock)
    clock.set_wall(clock.now() + jump)
    clock.advance(LONG)
    assert document.seen(instant(clock)).owner_lost
    ended, _ = document.updated(cancel(document.snapshot), instant(clock))
    assert ended.snapshot.status == RunStatus.CANCELED


def test_a_reboot_ends_every_lease(clock: ManualClock) -> None:
    document = held(clock)
    clock.reboot()
    assert document.seen(instant(clock)).owner_lost


def test_expiry_is_told_in_wall_time(clock: ManualClock) -> None:
    document = held(clock)
    expires_at = clock.now() + timedelta(seconds=LONG)
    assert document.seen(instant(clock)).lease_expires_at == expires_at
    _, receipt = document.updated(change_run(document.snapshot, message="on"), instant(clock))
    assert receipt.lease_expires_at == expires_at


def test_an_end_takes_the_lease_along(clock: ManualClock) -> None:
    document = held(clock)
    ended, receipt = document.updated(end_run(document.snapshot), instant(clock))
    assert ended.lease_until is None
    assert ended.seen(instant(clock)).lease_expires_at is None
    assert receipt.lease_expires_at is None


def test_nothing_to_write_is_the_very_same_document(clock: ManualClock) -> None:
    document = held(clock)
    update = change_run(document.snapshot, message="on")
    after, first = document.updated(update, instant(clock))
    again, receipt = after.updated(update, instant(clock))
    assert again is after
    assert receipt == first


def test_a_creation_sent_again_gets_the_first_answer_and_no_other_does(clock: ManualClock) -> None:
    new = new_run()
    born = RunDocument.born(new, instant(clock), 1)
    assert born.created_again(new) == born.receipt(1)
    with pytest.raises(RunExists):
        born.created_again(new_run(run_id=new.snapshot.run_id))


def test_what_no_reader_could_decode_is_never_born(clock: ManualClock) -> None:
    with pytest.raises(StoreRejected):
        RunDocument.born(new_run(vars={"half": "\ud800"}), instant(clock), 1)


def test_pages_follow_the_numbers_whatever_the_order_of_the_documents(clock: ManualClock) -> None:
    documents = [RunDocument.born(new_run(), instant(clock), n) for n in (2, 5, 1, 4, 3)]
    newest_first = sorted(documents, key=lambda one: -one.number)
    seen: list[str] = []
    cursor = None
    while True:
        page = newest_page(documents, RunFilter(), limit=2, cursor=cursor, instant=instant(clock))
        seen += [item.run_id for item in page.items]
        cursor = page.cursor
        if cursor is None:
            break
        assert len(page.items) == 2
    assert seen == [one.snapshot.run_id for one in newest_first]
