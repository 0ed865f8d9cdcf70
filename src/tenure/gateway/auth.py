"""Admission of requests: tokens, roles, origin, rates, and which runs a caller may see."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from datetime import datetime
from ipaddress import ip_address
from math import inf
from typing import Any
from urllib.parse import urlsplit

from starlette.types import Scope

from tenure.aio import pause
from tenure.gateway.calls import Call, Caller, GatewayState, Route
from tenure.gateway.problems import FORBIDDEN, FOREIGN_ORIGIN, TOO_MANY, UNAUTHORIZED, Refusal
from tenure.model.errors import LeaseLost, RunNotFound, StoreError, TenureError
from tenure.model.ids import check_run_id
from tenure.model.leases import LeaseToken
from tenure.model.snapshot import RunSnapshot, RunSummary
from tenure.model.tokens import Role, Token, bearer_of
from tenure.model.update import Fencing
from tenure.ports.store import RunStateStore, TokenStore
from tenure.workflow.wording import listed

TOKENS_TTL_S = 1.0
"""Seconds for which the token list is cached, so also until a revoked token is refused."""


class TokenBook:
    """The store's tokens, cached for a second. While the store does not answer, requests fail: a
    token from an old list could have been revoked."""

    def __init__(
        self, store: RunStateStore, now: Callable[[], datetime], clock: Callable[[], float]
    ) -> None:
        self._store = store if isinstance(store, TokenStore) else None
        self._now = now
        self._clock = clock
        self._tokens: dict[str, Token] = {}
        self._read_at = -inf
        self._reading = asyncio.Lock()

    async def bearer(self, text: str, *, anew: bool = False) -> Caller | None:
        """``anew``: bypass the cache, for a token that may have just been created."""
        token = bearer_of(text, await self._known(0.0 if anew else TOKENS_TTL_S))
        if token is None or not token.is_valid(self._now()):
            return None
        queues = None if token.queues is None else frozenset(token.queues)
        return Caller(token.name, token.role, queues, token.id)

    async def _known(self, fresh: float = TOKENS_TTL_S) -> dict[str, Token]:
        """Tokens at most ``fresh`` seconds old. Concurrent callers share one read."""
        since = self._clock() - fresh
        if self._store is None or self._read_at >= since:
            return self._tokens
        async with self._reading:
            if self._read_at < since:
                asked_at = self._clock()
                found = await self._store.list_tokens()
                self._tokens = {token.id: token for token in found}
                self._read_at = asked_at
        return self._tokens


_MAX_BUCKETS = 10_000
"""Buckets kept; the one unused for longest is dropped, and it is full by then."""


class Rates:
    """Token buckets: ``rate`` requests a second on average, ``burst`` at once; zero: no limit."""

    def __init__(self, rate: float, burst: float, clock: Callable[[], float]) -> None:
        self._rate = rate
        self._burst = max(burst, 1.0)
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, key: str) -> float:
        """Zero if the request is admitted (and counted), else seconds until it would be."""
        if not self._rate:
            return 0.0
        now = self._clock()
        left, at = self._buckets.get(key, (self._burst, now))
        left = min(self._burst, left + (now - at) * self._rate)
        if left < 1:
            return (1 - left) / self._rate
        self._buckets[key] = (left - 1, now)
        self._buckets.move_to_end(key)
        if len(self._buckets) > _MAX_BUCKETS:
            self._buckets.popitem(last=False)
        return 0.0


PUBLIC = Caller("anybody", Role.VIEWER, frozenset())
"""Caller of a route that needs no token."""
UNAUTHENTICATED = Caller("anybody", Role.ADMIN)
"""Caller of a gateway that needs no token."""
_CHALLENGE = {"www-authenticate": 'Bearer realm="tenure"'}
_FORWARDED = ("forwarded", "via", "x-real-ip")
"""Besides all that begins with ``x-forwarded-``: a proxy says that it passes on a request."""


class Admission:
    """``no_token``: a request of this machine needs none."""

    def __init__(self, book: TokenBook, rates: Rates, *, no_token: bool) -> None:
        self._book = book
        self._rates = rates
        self._no_token = no_token

    async def admit(self, scope: Scope, headers: dict[str, str], route: Route[Any, Any]) -> Caller:
        """The caller, if it may use this route. ``Refusal``."""
        if route.roles is None:
            return PUBLIC
        caller = await self._caller(scope, headers)
        self._check_rate(caller.token_id)
        if caller.role not in route.roles:
            allowed = listed(sorted(route.roles))
            said = f"{caller.name!r} is a {caller.role} token; this takes {allowed}"
            raise Refusal(FORBIDDEN, said)
        return caller

    async def dismissal(self, scope: Scope, headers: dict[str, str]) -> None:
        """Runs beside a streamed answer: ``Refusal`` as soon as its caller would not be admitted
        again. Errors of the store are ignored meanwhile."""
        while True:
            await pause(TOKENS_TTL_S)
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
        if not self._no_token:
            raise Refusal(UNAUTHORIZED, "send a token: Authorization: Bearer tenure_…", _CHALLENGE)
        _check_local(headers)
        return UNAUTHENTICATED

    async def _bearer(self, given: str, place: str) -> Caller:
        """An unknown token bypasses the cache, at the expense of its sender's rate limit."""
        text = _bearers_text(given)
        caller = await self._book.bearer(text)
        if caller is None:
            self._check_rate(place)
            caller = await self._book.bearer(text, anew=True)
        if caller is None:
            raise _not_known()
        return caller

    def _check_rate(self, key: str) -> None:
        wait = self._rates.wait(key)
        if wait:
            said = f"ask again in {wait:.1f} seconds"
            raise Refusal(TOO_MANY, said, {"retry-after": str(int(wait) + 1)})


def _check_local(headers: dict[str, str]) -> None:
    """Without tokens a browser on this machine would do whatever any page asks of it, also one
    whose name was made to lead here; and a proxy on this machine whatever anyone asks."""
    host = _name_of(f"//{headers.get('host', '')}")
    if not is_loopback(host):
        raise Refusal(FOREIGN_ORIGIN, f"without tokens this serves localhost, not {host[:100]!r}")
    origin = headers.get("origin")
    if origin is not None and _place_of(origin) != headers.get("host", "").lower():
        said = f"a page of {origin[:100]!r} may ask nothing here without a token"
        raise Refusal(FOREIGN_ORIGIN, said)
    for name in headers:
        if name in _FORWARDED or name.startswith("x-forwarded-"):
            said = f"without tokens nothing is taken from a proxy ({name[:60]})"
            raise Refusal(FOREIGN_ORIGIN, said)


def _bearers_text(given: str) -> str:
    """The token of an ``Authorization`` header. ``Refusal``."""
    scheme, _, text = given.partition(" ")
    if scheme.lower() != "bearer":
        raise Refusal(UNAUTHORIZED, "only Bearer tokens are accepted", _CHALLENGE)
    return text.strip()


def _not_known() -> Refusal:
    return Refusal(
        UNAUTHORIZED,
        "this token is unknown, expired or revoked; `tenure token create` makes another",
        {"www-authenticate": 'Bearer realm="tenure", error="invalid_token"'},
    )


def is_loopback(host: str) -> bool:
    """Whether ``host`` is a loopback address or localhost."""
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


def run_id_of(call: Call[Any, Any]) -> str:
    """The id in the path. ``InvalidRunId``."""
    return check_run_id(call.path["run_id"])


async def run_of(call: Call[Any, Any]) -> RunSnapshot:
    """The run in the path, if the caller may see it. ``InvalidRunId``, ``RunNotFound``."""
    return await reached(call.parts, call.caller, run_id_of(call))


async def reached(parts: GatewayState, caller: Caller, run_id: str) -> RunSnapshot:
    """Runs in other queues are reported as not found."""
    run = await parts.store.get_run(run_id)
    if not caller.may_touch(run.queue):
        raise RunNotFound(run_id)
    return run


async def check_reaches(call: Call[Any, Any]) -> str:
    """The run's id; the run is read only for callers limited to some queues."""
    run_id = run_id_of(call)
    if call.caller.queues is not None:
        await reached(call.parts, call.caller, run_id)
    return run_id


# Whose leases are whose. A token's own are those that were claimed with it, here or at another
# gateway of the store, whatever owner they name: owner and fence are for everybody to see. Admins
# may use all.


async def check_holds(call: Call[Any, Any], fencing: Fencing) -> str:
    """The run's id. ``RunNotFound``, ``LeaseLost``."""
    run_id = run_id_of(call)
    refused = await not_held(call, {run_id: fencing})
    if refused:
        raise refused[run_id]
    return run_id


async def not_held(call: Call[Any, Any], leases: Mapping[str, Fencing]) -> dict[str, TenureError]:
    """Those of these runs that the caller may not write of, and why. A later lease of the same
    token will do: the store refuses what is under an older fence."""
    parts, caller = call.parts, call.caller
    if caller.role is Role.ADMIN:
        foreign = list(leases) if caller.queues is not None else []
        lost = False
    else:
        bound, lost = await _tokens_of(parts.store, leases), True
        foreign = [
            run_id
            for run_id, fencing in leases.items()
            if run_id not in bound
            or bound[run_id].token_id != caller.token_id
            or bound[run_id].fence < fencing.fence
        ]
    refused: dict[str, TenureError] = {}
    for run_id in foreign:
        try:
            run = await reached(parts, caller, run_id)
        except RunNotFound as error:
            refused[run_id] = error
        else:
            if lost:
                refused[run_id] = LeaseLost(run_id, fence=run.fence, owner_id=run.owner_id)
    return refused


async def _tokens_of(store: RunStateStore, run_ids: Collection[str]) -> dict[str, LeaseToken]:
    return await store.lease_tokens(run_ids) if isinstance(store, TokenStore) else {}


def lease_token_of(caller: Caller) -> str | None:
    """With which leases are claimed: those of admins are as good as made at the store itself."""
    return None if caller.role is Role.ADMIN else caller.token_id


def check_queue(caller: Caller, queue: str) -> None:
    """``Refusal`` if the token may not touch this queue."""
    if not caller.may_touch(queue):
        raise Refusal(FORBIDDEN, f"queue {queue[:60]!r} is not one of this token's")


def check_unlimited(caller: Caller, what: str) -> None:
    if caller.queues is not None:
        raise Refusal(FORBIDDEN, f"{what}; this token is limited to {_own(caller)}")


def queue_for(caller: Caller, asked: str | None) -> str | None:
    """The queue to search; ``None``: all of them, filtered by ``own``."""
    if caller.queues is None:
        return asked
    if asked is None:
        return next(iter(caller.queues)) if len(caller.queues) == 1 else None
    if asked not in caller.queues:
        raise Refusal(FORBIDDEN, f"queue {asked[:60]!r}: this token is limited to {_own(caller)}")
    return asked


def own(caller: Caller, runs: tuple[RunSummary, ...]) -> tuple[RunSummary, ...]:
    """Runs the caller may see: a page may be shorter than requested and still have a next one."""
    if caller.queues is None:
        return runs
    return tuple(run for run in runs if run.queue in caller.queues)


def _own(caller: Caller) -> str:
    return listed(sorted(caller.queues or ()), 10) or "no queue"
