"""The example with a template: foreseen, written, and left alone when nothing has changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.examples.running import User, printed

FLOW = "examples/render_config.yaml"


@pytest.mark.slow
def test_render_config(user: User, tmp_path: Path) -> None:
    given = ("--var", f"folder={tmp_path}/hosts")
    site = tmp_path / "hosts" / "web2" / "site.conf"

    planned = user.tenure("plan", FLOW, *given)
    assert (planned.returncode, planned.stderr) == (0, "")
    assert "+    server app2.south:8002 backup;" in planned.stdout
    assert not site.exists()

    first = user.tenure("run", FLOW, *given)
    assert first.returncode == 0, first.stdout + first.stderr
    assert printed(first.stdout)["configuration web2"] == [f"wrote {site}, 116 bytes"]
    assert printed(first.stdout)["reload web2"] == ["reloaded web2"]
    assert (site.stat().st_mode & 0o777, site.read_text().splitlines()[:2]) == (
        0o640,
        ["# Shop, south", "worker_processes 4;"],
    )

    again = user.tenure("run", FLOW, *given)
    assert printed(again.stdout).keys() == {"healthy web1", "healthy web2"}
    record = json.loads(user.tenure("status", "latest", "--json").stdout)
    assert [step["hosts"]["web1"]["changed"] for step in record["steps"]] == [False, False, None]

    planned = user.tenure("plan", FLOW, *given, "--var", "workers=8")
    assert "-worker_processes 4;\n      +worker_processes 8;" in planned.stdout
