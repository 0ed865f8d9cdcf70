"""Who may ask this: by token, by role, by where the request comes from, and how often."""

from __future__ import annotations

from contextlib import suppress
from enum import Enum
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from starlette.types import Scope

from tenure.gateway.problems import FORBIDDEN, FOREIGN_ORIGIN, TOO_MANY, UNAUTHORIZED, Refusal
from tenure.gateway.rates import Rates
from tenure.gateway.roles import Caller
from tenure.gateway.route import Route
from tenure.gateway.tokens import FRESH, TokenBook
from tenure.model.access import Role
from tenure.model.errors import StoreError
from tenure.runtime.waiting import pause
from tenure.workflow.wording import listed

PASSER_BY = Caller("anybody", Role.VIEWER, frozenset())
"""Who asks what needs no token."""
NAMELESS = Caller("anybody", Role.ADMIN)
"""Who needs no token for anything."""
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_CHALLENGE = {"www-authenticate": 'Bearer realm="tenure"'}


class Door(Enum):
    """Whether somebody gets in who brings no token."""

    SHUT = "shut"
    HOME = "home"
    """Whoever is on this machine, as long as there are no tokens."""
    OPEN = "open"
    """Everybody, whatever they want: somebody said so explicitly."""


class Admission:
    def __init__(self, book: TokenBook, rates: Rates, door: Door) -> None:
        self._book = book
        self._rates = rates
        self._door = door

    async def admit(self, scope: Scope, headers: dict[str, str], route: Route[Any, Any]) -> Caller:
        """``Refusal``."""
        if route.roles is None:
            return PASSER_BY
        caller = await self._caller(scope, headers)
        self._check_rate(caller.token_id)
        if caller.role not in route.roles:
            allowed = listed(sorted(route.roles))
            said = f"{caller.name!r} is a {caller.role} token; this takes {allowed}"
            raise Refusal(FORBIDDEN, said)
        return caller

    async def dismissal(self, scope: Scope, headers: dict[str, str]) -> None:
        """For answers that take long: ``Refusal`` as soon as who was let in would not be again.
        While the store cannot say so, it has no news to tell either."""
        while True:
            await pause(FRESH)
            with suppress(StoreError):
                await self._check_still_known(scope, headers)

    async def _check_still_known(self, scope: Scope, headers: dict[str, str]) -> None:
        given = headers.get("authorization")
        if given is None:
            await self._caller(scope, headers)
        elif await self._book.bearer(_bearers_text(given)) is None:
            raise _not_known()

    async def _caller(self, scope: Scope, headers: dict[str, str]) -> Caller:
        given = headers.get("authorization")
        if given is not None:
            return await self._bearer(given, f"from {_client(scope)}")
        if await self._needs_token():
            raise Refusal(UNAUTHORIZED, "send a token: Authorization: Bearer tenure_…", _CHALLENGE)
        self._check_origin(scope["method"], headers)
        return NAMELESS

    async def _bearer(self, given: str, place: str) -> Caller:
        """Whoever guesses pays for looking again, and nobody else does."""
        text = _bearers_text(given)
        caller = await self._book.bearer(text)
        if caller is None:
            self._check_rate(place)
            caller = await self._book.bearer(text, anew=True)
        if caller is None:
            raise _not_known()
        return caller

    async def _needs_token(self) -> bool:
        if self._door is Door.HOME:
            return await self._book.has_any()
        return self._door is Door.SHUT

    def _check_origin(self, method: str, headers: dict[str, str]) -> None:
        """Without tokens a browser on this machine would do whatever any page asks of it: also one
        whose name was made to lead here."""
        host = _name_of(f"//{headers.get('host', '')}")
        if self._door is Door.HOME and not is_loopback(host):
            said = f"without tokens this serves localhost, not {host[:100]!r}"
            raise Refusal(FOREIGN_ORIGIN, said)
        origin = headers.get("origin")
        if origin is None or method in _SAFE:
            return
        if _place_of(origin) != headers.get("host", "").lower():
            said = f"a page of {origin[:100]!r} may change nothing here without a token"
            raise Refusal(FOREIGN_ORIGIN, said)

    def _check_rate(self, key: str) -> None:
        wait = self._rates.wait(key)
        if wait:
            said = f"ask again in {wait:.1f} seconds"
            raise Refusal(TOO_MANY, said, {"retry-after": str(int(wait) + 1)})


def _bearers_text(given: str) -> str:
    """``Refusal``."""
    scheme, _, text = given.partition(" ")
    if scheme.lower() != "bearer":
        raise Refusal(UNAUTHORIZED, "only Bearer tokens are known here", _CHALLENGE)
    return text.strip()


def _not_known() -> Refusal:
    return Refusal(
        UNAUTHORIZED,
        "this token is unknown, expired or revoked; `tenure token create` makes another",
        {"www-authenticate": 'Bearer realm="tenure", error="invalid_token"'},
    )


def is_loopback(host: str) -> bool:
    """An address that leads nowhere else, or the name that every machine has for itself."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _client(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else "nowhere"


def _name_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _place_of(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""
