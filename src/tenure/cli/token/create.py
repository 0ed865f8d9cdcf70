"""``tenure token create``."""

from __future__ import annotations

import asyncio
import re
import secrets
from datetime import datetime

import click
from msgspec.structs import asdict

from tenure.cli.arguments import Moment, moment_after
from tenure.cli.display import json_lines
from tenure.cli.display.moments import local
from tenure.cli.display.paint import note, say
from tenure.cli.opening import must_be_able, settings_for, tending
from tenure.cli.token.keeping import NewToken, keeps_no_tokens, shown, tokens_of
from tenure.cli.verb import json_option, store_option, verb
from tenure.config import Settings
from tenure.model.access import Role, Token, digest_of, written
from tenure.ports.tokens import TokenStore
from tenure.system import SystemClock
from tenure.workflow.wording import listed

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@:-]{0,99}", re.ASCII)


@verb(
    "create",
    "tenure token create ci --role operator --queue deploy",
    "tenure token create dashboard --role viewer --expires 90d",
)
@click.argument("name", metavar="NAME")
@click.option(
    "--role",
    type=click.Choice([str(role) for role in Role]),
    required=True,
    help="viewer reads; operator also submits and steers; worker executes; admin may do all.",
)
@click.option(
    "--queue",
    "queues",
    metavar="NAME",
    multiple=True,
    help="Only runs of this queue; may be given several times.  [default: all]",
)
@click.option(
    "--expires",
    type=Moment(),
    metavar="WHEN",
    default="365d",
    show_default=True,
    help="90d from now, or 2027-05-01T12:00Z.",
)
@json_option
@store_option
def command(
    name: str,
    role: str,
    queues: tuple[str, ...],
    expires: float | datetime,
    as_json: bool,
    store: str | None,
) -> None:
    """Create a token, and show it once.

    The journal shows its holder as NAME. Only a digest is kept: a token that was lost is revoked,
    and another one created. Its gateways know it at once. From the first token on a gateway
    asks for one, also on its own machine.
    """
    if not _NAME.fullmatch(name):
        raise click.BadParameter(
            "has up to 100 letters, digits and . _ @ : -, a letter or digit first.",
            param_hint="NAME",
        )
    now = SystemClock().now()
    until = moment_after(expires, now) or now
    secret = secrets.token_urlsafe(32).replace("_", "-")
    token = Token(
        id=secrets.token_hex(6),
        name=name,
        role=Role(role),
        digest=digest_of(secret),
        queues=tuple(dict.fromkeys(queues)) or None,
        expires_at=until,
    )
    if not token.is_valid(now):
        raise click.BadParameter("is over already.", param_hint="--expires")
    kept = asyncio.run(_add(settings_for(store), token))
    text = written(token.id, secret)
    if as_json:
        say(json_lines.as_json(NewToken(**asdict(shown(kept, now)), token=text)))
        return
    say(text)
    of = f" of {listed(token.queues, 5)}" if token.queues else ""
    note(f"{name}: {role}{of}, until {local(until)}; it is not shown again")


async def _add(settings: Settings, token: Token) -> Token:
    must_be_able(settings, TokenStore, keeps_no_tokens)
    async with tending(settings, create=True) as store:
        return await tokens_of(store).add_token(token)
