"""Templates of files. The cases of the language are in ``tests/actions/templates.yaml``."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.model.errors import ExpressionError
from tenure.workflow.sandbox import LONGEST_TEXT
from tenure.workflow.templates import MOST_TOKENS, compile_template

MANY = list(range(5000))


def rendered(template: str, **variables: Any) -> str:
    return compile_template(template, "t.j2").render(variables)


def refused(template: str, **variables: Any) -> str:
    with pytest.raises(ExpressionError) as caught:
        rendered(template, **variables)
    return str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    "body",
    [
        "{% for a in many %}{% for b in many %}{% endfor %}{% endfor %}",
        "{% for a in many %}{% for b in many if b < 0 %}{% endfor %}{% endfor %}",
        "{% for a in many %}{% for b in many %}{{ '' }}{% endfor %}{% endfor %}",
        "{% for a in many %}{% for b in many %}{% set c = b %}{% endfor %}{% endfor %}",
        "{% for a in many %}{{ '' if loop.length else '' }}{% if many == many %}{% endif %}"
        "{% endfor %}",
        "{% for a in many %}{{ many | tojson | length }}{% endfor %}",
        "{% for a in many %}{% if nested == [many] %}{% endif %}{% endfor %}",
        "{% for a in many %}" + "{% if a %}{% endif %}" * 1000 + "{% endfor %}",
    ],
)
def test_every_round_of_a_loop_is_paid_for(body: str) -> None:
    assert "too much work" in refused(body, many=MANY, nested=[MANY])


def test_a_loop_of_ordinary_size_is_no_trouble() -> None:
    hosts = [{"name": f"web{n}", "port": n} for n in range(5000)]
    text = rendered("{% for h in hosts %}{{ h.name }}:{{ h.port }}\n{% endfor %}", hosts=hosts)
    assert text.count("\n") == 5000


@pytest.mark.parametrize(
    "template",
    ["{% for a in many %}{{ big }}{% endfor %}", "{{ big }}" * 20, "{{ big ~ big ~ big }}"],
)
def test_the_text_does_not_grow_without_end(template: str) -> None:
    assert str(LONGEST_TEXT) in refused(template, many=MANY, big="x" * (LONGEST_TEXT // 2))


def test_a_text_may_be_as_long_as_it_may() -> None:
    assert len(rendered("{{ big }}", big="x" * LONGEST_TEXT)) == LONGEST_TEXT
    assert "longer" in refused("{{ big }}y", big="x" * LONGEST_TEXT)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("{{ a }}" * MOST_TOKENS, "t.j2:1: the template is too large"),
        ("{{ " + "a + " * MOST_TOKENS + "a }}", "the template is too large"),
        ("{{ " + "a + " * 100 + "a }}", "t.j2:1: this is nested too deeply"),
        ("{{ " + "(" * 5000, "too deeply"),
        ("{% if a %}" * 20 + "{% endif %}" * 20, "t.j2:1: this is nested too deeply"),
        ("{% for a in b %}" * 20 + "{% endfor %}" * 20, "t.j2:1: this is nested too deeply"),
        ("{% if a %}" * 3000, "too deeply"),
        ("x" * (LONGEST_TEXT + 1), "t.j2 is longer than"),
    ],
    ids=lambda value: value[:20],
)
def test_a_template_that_cannot_be_compiled_in_a_moment_is_refused(template: str, why: str) -> None:
    assert why in refused(template, a=1, b=[1])


def test_blocks_as_deep_as_allowed_compile() -> None:
    deep = "{% for a in b if a %}{{ loop.index }}" * 7 + "{% if a %}" * 8
    assert rendered(deep + "{% endif %}" * 8 + "{% endfor %}" * 7, b=[1]) == "1" * 7


def test_the_variables_are_left_as_they_were() -> None:
    scope = {"name": "a", "list": [1]}
    compile_template("{% set name = 'b' %}{% for name in list %}{% endfor %}", "t").render(scope)
    assert scope == {"name": "a", "list": [1]}


def test_one_template_serves_many_hosts() -> None:
    template = compile_template("{% for a in l %}{{ a }}{% endfor %}", "t")
    assert [template.render({"l": [n] * 1000}) for n in (1, 2)] == ["1" * 1000, "2" * 1000]
    assert compile_template("{% for a in l %}{{ a }}{% endfor %}", "t") is template
