"""Output in quantities: all of it is there, and neither memory nor leases suffer."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

import tenure
from tenure.ports.store import LogKey
from tenure.stores.sqlite import SQLiteStore
from tests.runtime.conftest import NewRunner
from tests.runtime.puppets import shell, workflow

pytestmark = pytest.mark.slow

EACH = 6_000_000
FLOOD = f"""
import asyncio, resource, sys, tenure

HOSTS = [f"host-{{number:02}}" for number in range(50)]
async def main(url):
    inventory = tenure.Inventory(hosts={{name: tenure.HostSpec(address="local") for name in HOSTS}})
    def flow(name, cmd):
        step = tenure.Step(name="one", action="cmd.run", args={{"cmd": cmd}}, concurrency=50)
        return tenure.Workflow(name=name, inventory=inventory, steps=[step])
    timing = tenure.Timing(lease_duration=14, renew_interval=1)
    async with tenure.Runner(url, timing=timing) as runner:
        await runner.run(flow("small", "echo hello"))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        big = flow("big", 'yes "$TENURE_HOST says this" | head -c {EACH}')
        run = await runner.run(big, tenure.RunOptions(run_id="a-flood-of-output"))
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(run.status, run.fence, (after - before) // 1024)
asyncio.run(main(sys.argv[1]))
"""


async def test_fifty_hosts_print_as_fast_as_they_can(tmp_path: Path) -> None:
    """300 MB through one process. A renewal more than six seconds late would interrupt the run."""
    path = tmp_path / "runs.db"
    command = [sys.executable, "-c", FLOOD, f"sqlite:///{path}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    status, fence, grown = done.stdout.split()
    assert (status, fence) == ("success", "1")
    assert int(grown) < 100
    async with await SQLiteStore.open(path) as store:
        for number in range(50):
            name = f"host-{number:02}"
            line = f"{name} says this\n".encode()
            assert await digest_of(store, "a-flood-of-output", name) == (
                EACH,
                hashlib.sha256((line * (EACH // len(line) + 1))[:EACH]).hexdigest(),
            )


STRANGE = (
    b"\xff\xfe\x00\xc3( not UTF-8 \x80\n\x00\x00NUL\x00"
    b"\x1b[31mred\x1b[0m\x1b]0;title\x07\r\n<script>alert('x')</script>&amp;\xe2\x80\xa8"
)


@pytest.mark.parametrize("times", [1, 100_000_000 // len(STRANGE)], ids=["once", "100 MB line"])
async def test_bytes_are_kept_as_they_are(
    tmp_path: Path, sqlite: SQLiteStore, new_runner: NewRunner, times: int
) -> None:
    line = STRANGE.replace(b"\n", b"\r") * times if times > 1 else STRANGE
    given = tmp_path / "given"
    given.write_bytes(line)
    runner = new_runner(sqlite, log_cap=200_000_000)
    options = tenure.RunOptions(run_id="strange-output")
    run = await runner.run(workflow(shell("one", f"cat {given}; cat {given} >&2")), options)
    assert run.status == "success"
    for stream in ("stdout", "stderr"):
        kept = await digest_of(sqlite, "strange-output", "local", stream)
        assert kept == (len(line), hashlib.sha256(line).hexdigest())


async def digest_of(
    store: SQLiteStore, run_id: str, host: str, stream: str = "stdout"
) -> tuple[int, str]:
    digest, size = hashlib.sha256(), 0
    key = LogKey(step=0, host=host, stream=stream, attempt=1)
    while data := (await store.read(run_id, key, size)).data:
        digest.update(data)
        size += len(data)
    return size, digest.hexdigest()
