"""Journals that were cut short or damaged: what never happened, and what must not be guessed."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import NamedTuple

import pytest

from tenure.model.codec import encode
from tenure.model.errors import RunExists, StoreIncompatible, StoreUnavailable
from tenure.stores.file import FileStore
from tenure.stores.file.frames import ends_with_record, frame, unframe
from tenure.stores.file.records import SCHEMA
from tenure.testing.factories import annotate, embedded_run, new_run

pytestmark = pytest.mark.slow

RUN_ID = "damaged-run"


class Journal(NamedTuple):
    path: Path
    content: bytes
    starts: list[int]
    """Of its records; the last one is the end."""


@pytest.fixture
async def journal(tmp_path: Path) -> Journal:
    """Four records: a creation and three annotations."""
    store = FileStore(tmp_path)
    new = new_run(run_id=RUN_ID)
    await store.create_run(new)
    (path,) = tmp_path.glob("*.journal")
    starts = [0, path.stat().st_size]
    for number in range(3):
        await store.update_run(annotate(new.snapshot, number=number))
        starts.append(path.stat().st_size)
    await store.close()
    return Journal(path, path.read_bytes(), starts)


async def version_found(path: Path) -> int:
    store = FileStore(path.parent)
    try:
        (listed,) = (await store.list_runs()).items
        run = await store.get_run(RUN_ID)
        assert listed.version == run.version == len(run.annotations) + 1
        assert {event.version for event in await store.read_events(RUN_ID)} == set(
            range(1, run.version + 1)
        )
        return run.version
    finally:
        await store.close()


async def write_one_more(path: Path) -> int:
    store = FileStore(path.parent)
    try:
        note = annotate(new_run(run_id=RUN_ID).snapshot, goes="on")
        return (await store.update_run(note)).version
    finally:
        await store.close()


async def test_write_cut_short_at_any_byte_never_happened(journal: Journal) -> None:
    path, content, starts = journal
    for cut in range(starts[3], starts[4]):
        path.write_bytes(content[:cut])
        assert await version_found(path) == 3, f"cut at {cut}"
        assert path.stat().st_size == cut, "a reader changes nothing"
        assert await write_one_more(path) == 4
        assert await version_found(path) == 4
        assert path.read_bytes()[: starts[3]] == content[: starts[3]]
        assert all(map(unframe, path.read_bytes().splitlines(keepends=True))), "no rest remains"


async def test_last_write_spoiled_at_any_byte_never_happened(journal: Journal) -> None:
    """After a power failure the parts of one write may arrive in any order."""
    path, content, starts = journal
    for spoiled in range(starts[3], starts[4]):
        path.write_bytes(flipped(content, spoiled))
        assert await version_found(path) == 3, f"spoiled at {spoiled}"


@pytest.mark.parametrize("rest", [b"\0" * 5000, b"\n" * 3, b"garbage", b"{}\n" * 100])
async def test_rest_that_is_no_record_is_passed_over_and_cut_off(
    journal: Journal, rest: bytes
) -> None:
    path, content, _ = journal
    path.write_bytes(content + rest)
    assert await version_found(path) == 4
    assert await write_one_more(path) == 5
    assert path.read_bytes().startswith(content)
    assert await version_found(path) == 5
    assert len(path.read_bytes().splitlines()) == 5


async def test_store_that_has_read_a_spoiled_end_goes_on(journal: Journal) -> None:
    """Even if what replaces it has the same length and comes within the same tick."""
    path, content, _ = journal
    reader = FileStore(path.parent)
    for found, version in ((flipped(content, len(content) - 1), 3), (content, 4)):
        path.write_bytes(found)
        os.utime(path, ns=(0, 0))
        assert (await reader.get_run(RUN_ID)).version == version
        assert (await reader.list_runs()).items[0].version == version
    await reader.close()


@pytest.mark.parametrize("record", [0, 1, 2])
async def test_damage_before_a_whole_record_is_named(journal: Journal, record: int) -> None:
    path, content, starts = journal
    for spoiled in range(starts[record], starts[record + 1]):
        path.write_bytes(flipped(content, spoiled))
        store = FileStore(path.parent)
        with pytest.raises(StoreIncompatible, match="damaged") as damage:
            await store.get_run(RUN_ID)
        assert f"{path}, byte {starts[record]}:" in str(damage.value)
        await store.close()
    assert path.read_bytes() == flipped(content, starts[record + 1] - 1), "nobody touched it"


async def test_missing_record_is_named(journal: Journal) -> None:
    path, content, starts = journal
    path.write_bytes(content[: starts[1]] + content[starts[2] :])
    store = FileStore(path.parent)
    with pytest.raises(StoreIncompatible, match=f"byte {starts[1]}: says version 3"):
        await store.get_run(RUN_ID)
    await store.close()


async def test_damaged_file_is_neither_written_nor_created_over(journal: Journal) -> None:
    path, content, _ = journal
    damaged = flipped(content[: journal.starts[1]], 40)
    path.write_bytes(damaged)
    store = FileStore(path.parent)
    with pytest.raises(StoreIncompatible):
        await store.update_run(annotate(new_run(run_id=RUN_ID).snapshot, note=1))
    with pytest.raises((StoreIncompatible, RunExists)):
        await store.create_run(embedded_run(run_id=RUN_ID))
    with pytest.raises(StoreIncompatible, match="move it away"):
        await store.get_run(RUN_ID)
    assert path.read_bytes() == damaged
    path.rename(path.with_suffix(".damaged"))
    assert (await store.list_runs()).items == ()
    await store.close()


async def test_damaged_run_is_left_out_of_lists_with_one_warning(
    journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    path, content, starts = journal
    async with FileStore(path.parent) as store:
        await store.create_run(new_run(run_id="sound-run"))
        path.write_bytes(flipped(content, starts[1] + 40))
        for _ in range(3):
            assert [run.run_id for run in (await store.list_runs()).items] == ["sound-run"]
        (said,) = caplog.messages
        assert said.startswith(f"run {RUN_ID} is left out of all lists: {path}, byte {starts[1]}:")
        assert "Restore the file from a backup" in said
        with pytest.raises(StoreIncompatible, match="damaged"):
            await store.get_run(RUN_ID)

        path.write_bytes(content)
        assert len((await store.list_runs()).items) == 2


async def test_run_that_is_damaged_again_is_told_of_again(
    journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    path, content, _ = journal
    async with FileStore(path.parent) as store:
        for times in (1, 2, 3):
            path.write_bytes(b"garbage\n" + content)
            assert (await store.list_runs()).items == ()
            assert len(caplog.messages) == times
            path.write_bytes(content)
            os.utime(path, ns=(0, 0))  # as a backup has it: the list knows that one
            assert len((await store.list_runs()).items) == 1


async def test_run_that_is_left_out_for_another_reason_is_told_of_again(
    journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    async with FileStore(journal.path.parent) as store:
        for damage in (b"garbage\n" + journal.content, b"", b""):
            journal.path.write_bytes(damage)
            assert (await store.list_runs()).items == ()
    assert len(caplog.messages) == 2


async def test_run_that_may_not_be_read_is_left_out_of_lists_with_one_warning(
    journal: Journal, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = os.open

    def refused(path: str | Path, *how: int) -> int:
        if Path(path) == journal.path:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return opened(path, *how)

    async with FileStore(journal.path.parent) as store:
        await store.create_run(new_run(run_id="sound-run"))
        with monkeypatch.context() as patch:
            patch.setattr(os, "open", refused)
            for _ in range(3):
                assert [run.run_id for run in (await store.list_runs()).items] == ["sound-run"]
            (said,) = caplog.messages
            assert said.startswith(f"run {RUN_ID} is left out of all lists: {journal.path}: ")
            assert "check owner and mode" in said
            with pytest.raises(StoreUnavailable, match="check owner and mode"):
                await store.get_run(RUN_ID)
            patch.setattr(os, "access", lambda *_: False)
            with pytest.raises(StoreUnavailable, match="check owner and mode"):
                await store.list_runs()
        assert len((await store.list_runs()).items) == 2


async def test_directory_in_the_place_of_a_run_is_left_out_of_lists(
    journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    journal.path.unlink()
    journal.path.mkdir()
    async with FileStore(journal.path.parent) as store:
        await store.create_run(new_run(run_id="sound-run"))
        for _ in range(3):
            assert [run.run_id for run in (await store.list_runs()).items] == ["sound-run"]
        (said,) = caplog.messages
        assert said.startswith(f"run {RUN_ID} is left out of all lists: {journal.path}: ")


async def test_run_where_the_disk_fails_is_left_out_of_lists_with_one_warning(
    journal: Journal, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    pread, inode = os.pread, journal.path.stat().st_ino

    def bad_sector(fd: int, *where: int) -> bytes:
        if os.fstat(fd).st_ino == inode:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return pread(fd, *where)

    async with FileStore(journal.path.parent) as store:
        await store.create_run(new_run(run_id="sound-run"))
        await store.get_run(RUN_ID)
        with monkeypatch.context() as patch:
            patch.setattr(os, "pread", bad_sector)
            for _ in range(3):
                assert [run.run_id for run in (await store.list_runs()).items] == ["sound-run"]
            (said,) = caplog.messages
            assert said.startswith(f"run {RUN_ID} is left out of all lists: {journal.path}: ")
            assert "check the disk" in said
            with pytest.raises(StoreUnavailable, match="check the disk"):
                await store.get_run(RUN_ID)
        assert len((await store.list_runs()).items) == 2


async def test_link_that_leads_nowhere_fails_no_list(journal: Journal) -> None:
    async with FileStore(journal.path.parent) as store:
        await store.create_run(new_run(run_id="sound-run"))
        assert len((await store.list_runs()).items) == 2
        journal.path.unlink()
        journal.path.symlink_to(journal.path)
        assert [run.run_id for run in (await store.list_runs()).items] == ["sound-run"]


async def test_disk_that_fails_fails_the_list(
    journal: Journal, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would look like an empty store."""

    def broken(*_: object) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    async with FileStore(journal.path.parent) as store:
        await store.create_run(new_run(run_id="other-run"))
        for run_id in (RUN_ID, "other-run"):
            await store.get_run(run_id)
        monkeypatch.setattr(os, "pread", broken)
        with pytest.raises(StoreUnavailable, match="check the disk"):
            await store.list_runs()
    assert not caplog.messages


async def test_end_that_may_have_been_acknowledged_is_told_of_once(
    journal: Journal, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that was cut short has no newline: that is written last."""
    monkeypatch.setattr("tenure.stores.file.runs.MAX_REPLAYED", 1)
    path, content, starts = journal
    async with FileStore(path.parent) as store:
        await store.create_run(new_run(run_id="sound-run"))
        for times in (1, 2):
            path.write_bytes(flipped(content, starts[3] + 40))
            for _ in range(3):
                await store.get_run("sound-run")
                assert (await store.get_run(RUN_ID)).version == 3
            assert len(caplog.messages) == times
            assert caplog.messages[-1].startswith(f"{path}, byte {starts[3]}: the last line is no")
            path.write_bytes(content)
            assert (await store.get_run(RUN_ID)).version == 4
            await store.get_run("sound-run")  # and what is known of the other is forgotten
        path.write_bytes(content[:-1])
        assert (await store.get_run(RUN_ID)).version == 3
        assert len(caplog.messages) == 2
        path.write_bytes(flipped(content, starts[3] + 40))
        assert await write_one_more(path) == 4
        assert len(caplog.messages) == 3


async def test_newer_schema_is_refused_by_name(journal: Journal) -> None:
    path, content, starts = journal
    newer = {"schema": SCHEMA + 1, "surprise": True}
    path.write_bytes(content + frame(encode(newer)))
    store = FileStore(path.parent)
    with pytest.raises(StoreIncompatible, match=f"schema {SCHEMA + 1}.*Upgrade") as refused:
        await store.get_run(RUN_ID)
    assert f"{path}, byte {starts[4]}" in str(refused.value)
    with pytest.raises(StoreIncompatible, match="Upgrade"):  # the run is there, and sound
        await store.list_runs()
    with pytest.raises(StoreIncompatible):
        await store.update_run(annotate(new_run(run_id=RUN_ID).snapshot, note=1))
    await store.close()
    assert path.read_bytes().startswith(content)


@pytest.mark.parametrize("foreign", [{"hello": "world"}, {"schema": 1}, {"schema": "one"}])
async def test_foreign_record_is_refused(journal: Journal, foreign: dict[str, object]) -> None:
    path, content, _ = journal
    path.write_bytes(content + frame(encode(foreign)))
    store = FileStore(path.parent)
    with pytest.raises(StoreIncompatible, match="not a record"):
        await store.get_run(RUN_ID)
    await store.close()


async def test_journal_of_another_run_is_refused(journal: Journal) -> None:
    path, content, _ = journal
    store = FileStore(path.parent)
    await store.create_run(new_run(run_id="other-run"))
    (other,) = path.parent.glob("other-run.*")
    other.write_bytes(content)
    with pytest.raises(StoreIncompatible, match=f"belongs to run '{RUN_ID}'"):
        await store.get_run("other-run")
    await store.close()


def flipped(content: bytes, position: int) -> bytes:
    return content[:position] + bytes([content[position] ^ 0x5A]) + content[position + 1 :]


def test_frames() -> None:
    line = frame(b'{"a": 1}')
    assert unframe(line) == b'{"a": 1}'
    for position in range(len(line)):
        assert unframe(flipped(line, position)) is None
        assert unframe(line[:position]) is None
    assert ends_with_record(b"left over" + line)
    assert ends_with_record(b"00000008 12345678 " + line)
    assert not ends_with_record(line[:-1])
    assert not ends_with_record(b"")
