"""The name of a file says which stream it holds."""

from __future__ import annotations

import string
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tenure.ports.store import LogKey
from tenure.stores.sqlite.logs import LogFiles, file_name

OUT = LogKey(step=0, host="web1", stream="stdout")

texts = st.text(st.characters(exclude_categories=["Cs"])) | st.text(
    "/.,-%aAüitem0" + string.digits, max_size=300
)
keys = st.builds(
    LogKey,
    step=st.integers(0, 10**6),
    host=texts,
    stream=texts,
    item=st.none() | st.integers(0, 10**6),
    attempt=st.integers(1, 10**6),
)


@given(st.lists(keys, unique=True, max_size=5))
def test_folder_is_the_list_of_its_streams(written: list[LogKey]) -> None:
    with tempfile.TemporaryDirectory() as root:
        output = LogFiles(Path(root)).of(7, "run-of-seven")
        for key in written:
            output.prepare(key).write_bytes(b"x")
        listed = output.streams()
    assert len(listed) == len(written)
    assert set(listed) == set(written)


@given(st.lists(keys, unique=True, min_size=2, max_size=2))
def test_names_are_harmless_and_differ_also_where_case_is_lost(two: list[LogKey]) -> None:
    one, other = map(file_name, two)
    assert one.lower() != other.lower()
    for name in (one, other):
        assert len(name.encode()) <= 250
        assert name[0].isalnum()
        assert not set(name) & set("/\\:\0\n ")


def test_names_can_be_read_by_people(tmp_path: Path) -> None:
    output = LogFiles(tmp_path).of(17, "deploy:web-4711")
    assert output.folder.name == "17-deploy%3Aweb-4711"
    assert file_name(OUT).startswith("0,web1,attempt1,stdout.")
    assert file_name(replace(OUT, item=3)).startswith("0,web1,item3,attempt1,stdout.")


def test_what_is_no_stream_is_not_listed(tmp_path: Path) -> None:
    output = LogFiles(tmp_path).of(1, "run-of-one")
    name = output.prepare(OUT).name
    strangers = (
        "notes.txt",
        "0,web1,attempt1,stdout.00000000",
        "long,00",
        "long,00.key",
        "x" + name,
    )
    for stranger in strangers:
        (output.folder / stranger).write_bytes(b"{}")
    assert output.streams() == []
    output.file(OUT).write_bytes(b"x")
    assert output.streams() == [OUT]


@pytest.mark.parametrize("host", ["web1", "x" * 1000])
def test_stream_without_a_byte_is_not_listed(tmp_path: Path, host: str) -> None:
    output = LogFiles(tmp_path).of(1, "run-of-one")
    output.prepare(replace(OUT, host=host)).touch()
    assert output.streams() == []


def test_folders_are_found_by_the_number_of_their_run(tmp_path: Path) -> None:
    files = LogFiles(tmp_path / "logs")
    assert list(files.all()) == []
    outputs = [files.of(number, ":" * 128) for number in (3, 12)]
    for output in outputs:
        output.prepare(OUT)
    (files.root / "lost+found").mkdir()
    assert sorted(files.all()) == outputs


def test_removing_is_done_once_and_may_be_asked_for_often(tmp_path: Path) -> None:
    output = LogFiles(tmp_path).of(1, "run-of-one")
    output.remove()
    for key in (OUT, replace(OUT, host="x" * 1000)):
        output.prepare(key).write_bytes(b"x")
    output.remove()
    output.remove()
    assert list(tmp_path.iterdir()) == []
