"""What every run waits for is asked without the driver's help: it must answer as the driver would,
whatever happens to the question."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime

import psycopg
import pytest

from tenure.aio import end
from tenure.stores.postgres.address import Address
from tenure.stores.postgres.line import Line, Question
from tenure.stores.postgres.servers import Servers
from tests.postgres.database import TestDatabase
from tests.postgres.proxy import Proxy
from tests.postgres.server import Server

pytestmark = pytest.mark.slow

SOON = 20.0
LARGE = 24 * 1024 * 1024
"""Bytes: more than any socket takes at once."""


@pytest.fixture(params=["yes", "no"])
async def line(
    postgres_database: TestDatabase, request: pytest.FixtureRequest
) -> AsyncIterator[Line]:
    line = await _connect(f"{postgres_database.url}?prepared={request.param}")
    async with asyncio.timeout(SOON):
        yield line
    await line.close()


async def _connect(url: str) -> Line:
    return await Servers(Address.parse(url)).connect()


async def test_values_and_answers_are_those_of_the_driver(line: Line) -> None:
    values = ["ü, 'quoted', \\", 12, 1.5, True, None, ["a", None, '"'], b"\0\xff"]
    sql = (
        "select $1::text, $2::bigint, $3::float8, $4::boolean, $5::text, $6::text[], $7::bytea, "
        "timestamptz '2026-01-01 00:00:00+00'"
    )
    (answer,) = await line.ask(sql, values)
    assert [*answer[:-1]] == values
    assert answer[-1] == datetime(2026, 1, 1, tzinfo=UTC)
    (same,) = await (await line.execute(sql, values)).fetchall()
    assert answer == same


async def test_it_is_prepared_once(line: Line) -> None:
    for number in range(3):
        assert await line.ask("select $1::bigint + 1", [number]) == [(number + 1,)]
    prepared = await line.execute(
        "select count(*) from pg_prepared_statements where name like 'tenure%'", prepare=False
    )
    assert await prepared.fetchone() == (0 if line.prepare_threshold is None else 1,)


async def test_no_row_and_many(line: Line) -> None:
    for count in (0, 1, 1000):
        assert await line.ask("select generate_series(1, $1::integer)", [count]) == [
            (number,) for number in range(1, count + 1)
        ]


async def test_refusal_is_raised_and_the_line_goes_on(line: Line) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero, match="division by zero"):
        await line.ask("select 1 / $1::integer", [0])
    for _ in range(2):
        with pytest.raises(psycopg.errors.UndefinedTable):
            await line.ask("select * from tenure.nothing", [])
    with pytest.raises(psycopg.DataError, match="NUL"):
        await line.ask("select $1::text", ["before\0after"])
    assert await line.ask("select 1 / $1::integer", [1]) == [(1,)]


async def test_several_are_one_transaction(line: Line) -> None:
    await line.execute("create temporary table kept (number integer)")
    insert = "insert into kept values ($1::integer) returning number"
    answers = await line.ask_in_turn([[(insert, [number]) for number in (1, 2)]])
    assert answers == [[(1,)], [(2,)]]
    with pytest.raises(psycopg.errors.DivisionByZero):
        await line.ask_in_turn(
            [[(insert, [3]), ("select 1 / $1::integer", [0]), (insert, [4]), ("select 5", [])]]
        )
    assert await line.ask("select number from kept order by 1", []) == [(1,), (2,)]


async def test_several_parts_are_one_transaction_if_they_begin_one(line: Line) -> None:
    await line.execute("create temporary table kept (number integer)")
    insert = "insert into kept values ($1::integer) returning number"
    parts: list[list[Question]] = [
        [("begin", []), (insert, [1])],
        [(insert, [2]), (insert, [3])],
        [("commit", [])],
    ]
    assert await line.ask_in_turn(parts) == [[], [(1,)], [(2,)], [(3,)], []]
    parts[1] = [("select 1 / $1::integer", [0]), (insert, [5])]
    with pytest.raises(psycopg.errors.DivisionByZero):
        await line.ask_in_turn(parts)
    assert line.pgconn.transaction_status == psycopg.pq.TransactionStatus.IDLE
    assert await line.ask_in_turn([]) == []
    assert await line.ask("select number from kept order by 1", []) == [(1,), (2,), (3,)]


async def test_parts_that_were_done_though_one_was_refused_are_not_told_as_refused(
    line: Line,
) -> None:
    """If what was to begin their transaction is what was refused: they are not undone with it."""
    await line.execute("create temporary table kept (number integer)")
    insert = "insert into kept values ($1::integer) returning number"
    assert await line.ask(insert, [0]) == [(0,)]
    with pytest.raises(psycopg.OperationalError, match=r"may or may not .* division by zero"):
        await line.ask_in_turn(
            [
                [("select 1 / $1::integer", [0]), (insert, [1])],
                [(insert, [2])],
                [("commit", [])],
            ]
        )
    assert await line.ask("select number from kept order by 1", []) == [(0,), (2,)]


async def test_names_of_prepared_statements_tell_them_apart(
    line: Line, postgres_database: TestDatabase
) -> None:
    """A pooler may have us share a connection to the server: what a name means to one must not be
    another statement to the next."""
    url = postgres_database.url
    if line.prepare_threshold is not None:
        url += "?prepared=yes"
    async with await _connect(url) as other:
        await line.ask("select $1::bigint, 'mine'", [1])
        await other.ask("select $1::bigint, 'the other''s'", [1])
        mine, others = await _prepared(line), await _prepared(other)
    assert len(mine) == len(others) == (0 if line.prepare_threshold is None else 1)
    assert not mine & others


async def _prepared(line: Line) -> set[str]:
    found = await line.execute("select name from pg_prepared_statements", prepare=False)
    return {name for (name,) in await found.fetchall()}


def state_of(line: Line, database: TestDatabase) -> tuple[str, str | None]:
    with psycopg.connect(database.url, autocommit=True) as other:
        found = other.execute(
            "select state, wait_event from pg_stat_activity where pid = %s",
            [line.info.backend_pid],
        ).fetchone()
    assert found is not None
    return found


async def test_server_works_on_one_while_the_next_is_made(
    line: Line, postgres_database: TestDatabase
) -> None:
    """And when it has done that, it knows that it waits: there is a limit to that, which there is
    not to a question of which it has half."""
    seen: list[str] = []
    await line.ask("select pg_sleep(0)::text, $1::text", ["prepared"])

    def parts() -> Iterator[list[Question]]:
        yield [("begin", []), ("select pg_sleep(0.5)::text, $1::text", ["first"])]
        end_by = time.monotonic() + SOON
        while "idle in transaction" not in seen and time.monotonic() < end_by:
            state, event = state_of(line, postgres_database)
            seen.append(event if state == "active" and event is not None else state)
        yield [("select $1::text", ["second"]), ("commit", [])]

    assert await line.ask_in_turn(parts()) == [[], [("", "first")], [("second",)], []]
    assert "PgSleep" in seen
    assert seen[-1] == "idle in transaction"


async def test_nothing_of_a_part_leaves_before_the_rest(
    line: Line, postgres_database: TestDatabase
) -> None:
    """Or the server would have locked what it was asked for, and wait for us to go on."""
    await line.execute("create table if not exists public.half (number integer)")
    seen: list[str] = []

    def questions() -> Iterator[Question]:
        yield "insert into public.half values ($1::integer)", [1]
        seen.extend(state_of(line, postgres_database)[0] for _ in range(20))
        yield "drop table public.half", []

    await line.ask_in_turn([questions()])
    assert set(seen) == {"idle"}


async def test_what_cannot_be_made_undoes_the_rest(
    line: Line, postgres_database: TestDatabase
) -> None:
    await line.execute("create table if not exists public.undone (number integer)")

    def parts() -> Iterator[list[Question]]:
        yield [("begin", []), ("insert into public.undone values ($1::integer)", [1])]
        raise ValueError("cannot be made")

    with pytest.raises(ValueError, match="cannot be made"):
        await line.ask_in_turn(parts())
    assert line.closed
    with psycopg.connect(postgres_database.url, autocommit=True) as other:
        assert other.execute("select count(*) from public.undone").fetchone() == (0,)
        other.execute("drop table public.undone")


async def test_after_a_rollback_it_is_prepared_anew(line: Line) -> None:
    """The driver has the server forget everything then, if it had anything prepared itself."""
    assert await line.ask("select $1::integer", [1]) == [(1,)]
    await line.execute("select 1", prepare=True)
    await line.execute("begin", prepare=False)
    await line.rollback()
    assert await line.ask("select $1::integer", [2]) == [(2,)]


async def test_driver_and_we_take_turns(line: Line) -> None:
    for number in range(5):
        assert await line.ask("select $1::integer", [number]) == [(number,)]
        cursor = await line.execute("select $1::integer, pg_sleep(0.001)::text", [number])
        assert await cursor.fetchone() == (number, "")
        async with line.pipeline():
            cursor = await line.execute("select $1::integer", [number])
        assert await cursor.fetchone() == (number,)


async def test_what_no_socket_takes_at_once_arrives_whole(line: Line) -> None:
    text = "x" * LARGE
    assert await line.ask("select length($1::text)", [text]) == [(LARGE,)]
    ((back,),) = await line.ask("select $1::text", [text])
    assert back == text


async def test_other_tasks_go_on_meanwhile(line: Line) -> None:
    asked = asyncio.ensure_future(line.ask("select pg_sleep(0.3)::text", []))
    turns = 0
    while not asked.done():
        turns += 1
        await asyncio.sleep(0.01)
    assert turns > 5


async def test_question_that_is_given_up_ends_the_line_at_once(line: Line) -> None:
    asked = asyncio.ensure_future(line.ask("select pg_sleep(60)", []))
    await asyncio.wait([asked], timeout=0.1)
    await end(asked)
    assert asked.cancelled()
    assert line.closed


async def test_line_that_ends_in_mid_question(
    postgres_server: Server, postgres_database: TestDatabase
) -> None:
    async with Proxy(postgres_server.port) as proxy, asyncio.timeout(SOON):
        line = await _connect(postgres_database.url_through(proxy.port))
        asked = asyncio.ensure_future(line.ask("select pg_sleep(60)", []))
        await asyncio.wait([asked], timeout=0.1)
        proxy.cut()
        with pytest.raises(psycopg.OperationalError):
            await asked
        assert line.closed
        with pytest.raises(psycopg.OperationalError):
            await line.ask("select 1", [])
        await line.close()


async def test_line_that_ends_while_nobody_asks_is_left_alone_by_the_loop(
    line: Line, postgres_database: TestDatabase
) -> None:
    """And the number of its socket, which somebody else gets, is left to that one."""
    await line.ask("select 1", [])
    with psycopg.connect(postgres_database.url, autocommit=True) as other:
        other.execute("select pg_terminate_backend(%s)", [line.info.backend_pid])
    number = line.fileno()
    before = time.process_time()
    await asyncio.sleep(0.4)
    assert time.process_time() - before < 0.2  # or the loop does nothing but hear of it
    await line.close()
    second = await _connect(postgres_database.url)
    assert second.fileno() == number
    assert await second.ask("select 2", []) == [(2,)]
    await second.close()


@pytest.mark.parametrize("prepared", ["yes", "no"])
@pytest.mark.parametrize(
    "nonsense",
    [
        b"D\xff\xff\xff\xff",
        b"D\x7f\xff\xff\xff",
        b"G\0\0\0\7\0\0\0",
        b"W\0\0\0\7\0\0\0",
    ],
)
async def test_nonsense_ends_the_line_and_not_the_loop(
    postgres_server: Server, postgres_database: TestDatabase, nonsense: bytes, prepared: str
) -> None:
    async with Proxy(postgres_server.port) as proxy, asyncio.timeout(SOON):
        url = f"{postgres_database.url_through(proxy.port)}?prepared={prepared}"
        line = await _connect(url)
        await line.ask("select $1::integer", [1])
        proxy.say_before_next_answer(nonsense)
        with pytest.raises(psycopg.Error):
            await line.ask("select $1::integer", [1])
        assert line.closed


@pytest.mark.parametrize("prepared", ["yes", "no"])
async def test_end_that_comes_while_we_are_still_sending_is_noticed(
    postgres_server: Server, postgres_database: TestDatabase, prepared: str
) -> None:
    async with Proxy(postgres_server.port) as proxy, asyncio.timeout(SOON):
        line = await _connect(f"{postgres_database.url_through(proxy.port)}?prepared={prepared}")
        await line.ask("select length($1::text)", ["short"])
        proxy.read_no_more()
        asked = asyncio.ensure_future(line.ask("select length($1::text)", ["x" * LARGE]))
        await asyncio.wait([asked], timeout=0.1)
        assert not asked.done()
        proxy.say_no_more()
        with pytest.raises(psycopg.OperationalError):
            await asked
        assert line.closed


async def test_server_that_was_told_to_forget_is_told_anew(line: Line) -> None:
    assert await line.ask("select $1::integer", [1]) == [(1,)]
    await line.execute("deallocate all", prepare=False)
    if line.prepare_threshold is not None:
        with pytest.raises(psycopg.errors.InvalidSqlStatementName):
            await line.ask("select $1::integer", [2])
    assert await line.ask("select $1::integer", [3]) == [(3,)]
