"""What tasks did, as the tasks themselves wrote it down, outside of the product.

Each command says that it starts and that it ends: one short line each, appended in one write, so
that the file's order is the order of what happened. While it lives, and as long as anything lives
that it started, it holds a lock that belongs to its task and to no other; whoever finds that lock
taken runs beside somebody. The kernel lets go of it, so that holds for killed ones too.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

_SCRIPT = """\
exec 9>"{folder}/${{TENURE_TASK_ID%:*}}"; flock -n 9 && alone=alone || alone=beside
say() {{ read at _ < /proc/uptime; echo "$1 $TENURE_TASK_ID $TENURE_FENCE $$ $at $alone" \
>> "{folder}/lines"; }}
say start
{work}
say end
"""


class Line(NamedTuple):
    """``at`` is in seconds of the boot clock, to the hundredth."""

    what: str
    run_id: str
    place: str
    """Step, and item if there is one: ``2`` or ``2.0``."""
    host: str
    attempt: int
    fence: int
    pid: int
    at: float
    alone: bool

    @property
    def task(self) -> tuple[str, str, str]:
        """Whatever the attempt."""
        return (self.run_id, self.place, self.host)

    @property
    def execution(self) -> tuple[str, str, str, int, int]:
        return (*self.task, self.attempt, self.fence)


class Witness:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()

    def script(self, work: str) -> str:
        """A command line that does ``work`` and tells of it."""
        return _SCRIPT.format(folder=self._folder, work=work)

    def lines(self) -> list[Line]:
        try:
            text = (self._folder / "lines").read_text()
        except FileNotFoundError:
            return []
        return [parsed(line) for line in text.splitlines()]


def parsed(text: str) -> Line:
    what, task_id, fence, pid, at, alone = text.split()
    run_id, place, host, attempt = task_id.split(":")
    return Line(
        what, run_id, place, host, int(attempt), int(fence), int(pid), float(at), alone == "alone"
    )
