"""Every route of the table, tried by everybody: the table is what the server does."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from tenure.gateway.calls import Route
from tenure.gateway.openapi import document, encoded, problems_of
from tenure.gateway.routes import ROUTES
from tenure.model.tokens import Role
from tests.gateway.house import Client, House

GUARDED = [route for route in ROUTES if route.roles is not None]
PUBLIC = [route for route in ROUTES if route.roles is None]


def named(route: Route[Any, Any]) -> str:
    return f"{route.method} {route.path}"


def tried(client: Client, route: Route[Any, Any]) -> Any:
    names = {"run_id": "no-such-run", "step_index": 0, "host": "web1"}
    path = route.path.format(**names, delivery_id="none", owner_id="none")
    return client(route.method, path, {} if route.body is not None else None)


def test_no_route_opens_without_a_good_token(house: House, bad_tokens: dict[str, str]) -> None:
    for token in (None, *bad_tokens.values()):
        with closing(house.client(token)) as client:
            for route in GUARDED:
                answer = tried(client, route)
                assert (answer.status, answer.problem) == (401, "unauthorized"), (
                    named(route),
                    token,
                )
                assert answer.headers["www-authenticate"].startswith("Bearer"), (
                    named(route),
                    token,
                )


@pytest.mark.parametrize("role", Role)
def test_routes_open_for_their_roles_and_no_other(
    house: House, tokens: dict[str, str], role: Role
) -> None:
    with closing(house.client(tokens[role])) as client:
        for route in GUARDED:
            answer = tried(client, route)
            if route.roles is not None and role not in route.roles:
                assert (answer.status, answer.problem) == (403, "forbidden"), named(route)
            else:
                declared = {*route.answers, *problems_of(route)} - {401, 403}
                assert answer.status in declared, (named(route), answer)


def test_what_needs_no_token_needs_none(house: House) -> None:
    with closing(house.client()) as client:
        for route in PUBLIC:
            assert tried(client, route).status == 200, named(route)


def test_there_is_no_route_beside_the_table(admin: Client) -> None:
    for path in ("/", "/v1", "/v2/runs", "/metrics.txt", "/v1/runs/run-000001/unknown"):
        answer = admin.get(path)
        assert (answer.status, answer.problem) == (404, "not-found")


def test_other_methods_are_refused_with_those_there_are(admin: Client) -> None:
    for path in sorted({route.path for route in ROUTES}):
        there = {route.method for route in ROUTES if route.path == path}
        there |= {"HEAD"} if "GET" in there else set()
        for method in {"GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"} - there:
            answer = admin(method, path)
            assert (answer.status, answer.problem) == (405, "method-not-allowed"), (method, path)
            assert set(answer.headers["allow"].split(", ")) == there, (method, path)


def test_no_two_routes_are_the_same() -> None:
    places = [(route.method, route.path) for route in ROUTES]
    names = [route.handler.__name__ for route in ROUTES]
    assert len(set(places)) == len(places)
    assert len(set(names)) == len(names), "each is an operationId"


def test_the_document_has_every_route_and_everything_it_names() -> None:
    made = document(ROUTES)
    shown = {(m.upper(), path) for path, methods in made["paths"].items() for m in methods}
    assert shown == {(route.method, route.path) for route in ROUTES}
    text = str(made)
    for name in made["components"]["schemas"]:
        assert f"'#/components/schemas/{name}'" in text, f"{name} is used nowhere"
    used = {part.split("'")[0] for part in text.split("#/components/schemas/")[1:]}
    assert used == set(made["components"]["schemas"])


def test_the_served_document_is_that_of_the_table(admin: Client) -> None:
    assert admin.get("/openapi.json").body == encoded(ROUTES)


def test_the_page_for_people_loads_nothing_from_elsewhere(admin: Client) -> None:
    page = admin.get("/docs")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in page.headers["content-security-policy"]
    text = page.body.decode()
    assert "/v1/runs/{run_id}/cancel" in text
    assert "<script" not in text
    assert "http://" not in text
    assert "https://" not in text


def test_every_answer_keeps_browsers_safe(admin: Client) -> None:
    for path in ("/healthz", "/v1/runs", "/nowhere", "/docs"):
        headers = admin.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "access-control-allow-origin" not in headers
        assert "server" not in headers
