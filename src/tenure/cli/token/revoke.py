"""``tenure token revoke``."""

from __future__ import annotations

import asyncio

import click

from tenure.cli.display import json_lines
from tenure.cli.display.paint import note, say
from tenure.cli.opening import settings_for, tending
from tenure.cli.token.keeping import NoSuchToken, ShownToken, shown, tokens_of
from tenure.cli.verb import json_option, store_option, verb
from tenure.config import Settings
from tenure.model.access import PREFIX
from tenure.system import SystemClock


@verb("revoke", "tenure token revoke ci", "tenure token revoke 3f9a0c77b2de")
@click.argument("word", metavar="ID|NAME")
@json_option
@store_option
def command(word: str, as_json: bool, store: str | None) -> None:
    """Revoke a token: every gateway refuses it from now on.

    By its id, or by its name if one valid token has it. What was asked before goes on; gateways
    know of it within a second, without being started again.
    """
    if word.startswith(PREFIX):  # somebody pasted the token itself
        word = word.removeprefix(PREFIX).partition("_")[0]
    revoked = asyncio.run(_revoke(settings_for(store), word))
    if as_json:
        say(json_lines.as_json(revoked))
    else:
        note(f"{revoked.name} ({revoked.id}) is revoked")


async def _revoke(settings: Settings, word: str) -> ShownToken:
    now = SystemClock().now()
    async with tending(settings) as store:
        tokens = tokens_of(store)
        known = await tokens.list_tokens()
        meant = [token for token in known if token.id == word] or [
            token for token in known if token.name == word and token.revoked_at is None
        ]
        if len(meant) > 1:
            ids = ", ".join(token.id for token in meant)
            raise click.UsageError(f"Several tokens are called {word[:60]!r}. Name one: {ids}.")
        revoked = await tokens.revoke_token(meant[0].id) if meant else None
        if revoked is None:
            raise NoSuchToken(f"no token has the id or name {word[:60]!r}")
        return shown(revoked, now)
