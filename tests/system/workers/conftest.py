"""Workers as processes of their own, on both stores that can have several.

A story that does not depend on which of them it is has the mark ``ON_POSTGRES``: on SQLite it is
told among the long ones.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.postgres.database import TestDatabase
from tests.system.workers.fleet import Fleet

ON_POSTGRES = pytest.mark.parametrize(
    "store_url", ["postgres", pytest.param("sqlite", marks=pytest.mark.long)], indirect=True
)


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/runs.db"
    database: TestDatabase = request.getfixturevalue("postgres_going")
    database.empty()
    return database.url


@pytest.fixture
async def fleet(store_url: str, tmp_path: Path) -> AsyncIterator[Fleet]:
    opened = Fleet(store_url, tmp_path)
    await opened.open()
    yield opened
    await opened.close()
