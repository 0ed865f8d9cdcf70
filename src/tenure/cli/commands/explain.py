"""``tenure explain``."""

from __future__ import annotations

import asyncio

from tenure.cli.context import meant_run, open_to_read, settings_for
from tenure.cli.display import json_lines
from tenure.cli.display.text import neutral, say, to_type
from tenure.cli.options import json_option, run_argument, store_option, verb
from tenure.runtime.explain import Explanation, explain_run
from tenure.system import SystemClock, presence


@verb("explain", "tenure explain latest")
@run_argument
@json_option
@store_option
def command(run_id: str, as_json: bool, store: str | None) -> None:
    """Say in one line why a run is not moving."""
    answer = asyncio.run(_explain(run_id, store))
    say(json_lines.as_json(answer) if as_json else to_type(neutral(answer.text)))


async def _explain(word: str, store_url: str | None) -> Explanation:
    async with open_to_read(settings_for(store_url)) as store:
        run_id = await meant_run(store, word)
        now = SystemClock().now()
        return await explain_run(store, run_id, now=now, presence=presence)
