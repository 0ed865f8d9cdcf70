"""No secret comes out, whatever it is cut into; everything else comes out as it was."""

from __future__ import annotations

import json
import re
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tenure.runtime.masking import Masks

few_letters = st.text("ab\n", min_size=1, max_size=6)
some_text = st.text("ab\nc", max_size=60)


def masked(masks: Masks, data: bytes, cuts: list[int]) -> bytes:
    stream = masks.stream()
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    pieces = [stream.feed(data[start:end]) for start, end in pairwise(places)]
    return b"".join(pieces) + stream.finish()


def plainly(secrets: list[str], text: str) -> str:
    """Mark every letter of every occurrence, then show each marked stretch as one mask."""
    marked = [False] * len(text)
    for secret in {form for each in secrets for form in (each, each.strip()) if form}:
        for place in range(len(text)):
            if text.startswith(secret, place):
                marked[place : place + len(secret)] = [True] * len(secret)
    shown = "".join("\0" if hide else letter for letter, hide in zip(text, marked, strict=True))
    return re.sub("\0+", "***", shown)


@given(st.lists(few_letters, max_size=3), some_text, st.lists(st.integers(0, 60), max_size=8))
@example(["ab", "abab"], "xababab", [2, 3, 4, 5, 6])
@example(["aa"], "aaaaaaaa", [1, 2, 3, 4, 5, 6, 7])
@example(["ab", "bc"], "abc", [1, 2])
def test_chunks_make_no_difference(secrets: list[str], text: str, cuts: list[int]) -> None:
    masks = Masks(secrets)
    assert masked(masks, text.encode(), cuts).decode() == plainly(secrets, text)
    assert masks.text(text) == plainly(secrets, text)


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=8))
def test_bytes_without_a_secret_come_out_byte_for_byte(data: bytes, cuts: list[int]) -> None:
    assert masked(Masks(["a secret that is not there"]), data, cuts) == data


def test_nothing_is_held_back_that_cannot_become_a_secret() -> None:
    stream = Masks(["hunter2"]).stream()
    assert stream.feed(b"the password is ") == b"the password is "
    assert stream.feed(b"hunt") == b""
    assert stream.feed(b"ing") == b"hunting"
    assert stream.feed(b"hunter2 hun") == b"*** "
    assert stream.finish() == b"hun"


@pytest.mark.slow
def test_memory_is_bounded_however_long_the_secrets_overlap() -> None:
    stream = Masks(["aa"]).stream()
    for _ in range(100):
        stream.feed(b"a" * 10_000)
        assert len(stream._held) <= 1
    assert stream.finish() == b""


@pytest.mark.parametrize("secret", ['quo"te\\d', "päss", "tab\there", "line one\nline two"])
def test_a_secret_inside_json_is_found_too(secret: str) -> None:
    for ascii_only in (True, False):
        shown = json.dumps({"password": secret}, ensure_ascii=ascii_only)
        assert Masks([secret]).text(shown) == '{"password": "***"}'


def test_lines_of_a_long_secret_are_secrets() -> None:
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkq\nx\n-----END KEY-----\n"
    masks = Masks([key])
    assert masks.text("> MIIEvQIBADANBgkq <") == "> *** <"
    assert masks.text("x marks the spot") == "x marks the spot"
    assert masks.text(f"key: {key.strip()}!") == "key: ***!"


def test_without_secrets_nothing_changes() -> None:
    masks = Masks([""])
    assert not masks
    assert masks.text("anything") == "anything"
    assert masked(masks, b"any\xffthing", [2]) == b"any\xffthing"


def test_values_that_hold_a_secret_are_recognised() -> None:
    masks = Masks(["hunter2", 4711])
    assert masks.is_in("my hunter2!")
    assert masks.is_in({"deep": [{"down": "hunter2"}]})
    assert masks.is_in({"hunter2": 1})
    assert masks.is_in(4711)
    assert not masks.is_in({"deep": ["hunter3", 1, None, 2.5]})
    assert not Masks([]).is_in("anything")
