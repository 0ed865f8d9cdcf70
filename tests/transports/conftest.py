from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tenure.transports import reaping
from tenure.transports.local import LocalTransport
from tests.transports.keeping import children, open_files


@pytest.fixture(params=["pidfd", "thread"])
def watching(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways in which the end of a process is noticed."""
    if request.param == "thread":
        monkeypatch.setattr(reaping, "pidfds_work", lambda: False)
    return str(request.param)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files of this test go."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
async def transport(temporary: Path) -> AsyncIterator[LocalTransport]:
    """Checks what every test must leave behind: nothing."""
    files, before = open_files(), children()
    transport = LocalTransport()
    yield transport
    await transport.close()
    assert list(temporary.glob("tenure-*")) == []
    assert open_files() <= files
    assert children() == before


@pytest.fixture(autouse=True)
def settings_of_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_GATEWAY_TOKEN", "s3cret-of-the-worker")
