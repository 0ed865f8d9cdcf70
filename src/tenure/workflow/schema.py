"""The workflow file as JSON Schema, for editors: ``tenure schema``.

Generated from the same table the parser reads by. What a schema cannot say (that names exist, that
expressions compile) only ``tenure validate`` checks.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

from tenure.workflow.catalogue import ActionSpec, Argument, Catalogue
from tenure.workflow.grammar import grammar

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
    """A value of its kind, or text that will become one."""
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
    """Text may be written as a number, for the parser takes it as it was written."""
    further = ("number", "boolean") if "string" in types else ()
    return sorted({*types, *further})
