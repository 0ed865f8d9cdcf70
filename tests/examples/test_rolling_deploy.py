"""The example of a rolling deploy: batch after batch, and no further than its budget."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.examples.running import User, printed, told

FLOW = "examples/rolling_deploy.yaml"


def hosts_of(user: User, step: str) -> dict[str, Any]:
    record = json.loads(user.tenure("status", "latest", "--json").stdout)
    (found,) = [each for each in record["steps"] if each["name"] == step]
    return dict(found["hosts"])


@pytest.mark.slow
def test_rolling_deploy_within_its_budget(user: User) -> None:
    ended = user.tenure("run", FLOW)
    assert (ended.returncode, ended.stderr) == (0, "")
    lines = told(ended.stdout)
    failed = lines.index("release web3 failed exit 1: no answer on port 80")
    assert lines.index("rejoin web2 success") < lines.index("release web4 | installing 1.4")
    assert failed < lines.index("rejoin web4 success")
    assert lines.index("rejoin web4 success") < lines.index("release web5 | installing 1.4")
    said = printed(ended.stdout)
    assert said["rejoin web4"] == ["web4 takes requests again"]
    assert "rejoin web3" not in said
    assert said["announce web1"] == ["release 1.4 is out"]
    hosts = hosts_of(user, "release")
    assert {name: host["status"] for name, host in hosts.items()} == {
        **dict.fromkeys(("web1", "web2", "web4", "web5"), "success"),
        "web3": "failed",
        "web6": "unreachable",
    }
    assert (hosts["web3"]["attempts"], hosts["web4"]["attempts"]) == (2, 1)


@pytest.mark.slow
def test_rolling_deploy_beyond_its_budget(user: User) -> None:
    ended = user.tenure("run", FLOW, "--var", "broken=web2 web3")
    assert ended.returncode == 1
    assert {name: host["status"] for name, host in hosts_of(user, "release").items()} == {
        "web1": "success",
        "web2": "failed",
        "web3": "failed",
        "web4": "success",
        "web5": "skipped",
        "web6": "skipped",
    }
    assert {host["status"] for host in hosts_of(user, "announce").values()} == {"skipped"}
