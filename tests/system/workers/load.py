"""Runs, one after another, for as long as a test wants to disturb their workers."""

from __future__ import annotations

import asyncio
import random

from msgspec import Struct

import tenure
from tests.system.workers.fleet import PATIENCE, Fleet


class Load(Struct, frozen=True, kw_only=True):
    """``at_once`` are the runs that are open: enough for every worker, few enough for a small
    machine. A task takes from ``shortest`` to ``longest`` seconds."""

    runs: int
    at_once: int = 6
    hosts: tuple[str, ...] = ("a", "b", "c", "d", "e")
    steps: int = 3
    shortest: float = 0.05
    longest: float = 0.2

    def workflow(self, fleet: Fleet, chance: random.Random) -> tenure.Workflow:
        """Its tasks are deaf to requests: if their worker dies they would rather go on."""
        seconds = [chance.uniform(self.shortest, self.longest) for _ in range(self.steps)]
        works = [f"trap '' TERM; sleep {each:.3f}" for each in seconds]
        return fleet.workflow(*works, hosts=self.hosts)


async def bring(
    load: Load, fleet: Fleet, chance: random.Random, enough: asyncio.Event | None = None
) -> None:
    """All of it, as quickly as it is worked off; less if it was ``enough`` before."""
    for _ in range(load.runs):
        async with asyncio.timeout(PATIENCE):
            while await fleet.still_open() >= load.at_once:
                await asyncio.sleep(0.05)
        if enough is not None and enough.is_set():
            return
        await fleet.submit(load.workflow(fleet, chance))
