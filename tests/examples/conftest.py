from __future__ import annotations

from pathlib import Path

import pytest

from tests.examples.running import User


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path)
