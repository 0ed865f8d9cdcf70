"""The text of a workflow without credentials, and decoding of bytes that may end mid-character."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from tenure.wire.callbacks import MASK, address_of
from tenure.workflow.yaml import Enough, Entries, Items, Node, Reading, Scalar, read_document

_MASKED = Scalar(MASK, MASK)


def shown_text(text: str) -> str | None:
    """``text`` unchanged if its callbacks have no credentials; otherwise written anew, without them
    and without comments: a value can be written in many ways, so it is not searched in the text.
    ``None`` if it cannot be parsed."""
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
    """As JSON, except numbers: ``1.10`` may be meant as text, and is written unchanged."""
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


_MAX_CHARACTER_BYTES = 4


def readable(data: bytes) -> tuple[str, int]:
    """The text, and the number of bytes it took: an incomplete character at the end is left for the
    next call, unless there is nothing else."""
    for cut in range(1, min(_MAX_CHARACTER_BYTES, len(data))):
        lead = data[-cut]
        if lead & 0xC0 == 0x80:  # a continuation byte
            continue
        length = 2 if lead >> 5 == 0b110 else 3 if lead >> 4 == 0b1110 else 4
        if lead & 0xC0 == 0xC0 and cut < length:
            data = data[:-cut]
        break
    return data.decode("utf-8", "replace"), len(data)


def is_begun(data: bytes) -> bool:
    """Whether this is the beginning of exactly one character."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.start == 0 and error.reason == "unexpected end of data"
    return False
