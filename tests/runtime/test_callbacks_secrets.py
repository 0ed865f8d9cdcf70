"""What only sender and receiver may know is in no log, no error and no journal."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

import tenure
from tenure.model.snapshot import CallbackTarget
from tenure.ports.callbacks import Outbox
from tenure.ports.store import EventLog
from tests.notifiers.deliveries import SECRET
from tests.notifiers.receiver import Receiver
from tests.runtime.conftest import NewRunner
from tests.runtime.puppets import PATIENCE, step, workflow
from tests.runtime_relay.hooks import hook

RUN_ID = "a-run-with-secrets"
TOKEN = "t0ken-that-nobody-may-see"
PASSWORD = "passw0rd-of-the-url"
ONCE = tenure.CallbackSettings(allow_private=True, attempts=1, flush=PATIENCE)


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with Receiver() as receiver:
        yield receiver


@pytest.mark.parametrize("answer", ["echo", "500", "reset", "garbage", "301", "ok"])
async def test_secrets_stay_between_sender_and_receiver(
    any_store: Any,
    receiver: Receiver,
    new_runner: NewRunner,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    answer: str,
) -> None:
    """Even if the receiver says them to our face: ``echo`` answers with all that it got."""
    monkeypatch.setenv("TENURE_HOOK_SHOP", SECRET)
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
        await runner.run(workflow(step("one")), tenure.RunOptions(run_id=RUN_ID, callbacks=targets))
        await runner.close()
    run = await any_store.get_run(RUN_ID)
    said: list[Any] = [caplog.text, run.callback_error]
    if isinstance(any_store, EventLog):
        said.append(await any_store.read_events(RUN_ID))
    if isinstance(any_store, Outbox):
        said += [each.last_error for each in (await any_store.list_deliveries()).items]
    assert run.callback_error is not None
    text = msgspec.json.encode(said).decode()
    for secret in (TOKEN, PASSWORD, SECRET, SECRET.removeprefix("whsec_")):
        assert secret not in text
    signed = [each for each in receiver.received if "webhook-signature" in each.headers]
    assert {each.headers["x-token"] for each in signed} == {f"Bearer {TOKEN}"}


async def test_missing_secret_is_named_and_nothing_is_sent(
    any_store: Any, receiver: Receiver, new_runner: NewRunner
) -> None:
    """Unsigned where a signature was asked for would be worse than not at all."""
    runner = new_runner(any_store, callbacks=ONCE)
    target = hook(receiver, secret_env="TENURE_HOOK_NOWHERE")
    await runner.run(workflow(step("one")), tenure.RunOptions(run_id=RUN_ID, callbacks=[target]))
    await runner.close()
    run = await any_store.get_run(RUN_ID)
    assert run.callback_error is not None
    assert "TENURE_HOOK_NOWHERE is not set" in run.callback_error.error
    assert receiver.received == []
