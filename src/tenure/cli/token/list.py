"""``tenure token list``."""

from __future__ import annotations

import asyncio

from tenure.cli.display import json_lines
from tenure.cli.display.moments import ago, local
from tenure.cli.display.paint import dim, note, say
from tenure.cli.display.text import fitted, one_line
from tenure.cli.opening import NoRunsYet, reading, settings_for
from tenure.cli.token.keeping import ShownToken, shown, tokens_of
from tenure.cli.verb import json_option, store_option, verb
from tenure.config import Settings
from tenure.system import SystemClock

_TITLES = ("ID", "NAME", "ROLE", "QUEUES", "STATE", "CREATED", "EXPIRES")


@verb("list", "tenure token list", "tenure token list --json")
@json_option
@store_option
def command(as_json: bool, store: str | None) -> None:
    """List tokens, oldest first."""
    found = asyncio.run(_tokens(settings_for(store)))
    if as_json:
        say(json_lines.as_json({"tokens": found}))
    elif not found:
        note("there are no tokens: a gateway serves its own machine only; tenure token create")
    else:
        now = SystemClock().now()
        rows = [
            (
                token.id,
                one_line(token.name),
                str(token.role),
                one_line(", ".join(token.queues)) if token.queues else "all",
                token.state,
                ago(token.created_at, now),
                local(token.expires_at) if token.expires_at else "never",
            )
            for token in found
        ]
        widths = [max(map(len, column)) for column in zip(_TITLES, *rows, strict=True)]
        say(dim("  ".join(fitted(_TITLES, widths)).rstrip()))
        for row in rows:
            say("  ".join(fitted(row, widths)).rstrip())


async def _tokens(settings: Settings) -> list[ShownToken]:
    now = SystemClock().now()
    try:
        async with reading(settings) as store:
            return [shown(token, now) for token in await tokens_of(store).list_tokens()]
    except NoRunsYet:
        return []
