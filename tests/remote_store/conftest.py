from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.remote_store.front import SharedGateway


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_gateway() -> AsyncIterator[SharedGateway]:
    async with SharedGateway.open() as shared:
        yield shared


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Who shares the gateway runs in its event loop."""
    in_its_loop = pytest.mark.asyncio(loop_scope="session")
    for item in items:
        if isinstance(item, pytest.Function) and "shared_gateway" in item.fixturenames:
            item.add_marker(in_its_loop, append=False)
