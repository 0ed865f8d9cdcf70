"""The programs of the guides, as they are printed: all of them with one token, against one gateway
as the guides start one."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.free_port import free_port

GUIDES = Path(__file__).resolve().parents[2] / "docs" / "guides"
TENURE = str(Path(sys.executable).with_name("tenure"))

pytestmark = pytest.mark.slow


def printed_program(guide: str) -> str:
    text = (GUIDES / guide).read_text()
    (program,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return str(program)


@pytest.fixture(scope="module")
def environ(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Of a program that has a token."""
    place = f"127.0.0.1:{free_port()}"
    home = tmp_path_factory.mktemp("home")
    plain = {name: value for name, value in os.environ.items() if not name.startswith("TENURE_")}
    environ = {**plain, "HOME": str(home), "TENURE_STORE": f"sqlite:///{home}/runs.db"}
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
        yield {**environ, "TENURE_URL": f"http://{place}", "TENURE_TOKEN": made.stdout.strip()}
    finally:
        up.send_signal(signal.SIGTERM)
        up.communicate(timeout=30)


@pytest.mark.parametrize(
    ("guide", "printed"),
    [
        ("query-over-http.md", "success None\nlocal hello Ada\n\n"),
        (
            "workers-behind-a-firewall.md",
            "run.queued\nrun.running\nrun.success\nlocal hello\n\n",
        ),
        (
            "watch-live.md",
            "executes: name: countdown\n3\n2\n1\nended: run.success\nwaiting: 0\n",
        ),
    ],
)
def test_the_program_of_the_guide_runs(environ: dict[str, str], guide: str, printed: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", printed_program(guide)],
        env=environ, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, printed), done.stderr
