"""A database that is reached by a link and by its real name is one store."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tenure.model.errors import UnknownStore
from tenure.ports.store import LogKey
from tenure.stores.sqlite import SQLiteStore
from tenure.testing.contracts.acts import create_embedded
from tenure.testing.factories import fencing_of

OUT = LogKey(step=0, host="web1", stream="stdout")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "disk").mkdir()
    return tmp_path / "disk" / "runs.db"


@pytest.fixture(params=["file", "folder"])
def link(path: Path, request: pytest.FixtureRequest) -> Path:
    """It may lead to a database that is not there yet."""
    if request.param == "folder":
        here = path.parent.with_name("here")
        here.symlink_to(path.parent)
        return here / path.name
    link = path.parent.with_name("link.db")
    link.symlink_to(path)
    return link


async def test_output_is_found_whichever_name_it_was_written_under(path: Path, link: Path) -> None:
    async with await SQLiteStore.open(link) as one, await SQLiteStore.open(path) as other:
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
