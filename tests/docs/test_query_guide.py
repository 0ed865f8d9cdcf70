"""The program of the guide, as it is printed, against a gateway as the guide starts one."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "query-over-http.md"
TENURE = str(Path(sys.executable).with_name("tenure"))

pytestmark = pytest.mark.slow


def printed_program() -> str:
    (program,) = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    return str(program)


def test_the_program_of_the_guide_runs(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = "{}:{}".format(*free.getsockname())
    plain = {name: value for name, value in os.environ.items() if not name.startswith("TENURE_")}
    environ = {**plain, "HOME": str(tmp_path), "TENURE_STORE": f"sqlite:///{tmp_path}/runs.db"}
    made = subprocess.run(
        [TENURE, "token", "create", "shop", "--role", "operator"],
        env=environ, capture_output=True, text=True, check=True,
    )  # fmt: skip
    up = subprocess.Popen(
        [TENURE, "up", "--listen", place], env=environ, stderr=subprocess.PIPE, text=True
    )
    try:
        assert up.stderr is not None
        assert place in up.stderr.readline()
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", printed_program()],
            env={**environ, "TENURE_URL": f"http://{place}", "TENURE_TOKEN": made.stdout.strip()},
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert done.stdout == "success None\nlocal hello Ada\n\n"
    finally:
        up.send_signal(signal.SIGTERM)
        up.communicate(timeout=30)
