"""A secret reaches tasks, and nothing else: no record, journal, callback, log or onlooker."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import tenure
from tenure.model.codec import full_record
from tenure.model.status import RunStatus
from tenure.runtime.executor import Executor
from tenure.runtime.schedule import Schedule
from tenure.stores.sqlite import SQLiteStore
from tests.runtime.conftest import NewRunner
from tests.runtime.puppets import Inbox, Onlooker, Puppet, shell, step, workflow

SECRET = "s3cr3t-Gr8-v4lue"
GIVEN = tenure.RunOptions(run_id="a-run-with-a-secret", secrets={"db_password": SECRET})


def flow(*steps: tenure.Step) -> tenure.Workflow:
    return workflow(*steps, secrets=["db_password"])


async def test_it_reaches_the_task_and_is_masked_in_what_it_prints(
    sqlite: SQLiteStore, new_runner: NewRunner
) -> None:
    onlooker = Onlooker()
    says = shell("one", 'printf "it is %s, is it\\n" "$db_password"; echo "${#db_password}" >&2')
    run = await new_runner(sqlite, recorders=[onlooker]).run(flow(says), GIVEN)
    host = next(iter(run.steps[0].hosts.values()))
    assert (host.stdout, host.stderr) == ("it is ***, is it\n", f"{len(SECRET)}\n")
    assert b"".join(chunk.data for chunk in onlooker.chunks if chunk.stream == "stdout") == (
        b"it is ***, is it\n"
    )


async def test_it_is_masked_across_writes(sqlite: SQLiteStore, new_runner: NewRunner) -> None:
    halves = shell(
        "one",
        'printf %s "$db_password" | cut -c1-7 | tr -d "\\n"; sleep 0.05; '
        'printf %s "$db_password" | cut -c8-',
    )
    run = await new_runner(sqlite).run(flow(halves), GIVEN)
    assert next(iter(run.steps[0].hosts.values())).stdout == "***\n"


async def test_a_message_of_a_failure_is_masked(sqlite: SQLiteStore, new_runner: NewRunner) -> None:
    fails = shell("one", 'echo "cannot log in with $db_password" >&2; exit 3')
    run = await new_runner(sqlite).run(flow(fails), GIVEN)
    assert run.status is RunStatus.FAILED
    assert run.error is not None
    assert SECRET not in json.dumps(full_record(run), default=str)
    assert "cannot log in with ***" in run.error.message
    assert run.error.stderr_tail == "cannot log in with ***\n"


async def test_what_an_exception_says_is_masked_as_python_shows_it(
    sqlite: SQLiteStore, new_runner: NewRunner
) -> None:
    opens = tenure.Step(
        name="one",
        action="python.call",
        args={"function": "builtins:open", "args": {"file": "/nonexistent/${{ db_password }}"}},
    )
    options = tenure.RunOptions(secrets={"db_password": 'pa"ss\\word-99'})
    run = await new_runner(sqlite).run(flow(opens), options)
    host = next(iter(run.steps[0].hosts.values()))
    assert (host.message or "").endswith("No such file or directory: '/nonexistent/***'")
    assert "word-99" not in json.dumps(full_record(run), default=str)


@pytest.mark.parametrize("before", [0, 20, 30, 44, 50, 1950, 1990])
async def test_a_name_that_is_not_there_shows_no_part_of_it(
    before: int, sqlite: SQLiteStore, new_runner: NewRunner
) -> None:
    looks = tenure.Step(
        name="one",
        action="template.render",
        args={
            "template": "{{ {'a': 1}['" + "x" * before + "' ~ db_password] }}",
            "dest": "/nonexistent/file",
        },
    )
    run = await new_runner(sqlite).run(flow(looks), GIVEN)
    message = next(iter(run.steps[0].hosts.values())).message or ""
    assert "the map has no " in message
    assert SECRET[:3] not in message


@pytest.mark.parametrize("length", [1970, 1980, 1990, 2000, 5000])
async def test_a_long_message_shows_no_part_of_it(
    length: int, sqlite: SQLiteStore, new_runner: NewRunner, act: Puppet
) -> None:
    act.results["one/local"] = ValueError("x" * length + SECRET + "x" * 100)
    run = await new_runner(sqlite).run(flow(step("one")), GIVEN)
    message = next(iter(run.steps[0].hosts.values())).message or ""
    assert message.startswith("ValueError: xxx")
    assert len(message) <= 2000
    assert SECRET[:3] not in message


async def test_last_words_of_a_task_that_is_ended_are_masked(
    sqlite: SQLiteStore, new_runner: NewRunner
) -> None:
    """Also what was held back as the possible beginning of a secret."""
    hangs = shell("one", f'printf %s "{SECRET[:5]}"; exec sleep 30', timeout=0.3)
    run = await new_runner(sqlite).run(flow(hangs), GIVEN)
    assert next(iter(run.steps[0].hosts.values())).stdout == SECRET[:5]


async def test_an_export_that_holds_it_is_passed_on_and_not_recorded(
    sqlite: SQLiteStore, new_runner: NewRunner
) -> None:
    exports = shell(
        "one",
        'echo "url=db://me:$db_password@db" >> "$TENURE_OUTPUT"; '
        'echo "plain=seen" >> "$TENURE_OUTPUT"',
    )
    uses = shell("two", 'printf "%s %s" "${#url}" "$plain"')
    run = await new_runner(sqlite).run(flow(exports, uses), GIVEN)
    first, second = (next(iter(each.hosts.values())) for each in run.steps)
    assert (first.vars, first.withheld) == ({"plain": "seen"}, ("url",))
    assert second.stdout == f"{len('db://me:@db') + len(SECRET)} seen"


async def test_so_it_is_with_what_a_loop_exports(
    sqlite: SQLiteStore, new_runner: NewRunner
) -> None:
    exports = shell(
        "one",
        'echo "url=$item" >> "$TENURE_OUTPUT"; echo "n=${#item}" >> "$TENURE_OUTPUT"',
        loop=["${{ db_password }}", "x"],
    )
    last = shell("two", 'echo "url=$db_password$item" >> "$TENURE_OUTPUT"', loop=["", "!"])
    uses = shell("three", 'printf %s "${#url}"')
    run = await new_runner(sqlite).run(flow(exports, last, uses), GIVEN)
    first, second, third = (next(iter(each.hosts.values())) for each in run.steps)
    assert (first.vars, first.withheld) == ({"url": "x", "n": "1"}, ()), "the last item counts"
    assert [item.withheld for item in first.items] == [("url",), ()]
    assert (second.vars, second.withheld) == ({}, ("url",))
    assert third.stdout == str(len(SECRET) + 1)
    assert SECRET not in json.dumps(full_record(run), default=str)


async def test_a_value_given_under_a_secrets_name_is_a_secret(
    sqlite: SQLiteStore, new_runner: NewRunner
) -> None:
    options = tenure.RunOptions(vars={"db_password": SECRET})
    run = await new_runner(sqlite).run(flow(shell("one", 'echo "$db_password"')), options)
    assert run.vars == {}
    assert next(iter(run.steps[0].hosts.values())).stdout == "***\n"


@pytest.mark.parametrize(
    ("action", "args"),
    [
        ("script.shell", {"script": "true", "args": ["-p", "${{ url }}"]}),
        ("script.python", {"script": "pass", "args": "${db_password}"}),
        ("file.copy", {"content": "x", "dest": "{folder}/${{ db_password }}"}),
        ("template.render", {"template": "x", "dest": "{folder}/${url}"}),
        ("cmd.run", {"cmd": "true", "dir": "{folder}/${{ db_password }}"}),
    ],
)
async def test_it_never_becomes_an_argument_of_a_process(
    sqlite: SQLiteStore,
    new_runner: NewRunner,
    tmp_path: Path,
    action: str,
    args: dict[str, Any],
) -> None:
    """Which every user of the host can read; also what was made of it."""
    folder = tmp_path / "host"
    folder.mkdir()
    exports = shell("one", 'echo "url=x$db_password" >> "$TENURE_OUTPUT"')
    args = {
        name: value.replace("{folder}", str(folder)) if isinstance(value, str) else value
        for name, value in args.items()
    }
    shows = tenure.Step(name="two", action=action, args=args)
    run = await new_runner(sqlite).run(flow(exports, shows), GIVEN)
    host = next(iter(run.steps[1].hosts.values()))
    assert (host.status, host.kind) == ("failed", "arguments")
    assert "there is a secret in it" in (host.message or "")
    assert list(folder.iterdir()) == []


async def test_an_argument_that_only_looks_like_one_is_no_secret(
    sqlite: SQLiteStore, new_runner: NewRunner
) -> None:
    """It stands in the file."""
    options = tenure.RunOptions(secrets={"db_password": "admin"})
    script = tenure.Step(
        name="one", action="script.shell", args={"script": 'echo "$#"', "args": ["admin"]}
    )
    run = await new_runner(sqlite).run(flow(script), options)
    assert next(iter(run.steps[0].hosts.values())).stdout == "1\n"


@pytest.mark.slow
async def test_it_is_nowhere_in_anything_that_is_kept_or_sent(
    tmp_path: Path, new_runner: NewRunner
) -> None:
    inbox, onlooker = Inbox(), Onlooker()
    everything = flow(
        shell("prints", 'echo "$db_password"; echo "$db_password" >&2'),
        shell("exports", 'echo "copy=$db_password" >> "$TENURE_OUTPUT"'),
        shell("as json", 'printf \'{"p": "%s"}\' "$db_password"'),
        shell("inside", "echo ${{ db_password ~ '!' }}"),
        shell("fails", 'echo "no: $db_password" >&2; exit 1', continue_on_error=True),
        step("loops", loop=["${{ db_password }}"], continue_on_error=True),
        shell(
            "exports in a loop",
            'echo "again=$item" >> "$TENURE_OUTPUT"',
            loop=["${{ db_password }}"],
        ),
    )
    store = await SQLiteStore.open(tmp_path / "runs.db")
    runner = new_runner(store, notifier=inbox, recorders=[onlooker])
    await runner.run(everything, GIVEN)
    journal: Any = await store.read_events("a-run-with-a-secret")
    await runner.close()
    await store.close()
    assert SECRET not in repr(journal) + repr(inbox.payloads) + repr(onlooker.events)
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.parent.name != tmp_path.name for path in kept), "no log was written"
    for path in kept:
        assert SECRET.encode() not in path.read_bytes(), path


@pytest.mark.parametrize("where", ["engine", "task", "store"])
async def test_a_fault_of_our_own_quotes_no_secret(
    sqlite: SQLiteStore,
    new_runner: NewRunner,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    where: str,
) -> None:
    async def task(*args: Any) -> None:
        raise ZeroDivisionError(f"a bug near {SECRET}")

    def engine(*args: Any) -> None:
        raise ZeroDivisionError(f"a bug near {SECRET}")

    def store(*args: Any) -> None:
        raise tenure.StoreRejected("a-run", f"cannot hold {SECRET}")

    if where == "task":
        monkeypatch.setattr(Executor, "execute", task)
    else:
        monkeypatch.setattr(Schedule, "settle", engine if where == "engine" else store)
    with suppress(ZeroDivisionError):
        await new_runner(sqlite).run(flow(shell("one", "true")), GIVEN)
    run = await sqlite.get_run(GIVEN.run_id or "")
    assert run.status is RunStatus.FAILED
    assert run.error is not None
    assert run.error.message.count("***") == 1
    written = json.dumps(full_record(run), default=str) + caplog.text
    assert SECRET not in written + repr(await sqlite.read_events(run.run_id))
