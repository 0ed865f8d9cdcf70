"""Worker processes in the hands of a test, the runs it gives them, and what became of both."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

import tenure
from tenure.model.status import RunStatus
from tests.cli.conftest import TENURE
from tests.system.workers.invariants import History, broken, owner_name
from tests.system.workers.odd_worker import Oddity
from tests.system.workers.witness import Line, Witness

ROOT = Path(__file__).parents[3]
PATIENCE = 40.0
"""Seconds, far beyond anything that goes well; a test that fails should not hang."""
_OPEN = tenure.RunFilter(statuses=frozenset({RunStatus.QUEUED, RunStatus.RUNNING}))


class Leases(Struct, frozen=True, kw_only=True):
    """Seconds. Short enough to be waited for, long enough for a machine with other work to do."""

    lease: float = 2.0
    renew: float = 0.6
    poll: float = 0.1

    @property
    def settings(self) -> dict[str, str]:
        return {
            "TENURE_LEASE_DURATION": f"{self.lease}s",
            "TENURE_RENEW_INTERVAL": f"{self.renew}s",
            "TENURE_VISIBILITY_TIMEOUT": f"{self.lease}s",
            "TENURE_POLL_INTERVAL": f"{self.poll}s",
            "TENURE_CONTROL_INTERVAL": "0.2s",
            "TENURE_RECONCILE_INTERVAL": "0.5s",
            "TENURE_MAX_TAKEOVERS": "1000",
        }


UNDER_LOAD = Leases(lease=4.0, renew=1.0, poll=0.2)
"""For workers with more to do than a small machine does at once: renewing has to wait, too."""
CUT_OFF = Leases(lease=6.0, renew=1.0, poll=0.2)
"""Where the store itself goes away now and then, for a second or more."""


_names = (f"worker-{number}" for number in count(1))
"""Of all fleets: what a killed worker had sent may reach a server after its tables were emptied,
and the next fleet's would be taken for one that serves, and is ready for signals."""


class WorkerProcess:
    def __init__(self, name: str, folder: Path, argv: Sequence[str], env: Mapping[str, str]):
        self.name = name
        self._said = folder / f"{name}.out"
        self._complaints = folder / f"{name}.err"
        with self._said.open("wb") as out, self._complaints.open("wb") as err:
            self.process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=ROOT, env=env
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def lives(self) -> bool:
        return self.process.poll() is None

    @property
    def said(self) -> list[str]:
        return self._said.read_text().splitlines()

    @property
    def complaints(self) -> str:
        return self._complaints.read_text()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def ends(self) -> int:
        """Its exit code."""
        async with asyncio.timeout(PATIENCE):
            return await asyncio.to_thread(self.process.wait)

    async def freezes(self) -> datetime:
        """By itself; returns when it did."""
        async with asyncio.timeout(PATIENCE):
            stopped = os.WSTOPPED | os.WEXITED | os.WNOWAIT
            await asyncio.to_thread(os.waitid, os.P_PID, self.pid, stopped)
        assert self.lives, self.complaints
        return await self.says_that_it_freezes()

    async def says_that_it_freezes(self) -> datetime:
        (moment,) = (await self.says("freezes"))[0]
        return datetime.fromtimestamp(float(moment), UTC)

    async def says(self, word: str, times: int = 1) -> list[list[str]]:
        """What follows that word, once it was said so often."""
        async with asyncio.timeout(PATIENCE):
            while len(found := self.words_after(word)) < times:
                assert self.lives, self.complaints
                await asyncio.sleep(0.02)
        return found

    def words_after(self, word: str) -> list[list[str]]:
        lines = (line.split() for line in self.said)
        return [rest for first, *rest in lines if first == word]

    def put_down(self) -> None:
        self.process.kill()
        self.process.wait()


class Fleet:
    """All on one store."""

    def __init__(self, url: str, folder: Path, leases: Leases = Leases()) -> None:
        self.url = url
        self.reached_at = url
        """What workers are given: the store itself, or what stands before it."""
        self.leases = leases
        self.witness = Witness(folder / "witness")
        self.lost: dict[str, datetime] = {}
        self.workers: list[WorkerProcess] = []
        self.runs: list[str] = []
        self.folder = folder
        self._opened: Any = None
        self._runner: tenure.Runner | None = None

    async def open(self) -> None:
        self._opened = tenure.open_store(self.url)
        self._runner = tenure.Runner(self._opened)

    async def close(self) -> None:
        for worker in self.workers:
            if worker.lives:
                worker.put_down()
        if self._runner is not None:
            await self._runner.close()
            await self._opened.close()

    @property
    def store(self) -> Any:
        return self._opened

    # Workers

    def start(self, *arguments: str, env: Mapping[str, str] = {}) -> WorkerProcess:
        """``tenure worker``, as everybody runs it."""
        name = next(_names)
        argv = [TENURE, "worker", "-q", "--name", name, "--store", self.reached_at, *arguments]
        return self._started(name, argv, env)

    def start_odd(self, env: Mapping[str, str] = {}, **oddity: Any) -> WorkerProcess:
        name, leases = next(_names), self.leases
        usual = {"lease": leases.lease, "renew": leases.renew, "poll": leases.poll}
        odd = Oddity(url=self.reached_at, name=name, **{**usual, **oddity})
        argv = [sys.executable, "-m", "tests.system.workers.odd_worker"]
        return self._started(name, [*argv, msgspec.json.encode(odd).decode()], env)

    def _started(self, name: str, argv: Sequence[str], more: Mapping[str, str]) -> WorkerProcess:
        worker = WorkerProcess(name, self.folder, argv, {**self.surroundings(), **more})
        self.workers.append(worker)
        return worker

    def surroundings(self) -> dict[str, str]:
        """The environment of a process of this fleet."""
        around = {name: value for name, value in os.environ.items() if "TENURE_" not in name}
        return {**around, **self.leases.settings, "TENURE_DRAIN_TIMEOUT": "0.2s"}

    async def serving(self, *workers: WorkerProcess) -> None:
        """They have begun: signals and runs reach them."""
        names = {worker.name for worker in workers}
        async with asyncio.timeout(PATIENCE):
            while not names <= {owner_name(x.owner_id) for x in await self.store.list_workers()}:
                for worker in workers:
                    assert worker.lives, worker.complaints
                await asyncio.sleep(0.02)

    async def kill(self, worker: WorkerProcess) -> None:
        self.lost[worker.name] = datetime.now(UTC)
        worker.process.kill()
        await worker.ends()

    async def is_frozen(self, worker: WorkerProcess) -> None:
        self.lost[worker.name] = await worker.freezes()

    async def is_hung(self, worker: WorkerProcess) -> None:
        """Only its event loop."""
        self.lost[worker.name] = await worker.says_that_it_freezes()

    async def drain_all(self) -> None:
        """They end in good order, and none of them met what it did not expect."""
        living = [worker for worker in self.workers if worker.lives]
        await self.serving(*living)
        for worker in living:
            worker.send(signal.SIGTERM)
        for worker in living:
            assert await worker.ends() == 0, worker.complaints
        for worker in self.workers:
            assert "Traceback" not in worker.complaints, worker.complaints

    async def command(self, *arguments: str, code: int = 0, env: Mapping[str, str] = {}) -> str:
        """What ``tenure`` says."""
        done = await asyncio.to_thread(
            subprocess.run,
            [TENURE, *arguments, "--store", self.url],
            env={**self.surroundings(), **env},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout.strip()

    # Runs

    def workflow(self, *works: str, hosts: Iterable[str] = ("a",), **rest: Any) -> tenure.Workflow:
        """A step for each of ``works``: what it does besides telling the witness of it."""
        steps = [
            tenure.Step(
                name=f"step {number}",
                action="cmd.run",
                args={"cmd": self.witness.script(work)},
                **rest,
            )
            for number, work in enumerate(works, 1)
        ]
        where = {host: tenure.HostSpec(address="local") for host in hosts}
        return tenure.Workflow(name="storm", steps=steps, inventory=tenure.Inventory(hosts=where))

    async def submit(self, workflow: tenure.Workflow, **options: Any) -> str:
        assert self._runner is not None
        run = await self._runner.submit(workflow, tenure.RunOptions(**options))
        self.runs.append(run.run_id)
        return run.run_id

    async def get(self, run_id: str) -> tenure.RunSnapshot:
        run: tenure.RunSnapshot = await self.store.get_run(run_id)
        return run

    async def still_open(self) -> int:
        return len((await self.store.list_runs(_OPEN, limit=500)).items)

    async def until(
        self, run_id: str, holds: Callable[[tenure.RunSnapshot], bool]
    ) -> tenure.RunSnapshot:
        async with asyncio.timeout(PATIENCE):
            while not holds(run := await self.get(run_id)):
                await asyncio.sleep(0.02)
        return run

    async def ended(self, run_id: str) -> tenure.RunSnapshot:
        return await self.until(run_id, lambda run: run.ended)

    async def all_ended(self) -> None:
        async with asyncio.timeout(PATIENCE):
            while await self.still_open():
                await asyncio.sleep(0.05)

    async def sees(self, holds: Callable[[list[Line]], bool]) -> list[Line]:
        """What the witness has once ``holds``."""
        async with asyncio.timeout(PATIENCE):
            while not holds(lines := self.witness.lines()):
                await asyncio.sleep(0.01)
        return lines

    async def starts(self, run_id: str, place: int = 0, fence: int = 1) -> None:
        """A task of that run, step and owner."""
        wanted = ("start", run_id, str(place), fence)
        await self.sees(
            lambda lines: wanted in [(x.what, x.run_id, x.place, x.fence) for x in lines]
        )

    # What became of them

    async def history(self) -> History:
        runs: dict[str, tenure.RunSnapshot | None] = {}
        journals = {}
        for run_id in self.runs:
            try:
                runs[run_id] = await self.get(run_id)
            except tenure.RunNotFound:
                runs[run_id] = None
            journals[run_id] = await self.store.read_events(run_id)
        return History(
            lines=self.witness.lines(),
            runs=runs,
            journals=journals,
            lost=self.lost,
            left=processes_of(self.runs),
        )

    async def sound(self) -> History:
        """Once the workers have gone: every invariant holds."""
        await self.drain_all()
        history = await self.history()
        found = broken(history)
        assert not found, "\n".join(found)
        return history


def processes_of(runs: Iterable[str]) -> set[int]:
    """Living ones that say they belong to one of these."""
    marks = {f"TENURE_RUN_ID={run_id}".encode() for run_id in runs}
    found = set()
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            if marks & set((folder / "environ").read_bytes().split(b"\0")):
                found.add(int(folder.name))
        except OSError:  # it ended, or is none of ours
            continue
    return found
