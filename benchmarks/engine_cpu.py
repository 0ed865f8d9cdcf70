"""CPU of one run of three no-op steps, on a store that takes everything and keeps nothing.

What is left is ours: engine, tracker, encoding, combiner. The budget is what makes the rates of
the durable stores possible; a table by layer says where it goes.
"""

from __future__ import annotations

import asyncio
import cProfile
import pstats
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from time import process_time

import msgspec

import tenure
from benchmarks.figures import Figure
from benchmarks.runs import many_runs, no_op_workflow
from tenure.model.errors import TenureError
from tenure.model.query import Page, RunFilter
from tenure.model.snapshot import RunSnapshot, RunSummary
from tenure.model.status import RunStatus
from tenure.model.update import NewRun, Receipt, Update, Write

BUDGET_MS = 0.35
RUNS = 1000
ATTEMPTS = 20
"""Short ones, of which the best counts: others on the machine only ever add to it."""
NOW = datetime.now(UTC)
LAYERS = {
    "tracker": ("runtime/tracker", "runtime/intents", "runtime/audience", "model/"),
    "combiner": ("runtime/combiner",),
    "engine": ("runtime/", "workflow/", "actions/", "ports/"),
    "runner": ("tenure/runner", "tenure/system", "tenure/workflow_file"),
    "event loop": ("asyncio/", "selectors"),
}


class Nowhere:
    """Encodes every write, as any store must, and answers."""

    durable = True

    def __init__(self) -> None:
        self._encode = msgspec.json.Encoder().encode

    async def create_run(self, new: NewRun) -> Receipt:
        return self._answer(new)

    async def update_run(self, update: Update) -> Receipt:
        return self._answer(update)

    async def update_runs(self, writes: Sequence[Write]) -> list[Receipt | TenureError]:
        return [self._answer(write) for write in writes]

    async def get_run(self, run_id: str) -> RunSnapshot:
        return RunSnapshot(run_id=run_id, workflow_name="", status=RunStatus.SUCCESS)

    async def list_runs(
        self, where: RunFilter = RunFilter(), *, limit: int = 50, cursor: str | None = None
    ) -> Page[RunSummary]:
        return Page()

    def _answer(self, write: Write) -> Receipt:
        self._encode(write)
        running = RunStatus.RUNNING
        if isinstance(write, Update):
            version = (write.base_version or 0) + 1
            return Receipt(
                run_id=write.run_id, version=version, fence=1, status=running, updated_at=NOW
            )
        run_id = write.snapshot.run_id
        return Receipt(
            run_id=run_id,
            version=1,
            fence=1,
            status=running,
            updated_at=NOW,
            lease_expires_at=NOW,
        )


def measure() -> list[Figure]:
    best = min(asyncio.run(_cpu()) for _ in range(ATTEMPTS)) / RUNS * 1000
    _print_layers(asyncio.run(_profile()), best)
    figure = Figure(
        name="CPU per 3-step run, nothing stored", unit="ms", ours=best, limit=BUDGET_MS, at_most=1
    )
    return [figure]


async def _cpu() -> float:
    async with tenure.Runner(store=Nowhere()) as runner:
        workflow = no_op_workflow()
        await many_runs(runner, workflow, 50)
        start = process_time()
        await many_runs(runner, workflow, RUNS)
        return process_time() - start


async def _profile() -> pstats.Stats:
    profile = cProfile.Profile()
    async with tenure.Runner(store=Nowhere()) as runner:
        workflow = no_op_workflow()
        await many_runs(runner, workflow, 50)
        profile.enable()
        await many_runs(runner, workflow, RUNS)
        profile.disable()
    return pstats.Stats(profile)


def _print_layers(stats: pstats.Stats, total_ms: float) -> None:
    """Shares by where the time was spent; built-in functions count for whoever called them."""
    spent: dict[str, float] = {}
    functions: dict[tuple[str, int, str], tuple[int, int, float, float, dict[object, object]]]
    functions = stats.stats  # type: ignore[attr-defined]
    for (file, _, name), (_, _, own, _, callers) in functions.items():
        if "encode" in name and file == "~":
            spent["encode"] = spent.get("encode", 0.0) + own
            continue
        places = [(file, own)] if file != "~" else _callers(callers)
        for place, seconds in places:
            layer = _layer(place)
            spent[layer] = spent.get(layer, 0.0) + seconds
    whole = sum(spent.values())
    print("CPU by layer (shares from a profile, scaled to the unprofiled total):", file=sys.stderr)
    for layer, seconds in sorted(spent.items(), key=lambda each: -each[1]):
        share = seconds / whole
        print(f"  {layer:<12} {share * total_ms:6.3f} ms  {share:4.0%}", file=sys.stderr)


def _callers(callers: dict[object, object]) -> Iterable[tuple[str, float]]:
    for caller, numbers in callers.items():
        yield str(caller[0]), float(numbers[2])  # type: ignore[index]


def _layer(file: str) -> str:
    place = Path(file).as_posix()
    for layer, parts in LAYERS.items():
        if any(part in place for part in parts):
            return layer
    return "the rest"
