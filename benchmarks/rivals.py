"""What a rival does in the same run: DBOS, in an environment of its own, made when first asked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.postgres.server import Server

VERSION = "3.3.0"
WORKFLOWS = 200
AT_ONCE = 20
"""With more of them it gets slower."""
ENVIRONMENT = Path(sys.prefix, "rivals", f"dbos-{VERSION}")


def dbos_rate(server: Server) -> float:
    """Workflows of three steps a second."""
    server.execute("create database dbos")
    program = Path(__file__).with_name("dbos_process.py")
    arguments = [server.url("dbos"), str(WORKFLOWS), str(AT_ONCE)]
    done = subprocess.run(
        [_python(), program, *arguments], check=True, capture_output=True, text=True
    )
    return float(done.stdout)


def _python() -> Path:
    python = ENVIRONMENT / "bin" / "python"
    ready = ENVIRONMENT / ".ready"
    if not ready.exists():
        subprocess.run([sys.executable, "-m", "venv", ENVIRONMENT], check=True)
        subprocess.run(
            [python, "-m", "pip", "install", "--quiet", f"dbos=={VERSION}", "psycopg[binary]"],
            check=True,
            capture_output=True,
        )
        ready.touch()
    return python
