"""What tasks export is of no use when their runner was killed, and may be a secret: it goes at
once, and not when some later runner comes by."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress

from tenure.transports.leftovers import remove_if_abandoned
from tenure.transports.supervisor.marks import value_in


class ExportFolders:
    """Those of one runner, as its tasks' environments name them: rarely more than two."""

    def __init__(self) -> None:
        self._seen: set[bytes] = set()

    def note(self, environment: Mapping[bytes, bytes]) -> None:
        path = value_in(environment)
        if path:
            self._seen.add(os.path.dirname(path))

    def clear(self) -> None:
        """A runner that lives holds on to its folder, and keeps it. Tasks that are still being
        ended may write once more: call it again when they are gone."""
        for folder in self._seen:
            with suppress(OSError):
                remove_if_abandoned(os.fsdecode(folder))
