"""What a run executes, exactly: the workflow's own text and the choices made at its start.

Stored with the run, so that whoever continues or retries it needs nothing else.
"""

from __future__ import annotations

import hashlib

import msgspec
from msgspec import Struct

from tenure.model.codec import decode
from tenure.runtime.lineage import Continuation


class Definition(Struct, frozen=True, kw_only=True, omit_defaults=True):
    workflow: str
    """The file's text; of a workflow built in Python its JSON, which is YAML too."""
    source: str | None = None
    folder: str | None = None
    limit: tuple[str, ...] = ()
    local: bool = False
    files: dict[str, bytes] = {}
    """Those its actions need, by the names their arguments give them."""
    continues: Continuation | None = None
    """Of a retry."""

    def encode(self) -> str:
        return msgspec.json.encode(self).decode()


_definitions = msgspec.json.Decoder(Definition)


def decode_definition(text: str) -> Definition:
    return decode(_definitions, text)


def digest_of(workflow: str) -> str:
    """Equal for every run of the same text."""
    return f"sha256:{hashlib.sha256(workflow.encode()).hexdigest()}"
