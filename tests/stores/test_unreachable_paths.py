"""Paths that lead nowhere: whoever opens a store there is told why and what to do, and no error of
the system's own gets out."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.bootstrap import not_there_yet, open_store
from tenure.model.errors import StoreUnavailable, UnknownStore
from tenure.stores.file import FileStore

KINDS = ("sqlite:///", "file://")
TOO_LONG = "x" * 300

WITHOUT_RIGHTS = """
import os, sys
from tenure.bootstrap import open_store
from tenure.model.errors import StoreUnavailable
from tenure.stores.file import FileStore
from tenure.stores.sqlite import SQLiteStore

if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
for url in sys.argv[1:]:
    try:
        open_store(url)
    except StoreUnavailable as error:
        print(error)
"""


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[Path]:
    """A folder that nobody without special rights can look into."""
    folder = tmp_path / "locked"
    (folder / "below").mkdir(parents=True)
    folder.chmod(0)
    yield folder
    folder.chmod(0o700)


def test_folder_that_may_not_be_looked_into_is_a_matter_of_rights(locked: Path) -> None:
    places = [locked / "runs", locked / "below" / "runs"]
    urls = [f"{kind}{place}" for kind in KINDS for place in places]
    child = subprocess.run(
        [sys.executable, "-c", WITHOUT_RIGHTS, *urls], capture_output=True, text=True, check=True
    )
    told = child.stdout.splitlines()
    assert len(told) == len(urls)
    for place, words in zip(places * 2, told, strict=True):
        assert f"{place}: Permission denied" in words
        assert "check owner and mode of" in words.lower()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("below", ["", f"/{TOO_LONG}"])
def test_name_that_is_too_long_is_called_so(tmp_path: Path, kind: str, below: str) -> None:
    with pytest.raises(StoreUnavailable, match="File name too long"):
        open_store(f"{kind}{tmp_path}/{TOO_LONG}{below}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", KINDS)
def test_links_that_go_round_in_a_circle_are_called_so(tmp_path: Path, kind: str) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(StoreUnavailable, match=r"symbolic links.*[Ll]ook at the path"):
        open_store(f"{kind}{tmp_path}/loop/runs")


@pytest.mark.parametrize("kind", KINDS)
def test_relative_path_in_a_folder_that_is_gone_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    url = f"{kind.removesuffix('//')}runs"
    for ask in (open_store, not_there_yet):
        with pytest.raises(StoreUnavailable, match=r"working directory.*absolute path"):
            ask(url)


@pytest.mark.parametrize("name", ["a\0b", "a\0b/runs"])
def test_null_byte_in_the_path_of_a_file_store_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnknownStore, match=r"a\\x00b.* null byte"):
        FileStore(tmp_path / name)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("sqlite:///~nosuchuser/runs.db", r"~nosuchuser/runs\.db'.*home.*write the whole path"),
        ("sqlite://[runs.db", "three slashes"),
        ("file://[runs", "three slashes"),
    ],
)
def test_url_that_no_path_can_be_made_of_is_refused(url: str, said: str) -> None:
    for ask in (open_store, not_there_yet):
        with pytest.raises(UnknownStore, match=said):
            ask(url)
