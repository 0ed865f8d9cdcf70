"""Every expression and template on the page gives what the page says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import yaml

from tenure.model.errors import ExpressionError
from tenure.workflow import sandbox
from tenure.workflow.expressions import compile_expression
from tenure.workflow.templates import compile_template
from tests.docs.fences import FENCE, ROOT, blocks

PAGE = ROOT / "docs" / "reference" / "expressions.md"


class Line(NamedTuple):
    expression: str
    expected: str

    def __str__(self) -> str:
        return self.expression


def values() -> dict[str, Any]:
    (block,) = blocks("yaml values")
    return dict(yaml.safe_load(block.body))


def lines() -> Iterator[Line]:
    for fence in FENCE.finditer(PAGE.read_text()):
        if fence["info"] == "text evaluated":
            for line in fence["body"].splitlines():
                expression, arrow, expected = line.partition(" → ")
                assert arrow, line
                yield Line(expression, expected)


@pytest.mark.parametrize("line", [*lines()], ids=str)
def test_the_expression_gives_what_the_page_says(line: Line) -> None:
    said = line.expected.removeprefix("error: ")
    if said == line.expected:
        assert compile_expression(line.expression).evaluate(values()) == json.loads(said)
        return
    with pytest.raises(ExpressionError) as caught:
        compile_expression(line.expression).evaluate(values())
    message, _, hint = said.partition("; ")
    assert str(caught.value).startswith(message)
    assert hint in str(caught.value)


@pytest.mark.parametrize("block", blocks("jinja filled", "text filled"), ids=str)
def test_the_template_becomes_what_the_page_shows(block: Any) -> None:
    assert compile_template(block.body, "page").render(values()) == block.below


def test_every_filter_test_and_method_has_its_line() -> None:
    said = "\n".join(line.expression for line in lines())
    words = {f"| {name}" for name in sandbox.FILTERS if name != "d"}
    words |= {f"is {name}" for name in sandbox.TESTS}
    words |= {f".{name}(" for methods in sandbox.METHODS.values() for name in methods}
    assert sorted(word for word in words if word not in said) == []
