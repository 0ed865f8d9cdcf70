"""What a process says of itself: the task and the run its environment names.

For what lost the marks but not these. They are asked of children of this supervisor only: a run
that was taken over is executed again under the same names, perhaps on this machine, by a
supervisor of its own. And they come after the marks, which are not written down for everybody.
"""

from __future__ import annotations

from collections.abc import Mapping

from tenure.transports.supervisor.census import environment

_TASK, _RUN = b"TENURE_TASK_ID", b"TENURE_RUN_ID"


class Names:
    """Empty where nothing is said. A task is one attempt of one step on one host; its commands
    follow each other."""

    __slots__ = ("run", "task")

    def __init__(self, task: bytes, run: bytes) -> None:
        self.task = task
        self.run = run


def names_in(env: Mapping[bytes, bytes]) -> Names:
    return Names(env.get(_TASK, b""), env.get(_RUN, b""))


def names_of(pid: int) -> Names:
    return names_in(environment(pid))
