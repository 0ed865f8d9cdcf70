"""``tenure doctor``."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping

from tenure.cli.display import json_lines
from tenure.cli.display.paint import bold, dim, in_color, say, sign
from tenure.cli.display.text import counted, one_line
from tenure.cli.examining import (
    BrokerFact,
    Examination,
    StoreFact,
    examine_broker,
    examine_callbacks,
    examine_machine,
    examine_settings,
    examine_store,
)
from tenure.cli.exits import Exit
from tenure.cli.opening import settings_for
from tenure.cli.verb import broker_option, json_option, store_option, verb
from tenure.config import InvalidSettings
from tenure.runtime.owners import owner_label
from tenure.workflow.wording import listed

_LEAST_OFFSET = 0.005
"""Seconds; less is lost in how unevenly questions and answers travel."""


_LOOKS = {True: "success", False: "failed", None: "unknown"}


@verb("doctor", "tenure doctor", "tenure doctor --store sqlite:///runs.db --json")
@json_option
@store_option
@broker_option
def command(as_json: bool, store: str | None, broker: str | None) -> int:
    """Check settings, store, broker and machine; explain what is wrong.

    Shows every setting with where it comes from, whether the lease settings fit together and why
    they must, how fast store and broker answer, whether a hint comes through the broker, and how
    far the store's clock is from this machine's. Exit code 1 if there is something to do.
    """
    found = Examination()
    examine_machine(found, os.environ)
    unread: Mapping[str, str] = {}
    try:
        settings = settings_for(store, broker)
    except InvalidSettings as error:  # then there is most to look at
        settings, unread = error.settings, error.unread
        found.findings += error.problems
    examine_settings(found, settings, unread)
    examine_callbacks(found, settings, os.environ)
    if settings.store:
        asyncio.run(examine_store(found, settings))
    asyncio.run(examine_broker(found, settings))
    say(json_lines.as_json(found) if as_json else "\n".join(_lines(found)))
    return Exit.FAILED if found.findings else Exit.SUCCESS


def _lines(found: Examination) -> Iterator[str]:
    yield bold("Versions")
    yield from _facts(found.versions)
    if found.settings:
        yield f"\n{bold('Settings')}"
        for fact in found.settings:
            value = one_line(fact.value).ljust(10)
            yield f"  {dim(fact.name.ljust(24))}{value}  {dim(one_line(fact.source))}"
        yield f"\n{bold('Leases')}"
        for rule in found.rules:
            look = _LOOKS[rule.holds]
            yield f"  {in_color(look, sign(look))} {rule.rule}"
            yield f"    {dim(rule.why)}"
            if rule.broken_by is not None:
                yield f"    {one_line(rule.broken_by.partition(': ')[2])}"
    if found.callbacks:
        yield f"\n{bold('Callbacks')}"
        for target in found.callbacks:
            signed = f"signed with {target.secret_env}" if target.secret_env else "not signed"
            about = f"{', '.join(target.events)}; {signed}"
            yield f"  {one_line(target.url or '')}  {dim(about)}"
    if found.store is not None:
        yield f"\n{bold('Store')}"
        yield from _facts(_store(found.store))
        for worker in found.store.workers:
            name = one_line(owner_label(worker.owner_id))
            busy = f"{worker.running} of {worker.concurrency} runs"
            if worker.draining:
                busy += ", stopping"
            serves = dim(f"{listed(worker.queues)}; {busy}")
            yield f"  {dim('worker'.ljust(12))}{name}  {serves}"
    if found.broker is not None:
        yield f"\n{bold('Broker')}"
        yield from _facts(_broker(found.broker))
    yield f"\n{bold('Machine')}"
    yield from _facts(found.machine)
    yield ""
    if found.findings:
        yield in_color("failed", f"{sign('failed')} {counted(len(found.findings), 'finding')}")
        for finding in found.findings:
            yield f"  {one_line(finding)}"
    else:
        yield in_color("success", f"{sign('success')} nothing to complain about")


def _store(store: StoreFact) -> dict[str, object]:
    if not store.exists:
        return {"place": store.place, "state": "not there yet; the first run creates it"}
    return {
        "place": store.place,
        "kind": store.kind,
        "survives": "yes" if store.durable else "no",
        "leases": "yes" if store.leases else "no: embedded runs only",
        "outbox": _outbox(store),
        "answers in": f"{store.latency_ms:g} ms",
        "clock": None if store.clock_offset is None else _clock(store.clock_offset),
        "schema": store.schema,
        "runs": store.runs,
    }


def _clock(offset: float) -> str:
    if abs(offset) < _LEAST_OFFSET:
        return "the same as here"
    return f"{abs(offset):.2f} s {'ahead of' if offset > 0 else 'behind'} this machine's"


def _outbox(store: StoreFact) -> str:
    if store.attended_by is not None:
        return f"callbacks are sent by {store.attended_by}"
    return "yes" if store.outbox else "no: callbacks are sent from memory"


def _broker(broker: BrokerFact) -> dict[str, object]:
    away = broker.latency_ms is None
    return {
        "place": broker.place,
        "answers in": "not at all" if away else f"{broker.latency_ms:g} ms",
    }


def _facts(facts: Mapping[str, object]) -> Iterator[str]:
    for name, value in facts.items():
        if value is not None:
            yield f"  {dim(name.ljust(12))}{one_line(str(value))}"
