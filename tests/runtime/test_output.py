"""What tasks print: tails in the record, all of it in the log and in files, at bounded cost."""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tenure
from tenure.model.errors import StoreUnavailable
from tenure.model.leases import Purpose
from tenure.model.status import RunStatus
from tenure.model.update import Fencing
from tenure.ports.store import LogKey, LogStore
from tenure.runtime.output import LogWriter, Tail, file_stem
from tenure.stores.memory import InMemoryStore
from tenure.stores.sqlite import SQLiteStore
from tenure.testing.clock import ManualClock
from tenure.testing.factories import embedded_run, lease_request
from tenure.testing.faults import FaultyStore
from tests.runtime.conftest import NewRunner
from tests.runtime.puppets import PATIENCE, Between, shell, until, workflow

RUN_ID = "a-run-that-prints"
NAMED = tenure.RunOptions(run_id=RUN_ID)
OUT = LogKey(step=0, host="local", stream="stdout")


class TestTail:
    @given(st.lists(st.binary(max_size=40)), st.integers(0, 20))
    def test_it_is_the_end_of_what_came(self, pieces: list[bytes], limit: int) -> None:
        tail = Tail(limit)
        for piece in pieces:
            tail.add(piece)
            assert len(tail._held) <= 2 * limit
        whole = b"".join(pieces)
        assert tail.total == len(whole)
        assert tail.cut is (len(whole) > limit)
        if not tail.cut:
            assert tail.text() == (whole.decode("utf-8", "replace") if whole else None)


async def test_the_record_keeps_the_end_and_says_that_it_is_cut(
    any_store: Any, new_runner: NewRunner
) -> None:
    runner = new_runner(any_store, summary_bytes=19)
    cmd = "seq 1 100; echo fine >&2"
    run = await runner.run(workflow(shell("one", cmd)))
    host = run.steps[0].hosts["local"]
    assert host.stdout == "95\n96\n97\n98\n99\n100\n"
    assert (host.stderr, host.truncated) == ("fine\n", True)


async def test_it_says_so_too_if_the_action_or_the_log_left_something_out(
    any_store: Any, new_runner: NewRunner
) -> None:
    runner = new_runner(any_store, log_cap=40)
    limited = tenure.Step(
        name="limited",
        action="cmd.run",
        args={"cmd": 'seq "$item" 20', "max_output_bytes": 20},
        loop=[1, 19],
    )
    quick = tenure.Step(
        name="stopped",
        action="cmd.run",
        args={"cmd": "seq 20; sleep 9", "max_output_bytes": 20},
        timeout=1.0,
        continue_on_error=True,
    )
    run = await runner.run(
        workflow(limited, quick, shell("logged", "seq 30"), shell("all", "seq 9"))
    )
    hosts = [step.hosts["local"] for step in run.steps]
    assert [item.truncated for item in hosts[0].items] == [True, False]
    assert [host.truncated for host in hosts] == [True, True, hosts[2].truncated, False]
    if isinstance(any_store, LogStore):
        assert hosts[2].truncated


async def test_bytes_that_are_no_text_and_nul_are_kept_as_they_are(
    sqlite: Any, new_runner: NewRunner
) -> None:
    cmd = r"printf 'caf\351 \000 \377 end'"
    run = await new_runner(sqlite).run(workflow(shell("one", cmd)), NAMED)
    assert run.steps[0].hosts["local"].stdout == "caf� \x00 � end"
    assert (await sqlite.read(RUN_ID, OUT)).data == b"caf\xe9 \x00 \xff end"


async def test_the_log_has_all_streams_items_and_attempts(
    sqlite: Any, new_runner: NewRunner
) -> None:
    cmd = 'echo "$item of $TENURE_TASK_ID"; echo bad >&2; test "${TENURE_TASK_ID##*:}" = 2'
    played = workflow(shell("one", cmd, loop=["x", "y"], retries=1), hosts=["a", "b"])
    run = await new_runner(sqlite).run(played, NAMED)
    assert run.status is RunStatus.SUCCESS
    keys = await sqlite.list_logs(RUN_ID)
    assert len(keys) == 2 * 2 * 2 * 2
    second = LogKey(step=0, host="b", stream="stdout", item=1, attempt=2)
    assert (await sqlite.read(RUN_ID, second)).data == f"y of {RUN_ID}:0.1:b:2\n".encode()


async def test_past_the_cap_the_log_says_how_much_is_missing() -> None:
    store = InMemoryStore()
    writer = await new_writer(store, cap=10)
    for _ in range(4):
        await writer.keep("stdout", b"12345678")
    await writer.keep("stderr", b"few")
    await writer.close()
    kept = (await store.read(RUN_ID, OUT)).data
    assert kept == b"1234567812\n[tenure: 22 more bytes were dropped here]\n"
    other = LogKey(step=0, host="local", stream="stderr")
    assert (await store.read(RUN_ID, other)).data == b"few"


async def new_writer(store: Any, cap: int = 1000) -> LogWriter:
    await getattr(store, "real", store).create_run(embedded_run("me", run_id=RUN_ID))
    return LogWriter(
        store,
        RUN_ID,
        Fencing("me", 1),
        lambda stream: LogKey(step=0, host="local", stream=stream),
        cap,
    )


async def test_nothing_is_lost_or_doubled_when_one_append_in_three_fails() -> None:
    real = InMemoryStore()
    store: Any = FaultyStore(real, seed=3, rate=0.33, rates={"create_run": 0})
    writer = await new_writer(store)
    for number in range(20):
        await writer.keep("stdout", b"%d " % number)
    await writer.close()
    assert store.injected
    text = (await real.read(RUN_ID, OUT)).data
    assert text.split() == [b"%d" % number for number in range(20)]


@pytest.mark.parametrize("arrives", [True, False])
async def test_a_cancelled_append_is_sent_again_before_the_next(arrives: bool) -> None:
    """Whether it arrived or not: the last words of a task that is ended must follow it."""
    store, asked = Between(InMemoryStore()), asyncio.Event()
    writer = await new_writer(store)

    async def hang(real: Any, *args: Any) -> None:
        if arrives:
            await real(*args)
        asked.set()
        await asyncio.Event().wait()

    store.rules["append"] = hang
    keeping = asyncio.create_task(writer.keep("stdout", b"first "))
    await asked.wait()
    keeping.cancel()
    await asyncio.wait([keeping])
    del store.rules["append"]
    await writer.keep("stdout", b"last words")
    await writer.close()
    assert (await store.real.read(RUN_ID, OUT)).data == b"first last words"


async def test_whatever_a_log_store_raises_is_noted_and_changes_no_result(
    new_runner: NewRunner, caplog: pytest.LogCaptureFixture
) -> None:
    store = Between(InMemoryStore())

    async def fail(real: Any, *args: Any) -> Any:
        raise KeyError("bucket")

    store.rules["append"] = fail
    printing = shell("one", "echo first; echo second >&2; echo third")
    run = await new_runner(store).run(workflow(printing), NAMED)
    host = run.steps[0].hosts["local"]
    assert (run.status, host.exit_code, host.stdout) == (RunStatus.SUCCESS, 0, "first\nthird\n")
    noted = [each for each in caplog.messages if "the log of a task ends here" in each]
    assert len(noted) == store.count("append") == 1
    assert "KeyError: 'bucket'" in noted[0]


async def test_a_task_that_may_not_write_its_output_any_more_is_ended(
    new_runner: NewRunner,
) -> None:
    """The run is another owner's: found out by the output, long before the task ends."""
    clock = ManualClock()
    store = Between(InMemoryStore(clock))
    taken = False

    async def take_away(real: Any, *args: Any) -> Any:
        nonlocal taken
        if not taken:
            taken = True
            clock.advance(61)
            await store.real.claim_run(RUN_ID, lease_request("another"), Purpose.RECONCILE)
        return await real(*args)

    store.rules["append"] = take_away
    running = new_runner(store).run(workflow(shell("one", "echo hello; exec sleep 1000")), NAMED)
    with pytest.raises(tenure.LeaseLost):
        await asyncio.wait_for(running, PATIENCE)


async def test_a_store_that_is_away_holds_the_task_and_not_our_memory(
    new_runner: NewRunner,
) -> None:
    store = Between(InMemoryStore())
    away = True
    tried = 0

    async def append(real: Any, *args: Any) -> Any:
        nonlocal tried
        tried += 1
        if away:
            raise StoreUnavailable("away")
        return await real(*args)

    store.rules["append"] = append
    cmd = "head -c 3000000 /dev/zero | tr '\\0' x; echo done"
    running = asyncio.create_task(new_runner(store).run(workflow(shell("one", cmd)), NAMED))
    await until(lambda: tried >= 3)
    assert not running.done()
    away = False
    run = await running
    assert run.status is RunStatus.SUCCESS
    kept = await store.real.read(RUN_ID, OUT, 3000000)
    assert (kept.data, kept.size) == (b"done\n", 3000005)


GIGABYTE = """
import asyncio, resource, sys, tenure
async def main(url):
    workflow = tenure.Workflow(name="big", steps=[tenure.Step(
        name="one", action="cmd.run", args={"cmd": "head -c 1073741824 /dev/zero"})])
    async with tenure.Runner(url) as runner:
        await runner.run(tenure.Workflow(name="small", steps=[tenure.Step(
            name="one", action="cmd.run", args={"cmd": "echo hello"})]))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        run = await runner.run(workflow)
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    host = run.steps[0].hosts["local"]
    print(run.status, host.truncated, len(host.stdout), (after - before) // 1024)
asyncio.run(main(sys.argv[1]))
"""


@pytest.mark.slow
def test_a_gigabyte_of_output_costs_less_than_64_megabytes(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", GIGABYTE, f"sqlite:///{tmp_path / 'runs.db'}"],
        capture_output=True,
        text=True,
        check=True,
    )
    status, truncated, kept, grown = done.stdout.split()
    assert (status, truncated, kept) == ("success", "True", "4096")
    assert int(grown) < 64


FILES_RUN = "run-00001"


def printing(cmd: str, folder: Path, name: str = "say it", **rest: object) -> tenure.Step:
    args = {"cmd": cmd, "output_path": str(folder), "max_output_bytes": 5}
    return tenure.Step(name=name, action="cmd.run", args=args, **rest)  # type: ignore[arg-type]


async def run(new_runner: NewRunner, *steps: tenure.Step, **secrets: str) -> tenure.RunSnapshot:
    options = tenure.RunOptions(run_id=FILES_RUN, secrets=secrets)
    return await new_runner().run(workflow(*steps, hosts=["a", "b"]), options)


@pytest.mark.slow
async def test_each_host_item_and_attempt_has_files_of_its_own_with_all_it_printed(
    new_runner: NewRunner, tmp_path: Path
) -> None:
    flaky = 'echo "$host says $item"; echo oops >&2; case $TENURE_TASK_ID in *.1:b:1) exit 1; esac'
    folder = tmp_path / "made" / "for it"
    ended = await run(new_runner, printing(flaky, folder, loop=["x", "y"], retries=1))
    assert ended.status is RunStatus.SUCCESS
    assert {path.name: path.read_text() for path in folder.glob("*-stdout.log")} == {
        f"say_it-{FILES_RUN}-0-a-item0-stdout.log": "a says x\n",
        f"say_it-{FILES_RUN}-0-a-item1-stdout.log": "a says y\n",
        f"say_it-{FILES_RUN}-0-b-item0-stdout.log": "b says x\n",
        f"say_it-{FILES_RUN}-0-b-item1-stdout.log": "b says y\n",
        f"say_it-{FILES_RUN}-0-b-item1-attempt2-stdout.log": "b says y\n",
    }
    assert {path.read_text() for path in folder.glob("*-stderr.log")} == {"oops\n"}
    item = ended.steps[0].hosts["a"].items[0]
    assert (item.message, item.stdout) == (f"output in {folder}", "a say...(truncated)")


@pytest.mark.slow
async def test_no_secret_gets_into_them(new_runner: NewRunner, tmp_path: Path) -> None:
    says = printing('printf "%s" "$token"; echo " and $token" >&2', tmp_path)
    await run(new_runner, says, token="s3cr3t-Gr8-v4lue")
    assert {path.read_text() for path in tmp_path.iterdir()} == {"***", " and ***\n"}


@pytest.mark.slow
async def test_a_folder_that_cannot_be_made_fails_the_step_before_it_starts(
    new_runner: NewRunner, tmp_path: Path
) -> None:
    (tmp_path / "taken").write_text("")
    ended = await run(new_runner, printing(f"touch {tmp_path}/ran", tmp_path / "taken" / "in"))
    host = ended.steps[0].hosts["a"]
    assert (host.status, host.message) == (
        "failed",
        f"output_path '{tmp_path}/taken/in': Not a directory",
    )
    assert not (tmp_path / "ran").exists()


@pytest.mark.slow
async def test_a_full_disk_is_told_and_does_not_end_the_command(
    new_runner: NewRunner, tmp_path: Path
) -> None:
    os.symlink("/dev/full", tmp_path / f"say_it-{FILES_RUN}-0-a-stdout.log")
    ended = await run(new_runner, printing("echo one; echo two", tmp_path))
    assert ended.status is RunStatus.SUCCESS
    messages = {name: host.message for name, host in ended.steps[0].hosts.items()}
    assert messages == {
        "a": f"not all output is in {tmp_path}: No space left on device",
        "b": f"output in {tmp_path}",
    }


def test_no_name_leaves_the_folder_and_long_ones_stay_apart() -> None:
    assert (
        file_stem("../../etc/cron.d", FILES_RUN, 0, "a/b") == f".._.._etc_cron.d-{FILES_RUN}-0-a_b"
    )
    long = [file_stem("ä" * 200, "r" * 128, index, "web1") for index in range(2)]
    assert all(len(stem.encode()) <= 200 for stem in long)
    assert len(set(long)) == 2


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


@pytest.mark.slow
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


async def digest_of(
    store: SQLiteStore, run_id: str, host: str, stream: str = "stdout"
) -> tuple[int, str]:
    digest, size = hashlib.sha256(), 0
    key = LogKey(step=0, host=host, stream=stream, attempt=1)
    while data := (await store.read(run_id, key, size)).data:
        digest.update(data)
        size += len(data)
    return size, digest.hexdigest()
