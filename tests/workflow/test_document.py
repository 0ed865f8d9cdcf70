"""Text to nodes: YAML 1.2 with places, JSON too, and nothing a file can do gets out of hand."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.workflow.yaml import MAX_DOCUMENT_BYTES, Enough, Reading, plain, read_document


def load(text: str) -> Any:
    reading = Reading("f")
    node = read_document(text, reading)
    assert reading.mistakes == []
    return plain(node)


def refused(text: str) -> str:
    reading = Reading("f")
    with pytest.raises(Enough):
        read_document(text, reading)
    return str(reading.mistakes[-1])


def mistaken(text: str) -> list[str]:
    reading = Reading("f")
    read_document(text, reading)
    return [str(mistake) for mistake in reading.mistakes]


# -- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("yes", "yes"),
        ("on", "on"),
        ("12:30", "12:30"),
        ("2001-01-01", "2001-01-01"),
        ("1_000", "1_000"),
        ("true", True),
        ("False", False),
        ("~", None),
        ("", None),
        ("null", None),
        ("5", 5),
        ("-5", -5),
        ("0x1F", 31),
        ("0o17", 15),
        ("0644", 420),
        ("089", 89),
        ("0", 0),
        ("1.10", 1.1),
        ("1e3", 1000.0),
        ("'5'", "5"),
        ("!!str 5", "5"),
        ("18446744073709551615", 18446744073709551615),
    ],
)
def test_a_scalar_is_read_as(written: str, value: Any) -> None:
    read = load(f"x: {written}")["x"]
    assert read == value
    assert type(read) is type(value)


def test_a_map_takes_what_it_does_not_say_from_the_maps_it_merges() -> None:
    text = "base: &b {x: 1, y: 2}\nother: &o {y: 3, z: 4}\nit:\n  <<: [*b, *o]\n  x: 5\n"
    assert load(text)["it"] == {"x": 5, "y": 2, "z": 4}


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (".nan", ".nan is not a finite number"),
        ("1e999", "1e999 is not a finite number"),
        ("18446744073709551616", "the number 18446744073709551616 is too large"),
        ("!!binary aGk=", "the tag !!binary is not supported here"),
        ("!mine x", "the tag !mine is not supported here"),
        ("!!int abc", "'abc' is not a whole number"),
    ],
)
def test_a_value_that_json_does_not_know_is_a_mistake(written: str, said: str) -> None:
    hint = "write it in quotes if it is meant as text"
    assert mistaken(f"a: 1\nx: {written}") == [f"f:2:4: x: {said}; {hint}"]


def test_duplicate_keys_are_mistakes_with_both_places() -> None:
    text = "a: 1\nb:\n- {c: 1, c: 2}\na: 3\n"
    assert mistaken(text) == [
        "f:3:10: b[0].c: 'c' is given twice; the first is on line 3",
        "f:4:1: a: 'a' is given twice; the first is on line 1",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1: x", "f:1:1: a key must be text: '1'; write it in quotes"),
        ("a: {~: x}", "f:1:5: a: a key must be text: '~'; write it in quotes"),
        ("? [a]\n: b", "f:1:3: a key must be text"),
        ("<<: 5", "f:1:5: ['<<']: '<<' takes a map or a list of maps"),
    ],
)
def test_a_key_must_be_text(text: str, said: str) -> None:
    assert mistaken(text) == [said]


# -- what is no YAML ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a:\n\t- b", "f:2:1: not valid YAML: found character that cannot start any token"),
        ("a: b: c", "f:1:5: not valid YAML: mapping values are not allowed"),
        ("a: 'b", "f:1:6: not valid YAML: found unexpected end of stream"),
        ("a: *x", "f:1:4: the alias *x has no anchor above it"),
        ("a: &a [*a]", "f:1:8: the alias *a contains itself"),
        ("", "f:1:1: the file is empty"),
        ("a: 1\n---\nb: 2", "f:2:1: a file holds one workflow; a second document begins here"),
        ("a: \x00", r"f:1:4: the character \x00 is not allowed in YAML"),
        ("a: 1\r\nb: é\rc: 2\n# 😀é\x07!", r"f:4:5: the character \x07 is not allowed in YAML"),
        ("\ufeffa:\n  \ufffe", r"f:2:3: the character \ufffe is not allowed in YAML"),
        ('{"a":\n"b\x1b"}', r"f:2:3: the character \x1b is not allowed in YAML"),
    ],
)
def test_what_cannot_be_read_says_where(text: str, said: str) -> None:
    assert refused(text).startswith(said)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("a:\n  - b: 1\n   c: 2", "check the indentation, and quote text that holds ': '"),
        ("a: [1, 2\n", "close the bracket or brace before this place, and put commas between"),
        ("a: 'b", "close the quote that was opened"),
        ("a:\n\t- b", "indented with spaces"),
        ("", "a workflow has at least a name and steps"),
        ("a: \x07", r'save the file as UTF-8, or write "\u0007" in double quotes'),
        ("a: \ud800", "save the file as UTF-8"),
    ],
)
def test_what_to_do_about_it_is_said(text: str, hint: str) -> None:
    assert hint in refused(text)


# -- JSON -----------------------------------------------------------------------------------------


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=50)
@given(st.dictionaries(TEXT, JSON, max_size=5), st.booleans(), st.sampled_from([None, 1, "\t"]))
def test_any_json_document_is_read_as_it_is(
    value: dict[str, Any], ascii_only: bool, indent: int | str | None
) -> None:
    assert load(json.dumps(value, ensure_ascii=ascii_only, indent=indent)) == value


# -- bounds ---------------------------------------------------------------------------------------

LAUGHS = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]\n"
    for old, new in zip("abcdefghijklmnop", "bcdefghijklmnopq", strict=True)
)


def test_a_billion_laughs_are_refused_before_anything_grows() -> None:
    tracemalloc.start()
    try:
        assert refused(LAUGHS).startswith("f:6:17: the file holds more than")
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("text", "limit", "hint"),
    [
        (LAUGHS, "more than 200000 values, with its aliases written out", "use fewer aliases"),
        (
            f"x: &t {'y' * 500_000}\nz: [{'*t, ' * 50}]",
            "more than 8388608 characters, with its aliases written out",
            "use fewer aliases",
        ),
        ("[" * 100_000, "nested more than 60 deep", "close the brackets"),
        ("é" * (MAX_DOCUMENT_BYTES // 2 + 1), "more than 1048576 bytes", "split it"),
        ("a: '" + "${{ x }}" * 10_001 + "'", "more than 10000 expressions", "split it"),
    ],
    ids=["laughs", "characters", "deep", "bytes", "expressions"],
)
def test_a_limit_is_named_with_what_to_do(text: str, limit: str, hint: str) -> None:
    reading = Reading("f")
    with pytest.raises(Enough):
        read_document(text, reading)
    assert limit in reading.mistakes[-1].message
    assert hint in (reading.mistakes[-1].hint or "")


@given(st.text(alphabet=st.sampled_from("ab:[]{}&*!|>'\"\n -?,<#%@`\t1.0~"), max_size=60))
def test_no_text_does_anything_but_being_read_or_refused(text: str) -> None:
    reading = Reading("f")
    try:
        node = read_document(text, reading)
    except Enough:
        assert reading.mistakes
    else:
        json.dumps(plain(node), allow_nan=False)
