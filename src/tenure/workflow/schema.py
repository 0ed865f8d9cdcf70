"""The grammar of workflow files: reads them, describes them to editors, writes them back."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import Enum
from itertools import combinations
from math import isfinite
from typing import Any, Protocol

import msgspec
from msgspec import NODEFAULT, Struct

from tenure.model.errors import InvalidWorkflow
from tenure.model.status import Recovery
from tenure.workflow.catalogue import ActionSpec, Argument, Catalogue
from tenure.workflow.durations import PATTERN, parse_duration, show_duration
from tenure.workflow.sandbox import number_of
from tenure.workflow.spec import (
    DURATION_FIELDS,
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
from tenure.workflow.wording import did_you_mean, instead_of, shown
from tenure.workflow.yaml import INVALID, Entries, Items, Mark, Node, Path, Reading, Scalar, plain

# Shapes: each reads a node and describes itself.
#
# One table (``grammar``) of these shapes serves parser and editors, so that ``tenure schema``
# describes exactly what ``parse_workflow`` accepts. A shape that finds a mistake reports it and
# returns ``INVALID``; the rest of the file is read all the same.


Schema = dict[str, Any]
_TRUE, _FALSE = frozenset({"y", "yes", "on"}), frozenset({"n", "no", "off"})


class Shape(Protocol):
    def read(self, node: Node, path: Path, reading: Reading) -> Any:
        """The value, or ``INVALID`` after reporting why."""
        ...

    def schema(self) -> Schema: ...


def wrong(node: Node, path: Path, reading: Reading, wanted: str, hint: str | None = None) -> Any:
    return reading.mistake(node.mark, path, f"must be {wanted}, not {kind_of(node)}", hint)


def kind_of(node: Node) -> str:
    if isinstance(node, Entries):
        return "a map"
    return "a list" if isinstance(node, Items) else shown(node.value)


class String(Struct, frozen=True):
    """Text. A number or boolean is taken as it was written: ``version: 0.1``."""

    def read(self, node: Node, path: Path, reading: Reading) -> Any:
        if not isinstance(node, Scalar) or node.value is None:
            return wrong(node, path, reading, "text")
        return node.value if isinstance(node.value, str) else node.text

    def schema(self) -> Schema:
        return {"type": ["string", "number", "boolean"]}


class Boolean(Struct, frozen=True):
    def read(self, node: Node, path: Path, reading: Reading) -> Any:
        if isinstance(node, Scalar):
            if isinstance(node.value, bool):
                return node.value
            word = node.text.lower()
            if isinstance(node.value, str) and word in _TRUE | _FALSE:
                return word in _TRUE
        return wrong(node, path, reading, "true or false")

    def schema(self) -> Schema:
        return {"anyOf": [{"type": "boolean"}, {"enum": ["yes", "no", "on", "off"]}]}


class Integer(Struct, frozen=True):
    least: int = 0
    most: int | None = None

    def read(self, node: Node, path: Path, reading: Reading) -> Any:
        value = node.value if isinstance(node, Scalar) else None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            return wrong(node, path, reading, "a whole number")
        if self.most is not None and not self.least <= value <= self.most:
            return wrong(node, path, reading, f"between {self.least} and {self.most}")
        if value < self.least:
            return wrong(node, path, reading, f"at least {self.least}")
        return value

    def schema(self) -> Schema:
        limits = {"minimum": self.least} | ({} if self.most is None else {"maximum": self.most})
        return {"type": "integer", **limits}


class Number(Struct, frozen=True):
    least: float = 0

    def read(self, node: Node, path: Path, reading: Reading) -> Any:
        value = node.value if isinstance(node, Scalar) else None
        if isinstance(value, bool) or not isinstance(value, int | float):
            return wrong(node, path, reading, "a number")
        if value < self.least:
            return wrong(node, path, reading, f"at least {self.least:g}")
        return float(value)

    def schema(self) -> Schema:
        return {"type": "number", "minimum": self.least}


class Duration(Struct, frozen=True):
    """Seconds."""

    zero: bool = False
    """Whether zero is allowed, also without a unit. It is a mistake where everything would then
    fail at once."""

    def read(self, node: Node, path: Path, reading: Reading) -> Any:
        if not isinstance(node, Scalar) or node.value is None or isinstance(node.value, bool):
            return wrong(node, path, reading, "a duration", "write it like 30s or 1h30m")
        if self.zero and node.text.strip() == "0":
            return 0.0
        if not isinstance(node.value, str):
            message = f"a duration needs a unit: {shown(node.value)}"
            return reading.mistake(node.mark, path, message, f"write {node.text}s")
        try:
            seconds = parse_duration(node.text)
        except ValueError as error:
            message, _, hint = str(error).partition(": ")
            return reading.mistake(node.mark, path, message, hint or None)
        if not seconds and not self.zero:
            return reading.mistake(
                node.mark, path, "must be more than zero", "leave it out for none"
            )
        return seconds

    def schema(self) -> Schema:
        text = {"type": "string", "pattern": PATTERN, "examples": ["30s", "10m", "1h30m"]}
        return {"anyOf": [text, {"enum": [0, "0"]}]} if self.zero else text


class Choice(Struct, frozen=True):
    choices: tuple[str, ...]
    kind: Any = str

    def read(self, node: Node, path: Path, reading: Reading) -> Any:
        text = node.text if isinstance(node, Scalar) else None
        if text not in self.choices:
            hint = did_you_mean(text, self.choices) if text else None
            return wrong(node, path, reading, f"one of {', '.join(self.choices)}", hint)
        return self.kind(text)

    def schema(self) -> Schema:
        numbers = [number for choice in self.choices if (number := number_of(choice)) is not None]
        return {"enum": [*self.choices, *numbers]}


class ListOf(Struct, frozen=True):
    shape: Any
    most: int | None = None
    least: int = 0

    def read(self, node: Node, path: Path, reading: Reading) -> Any:
        if not isinstance(node, Items):
            hint = f"write [{node.text[:40]}]" if isinstance(node, Scalar) and node.text else None
            return wrong(node, path, reading, "a list", hint)
        if self.most is not None and len(node.items) > self.most:
            message = f"has {len(node.items)} entries, more than {self.most}"
            return reading.mistake(node.mark, path, message)
        if len(node.items) < self.least:
            return reading.mistake(node.mark, path, "must not be empty")
        values = [
            self.shape.read(each, (*path, index), reading) for index, each in enumerate(node.items)
        ]
        return tuple(blank(self.shape) if value is INVALID else value for value in values)

    def schema(self) -> Schema:
        limits = {} if self.most is None else {"maxItems": self.most}
        least = {"minItems": self.least} if self.least else {}
        return {"type": "array", "items": self.shape.schema(), **least, **limits}


def _no_map(node: Node, path: Path, reading: Reading) -> Any:
    """The text is not repeated: it may be the address of a callback, or its headers."""
    if isinstance(node, Scalar) and isinstance(node.value, str):
        return reading.mistake(node.mark, path, "must be a map, not text")
    return wrong(node, path, reading, "a map")


class MapOf(Struct, frozen=True):
    shape: Any
    most: int | None = None

    def read(self, node: Node, path: Path, reading: Reading) -> Any:
        if not isinstance(node, Entries):
            return _no_map(node, path, reading)
        if self.most is not None and len(node.entries) > self.most:
            message = f"has {len(node.entries)} entries, more than {self.most}"
            return reading.mistake(node.mark, path, message)
        values = {
            key: self.shape.read(each, (*path, key), reading) for key, each in node.entries.items()
        }
        return {key: value for key, value in values.items() if value is not INVALID}

    def schema(self) -> Schema:
        limits = {} if self.most is None else {"maxProperties": self.most}
        return {"type": "object", "additionalProperties": self.shape.schema(), **limits}


class Anything(Struct, frozen=True):
    """Any JSON value."""

    octal: bool = False
    """Whether ``0644`` is meant as the octal number it is read as."""

    def read(self, node: Node, path: Path, reading: Reading) -> Any:
        self._notice_conversion(node, path, reading)
        return plain(node)

    def _notice_conversion(self, node: Node, path: Path, reading: Reading) -> None:
        if isinstance(node, Scalar):
            number = isinstance(node.value, int | float) and not isinstance(node.value, bool)
            if number and node.mark.line and _reads_otherwise(node, self.octal):
                read_as = f"{node.text} is read as the number {node.value}"
                reading.notice(node.mark, path, read_as, "quote it if it is meant as text")
        elif isinstance(node, Items):
            for index, each in enumerate(node.items):
                self._notice_conversion(each, (*path, index), reading)
        else:
            for key, each in node.entries.items():
                self._notice_conversion(each, (*path, key), reading)

    def schema(self) -> Schema:
        return {}


def _reads_otherwise(node: Scalar, octal: bool) -> bool:
    """``1.10`` and ``007``: text that does not survive as a number."""
    if octal and re.fullmatch(r"0[0-7]+", node.text):
        return False
    odd = re.fullmatch(r"-?0[0-9]+|-?[0-9]+\.[0-9]*0", node.text)
    return odd is not None and node.text != str(node.value)


class Key(Struct, frozen=True):
    """One key of a map."""

    name: str
    shape: Any
    description: str
    required: bool = False
    example: str = ""
    """The usual value, shown if a required key is missing."""


class Part(Struct, frozen=True):
    """A map with known keys, read into ``struct``."""

    struct: Any
    keys: Sequence[Key]
    instead: Mapping[str, str] = {}
    """Keys of other tools, or of older files, and their names here."""
    short: Any = None
    """A shape for the short form, and the key its value belongs to."""
    short_key: str = ""

    def read(self, node: Node, path: Path, reading: Reading) -> Any:
        if self.short and isinstance(node, Scalar):
            value = self.short.read(node, path, reading)
            return INVALID if value is INVALID else self.struct(**{self.short_key: value})
        if not isinstance(node, Entries):
            return _no_map(node, path, reading)
        names = {key.name for key in self.keys}
        for name in node.entries:
            if name not in names:
                self._unknown(name, node, path, reading)
        values = {key.name: self._value(key, node, path, reading) for key in self.keys}
        return self.struct(
            **{name: value for name, value in values.items() if value is not INVALID}
        )

    def _value(self, key: Key, node: Entries, path: Path, reading: Reading) -> Any:
        given = node.entries.get(key.name)
        if not key.required and (given is None or _is_empty(given, key.shape)):
            return INVALID
        inside = (*path, key.name)
        if given is None:
            hint = f"write {key.name}: {key.example}" if key.example else None
            reading.mistake(node.mark, inside, f"{key.name!r} is missing", hint)
            return blank(key.shape)
        value = key.shape.read(given, inside, reading)
        return blank(key.shape) if value is INVALID and key.required else value

    def _unknown(self, name: str, node: Entries, path: Path, reading: Reading) -> None:
        mark = node.keys.get(name, Mark())
        message = f"unknown key {name[:60]!r}"
        reading.mistake(mark, (*path, name), message, self.hint_for(name, node))

    def hint_for(self, name: str, node: Entries) -> str:
        if name in self.instead:
            return f"it is called {self.instead[name]!r} here"
        return instead_of(name, (key.name for key in self.keys), 30)

    def schema(self) -> Schema:
        properties = {
            key.name: {**key.shape.schema(), "description": key.description} for key in self.keys
        }
        required = [key.name for key in self.keys if key.required]
        whole: Schema = {
            "type": "object",
            "properties": properties,
            "additionalProperties": False,
            **({"required": required} if required else {}),
        }
        return {"anyOf": [self.short.schema(), whole]} if self.short else whole


def _is_empty(node: Node, shape: Any) -> bool:
    """``timeout:`` and ``timeout: ""`` count as not given: programs write such files."""
    if not isinstance(node, Scalar):
        return False
    return node.value is None or (node.value == "" and isinstance(shape, Choice | Duration))


def blank(shape: Any) -> Any:
    """A stand-in for a value that could not be read, so that the rest can be."""
    if isinstance(shape, Part):
        return shape.struct(**{key.name: blank(key.shape) for key in shape.keys if key.required})
    return () if isinstance(shape, ListOf) else ""


# Names of keys in other tools and in older files, and their names here.


AT_THE_TOP = {
    "hosts": "inventory.hosts",
    "groups": "inventory.groups",
    "tasks": "steps",
    "jobs": "steps",
    "env": "vars",
    "variables": "vars",
    "webhooks": "callbacks",
    "id": "name",
}
IN_A_HANDLER = {
    "with": "args",
    "retry": "retries",
    "timeout_sec": "timeout",
    "become_user": "become",
    "if": "when",
}
IN_A_STEP = {
    **IN_A_HANDLER,
    "depends_on": "needs",
    "with_items": "loop",
    "hosts": "targets",
    "serial": "rolling",
    "ignore_errors": "continue_on_error",
    "on_error": "continue_on_error",
    "register": "expect_vars",
}
FOR_COMMANDS = ("run", "shell", "command", "cmd", "script", "exec")
"""Keys for a command in the steps of other tools."""
_LEFT_TO_ITS_STEP = {
    "targets": "it runs on the hosts that notified it",
    "needs": "it runs after the step that notifies it",
    "loop": "it runs after each item of the step that notifies it",
    "rolling": "it runs after each batch of the step that notifies it",
    "continue_on_error": "if it fails, the step that notified it does: say it there",
    "expect_vars": "what a handler exports is not passed on to other steps",
}
LEFT_TO_THE_STEP = {
    **_LEFT_TO_ITS_STEP,
    **{
        other: _LEFT_TO_ITS_STEP[name]
        for other, name in IN_A_STEP.items()
        if name in _LEFT_TO_ITS_STEP
    },
}
"""Keys that a step has and a handler does not, by all their names, with what applies instead."""


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
        return Integer(self.least).read(node, path, reading)

    def schema(self) -> Schema:
        share: Schema = {"type": "string", "pattern": f"^{PERCENT}$"}
        if self.least:
            share["not"] = {"pattern": f"^{NOTHING}$"}
        return {"anyOf": [Integer(self.least).schema(), share]}


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
    """The arguments of an action; ``workflow_schema`` adds what they may be."""

    def read(self, node: Node, path: Path, reading: Reading) -> Any:
        return MapOf(Anything(octal=True)).read(node, path, reading)

    def schema(self) -> Schema:
        return {"type": "object"}


class Work(Part, frozen=True):
    """A step or handler: knows which of its unknown keys are arguments of its action."""

    catalogue: Catalogue = {}
    left_to_others: Mapping[str, str] = {}
    """Keys that belong elsewhere, and what applies without them."""

    def hint_for(self, name: str, node: Entries) -> str:
        action = node.entries.get("action")
        spec = self.catalogue.get(action.text) if isinstance(action, Scalar) else None
        if spec and name in {argument.name for argument in spec.arguments}:
            return f"it is an argument of {spec.name}: put it under 'args'"
        if action is None and name in FOR_COMMANDS:
            return "write action: shell.run and args: {script: …}"
        meant = spec.meant_by(name) if spec else None
        if meant is not None:
            return f"it is the argument {meant.name!r} here: put it under 'args'"
        return self.left_to_others.get(name) or Part.hint_for(self, name, node)


TEXT = String()
NAMES = ListOf(TEXT, most=MOST_NAMES)
VARS = MapOf(Anything())

RETRIES = Part(
    Retries,
    [
        Key("max", Integer(0, 1000), "further attempts after the first"),
        Key("delay", Duration(zero=True), "wait before the second attempt"),
        Key("backoff", Number(1), "by what each wait is longer than the one before"),
        Key("max_delay", Duration(zero=True), "longest wait"),
    ],
    short=Integer(0, 1000),
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
    Key("continue_on_error", Boolean(), "the run continues when this step fails"),
    Key("must_vars", NAMES, "variables every host must have before it starts"),
    Key("expect_vars", NAMES, "variables the step must export"),
    Key("notify", NAMES, "handlers to run after it"),
    Key("concurrency", Integer(1, 100_000), "hosts at once"),
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
    """A part that may be empty: ``web1:``."""

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
        Key("concurrency", Integer(1, 100_000), "hosts at once"),
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
    step = Work(Step, _STEP, IN_A_STEP, catalogue=catalogue)
    handler = Work(
        Handler,
        _WORK,
        IN_A_HANDLER,
        catalogue=catalogue,
        left_to_others=LEFT_TO_THE_STEP,
    )
    return Part(
        Workflow,
        [
            Key("version", Choice(VERSIONS), "v1", required=True, example="v1"),
            Key("name", TEXT, "of the workflow", required=True),
            Key("description", TEXT, "for people"),
            Key("queue", TEXT, "which workers may take it"),
            Key("priority", Integer(-100, 100), "higher runs first"),
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
            Key("callbacks", ListOf(CALLBACK, MOST_CALLBACKS), "targets that are notified"),
            Key("plan", PLAN, "whether it must be approved"),
            Key("steps", ListOf(step, MOST_STEPS, 1), "what to do, in order", required=True),
            Key("handlers", ListOf(handler, MOST_HANDLERS), "run when a step notifies them"),
            Key("env_packages", NAMES, "from older files; has no effect"),
            Key("validation_env", TEXT, "from older files; has no effect"),
            Key("tests", ListOf(Anything()), "from older files; has no effect"),
        ],
        AT_THE_TOP,
    )


# JSON Schema for editors (``tenure schema``), made from the parser's table. Whether names exist
# and expressions compile only ``tenure validate`` checks.


_TEMPLATE = {"type": "string", "pattern": r"\$\{"}
_TRUTH_WORD = {"enum": ["yes", "no", "on", "off", "true", "false", "1", "0"]}


def workflow_schema(catalogue: Catalogue) -> dict[str, Any]:
    """JSON Schema 2020-12, with the arguments of every action in ``catalogue``."""
    schema = grammar(catalogue).schema()
    for kind in ("steps", "handlers"):
        schema["properties"][kind]["items"] |= _by_action(catalogue)
        action = schema["properties"][kind]["items"]["properties"]["action"]
        action |= {"type": "string", "enum": sorted(catalogue)}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Tenure workflow",
        **schema,
        "$defs": {f"args of {name}": _arguments(catalogue[name]) for name in sorted(catalogue)},
    }


def _by_action(catalogue: Catalogue) -> dict[str, Any]:
    return {"allOf": [_one_action(catalogue[name]) for name in sorted(catalogue)]}


def _one_action(spec: ActionSpec) -> dict[str, Any]:
    needed = spec.exactly_one_of or any(argument.required for argument in spec.arguments)
    return {
        "if": {"properties": {"action": {"const": spec.name}}, "required": ["action"]},
        "then": {
            "properties": {"args": {"$ref": f"#/$defs/args%20of%20{spec.name}"}},
            **({"required": ["args"]} if needed else {}),
        },
    }


def _arguments(spec: ActionSpec) -> dict[str, Any]:
    required = [argument.name for argument in spec.arguments if argument.required]
    groups: list[dict[str, Any]] = [
        {"oneOf": [{"required": [name]} for name in group]} for group in spec.exactly_one_of
    ]
    groups += [
        {"not": {"required": list(pair)}}
        for group in spec.at_most_one_of
        for pair in combinations(group, 2)
    ]
    return {
        "type": "object",
        "description": spec.description,
        "properties": {argument.name: _argument(argument) for argument in spec.arguments},
        **({} if spec.further_arguments else {"additionalProperties": False}),
        **({"required": required} if required else {}),
        **({"allOf": groups} if groups else {}),
    }


def _argument(argument: Argument) -> dict[str, Any]:
    """A value of its type, or text that becomes one when rendered."""
    plain: dict[str, Any] = {}
    if argument.choices:
        plain["enum"] = list(argument.choices)
    elif argument.types:
        plain["type"] = _accepted(argument.types)
    if argument.form is not None and argument.form.pattern is not None:
        plain["pattern"] = argument.form.pattern
    words = [_TRUTH_WORD] if "boolean" in argument.types and not argument.choices else []
    described = {"description": argument.description} if argument.description else {}
    return {**({"anyOf": [plain, *words, _TEMPLATE]} if plain else {}), **described}


def _accepted(types: tuple[str, ...]) -> list[str]:
    """Text may be written as a number: the parser takes it as written."""
    further = ("number", "boolean") if "string" in types else ()
    return sorted({*types, *further})


# Writing a workflow built in Python as a file. A run stores its text, so both ways of making a
# workflow end in the same text and pass the same checks.


_MAX_DEPTH = 60
_ALWAYS = frozenset({"version"})
_INTEGER_RANGE = (-(1 << 63), (1 << 64) - 1)
_NOWHERE = Mark()


def workflow_text(workflow: Workflow) -> str:
    """JSON that ``parse_workflow`` reads back as the same workflow.

    ``InvalidWorkflow`` for values that no file can hold.
    """
    reading = Reading("workflow")
    document = plain(node_of(workflow, reading))
    if reading.mistakes:
        raise InvalidWorkflow(reading.mistakes)
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()


def node_of(value: object, reading: Reading, path: Path = ()) -> Node:
    """A workflow, or its part at ``path``, as nodes without places."""
    return _node(value, path, reading)


def _node(value: Any, path: Path, reading: Reading) -> Node:
    if len(path) > _MAX_DEPTH:
        reading.mistake(_NOWHERE, path[:6], f"nested more than {_MAX_DEPTH} deep")
        return Scalar(None, "")
    if isinstance(value, Struct):
        return _struct_node(value, path, reading)
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                reading.mistake(_NOWHERE, path, f"a key must be text, not {key!r:.60}")
        named = {key: each for key, each in value.items() if isinstance(key, str)}
        return Entries({key: _node(each, (*path, key), reading) for key, each in named.items()})
    if isinstance(value, list | tuple):
        return Items([_node(each, (*path, index), reading) for index, each in enumerate(value)])
    return _scalar_node(value.value if isinstance(value, Enum) else value, path, reading)


def _struct_node(part: Struct, path: Path, reading: Reading) -> Entries:
    entries = {}
    for field in msgspec.structs.fields(part):
        value = getattr(part, field.name)
        if field.name not in _ALWAYS and _is_default(field, value):
            continue
        if field.name in DURATION_FIELDS and isinstance(value, float) and isfinite(value):
            value = show_duration(value)
        entries[field.name] = _node(value, (*path, field.name), reading)
    return Entries(entries)


def _is_default(field: Any, value: Any) -> bool:
    if field.default_factory is not NODEFAULT:
        return bool(value == field.default_factory())
    return field.default is not NODEFAULT and bool(value == field.default)


def _scalar_node(value: Any, path: Path, reading: Reading) -> Scalar:
    if isinstance(value, float) and not isfinite(value):
        reading.mistake(_NOWHERE, path, f"{value} is not a finite number")
        value = None
    elif isinstance(value, int) and not _INTEGER_RANGE[0] <= value <= _INTEGER_RANGE[1]:
        reading.mistake(_NOWHERE, path, "the number is too large", "write it as text")
        value = None
    elif isinstance(value, str) and not _is_unicode(value):
        reading.mistake(_NOWHERE, path, "the text is no Unicode")
        value = None
    elif not (value is None or isinstance(value, str | bool | int | float)):
        reading.mistake(_NOWHERE, path, f"a {type(value).__name__} cannot be in a workflow")
        value = None
    return Scalar(value, _written(value))


def _is_unicode(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def _written(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else repr(value)
