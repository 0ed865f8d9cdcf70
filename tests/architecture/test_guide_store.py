"""The store printed in ``docs/guides/write-your-own-store.md`` keeps the contract it teaches."""

from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from tenure.testing.contracts import FaultSweep, RunStateStoreContract
from tenure.testing.contracts.harness import OpenStore

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "write-your-own-store.md"


def printed_store() -> Any:
    blocks = re.findall(r"^```python run\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(blocks[0], str(GUIDE), "exec"), names)
    return names["TinyStore"]()


@pytest.mark.slow
class TestTheStoreOfTheGuide(FaultSweep, RunStateStoreContract):
    max_swept_calls = 0
    lease_seconds = 0.5
    """It takes no clock: some clauses really wait."""

    @pytest.fixture
    def open_store(self) -> OpenStore:
        return lambda: nullcontext(printed_store())
