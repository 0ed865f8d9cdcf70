"""An expression and a template reach nothing but their variables, and cost little whatever they
say. The cases of the language of templates are in ``tests/actions/templates.yaml``."""

from __future__ import annotations

import time
import tracemalloc
from typing import Any

import pytest
from jinja2 import nodes

from tenure.model.errors import ExpressionError
from tenure.workflow import expressions, sandbox
from tenure.workflow.expressions import Expression, compile_condition, compile_expression
from tenure.workflow.sandbox import LONGEST_TEXT
from tenure.workflow.templates import MOST_TOKENS, compile_template

BIG = "x" * 1_000_000
LONG_LIST = ["x" * 100] * 9000
SCOPE: dict[str, Any] = {
    "text": "abc",
    "big": BIG,
    "other": "x" * 999_999 + "y",
    "list": [1, 2, 3],
    "long": LONG_LIST,
    "numbers": list(range(50_000)),
    "map": {"a": 1},
    "n": 3,
}


def refused(expression: str) -> str:
    """As an expression and as a condition."""
    with pytest.raises(ExpressionError):
        compile_condition(expression).evaluate(SCOPE)
    with pytest.raises(ExpressionError) as caught:
        compile_expression(expression).evaluate(SCOPE)
    return str(caught.value)


@pytest.mark.parametrize(
    "attack",
    [
        "''.__class__",
        "[].__class__.__base__.__subclasses__()",
        "map['__init__']",
        "'{0.__class__}'.format(1)",
        "'{a.__class__}'.format_map(map)",
        "'%s' % text",
        "text|attr('__class__')",
        "text.encode()",
        "text.__doc__",
        "n.real",
        "list.append(4)",
        "map.update({})",
        "map.get.__self__",
        "text.lower.__globals__",
        "text.lower == 1",
        "self",
        "self._TemplateReference__context",
        "range(9)",
        "lipsum()",
        "dict(a=1)",
        "n(*[1])",
        "text.replace(*['a', 'b'])",
        "list|map('upper')",
        "list|groupby(1)",
        "text|e",
        "list|random",
        "text is callable",
        "n is divisibleby(0)",
        "super()",
        "{% for x in list %}{% endfor %}",
        "}} {{ 7 * 7",
        "text }}",
        "{# comment #}",
        "lambda: 1",
        "[x for x in list]",
        "__import__('os')",
    ],
)
def test_an_attempt_to_get_out_is_refused(attack: str) -> None:
    assert refused(attack)


@pytest.mark.slow
@pytest.mark.parametrize(
    "attack",
    [
        "'a' * 10 ** 9",
        "10 ** 10 ** 10",
        "2 ** (2 ** (2 ** (2 ** 2)))",
        "1e300 * 1e300",
        "(-8) ** 0.5",
        "9223372036854775807 + 1",
        "9" * 400,
        "'a'|center(10 ** 9)",
        "'%1000000000d' % 1",
        "'a'|indent(10 ** 9)",
        "big|replace('x', 'xx')",
        "text.replace('', big)",
        "big ~ big",
        "[big, big]",
        "[big, big]|tojson",
        "big.join([text, text, text, text])",
        "long|join(big)",
        "(long + long)|sort",
        "[big, other, big, other, big]|sort",
        "numbers + [1]",
        " ~ ".join(["big[:9]|string"] * 3 + ["''"] * 200) + " ~ big" * 2,
        "big|split('x')",
        "big" + "|upper|lower" * 20,
        "numbers|round(10 ** 9)",
        "(" * 3000 + "1" + ")" * 3000,
        "[" * 60 + "]" * 60,
        "-" * 2000 + "1",
        "n" + ".a" * 700,
        "n if n else " * 200 + "n",
        "1" + " " * 5000,
        "'" + "[" * 2000 + "]" * 2000 + "'|fromjson",
    ],
    ids=lambda attack: attack[:40],
)
def test_an_attempt_to_be_expensive_is_refused(attack: str) -> None:
    tracemalloc.start()
    start = time.process_time()
    try:
        assert refused(attack)
        assert time.process_time() - start < 5
        assert tracemalloc.get_traced_memory()[1] < 30_000_000
    finally:
        tracemalloc.stop()


def test_one_evaluation_does_not_pay_for_another() -> None:
    expression = compile_expression("big|length + numbers|length")
    assert [expression.evaluate(SCOPE) for _ in range(20)] == [1_050_000] * 20


@pytest.mark.slow
@pytest.mark.parametrize(
    "attack",
    [
        "numbers|sort|sort|sort|sort|sort|sort",
        "[" + ", ".join(["'y' in long"] * 40) + "]",
        "[" + ", ".join(["big|upper|length"] * 30) + "]",
        " or ".join(["numbers == text"] * 30),
    ],
    ids=lambda attack: attack[:40],
)
def test_work_is_counted_whatever_it_is_spent_on(attack: str) -> None:
    start = time.process_time()
    assert "too much work" in refused(attack)
    assert time.process_time() - start < 5


def test_only_listed_kinds_of_syntax_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Expression("n + 1", shown_as="").evaluate(SCOPE) == 4
    monkeypatch.setattr(expressions, "_ALLOWED", (nodes.Name, nodes.Const))
    with pytest.raises(ExpressionError, match="add is not allowed in expressions"):
        Expression("n + 1", shown_as="")


def test_nothing_of_jinja_is_left_in_the_tables() -> None:
    box = sandbox.Sandbox(sandbox.FILTERS, sandbox.TESTS, sandbox.METHODS)
    assert box.globals == {}
    assert set(box.filters) == set(sandbox.FILTERS)
    assert set(box.tests) == set(sandbox.TESTS)
    ours = {**box.filters, **box.tests}.values()
    assert {function.__module__ for function in ours} <= {
        sandbox.__name__,
        "tenure.workflow.sandbox",
    }


MANY = list(range(5000))


def filled_in(template: str, **variables: Any) -> str:
    return compile_template(template, "t.j2").render(variables)


def refused_template(template: str, **variables: Any) -> str:
    with pytest.raises(ExpressionError) as caught:
        filled_in(template, **variables)
    return str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    "body",
    [
        "{% for a in many %}{% for b in many %}{% endfor %}{% endfor %}",
        "{% for a in many %}{% for b in many if b < 0 %}{% endfor %}{% endfor %}",
        "{% for a in many %}{{ '' if loop.length else '' }}{% if many == many %}{% endif %}"
        "{% endfor %}",
        "{% for a in many %}{{ many | tojson | length }}{% endfor %}",
        "{% for a in many %}{% if nested == [many] %}{% endif %}{% endfor %}",
    ],
)
def test_every_round_of_a_loop_is_paid_for(body: str) -> None:
    assert "too much work" in refused_template(body, many=MANY, nested=[MANY])


@pytest.mark.parametrize(
    "template",
    ["{% for a in many %}{{ big }}{% endfor %}", "{{ big }}" * 20, "{{ big ~ big ~ big }}"],
)
def test_the_text_does_not_grow_without_end(template: str) -> None:
    assert str(LONGEST_TEXT) in refused_template(template, many=MANY, big="x" * (LONGEST_TEXT // 2))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("{{ " + "a + " * MOST_TOKENS + "a }}", "the template is too large"),
        ("{{ " + "a + " * 100 + "a }}", "t.j2:1: this is nested too deeply"),
        ("{% if a %}" * 20 + "{% endif %}" * 20, "t.j2:1: this is nested too deeply"),
        ("x" * (LONGEST_TEXT + 1), "t.j2 is longer than"),
    ],
    ids=lambda value: value[:20],
)
def test_a_template_that_cannot_be_compiled_in_a_moment_is_refused(template: str, why: str) -> None:
    assert why in refused_template(template, a=1, b=[1])
