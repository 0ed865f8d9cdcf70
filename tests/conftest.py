"""Random tests draw the same examples each time, so that a red build can be repeated by anybody.
The searches marked ``long`` bring seeds of their own. ``make check`` draws fewer of them."""

from __future__ import annotations

import gc
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tenure.system import new_owner_id
from tests import beside

if TYPE_CHECKING:
    from tests.brokers.server import Server as ValkeyServer
    from tests.postgres.database import TestDatabase
    from tests.postgres.pooler import Pooler
    from tests.postgres.server import Server
    from tests.stores.sqlite_files import SQLiteFiles

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("quick", settings.get_profile("repeatable"), max_examples=25)
settings.load_profile("repeatable")

for _number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        # Started in the background, or by nohup: the processes of the tests would inherit that,
        # and could not be asked to stop.
        handler = signal.default_int_handler if _number is signal.SIGINT else signal.SIG_DFL
        signal.signal(_number, handler)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where slow tests are left out, a file of slow tests is not even read: reading all of them
    costs each test process seconds."""
    if "not slow" not in config.option.markexpr or collection_path.suffix != ".py":
        return None
    slow = "\npytestmark = pytest.mark.slow\n" in collection_path.read_text(encoding="utf-8")
    return True if slow else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Worker processes are many to a test, and must be in time: those tests come first, one after
    another in one test process. Last, they would be left over, and meet in all of them. Last of all
    comes who asks for what goes on beside."""
    items.sort(key=lambda item: "workers" not in item.path.parts)
    items.sort(key=lambda item: item.name == beside.ASKING)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Tests that look for what others leave behind have all garbage collected first. Twenty
    thousand collected tests are none, and to look through them takes a second each time."""
    if not session.config.option.collectonly:
        beside.begin(session.items)
    gc.collect()
    gc.freeze()


def pytest_sessionfinish(exitstatus: int) -> None:
    beside.end(at_once=exitstatus != pytest.ExitCode.OK)


@pytest.fixture(scope="session")
def dead_owner() -> str:
    """The id of a process of this boot of this machine that is gone."""
    with subprocess.Popen(["/bin/true"]) as process:
        process.wait()
    machine, boot, namespace, _, start, unique = new_owner_id().split("/")
    return "/".join([machine, boot, namespace, str(process.pid), start, unique])


@pytest.fixture(scope="session")
def sqlite_files(tmp_path_factory: pytest.TempPathFactory) -> SQLiteFiles:
    from tests.stores.sqlite_files import SQLiteFiles

    return SQLiteFiles(tmp_path_factory.mktemp("sqlite"))


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """One for each test process, begun when the first test asks for it. Quick, not durable."""
    from tests.postgres.server import Server

    with Server() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_shared(postgres_server: Server) -> Iterator[TestDatabase]:
    from tests.postgres.database import TestDatabase

    database = TestDatabase(postgres_server)
    yield database
    database.close()


@pytest.fixture(scope="session")
def postgres_going(postgres_server: Server) -> Iterator[TestDatabase]:
    """Whose clock goes as clocks do."""
    from tests.postgres.database import TestDatabase

    database = TestDatabase(postgres_server, "going", clock_stands=False)
    yield database
    database.close()


@pytest.fixture(scope="session")
def postgres_pooler(postgres_server: Server) -> Iterator[Pooler]:
    from tests.postgres.pooler import Pooler

    with Pooler(postgres_server.port) as pooler:
        yield pooler


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[ValkeyServer]:
    """One for each test process, begun when the first test asks for it."""
    from tests.brokers.server import Server

    with Server() as server:
        yield server


@pytest.fixture
def postgres_database(postgres_shared: TestDatabase) -> TestDatabase:
    """Migrated, and empty."""
    postgres_shared.empty()
    return postgres_shared
