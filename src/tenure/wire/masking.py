"""The text of a workflow, as anybody may see it."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from tenure.wire.callbacks import MASK, address_of
from tenure.workflow.yaml import Enough, Entries, Items, Node, Reading, Scalar, read_document

_MASKED = Scalar(MASK, MASK)


def shown_text(text: str) -> str | None:
    """As it is, if its callbacks have no credentials; else written anew, without them and without
    comments: one and the same value can be written in many ways, so it is not looked for in the
    text. ``None`` for what nobody could read."""
    reading = Reading("workflow")
    try:
        root = read_document(text, reading)
    except Enough:
        return None
    if reading.mistakes or not isinstance(root, Entries):
        return None
    callbacks = root.entries.get("callbacks")
    if not isinstance(callbacks, Items):
        return text
    masked = Items([_masked(each) for each in callbacks.items])
    if _written(masked) == _written(callbacks):
        return text
    return _written(replace(root, entries={**root.entries, "callbacks": masked})) + "\n"


def _masked(target: Node) -> Node:
    if not isinstance(target, Entries):
        return _MASKED
    shown = dict(target.entries)
    url, headers = shown.get("url"), shown.get("headers")
    if url is not None:
        address = address_of(url.text) if isinstance(url, Scalar) else MASK
        shown["url"] = Scalar(address, address)
    if headers is not None:
        names = headers.entries if isinstance(headers, Entries) else ()
        shown["headers"] = Entries(dict.fromkeys(names, _MASKED))
    return replace(target, entries=shown)


def _written(node: Node, indent: str = "\n") -> str:
    """As JSON, but for numbers: ``1.10`` may be meant as text, and is written as it was."""
    inner = indent + "  "
    if isinstance(node, Scalar):
        if node.value is None:
            return "null"
        return _quoted(node.value) if isinstance(node.value, str) else node.text
    if isinstance(node, Items):
        items = ",".join(inner + _written(each, inner) for each in node.items)
        return f"[{items}{indent}]" if items else "[]"
    entries = ",".join(
        f"{inner}{_quoted(key)}: {_written(each, inner)}" for key, each in node.entries.items()
    )
    return f"{{{entries}{indent}}}" if entries else "{}"


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


# Bytes as text, though they end anywhere.


_LONGEST_CHARACTER = 4


def readable(data: bytes) -> tuple[str, int]:
    """As text, and how many of the bytes that is: a character whose rest is still to come is left
    for the next time, unless nothing else is there."""
    for cut in range(1, min(_LONGEST_CHARACTER, len(data))):
        lead = data[-cut]
        if lead & 0xC0 == 0x80:  # the inside of a character
            continue
        length = 2 if lead >> 5 == 0b110 else 3 if lead >> 4 == 0b1110 else 4
        if lead & 0xC0 == 0xC0 and cut < length:
            data = data[:-cut]
        break
    return data.decode("utf-8", "replace"), len(data)


def is_begun(data: bytes) -> bool:
    """Whether this is the beginning of one character and nothing else."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.start == 0 and error.reason == "unexpected end of data"
    return False
