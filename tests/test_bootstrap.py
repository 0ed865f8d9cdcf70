"""Stores by URL, and the warning for stores that forget."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tenure
from tenure.bootstrap import not_there_yet, open_broker, open_store
from tenure.model.errors import StoreUnavailable, UnknownBroker, UnknownStore
from tenure.stores.file import FileStore
from tenure.stores.memory import InMemoryStore
from tenure.stores.sqlite import SQLiteStore
from tenure.testing.factories import new_run
from tenure.workflow import spec


async def test_memory() -> None:
    async with open_store("memory:") as store:
        assert isinstance(store, InMemoryStore)


async def test_sqlite_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with open_store("sqlite:///runs.db") as relative:
        assert isinstance(relative, SQLiteStore)
        assert relative.path == tmp_path / "runs.db"
    async with open_store(f"sqlite:///{tmp_path}/with%20space.db") as absolute:
        assert isinstance(absolute, SQLiteStore)
        assert absolute.path == tmp_path / "with space.db"


async def test_file(tmp_path: Path) -> None:
    async with open_store((tmp_path / "runs").as_uri()) as store:
        assert isinstance(store, FileStore)
        await store.create_run(new_run())


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("runs.db", "no store URL"),
        ("", "no store URL"),
        ("mongo://here", "no store kind 'mongo'"),
        ("mongo://here", r"there are: file, http, https, memory, postgres, postgresql, sqlite"),
        ("http://me:secret@here", "TENURE_TOKEN"),
        ("postgresql://db/runs?connections=0", "connections is a number from 1 to 100, not '0'"),
        ("postgresql://db/runs?statement_timeout=soon", "seconds, at most a day, not 'soon'"),
        ("postgresql://db/runs?prepared=maybe", "prepared is yes or no, not 'maybe'"),
        ("postgresql://db/runs?colour=red", "colour"),
        ("sqlite:///:memory:", "write memory:"),
        ("sqlite://runs.db", "three slashes"),
        ("sqlite:///", "names no path"),
        ("file:///runs?x=1", "query"),
        ("sqlite:///x%00y.db", r"x%00y\.db' has a null byte"),
        ("file:///x%00y", "has a null byte"),
        ("sqlite:///x%FFy.db", "is not UTF-8"),
        ("file:///x\udcffy", "is not UTF-8"),
        ("file:///new\nline", "line break or tab.*write it as %0A"),
        ("sqlite:///tab\tbed.db", "line break or tab"),
    ],
)
def test_bad_urls_say_what_to_write_instead(url: str, said: str) -> None:
    with pytest.raises(UnknownStore, match=said):
        open_store(url)


@pytest.mark.parametrize("url", [5, b"sqlite:///x", Path("runs.db")])
def test_what_is_no_string_is_no_url(url: Any) -> None:
    with pytest.raises(UnknownStore, match=r"is a string, no (int|bytes|PosixPath); examples: sql"):
        open_store(url)


@pytest.mark.parametrize("kind", ["sqlite:///", "file://"])
async def test_a_path_may_have_a_line_break_that_is_written_as_urls_have_it(
    tmp_path: Path, kind: str
) -> None:
    async with open_store(f"{kind}{tmp_path}/new%0Aline"):
        assert (tmp_path / "new\nline").exists()


@pytest.mark.parametrize("below", ["", "/runs"])
def test_a_file_where_a_directory_belongs_is_called_so(tmp_path: Path, below: str) -> None:
    (tmp_path / "passwd").touch()
    with pytest.raises(StoreUnavailable, match="a file store is a directory: name one") as refused:
        open_store(f"file://{tmp_path}/passwd{below}")
    assert "send the same call again" not in str(refused.value)


@pytest.mark.parametrize("kind", ["sqlite:///", "file://"])
async def test_looking_whether_a_store_is_there_creates_nothing(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "runs"
    assert not_there_yet(f"{kind}{place}") == place
    assert list(tmp_path.iterdir()) == []
    async with open_store(f"{kind}{place}"):
        assert not_there_yet(f"{kind}{place}") is None


@pytest.mark.parametrize("kind", ["sqlite:///", "file://"])
def test_no_folder_is_made_for_a_store_and_who_wants_one_is_told_how(
    tmp_path: Path, kind: str
) -> None:
    """A typo would look like a healthy store without runs."""
    place = tmp_path / "no such" / "runs"
    with pytest.raises(StoreUnavailable) as refused:
        open_store(f"{kind}{place}")
    assert f"there is no folder {place.parent}. Look at the path" in str(refused.value)
    assert str(refused.value).endswith(f"mkdir -p '{place.parent}'")
    assert list(tmp_path.iterdir()) == []


async def test_a_server_is_asked_for_nothing_before_the_store_is_used() -> None:
    async with open_store("postgresql://nobody:secret@127.0.0.1:1/runs") as store:
        with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:1/runs") as refused:
            await store.list_runs()
    assert "secret" not in str(refused.value)


def test_only_stores_on_disk_can_be_missing(tmp_path: Path) -> None:
    assert not_there_yet("memory:") is None
    assert not_there_yet("postgresql://db/runs") is None
    (tmp_path / "file").touch()
    assert not_there_yet(f"sqlite:///{tmp_path}/file/runs.db") == tmp_path / "file/runs.db"
    with pytest.raises(UnknownStore, match="names no path"):
        not_there_yet("sqlite:///")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("localhost", "no broker URL"),
        ("amqp://here", r"no broker kind 'amqp' is installed \(there are: redis, rediss\)"),
    ],
)
def test_a_bad_broker_url_says_what_there_is(url: str, said: str) -> None:
    with pytest.raises(UnknownBroker, match=said):
        open_broker(url)


def test_a_broker_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("redis", "tenure.brokers"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(UnknownBroker, match=r"pip install 'tenure\[redis\]'"):
        open_broker("redis://localhost")


def test_public_names_exist() -> None:
    for name in tenure.__all__:
        assert getattr(tenure, name) is not None
    assert set(tenure.__all__) <= set(dir(tenure))
    with pytest.raises(AttributeError):
        tenure.no_such_name  # noqa: B018


def test_everything_a_workflow_is_built_of_is_a_public_name() -> None:
    parts = [each for each in vars(spec).values() if isinstance(each, type)]
    names = {each.__name__ for each in parts if each.__module__ == spec.__name__}
    assert {name for name in names if not name.startswith("_")} <= set(tenure.__all__)
    assert "Recovery" in tenure.__all__


def stderr_of(program: str) -> str:
    """Of a fresh process with logging as it comes."""
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stderr


@pytest.mark.slow
def test_warning_is_emitted_for_non_durable_mode() -> None:
    """Seed 000: visible without any logging set-up, and once per process."""
    said = stderr_of("import tenure\nfor _ in range(3): tenure.open_store()")
    assert said.count("do not survive this process") == 1
    assert "InMemoryStore" in said


@pytest.mark.slow
def test_fallback_store_is_used() -> None:
    """Seed 000: without any store configured, runs are processed all the same."""
    stderr_of(
        "import asyncio, tenure\n"
        "from tenure.testing.factories import new_run\n"
        "async def main():\n"
        "    async with tenure.open_store() as store:\n"
        "        new = new_run()\n"
        "        await store.create_run(new)\n"
        "        assert (await store.get_run(new.snapshot.run_id)).version == 1\n"
        "asyncio.run(main())"
    )


@pytest.mark.slow
def test_injected_store_that_is_not_durable_is_warned_about_too() -> None:
    said = stderr_of(
        "from tenure.bootstrap import warn_unless_durable\n"
        "class Theirs:\n    durable = False\n"
        "warn_unless_durable(Theirs())"
    )
    assert "Theirs" in said


@pytest.mark.slow
def test_runner_warns_once_about_the_store_it_was_given() -> None:
    said = stderr_of(
        "import asyncio, tenure\n"
        "step = tenure.Step(name='greet', action='cmd.run', args={'cmd': 'true'})\n"
        "workflow = tenure.Workflow(name='hello', steps=(step,))\n"
        "async def main():\n"
        "    async with tenure.InMemoryStore() as store, tenure.Runner(store) as runner:\n"
        "        for _ in range(2): await runner.run(workflow)\n"
        "asyncio.run(main())"
    )
    assert said.count("do not survive this process") == 1
    assert "InMemoryStore" in said


@pytest.mark.slow
def test_durable_store_is_not_warned_about(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    assert stderr_of(f"import tenure; tenure.open_store({url!r})") == ""
