"""The command line on a server: one command makes the store, the others use it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests.postgres.server import Server

pytestmark = pytest.mark.slow

HELLO = """
version: v1
name: hello
steps:
  - name: greet
    action: shell.run
    args: {script: echo hello}
"""


def tenure(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("tenure")
    return subprocess.run([str(program), *arguments], capture_output=True, text=True)


def test_doctor_tells_how_far_the_servers_clock_is(postgres_server: Server) -> None:
    postgres_server.execute("drop database if exists behind with (force)")
    postgres_server.execute("create database behind")
    store = postgres_server.url("behind")
    assert tenure("store", "migrate", "--store", store).returncode == 0
    healthy = tenure("doctor", "--store", store, "--json")
    assert abs(json.loads(healthy.stdout)["store"]["clock_offset"]) < 1
    with psycopg.connect(store, autocommit=True) as connection:
        connection.execute(
            "create or replace function tenure.clock() returns timestamptz language sql volatile "
            "as $$ select clock_timestamp() - interval '90 s' $$"
        )
    off = tenure("doctor", "--store", store)
    assert off.returncode == 1
    assert "the clock of this machine is 90.0 s ahead of the store's" in off.stdout
    assert "90.00 s behind this machine's" in off.stdout


def test_migrate_run_list_check(postgres_server: Server, tmp_path: Path) -> None:
    postgres_server.execute("drop database if exists commands with (force)")
    postgres_server.execute("create database commands")
    store = postgres_server.url("commands")
    workflow = tmp_path / "hello.yaml"
    workflow.write_text(HELLO)
    for command in (["run", str(workflow)], ["submit", str(workflow)], ["worker"]):
        refused = tenure(*command, "--store", store)
        assert (refused.returncode, refused.stdout) == (6, "")
        assert refused.stderr.startswith("Error: "), "nothing was worth saying before"
        assert "is no Tenure store yet: run `tenure store migrate`" in refused.stderr
    assert tenure("store", "migrate", "--store", store).returncode == 0
    done = tenure("run", str(workflow), "--store", store)
    assert done.returncode == 0, done.stderr
    listed = tenure("list", "--store", store, "--json")
    assert [run["status"] for run in json.loads(listed.stdout)["runs"]] == ["success"]
    logs = tenure("logs", "latest", "--store", store)
    assert "hello" in logs.stdout
    checked = tenure("store", "check", "--store", store, "--json")
    report = json.loads(checked.stdout)
    assert (checked.returncode, report["problems"], report["runs"]) == (0, [], 1)
