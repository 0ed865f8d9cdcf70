"""``tenure callbacks redeliver``."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime

import click

from tenure.bootstrap import default_sender
from tenure.cli.callbacks.lines import in_color_of, state_word, when
from tenure.cli.callbacks.outbox import all_of, outbox_of, run_with_callbacks
from tenure.cli.display import json_lines
from tenure.cli.display.paint import dim, note, say
from tenure.cli.display.text import counted, one_line
from tenure.cli.exits import Exit
from tenure.cli.opening import callback_settings, settings_for, tending, this_user
from tenure.cli.verb import completes, json_option, store_option, verb
from tenure.config import Settings
from tenure.model.outbox import Delivery
from tenure.model.status import DeliveryState
from tenure.ports.outbox import Outbox
from tenure.ports.run_store import RunStateStore
from tenure.runtime.operators import Operators
from tenure.runtime.relay import Relay
from tenure.system import SystemClock, new_update_id
from tenure.wire.deliveries import CallbackSummary, summary_of

_MOST_LINES = 20


@verb(
    "redeliver",
    "tenure callbacks redeliver 5f2c9a7e01b4d3861",
    "tenure callbacks redeliver --dead --run latest",
)
@click.argument("ids", metavar="[ID]...", nargs=-1, shell_complete=completes("callback_ids"))
@click.option("--dead", is_flag=True, help="All that were given up.")
@click.option(
    "--run",
    "run",
    metavar="RUN",
    shell_complete=completes("run_ids"),
    help="With --dead: only those of one run; latest is the newest.",
)
@json_option
@store_option
def command(
    ids: tuple[str, ...], dead: bool, run: str | None, as_json: bool, store: str | None
) -> int:
    """Send callbacks again, under the same id.

    They get all their attempts anew and carry the header tenure-redelivery. The first attempt is
    made right away, and nothing else is sent; what has not arrived after callback_flush stays in
    the outbox. One that waits keeps its place and its time. Exit code 1 if one of them has not
    arrived.
    """
    if run is not None and not dead:
        raise click.UsageError(
            "--run goes with --dead: --dead --run RUN is all that was given up of one run. An id "
            "needs no run."
        )
    if dead == bool(ids):
        raise click.UsageError("Give the ids of callbacks, or --dead for all that were given up.")
    tried = asyncio.run(_redeliver(settings_for(store), ids, run))
    states = Counter(each.state for each in tried)
    if as_json:
        counts = {str(state): states[state] for state in DeliveryState}
        say(json_lines.as_json({**counts, "callbacks": tried}))
    elif not tried:
        note("nothing to do: no callback was given up")
    else:
        for line in _lines(tried, SystemClock().now()):
            say(line)
    return Exit.SUCCESS if states[DeliveryState.DELIVERED] == len(tried) else Exit.FAILED


async def _redeliver(
    settings: Settings, ids: Sequence[str], run: str | None
) -> list[CallbackSummary]:
    async with tending(settings) as store:
        outbox = outbox_of(store)
        wanted = await _wanted(store, outbox, ids, run)
        # Oldest first: another process may send each as soon as it is asked for.
        wanted.sort(key=lambda each: each.event.position)
        operators, by = Operators(store, new_update_id), this_user()
        again = [await operators.redeliver(outbox, each.id, by=by) for each in wanted]
        if again:
            await _send(outbox, settings, again)
        return [summary_of(await outbox.get_delivery(each.id)) for each in wanted]


async def _wanted(
    store: RunStateStore, outbox: Outbox, ids: Sequence[str], run: str | None
) -> list[Delivery]:
    if ids:
        return [await outbox.get_delivery(each) for each in dict.fromkeys(ids)]
    run_id = await run_with_callbacks(store, run)
    return [each async for each in all_of(outbox, DeliveryState.DEAD, run_id)]


async def _send(outbox: Outbox, settings: Settings, again: Sequence[Delivery]) -> None:
    """One attempt at each, by a relay like any other, for as long as the end of a run would wait.
    What else is due stays where it is: nobody asked for it, and it may take long."""
    callbacks = callback_settings(settings)
    sender = default_sender(callbacks.timeout, callbacks.allow_private, callbacks.targets)
    untried = {each.id: each.attempts for each in again}
    relay = Relay(
        outbox,
        sender,
        callbacks.policy,
        new_id=new_update_id,
        settled=lambda delivery: _strike_off(untried, delivery),
        only=untried,
        timing=callbacks.timing,
    )
    log = logging.getLogger("tenure.runtime")
    log.setLevel(logging.ERROR)  # what is given up is our answer, and told once
    relay.open()
    try:
        await relay.close(callbacks.flush, run_ids=None)
    finally:
        await sender.close()
        log.setLevel(logging.NOTSET)


def _strike_off(untried: dict[str, int], settled: Delivery) -> None:
    if settled.attempts != untried.get(settled.id):  # or else it was put back
        untried.pop(settled.id, None)


def _lines(tried: Sequence[CallbackSummary], now: datetime) -> Iterator[str]:
    arrived_last = sorted(tried, key=lambda each: each.state is DeliveryState.DELIVERED)
    for each in arrived_last[:_MOST_LINES]:
        state = in_color_of(each.state, state_word(each.state).ljust(11))
        to = one_line(each.target.url or each.target.name)
        yield f"{state}  {each.id}  {each.type} to {to}"
        if each.state is not DeliveryState.DELIVERED:
            yield dim(f"{'':13}{_why(each, now)}")
    if len(tried) > _MOST_LINES:
        states = Counter(each.state for each in tried)
        said = ", ".join(f"{states[state]:,} {state}" for state in DeliveryState if states[state])
        yield f"{counted(len(tried), 'callback')} in all: {said}"


def _why(each: CallbackSummary, now: datetime) -> str:
    if each.state is DeliveryState.DEAD:
        return one_line(each.last_error or "")
    if each.due_at is not None and each.due_at <= now:
        return "it waits behind another one, or another process is sending it"
    return f"{one_line(each.last_error or 'not tried')}; next attempt {when(each, now)}"
