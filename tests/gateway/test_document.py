"""Whatever its own document allows is asked of the gateway, and much that it does not: as every
role, one request at a time and in chains. No answer is a defect, and none is undocumented."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.openapi import from_dict
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tenure.gateway.openapi import document
from tenure.gateway.route import Route
from tenure.gateway.routes import ROUTES
from tests.gateway.conftest import flow
from tests.gateway.house import House

pytestmark = pytest.mark.slow

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
BOUNDED = settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)

schema = from_dict(document(ROUTES))


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_no_answer_is_a_defect_or_undocumented(
    house: House, tokens: dict[str, str], route: Route[Any, Any], mode: GenerationMode
) -> None:
    """What the document allows, and what it forbids."""
    operation = schema[route.path][route.method]

    @BOUNDED
    @given(case=operation.as_strategy(generation_mode=mode))
    def asked(case: Any) -> None:
        for token in (*tokens.values(), None):
            headers = {} if token is None else {"Authorization": f"Bearer {token}"}
            case.call_and_validate(base_url=house.address, headers=headers, checks=CHECKS)

    if mode is GenerationMode.POSITIVE or operation.body or operation.query:
        asked()


@pytest.mark.parametrize("role", ["operator", "admin"])
def test_nor_in_chains_of_requests_about_the_same_runs(
    house: House, tokens: dict[str, str], role: str
) -> None:
    class Chains(schema.as_state_machine()):  # type: ignore[misc]
        def get_call_kwargs(self, case: Any) -> dict[str, Any]:
            headers = {"Authorization": f"Bearer {tokens[role]}"}
            return {"base_url": house.address, "headers": headers}

        def before_call(self, case: Any) -> None:
            """Drawn at random, hardly any workflow could be run."""
            if case.operation.label == "POST /v1/runs":
                case.body = {"workflow": flow()}

        def validate_response(self, response: Any, case: Any, **rest: Any) -> None:
            case.validate_response(response, checks=CHECKS)

    Chains.run(settings=settings(BOUNDED, max_examples=15, stateful_step_count=8))
