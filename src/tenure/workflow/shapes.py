"""What may stand where in a workflow file: each shape reads a node and describes itself.

One table (``grammar``) of these shapes is both the parser's and the editors' knowledge, so that
what ``tenure schema`` promises is what ``parse_workflow`` accepts. A shape that finds a mistake
reports it and answers ``BAD``; the rest of the file is read all the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from tenure.workflow.comparing import number_of
from tenure.workflow.durations import PATTERN, parse_duration
from tenure.workflow.nodes import Entries, Items, Mark, Node, Path, Scalar, plain
from tenure.workflow.reading import BAD, Reading
from tenure.workflow.wording import did_you_mean, instead_of, shown

Schema = dict[str, Any]
_TRUE, _FALSE = frozenset({"y", "yes", "on"}), frozenset({"n", "no", "off"})


class Shape(Protocol):
    def read(self, node: Node, path: Path, reading: Reading) -> Any:
        """The value, or ``BAD`` after reporting why."""
        ...

    def schema(self) -> Schema: ...


def wrong(node: Node, path: Path, reading: Reading, wanted: str, hint: str | None = None) -> Any:
    return reading.mistake(node.mark, path, f"must be {wanted}, not {kind_of(node)}", hint)


def kind_of(node: Node) -> str:
    if isinstance(node, Entries):
        return "a map"
    return "a list" if isinstance(node, Items) else shown(node.value)


class Words(Struct, frozen=True):
    """Text. A number or a truth value is taken as it was written: ``version: 0.1``."""

    def read(self, node: Node, path: Path, reading: Reading) -> Any:
        if not isinstance(node, Scalar) or node.value is None:
            return wrong(node, path, reading, "text")
        return node.value if isinstance(node.value, str) else node.text

    def schema(self) -> Schema:
        return {"type": ["string", "number", "boolean"]}


class Flag(Struct, frozen=True):
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


class Whole(Struct, frozen=True):
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
    """Whether it may be none, also written without a unit. It is a mistake where everything would
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
        return tuple(blank(self.shape) if value is BAD else value for value in values)

    def schema(self) -> Schema:
        limits = {} if self.most is None else {"maxItems": self.most}
        least = {"minItems": self.least} if self.least else {}
        return {"type": "array", "items": self.shape.schema(), **least, **limits}


def _no_map(node: Node, path: Path, reading: Reading) -> Any:
    """Text is not repeated: it may be the address of a callback, or its headers."""
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
        return {key: value for key, value in values.items() if value is not BAD}

    def schema(self) -> Schema:
        limits = {} if self.most is None else {"maxProperties": self.most}
        return {"type": "object", "additionalProperties": self.shape.schema(), **limits}


class Anything(Struct, frozen=True):
    """Any value JSON can hold."""

    octal: bool = False
    """Whether ``0644`` is surely meant as the number it is read as."""

    def read(self, node: Node, path: Path, reading: Reading) -> Any:
        self._say_what_was_read(node, path, reading)
        return plain(node)

    def _say_what_was_read(self, node: Node, path: Path, reading: Reading) -> None:
        if isinstance(node, Scalar):
            number = isinstance(node.value, int | float) and not isinstance(node.value, bool)
            if number and node.mark.line and _reads_otherwise(node, self.octal):
                read_as = f"{node.text} is read as the number {node.value}"
                reading.notice(node.mark, path, read_as, "quote it if it is meant as text")
        elif isinstance(node, Items):
            for index, each in enumerate(node.items):
                self._say_what_was_read(each, (*path, index), reading)
        else:
            for key, each in node.entries.items():
                self._say_what_was_read(each, (*path, key), reading)

    def schema(self) -> Schema:
        return {}


def _reads_otherwise(node: Scalar, octal: bool) -> bool:
    """``1.10`` and ``007``: one would expect them back as they were written."""
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
    """What to write where a required one is missing, if that is always the same."""


class Part(Struct, frozen=True):
    """A map with known keys, read into ``struct``."""

    struct: Any
    keys: Sequence[Key]
    instead: Mapping[str, str] = {}
    """Keys other tools use, or older files were tempted to, and what they are called here."""
    short: Any = None
    """A shape for the short way of writing it, and the key its value belongs to."""
    short_key: str = ""

    def read(self, node: Node, path: Path, reading: Reading) -> Any:
        if self.short and isinstance(node, Scalar):
            value = self.short.read(node, path, reading)
            return BAD if value is BAD else self.struct(**{self.short_key: value})
        if not isinstance(node, Entries):
            return _no_map(node, path, reading)
        names = {key.name for key in self.keys}
        for name in node.entries:
            if name not in names:
                self._unknown(name, node, path, reading)
        values = {key.name: self._value(key, node, path, reading) for key in self.keys}
        return self.struct(**{name: value for name, value in values.items() if value is not BAD})

    def _value(self, key: Key, node: Entries, path: Path, reading: Reading) -> Any:
        given = node.entries.get(key.name)
        if not key.required and (given is None or _says_nothing(given, key.shape)):
            return BAD
        inside = (*path, key.name)
        if given is None:
            hint = f"write {key.name}: {key.example}" if key.example else None
            reading.mistake(node.mark, inside, f"{key.name!r} is missing", hint)
            return blank(key.shape)
        value = key.shape.read(given, inside, reading)
        return blank(key.shape) if value is BAD and key.required else value

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


def _says_nothing(node: Node, shape: Any) -> bool:
    """``timeout:`` and ``timeout: ""`` count as not given: programs write files that way."""
    if not isinstance(node, Scalar):
        return False
    return node.value is None or (node.value == "" and isinstance(shape, Choice | Duration))


def blank(shape: Any) -> Any:
    """What stands in for a value that could not be read, so that the rest can be."""
    if isinstance(shape, Part):
        return shape.struct(**{key.name: blank(key.shape) for key in shape.keys if key.required})
    return () if isinstance(shape, ListOf) else ""
