"""Requests, counted and told to the log by their route: never by what was asked for in detail, so
that there are few numbers, and nothing of a query or a header in any log."""

from __future__ import annotations

import logging
from collections.abc import Callable

from prometheus_client import Counter
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tenure.gateway.endpoint import CALLER, MADE
from tenure.gateway.live.frames import MEDIA_TYPE
from tenure.gateway.metrics.meters import Meters
from tenure.runtime.about import about

_log = logging.getLogger("tenure.gateway.requests")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_STREAM = MEDIA_TYPE.encode()


class Counted:
    """An application, and what became of each request to it. ``clock`` counts seconds."""

    def __init__(
        self, app: ASGIApp, route: str, meters: Meters, clock: Callable[[], float]
    ) -> None:
        self._app = app
        self._route = route
        self._meters = meters
        self._clock = clock
        self._answered: dict[tuple[str, int], Counter] = {}
        self._seconds = meters.request_seconds.labels(route)
        self._streams = meters.streams.labels(route)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = self._clock()
        status, streams = 0, False

        async def noted(message: Message) -> None:
            nonlocal status, streams
            if message["type"] == "http.response.start":
                status = message["status"]
                streams = _is_stream(message)
                if streams:
                    self._streams.inc()
            await send(message)

        try:
            with about(scope.get("path_params", {}).get("run_id")):
                await self._app(scope, receive, noted)
        finally:
            if streams:
                self._streams.dec()
            self._note(scope, status, self._clock() - began, streams=streams)

    def _note(self, scope: Scope, status: int, seconds: float, *, streams: bool) -> None:
        method = scope["method"] if scope["method"] in _METHODS else "other"
        answered = self._answered.get((method, status))
        if answered is None:
            answered = self._meters.requests.labels(method, self._route, status or "none")
            self._answered[method, status] = answered
        answered.inc()
        if not streams:
            self._seconds.observe(seconds)
        if _log.isEnabledFor(logging.INFO):
            facts = {
                "method": method,
                "route": self._route,
                "status": status,
                "seconds": round(seconds, 6),
                "caller": scope.get(CALLER),
                "run_id": scope.get("path_params", {}).get("run_id") or scope.get(MADE),
            }
            _log.info("%s %s: %d", method, self._route, status, extra={"facts": facts})


def _is_stream(start: Message) -> bool:
    """Whoever sends a stream says so in the first header."""
    headers = start["headers"]
    return bool(headers) and headers[0][1].startswith(_STREAM)
