"""The front door: what a caller may say, what is refused, what is kept."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import tenure
from tenure.model.errors import NotSupported
from tenure.model.snapshot import CallbackTarget
from tenure.model.status import Recovery, RunStatus
from tenure.runtime.recipe import decode_definition, digest_of
from tenure.stores.file import FileStore
from tenure.stores.memory import InMemoryStore
from tenure.workflow.spec import CallbackSpec
from tests.runtime.conftest import NewRunner
from tests.runtime.puppets import PATIENCE, Between, Puppet, shell, step, workflow

ONE = workflow(step("one"))
RUN_ID = "a-run-of-ours"
ALL = CallbackTarget(name="all", url="https://h.example", events=("run", "step", "host"))


def held_up() -> tuple[Between, asyncio.Event, asyncio.Event]:
    """A store that is reconciled only when the second event allows it; the first: it was asked."""
    store, asked, go_on = Between(InMemoryStore()), asyncio.Event(), asyncio.Event()

    async def slowly(real: Any, *args: Any, **kwargs: Any) -> Any:
        asked.set()
        await go_on.wait()
        return await real(*args, **kwargs)

    store.rules["list_runs"] = slowly
    return store, asked, go_on


class TestBeforeAnythingRuns:
    @pytest.mark.parametrize(
        "run_id", ["short", "x" * 129, "-starts-badly", "has space in it", "ümläut-no", "a/b/c/d/e"]
    )
    async def test_a_bad_run_id_is_refused(
        self, any_store: Any, new_runner: NewRunner, act: Puppet, run_id: str
    ) -> None:
        runner = new_runner(any_store)
        for verb in (runner.run, runner.submit):
            with pytest.raises(tenure.InvalidRunId, match="8-128 characters"):
                await verb(ONE, tenure.RunOptions(run_id=run_id))
        assert act.begun == []
        assert not (await any_store.list_runs()).items

    async def test_a_used_run_id_is_refused_and_the_run_there_is_untouched(
        self, queueing: Any, new_runner: NewRunner, act: Puppet
    ) -> None:
        runner = new_runner(queueing)
        options = tenure.RunOptions(run_id=RUN_ID)
        queued = await runner.submit(ONE, options)
        for verb in (runner.run, runner.submit):
            with pytest.raises(tenure.RunExists, match=RUN_ID):
                await verb(ONE, options)
        assert act.begun == []
        assert await queueing.get_run(RUN_ID) == queued

    async def test_of_two_at_once_with_one_run_id_exactly_one_runs(
        self, any_store: Any, new_runner: NewRunner, act: Puppet
    ) -> None:
        runner = new_runner(any_store)
        await runner.open()
        options = tenure.RunOptions(run_id=RUN_ID)
        answers = await asyncio.gather(
            *(runner.run(ONE, options) for _ in range(3)), return_exceptions=True
        )
        assert sorted(type(each).__name__ for each in answers) == [
            "RunExists",
            "RunExists",
            "RunSnapshot",
        ]
        assert act.begun == ["one/local"]

    async def test_every_mistake_of_a_workflow_is_told_at_once(self, new_runner: NewRunner) -> None:
        store = Between(InMemoryStore())
        bad = tenure.Workflow(
            name="bad",
            steps=[
                tenure.Step(name="one", action="no.such"),
                step("two", targets=["nobody"], needs=["nothing"]),
            ],
        )
        with pytest.raises(tenure.InvalidWorkflow) as caught:
            await new_runner(store).run(bad)
        assert len(caught.value.mistakes) == 3
        assert store.calls == []

    async def test_an_unknown_limit_is_refused(self, runner: tenure.Runner, act: Puppet) -> None:
        with pytest.raises(tenure.InvalidWorkflow, match="locale"):
            await runner.run(ONE, tenure.RunOptions(limit=["locale"]))
        assert act.begun == []

    async def test_values_a_store_refuses_start_nothing(
        self, any_store: Any, new_runner: NewRunner, act: Puppet
    ) -> None:
        with pytest.raises(tenure.StoreRejected, match="cannot be stored"):
            await new_runner(any_store).run(ONE, tenure.RunOptions(labels={"x": "\udc80"}))
        assert act.begun == []


class TestWhatIsKept:
    async def test_options_and_workflow_are_in_the_record(
        self, any_store: Any, new_runner: NewRunner
    ) -> None:
        played = workflow(
            step("one"),
            vars={"release": "1", "color": "red"},
            labels={"team": "web", "env": "test"},
            callbacks=[CallbackSpec(url="https://w.example", events=["step"])],
            queue="slow",
            priority=3,
            timeout="1h",
        )
        options = tenure.RunOptions(
            run_id=RUN_ID,
            vars={"release": "2"},
            labels={"env": "live"},
            callbacks=[ALL],
            retry_of="an-older-run",
        )
        run = await new_runner(any_store).run(played, options)
        assert run.vars == {"release": "2", "color": "red"}
        assert run.labels == {"team": "web", "env": "live"}
        assert (run.queue, run.priority, run.timeout) == ("slow", 3, 3600)
        assert [target.name for target in run.callbacks] == ["callback-1", "all"]
        assert run.callbacks[0].events == ("step",)
        assert (run.retry_of, run.recovery) == ("an-older-run", Recovery.INTERRUPT)
        assert run.workflow_digest is not None

    async def test_a_submitted_run_waits_for_workers_with_all_they_need(
        self, queueing: Any, new_runner: NewRunner, act: Puppet
    ) -> None:
        later = datetime(2040, 1, 1, tzinfo=UTC)
        options = tenure.RunOptions(
            run_id=RUN_ID, queue="q", priority=5, run_after=later, limit=["a"], timeout=9
        )
        played = workflow(step("one", args={"x": "${y}"}), hosts=["a", "b"], vars={"y": 1})
        run = await new_runner(queueing).submit(played, options)
        assert (run.status, run.owner_id, run.version) == (RunStatus.QUEUED, None, 1)
        assert (run.queue, run.priority, run.run_after) == ("q", 5, later)
        assert (run.recovery, run.timeout) == (Recovery.RESUME, 9)
        assert list(run.steps[0].hosts) == ["a"]
        assert act.begun == []
        definition = decode_definition(await queueing.get_definition(RUN_ID) or "")
        assert (definition.limit, definition.local) == (("a",), False)
        assert digest_of(definition.workflow) == run.workflow_digest
        again = tenure.read_workflow(definition.workflow, actions={"act": act})
        assert again.workflow == played

    async def test_a_store_from_which_no_worker_could_take_it_is_refused(
        self, tmp_path: Path, new_runner: NewRunner, act: Puppet
    ) -> None:
        async with FileStore(tmp_path / "runs") as store:
            with pytest.raises(NotSupported, match=r"^FileStore keeps no leases: .*sqlite:"):
                await new_runner(store).submit(ONE)
            assert not (await store.list_runs()).items

    async def test_a_files_own_text_is_kept_to_the_letter(
        self, sqlite: Any, new_runner: NewRunner, tmp_path: Path, act: Puppet
    ) -> None:
        text = "# a comment\nversion: v1\nname: kept\nsteps:\n- {name: one, action: act}\n"
        (tmp_path / "kept.yaml").write_text(text)
        file = tenure.load_workflow(tmp_path / "kept.yaml", actions={"act": act})
        run = await new_runner(sqlite).run(file)
        definition = decode_definition(await sqlite.get_definition(run.run_id))
        assert (definition.workflow, definition.folder) == (text, str(tmp_path))
        assert act.tasks["one/local"].folder == str(tmp_path)
        assert run.workflow_digest == file.digest == digest_of(text)

    async def test_only_hosts_of_the_limit_are_touched_and_local_is_here(
        self, runner: tenure.Runner
    ) -> None:
        inventory = tenure.Inventory(
            hosts={name: tenure.HostSpec(address=f"ssh://{name}") for name in ("a", "b", "c")}
        )
        played = tenure.Workflow(
            name="far",
            steps=[shell("one", "echo $TENURE_HOST"), shell("two", "true", targets=["b"])],
            inventory=inventory,
        )
        options = tenure.RunOptions(limit=["a", "c"], local=True)
        run = await runner.run(played, options)
        assert run.status is RunStatus.SUCCESS
        assert [host.stdout for host in run.steps[0].hosts.values()] == ["a\n", "c\n"]
        assert (run.steps[1].status, run.steps[1].message) == ("skipped", "no host is left for it")


class TestStores:
    async def test_a_store_for_one_run_is_used_for_that_run(self, new_runner: NewRunner) -> None:
        usual, special = InMemoryStore(), InMemoryStore()
        runner = new_runner(usual)
        options = tenure.RunOptions(run_id=RUN_ID, store=special)
        run = await runner.run(ONE, options)
        assert await special.get_run(RUN_ID) == run
        with pytest.raises(tenure.RunNotFound):
            await runner.get_run(RUN_ID)
        assert not (await usual.list_runs()).items

    async def test_no_run_begins_before_it_is_reconciled(
        self, new_runner: NewRunner, act: Puppet
    ) -> None:
        """Neither the first to ask for it nor those who come while it is being opened."""
        store, asked, go_on = held_up()
        runner = new_runner(store)
        first = asyncio.create_task(runner.run(ONE))
        await asked.wait()
        second = asyncio.create_task(runner.run(ONE))
        for _ in range(20):
            await asyncio.sleep(0)
        assert act.begun == []
        go_on.set()
        assert {(await first).status, (await second).status} == {RunStatus.SUCCESS}

    async def test_one_that_could_not_be_opened_is_tried_again(self, new_runner: NewRunner) -> None:
        store = Between(InMemoryStore())
        store.fails("list_runs", KeyError("not yet"))
        runner = new_runner(store)
        with pytest.raises(KeyError):
            await runner.open()
        assert (await runner.run(ONE)).status is RunStatus.SUCCESS

    async def test_a_given_store_stays_open_an_own_one_is_closed(
        self, sqlite: Any, tmp_path: Path, new_runner: NewRunner
    ) -> None:
        given = new_runner(sqlite)
        await given.run(ONE)
        await given.close()
        assert (await sqlite.list_runs()).items
        own = new_runner(f"sqlite:///{tmp_path / 'own.db'}")
        await own.run(ONE)
        session = await own._parts.session()
        await own.close()
        with pytest.raises(tenure.StoreError):
            await session.store.list_runs()

    async def test_a_closed_one_refuses_until_it_is_opened_again(
        self, any_store: Any, new_runner: NewRunner, act: Puppet
    ) -> None:
        runner = new_runner(any_store)
        run = await runner.run(ONE)
        await runner.close()
        await runner.close()
        asked: list[Callable[[], Awaitable[object]]] = [
            lambda: runner.run(ONE),
            lambda: runner.submit(ONE),
            lambda: runner.get_run(run.run_id),
            runner.list_runs,
            lambda: runner.cancel(run.run_id),
            lambda: runner.annotate(run.run_id, {"a": 1}),
            runner.reconcile,
        ]
        for ask in asked:
            with pytest.raises(tenure.RunnerClosed, match="open it again"):
                await ask()
        assert act.begun == ["one/local"]
        async with runner:
            assert (await runner.run(ONE)).status is RunStatus.SUCCESS

    async def test_who_is_opening_a_store_while_it_closes_executes_nothing(
        self, new_runner: NewRunner, act: Puppet
    ) -> None:
        store, asked, go_on = held_up()
        runner = new_runner(store)
        run = asyncio.create_task(runner.run(ONE))
        await asked.wait()
        closing = asyncio.create_task(runner.close())
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(tenure.RunnerClosed):
            await run
        await closing
        assert act.begun == []

    async def test_a_run_does_not_wait_for_ever_for_a_store_that_was_removed(
        self, tmp_path: Path, new_runner: NewRunner, act: Puppet
    ) -> None:
        path = tmp_path / "runs.db"
        act.hold("one/local")
        running = asyncio.create_task(
            new_runner(f"sqlite:///{path}").run(workflow(step("one"), step("two")))
        )
        await act.begins("one/local")
        path.unlink()
        act.let_go("one/local")
        with pytest.raises(tenure.StoreError, match=r"runs\.db was removed"):
            await asyncio.wait_for(running, PATIENCE)
        assert act.begun == ["one/local"]


class TestSynchronously:
    def test_run_sync_opens_runs_and_closes(self, tmp_path: Path) -> None:
        runner = tenure.Runner(f"sqlite:///{tmp_path / 'runs.db'}")
        played = workflow(shell("one", "echo hi"))
        first = runner.run_sync(played)
        second = runner.run_sync(played)
        assert first.steps[0].hosts["local"].stdout == "hi\n"
        assert second.run_id > first.run_id

        async def both() -> list[str]:
            async with tenure.Runner(f"sqlite:///{tmp_path / 'runs.db'}") as later:
                return [run.run_id for run in (await later.list_runs()).items]

        assert asyncio.run(both()) == [second.run_id, first.run_id]

    async def test_inside_an_event_loop_it_says_what_to_do(self, runner: tenure.Runner) -> None:
        with pytest.raises(RuntimeError, match="await run"):
            runner.run_sync(ONE)


class TestAnnotations:
    async def test_notes_stay_on_ended_runs_and_touch_nothing_else(
        self, any_store: Any, new_runner: NewRunner
    ) -> None:
        runner = new_runner(any_store)
        run = await runner.run(ONE)
        noted = await runner.annotate(run.run_id, {"ticket": 7}, by="ada")
        assert noted.status is run.status
        assert noted.finished_at == run.finished_at
        assert [(note.data, note.by) for note in noted.annotations] == [({"ticket": 7}, "ada")]


class TestWarning:
    async def test_once_per_process_that_runs_are_not_kept(
        self, new_runner: NewRunner, caplog: pytest.LogCaptureFixture, warn_anew: None
    ) -> None:
        with caplog.at_level(logging.WARNING, "tenure"):
            for runner in (new_runner(), new_runner("memory:"), new_runner(InMemoryStore())):
                await runner.run(ONE)
        said = [each for each in caplog.messages if "do not survive this process" in each]
        assert len(said) == 1


WITHOUT_DRIVERS = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"apsw", "sqlite3", "psycopg", "asyncpg", "redis"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name.split(".")[0])
sys.meta_path.insert(0, Absent())
import asyncio, tenure
@tenure.action("greet")
async def greet(who: str) -> dict[str, str]:
    return {"greeting": f"hello {who}"}
async def main():
    async with tenure.Runner() as runner:
        run = await runner.run(tenure.Workflow(name="w", steps=[
            tenure.Step(name="a", action="greet", args={"who": "you"}),
            tenure.Step(name="b", action="cmd.run", args={"cmd": "printf %s \\"$greeting\\""}),
        ]))
        print(run.status, run.steps[1].hosts["local"].stdout)
        try:
            tenure.open_store("sqlite:///x.db")
        except tenure.TenureError as error:
            print(error)
asyncio.run(main())
"""


@pytest.mark.slow
def test_with_every_driver_absent_runs_on_memory_work(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_DRIVERS], capture_output=True, text=True, cwd=tmp_path
    )
    first, second = done.stdout.splitlines()
    assert first == "success hello you"
    assert "apsw" in second
    assert "do not survive this process" in done.stderr
