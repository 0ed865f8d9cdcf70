"""A server that says what it was asked tells no secret, however the request had it written."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

import tenure
from tenure.model.codec import full_record
from tenure.stores.sqlite import SQLiteStore
from tests.runtime.conftest import NewRunner
from tests.runtime.puppets import Onlooker, workflow

SECRET = "Zqse|cret{1}é7"
TRACE = "Zqse"


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """All it got, by the old book: headers are Latin-1."""
    heard = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    body = json.dumps({"path": heard.split(" ")[1], "heard": heard}, ensure_ascii=False).encode()
    status = b"500 No" if "/fail" in heard else b"200 OK"
    head = b"HTTP/1.1 %s\r\ncontent-length: %d\r\n\r\n" % (status, len(body))
    writer.write(head + body)
    await writer.drain()
    writer.close()


@pytest.mark.parametrize("where", ["ok/{}", "ok?q={}", "fail/{}", "header", "fail in header"])
async def test_it_is_nowhere(tmp_path: Path, new_runner: NewRunner, where: str) -> None:
    server = await asyncio.start_server(_echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    in_header = "header" in where
    path = where.removesuffix(" in header") if in_header else where.format("${{ token }}")
    asks = tenure.Step(
        name="asks",
        action="http.request",
        args={
            "url": f"http://127.0.0.1:{port}/{path}",
            "headers": {"x-key": "${{ token }}"} if in_header else {},
            "export": {"path": "path", "heard": "heard"},
        },
    )
    store = await SQLiteStore.open(tmp_path / "runs.db")
    onlooker = Onlooker()
    runner = new_runner(store, recorders=[onlooker])
    options = tenure.RunOptions(secrets={"token": SECRET})
    run = await runner.run(workflow(asks, secrets=["token"]), options)
    await runner.close()
    await store.close()
    server.close()
    host = next(iter(run.steps[0].hosts.values()))
    assert "***" in (host.stdout or "")
    if "fail" not in where:
        assert "heard" in host.withheld
    said = json.dumps(full_record(run), default=str) + repr(onlooker.chunks + onlooker.events)
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.suffix == ".db" for path in kept)
    assert TRACE not in said
    assert [path for path in kept if TRACE.encode() in path.read_bytes()] == []
