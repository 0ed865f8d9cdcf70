"""The database file: reached by a link, not to be opened, held by others, taken away while open."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from time import monotonic

import apsw
import pytest

from tenure.model.errors import StoreLost, StoreUnavailable, UnknownStore
from tenure.ports.store import LogKey
from tenure.stores.sqlite import SQLiteStore, connection
from tenure.testing.contracts.acts import create_embedded
from tenure.testing.factories import embedded_run, fencing_of, new_run, start_step

pytestmark = pytest.mark.slow


def unshared(*what: str) -> list[str]:
    """The words before a program that has these (options of ``unshare``) for itself. Who is not
    root, or not allowed to as root, does it as the root of a namespace of users."""
    plainly = ["unshare", *what]
    if subprocess.run([*plainly, "true"], capture_output=True, check=False).returncode == 0:
        return plainly
    return ["unshare", "--user", "--map-root-user", *what]


PATIENCE = 20.0


WAITING = "another process has locked {}; waiting for it"


class Said(logging.Handler):
    """Warnings of stores, whichever thread they come from."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.words: list[str] = []
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.words.append(record.getMessage())
        self._loop.call_soon_threadsafe(self._news.set)

    async def something(self) -> None:
        async with asyncio.timeout(PATIENCE):
            await self._news.wait()


@pytest.fixture
async def said(monkeypatch: pytest.MonkeyPatch) -> Said:
    said = Said()
    monkeypatch.setattr(logging.getLogger("tenure.stores"), "handlers", [said])
    return said


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@contextmanager
def held(path: Path, how: str = "begin exclusive") -> Iterator[apsw.Connection]:
    """As a connection of another program has it."""
    other = apsw.Connection(str(path))
    other.execute(how).fetchall()
    try:
        yield other
    finally:
        other.close()


async def test_calls_that_wait_behind_one_another_give_up_together(path: Path) -> None:
    async with SQLiteStore(path, busy_timeout_s=1.0) as store:
        await store.create_run(new_run())
        with held(path):
            began = monotonic()
            writes = [store.create_run(new_run()) for _ in range(4)]
            for answer in await asyncio.gather(*writes, return_exceptions=True):
                assert isinstance(answer, StoreUnavailable)
                assert str(answer) == (
                    f"{path} is locked by another process: nothing was written. Look for a stopped "
                    f"or hung process that has it open (fuser {path}), let it go on or end it, and "
                    "try again"
                )
            assert monotonic() - began < 4 * 1.0
        assert (await store.create_run(new_run())).version == 1


async def test_a_long_wait_is_logged_once_and_ends_with_the_lock(
    path: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await SQLiteStore.open(path) as store:
        await store.create_run(new_run())
        monkeypatch.setattr(connection, "_WARN_AFTER_S", 0.0)
        with held(path):
            asked = asyncio.ensure_future(store.create_run(new_run()))
            await said.something()
            assert not asked.done()
        assert (await asked).version == 1
    assert said.words == [WAITING.format(path)]


async def test_so_is_a_wait_while_the_store_is_being_opened(
    path: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    await (await SQLiteStore.open(path)).close()
    monkeypatch.setattr(connection, "_WARN_AFTER_S", 0.0)
    with held(path, "pragma locking_mode = exclusive; begin exclusive"):
        opening = asyncio.ensure_future(SQLiteStore.open(path))
        await said.something()
        assert not opening.done()
    await (await opening).close()
    assert said.words == [WAITING.format(path)]


async def test_nothing_is_said_of_the_short_waits_of_those_who_share_a_file(
    path: Path, said: Said
) -> None:
    async with await SQLiteStore.open(path) as one, await SQLiteStore.open(path) as other:
        writes = [store.create_run(new_run()) for store in (one, other) for _ in range(20)]
        await asyncio.gather(*writes)
    assert said.words == []


async def test_who_closes_does_not_wait_for_what_nobody_wants_any_more(path: Path) -> None:
    async with asyncio.timeout(PATIENCE):
        store = await SQLiteStore.open(path)
        with held(path, "begin immediate"):
            asked = [asyncio.ensure_future(store.create_run(new_run())) for _ in range(3)]
            await asyncio.sleep(0)
            for each in asked:
                each.cancel()
            await store.close()


async def test_but_it_waits_for_what_somebody_is_owed(path: Path) -> None:
    store = await SQLiteStore.open(path)
    with held(path, "begin immediate") as other:
        asked = asyncio.ensure_future(store.create_run(new_run()))
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(store.close())
        await asyncio.wait([asked, closing], timeout=0.1)
        assert not asked.done()
        other.execute("rollback")
    async with asyncio.timeout(PATIENCE):
        assert (await asked).version == 1
        await closing


RUN_ID = "order-1234"


def remove(path: Path) -> None:
    path.unlink()


def replace_it(path: Path) -> None:
    path.rename(path.with_suffix(".old"))
    path.touch()


def move_its_folder(path: Path) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))


@pytest.mark.parametrize("take_away", [remove, replace_it, move_its_folder])
async def test_neither_writes_nor_reads_are_answered(
    tmp_path: Path, take_away: Callable[[Path], None]
) -> None:
    path = tmp_path / "here" / "runs.db"
    path.parent.mkdir()
    async with await SQLiteStore.open(path) as store:
        await store.create_run(embedded_run("owner", run_id=RUN_ID))
        run = await store.get_run(RUN_ID)
        take_away(path)
        asked: list[Callable[[], Awaitable[object]]] = [
            lambda: store.update_run(start_step(run)),
            lambda: store.update_runs([new_run()]),
            lambda: store.renew_leases([], 60),
            lambda: store.get_run(RUN_ID),
            store.list_runs,
        ]
        for ask in asked:
            with pytest.raises(StoreLost, match=r"runs\.db was (removed|replaced)"):
                await ask()


async def test_a_file_that_is_put_back_is_the_same_again(tmp_path: Path) -> None:
    path, away = tmp_path / "runs.db", tmp_path / "away.db"
    async with await SQLiteStore.open(path) as store:
        await store.create_run(embedded_run("owner", run_id=RUN_ID))
        path.rename(away)
        with pytest.raises(StoreLost):
            await store.get_run(RUN_ID)
        away.rename(path)
        assert (await store.get_run(RUN_ID)).run_id == RUN_ID


async def test_connection_that_is_opened_later_makes_no_new_file(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    async with await SQLiteStore.open(path) as store:
        await store.list_runs()
        path.unlink()
        with pytest.raises(StoreLost, match=r"runs\.db was removed"):
            await store.create_run(new_run())
        with pytest.raises(StoreLost, match=r"runs\.db was removed"):
            await store.check_store()
        assert not path.exists()


READ_ONLY = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && shift && exec "$@"'


TRIES = """
import asyncio, os, sys, tempfile
from tenure.model.errors import StoreUnavailable
from tenure.stores.sqlite import SQLiteStore
from tenure.testing.factories import new_run

async def main(path, tell=print):
    async with await SQLiteStore.open(path) as store:
        tell(len((await store.list_runs()).items))
        await store.create_run(new_run())

if "without rights" in sys.argv and os.getuid() == 0:
    with tempfile.TemporaryDirectory() as elsewhere:  # Python itself may be out of reach later
        asyncio.run(main(f"{elsewhere}/runs.db", tell=str))
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
try:
    asyncio.run(main(sys.argv[1]))
except StoreUnavailable as refused:
    print(refused)
"""


WITH_FEW_DESCRIPTORS = """
import os, resource, sys
from tenure.model.errors import StoreUnavailable
from tenure.stores.sqlite import SQLiteStore

resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
kept = []
try:
    while True:
        kept.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    pass
while True:
    try:
        SQLiteStore(sys.argv[1])
        break
    except StoreUnavailable as refused:
        print(refused)
    os.close(kept.pop())
"""


def told(*program: str) -> list[str]:
    ended = subprocess.run(program, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


async def test_folder_is_called_so(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=r"it is a folder.*such as .*/runs\.db"):
        await SQLiteStore.open(tmp_path)


async def test_pipe_and_device_are_no_files(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, Path(os.devnull)):
        with pytest.raises(StoreUnavailable, match=rf"open {path}: it is no regular file\. Look"):
            await SQLiteStore.open(path)


@pytest.mark.parametrize("there", [False, True])
def test_limit_of_open_files_is_called_so(tmp_path: Path, there: bool) -> None:
    """Whichever of its files is the one too many."""
    path = tmp_path / "runs.db"
    if there:
        asyncio.run(make(path))
    words = told(sys.executable, "-c", WITH_FEW_DESCRIPTORS, str(path))
    assert words
    for said in words:
        assert said.startswith("cannot open ")
        assert "Too many open files" in said or said.endswith("the limit of open files (ulimit -n)")


def test_read_only_mount_is_called_so(tmp_path: Path) -> None:
    asyncio.run(make(tmp_path / "runs.db"))
    mounted = [*unshared("--mount"), "sh", "-c", READ_ONLY, "sh", str(tmp_path)]
    for name in ("runs.db", "new.db"):
        (said,) = told(*mounted, sys.executable, "-c", TRIES, str(tmp_path / name))
        assert said == (
            f"cannot open {tmp_path / name}: this user may not write "
            f"{tmp_path if name == 'new.db' else tmp_path / name}. Check owner, mode and mount"
        )


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that everybody can get to, which those of other tests are not."""
    folder = Path(mkdtemp()).resolve()
    folder.chmod(0o777)
    yield folder
    folder.chmod(0o777)
    rmtree(folder)


def test_file_that_may_only_be_read_is_read(public: Path) -> None:
    path = public / "runs.db"
    asyncio.run(make(path))
    path.chmod(0o444)
    read, refused = told(sys.executable, "-c", TRIES, str(path), "without rights")
    assert read == "1"
    assert (
        refused
        == f"cannot write {path}: this user may not write {path}. Check owner, mode and mount"
    )


def test_folder_that_may_not_be_written_is_named(public: Path) -> None:
    path = public / "runs.db"
    asyncio.run(make(path))
    path.chmod(0o666)
    public.chmod(0o555)
    for name in ("runs.db", "new.db"):
        (said,) = told(sys.executable, "-c", TRIES, str(public / name), "without rights")
        assert said.startswith(tuple(f"cannot {do} {public / name}: " for do in ("open", "write")))
        assert said.endswith(f": this user may not write {public}. Check owner, mode and mount")


async def make(path: Path) -> None:
    async with await SQLiteStore.open(path) as store:
        await store.create_run(new_run())


OUT = LogKey(step=0, host="web1", stream="stdout")


@pytest.fixture
def real(tmp_path: Path) -> Path:
    (tmp_path / "disk").mkdir()
    return tmp_path / "disk" / "runs.db"


@pytest.fixture(params=["file", "folder"])
def link(real: Path, request: pytest.FixtureRequest) -> Path:
    """It may lead to a database that is not there yet."""
    if request.param == "folder":
        here = real.parent.with_name("here")
        here.symlink_to(real.parent)
        return here / real.name
    link = real.parent.with_name("link.db")
    link.symlink_to(real)
    return link


async def test_output_is_found_whichever_name_it_was_written_under(real: Path, link: Path) -> None:
    async with await SQLiteStore.open(link) as one, await SQLiteStore.open(real) as other:
        run = await create_embedded(one)
        await one.append(run.run_id, fencing_of(run), OUT, 0, b"hello ")
        await other.append(run.run_id, fencing_of(run), OUT, 6, b"world")
        for store in (one, other):
            assert (await store.read(run.run_id, OUT)).data == b"hello world"
            assert await store.list_logs(run.run_id) == [OUT]
            assert (await store.check_store()).problems == ()
        sizes = {(await store.check_store()).bytes_used for store in (one, other)}
        assert len(sizes) == 1


def test_link_to_a_name_that_sqlite_cannot_be_told_is_refused(tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"odd\xff")
    odd.mkdir()
    (tmp_path / "link").symlink_to(odd)
    with pytest.raises(UnknownStore, match=r"odd.*is not UTF-8.*rename it"):
        SQLiteStore(tmp_path / "link" / "runs.db")
