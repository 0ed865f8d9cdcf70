"""Requests that follow from one another, as the document's links say, as each role and before each
kind of store: no answer is a defect, none is undocumented, and what a role is for comes about.

(Schemathesis has a machine of its own for that. It hardly ever gets as far as a second lease, and
never twice the same way.)
"""

from __future__ import annotations

from itertools import count
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.gateway.routes import ROUTES
from tests.gateway.conftest import flow
from tests.gateway.house import House
from tests.gateway.questions import BOUNDED, CHECKS, schema

pytestmark = pytest.mark.slow

REQUESTS = {
    "viewer": {"get_run", "get_record", "explain", "get_definition", "run_events", "list_output"},
    "operator": {"cancel", "approve", "annotate", "retry", "run_events"},
    "worker": {
        "claim_runs",
        "claim_run",
        "renew_lease",
        "renew_leases",
        "update_runs",
        "append_chunk",
        "release_lease",
    },
    "admin": {route.handler.__name__ for route in ROUTES},
}
COMES_ABOUT = {**REQUESTS, "admin": {"cancel", "claim_run"}}
STEPS = 7
OWNER = {"owner_id": "worker-1", "lease_seconds": 60}
_queues = count(1)


class Answered(NamedTuple):
    case: Any
    response: Any

    def links(self) -> list[Any]:
        responses = self.case.operation.definition.raw["responses"]
        return list(responses[str(self.response.status_code)].get("links", {}).values())

    def value(self, said: Any) -> Any:
        """A link's expressions, brought to their values. ``LookupError`` if there are none."""
        if isinstance(said, dict):
            return {name: self.value(each) for name, each in said.items()}
        if isinstance(said, list):
            return [self.value(each) for each in said]
        if not isinstance(said, str) or not said.startswith("$"):
            return said
        place, _, pointer = said.partition("#/")
        if place.startswith("$request.path."):
            return self.case.path_parameters[place.removeprefix("$request.path.")]
        value = self.response.json() if place == "$response.body" else self.case.body
        for word in pointer.split("/"):
            value = value[int(word) if isinstance(value, list) else word]
        return value


class Chain:
    def __init__(self, house: House, role: str) -> None:
        self._house = house
        self._role = role
        self._queue = f"chain-{next(_queues)}"
        self._answered: list[Answered] = []

    def submit(self) -> None:
        """Somebody does; what comes of it is the role's business."""
        asks = {"plan": {"mode": "manual-approve"}} if self._role == "operator" else {}
        body: Any = {"workflow": flow(queue=self._queue, **asks)}
        self._ask(schema["/v1/runs"]["POST"].Case(body=body), "operator")

    def go_on(self, data: st.DataObject) -> str | None:
        """What succeeded."""
        answered, link = data.draw(st.sampled_from(self._possible()))
        operation = schema.find_operation_by_id(link["operationId"])
        try:
            found = answered.value(link["parameters"])
            body = answered.value(link.get("requestBody"))
        except LookupError:
            return None
        case = data.draw(operation.as_strategy()) if body is None else operation.Case(body=body)
        path = {name for name in found if f"{{{name}}}" in operation.path}
        case.path_parameters |= {name: found[name] for name in path}
        case.query |= {name: found[name] for name in found.keys() - path}
        return self._ask(case, self._role)

    def _possible(self) -> list[tuple[Answered, Any]]:
        found = [(each, link) for each in self._answered for link in each.links()]
        found += [(self._answered[0], self._claim())]
        return [
            (answered, self._sensible(link))
            for answered, link in found
            if link["operationId"] in REQUESTS[self._role]
        ]

    def _claim(self) -> Any:
        body = {**OWNER, "queues": [self._queue]}
        return {"operationId": "claim_runs", "parameters": {}, "requestBody": body}

    def _sensible(self, link: Any) -> Any:
        """Drawn at random, hardly any lease would last."""
        return {**link, "requestBody": OWNER} if link["operationId"] == "claim_run" else link

    def _ask(self, case: Any, role: str) -> str | None:
        headers = {"Authorization": f"Bearer {self._house.tokens()[role]}"}
        response = case.call(base_url=self._house.address, headers=headers)
        case.validate_response(response, checks=CHECKS)
        self._answered.append(Answered(case, response))
        operation: str = case.operation.definition.raw["operationId"]
        return operation if _is_done(operation, response) else None


def _is_done(operation: str, response: Any) -> bool:
    """An answer to many may say of each of them that nothing was done."""
    if response.status_code >= 300:
        return False
    match operation:
        case "update_runs":
            return any(each["receipt"] for each in response.json()["outcomes"])
        case "renew_leases":
            return any(each["ok"] for each in response.json()["renewals"])
        case "claim_runs":
            return bool(response.json()["leases"])
    return True


@pytest.mark.parametrize("role", COMES_ABOUT)
def test_a_role_does_what_it_is_for_and_meets_no_defect(lasting_or_not: House, role: str) -> None:
    succeeded: set[str | None] = set()

    @settings(BOUNDED, max_examples=25 if role == "worker" else 12)
    @given(data=st.data())
    def asked(data: st.DataObject) -> None:
        chain = Chain(lasting_or_not, role)
        chain.submit()
        for _ in range(STEPS):
            succeeded.add(chain.go_on(data))

    asked()
    assert not COMES_ABOUT[role] - succeeded
