"""Scenarios are played with the public library only, on a store every integrator could write."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from examples.custom_store import DocumentStore, KeyValueService

from tenure import bootstrap


@pytest.fixture
def custom_store() -> DocumentStore:
    """An application's own: the one protocol it must have, and nothing else."""
    return DocumentStore(KeyValueService())


@pytest.fixture
def fresh_process() -> Iterator[None]:
    """One that has warned of nothing yet."""
    before = bootstrap._warned.is_set()
    bootstrap._warned.clear()
    yield
    if before:
        bootstrap._warned.set()
