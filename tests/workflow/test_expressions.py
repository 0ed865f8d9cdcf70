"""What expressions mean: their values, and what is said when they have none."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.model.errors import ExpressionError
from tenure.workflow.expressions import compile_condition, compile_expression
from tests.workflow.evaluating import SCOPE, failure, value

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
        ("names[0]", "b"),
        ("names[-1]", "c"),
        ("names[1:]", ["a", "c"]),
        ("release[0]", "1"),
        ("result + 1", 8),
        ("n + 1", 4),
        ("n - 5", -2),
        ("n * 2", 6),
        ("n / 2", 1.5),
        ("n // 2", 1),
        ("n % 2", 1),
        ("n ** 2", 9),
        ("-n", -3),
        ("'a' + 'b'", "ab"),
        ("names + ['d']", ["b", "a", "c", "d"]),
        ("'v' ~ release ~ ok ~ nothing ~ n", "v1.4true3"),
        ("[1, 'two']", [1, "two"]),
        ("(1, 2)", [1, 2]),
        ("{'a': {'b': n}}", {"a": {"b": 3}}),
        ("'yes' if ok else 'no'", "yes"),
        ("empty or 'fallback'", "fallback"),
        ("n and 'then'", "then"),
        ("not ok", False),
        ("true", True),
        ("TRUE", True),
        ("None", None),
        ("null", None),
        ("missing|default('x')", "x"),
        ("missing.part[0].more|default('x')", "x"),
        ("zone.missing|d(1)", 1),
        ("empty|default('x', true)", "x"),
        ("missing is defined", False),
        ("zone.name is defined", True),
        ("missing is undefined", True),
        ("n is number and release is string and zone is mapping", True),
        ("release|upper", "1.4"),
        ("'Ab'|lower ~ 'Ab'|upper ~ 'ab cd'|title ~ 'ab'|capitalize", "abABAb CdAb"),
        ("' x '|trim", "x"),
        ("names|length", 3),
        ("names|first ~ names|last", "bc"),
        ("names|sort", ["a", "b", "c"]),
        ("names|sort(reverse=true)", ["c", "b", "a"]),
        ("numbers|sort", [2, 3, "10"]),
        ("numbers|max", "10"),
        ("numbers|min", 2),
        ("numbers|sum", 15),
        ("names|reverse", ["c", "a", "b"]),
        ("names|join(', ')", "b, a, c"),
        ("[1, true, none]|join('-')", "1-true-"),
        ("['a', 'b', 'a']|unique", ["a", "b"]),
        ("'a,b'|split(',')", ["a", "b"]),
        ("'a  b'|split", ["a", "b"]),
        ("'a-b'|replace('-', '+')", "a+b"),
        ("COUNT|int + 1", 6),
        ("release|float", 1.4),
        ("2.6|int", 2),
        ("2.567|round(2)", 2.57),
        ("2.5|round", 2),
        ("-3|abs", 3),
        ("zone|keys", ["items", "name", "inner"]),
        ("{'a': 1}|values", [1]),
        ("zone|list", ["items", "name", "inner"]),
        ("zone.inner|tojson", '{"deep":[1,2]}'),
        ("json|fromjson", {"a": [1, 2]}),
        ("path|basename ~ path|dirname", "app.log/var/log"),
        ("n|string", "3"),
        ("no|bool", False),
        ("'a,b'.split(',')", ["a", "b"]),
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


def test_an_expression_is_compiled_once() -> None:
    assert compile_expression("1 + 1") is compile_expression("1 + 1")


# -- what goes wrong ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("releas", "'releas' is not defined in 'releas'; did you mean 'release'? or quote it"),
        ("prod", "'prod' is not defined in 'prod'; quote it ('prod') if it is meant as text"),
        ("release == prod", "'prod' is not defined in 'release == prod'; quote it ('prod')"),
        ("[prod]", "'prod' is not defined"),
        ("{'a': prod}", "'prod' is not defined"),
        ("prod ~ 'x'", "'prod' is not defined"),
        ("prod + 1", "'prod' is not defined"),
        ("-prod", "'prod' is not defined"),
        ("prod|lower", "'prod' is not defined"),
        ("names|join(prod)", "'prod' is not defined"),
        ("prod is string", "'prod' is not defined"),
        ("names[prod]", "'prod' is not defined"),
        ("prod.lower()", "'prod' is not defined"),
        ("zone.nam", "the map has no 'nam'; did you mean 'name'? in 'zone.nam'"),
        ("zone.qqqq", "the map has no 'qqqq' (it has items, name, inner)"),
        ("names[7]", "there is no [7]: 3 long"),
        ("names.foo", "a list has no 'foo'"),
        ("release.foo", "text has no 'foo' (there is capitalize"),
        ("n.foo", "a number has no 'foo'"),
        ("release.lower", "is not a value: a method needs its parentheses"),
        ("COUNT + 1", "+ needs numbers, not text and a number in 'COUNT + 1'; "
         "join text with ~; make a number of text with |int or |float"),
        ("release > 'abc'", "text and text cannot be ordered: both must be numbers"),
        ("ok > 0", "true or false and a number cannot be ordered"),
        ("5 in n", "nothing can be in a number"),
        ("zone + 1", "+ needs numbers, not a map and a number"),
        ("names * 2", "* needs numbers, not a list and a number"),
        ("endless", "the result is not a finite number"),
        ("[endless]", "the result is not a finite number"),
        ("endless|float", "a number is too large"),
        ("[endless]|sum", "the sum is too large"),
        ("'ab'|split('')", "split needs a text to split at, or none for white space"),
        ("'ab'|replace('', 'x')", "replace needs a text to look for"),
        ("1 / 0", "division by zero"),
        ("'x'|int", "text is no number"),
        ("'x'|fromjson", "text is no JSON"),
        ("n|join", "a number is no list"),
        ("n|keys", "a number is no map"),
        ("n|length", "a number has no length"),
        ("[]|first", "there is nothing in an empty list"),
        ("[]|max", "there is nothing in an empty list"),
        ("names|replace", "missing 2 required positional arguments"),
        ("'x' if off", "an 'if' needs its 'else'"),
        ("{1: 2}", "the keys of a map must be text"),
        ("n()", "there are no functions: use a filter, like name|lower"),
        ("zone.name()", "text cannot be called"),
        ("self", "'self' is no variable: Jinja keeps the name for itself"),
        ("self is string", "'self' is no variable"),
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


def test_a_long_expression_is_cut_in_messages() -> None:
    assert len(failure("missing + " + " + ".join("1" * 300))) < 250


@pytest.mark.parametrize(
    "expression",
    [
        "s + 1",
        "-s",
        "s > 1",
        "1 in s|int",
        "s|fromjson",
        "s|keys",
        "s|sum",
        "s|round",
        "s.foo",
        "s.x()",
        "s[99]",
        "s|length > s",
        "[s]|max",
        "s * 2",
        "n + s|float",
        "s|int(1, 2)",
    ],
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


@given(st.text(max_size=40))
def test_any_text_compiles_or_is_refused(text: str) -> None:
    for compile_text in (compile_expression, compile_condition):
        with suppress(ExpressionError):  # any other error would be ours
            compile_text(text).evaluate(SCOPE)


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


@pytest.mark.parametrize(
    "source", ["9**9**9", "1 / 0", "'a' * 3", "-'a'", "n + 1 / 0", "(1 - 'a')|string", "1 / 0 > n"]
)
def test_what_never_has_a_value_is_no_expression(source: str) -> None:
    with pytest.raises(ExpressionError):
        compile_expression(source)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("n or 1 / 0", 3),
        ("empty and 1 / 0", ""),
        ("n if ok else 9**9**9", 3),
        ("(2 - 4) * 2 ** 3", -16),
    ],
)
def test_what_may_have_a_value_is_one(source: str, expected: Any) -> None:
    assert value(source) == expected
