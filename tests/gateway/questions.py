"""What is asked of a gateway by its own document, and what no answer may be."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.openapi import from_dict
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tenure.gateway.openapi import document
from tenure.gateway.routes import ROUTES


def no_defect(context: Any, response: Any, case: Any) -> bool | None:
    """That its store cannot do something a gateway may say, where the document has it."""
    return None if response.status_code == 501 else not_a_server_error(context, response, case)


CHECKS = [
    no_defect,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
BOUNDED = settings(
    max_examples=16,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)

_DOCUMENT = document(ROUTES)
PATHS = _DOCUMENT["paths"]
schema = from_dict(_DOCUMENT)
