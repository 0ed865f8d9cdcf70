"""A workflow built in Python, written down as a file would say it.

A run stores the text it executes, so both ways of making a workflow end in the same text and pass
the same checks.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from math import isfinite
from typing import Any

import msgspec
from msgspec import NODEFAULT, Struct

from tenure.model.errors import InvalidWorkflow
from tenure.workflow.durations import show_duration
from tenure.workflow.nodes import Entries, Items, Mark, Node, Path, Scalar, plain
from tenure.workflow.reading import Reading
from tenure.workflow.spec import DURATION_FIELDS, Workflow

_DEEPEST = 60
_ALWAYS = frozenset({"version"})
_WHOLES = (-(1 << 63), (1 << 64) - 1)
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
    """A workflow, or what stands at ``path`` of one, as if read from a file, but without places."""
    return _node(value, path, reading)


def _node(value: Any, path: Path, reading: Reading) -> Node:
    if len(path) > _DEEPEST:
        reading.mistake(_NOWHERE, path[:6], f"nested more than {_DEEPEST} deep")
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
    elif isinstance(value, int) and not _WHOLES[0] <= value <= _WHOLES[1]:
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
