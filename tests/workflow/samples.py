"""A catalogue like the real one, and short ways to say things."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.model.errors import InvalidWorkflow, Mistake
from tenure.workflow.catalogue import ActionSpec, Argument, Catalogue, Text
from tenure.workflow.parse import parse_workflow
from tenure.workflow.plan import Plan, make_plan
from tenure.workflow.spec import GroupSpec, HostSpec, Inventory, Step, Workflow

_COMMAND = (
    Argument(name="dir", elsewhere=("cwd",)),
    Argument(name="env", types=("object",)),
    Argument(name="export_vars", types=("boolean",)),
    Argument(name="max_output_bytes", types=("integer",)),
    Argument(name="output_path"),
)
CMD = ActionSpec(
    name="cmd.run",
    arguments=(Argument(name="cmd", required=True, text=Text.SHELL), *_COMMAND),
    environment=True,
)
PYTHON = ActionSpec(
    name="script.python",
    arguments=(
        Argument(name="script", text=Text.PYTHON),
        Argument(name="script_ref"),
        Argument(name="args", types=("array", "string")),
        *_COMMAND,
    ),
    exactly_one_of=(("script", "script_ref"),),
    environment=True,
)
HTTP = ActionSpec(
    name="http.request",
    arguments=(
        Argument(name="url", required=True),
        Argument(name="method", choices=("GET", "POST")),
        Argument(name="headers", types=("object",)),
        Argument(name="body", types=()),
        Argument(name="attempts", types=("integer",)),
        Argument(name="follow", types=("boolean",)),
        Argument(name="wait", types=("number", "null")),
        Argument(name="raw", text=Text.FIXED),
    ),
)
CATALOGUE: Catalogue = {
    spec.name: spec
    for spec in (
        CMD,
        PYTHON,
        HTTP,
        ActionSpec(
            name="shell.run",
            arguments=(Argument(name="script", required=True, text=Text.SHELL), *_COMMAND),
            environment=True,
        ),
        ActionSpec(
            name="env.set",
            arguments=(Argument(name="env", types=("object",), required=True),),
            exports="env",
            in_process=True,
        ),
        ActionSpec(
            name="template.render",
            arguments=(
                Argument(name="src", required=True),
                Argument(name="dest", required=True),
                Argument(name="vars", types=("object",)),
                Argument(name="mode", types=("string", "integer")),
            ),
            exports=None,
        ),
        ActionSpec(
            name="python.call",
            arguments=(Argument(name="function", required=True),),
            further_arguments=True,
            on_takeover="ask",
        ),
    )
}
HEAD = "version: v1\nname: demo\n"
ONE_STEP = HEAD + "steps:\n- name: one\n  action: cmd.run\n  args: {cmd: 'true'}\n"


def in_step(line: str) -> str:
    """Line 7 of a workflow, inside its only step."""
    return ONE_STEP + f"  {line}\n"


def parse(text: str, source: str = "demo.yaml") -> Workflow:
    return parse_workflow(text, CATALOGUE, source=source).workflow


def mistakes(text: str) -> list[str]:
    """Each as it is shown, without the name of the file."""
    return [str(mistake).removeprefix("f:") for mistake in found(text)]


def found(text: str) -> tuple[Mistake, ...]:
    with pytest.raises(InvalidWorkflow) as caught:
        parse(text, "f")
    return caught.value.mistakes


def step(name: str = "one", **fields: Any) -> Step:
    return Step(**{"name": name, "action": "cmd.run", "args": {"cmd": "true"}, **fields})


def workflow(*steps: Step, hosts: str = "web1 web2 db1", **fields: Any) -> Workflow:
    """With three hosts, two of them in the group ``web``."""
    names = hosts.split()
    inventory = Inventory(
        hosts={name: HostSpec() for name in names},
        groups={"web": GroupSpec(hosts=[name for name in names if name.startswith("web")])},
    )
    return Workflow(name="demo", steps=steps or (step(),), **{"inventory": inventory, **fields})


def plan(*steps: Step, **fields: Any) -> Plan:
    return make_plan(workflow(*steps, **fields))
