"""``tenure token``: tokens for the gateway."""

from __future__ import annotations

import asyncio
import re
import secrets
from datetime import datetime

import click
from msgspec import Struct
from msgspec.structs import asdict

from tenure.cli.arguments import Moment, moment_after
from tenure.cli.context import NoRunsYet, must_be_able, open_for_upkeep, open_to_read, settings_for
from tenure.cli.display import json_lines
from tenure.cli.display.text import ago, dim, fitted, local, note, one_line, say
from tenure.cli.group import LazyGroup
from tenure.cli.options import json_option, store_option, verb
from tenure.config import Settings
from tenure.model.errors import NotSupported, TenureError
from tenure.model.tokens import PREFIX, Role, Token, digest_of, written
from tenure.ports.store import RunStateStore, TokenStore
from tenure.system import SystemClock
from tenure.workflow.wording import listed


class NoSuchToken(TenureError, LookupError):
    """No token has this id or name."""


class ShownToken(Struct, frozen=True, kw_only=True):
    id: str
    name: str
    role: Role
    queues: tuple[str, ...] | None
    state: str
    """``valid``, ``expired`` or ``revoked``."""
    created_at: datetime | None
    expires_at: datetime | None
    revoked_at: datetime | None


class NewToken(ShownToken, frozen=True, kw_only=True):
    token: str
    """Shown only once."""


def tokens_of(store: RunStateStore) -> TokenStore:
    if isinstance(store, TokenStore):
        return store
    raise keeps_no_tokens(type(store).__name__)


def keeps_no_tokens(kind: str) -> NotSupported:
    return NotSupported(f"{kind} keeps no tokens: its gateway wants --no-token")


def state_of(token: Token, now: datetime) -> str:
    if token.revoked_at is not None:
        return "revoked"
    return "valid" if token.is_valid(now) else "expired"


def shown(token: Token, now: datetime) -> ShownToken:
    return ShownToken(
        id=token.id,
        name=token.name,
        role=token.role,
        queues=token.queues,
        state=state_of(token, now),
        created_at=token.created_at,
        expires_at=token.expires_at,
        revoked_at=token.revoked_at,
    )


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
def token_create(
    name: str,
    role: str,
    queues: tuple[str, ...],
    expires: float | datetime,
    as_json: bool,
    store: str | None,
) -> None:
    """Create a token, and show it once.

    Journals call its bearer NAME. Only a digest is stored: a lost token is revoked and replaced.
    Gateways accept it at once.
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
        raise click.BadParameter("is in the past.", param_hint="--expires")
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
    async with open_for_upkeep(settings, create=True) as store:
        return await tokens_of(store).add_token(token)


_TITLES = ("ID", "NAME", "ROLE", "QUEUES", "STATE", "CREATED", "EXPIRES")


@verb("list", "tenure token list", "tenure token list --json")
@json_option
@store_option
def token_list(as_json: bool, store: str | None) -> None:
    """List tokens, oldest first."""
    found = asyncio.run(_tokens(settings_for(store)))
    if as_json:
        say(json_lines.as_json({"tokens": found}))
    elif not found:
        note("there are no tokens yet: the first gateway makes one, or tenure token create")
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
        async with open_to_read(settings) as store:
            return [shown(token, now) for token in await tokens_of(store).list_tokens()]
    except NoRunsYet:
        return []


@verb("revoke", "tenure token revoke ci", "tenure token revoke 3f9a0c77b2de")
@click.argument("word", metavar="ID|NAME")
@json_option
@store_option
def token_revoke(word: str, as_json: bool, store: str | None) -> None:
    """Revoke a token: every gateway refuses it from now on.

    By its id, or by its name if one valid token has it. Requests in progress end normally; gateways
    know of it within a second, without a restart.
    """
    if word.startswith(PREFIX):  # the token itself was pasted
        word = word.removeprefix(PREFIX).partition("_")[0]
    revoked = asyncio.run(_revoke(settings_for(store), word))
    if as_json:
        say(json_lines.as_json(revoked))
    else:
        note(f"{revoked.name} ({revoked.id}) is revoked")


async def _revoke(settings: Settings, word: str) -> ShownToken:
    now = SystemClock().now()
    async with open_for_upkeep(settings) as store:
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


SECTIONS = {
    "Commands": {
        "create": "Create a token, and show it once.",
        "list": "List tokens, oldest first.",
        "revoke": "Revoke a token: every gateway refuses it from now on.",
    }
}


@click.group(
    "token",
    cls=LazyGroup,
    sections=SECTIONS,
    examples=("tenure token create ci --role operator", "tenure token list"),
)
def command() -> None:
    """Create, list and revoke tokens for the gateway."""


for _each in (token_create, token_list, token_revoke):
    command.add_command(_each)
