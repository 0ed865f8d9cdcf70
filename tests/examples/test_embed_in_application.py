"""An application with its own store, notifier and recorder around Tenure."""

from __future__ import annotations

import pytest

from tests.examples.running import User


@pytest.mark.slow
def test_embed_in_application(user: User) -> None:
    assert user.python("-m", "examples.embed_in_application").splitlines() == [
        "order-1001: success: to ada, receipt R-ada-4500",
        "order-1002: failed: step 'charge' failed on local: "
        "PermissionError: bob's card was declined",
        "the button was pressed twice: run order-1001: this run_id is taken; "
        "choose another or leave it out",
        "bob's orders: [('order-1002', 'failed')]",
        "the page of order-1001 says: success",
        "the page of order-1002 says: failed",
        "the audit log of order-1001:",
        "  order-1001 1.0 run.running",
        "  order-1001 1.1 step.running charge",
        "  order-1001 1.2 host.running charge local",
        "  order-1001 2.0 host.success charge local",
        "  order-1001 2.1 step.success charge",
        "  order-1001 2.2 step.running label",
        "  order-1001 2.3 host.running label local",
        "  order-1001 3.0 host.success label local",
        "  order-1001 3.1 step.success label",
        "  order-1001 3.2 run.success",
    ]
