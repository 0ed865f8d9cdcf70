"""The store printed in ``docs/guides/write-your-own-store.md`` keeps the contract it teaches."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tenure.ports.run_store import RunStateStore
from tenure.testing.contracts import RunStateStoreContract

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "write-your-own-store.md"


def printed_store() -> Any:
    blocks = re.findall(r"^```python run\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(blocks[0], str(GUIDE), "exec"), names)
    return names["TinyStore"]()


@pytest.mark.slow
class TestTheStoreOfTheGuide(RunStateStoreContract):
    @pytest.fixture
    def store(self) -> RunStateStore:
        store: RunStateStore = printed_store()
        return store
