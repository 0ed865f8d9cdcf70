"""``tenure status``."""

from __future__ import annotations

import asyncio

from tenure.cli.context import meant_run, open_to_read, settings_for
from tenure.cli.display import json_lines, report
from tenure.cli.display.text import dim, place_of, say, to_type
from tenure.cli.options import json_option, run_argument, store_option, verb
from tenure.runtime.explain import explain_as_read
from tenure.system import SystemClock, presence


@verb("status", "tenure status latest", "tenure status 01JCQ5T4Y9K3V8M2N6P7R1S0WX --json")
@run_argument
@json_option
@store_option
def command(run_id: str, as_json: bool, store: str | None) -> None:
    """Show one run, down to the hosts that failed.

    RUN is a run id, or latest for the newest run. With --json the complete record, every host
    included.
    """
    asyncio.run(_show(run_id, as_json, store))


async def _show(word: str, as_json: bool, store_url: str | None) -> None:
    settings = settings_for(store_url)
    async with open_to_read(settings) as store:
        run = await store.get_run(await meant_run(store, word))
        now = SystemClock().now()
        standing = await explain_as_read(store, run, now=now, presence=presence)
    if as_json:
        say(json_lines.as_json(run))
        return
    say(report.headline(run, now))
    if not run.ended:
        say(f"  {dim(to_type(standing.text))}")
    say()
    for line in report.fact_lines(run, place_of(settings.store), now):
        say(line)
    say()
    lines = (
        *report.step_lines(run, now),
        *report.trouble_lines(run),
        *report.further_lines(run),
    )
    for line in lines:
        say(line)
