"""A disk that is really full: a clear error, nothing half, and on it goes when space returns.

This file is also the program that meets the full disk: ``python test_file_disk_full.py MEANS
DIRECTORY``. ``limit`` forbids the process to write files beyond a size, which the kernel enforces
everywhere; ``tmpfs`` fills a small file system of its own, where mounting is permitted.
"""

from __future__ import annotations

import asyncio
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tenure.model.errors import RunNotFound, StoreUnavailable
from tenure.model.snapshot import RunSnapshot
from tenure.stores.file import FileStore, unframe
from tenure.testing.factories import change_run, embedded_run, end_run, new_run

SIZE = 256 * 1024
_CAP_SYS_ADMIN = 21


# The program


def limited(directory: Path) -> Callable[[], None]:
    """No file grows beyond ``SIZE``, until the returned function lifts that."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (SIZE, hard))
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


def small_disk(directory: Path) -> Callable[[], None]:
    """A disk with little room, some of it taken by a file that can be deleted."""
    ballast = directory / "ballast"
    ballast.write_bytes(b"x" * (SIZE // 2))
    return ballast.unlink


MEANS = {"limit": limited, "tmpfs": small_disk}


async def meet_full_disk(means: str, directory: Path) -> None:
    make_room = MEANS[means](directory)
    store = FileStore(directory / "runs")
    new = embedded_run(run_id="grows-until-full")
    await store.create_run(new)
    run, refused = await fill(store, await store.get_run(new.snapshot.run_id))
    assert "free some space" in refused
    assert "grows-until-full" in refused
    await nothing_half(directory, run)

    too_big = new_run(run_id="born-too-big", vars={"fill": "x" * SIZE})
    with pytest.raises(StoreUnavailable, match="free some space"):
        await store.create_run(too_big)
    with pytest.raises(RunNotFound):
        await store.get_run("born-too-big")
    await nothing_half(directory, run)

    make_room()
    await store.update_run(change_run(run, message="y" * 20_000))
    run = await store.get_run(run.run_id)
    assert (run.message or "")[0] == "y"
    await store.update_run(end_run(run))
    await store.close()
    assert {path.suffix for path in (directory / "runs").iterdir()} == {".journal"}
    print("survived", means)


async def fill(store: FileStore, run: RunSnapshot) -> tuple[RunSnapshot, str]:
    """Write until the disk says no; the last acknowledged state, and what was said."""
    for _ in range(1000):
        update = change_run(run, message="x" * 20_000 + str(run.version))
        try:
            await store.update_run(update)
        except StoreUnavailable as unavailable:
            return run, str(unavailable)
        run = await store.get_run(run.run_id)
    raise AssertionError("the disk never was full")


async def nothing_half(directory: Path, run: RunSnapshot) -> None:
    """For this store, for another one, and in the file itself."""
    other = FileStore(directory / "runs")
    found = await other.get_run(run.run_id)
    assert (found.version, found.message) == (run.version, run.message)
    await other.close()
    (path,) = (directory / "runs").glob(f"{run.run_id}.*.journal")
    *lines, rest = path.read_bytes().split(b"\n")
    assert (len(lines), rest) == (run.version, b"")
    assert all(map(unframe, lines))
    assert not list((directory / "runs").glob(".*"))


# The test


def available_means() -> list[str]:
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    capabilities = [int(line.split()[1], 16) for line in lines if line.startswith("CapEff:")]
    may_mount = any(held >> _CAP_SYS_ADMIN & 1 for held in capabilities)
    return ["limit", "tmpfs"] if may_mount and _mounting_works() else ["limit"]


def _mounting_works() -> bool:
    """Containers may have the right and yet be forbidden."""
    tried = subprocess.run(
        ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"],
        capture_output=True,
        check=False,
    )
    return tried.returncode == 0


@pytest.mark.slow
def test_full_disk(tmp_path: Path) -> None:
    for means in available_means():
        directory = tmp_path / means
        directory.mkdir()
        program = [sys.executable, __file__, means, str(directory)]
        if means == "tmpfs":
            # A mount of the program's own: it vanishes with it, however it ends.
            mount = f'mount -t tmpfs -o size={SIZE} tmpfs "$1" && shift && exec "$@"'
            program = ["unshare", "--mount", "sh", "-c", mount, "sh", str(directory), *program]
        ended = subprocess.run(program, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr
        assert ended.stdout == f"survived {means}\n"


if __name__ == "__main__":
    asyncio.run(meet_full_disk(sys.argv[1], Path(sys.argv[2])))
