"""A workflow file as a tree that remembers where everything stood."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

Path = tuple[str | int, ...]
_LINE_ENDS = re.compile(r"\r\n|\r|\n")
_SIMPLE = re.compile(r"[\w-]{1,100}")


class Mark(Struct, frozen=True):
    """A place in the text; both count from 1. Zero: not from a text."""

    line: int = 0
    column: int = 0


def mark_after(text: str) -> Mark:
    """The place of what follows ``text`` in a file that begins with it."""
    lines = _LINE_ENDS.split(text)
    return Mark(len(lines), len(lines[-1]) + 1)


class Scalar(Struct, frozen=True):
    value: Any
    text: str
    """As it was written: ``1.10`` may be meant as text although it reads as a number."""
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
    """Where ``path`` stands, or what there is of it. ``key``: where its last name stands."""
    node, name, depth = _walk(root, path)
    return name if key and depth == len(path) else node.mark


def node_at(root: Node, path: Path) -> Node | None:
    node, _, depth = _walk(root, path)
    return node if depth == len(path) else None


def _walk(root: Node, path: Path) -> tuple[Node, Mark, int]:
    """The innermost node there is along ``path``, where its name stands, and how far that is."""
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
    """The bare value. Parts that several places share stay shared."""
    if isinstance(node, Scalar):
        return node.value
    if isinstance(node, Items):
        return [plain(each) for each in node.items]
    return {key: plain(each) for key, each in node.entries.items()}
