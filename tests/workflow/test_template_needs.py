"""What templates need and nothing defines: told where it is certain, as of any other text."""

from __future__ import annotations

import pytest

from tenure.actions.template_render import LONGEST, SPEC
from tenure.workflow.defined import Undefined, unknown_in_templates
from tenure.workflow.parse import parse_workflow
from tests.workflow.samples import CATALOGUE, HEAD

CATALOGUE_WITH_TEMPLATES = {**CATALOGUE, SPEC.name: SPEC}
FILES = {"conf.j2": "# of the site\n{{ site }}\n", "wrong.j2": "{{ site }}{% if %}"}


def read(name: str, most: int) -> str | None:
    assert most == LONGEST
    return FILES.get(name)


def unknown(steps: str, rest: str = "") -> list[Undefined]:
    text = f"{HEAD}{rest}\nsteps:\n{steps}"
    workflow = parse_workflow(text, CATALOGUE_WITH_TEMPLATES).workflow
    return [*unknown_in_templates(workflow, CATALOGUE_WITH_TEMPLATES, read)]


def render(args: str = "src: conf.j2", rest: str = "") -> str:
    return f"- {{name: render, action: template.render, args: {{dest: /x, {args}}}{rest}}}\n"


def test_a_file_is_named_with_the_line() -> None:
    (only,) = unknown(render())
    assert only.message == "conf.j2:2: 'site' is not defined here"
    assert (only.path, only.name, only.certain) == (("steps", 0, "args", "src"), "site", True)


def test_a_template_in_the_workflow_itself_is_read_too() -> None:
    (only,) = unknown(render("template: '{{ sites }}'"), "vars: {site: 1}")
    assert only.message == "template:1: 'sites' is not defined here"
    assert only.hint.startswith("did you mean 'site'? or give it with --var sites=…")


@pytest.mark.parametrize(
    ("steps", "rest"),
    [
        (render(), "vars: {site: 1}"),
        (render(), "secrets: [site]"),
        (render(), "inventory: {hosts: {a: {vars: {site: 1}}, b: }}"),
        (render("src: conf.j2, vars: {site: 1}"), ""),
        (render("src: conf.j2, vars: '${{ more }}'"), "vars: {more: {}}"),
        (render("template: '{{ item }}'", ", loop: [1]"), ""),
        (render("src: nowhere.j2"), ""),
        (render("src: '${name}.j2'"), "vars: {name: conf}"),
        (render("src: wrong.j2"), ""),
        ("- {name: say, action: env.set, args: {env: {site: 1}}}\n" + render(), ""),
        ("- {name: say, action: cmd.run, args: {cmd: ./site}}\n" + render(), ""),
    ],
)
def test_nothing_is_told_of_what_is_there_or_not_known(steps: str, rest: str) -> None:
    assert unknown(steps, rest) == []


@pytest.mark.parametrize(
    ("steps", "certain"),
    [
        ("- {name: say, action: env.set, args: {env: {other: 1}}}\n" + render(), True),
        (render(rest=", loop: [1]"), True),
        (render(rest=", loop: '${{ all }}'"), False),
        (render(rest=", when: all == 1"), False),
        ("- {name: say, action: cmd.run, args: {cmd: ./find}}\n" + render(), False),
    ],
)
def test_it_is_certain_only_where_its_step_cannot_but_fail(steps: str, certain: bool) -> None:
    (only,) = unknown(steps, "vars: {all: 1}")
    assert (only.name, only.certain) == ("site", certain)
