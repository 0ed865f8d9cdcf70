"""What is stored with a new run, so that whoever executes it needs nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tenure.runtime.ready import Ready
from tenure.runtime.travelling import Place, gather_files
from tenure.workflow.variables import Exports


class Packed(Struct, frozen=True, gc=False):
    """A definition with its files, as it is stored and as it is used."""

    encoded: str
    files: Mapping[str, bytes]


async def packed(
    ready: Ready,
    variables: Mapping[str, Any],
    given: Mapping[str, bytes] | None = None,
    *,
    waits: bool,
) -> Packed:
    """``InvalidWorkflow`` for files that are too large; of a run that ``waits`` also for files that
    cannot be had now. No name of a file holds a secret: such names are not known yet. ``given`` are
    the files there are; ``None``: those of the workflow's folder."""
    if not ready.files:
        return Packed(ready.encoded, {})
    source = ready.source
    known = {
        name: value for name, value in variables.items() if name not in source.workflow.secrets
    }
    exports = Exports(ready.prepared.plan, known)
    place = Place(source.folder or ".", source.source or "workflow", given)
    files = await asyncio.to_thread(gather_files, ready.files, exports, place, strict=waits)
    return Packed(replace(ready.definition, files=files).encode(), files)
