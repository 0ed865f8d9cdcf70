"""When a store of PostgreSQL may take a hint for the answer, and when it has to look."""

from __future__ import annotations

import pytest

from tenure.model.query import topic_of_queue
from tenure.stores.postgres.offers import Offers

WEB, DB = topic_of_queue("web"), topic_of_queue("db")


class Idle:
    """Somebody who looked into the queues ``web`` and ``db`` and found nothing."""

    def __init__(self) -> None:
        self.now = 0.0
        self.offers = Offers(lambda: self.now)
        self.offers.look(["web", "db"])


@pytest.fixture
def idle() -> Idle:
    return Idle()


def test_one_hint_with_a_record_is_the_answer_once(idle: Idle) -> None:
    idle.offers.hear([WEB], b"run")
    assert idle.offers.only_one(["web", "db"]) == b"run"
    assert idle.offers.only_one(["web", "db"]) is None


def test_next_hint_is_the_next_answer(idle: Idle) -> None:
    idle.offers.hear([WEB], b"run")
    idle.offers.only_one(["web", "db"])
    idle.offers.hear([DB], b"another")
    assert idle.offers.only_one(["web", "db"]) == b"another"


@pytest.mark.parametrize("second", [b"another", None])
@pytest.mark.parametrize("topic", [WEB, DB])
def test_of_two_hints_nothing_follows(idle: Idle, topic: str, second: bytes | None) -> None:
    idle.offers.hear([WEB], b"run")
    idle.offers.hear([topic], second)
    assert idle.offers.only_one(["web", "db"]) is None


def test_of_a_hint_without_a_record_nothing_follows(idle: Idle) -> None:
    idle.offers.hear([WEB])
    assert idle.offers.only_one(["web", "db"]) is None


def test_who_asks_for_a_queue_nobody_looked_into_is_not_answered(idle: Idle) -> None:
    idle.offers.hear([WEB], b"run")
    assert idle.offers.only_one(["web", "mail"]) is None


def test_run_of_another_queue_is_no_answer(idle: Idle) -> None:
    idle.offers.hear([DB], b"run")
    assert idle.offers.only_one(["web"]) is None
    assert idle.offers.only_one(["db"]) == b"run"


def test_where_more_was_found_a_hint_is_no_answer(idle: Idle) -> None:
    idle.offers.found_more(["web"])
    idle.offers.hear([WEB], b"run")
    assert idle.offers.only_one(["web"]) is None


def test_hint_from_before_a_look_is_no_answer(idle: Idle) -> None:
    idle.offers.hear([WEB], b"run")
    idle.offers.look(["web"])
    assert idle.offers.only_one(["web"]) is None


def test_after_a_line_was_made_anew_a_hint_is_no_answer(idle: Idle) -> None:
    idle.offers.hear([WEB], b"run")
    idle.offers.may_have_missed_some()
    idle.offers.hear([WEB], b"another")
    assert idle.offers.only_one(["web"]) is None


def test_old_hint_is_no_answer(idle: Idle) -> None:
    idle.offers.hear([WEB], b"run")
    idle.now = 1.5
    assert idle.offers.only_one(["web"]) is None
