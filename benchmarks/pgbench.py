"""What the server itself does with the events of runs, if each is a commit of its own: pgbench with
32 clients, one row an event, everything else left out."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.postgres.server import Server, programs

CLIENTS = 32
SECONDS = 4
EVENTS = 5
"""Of a run of three steps."""
DATABASE = "pgbench"
EVENT = '[{"type":"host.success","status":"success","step":"step-1","step_index":1,"host":"local"}]'
TABLE = "create table events (id bigserial primary key, run text, at timestamptz, body text)"
SCRIPT = f"insert into events (run, at, body) values ('run', clock_timestamp(), '{EVENT}');\n"


class Pgbench:
    def __init__(self, server: Server) -> None:
        server.execute(f"create database {DATABASE}")
        server.execute(TABLE, DATABASE)
        self._server = server
        self._script = Path(server.folder, "event.sql")
        self._script.write_text(SCRIPT)
        self._script.chmod(0o644)

    def runs_a_second(self) -> float:
        done = subprocess.run(
            [
                str(programs() / "pgbench"), "-h", "127.0.0.1", "-p", str(self._server.port),
                "-U", "tenure", "-n", "-M", "prepared", "-c", str(CLIENTS), "-j", "2",
                "-T", str(SECONDS), "-f", str(self._script), DATABASE,
            ],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        rate = re.search(r"tps = ([0-9.]+)", done.stdout)
        assert rate is not None, done.stdout
        return float(rate[1]) / EVENTS
