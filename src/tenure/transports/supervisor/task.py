"""A task, as its supervisor sees it."""

from __future__ import annotations

from tenure.transports.supervisor import census, marks
from tenure.transports.supervisor.frames import Spawn
from tenure.transports.supervisor.names import names_in


class Task:
    __slots__ = (
        "gone",
        "grace",
        "late_grace",
        "leader",
        "mark",
        "names",
        "number",
        "released",
        "run",
        "since",
        "status",
        "until",
        "untrusted",
    )

    def __init__(self, number: int, leader: int, order: Spawn, boot: int) -> None:
        self.number = number
        self.leader = leader
        self.since = boot // census.TICK
        """What began before, by the clock of ``/proc``, it cannot have started."""
        self.run = order.run
        self.grace = order.grace
        self.until = order.until
        self.late_grace = order.late_grace
        self.mark = marks.value_in(order.env)
        self.names = names_in(order.env)
        self.status: int | None = None
        """Its leader's, once that has ended."""
        self.untrusted = False
        self.released = False
        self.gone = False
        """It was ended as a whole, and nothing of it was found."""
