"""A secret reaches tasks, and nothing else: no record, journal, callback, log or recorder."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tenure
from tenure.model.codec import full_record
from tenure.model.errors import InvalidOptions, RunNotFound
from tenure.model.snapshot import CallbackTarget
from tenure.model.status import RunStatus
from tenure.ports.callbacks import Outbox
from tenure.ports.store import EventLog
from tenure.runtime.schedule import Schedule
from tenure.stores.sqlite import SQLiteStore
from tests.notifiers.deliveries import SECRET as SIGNING
from tests.notifiers.receiver import Receiver
from tests.runtime.conftest import NewRunner
from tests.runtime.puppets import PATIENCE, Inbox, Onlooker, Puppet, shell, step, workflow
from tests.runtime_relay.hooks import hook

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
    host = run.steps[0].hosts["local"]
    assert (host.stdout, host.stderr) == ("it is ***, is it\n", f"{len(SECRET)}\n")
    assert b"".join(chunk.data for chunk in onlooker.chunks if chunk.stream == "stdout") == (
        b"it is ***, is it\n"
    )


async def test_it_is_masked_in_what_a_command_encodes(
    sqlite: SQLiteStore, new_runner: NewRunner
) -> None:
    """As ``curl -v`` does, and in two writes with the border inside of it."""
    onlooker = Onlooker()
    says = shell(
        "one",
        'text=$(printf "me:%s" "$db_password" | base64 -w0)\n'
        'printf "Authorization: Basic %s" "$(printf %s "$text" | cut -c 1-12)"; sleep 0.3\n'
        'printf "%s\n" "$(printf %s "$text" | cut -c 13-)"\n'
        'printf %s "$db_password" | od -An -v -tx1 | tr -d " \\n" >&2',
    )
    run = await new_runner(sqlite, recorders=[onlooker]).run(flow(says), GIVEN)
    host = run.steps[0].hosts["local"]
    assert (host.stdout, host.stderr) == ("Authorization: Basic bWU6***\n", "***")
    seen = b"".join(chunk.data for chunk in onlooker.chunks if chunk.stream == "stdout")
    assert seen == b"Authorization: Basic bWU6***\n"


async def test_a_message_of_a_failure_is_masked(sqlite: SQLiteStore, new_runner: NewRunner) -> None:
    fails = shell("one", 'echo "cannot log in with $db_password" >&2; exit 3')
    run = await new_runner(sqlite).run(flow(fails), GIVEN)
    assert run.status is RunStatus.FAILED
    assert run.error is not None
    assert SECRET not in json.dumps(full_record(run), default=str)
    assert "cannot log in with ***" in run.error.message
    assert run.error.stderr_tail == "cannot log in with ***\n"


@pytest.mark.parametrize("length", [10, 1980])
async def test_a_long_message_shows_no_part_of_it(
    length: int, sqlite: SQLiteStore, new_runner: NewRunner, act: Puppet
) -> None:
    act.results["one/local"] = ValueError("x" * length + SECRET + "x" * 100)
    run = await new_runner(sqlite).run(flow(step("one")), GIVEN)
    message = run.steps[0].hosts["local"].message or ""
    assert message.startswith("ValueError: xxx")
    assert len(message) <= 2000
    assert SECRET[:3] not in message


async def test_last_words_of_a_task_that_is_ended_are_masked(
    sqlite: SQLiteStore, new_runner: NewRunner
) -> None:
    """Also what was held back as the possible beginning of a secret."""
    hangs = shell("one", f'printf %s "{SECRET[:5]}"; exec sleep 30', timeout=0.3)
    run = await new_runner(sqlite).run(flow(hangs), GIVEN)
    assert run.steps[0].hosts["local"].stdout == SECRET[:5]


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
    first, second = (each.hosts["local"] for each in run.steps)
    assert (first.vars, first.withheld) == ({"plain": "seen"}, ("url",))
    assert second.stdout == f"{len('db://me:@db') + len(SECRET)} seen"


@pytest.mark.parametrize(
    ("action", "args"),
    [
        ("script.shell", {"script": "true", "args": ["-p", "${{ url }}"]}),
        ("file.copy", {"content": "x", "dest": "{folder}/${{ db_password }}"}),
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
    host = run.steps[1].hosts["local"]
    assert (host.status, host.kind) == ("failed", "arguments")
    assert "there is a secret in it" in (host.message or "")
    assert list(folder.iterdir()) == []


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


@pytest.mark.parametrize("where", ["engine", "store"])
async def test_a_fault_of_our_own_quotes_no_secret(
    sqlite: SQLiteStore,
    new_runner: NewRunner,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    where: str,
) -> None:
    def engine(*args: Any) -> None:
        raise ZeroDivisionError(f"a bug near {SECRET}")

    def store(*args: Any) -> None:
        raise tenure.StoreRejected("a-run", f"cannot hold {SECRET}")

    monkeypatch.setattr(Schedule, "settle", engine if where == "engine" else store)
    with suppress(ZeroDivisionError):
        await new_runner(sqlite).run(flow(shell("one", "true")), GIVEN)
    run = await sqlite.get_run(GIVEN.run_id or "")
    assert run.status is RunStatus.FAILED
    assert run.error is not None
    assert run.error.message.count("***") == 1
    written = json.dumps(full_record(run), default=str) + caplog.text
    assert SECRET not in written + repr(await sqlite.read_events(run.run_id))


PLANTED = "Zqplanted|secret7"
PLANTED_RUN = "run-with-a-plant"
TRUE = workflow(shell("one", "true"), secrets=["tok"])


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({"vars": {"url": f"http://u:{PLANTED}@h"}}, "variable url"),
        ({"vars": {"url": "http://u:Zqplanted%7Csecret7@h"}}, "variable url"),
        ({"vars": {f"x{PLANTED}": 1}}, "variable x***"),
        ({"labels": {PLANTED: "l"}}, "label ***"),
        ({"callbacks": [{"url": f"https://h/{PLANTED}"}]}, "callback 1, its url"),
    ],
)
async def test_it_is_refused_by_its_place_before_anything_is_stored(
    sqlite: SQLiteStore, new_runner: NewRunner, given: dict[str, Any], place: str
) -> None:
    if "callbacks" in given:
        given = {"callbacks": [tenure.CallbackSpec(**each) for each in given["callbacks"]]}
    options = tenure.RunOptions(run_id=PLANTED_RUN, secrets={"tok": PLANTED}, **given)
    runner = new_runner(sqlite)
    for verb in (runner.run, runner.submit):
        with pytest.raises(InvalidOptions) as refused:
            await verb(TRUE, options)
        [said] = refused.value.problems
        assert said.startswith(f"{place}: the value of the secret tok is in it")
        assert PLANTED not in said
    with pytest.raises(RunNotFound):
        await sqlite.get_run(PLANTED_RUN)


async def test_nor_is_it_if_it_is_given_once_more(
    sqlite: SQLiteStore, new_runner: NewRunner
) -> None:
    flow = workflow(
        shell("one", "true"),
        secrets=["tok"],
        vars={"user": "admin", "admin_mail": "a@b"},
        labels={"team": "admin"},
    )
    given = tenure.RunOptions(
        secrets={"tok": "admin"},
        vars={"user": "admin", "admin_mail": "b@c"},
        labels={"team": "admin"},
    )
    run = await new_runner(sqlite).run(flow, given)
    assert (run.status, run.vars["admin_mail"]) == ("success", "b@c")
    other = tenure.RunOptions(secrets={"tok": "admin"}, vars={"user": "sysadmin"})
    with pytest.raises(InvalidOptions, match="variable user"):
        await new_runner(sqlite).run(flow, other)


async def test_what_nobody_keeps_may_have_it(new_runner: NewRunner) -> None:
    given = tenure.RunOptions(secrets={"tok": PLANTED}, vars={"url": f"http://u:{PLANTED}@h"})
    run = await new_runner(tracking=False).run(TRUE, given)
    assert run.status == "success"


TELLING = "a-run-with-secrets"
TOKEN = "t0ken-that-nobody-may-see"
PASSWORD = "passw0rd-of-the-url"
ONCE = tenure.CallbackSettings(allow_private=True, attempts=1, flush=PATIENCE)


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with Receiver() as receiver:
        yield receiver


@pytest.mark.parametrize("answer", ["echo", "reset", "301"])
async def test_secrets_stay_between_sender_and_receiver(
    any_store: Any,
    receiver: Receiver,
    new_runner: NewRunner,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    answer: str,
) -> None:
    """Even if the receiver says them to our face: ``echo`` answers with all that it got."""
    monkeypatch.setenv("TENURE_HOOK_SHOP", SIGNING)
    plain = hook(
        receiver, answer, secret_env="TENURE_HOOK_SHOP", headers={"x-token": f"Bearer {TOKEN}"}
    )
    targets = [
        plain,
        CallbackTarget(name="with-password", url=f"{receiver.url(answer)}?key={PASSWORD}"),
        CallbackTarget(name="failing", url=f"{receiver.url('500')}?key={PASSWORD}"),
    ]
    runner = new_runner(any_store, callbacks=ONCE)
    with caplog.at_level(logging.DEBUG):
        await runner.run(
            workflow(step("one")), tenure.RunOptions(run_id=TELLING, callbacks=targets)
        )
        await runner.close()
    run = await any_store.get_run(TELLING)
    said: list[Any] = [caplog.text, run.callback_error]
    if isinstance(any_store, EventLog):
        said.append(await any_store.read_events(TELLING))
    if isinstance(any_store, Outbox):
        said += [each.last_error for each in (await any_store.list_deliveries()).items]
    assert run.callback_error is not None
    text = msgspec.json.encode(said).decode()
    for secret in (TOKEN, PASSWORD, SIGNING, SIGNING.removeprefix("whsec_")):
        assert secret not in text
    signed = [each for each in receiver.received if "webhook-signature" in each.headers]
    assert {each.headers["x-token"] for each in signed} == {f"Bearer {TOKEN}"}


async def test_missing_secret_is_named_and_nothing_is_sent(
    any_store: Any, receiver: Receiver, new_runner: NewRunner
) -> None:
    """Unsigned where a signature was asked for would be worse than not at all."""
    runner = new_runner(any_store, callbacks=ONCE)
    target = hook(receiver, secret_env="TENURE_HOOK_NOWHERE")
    await runner.run(workflow(step("one")), tenure.RunOptions(run_id=TELLING, callbacks=[target]))
    await runner.close()
    run = await any_store.get_run(TELLING)
    assert run.callback_error is not None
    assert "TENURE_HOOK_NOWHERE is not set" in run.callback_error.error
    assert receiver.received == []
