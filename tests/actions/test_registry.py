"""Which actions there are and where they come from; mistakes in the arguments of Tenure's own are
found before anything runs."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tenure.actions import new_registry
from tenure.actions.registry import DECLARED, MODULES, ActionRegistry, FunctionAction, action
from tenure.model.errors import ExpressionError, InvalidAction, InvalidWorkflow, UnknownAction
from tenure.workflow.arguments import compile_args
from tenure.workflow.catalogue import Text
from tenure.workflow.parse import parse_workflow
from tenure.workflow.schema import workflow_schema

PLUGINS = {
    "plugin_of_a_test": """
from tenure.actions.registry import FunctionAction, action

@action("acme.decorated")
async def decorated(): ...

async def plain(): ...

INSTANCE = FunctionAction("acme.instance", plain)
TAKEN = FunctionAction("cmd.run", plain)

class Made(FunctionAction):
    def __init__(self):
        super().__init__("acme.made", plain)
""",
    "broken_plugin_of_a_test": "raise ImportError('libacme is missing')",
}
ENTRY_POINTS = """
[tenure.actions]
whole = plugin_of_a_test
one = plugin_of_a_test:decorated
instance = plugin_of_a_test:INSTANCE
made = plugin_of_a_test:Made
taken = plugin_of_a_test:TAKEN
odd = plugin_of_a_test:plain
broken = broken_plugin_of_a_test
"""


async def nothing() -> None: ...


@pytest.fixture(autouse=True)
def nothing_stays_declared() -> Iterator[None]:
    before = dict(DECLARED)
    DECLARED.clear()
    yield
    DECLARED.clear()
    DECLARED.update(before)


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed package, as the import system sees it."""
    for name, text in PLUGINS.items():
        (tmp_path / f"{name}.py").write_text(text)
    info = tmp_path / "acme_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for name in PLUGINS:
        sys.modules.pop(name, None)


def test_scripts_are_text_that_values_never_enter() -> None:
    """Everything else in them is plain text, or a variable could become code."""
    kinds = {
        (name, argument.name): argument.text
        for name, spec in ActionRegistry(plugins=False).catalogue().items()
        for argument in spec.arguments
        if argument.text is not Text.PLAIN
    }
    assert kinds == {
        ("cmd.run", "cmd"): Text.SHELL,
        ("shell.run", "script"): Text.SHELL,
        ("script.shell", "script"): Text.SHELL,
        ("script.python", "script"): Text.PYTHON,
        ("wait.until", "cmd"): Text.SHELL,
        ("python.call", "function"): Text.FIXED,
        ("template.render", "template"): Text.FIXED,
    }


def test_every_argument_is_explained() -> None:
    for name, spec in ActionRegistry(plugins=False).catalogue().items():
        assert spec.description.endswith("."), name
        for argument in spec.arguments:
            assert argument.description.endswith("."), (name, argument.name)


def test_a_declared_action_is_there_whenever_it_was_declared() -> None:
    actions = ActionRegistry(plugins=False)
    assert "billing.close" not in actions
    action("billing.close")(nothing)
    assert "billing.close" in actions
    assert actions.catalogue()["billing.close"].name == "billing.close"


@pytest.mark.parametrize("name", ["cmd.run", "billing.close", "billing.open"])
def test_a_taken_name_is_refused(name: str) -> None:
    actions = ActionRegistry(plugins=False)
    actions.register(FunctionAction("billing.open", nothing))
    action("billing.close")(nothing)
    with pytest.raises(InvalidAction, match="choose another name"):
        actions.register(FunctionAction(name, nothing))


def test_an_unknown_name_brings_the_nearest() -> None:
    actions = ActionRegistry(plugins=False)
    with pytest.raises(UnknownAction) as refused:
        actions["cmd.rum"]
    assert str(refused.value) == "there is no action 'cmd.rum'; did you mean 'cmd.run'?"
    with pytest.raises(UnknownAction, match=r"there are: cmd\.run, env\.set"):
        actions["zzzzzzzz"]
    assert actions.get("cmd.rum") is None


@pytest.mark.usefixtures("plugins")
def test_installed_packages_bring_actions(caplog: pytest.LogCaptureFixture) -> None:
    actions = ActionRegistry()
    with caplog.at_level(logging.WARNING):
        for name in ("acme.instance", "acme.made", "acme.decorated"):
            assert actions[name].spec.name == name
        assert {"acme.decorated", "acme.instance", "acme.made", *MODULES} <= set(actions)
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 3, "each once"
    assert any("broken" in text and "libacme is missing" in text for text in told)
    assert any("taken" in text and "Tenure's own" in text for text in told)
    assert any("odd" in text and "is no action" in text for text in told)


@pytest.mark.usefixtures("plugins")
def test_what_could_not_be_loaded_is_named_when_it_is_missed() -> None:
    with pytest.raises(UnknownAction, match=r"plugin broken .* libacme is missing"):
        ActionRegistry()["acme.missing"]


@pytest.mark.usefixtures("plugins")
def test_packages_are_not_loaded_for_our_own() -> None:
    assert ActionRegistry()["cmd.run"].spec.name == "cmd.run"
    assert "plugin_of_a_test" not in sys.modules


def test_importing_the_package_loads_no_action() -> None:
    program = (
        "import sys, tenure.actions, tenure.transports\n"
        "ours = [name for name in sys.modules if name.startswith('tenure.')]\n"
        "print(*sorted(ours))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == ["tenure._version", "tenure.actions", "tenure.transports"]


OURS = {name: action.spec for name, action in new_registry().items()}
SCHEMA = jsonschema.Draft202012Validator(workflow_schema(OURS))
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
    ("template.render", "{src: a, dest: /x, mode: 644}",
     'mode: must be an octal file mode in quotes, like "0644", not 644'),
    ("http.request", "{method: GET}", "http.request needs 'url'"),
    ("http.request", "{url: example.org}",
     "url: must be an http or https address, not 'example.org'"),
    ("http.request", "{url: 'http://x', body: a, json: b}",
     "http.request takes one of body, json, not several"),
    ("http.request", "{url: 'http://x', expect_status: 20}",
     "must be a status from 100 to 599, or a list of them, not 20"),
    ("http.request", "{url: 'http://x', export: {A-B: c}}", "a map of variables and paths"),
    ("http.request", "{url: 'http://x', headers: {'A B': c}}", "a map of header names and texts"),
    ("http.request", "{url: 'http://x', timeout: 30}",
     "timeout: must be a duration like 30s or 1h30m, not '30'"),
    ("wait.until", "{cmd: 'true', interval: 0s}", "interval: must be a duration"),
    ("wait.port", "{port: 0}", "port: must be a port from 1 to 65535, not 0"),
]  # fmt: skip


def flow_with(action: str, args: str) -> str:
    return f"version: v1\nname: demo\nsteps:\n- name: one\n  action: {action}\n  args: {args}\n"


@pytest.mark.parametrize(("action", "args"), FINE)
def test_what_is_right_is_taken(action: str, args: str) -> None:
    text = flow_with(action, args)
    parse_workflow(text, OURS)
    assert list(SCHEMA.iter_errors(yaml.safe_load(text))) == []


@pytest.mark.parametrize(("action", "args", "said"), WRONG)
def test_what_is_wrong_is_told_with_its_place(action: str, args: str, said: str) -> None:
    with pytest.raises(InvalidWorkflow) as refused:
        parse_workflow(flow_with(action, args), OURS)
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
    flow = yaml.safe_load(flow_with(action, "{}"))
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
    compiled = compile_args(args, OURS[action])
    with pytest.raises(ExpressionError, match="must be") as refused:
        compiled.render({"v": value})
    assert str(value) not in str(refused.value)


def test_what_a_request_may_export_is_known() -> None:
    text = flow_with("http.request", "{url: 'http://x', export: {TOKEN: t}}") + (
        "- {name: two, action: wait.port, args: {port: 1, host: '${{ TOKEN }}${{ TOKNE }}'}}\n"
    )
    [wanted] = parse_workflow(text, OURS).wanted
    assert (wanted.name, wanted.certain) == ("TOKNE", True)
