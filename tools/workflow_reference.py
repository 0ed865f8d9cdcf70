"""Write the tables of ``docs/reference/workflow.md`` from the code that reads workflow files.

A table stands between ``<!-- table: NAME -->`` and ``<!-- end -->``; everything else on the page is
its author's. Each of ``TABLES`` must be there exactly once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from msgspec import NODEFAULT, Struct, structs
from tools.generated import FOLDER, NotThePage, table, write_or_check

from tenure.actions.arguments import SURROUNDINGS
from tenure.actions.registry import MODULES, own_action
from tenure.workflow import checks, sandbox, schema, yaml
from tenure.workflow.catalogue import ActionSpec, Argument, Text
from tenure.workflow.durations import show_duration
from tenure.workflow.spec import DURATION_FIELDS

PAGE = FOLDER / "workflow.md"
BLOCK = re.compile(r"(?<=<!-- table: )(?P<name>\S+) -->\n.*?(?=<!-- end -->)", re.DOTALL)

NOT_YET = {
    ("host", "address"): "only `local` is reached",
}
"""Keys this version checks without doing all they say, and what it does instead."""

_WORKFLOW = schema.grammar({})
PARTS: dict[str, schema.Part] = {
    "workflow": _WORKFLOW,
    "inventory": schema.INVENTORY,
    "host": schema.HOST,
    "group": schema.GROUP,
    "defaults": schema.DEFAULTS,
    "step": next(key.shape.shape for key in _WORKFLOW.keys if key.name == "steps"),
    "handler": next(key.shape.shape for key in _WORKFLOW.keys if key.name == "handlers"),
    "retries": schema.RETRIES,
    "rolling": schema.ROLLING,
    "verify": schema.VERIFY,
    "plan": schema.PLAN,
    "callback": schema.CALLBACK,
}


# Keys.


def written(shape: Any) -> str:
    """What may stand there, in a few words."""
    match shape:
        case schema.String():
            return "text"
        case schema.Boolean():
            return "true or false"
        case schema.Integer(least, most):
            return f"whole number, {_bounds(least, most)}"
        case schema.Number(least):
            return f"number, at least {least:g}"
        case schema.Duration():
            return "[duration](#durations)"
        case schema.Choice(choices):
            return _either(choices)
        case schema.ListOf(inner):
            return f"list of {_plural(inner)}"
        case schema.MapOf(inner):
            return f"map of {_plural(inner)}"
        case schema.Amount():
            return "number of hosts, or a share like `25%`"
        case schema.Loop():
            return "list, or one `${{ … }}`"
        case schema.Part(short=None):
            return _link(shape)
        case schema.Part(short=short):
            return f"{written(short)}; or a map: {_link(shape)}"
        case _:
            return "map"


def _bounds(least: int, most: int | None) -> str:
    return f"at least {least}" if most is None else f"{least} to {most:,}"


def _either(choices: Iterable[object]) -> str:
    return " or ".join(f"`{choice}`" for choice in choices)


def _plural(shape: Any) -> str:
    match shape:
        case schema.OrNothing(part):
            return f"{_link(part)}s"
        case schema.Part():
            return f"{_link(shape)}s"
        case schema.Choice(choices):
            return _either(choices)
        case schema.String():
            return "text"
        case _:
            return "any values"


def _link(part: schema.Part) -> str:
    name = next(name for name, known in PARTS.items() if known.struct is part.struct)
    return f"[{name}](#{name})"


def default_of(part: schema.Part, key: schema.Key) -> str:
    """Empty where nothing is the default, or where a part's own table says it."""
    if key.required:
        return "**required**"
    value = next(each.default for each in structs.fields(part.struct) if each.name == key.name)
    if value is NODEFAULT or value in (None, ()) or isinstance(value, Struct):
        return ""
    if key.name in DURATION_FIELDS:
        return f"`{show_duration(value)}`"
    if isinstance(value, tuple):
        return f"`[{', '.join(value)}]`"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def keys_of(name: str) -> list[str]:
    part = PARTS[name]
    return table(
        ("key", "value", "default", "meaning"),
        (
            (f"`{key.name}`", written(key.shape), default_of(part, key), _meaning(name, key))
            for key in part.keys
        ),
    )


def _meaning(name: str, key: schema.Key) -> str:
    instead = NOT_YET.get((name, key.name))
    return f"{key.description}. **Not yet:** {instead}" if instead else key.description


def handler_keys() -> list[str]:
    return [", ".join(f"`{key.name}`" for key in PARTS["handler"].keys)]


# Actions.


def specs() -> list[ActionSpec]:
    return [own_action(name).spec for name in MODULES]


_READ_AS = {Text.PLAIN: "", Text.SHELL: "shell ", Text.PYTHON: "Python ", Text.FIXED: "fixed "}


def _argument(argument: Argument, alternatives: Iterable[str] = ()) -> tuple[str, ...]:
    called = {"string": "text", "array": "list", "object": "map", "boolean": "true or false"}
    kinds = [called.get(kind, kind) for kind in argument.types]
    need = "**required**" if argument.required else ""
    if argument.name in alternatives:
        need = "**one of these**"
    return (
        f"`{argument.name}`",
        _READ_AS[argument.text] + " or ".join(kinds),
        need,
        argument.description,
    )


def actions() -> list[str]:
    shared = {argument.name for argument in SURROUNDINGS}
    lines: list[str] = []
    for spec in specs():
        alternatives = [name for group in spec.exactly_one_of for name in group]
        own = [each for each in spec.arguments if not (spec.environment and each.name in shared)]
        lines += [f"### {spec.name}", "", spec.description, ""]
        lines += table(
            ("argument", "value", "", "meaning"),
            (_argument(argument, alternatives) for argument in own),
        )
        lines.append("")
    return lines[:-1]


def process_arguments() -> list[str]:
    named = ", ".join(f"`{spec.name}`" for spec in specs() if spec.environment)
    rows = table(("argument", "value", "", "meaning"), map(_argument, SURROUNDINGS))
    return [f"{named} also take:", "", *rows]


# Expressions and limits.


def filter_names() -> list[str]:
    return [_listed(name for name in sandbox.FILTERS if name != "d")]


def test_names() -> list[str]:
    return [_listed(sandbox.TESTS)]


def method_names() -> list[str]:
    return [
        f"- of {called}: {_listed(sandbox.METHODS[kind])}"
        for kind, called in ((str, "text"), (dict, "maps"))
    ]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


def limits() -> list[str]:
    return table(
        ("limit", ""),
        (
            ("size of a file", f"{yaml.MAX_DOCUMENT_BYTES:,} bytes"),
            ("values in it, with every alias written out", f"{yaml.MOST_NODES:,}"),
            ("characters, with every alias written out", f"{yaml.MOST_TEXT:,}"),
            ("depth", f"{yaml.DEEPEST}"),
            ("expressions in it", f"{yaml.MOST_EXPRESSIONS:,}"),
            ("steps", f"{schema.MOST_STEPS:,}"),
            ("handlers", f"{schema.MOST_HANDLERS:,}"),
            ("hosts", f"{schema.MOST_HOSTS:,}"),
            ("hosts over all steps", f"{checks.MOST_TASKS:,}"),
            ("length of a name", f"{checks.LONGEST_NAME} characters"),
            ("length of what an expression gives", f"{sandbox.LONGEST_TEXT:,} characters"),
            ("items of a list it gives", f"{sandbox.MOST_ITEMS:,}"),
            ("items one evaluation may look at", f"{sandbox.MOST_WORK:,}"),
        ),
    )


# The page.


TABLES: dict[str, Callable[[], list[str]]] = {
    **{name: partial(keys_of, name) for name in PARTS if name != "handler"},
    "handler": handler_keys,
    "actions": actions,
    "process-arguments": process_arguments,
    "filters": filter_names,
    "tests": test_names,
    "methods": method_names,
    "limits": limits,
}


def fresh(page: str) -> str:
    """The page with every table written anew. ``NotThePage``."""
    found = Counter(block["name"] for block in BLOCK.finditer(page))
    wrong = sorted({name for name in {*TABLES, *found} if found[name] != (name in TABLES)})
    if wrong:
        raise NotThePage(f"these tables must be on the page once, or not at all: {wrong}")
    return BLOCK.sub(
        lambda block: "\n".join([f"{block['name']} -->", *TABLES[block["name"]](), ""]), page
    )


def main(arguments: list[str] | None = None) -> int:
    return write_or_check({"workflow.md": fresh}, arguments)


if __name__ == "__main__":
    raise SystemExit(main())
