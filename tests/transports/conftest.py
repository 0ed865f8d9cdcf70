from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tenure.transports.local import LocalTransport
from tests.transports.keeping import STARTERS, children, open_files

NewTransport = Callable[..., LocalTransport]


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files of this test go."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture(params=list(STARTERS))
def parent(request: pytest.FixtureRequest) -> str:
    """Whose children processes are: this program's, or its supervisor's."""
    return str(request.param)


@pytest.fixture
async def new_transport(temporary: Path, parent: str) -> AsyncIterator[NewTransport]:
    """Makes transports, closes them, and checks what every test must leave behind: nothing."""
    made: list[LocalTransport] = []

    def make(*, most_processes: int | None = None) -> LocalTransport:
        made.append(LocalTransport(STARTERS[parent](), most_processes=most_processes))
        return made[-1]

    files, before = open_files(), children()
    yield make
    for transport in made:
        await transport.close()
    assert list(temporary.glob("tenure-*")) == []
    assert open_files() <= files
    assert children() == before


@pytest.fixture
def transport(new_transport: NewTransport) -> LocalTransport:
    return new_transport()


@pytest.fixture(autouse=True)
def settings_of_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_GATEWAY_TOKEN", "s3cret-of-the-worker")
