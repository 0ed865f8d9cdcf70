"""What tasks print: tails in the record, all of it in the log, at bounded cost."""

from __future__ import annotations

import asyncio
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
from tenure.ports.store import LogKey
from tenure.runtime.output import LogWriter, Tail
from tenure.stores.memory import InMemoryStore
from tenure.testing.clock import ManualClock
from tenure.testing.factories import embedded_run, lease_request
from tenure.testing.faults import FaultyStore
from tests.runtime.conftest import NewRunner
from tests.runtime.puppets import PATIENCE, Between, shell, workflow

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

    @given(st.text(), st.integers(0, 20))
    def test_a_character_cut_in_two_is_left_out(self, text: str, limit: int) -> None:
        tail = Tail(limit)
        tail.add(text.encode())
        assert text.endswith(tail.text() or "")

    def test_what_is_no_text_shows_as_replacements(self) -> None:
        tail = Tail(100)
        tail.add(b"caf\xe9 \xff\x00 ok")
        assert tail.text() == "caf� �\x00 ok"


async def test_the_record_keeps_the_end_and_says_that_it_is_cut(
    any_store: Any, new_runner: NewRunner
) -> None:
    runner = new_runner(any_store, summary_bytes=19)
    cmd = "seq 1 100; echo fine >&2"
    run = await runner.run(workflow(shell("one", cmd)))
    host = run.steps[0].hosts["local"]
    assert host.stdout == "95\n96\n97\n98\n99\n100\n"
    assert (host.stderr, host.truncated) == ("fine\n", True)


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


async def test_a_cancelled_append_is_sent_again_before_the_next() -> None:
    """Whether it arrived or not: the last words of a task that is ended must follow it."""
    for arrives in (True, False):
        store = Between(InMemoryStore())
        writer = await new_writer(store)
        asked = asyncio.Event()

        async def hang(
            real: Any, *args: Any, arrives: bool = arrives, asked: asyncio.Event = asked
        ) -> Any:
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


async def test_what_contradicts_the_log_is_given_up_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = InMemoryStore()
    writer = await new_writer(store)
    await store.append(RUN_ID, Fencing("me", 1), OUT, 0, b"something else")
    await writer.keep("stdout", b"first")
    await writer.keep("stdout", b"second")
    await writer.close()
    assert (await store.read(RUN_ID, OUT)).data == b"something else"
    assert len([each for each in caplog.messages if "the log of a task ends here" in each]) == 1


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
    async with asyncio.timeout(PATIENCE):
        while tried < 3:
            await asyncio.sleep(0.01)
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
