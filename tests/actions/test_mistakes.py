"""Mistakes in the arguments of Tenure's own actions are found before anything runs."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
import yaml

from tenure.actions import new_registry
from tenure.model.errors import ExpressionError, InvalidWorkflow
from tenure.workflow.arguments import compile_args
from tenure.workflow.parse import parse_workflow
from tenure.workflow.schema import workflow_schema

CATALOGUE = {name: action.spec for name, action in new_registry().items()}
SCHEMA = jsonschema.Draft202012Validator(workflow_schema(CATALOGUE))
FINE = [
    ("template.render", "{src: motd.j2, dest: /etc/motd}"),
    ("template.render", '{template: "{{ x }} ${x", dest: /etc/motd, mode: 0644, vars: {x: 1}}'),
    ("template.render", "{src: '${{ name }}.j2', dest: '/etc/${name}', mode: '${{ mode }}'}"),
    ("file.copy", '{src: logo.png, dest: /srv/, mode: "644"}'),
    ("file.copy", "{content: '', dest: ~/x, mode: 0755}"),
    ("http.request", "{url: 'https://x/y?z=1'}"),
    ("http.request", "{url: '${{ url }}', method: PUT, json: [1], expect_status: 404}"),
    ("http.request", "{url: 'http://x', expect_status: [200, '${{ code }}'], verify: no}"),
    ("http.request", "{url: 'http://x', export: {A: a.b}, headers: {X-A: 1}, timeout: 1m30s}"),
    ("wait.until", "{cmd: 'true', interval: 500ms, timeout: 5m, dir: /srv}"),
    ("wait.port", "{port: 80}"),
    ("wait.port", "{port: '${port}', host: db, state: closed, timeout: '${{ patience }}'}"),
]
WRONG = [
    ("template.render", "{dest: /x}", "needs exactly one of src, template, not none of them"),
    ("template.render", "{src: a, template: b, dest: /x}", "not src and template"),
    ("template.render", "{src: a}", "template.render needs 'dest'"),
    ("template.render", "{src: a, dest: /x, mode: 644}",
     'mode: must be an octal file mode in quotes, like "0644", not 644'),
    ("template.render", "{src: a, dest: /x, mode: u=rw}", "not 'u=rw'"),
    ("template.render", "{src: a, dest: /x, vars: [a]}", "vars: must be a map, not a list"),
    ("file.copy", "{dest: /x}", "needs exactly one of src, content"),
    ("file.copy", "{src: a, dest: /x, mod: '0644'}", "did you mean 'mode'?"),
    ("http.request", "{method: GET}", "http.request needs 'url'"),
    ("http.request", "{url: example.org}",
     "url: must be an http or https address, not 'example.org'"),
    ("http.request", "{url: 'http://x', method: get}", "did you mean 'GET'?"),
    ("http.request", "{url: 'http://x', body: a, json: b}",
     "http.request takes one of body, json, not several"),
    ("http.request", "{url: 'http://x', expect_status: 20}",
     "must be a status from 100 to 599, or a list of them, not 20"),
    ("http.request", "{url: 'http://x', expect_status: [200, ok]}", "not a list"),
    ("http.request", "{url: 'http://x', export: {A-B: c}}", "a map of variables and paths"),
    ("http.request", "{url: 'http://x', headers: {'A B': c}}", "a map of header names and texts"),
    ("http.request", "{url: 'http://x', timeout: 30}",
     "timeout: must be a duration like 30s or 1h30m, not '30'"),
    ("wait.until", "{cmd: 'true', interval: 0s}", "interval: must be a duration"),
    ("wait.until", "{timeout: 5m}", "wait.until needs 'cmd'"),
    ("wait.port", "{port: 0}", "port: must be a port from 1 to 65535, not 0"),
    ("wait.port", "{port: http}", "port: must be a whole number, not 'http'"),
    ("wait.port", "{port: 80, state: opened}", "did you mean 'open'?"),
]  # fmt: skip


def workflow(action: str, args: str) -> str:
    return f"version: v1\nname: demo\nsteps:\n- name: one\n  action: {action}\n  args: {args}\n"


@pytest.mark.parametrize(("action", "args"), FINE)
def test_what_is_right_is_taken(action: str, args: str) -> None:
    text = workflow(action, args)
    parse_workflow(text, CATALOGUE)
    assert list(SCHEMA.iter_errors(yaml.safe_load(text))) == []


@pytest.mark.parametrize(("action", "args", "said"), WRONG)
def test_what_is_wrong_is_told_with_its_place(action: str, args: str, said: str) -> None:
    with pytest.raises(InvalidWorkflow) as refused:
        parse_workflow(workflow(action, args), CATALOGUE)
    [mistake] = refused.value.mistakes
    assert said in str(mistake)
    assert (mistake.line, mistake.path[:13]) == (6, "steps[0].args")


@pytest.mark.parametrize(
    ("action", "args"),
    [
        ("http.request", {"url": "http://x", "body": "a", "json": "b"}),
        ("http.request", {"url": "ftp://x"}),
        ("wait.until", {"cmd": "true", "interval": "soon"}),
        ("file.copy", {"content": "", "dest": "/x", "mode": "rw"}),
    ],
)
def test_an_editor_knows_too(action: str, args: dict[str, Any]) -> None:
    flow = yaml.safe_load(workflow(action, "{}"))
    flow["steps"][0]["args"] = args
    assert list(SCHEMA.iter_errors(flow)) != []


@pytest.mark.parametrize(
    ("action", "args", "value"),
    [
        ("wait.until", {"cmd": "true", "timeout": "${{ v }}"}, "s3cret"),
        ("http.request", {"url": "${{ v }}"}, "s3cret"),
        ("file.copy", {"content": "", "dest": "/x", "mode": "${{ v }}"}, 755),
        ("wait.port", {"port": "${v}"}, "99999"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_and_not_told(
    action: str, args: dict[str, Any], value: Any
) -> None:
    compiled = compile_args(args, CATALOGUE[action])
    with pytest.raises(ExpressionError, match="must be") as refused:
        compiled.render({"v": value})
    assert str(value) not in str(refused.value)


@pytest.mark.parametrize("mode", [0o644, "0644", "644"])
def test_a_mode_may_come_from_a_variable(mode: Any) -> None:
    args = {"content": "", "dest": "/x", "mode": "${{ m }}"}
    assert compile_args(args, CATALOGUE["file.copy"]).render({"m": mode}).args["mode"] == mode


def test_what_a_request_may_export_is_known() -> None:
    text = workflow("http.request", "{url: 'http://x', export: {TOKEN: t}}") + (
        "- {name: two, action: wait.port, args: {port: 1, host: '${{ TOKEN }}${{ TOKNE }}'}}\n"
    )
    [wanted] = parse_workflow(text, CATALOGUE).wanted
    assert (wanted.name, wanted.certain) == ("TOKNE", True)


def test_a_request_without_exports_exports_nothing() -> None:
    text = workflow("http.request", "{url: 'http://x'}") + (
        "- {name: two, action: wait.port, args: {port: 1, host: '${{ TOKEN }}'}}\n"
    )
    [wanted] = parse_workflow(text, CATALOGUE).wanted
    assert wanted.certain


def test_the_text_of_a_template_is_left_alone() -> None:
    args = {"template": "${x} ${{ x }} {{ x }}", "dest": "/y"}
    compiled = compile_args(args, CATALOGUE["template.render"])
    assert compiled.render({"x": 1}).args == args
