"""Lists reach the server as they are, whatever they hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.model.status import RunStatus
from tenure.stores.postgres.arrays import ArrayDumper
from tests.postgres.server import Server

pytestmark = pytest.mark.slow

Line = psycopg.Connection[tuple[object, ...]]
TEXTS = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"])
) | st.sampled_from(
    ["", "null", "NULL", "{}", '"', "\\", '\\"', "a,b", " ", "\n", RunStatus.QUEUED]
)
NUMBERS = st.integers(-(2**63), 2**63 - 1)
REALS = st.floats(allow_nan=False)


@pytest.fixture(scope="module")
def line(postgres_server: Server) -> Iterator[Line]:
    with psycopg.connect(postgres_server.url("postgres"), autocommit=True) as connection:
        connection.adapters.register_dumper(list, ArrayDumper)
        yield connection


def _there_and_back(line: Line, kind: str, values: Sequence[object]) -> object:
    cursor = psycopg.RawCursor(line)
    row = cursor.execute(f"select $1::{kind}[]", [list(values)]).fetchone()
    return row and row[0]


@given(texts=st.lists(st.none() | TEXTS))
def test_texts(line: Line, texts: list[str | None]) -> None:
    assert _there_and_back(line, "text", texts) == texts


@given(numbers=st.lists(st.none() | NUMBERS))
def test_numbers(line: Line, numbers: list[int | None]) -> None:
    assert _there_and_back(line, "bigint", numbers) == numbers


@given(truths=st.lists(st.none() | st.booleans()))
def test_truths(line: Line, truths: list[bool | None]) -> None:
    assert _there_and_back(line, "boolean", truths) == truths


@given(reals=st.lists(st.none() | REALS))
def test_reals(line: Line, reals: list[float | None]) -> None:
    assert _there_and_back(line, "float8", reals) == reals


@pytest.mark.parametrize("text", ["\0", "a\0b", "\ud800"])
def test_what_no_server_can_hold_is_the_values_fault(line: Line, text: str) -> None:
    with pytest.raises((psycopg.DataError, UnicodeEncodeError)):
        _there_and_back(line, "text", ["usual", text])
