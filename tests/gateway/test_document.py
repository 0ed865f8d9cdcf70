"""Whatever its own document allows is asked of the gateway, and much that it does not, as every
role: no answer is a defect, and none is undocumented."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from schemathesis import GenerationMode

from tenure.gateway.calls import Route
from tenure.gateway.routes import ROUTES
from tests.gateway.conftest import HOUSES, flow
from tests.gateway.house import House
from tests.gateway.questions import BOUNDED, CHECKS, PATHS, schema

pytestmark = pytest.mark.slow

MODES = list(GenerationMode)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_no_answer_is_a_defect_or_undocumented(
    request: pytest.FixtureRequest, route: Route[Any, Any], mode: GenerationMode
) -> None:
    """What the document allows, and what it forbids: of one kind of store after the other."""
    turn = ROUTES.index(route) + MODES.index(mode)
    house: House = request.getfixturevalue(HOUSES[turn % len(HOUSES)])
    operation = schema[route.path][route.method]

    @BOUNDED
    @given(case=operation.as_strategy(generation_mode=mode))
    def asked(case: Any) -> None:
        for token in (*house.tokens().values(), None):
            headers = {} if token is None else {"Authorization": f"Bearer {token}"}
            case.call_and_validate(base_url=house.address, headers=headers, checks=CHECKS)

    if mode is GenerationMode.POSITIVE or operation.body or operation.query:
        asked()


# -- what not every store can hold ----------------------------------------------------------------

EDGES = (
    "",
    "\0",
    "a\nb",
    "x" * 10_000,
    "\ud800",
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59-14:00",
    "99999999999999999999",
)
RUN = "no-such-run"
OWNER = {"owner_id": "worker-1", "lease_seconds": 60, "claim_id": "claim-1"}
RIGHT = {"owner_id": "worker-1", "fence": 1}
BODIES: dict[str, Any] = {
    "submit": {
        "workflow": flow(),
        "options": {
            "run_id": "edge-run-1",
            "vars": {"a": "b"},
            "labels": {"a": "b"},
            "queue": "edges",
            "run_after": "2090-01-01T00:00:00Z",
            "limit": ["web1"],
            "callbacks": [{"url": "https://a.example", "headers": {"a": "b"}, "secret_env": "A"}],
        },
    },
    "cancel": {"reason": "because"},
    "approve": {"note": "yes"},
    "annotate": {"data": {"a": "b"}},
    "retry": {"run_id": "edge-run-2", "from_step": "a", "again": ["b"], "limit": ["c"]},
    "reconcile": {"reason": "because"},
    "update_runs": {
        "writes": [
            {
                "type": "update",
                "run_id": RUN,
                "update_id": "update-1",
                "lease": RIGHT,
                "effect": {"changes": {"run": {"message": "a"}}},
            }
        ]
    },
    "claim_runs": {**OWNER, "queues": ["edges"], "dead_owners": ["gone"]},
    "renew_leases": {"leases": [{"run_id": RUN, **RIGHT}], "lease_seconds": 60},
    "claim_run": OWNER,
    "renew_lease": {**RIGHT, "lease_seconds": 60},
    "append_chunk": {
        **RIGHT,
        "step": 0,
        "host": "web1",
        "stream": "stdout",
        "offset": 0,
        "data": "aGVsbG8K",
    },
    "wait_for_wakeup": {"topics": ["queue:edges"], "wait": 0},
    "heartbeat": {"seconds": 60, "queues": ["edges"], "details": {"a": "b"}},
}


def test_every_body_has_its_edges() -> None:
    assert BODIES.keys() == {route.handler.__name__ for route in ROUTES if route.body is not None}


def test_the_edges_of_what_can_be_held_are_no_defect(lasting_or_not: House) -> None:
    """Each text of each request, at each edge."""
    client = lasting_or_not.client(lasting_or_not.tokens()["admin"])
    for route in ROUTES:
        known = PATHS[route.path][route.method.lower()]["responses"]
        for path, body in _at_the_edges(route):
            headers = {"content-type": "application/json"} if body is not None else {}
            answer = client(route.method, path, data=body, headers=headers)
            asked = f"{route.method} {path[:200]} {(body or b'')[:300]!r}"
            assert answer.status not in (500, 503), (asked, answer)
            assert str(answer.status) in known or answer.status == 404, (asked, answer)
    client.close()


def _at_the_edges(route: Route[Any, Any]) -> Iterator[tuple[str, bytes | None]]:
    plain = dict.fromkeys(route.parameters, "0") | {"run_id": RUN}
    body = BODIES.get(route.handler.__name__)
    sent = None if body is None else json.dumps(body).encode()
    for edge in EDGES:
        text = quote(edge, errors="surrogatepass")
        for name in route.parameters:
            yield _path(route, {**plain, name: text}), sent
        for parameter in PATHS[route.path][route.method.lower()]["parameters"]:
            if parameter["in"] == "query":
                yield f"{_path(route, plain)}?{parameter['name']}={text}", sent
        for other in _replaced(body, edge):
            yield _path(route, plain), json.dumps(other).encode()


def _path(route: Route[Any, Any], values: dict[str, str]) -> str:
    path = route.path
    for name, value in values.items():
        path = path.replace(f"{{{name}}}", value)
    return path


def _replaced(body: Any, edge: str) -> Iterator[Any]:
    """With one text, or the name of one thing, replaced at a time."""
    if isinstance(body, str):
        yield edge
    elif isinstance(body, list):
        for place, value in enumerate(body):
            for other in _replaced(value, edge):
                yield [*body[:place], other, *body[place + 1 :]]
    elif isinstance(body, dict):
        for name, value in body.items():
            for other in _replaced(value, edge):
                yield {**body, name: other}
        if len(body) == 1:
            (value,) = body.values()
            yield {edge: value}
