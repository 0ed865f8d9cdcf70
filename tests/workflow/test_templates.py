"""Text with values in it, taken apart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.model.errors import ExpressionError
from tenure.workflow.placeholders import MISSING, Named, split_template


def parts(text: str, *, escapes: bool = True) -> list[str]:
    """Values in angle brackets."""
    return [
        part if isinstance(part, str) else f"<{part.raw}>"
        for part in split_template(text, escapes=escapes)
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", [""]),
        ("plain $5 {{ x }} $(y) ${", ["plain $5 {{ x }} $(y) ${"]),
        ("${a}", ["<${a}>"]),
        ("x${a.b-c.0}y", ["x", "<${a.b-c.0}>", "y"]),
        ("${{ a }}", ["<${{ a }}>"]),
        ("${{a}}${b}", ["<${{a}}>", "<${b}>"]),
        ("${{ {'a': {'b': '}}'}} }}!", ["<${{ {'a': {'b': '}}'}} }}>", "!"]),
        ("${{ \"}}\" ~ '}}' }}", ["<${{ \"}}\" ~ '}}' }}>"]),
        ("${x:-default}", ["${x:-default}"]),
        ("${x%%.*}${#x}${x[0]}", ["${x%%.*}${#x}${x[0]}"]),
        ("${a b}", ["${a b}"]),
        ("${}", ["${}"]),
        ("$${a}", ["${a}"]),
        ("$${{ a }}", ["${{ a }}"]),
        ("$$${a}", ["$${a}"]),
        ("a $${b} ${c} $${{ d }}", ["a ${b} ", "<${c}>", " ${{ d }}"]),
    ],
)
def test_split(text: str, expected: list[str]) -> None:
    assert parts(text) == expected


def test_in_a_script_only_double_braces_are_escaped() -> None:
    assert parts("$${a} $${{ b }}", escapes=False) == ["$", "<${a}>", " ${{ b }}"]


@pytest.mark.parametrize(
    ("text", "offset", "said"),
    [
        ("ab ${{ x", 3, "'${{' is not closed by '}}'"),
        ("${{ 'x }}", 0, "'${{' is not closed by '}}'"),
        ("${{ a }} ${{ b( }}", 9, "the expression ends too early in '${{ b( }}'"),
        ("${{ }}", 0, "the expression ends too early in '${{ }}'"),
    ],
)
def test_the_error_says_where(text: str, offset: int, said: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        split_template(text)
    assert caught.value.offset == offset
    assert caught.value.message == said


@given(st.text(alphabet="ab${}.' -", max_size=30))
def test_nothing_gets_lost(text: str) -> None:
    try:
        found = split_template(text, escapes=False)
    except ExpressionError:
        return
    raw = "".join(part if isinstance(part, str) else part.raw for part in found)
    assert raw == text.replace("$${{", "${{")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("a", 1),
        ("b.c", "x"),
        ("b.list.1", "two"),
        ("nope", MISSING),
        ("b.nope", MISSING),
        ("b.list.9", MISSING),
        ("b.list.x", MISSING),
        ("a.b", MISSING),
    ],
)
def test_look_up(path: str, value: object) -> None:
    scope = {"a": 1, "b": {"c": "x", "list": ["one", "two"]}}
    assert Named("", tuple(path.split(".")), 0).look_up(scope) == value
