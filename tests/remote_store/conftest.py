from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.remote_store.front import SharedGateway


@pytest.fixture(scope="session")
def shared_gateway() -> Iterator[SharedGateway]:
    with SharedGateway() as shared:
        yield shared
