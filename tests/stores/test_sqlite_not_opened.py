"""A file that SQLite cannot open or write: it does not tell why, so we do, and what helps."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

import pytest

from tenure.model.errors import StoreUnavailable
from tenure.stores.sqlite import SQLiteStore
from tenure.testing.factories import new_run
from tests.stores.unshared import unshared

pytestmark = pytest.mark.slow

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
