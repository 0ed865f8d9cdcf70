"""What expressions and conditions mean, also in the older spelling, and what is said when they have
no value."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.model.errors import ExpressionError
from tenure.workflow.expressions import compile_condition, compile_expression

SCOPE: dict[str, Any] = {
    "COUNT": "5",
    "release": "1.4",
    "n": 3,
    "ok": True,
    "off": False,
    "nothing": None,
    "empty": "",
    "no": "no",
    "names": ["b", "a", "c"],
    "numbers": [3, "10", 2],
    "zone": {"items": 1, "name": "eu", "inner": {"deep": [1, 2]}},
    "hosts": {"web1": {"KEY": "v"}},
    "result": 7,
    "path": "/var/log/app.log",
    "json": '{"a": [1, 2]}',
    "endless": float("inf"),
}


def value(expression: str) -> Any:
    return compile_expression(expression).evaluate(SCOPE)


def holds(condition: str) -> bool:
    return compile_condition(condition).holds(SCOPE)


def failure(expression: str) -> str:
    with pytest.raises(ExpressionError) as caught:
        value(expression)
    return str(caught.value)


# -- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("release", "1.4"),
        ("n", 3),
        ("nothing", None),
        ("names", ["b", "a", "c"]),
        ("zone.name", "eu"),
        ("zone['name']", "eu"),
        ("zone.items", 1),
        ("zone.inner.deep[1]", 2),
        ("hosts['web1'].KEY", "v"),
        ("names[-1]", "c"),
        ("names[1:]", ["a", "c"]),
        ("result + 1", 8),
        ("n - 5", -2),
        ("n * 2", 6),
        ("n / 2", 1.5),
        ("n % 2", 1),
        ("n ** 2", 9),
        ("-n", -3),
        ("'a' + 'b'", "ab"),
        ("names + ['d']", ["b", "a", "c", "d"]),
        ("'v' ~ release ~ ok ~ nothing ~ n", "v1.4true3"),
        ("[1, 'two']", [1, "two"]),
        ("{'a': {'b': n}}", {"a": {"b": 3}}),
        ("'yes' if ok else 'no'", "yes"),
        ("empty or 'fallback'", "fallback"),
        ("not ok", False),
        ("true", True),
        ("null", None),
        ("missing|default('x')", "x"),
        ("missing.part[0].more|default('x')", "x"),
        ("zone.missing|d(1)", 1),
        ("empty|default('x', true)", "x"),
        ("missing is defined", False),
        ("'Ab'|lower ~ 'Ab'|upper ~ 'ab cd'|title ~ 'ab'|capitalize", "abABAb CdAb"),
        ("' x '|trim", "x"),
        ("names|length", 3),
        ("names|first ~ names|last", "bc"),
        ("names|sort", ["a", "b", "c"]),
        ("names|sort(reverse=true)", ["c", "b", "a"]),
        ("numbers|sort", [2, 3, "10"]),
        ("numbers|min", 2),
        ("numbers|sum", 15),
        ("names|reverse", ["c", "a", "b"]),
        ("names|join(', ')", "b, a, c"),
        ("[1, true, none]|join('-')", "1-true-"),
        ("['a', 'b', 'a']|unique", ["a", "b"]),
        ("'a,b'|split(',')", ["a", "b"]),
        ("'a-b'|replace('-', '+')", "a+b"),
        ("COUNT|int + 1", 6),
        ("release|float", 1.4),
        ("2.6|int", 2),
        ("2.567|round(2)", 2.57),
        ("-3|abs", 3),
        ("zone|keys", ["items", "name", "inner"]),
        ("zone.inner|tojson", '{"deep":[1,2]}'),
        ("json|fromjson", {"a": [1, 2]}),
        ("path|basename ~ path|dirname", "app.log/var/log"),
        ("no|bool", False),
        ("path.startswith('/var') and path.endswith('.log')", True),
        ("'-'.join(names)", "b-a-c"),
        ("path.removeprefix('/var').removesuffix('.log')", "/log/app"),
        ("' x '.strip() ~ 'xax'.lstrip('x') ~ 'xax'.rstrip('x')", "xaxxa"),
        ("{'a': 1}.get('b', 2)", 2),
        ("{'a': 1}.items()", [["a", 1]]),
    ],
)
def test_value(expression: str, expected: Any) -> None:
    found = value(expression)
    assert found == expected
    assert type(found) is type(expected)


def test_the_names_it_reads_are_known() -> None:
    assert compile_expression("a.b + c[d] if e is defined else 'f'").names == set("acde")
    assert compile_expression("x").names == {"x"}
    assert compile_condition("${a.b} == TRUE && c").names == {"a", "c"}


# -- what goes wrong ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("releas", "'releas' is not defined in 'releas'; did you mean 'release'? or quote it"),
        ("prod", "'prod' is not defined in 'prod'; quote it ('prod') if it is meant as text"),
        ("release == prod", "'prod' is not defined in 'release == prod'; quote it ('prod')"),
        ("prod ~ 'x'", "'prod' is not defined"),
        ("zone.nam", "the map has no 'nam'; did you mean 'name'? in 'zone.nam'"),
        ("names[7]", "there is no [7]: 3 long"),
        ("names.foo", "a list has no 'foo'"),
        ("release.foo", "text has no 'foo' (there is capitalize"),
        ("release.lower", "is not a value: a method needs its parentheses"),
        ("COUNT + 1", "+ needs numbers, not text and a number in 'COUNT + 1'; "
         "join text with ~; make a number of text with |int or |float"),
        ("release > 'abc'", "text and text cannot be ordered: both must be numbers"),
        ("5 in n", "nothing can be in a number"),
        ("names * 2", "* needs numbers, not a list and a number"),
        ("endless", "the result is not a finite number"),
        ("endless|float", "a number is too large"),
        ("[endless]|sum", "the sum is too large"),
        ("'ab'|split('')", "split needs a text to split at, or none for white space"),
        ("'ab'|replace('', 'x')", "replace needs a text to look for"),
        ("1 / 0", "division by zero"),
        ("'x'|int", "text is no number"),
        ("'x'|fromjson", "text is no JSON"),
        ("n|join", "a number is no list"),
        ("n|length", "a number has no length"),
        ("[]|first", "there is nothing in an empty list"),
        ("'x' if off", "an 'if' needs its 'else'"),
        ("{1: 2}", "the keys of a map must be text"),
        ("n()", "there are no functions: use a filter, like name|lower"),
        ("zone.name()", "text cannot be called"),
        ("self", "'self' is no variable: Jinja keeps the name for itself"),
        ("1.2.3", "a number has no parts; quote it if it is meant as text"),
        ("n ~", "the expression ends too early"),
        ("n n", "'n' was not expected here; quote it if it is meant as text"),
        ("'n", "a quote is not closed"),
        ("n ? 1", "unexpected char '?' at 2"),
        ("n\n+\n?", "unexpected char '?' at 4 (line 3 of the expression)"),
        ("n|lowr", "no filter named 'lowr'; did you mean 'lower'?"),
        ("n is strin", "no test named 'strin'; did you mean 'string'?"),
        ("", "the expression ends too early"),
    ],
)  # fmt: skip
def test_the_error_says(expression: str, said: str) -> None:
    assert said in failure(expression)


@pytest.mark.parametrize(
    "expression",
    ["s + 1", "s > 1", "1 in s|int", "s|fromjson", "s.foo", "s[99]", "s|length > s", "n + s|float"],
)
def test_no_error_shows_a_value(expression: str) -> None:
    """It could be a secret, and the message goes into the record."""
    with pytest.raises(ExpressionError) as caught:
        compile_expression(expression).evaluate({"s": "hunter2", "n": 98765})
    assert "hunter2" not in str(caught.value)
    assert "98765" not in str(caught.value)


# -- whatever the values --------------------------------------------------------------------------

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10)


@given(SCALARS, SCALARS)
def test_equality_is_symmetric_and_never_fails(left: Any, right: Any) -> None:
    scope = {"a": left, "b": right}
    equal = compile_expression("a == b").evaluate(scope)
    assert compile_expression("b == a").evaluate(scope) is equal
    assert compile_expression("a != b").evaluate(scope) is not equal


@given(SCALARS, SCALARS, st.sampled_from(["<", "<=", ">", ">="]))
def test_ordering_is_refused_or_consistent(left: Any, right: Any, operator: str) -> None:
    scope = {"a": left, "b": right}
    opposite = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}[operator]
    try:
        found = compile_expression(f"a {operator} b").evaluate(scope)
    except ExpressionError:
        with pytest.raises(ExpressionError):
            compile_expression(f"b {opposite} a").evaluate(scope)
    else:
        assert compile_expression(f"b {opposite} a").evaluate(scope) is found


WORDS = (
    "names zone n release COUNT missing . , ( ) [ ] { } : | ~ + - * ** / // % == != < > in not "
    "and or if else is defined lower join split first 'a' '' 1 2.5 true none && || ! ${n} "
    "__class__ format items get"
)


@given(st.lists(st.sampled_from(WORDS.split()), max_size=12))
def test_any_row_of_words_compiles_or_is_refused(words: list[str]) -> None:
    text = " ".join(words)
    for compile_text in (compile_expression, compile_condition):
        with suppress(ExpressionError):  # any other error would be ours
            compile_text(text).evaluate(SCOPE)


# -- constants ------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["9**9**9", "1 / 0", "n + 1 / 0", "1 / 0 > n"])
def test_what_never_has_a_value_is_no_expression(source: str) -> None:
    with pytest.raises(ExpressionError):
        compile_expression(source)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("COUNT > 3", True),
        ("COUNT > 10", False),
        ("1 < COUNT < 6", True),
        ("'01' == 1", True),
        ("'1.0' == '1'", True),
        ("'1e1' == '10'", False),
        ("release == '1.4'", True),
        ("ok == true", True),
        ("ok == 1", False),
        ("nothing == none", True),
        ("nothing == ''", True),
        ("names == ['b', 'a', 'c']", True),
        ("names == 'b'", False),
        ("'a' in names", True),
        ("COUNT in [4, 5]", True),
        ("'name' in zone", True),
        ("'12345678901234567890' == '12345678901234567891'", False),
    ],
)
def test_comparison(condition: str, expected: bool) -> None:
    assert holds(condition) is expected
    assert value(condition) is expected


@pytest.mark.parametrize(
    ("operand", "expected"),
    [
        ("ok", True),
        ("n", True),
        ("0", False),
        ("''", False),
        ("'false'", False),
        ("'0'", False),
        ("'no'", False),
        ("'anything'", True),
        ("[]", False),
        ("names", True),
    ],
)
def test_a_lone_operand(operand: str, expected: bool) -> None:
    assert holds(operand) is expected
    assert holds(f"!{operand}") is not expected
    assert holds(f"{operand} && true") is expected
    assert holds(f"{operand} or false") is expected
    assert holds(f"true if {operand} else false") is expected


@pytest.mark.parametrize(
    ("older", "expected"),
    [
        ("", True),
        ("yes", True),
        ("NO", False),
        ("false", False),
        ("${COUNT} == 5", True),
        ("${zone.inner.deep} == [1, 2]", True),
        ("${hosts.web1.KEY} == v || ok", None),
        ("n == 3 && release == '1.4'", True),
        ("n == 4 || release == '1.4'", True),
        ("!off && n != 4", True),
        ("'a && b || !c ${d}'|length == 17", True),
        ("${{ n == 3 }}", True),
        ("ok == TRUE", True),
    ],
)
def test_the_older_spelling(older: str, expected: bool | None) -> None:
    if expected is None:
        with pytest.raises(ExpressionError, match="'v' is not defined"):
            holds(older)
    else:
        assert holds(older) is expected


def test_what_need_not_be_known_is_not_asked() -> None:
    assert holds("off and missing") is False
    assert holds("ok or missing") is True
