"""The program of the guide, as it is printed, before a gateway with a worker on its other side."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "workers-behind-a-firewall.md"
TENURE = str(Path(sys.executable).with_name("tenure"))

EXPECTED = "run.queued\nrun.running\nrun.success\nlocal hello\n\n"

pytestmark = pytest.mark.slow


def printed_program() -> str:
    (program,) = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    return str(program)


def test_the_program_of_the_guide_runs_and_the_worker_works(tmp_path: Path) -> None:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("TENURE_")}
    home = {**plain, "HOME": str(tmp_path)}
    store = {**home, "TENURE_STORE": f"sqlite:///{tmp_path}/runs.db"}

    def token(name: str, *more: str) -> str:
        made = subprocess.run(
            [TENURE, "token", "create", name, *more],
            env=store, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return made.stdout.strip()

    site = token("site-7", "--role", "worker", "--queue", "default")
    shop = token("shop", "--role", "operator")
    gateway = subprocess.Popen(
        [TENURE, "gateway", "--listen", "127.0.0.1:0"],
        env=store, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    processes: list[subprocess.Popen[Any]] = [gateway]
    try:
        assert gateway.stderr is not None
        (address,) = re.findall(r"http://\S+\d", gateway.stderr.readline())
        away = {**home, "TENURE_STORE": address, "TENURE_TOKEN": site}
        processes.append(subprocess.Popen([TENURE, "worker", "-q"], env=away))
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", printed_program()],
            env={**home, "TENURE_URL": address, "TENURE_TOKEN": shop},
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (0, EXPECTED), done.stderr
    finally:
        for process in reversed(processes):
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=30)
    assert [process.returncode for process in processes] == [0, 0]
