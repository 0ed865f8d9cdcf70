"""Parses YAML or JSON into a tree of nodes with places, within bounds for any text.

The tree is built from the parser's events, not recursively. An alias adds the same node again, and
its size when written out is counted at once: a file that would expand to billions of values is
refused after a few lines, before anything has grown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

import yaml
from msgspec import Struct

from tenure.model.errors import Mistake

Path = tuple[str | int, ...]
_LINE_ENDS = re.compile(r"\r\n|\r|\n")
_SIMPLE = re.compile(r"[\w-]{1,100}")


class Mark(Struct, frozen=True):
    """A place in the text; both count from 1. Zero: not from a text."""

    line: int = 0
    column: int = 0


def mark_after(text: str) -> Mark:
    """The place after ``text`` in a file that begins with it."""
    lines = _LINE_ENDS.split(text)
    return Mark(len(lines), len(lines[-1]) + 1)


class Scalar(Struct, frozen=True):
    value: Any
    text: str
    """As written: ``1.10`` may be meant as text although it reads as a number."""
    mark: Mark = Mark()
    style: str | None = None
    """``|`` or ``>`` for a block, a quote, or none."""


class Items(Struct, frozen=True):
    items: Sequence[Node]
    mark: Mark = Mark()


class Entries(Struct, frozen=True):
    entries: Mapping[str, Node]
    keys: Mapping[str, Mark] = {}
    mark: Mark = Mark()


Node = Scalar | Items | Entries


def show_path(path: Path) -> str:
    """``steps[1].timeout``."""
    shown = ""
    for part in path:
        if isinstance(part, int):
            shown += f"[{part}]"
        elif not _SIMPLE.fullmatch(part):
            shown += f"[{part[:60]!r}]"
        else:
            shown += f".{part}" if shown else part
    return shown


def mark_of(root: Node, path: Path, *, key: bool = False) -> Mark:
    """The place of ``path``, or of its longest part that exists. ``key``: of its last name."""
    node, name, depth = _walk(root, path)
    return name if key and depth == len(path) else node.mark


def node_at(root: Node, path: Path) -> Node | None:
    node, _, depth = _walk(root, path)
    return node if depth == len(path) else None


def _walk(root: Node, path: Path) -> tuple[Node, Mark, int]:
    """The innermost existing node on ``path``, the place of its name, and its depth."""
    node, name = root, root.mark
    for depth, part in enumerate(path):
        if isinstance(node, Entries) and part in node.entries:
            name = node.keys.get(str(part), Mark())
            node = node.entries[str(part)]
        elif isinstance(node, Items) and isinstance(part, int) and part < len(node.items):
            node = node.items[part]
            name = node.mark
        else:
            return node, name, depth
    return node, name, len(path)


def plain(node: Node) -> Any:
    """The value without places. Shared parts stay shared."""
    if isinstance(node, Scalar):
        return node.value
    if isinstance(node, Items):
        return [plain(each) for each in node.items]
    return {key: plain(each) for key, each in node.entries.items()}


INVALID: Any = object()
"""Returned by a shape after it has reported a mistake."""
MOST_MISTAKES = 100


class Enough(Exception):
    """Stops reading: the file cannot be parsed, or has too many mistakes."""


class Reading:
    """One pass over a file: its mistakes and remarks."""

    def __init__(self, source: str) -> None:
        self._source = source
        self.mistakes: list[Mistake] = []
        self.notices: list[Mistake] = []
        self._bad: set[Path] = set()

    def mistake(self, mark: Mark, path: Path, message: str, hint: str | None = None) -> Any:
        """Report a mistake. Returns ``INVALID``; raises ``Enough`` after the last one reported."""
        self._bad.add(path)
        self.mistakes.append(self.remark(mark, path, message, hint))
        if len(self.mistakes) >= MOST_MISTAKES:
            raise Enough
        return INVALID

    def give_up(self, mark: Mark, message: str, hint: str | None = None) -> Enough:
        """The exception to raise after a mistake that makes further reading impossible."""
        self.mistakes.append(self.remark(mark, (), message, hint))
        return Enough()

    def notice(self, mark: Mark, path: Path, message: str, hint: str | None = None) -> None:
        if len(self.notices) < MOST_MISTAKES:
            self.notices.append(self.remark(mark, path, message, hint))

    def knows_better(self, path: Path) -> bool:
        """Whether a mistake at or around ``path`` has been reported already."""
        return any(path[:length] in self._bad for length in range(1, len(path) + 1))

    def remark(self, mark: Mark, path: Path, message: str, hint: str | None) -> Mistake:
        """A remark on a place; the caller keeps it."""
        return Mistake(
            source=self._source,
            line=mark.line or None,
            column=mark.column or None,
            path=show_path(path),
            message=message,
            hint=hint,
        )


# JSON for YAML's parser. libyaml does not quite read JSON: it fails on tabs between tokens, escaped
# surrogate pairs, and characters that JSON allows in text and YAML does not. Lines are unchanged,
# so that places of mistakes stay right.


_TEXT_OR_TAB = re.compile(r'"(?:[^"\\\n]|\\.)*"|\t')
_PAIR = re.compile(r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def looks_like_json(text: str) -> bool:
    return text.lstrip()[:1] == "{"


def readable(text: str) -> str:
    return _TEXT_OR_TAB.sub(lambda found: _readable(found[0]), text)


def _readable(piece: str) -> str:
    if piece == "\t":
        return " "
    piece = _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", piece)
    return _PAIR.sub(_joined, piece) if "\\u" in piece else piece


def _joined(pair: re.Match[str]) -> str:
    high, low = int(pair[1], 16), int(pair[2], 16)
    return f"\\U{0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00):08x}"


MAX_DOCUMENT_BYTES = 1 << 20
MOST_NODES = 200_000
MOST_EXPRESSIONS = 10_000
MOST_TEXT = 8 << 20
"""Characters with every alias written out."""
DEEPEST = 60
SAVE_AS_UTF_8 = "save the file as UTF-8"
_SPLIT_HINT = "split it into several workflows"
_EMPTY_HINT = "a workflow has at least a name and steps"
_TAG = "tag:yaml.org,2002:"
_CORE = (
    ("bool", "true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", "[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
        r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        "-+0123456789.",
    ),
    ("null", "~|null|Null|NULL|", ["~", "n", "N", ""]),
)
"""What a plain scalar may be by the core schema of YAML 1.2, and the characters it begins with.
PyYAML itself reads 1.1, where ``no`` is false."""
_OCTAL = re.compile(r"[-+]?0[0-7]+")
_INTEGER_RANGE = (-(1 << 63), (1 << 64) - 1)


class _CoreLoader(yaml.CBaseLoader):
    pass


for _kind, _pattern, _first in _CORE:
    _CoreLoader.add_implicit_resolver(_TAG + _kind, re.compile(f"(?:{_pattern})\\Z"), _first)


class _Open(Struct):
    """A list or map under construction."""

    mark: Mark
    anchor: str | None
    items: list[Node] | None
    entries: dict[str, Node]
    keys: dict[str, Mark]
    merged: list[Entries]
    key: str | None = None
    """The key of the next value."""
    awaits_value: bool = False
    nodes: int = 1
    text: int = 0


class _Weight(Struct, frozen=True):
    nodes: int
    text: int


def read_document(text: str, reading: Reading) -> Node:
    """The tree; mistakes in the YAML are reported to ``reading``. ``Enough`` if there is none."""
    prepared = _prepared(text, reading)
    try:
        return _Composer(reading).compose(prepared)
    except yaml.reader.ReaderError as error:
        raise reading.give_up(*_no_text(error, prepared)) from error
    except yaml.YAMLError as error:
        raise reading.give_up(_where(error), *_syntax(error)) from error


def _prepared(text: str, reading: Reading) -> str:
    start = Mark(1, 1)
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        where, said = mark_after(text[: error.start]), _escaped(text[error.start])
        raise reading.give_up(where, f"the text is no Unicode: {said}", SAVE_AS_UTF_8) from error
    if size > MAX_DOCUMENT_BYTES:
        hint = f"{_SPLIT_HINT}; scripts and data may be files beside it (src)"
        raise reading.give_up(start, f"the file has more than {MAX_DOCUMENT_BYTES} bytes", hint)
    if text.count("${{") > MOST_EXPRESSIONS:
        hint = f"{_SPLIT_HINT}, or name what repeats in vars"
        raise reading.give_up(start, f"the file has more than {MOST_EXPRESSIONS} expressions", hint)
    text = text.removeprefix("\ufeff")
    return readable(text) if looks_like_json(text) else text


def _no_text(error: yaml.reader.ReaderError, text: str) -> tuple[Mark, str, str]:
    """The parser reports a byte offset, and no line."""
    before = text.encode()[: error.position].decode()
    said = _escaped(chr(error.character))
    written = f'"\\u{error.character:04x}"'
    return (
        mark_after(before),
        f"the character {said} is not allowed in YAML",
        f"{SAVE_AS_UTF_8}, or write {written} in double quotes",
    )


def _escaped(character: str) -> str:
    return ascii(character)[1:-1]


def _where(error: yaml.YAMLError) -> Mark:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    return Mark(mark.line + 1, mark.column + 1) if mark else Mark(1, 1)


def _syntax(error: yaml.YAMLError) -> tuple[str, str | None]:
    said = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
    context = getattr(error, "context", None)
    hint = None
    if "cannot start any token" in said:
        hint = "YAML is indented with spaces, not tabs, and text with special signs is quoted"
    elif "unexpected end of stream" in said:
        hint = "close the quote that was opened"
    elif "expected ',' or" in said:
        hint = "close the bracket or brace before this place, and put commas between its items"
    elif "mapping values are not allowed" in said or "expected" in said:
        hint = "check the indentation, and quote text that holds ': '"
    return f"not valid YAML: {said}{f' {context}' if context else ''}", hint


class _Composer:
    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._stack: list[_Open] = []
        self._root: Node | None = None
        self._anchors: dict[str, Node] = {}
        self._weights: dict[int, _Weight] = {}

    def compose(self, text: str) -> Node:
        loader = _CoreLoader(text)
        try:
            while (event := loader.get_event()) is not None:
                self._take(event, loader)
                if isinstance(event, yaml.StreamEndEvent):
                    break
        finally:
            loader.dispose()
        if self._root is None:
            raise self._reading.give_up(Mark(1, 1), "the file is empty", _EMPTY_HINT)
        return self._root

    def _take(self, event: Any, loader: Any) -> None:
        mark = Mark(event.start_mark.line + 1, event.start_mark.column + 1)
        if isinstance(event, yaml.ScalarEvent):
            self._place(self._scalar(event, loader, mark), event.anchor, 1, len(event.value), mark)
        elif isinstance(event, yaml.SequenceStartEvent | yaml.MappingStartEvent):
            self._open(event, mark)
        elif isinstance(event, yaml.SequenceEndEvent | yaml.MappingEndEvent):
            self._close()
        elif isinstance(event, yaml.AliasEvent):
            self._alias(str(event.anchor), mark)
        elif isinstance(event, yaml.DocumentStartEvent) and self._root is not None:
            raise self._reading.give_up(
                mark, "a file holds one workflow; a second document begins here"
            )

    # Parts.

    def _open(self, event: Any, mark: Mark) -> None:
        if len(self._stack) >= DEEPEST:
            raise self._reading.give_up(
                mark,
                f"nested more than {DEEPEST} deep",
                "check the indentation and close the brackets; data that is deeper may be JSON in "
                "a text, for |fromjson",
            )
        kind = "seq" if isinstance(event, yaml.SequenceStartEvent) else "map"
        if event.tag not in (None, "!", _TAG + kind):
            self._reading.mistake(
                mark, self._path(), f"the tag {_shown_tag(event.tag)} is not supported here"
            )
        items: list[Node] | None = [] if kind == "seq" else None
        self._stack.append(_Open(mark, event.anchor, items, {}, {}, []))

    def _close(self) -> None:
        done = self._stack.pop()
        if done.items is not None:
            node: Node = Items(done.items, done.mark)
        else:
            self._merge(done)
            node = Entries(done.entries, done.keys, done.mark)
        self._place(node, done.anchor, done.nodes, done.text, done.mark)

    def _alias(self, name: str, mark: Mark) -> None:
        node = self._anchors.get(name)
        if node is None:
            recursive = any(part.anchor == name for part in self._stack)
            said = "contains itself" if recursive else "has no anchor above it"
            raise self._reading.give_up(mark, f"the alias *{name} {said}")
        weight = self._weights[id(node)]
        self._place(node, None, weight.nodes, weight.text, mark)

    def _place(self, node: Node, anchor: str | None, nodes: int, text: int, mark: Mark) -> None:
        """Put a finished node in its place, and count its size when written out."""
        if anchor is not None:
            self._anchors[anchor] = node
            self._weights[id(node)] = _Weight(nodes, text)
        if not self._stack:
            self._root = node
            return
        parent = self._stack[-1]
        parent.nodes += nodes
        parent.text += text
        if parent.nodes > MOST_NODES or parent.text > MOST_TEXT:
            many = parent.nodes > MOST_NODES
            limit = f"{MOST_NODES} values" if many else f"{MOST_TEXT} characters"
            raise self._reading.give_up(
                mark,
                f"the file holds more than {limit}, with its aliases written out",
                f"use fewer aliases (*name), or {_SPLIT_HINT}",
            )
        if parent.items is not None:
            parent.items.append(node)
        elif parent.awaits_value:
            self._put_value(parent, node, mark)
        else:
            parent.key = self._key(parent, node, mark)
            parent.awaits_value = True

    def _put_value(self, parent: _Open, node: Node, mark: Mark) -> None:
        parent.awaits_value = False
        if parent.key == "<<" and parent.keys.get("<<") is None:
            self._take_merge(parent, node, mark)
        elif parent.key is not None:
            parent.entries[parent.key] = node
        parent.key = None

    def _key(self, parent: _Open, node: Node, mark: Mark) -> str | None:
        if not isinstance(node, Scalar) or not isinstance(node.value, str):
            shown = f": {node.text!r}"[:60] if isinstance(node, Scalar) else ""
            hint = "write it in quotes" if isinstance(node, Scalar) else None
            self._reading.mistake(mark, self._path(), f"a key must be text{shown}", hint)
            return None
        key = node.value
        if key == "<<" and not node.style:
            return key
        if key in parent.keys:
            first = parent.keys[key].line
            path = (*self._path(), key)
            self._reading.mistake(
                mark, path, f"{key[:60]!r} is given twice; the first is on line {first}"
            )
            return None
        parent.keys[key] = mark
        return key

    # Merging.

    def _take_merge(self, parent: _Open, node: Node, mark: Mark) -> None:
        maps = node.items if isinstance(node, Items) else [node]
        for each in maps:
            if isinstance(each, Entries):
                parent.merged.append(each)
            else:
                self._reading.mistake(mark, self._path(), "'<<' takes a map or a list of maps")

    def _merge(self, done: _Open) -> None:
        """``<<: *other``: missing keys are taken from there; the first mention wins."""
        for other in done.merged:
            for key, node in other.entries.items():
                if key not in done.entries:
                    done.entries[key] = node
                    done.keys[key] = other.keys[key]

    # Values.

    def _path(self) -> Path:
        path: list[str | int] = []
        for part in self._stack:
            if part.items is not None:
                path.append(len(part.items))
            elif part.key is not None:
                path.append(part.key)
        return tuple(path)

    def _scalar(self, event: Any, loader: Any, mark: Mark) -> Scalar:
        written: str = event.value
        tag = event.tag
        if tag is None or tag == "!":
            tag = loader.resolve(yaml.ScalarNode, written, event.implicit)
        try:
            value = _value(tag, written)
        except ValueError as error:
            self._reading.mistake(
                mark, self._path(), str(error), "write it in quotes if it is meant as text"
            )
            value = written
        return Scalar(value, written, mark, event.style)


def _value(tag: str, written: str) -> Any:
    """The value of a scalar. ``ValueError`` if JSON cannot hold it."""
    kind = tag.removeprefix(_TAG)
    if kind == "str":
        return written
    if kind == "null" and written.lower() in ("", "~", "null"):
        return None
    if kind == "bool" and written.lower() in ("true", "false"):
        return written.lower() == "true"
    if kind == "int":
        return _whole(written)
    if kind == "float":
        return _fraction(written)
    raise ValueError(f"the tag {_shown_tag(tag)} is not supported here")


def _whole(written: str) -> int:
    """A leading zero means octal, as for file modes and in older files."""
    if len(written) > 30:
        raise ValueError(f"the number {written[:20]}… is too large")
    base = 8 if _OCTAL.fullmatch(written) else 0
    try:
        value = int(written, base)
    except ValueError:
        value = _decimal(written)
    if not _INTEGER_RANGE[0] <= value <= _INTEGER_RANGE[1]:
        raise ValueError(f"the number {written} is too large")
    return value


def _decimal(written: str) -> int:
    try:
        return int(written)
    except ValueError:
        raise ValueError(f"{written!r} is not a whole number") from None


def _fraction(written: str) -> float:
    try:
        value = float(written)
    except ValueError:
        value = float("nan")
    if not isfinite(value):
        raise ValueError(f"{written[:40]} is not a finite number")
    return value


def _shown_tag(tag: str) -> str:
    return f"!!{tag.removeprefix(_TAG)}" if tag.startswith(_TAG) else tag
