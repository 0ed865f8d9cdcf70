"""Store URLs: whatever libpq takes means here what it means there, and no password is shown."""

from __future__ import annotations

import traceback

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from tenure.cli.display.text import place_of
from tenure.model.errors import UnknownStore
from tenure.stores.postgres import PostgresStore
from tenure.stores.postgres.address import Address
from tests.postgres.server import Server


@pytest.mark.parametrize(
    "url",
    [
        "postgresql:///tenure",
        "postgresql:///tenure?host=/tmp",
        "postgresql://",
        "postgresql://?host=/tmp&port=5433",
        "postgresql://%2Fvar%2Frun/tenure",
        "postgres://me@db/tenure",
        "postgresql://db/tenure?options=-c%20work_mem%3D8MB",
        "postgresql://db/tenure?application_name=my%20app",
        "postgresql://db/tenure?application_name=my+app",
        "postgresql://db/tenure?ssl=true",
        "postgresql://me:a%20b+c%2Fd%40@db/tenure",
        "postgresql://me:a?b#c=d&e@db/tenure",
        "postgresql://[::1]:5433,db2:5434/tenure",
        "postgresql://a,b,c/tenure?port=1,2,3",
        "postgresql://a,b/tenure?port=5433",
        "postgresql://db/with%20space%20and%20%27quote%27%5C",
    ],
)
def test_what_libpq_reads_in_a_url_is_what_it_is_told(url: str) -> None:
    given = conninfo_to_dict(url)
    told = conninfo_to_dict(Address.parse(url).conninfo)
    assert {name: told[name] for name in given} == given


@pytest.mark.parametrize("before", ["", "sslmode=require&"])
@pytest.mark.parametrize("after", ["", "&options=-c%20a%3Db"])
def test_settings_of_ours_are_taken_out_wherever_they_stand(before: str, after: str) -> None:
    url = f"postgresql://me:p?connections=9&w@db/tenure?{before}connections=7{after}"
    address = Address.parse(url)
    assert address.connections == 7
    told = conninfo_to_dict(address.conninfo)
    assert told["password"] == "p?connections=9&w"
    assert "connections" not in told
    assert told.get("options") == ("-c a=b" if after else None)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://a,b,c/db?port=1,2", "2 port numbers for 3 hosts"),
        ("postgresql://[::1/db", r"looking for matching \"]\" in IPv6 host address"),
        ("postgresql://db/x?colour=red", "colour"),
        ("postgresql://db:54x2/x", "a port is a number from 1 to 65535"),
        ("postgresql://db:70000/x", "a port is a number from 1 to 65535"),
        ("postgresql:db", "begins with postgresql://"),
        ("postgresql://db/x?application_name=%zz", "percent-encoded"),
        ("postgresql://db/x?application_name=%ff", "UTF-8"),
        ("postgresql://db/x?application_name=\udcff", "UTF-8"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused_with_words(url: str, said: str) -> None:
    with pytest.raises(UnknownStore, match=said):
        PostgresStore(url)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:geheim%zz@db/tenure",
        "postgresql://me:geheim@[::1/tenure",
        'postgresql://me:x"geheim"@[::1/tenure',
        "postgresql://me:x/geheim@db/tenure",
        "postgresql://me:5432/geheim@db/tenure?colour=red",
        "postgresql://me:x@geheim@[db/tenure",
        "postgresql://db/tenure?password=geheim%zz",
        "postgresql://db/tenure?password=x&geheim",
        "postgresql://db/tenure?passwort=geheim%zz",
        "postgresql://db/tenure?sslpassword=geheim%zz&colour=red",
        "postgresql://me:geheim@db/tenure?connections=many",
        "postgresql://me:geheim@a,b,c/tenure?port=1,2",
        "postgresql:me:geheim@db",
    ],
)
def test_no_refusal_shows_a_password(url: str) -> None:
    with pytest.raises(UnknownStore) as refused:
        PostgresStore(url)
    assert "geheim" not in "".join(traceback.format_exception(refused.value, limit=0))
    assert "geheim" not in place_of(url)


@pytest.mark.parametrize(
    ("url", "place", "shown"),
    [
        (
            "postgresql://me:geheim@db:1/tenure",
            "postgresql://db:1/tenure",
            "postgresql://me:***@db:1/tenure",
        ),
        (
            "postgresql://me@db/tenure?password=geheim&sslmode=require",
            "postgresql://db:5432/tenure",
            "postgresql://me@db/tenure?password=***&sslmode=require",
        ),
        (
            "postgresql://me:5432/geheim@db/tenure",
            "postgresql://me:5432/***@db/tenure",
            "postgresql://***",
        ),
        ("postgresql:///tenure", "postgresql://[local]:5432/tenure", "postgresql:///tenure"),
        (
            "postgresql://[::1],b/tenure?port=1,2",
            "postgresql://[::1]:1,b:2/tenure",
            "postgresql://[::1],b/tenure?port=1,2",
        ),
        ("postgresql://a,b/x?port=7", "postgresql://a:7,b:7/x", "postgresql://a,b/x?port=7"),
    ],
)
def test_places_are_told_without_passwords(url: str, place: str, shown: str) -> None:
    assert Address.parse(url).place == place
    assert "geheim" not in repr(Address.parse(url))
    assert place_of(url) == shown


@pytest.mark.slow
async def test_settings_with_spaces_reach_the_server(postgres_server: Server) -> None:
    url = postgres_server.url(
        "postgres", options="-c%20work_mem%3D8MB", application_name="my%20app", connections="1"
    )
    address = Address.parse(url)
    async with await psycopg.AsyncConnection.connect(address.conninfo) as connection:
        found = await connection.execute(
            "select current_setting('work_mem'), current_setting('application_name')"
        )
        assert await found.fetchone() == ("8MB", "my app")
