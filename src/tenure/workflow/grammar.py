"""The workflow file, key by key."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from tenure.model.status import Recovery
from tenure.workflow import other_names
from tenure.workflow.catalogue import Catalogue
from tenure.workflow.nodes import Entries, Items, Node, Path, Scalar, plain
from tenure.workflow.reading import Reading
from tenure.workflow.shapes import (
    Anything,
    Choice,
    Duration,
    Flag,
    Key,
    ListOf,
    MapOf,
    Number,
    Part,
    Schema,
    Whole,
    Words,
    wrong,
)
from tenure.workflow.spec import (
    CallbackSpec,
    Defaults,
    GroupSpec,
    Handler,
    HostSpec,
    Inventory,
    OnTakeover,
    PlanMode,
    PlanSettings,
    Retries,
    Rolling,
    Step,
    Verify,
    Workflow,
)

MOST_STEPS = 2_000
MOST_HANDLERS = 500
MOST_HOSTS = 20_000
MOST_CALLBACKS = 20
MOST_LABELS = 100
MOST_NAMES = 20_000
VERSIONS = ("v1", "v0.1", "1", "0.1")
EVENTS = ("run", "step", "host")
PERCENT = r"\s*(100|[0-9]{1,2})%\s*"
NOTHING = r"\s*0+%\s*"


class Amount(Struct, frozen=True):
    """A number of hosts, or a share of them: ``5`` or ``25%``."""

    least: int = 0

    def read(self, node: Node, path: Path, reading: Reading) -> Any:
        if isinstance(node, Scalar) and isinstance(node.value, str):
            if re.fullmatch(PERCENT, node.value):
                if self.least and re.fullmatch(NOTHING, node.value):
                    return wrong(node, path, reading, f"at least {self.least}")
                return node.value
            return wrong(node, path, reading, "a number of hosts or a share like 25%")
        return Whole(self.least).read(node, path, reading)

    def schema(self) -> Schema:
        share: Schema = {"type": "string", "pattern": f"^{PERCENT}$"}
        if self.least:
            share["not"] = {"pattern": f"^{NOTHING}$"}
        return {"anyOf": [Whole(self.least).schema(), share]}


class Loop(Struct, frozen=True):
    """A list, or one expression that gives a list."""

    def read(self, node: Node, path: Path, reading: Reading) -> Any:
        if isinstance(node, Items):
            Anything().read(node, path, reading)
            return tuple(plain(node))
        if isinstance(node, Scalar) and isinstance(node.value, str):
            return node.value
        return wrong(node, path, reading, "a list or one ${{ expression }} that gives one")

    def schema(self) -> Schema:
        expression = {"type": "string", "pattern": r"^\s*\$\{\{[\s\S]*\}\}\s*$"}
        return {"anyOf": [{"type": "array"}, expression]}


class Arguments(Struct, frozen=True):
    """The arguments of an action; what they may be depends on it (``schema`` adds that)."""

    def read(self, node: Node, path: Path, reading: Reading) -> Any:
        return MapOf(Anything(octal=True)).read(node, path, reading)

    def schema(self) -> Schema:
        return {"type": "object"}


class Work(Part, frozen=True):
    """A step or handler: knows which of its unknown keys are arguments of its action."""

    catalogue: Catalogue = {}
    left_to_others: Mapping[str, str] = {}
    """Keys that belong elsewhere, and what happens here without them."""

    def hint_for(self, name: str, node: Entries) -> str:
        action = node.entries.get("action")
        spec = self.catalogue.get(action.text) if isinstance(action, Scalar) else None
        if spec and name in {argument.name for argument in spec.arguments}:
            return f"it is an argument of {spec.name}: put it under 'args'"
        if action is None and name in other_names.FOR_COMMANDS:
            return "write action: shell.run and args: {script: …}"
        meant = spec.meant_by(name) if spec else None
        if meant is not None:
            return f"it is the argument {meant.name!r} here: put it under 'args'"
        return self.left_to_others.get(name) or Part.hint_for(self, name, node)


TEXT = Words()
NAMES = ListOf(TEXT, most=MOST_NAMES)
VARS = MapOf(Anything())

RETRIES = Part(
    Retries,
    [
        Key("max", Whole(0, 1000), "further attempts after the first"),
        Key("delay", Duration(zero=True), "wait before the second attempt"),
        Key("backoff", Number(1), "by what each wait is longer than the one before"),
        Key("max_delay", Duration(zero=True), "longest wait"),
    ],
    short=Whole(0, 1000),
    short_key="max",
)
ROLLING = Part(
    Rolling,
    [
        Key("batch", Amount(1), "hosts at once: a number or a share like 25%"),
        Key("max_failures", Amount(), "failed hosts the whole step may have"),
        Key("max_unreachable", Amount(), "unreachable hosts, if they are counted separately"),
    ],
)
VERIFY = Part(
    Verify,
    [
        Key("cmd", TEXT, "a command that exits 0 if the step's work is done", required=True),
        Key("timeout", Duration(), "for the probe"),
    ],
)
_WORK = [
    Key("name", TEXT, "unique", required=True),
    Key("action", TEXT, "what to do: cmd.run, script.python …", required=True),
    Key("args", Arguments(), "arguments of the action"),
    Key("when", TEXT, "a condition, judged per host with its variables"),
    Key("retries", RETRIES, "further attempts: a number, or a map"),
    Key("timeout", Duration(zero=True), "per attempt and host; 0s: none"),
    Key("become", TEXT, "run as this user (sudo)"),
]
_STEP = [
    *_WORK,
    Key("targets", NAMES, "hosts and groups; none: all hosts"),
    Key("needs", NAMES, "steps to wait for; not given: the one above; []: none"),
    Key("loop", Loop(), "run once per item"),
    Key("continue_on_error", Flag(), "the run goes on when this step fails"),
    Key("must_vars", NAMES, "variables every host must have before it starts"),
    Key("expect_vars", NAMES, "variables the step must export"),
    Key("notify", NAMES, "handlers to run after it"),
    Key("concurrency", Whole(1, 100_000), "hosts at once"),
    Key("rolling", ROLLING, "batch after batch, within a budget of failures"),
    Key("verify", VERIFY, "a probe for what was running when its worker died"),
    Key(
        "on_takeover",
        Choice(tuple(map(str, OnTakeover)), OnTakeover),
        "what to do with what was running when its worker died",
    ),
]
HOST = Part(
    HostSpec,
    [
        Key("address", TEXT, "local, ssh://user@host:port or http://host:port"),
        Key("vars", VARS, "variables of this host"),
    ],
)
GROUP = Part(
    GroupSpec,
    [
        Key("hosts", NAMES, "may name hosts not listed above"),
        Key("vars", VARS, "variables of its hosts"),
    ],
)


class OrNothing(Struct, frozen=True):
    """A part that may be left empty: ``web1:``."""

    part: Part

    def read(self, node: Node, path: Path, reading: Reading) -> Any:
        if isinstance(node, Scalar) and node.value is None:
            return self.part.struct()
        return self.part.read(node, path, reading)

    def schema(self) -> Schema:
        return {"anyOf": [{"type": "null"}, self.part.schema()]}


INVENTORY = Part(
    Inventory,
    [
        Key("hosts", MapOf(OrNothing(HOST), MOST_HOSTS), "by name"),
        Key("groups", MapOf(OrNothing(GROUP), MOST_HOSTS), "by name"),
        Key("vars", VARS, "variables of every host"),
    ],
)
DEFAULTS = Part(
    Defaults,
    [
        Key("timeout", Duration(), "per attempt and host"),
        Key("concurrency", Whole(1, 100_000), "hosts at once"),
        Key("on_takeover", Choice(("rerun", "ask", "fail"), OnTakeover), "as in a step"),
    ],
)
PLAN = Part(
    PlanSettings,
    [
        Key(
            "mode",
            Choice(tuple(map(str, PlanMode)), PlanMode),
            "manual-approve waits for an approval",
        ),
        Key("strategy", Choice(("sequential",)), "the only one there is"),
        Key("approval_timeout", Duration(), "the run is canceled if it is not approved in time"),
    ],
)
CALLBACK = Part(
    CallbackSpec,
    [
        Key("url", TEXT, "http or https", required=True),
        Key("events", ListOf(Choice(EVENTS), 3, 1), "what to tell: run, step, host"),
        Key("secret_env", TEXT, "variable with the signing secret: TENURE_HOOK_…"),
        Key("headers", MapOf(TEXT, 50), "sent along"),
    ],
)


def grammar(catalogue: Catalogue) -> Part:
    step = Work(Step, _STEP, other_names.IN_A_STEP, catalogue=catalogue)
    handler = Work(
        Handler,
        _WORK,
        other_names.IN_A_HANDLER,
        catalogue=catalogue,
        left_to_others=other_names.LEFT_TO_THE_STEP,
    )
    return Part(
        Workflow,
        [
            Key("version", Choice(VERSIONS), "v1", required=True, example="v1"),
            Key("name", TEXT, "of the workflow", required=True),
            Key("description", TEXT, "for people"),
            Key("queue", TEXT, "which workers may take it"),
            Key("priority", Whole(-100, 100), "higher goes first"),
            Key("labels", MapOf(TEXT, MOST_LABELS), "to find runs by"),
            Key(
                "recovery",
                Choice(tuple(map(str, Recovery)), Recovery),
                "after the loss of its worker",
            ),
            Key("timeout", Duration(), "for the whole run"),
            Key("secrets", NAMES, "variables whose values are masked and never stored"),
            Key("inventory", INVENTORY, "hosts, groups and their variables"),
            Key("vars", VARS, "variables of the workflow"),
            Key("defaults", DEFAULTS, "for steps that do not say"),
            Key("callbacks", ListOf(CALLBACK, MOST_CALLBACKS), "whom to tell"),
            Key("plan", PLAN, "whether it must be approved"),
            Key("steps", ListOf(step, MOST_STEPS, 1), "what to do, in order", required=True),
            Key("handlers", ListOf(handler, MOST_HANDLERS), "run when a step notifies them"),
            Key("env_packages", NAMES, "from older files; has no effect"),
            Key("validation_env", TEXT, "from older files; has no effect"),
            Key("tests", ListOf(Anything()), "from older files; has no effect"),
        ],
        other_names.AT_THE_TOP,
    )
