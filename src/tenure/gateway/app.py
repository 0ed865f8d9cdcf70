"""The gateway as an ASGI application."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from starlette.routing import Route as Path
from starlette.routing import Router
from starlette.types import ASGIApp

from tenure.gateway.admission import Admission, Door
from tenure.gateway.endpoint import Resource, nothing_here
from tenure.gateway.metrics.requests import Counted
from tenure.gateway.openapi import encoded
from tenure.gateway.parts import Limits, Parts
from tenure.gateway.rates import Rates
from tenure.gateway.receiving import Intake
from tenure.gateway.route import Route
from tenure.gateway.routes import ROUTES
from tenure.gateway.tokens import TokenBook


def new_app(
    parts: Parts,
    clock: Callable[[], float],
    limits: Limits = Limits(),
    *,
    door: Door = Door.SHUT,
    routes: Sequence[Route[Any, Any]] = ROUTES,
) -> Router:
    """``clock`` counts seconds, for what lasts; ``door`` is for those without a token."""
    parts.document = encoded(routes)
    book = TokenBook(parts.store, parts.now, clock)
    rates = Rates(limits.rate, limits.burst, clock)
    admission, intake = Admission(book, rates, door), Intake(limits)

    def counted(app: ASGIApp, route: str) -> Counted:
        return Counted(app, route, parts.meters, clock)

    by_path: dict[str, list[Route[Any, Any]]] = {}
    for route in routes:
        by_path.setdefault(route.path, []).append(route)
    paths = [
        Path(of_it[0].pattern, counted(Resource(of_it, parts, admission, intake), path))
        for path, of_it in by_path.items()
    ]
    return Router(paths, redirect_slashes=False, default=counted(nothing_here, "none"))
