"""Run ids grow whatever the clock does, and a caller's id is looked at before it is used."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.model.errors import InvalidRunId, TenureError
from tenure.model.ids import RunIds, check_run_id, encode_ulid

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


def test_ids_of_one_millisecond_count_up() -> None:
    ids = source([1000] * 2050, [FULL - 2048])
    made = [ids.next() for _ in range(2050)]
    assert made == [encode_ulid((1000 << 80) + FULL - 2048 + number) for number in range(2050)]


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
        "a" * 8,
        "Z" * 128,
        "0.......",
        "deploy-2026.01.02_a:b",
        "9" + "-" * 127,
        "01ARYZ6S41TSV4RRFFQ69G5FAV",
    ],
)
def test_good_ids_pass_unchanged(run_id: str) -> None:
    assert check_run_id(run_id) == run_id


@pytest.mark.parametrize(
    "run_id",
    [
        "",
        "a" * 7,
        "a" * 129,
        "a" * 100_000,
        "-aaaaaaaa",
        ".aaaaaaaa",
        "_aaaaaaaa",
        ":aaaaaaaa",
        "../../etc/passwd",
        "..%2f..%2fetc",
        "runs/2026/0001",
        "runs\\2026\\0001",
        "C:\\Windows\\x",
        "run 00001",
        " run-00001",
        "run-00001 ",
        "run-00001\n",
        "run-00001\r\n",
        "run\n-00001",
        "run-00001\x00",
        "rün-00001",
        "run-0000１",
        "ｒun-00001",
        "run-0000²",
        "run-٠٠٠٠١",
        "run-00001\u200b",
        "run-\ud800-00001",
        "run-00001;rm",
        "run-00001'--",
        "run-00001$(x)",
        "run-00001*",
        "run-00001~",
        "run+00001",
        "run=00001",
        "run@00001",
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


@settings(deadline=None)
@given(st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._:-]{7,127}\Z"))
def test_every_text_the_rule_allows_passes(text: str) -> None:
    assert check_run_id(text) == text
