"""Who may not look any more is told so, and sees nothing of what happens then."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tenure.model.tokens import Role, Token, digest_of, written
from tenure.testing.contracts.acts import create_embedded
from tests.gateway_live.test_one_run import path_of
from tests.gateway_live.viewers import looking

pytestmark = pytest.mark.slow

Gateways = Callable[..., Any]


async def token(store: Any, **fields: Any) -> str:
    """As its bearer carries it."""
    viewer = Token(id="viewer", name="eve", role=Role.VIEWER, digest=digest_of("hush"), **fields)
    await store.add_token(viewer)
    return written("viewer", "hush")


@pytest.mark.parametrize("path", ["of the run", "/v1/events"])
async def test_a_revoked_token_ends_its_streams(path: str, memory: Any, gateways: Gateways) -> None:
    gateway, run = await gateways(memory), await create_embedded(memory)
    path = path_of(run) if path == "of the run" else path
    async with looking(gateway.address, path, token=await token(memory)) as viewer:
        await viewer.some(1)
        await memory.revoke_token("viewer")
        (last,) = await viewer.all()
    assert (last.kind, last.data["type"]) == ("problem", "urn:tenure:problem:unauthorized")
    await gateway.until_idle()


async def test_an_expired_token_ends_its_streams(memory: Any, gateways: Gateways) -> None:
    gateway, run = await gateways(memory), await create_embedded(memory)
    soon = datetime.now(UTC) + timedelta(seconds=1)
    eve = await token(memory, expires_at=soon)
    async with looking(gateway.address, path_of(run), token=eve) as viewer:
        *_, last = await viewer.all()
    assert (last.kind, last.data["type"]) == ("problem", "urn:tenure:problem:unauthorized")
