"""``tenure callbacks``: list, show, redeliver and test callbacks."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from shutil import get_terminal_size
from time import perf_counter

import click
import msgspec
from msgspec import Struct

from tenure.bootstrap import default_sender, http_sender
from tenure.cli.context import (
    NoRunsYet,
    callback_settings,
    meant_run,
    open_for_upkeep,
    open_to_read,
    settings_for,
    this_user,
)
from tenure.cli.display import json_lines
from tenure.cli.display.text import (
    ago,
    bold,
    cells,
    counted,
    dim,
    fitted,
    in_color,
    local,
    neutral,
    note,
    one_line,
    place_of,
    say,
    sign,
    to_type,
    took,
)
from tenure.cli.exit_codes import Exit
from tenure.cli.group import LazyGroup
from tenure.cli.options import completes, json_option, page_options, store_option, verb
from tenure.config import Settings
from tenure.model.errors import InvalidWorkflow, NotSupported, TenureError
from tenure.model.outbox import Delivery
from tenure.model.query import MAX_PAGE, Page
from tenure.model.retry_policy import RetryPolicy
from tenure.model.snapshot import CallbackTarget
from tenure.model.status import DeliveryState, RunStatus
from tenure.model.update import RecordedEvent
from tenure.ports.callbacks import NotTaken, Outbox
from tenure.ports.store import Attended, RunStateStore
from tenure.runtime.operators import Operators
from tenure.runtime.relay import Relay
from tenure.system import SystemClock, new_run_id, new_update_id
from tenure.wire.callbacks import (
    CallbackDetails,
    CallbackPayload,
    CallbackSummary,
    address_of,
    details_of,
    payload,
    summary_of,
)
from tenure.workflow.callbacks import Signing
from tenure.workflow.spec import CallbackSpec

_LOOKS = {
    DeliveryState.WAITING: "queued",
    DeliveryState.DELIVERED: "success",
    DeliveryState.DEAD: "failed",
}
"""The run status whose colour and sign it gets."""
_TITLES = ("ID", "STATE", "EVENT", "TRIED", "WHEN", "RUN", "TO")
_RUN, _TO = _TITLES.index("RUN"), _TITLES.index("TO")
_MIN_TARGET_WIDTH = 12
_GAP = "  "


def state_word(state: DeliveryState) -> str:
    return f"{sign(_LOOKS[state])} {state}"


def in_color_of(state: DeliveryState, text: str) -> str:
    return in_color(_LOOKS[state], text)


def table(found: Sequence[CallbackSummary], now: datetime, *, of_one_run: bool) -> list[str]:
    """As wide as the terminal allows: the target is shortened first, then the run id."""
    rows = [_row(each, now) for each in found]
    widths = [max(map(cells, column)) for column in zip(_TITLES, *rows, strict=True)]
    if of_one_run or _spare(widths) + widths[_TO] < _MIN_TARGET_WIDTH:
        widths[_RUN] = 0
    widths[_TO] = max(widths[_TO] + min(_spare(widths), 0), _MIN_TARGET_WIDTH)
    lines = [dim(_GAP.join(fitted(_TITLES, widths)).rstrip())]
    for each, row in zip(found, rows, strict=True):
        id, state, event, *rest = fitted(row, widths)
        words = (id, in_color_of(each.state, state), event, dim(_GAP.join(rest).rstrip()))
        lines.append(_GAP.join(words))
    return lines


def _spare(widths: Sequence[int]) -> int:
    shown = [width for width in widths if width]
    return get_terminal_size().columns - sum(shown) - len(_GAP) * (len(shown) - 1)


def _row(each: CallbackSummary, now: datetime) -> tuple[str, ...]:
    return (
        one_line(each.id),
        state_word(each.state),
        one_line(each.type),
        str(each.attempts),
        when(each, now),
        one_line(each.run_id),
        one_line(each.target.url or each.target.name),
    )


def when(each: CallbackSummary, now: datetime) -> str:
    if each.due_at is None:
        return ago(each.settled_at, now)
    seconds = (each.due_at - now).total_seconds()
    return f"in {took(seconds)}" if seconds > 0 else "due"


def details(each: CallbackDetails, now: datetime) -> Iterator[str]:
    name = bold(one_line(each.workflow_name))
    yield f"{in_color_of(each.state, state_word(each.state))}  {one_line(each.type)}  {name}"
    yield ""
    target = each.target
    facts = {
        "id": each.id,
        "run": each.run_id,
        "to": f"{target.url or 'nowhere'} ({target.name}: {', '.join(target.events)})",
        "signed": f"with {target.secret_env}" if target.secret_env else "no",
        "headers": ", ".join(f"{key}: {value}" for key, value in target.headers.items()),
        "attempts": f"{each.attempts}{' since it was redelivered' if each.redelivery else ''}",
        "due": f"{local(each.due_at)} ({when(each, now)})" if each.due_at else "",
        str(each.state): f"{local(each.settled_at)} ({when(each, now)})" if each.settled_at else "",
        "error": each.last_error or "",
    }
    for key, value in facts.items():
        if value:
            yield f"  {dim(key.ljust(10))}{one_line(value)}"
    yield ""
    said = msgspec.json.format(msgspec.json.encode(each.payload), indent=2).decode()
    yield from (neutral(line) for line in said.splitlines())


# The outbox of a store.


def outbox_of(store: RunStateStore) -> Outbox:
    if isinstance(store, Outbox):
        return store
    if isinstance(store, Attended):
        raise NotSupported(
            f"{store.attended_by} sends the callbacks: ask it (GET /v1/callbacks), or name its own "
            "store on its machine"
        )
    raise NotSupported(
        f"{type(store).__name__} keeps no callbacks: they are sent from memory while the run's "
        "process lives, and one that is given up shows as callback_error: tenure status --json"
    )


async def run_with_callbacks(store: RunStateStore, word: str | None) -> str | None:
    """The run id for a word of the command line, if given. ``RunNotFound``: an outbox would only
    report that it has no such callbacks."""
    if word is None:
        return None
    return (await store.get_run(await meant_run(store, word))).run_id


async def all_of(
    outbox: Outbox, state: DeliveryState, run_id: str | None
) -> AsyncIterator[Delivery]:
    cursor = None
    while True:
        page = await outbox.list_deliveries(
            state=state, run_id=run_id, limit=MAX_PAGE, cursor=cursor
        )
        for delivery in page.items:
            yield delivery
        cursor = page.cursor
        if cursor is None:
            return


async def tell_of_undelivered(settings: Settings, run_id: str) -> None:
    """Print one line if a callback of this run has not arrived. Errors of the store are ignored:
    they must not change the exit code of the run."""
    with suppress(TenureError):
        async with open_to_read(settings) as store:
            if not isinstance(store, Outbox):
                return
            waiting = await _count(store, DeliveryState.WAITING, run_id)
            dead = await _count(store, DeliveryState.DEAD, run_id)
        said = []
        if waiting:
            verb = "waits" if waiting == 1 else "wait"
            said.append(f"{counted(waiting, 'callback')} {verb} in the outbox")
        if dead:
            said.append(f"{counted(dead, 'callback')} could not be delivered")
        if said:
            note(f"{', '.join(said)}; {to_type(f'tenure callbacks list --run {run_id}')}")


async def _count(outbox: Outbox, state: DeliveryState, run_id: str) -> int:
    return sum([1 async for _ in all_of(outbox, state, run_id)])


@verb(
    "list",
    "tenure callbacks list --state dead",
    "tenure callbacks list --run latest --json",
)
@click.option(
    "--state",
    type=click.Choice([str(state) for state in DeliveryState]),
    help="Only those that wait, were delivered, or are dead.",
)
@click.option(
    "--run",
    "run",
    metavar="RUN",
    shell_complete=completes("run_ids"),
    help="Only those of one run; latest is the newest.",
)
@page_options
@json_option
@store_option
def callbacks_list(
    state: str | None,
    run: str | None,
    limit: int,
    cursor: str | None,
    as_json: bool,
    store: str | None,
) -> None:
    """List callbacks, newest first.

    A waiting callback is sent by the next command that executes or changes runs, in order and when
    it is due. A dead one was refused by its target or tried too often: look at it with
    tenure callbacks show, send it again with tenure callbacks redeliver.
    """
    settings = settings_for(store)
    wanted = None if state is None else DeliveryState(state)
    page = asyncio.run(_page(settings, wanted, run, limit, cursor))
    found = [summary_of(delivery) for delivery in page.items]
    if as_json:
        say(json_lines.as_json({"callbacks": found, "cursor": page.cursor}))
    elif not found:
        filtered = state is not None or run is not None
        which = "no such callback" if filtered else "no callbacks"
        note(f"{which} in {place_of(settings.store)}")
    else:
        for line in table(found, SystemClock().now(), of_one_run=run is not None):
            say(line)
        if page.cursor is not None:
            note(f"there are more: --cursor {page.cursor}")


async def _page(
    settings: Settings,
    state: DeliveryState | None,
    word: str | None,
    limit: int,
    cursor: str | None,
) -> Page[Delivery]:
    try:
        async with open_to_read(settings) as store:
            outbox = outbox_of(store)
            run_id = await run_with_callbacks(store, word)
            return await outbox.list_deliveries(
                state=state, run_id=run_id, limit=limit, cursor=cursor
            )
    except NoRunsYet:
        return Page(items=())


class Probe(Struct, kw_only=True):
    """One callback sent as a test, with everything that went over the wire. Fields are set as the
    attempt proceeds."""

    delivery: Delivery
    headers: dict[str, str] = {}
    """As they were sent. Empty: there was no connection."""
    status: int | None = None
    reason: str = ""
    seconds: float = 0.0
    refusal: NotTaken | None = None

    def sent(self, headers: dict[str, str]) -> None:
        self.headers = headers

    def answered(self, status: int, reason: str) -> None:
        self.status, self.reason = status, reason

    @property
    def payload(self) -> CallbackPayload:
        sample = self.delivery
        return payload(sample.event, sample.workflow_name, sample.run_status)


async def probe(
    target: CallbackTarget, seconds: float, allow_private: bool, own: Sequence[CallbackSpec]
) -> Probe:
    """Send with the sender of all callbacks, address guard and signature included."""
    seen = Probe(delivery=_sample(target))
    sender = http_sender(seconds, allow_private, Signing(own=[target]), own, trace=seen)
    start = perf_counter()
    try:
        seen.refusal = await sender.send(seen.delivery)
        seen.seconds = perf_counter() - start
    finally:
        await sender.close()
    return seen


def _sample(target: CallbackTarget) -> Delivery:
    now = SystemClock().now()
    run_id = f"test-{new_run_id()}"
    return Delivery(
        id=new_update_id(),
        run_id=run_id,
        workflow_name="tenure-callbacks-test",
        target=target,
        event=RecordedEvent(
            type="run.success",
            status=RunStatus.SUCCESS,
            run_id=run_id,
            version=1,
            seq=0,
            at=now,
            fence=0,
        ),
        run_status=RunStatus.SUCCESS,
        due_at=now,
    )


_MAX_LINES = 20


@verb(
    "redeliver",
    "tenure callbacks redeliver 5f2c9a7e01b4d3861",
    "tenure callbacks redeliver --dead --run latest",
)
@click.argument("ids", metavar="[ID]...", nargs=-1, shell_complete=completes("callback_ids"))
@click.option("--dead", is_flag=True, help="All dead ones.")
@click.option(
    "--run",
    "run",
    metavar="RUN",
    shell_complete=completes("run_ids"),
    help="With --dead: only those of one run; latest is the newest.",
)
@json_option
@store_option
def callbacks_redeliver(
    ids: tuple[str, ...], dead: bool, run: str | None, as_json: bool, store: str | None
) -> int:
    """Send callbacks again, under the same id.

    Their attempts are counted anew, and they carry the header tenure-redelivery. The first attempt
    is made at once, and nothing else is sent; what has not arrived after callback_flush stays in
    the outbox. A waiting callback keeps its place and its time. Exit code 1 if one of them has not
    arrived.
    """
    if run is not None and not dead:
        raise click.UsageError(
            "--run goes with --dead: --dead --run RUN means all dead callbacks of one run. An id "
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
        for line in _redelivered_lines(tried, SystemClock().now()):
            say(line)
    return Exit.SUCCESS if states[DeliveryState.DELIVERED] == len(tried) else Exit.FAILED


async def _redeliver(
    settings: Settings, ids: Sequence[str], run: str | None
) -> list[CallbackSummary]:
    async with open_for_upkeep(settings) as store:
        outbox = outbox_of(store)
        wanted = await _wanted(store, outbox, ids, run)
        # Oldest first: another process may send each as soon as it is requeued.
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
    """One attempt for each, by an ordinary relay, for at most ``callback_flush``. Other due
    callbacks are left alone: they were not asked for, and may take long."""
    callbacks = callback_settings(settings)
    sender = default_sender(
        callbacks.timeout, callbacks.allow_private, callbacks.signing(), callbacks.targets
    )
    untried = {each.id: each.attempts for each in again}
    relay = Relay(
        outbox,
        sender,
        callbacks.policy,
        new_id=new_update_id,
        settled=lambda delivery: _mark_tried(untried, delivery),
        only=untried,
        timing=callbacks.timing,
    )
    log = logging.getLogger("tenure.runtime")
    log.setLevel(logging.ERROR)  # dead letters are reported once, as this command's answer
    relay.open()
    try:
        await relay.close(callbacks.flush, run_ids=None)
    finally:
        await sender.close()
        log.setLevel(logging.NOTSET)


def _mark_tried(untried: dict[str, int], settled: Delivery) -> None:
    if settled.attempts != untried.get(settled.id):  # otherwise it was put back
        untried.pop(settled.id, None)


def _redelivered_lines(tried: Sequence[CallbackSummary], now: datetime) -> Iterator[str]:
    arrived_last = sorted(tried, key=lambda each: each.state is DeliveryState.DELIVERED)
    for each in arrived_last[:_MAX_LINES]:
        state = in_color_of(each.state, state_word(each.state).ljust(11))
        to = one_line(each.target.url or each.target.name)
        yield f"{state}  {each.id}  {each.type} to {to}"
        if each.state is not DeliveryState.DELIVERED:
            yield dim(f"{'':13}{_why(each, now)}")
    if len(tried) > _MAX_LINES:
        states = Counter(each.state for each in tried)
        said = ", ".join(f"{states[state]:,} {state}" for state in DeliveryState if states[state])
        yield f"{counted(len(tried), 'callback')} in all: {said}"


def _why(each: CallbackSummary, now: datetime) -> str:
    if each.state is DeliveryState.DEAD:
        return one_line(each.last_error or "")
    if each.due_at is not None and each.due_at <= now:
        return "it waits behind another one, or another process is sending it"
    return f"{one_line(each.last_error or 'not tried')}; next attempt {when(each, now)}"


@verb(
    "show",
    "tenure callbacks show 5f2c9a7e01b4d3861",
    "tenure callbacks show 5f2c9a7e01b4d3861 --json",
)
@click.argument("callback", metavar="ID", shell_complete=completes("callback_ids"))
@json_option
@store_option
def callbacks_show(callback: str, as_json: bool, store: str | None) -> None:
    """Show one callback: what it says, where it goes, what went wrong.

    ID is the webhook-id that its receiver sees; tenure callbacks list shows them. Values of headers
    and credentials in a URL are not shown.
    """
    found = details_of(asyncio.run(_delivery(settings_for(store), callback)))
    if as_json:
        say(json_lines.as_json(found))
        return
    for line in details(found, SystemClock().now()):
        say(line)


async def _delivery(settings: Settings, callback: str) -> Delivery:
    async with open_to_read(settings) as store:
        return await outbox_of(store).get_delivery(callback)


# Targets typed on the command line.


def target_of(spec: CallbackSpec, name: str) -> CallbackTarget:
    return CallbackTarget(
        name=name,
        url=spec.url,
        events=tuple(spec.events),
        secret_env=spec.secret_env,
        headers=spec.headers,
    )


def problem_with(target: CallbackTarget, environ: Mapping[str, str]) -> str | None:
    """Why nothing can be sent to it from a process with this environment; ``None`` if it can."""
    from tenure.notifiers.http.signing import secret_of
    from tenure.notifiers.http.target import UnusableTarget, route_to

    try:
        route_to(target)
        if target.secret_env is not None:
            secret_of(target.secret_env, environ)
    except UnusableTarget as error:
        return str(error)
    return None


def checked_targets(*given: Mapping[str, str | None]) -> tuple[CallbackSpec, ...]:
    """Targets of the command line, checked by the rules of a workflow's ``callbacks``."""
    from tenure.workflow.parse import read_targets

    try:
        return read_targets(given)
    except InvalidWorkflow as error:
        first = error.mistakes[0]
        hint = f"; {first.hint}" if first.hint else ""
        place = first.path if len(given) > 1 else first.path.rpartition(".")[2]
        raise click.UsageError(f"{place}: {first.message}{hint}.") from error


@verb(
    "test",
    "tenure callbacks test https://example.com/hook --secret-env TENURE_HOOK_SHOP",
    "tenure callbacks test http://127.0.0.1:8000/ --allow-private",
)
@click.argument("url", metavar="URL")
@click.option(
    "--secret-env",
    metavar="TENURE_HOOK_…",
    help="The environment variable with the signing secret; without it nothing is signed.",
)
@click.option(
    "--allow-private",
    is_flag=True,
    help="Also to loopback, link-local and private addresses, as callback_allow_private does.",
)
@json_option
def callbacks_test(url: str, secret_env: str | None, allow_private: bool, as_json: bool) -> int:
    """Send a sample callback to a URL and say what came back.

    It is sent once, signed and guarded as a run's callbacks are. Shows the request, the answer, and
    what Tenure would do about it. Exit code 0 only if it was taken; 1 if the receiver answered
    otherwise, 6 if there was no answer, 7 if nothing may or can be sent there.
    """
    settings = settings_for(None)
    (spec,) = checked_targets({"url": url, "secret_env": secret_env})
    if secret_env is not None and not os.environ.get(secret_env):
        raise click.BadParameter(
            f"{secret_env} is not set here; set it to the target's signing secret.",
            param_hint="--secret-env",
        )
    seen = asyncio.run(
        probe(
            target_of(spec, "test"),
            settings.callback_timeout,
            allow_private or settings.callback_allow_private,
            settings.callbacks,
        )
    )
    if as_json:
        say(json_lines.as_json(_facts(seen)))
    else:
        for line in _probe_lines(seen, callback_settings(settings).policy):
            say(line)
        if secret_env is None:
            note("not signed: name a secret with --secret-env, so that receivers can check it")
    return _exit_code(seen)


def _exit_code(seen: Probe) -> Exit:
    if seen.refusal is None:
        return Exit.SUCCESS
    if seen.status is not None:
        return Exit.FAILED
    can_be_sent = problem_with(seen.delivery.target, os.environ) is None
    return Exit.STORE if seen.refusal.again and can_be_sent else Exit.REFUSED


def _outcome(seen: Probe) -> str:
    if seen.refusal is None:
        return "delivered"
    return "retried" if seen.refusal.again else "dead"


def _facts(seen: Probe) -> dict[str, object]:
    return {
        "outcome": _outcome(seen),
        "url": address_of(seen.delivery.target.url or ""),
        "headers": seen.headers,
        "payload": seen.payload,
        "status": seen.status,
        "seconds": round(seen.seconds, 4),
        "error": seen.refusal and seen.refusal.error,
        "retry_after": (seen.refusal and seen.refusal.not_before) or None,
    }


def _probe_lines(seen: Probe, policy: RetryPolicy) -> Iterator[str]:
    yield bold(f"POST {one_line(address_of(seen.delivery.target.url or ''))}")
    for name, value in seen.headers.items():
        yield f"  {dim(f'{name}:')} {one_line(value)}"
    if seen.headers:
        yield f"\n  {msgspec.json.encode(seen.payload).decode()}\n"
    elapsed = dim(f"in {seen.seconds * 1000:.0f} ms")
    if seen.status is not None:
        yield f"{seen.status} {one_line(seen.reason)}  {elapsed}"
    if seen.refusal is None:
        yield in_color("success", f"{sign('success')} taken")
        return
    yield in_color("failed", f"{sign('failed')} not taken: {one_line(seen.refusal.error)}")
    yield f"  {_what_then(seen, policy)}"


def _what_then(seen: Probe, policy: RetryPolicy) -> str:
    if seen.refusal is None or not seen.refusal.again:
        return "a callback would be a dead letter at once"
    waits = [
        policy.wait_after(failed, at_least=seen.refusal.not_before) or 0.0
        for failed in range(1, policy.attempts)
    ]
    if not waits:
        return "a callback would be a dead letter at once: callback_attempts is 1"
    return (
        f"a callback would be tried again after {took(waits[0])}, {policy.attempts} times in all "
        f"within {took(sum(waits))}, then be a dead letter"
    )


SECTIONS = {
    "Commands": {
        "list": "List callbacks, newest first.",
        "show": "Show one callback: what it says, where it goes, what went wrong.",
        "redeliver": "Send callbacks again, under the same id.",
        "test": "Send a sample callback to a URL and say what came back.",
    }
}


@click.group(
    "callbacks",
    cls=LazyGroup,
    sections=SECTIONS,
    examples=("tenure callbacks list --state dead", "tenure callbacks redeliver --dead"),
)
def command() -> None:
    """List, show, redeliver and test callbacks."""


for _each in (callbacks_list, callbacks_redeliver, callbacks_show, callbacks_test):
    command.add_command(_each)
