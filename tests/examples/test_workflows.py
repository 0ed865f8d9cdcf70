"""The YAML examples, run with the command, and what they show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.examples.running import EXAMPLES, User, printed, told

WEB = ("web1", "web2", "web3", "web4")


def record_of(user: User) -> Any:
    return json.loads(user.tenure("status", "latest", "--json").stdout)


@pytest.mark.slow
def test_hello(user: User) -> None:
    ended = user.tenure("run", "examples/hello.yaml")
    assert (ended.returncode, ended.stderr) == (0, "")
    said = printed(ended.stdout)
    for host in WEB:
        assert said[f"unpack {host}"] == ["api from site-1.4.tar", "shop from site-1.4.tar"]
        assert said[f"restart {host}"] == ["restarted api", "restarted shop"]
        assert said[f"check health {host}"][-1] == "healthy, release 1.4"
    assert said["check health web3"][0] == "not yet"
    assert said["announce web4"] == ["zone SOUTH is live"]

    lines = told(ended.stdout)
    assert "announce web1 skipped" in lines
    assert lines[-1] == "run success"
    last_api = max(lines.index(f"unpack {host} | api from site-1.4.tar") for host in WEB)
    first_shop = min(lines.index(f"unpack {host} | shop from site-1.4.tar") for host in WEB)
    assert last_api < lines.index("restart running") < first_shop

    record = record_of(user)
    hosts = {step["name"]: step["hosts"] for step in record["steps"]}
    assert hosts["check health"]["web3"]["attempts"] == 2
    assert hosts["compile"]["build"]["vars"] == {"PACKAGE": "site-1.4.tar"}
    assert len(hosts["unpack"]["web1"]["items"]) == 2


@pytest.mark.slow
def test_fan_out_with_exports(user: User) -> None:
    ended = user.tenure("run", "examples/fan_out_with_exports.yaml")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    said = printed(ended.stdout)
    assert said == {
        "store data node2": ["node2 has 125 GB free and takes the data"],
        "report lead": ["node2: 125 GB", "node1: 60 GB", "node3: 40 GB"],
    }
    measured = record_of(user)["steps"][0]
    assert "different values of FREE" in measured["message"]
    assert "UNIT" not in measured["message"]


@pytest.mark.slow
def test_needs(user: User) -> None:
    ended = user.tenure("run", "examples/needs.yaml")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    lines = told(ended.stdout)

    def at(line: str) -> int:
        return lines.index(line)

    assert at("certificates running") < at("fetch success")
    assert at("fetch success") < at("lint running") < at("compile success")
    assert at("compile running") < lines.index(
        "lint failed failed on local: exit 1: line 7: too long"
    )
    assert max(at("compile success"), at("certificates success")) < at("package running")
    assert printed(ended.stdout)["package local"] == ["packaged 7f3a, certificate valid"]
    assert at("tell success") < at("run success")
    assert record_of(user)["last_error"]["step"] == "lint"


@pytest.mark.slow
def test_pull_the_plug(user: User) -> None:
    killed = user.tenure("run", "examples/pull_the_plug.yaml")
    assert killed.returncode == 137
    assert "is gone" in user.tenure("explain", "latest").stdout

    assert user.tenure("reconcile").returncode == 0
    record = record_of(user)
    assert (record["status"], record["interrupted_reason"]) == ("interrupted", "its owner is gone")
    statuses = [(step["name"], step["status"]) for step in record["steps"]]
    assert statuses == [
        ("work", "success"),
        ("crash", "interrupted"),
        ("never reached", "interrupted"),
    ]
    assert record["steps"][0]["hosts"]["local"]["vars"] == {"RESULT": "42"}


@pytest.mark.slow
def test_any_further_run_tells_what_happened_to_the_killed_one(user: User) -> None:
    user.tenure("run", "examples/pull_the_plug.yaml", "--run-id", "plug-0001")
    user.tenure("run", "examples/needs.yaml")
    found = json.loads(user.tenure("status", "plug-0001", "--json").stdout)
    assert found["status"] == "interrupted"


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_it_can_be_validated_without_running_it(user: User, path: Any) -> None:
    checked = user.tenure("validate", f"examples/{path.name}")
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_example_is_named_in_a_test() -> None:
    here = EXAMPLES.parent / "tests" / "examples"
    tests = "".join(path.read_text() for path in here.glob("test_*.py"))
    names = {path.stem for path in EXAMPLES.iterdir() if path.suffix in (".py", ".yaml")}
    assert len(names) >= 8
    assert sorted(name for name in names if name not in tests) == []


@pytest.mark.slow
def test_approval(user: User) -> None:
    waits = user.tenure("run", "examples/approval.yaml")
    assert waits.returncode == 7
    assert "tenure approve" in waits.stdout
    waiting = record_of(user)
    assert (waiting["status"], waiting["owner_id"], waiting["fence"]) == ("queued", None, 0)
    approved = user.tenure("approve", "latest", "--by", "ada", "--note", "change OPS-42")
    assert approved.returncode == 0, approved.stdout + approved.stderr
    assert printed(approved.stdout) == {"deploy local": ["deployed"]}
    record = record_of(user)
    assert (record["run_id"], record["status"]) == (waiting["run_id"], "success")
    assert (record["approval"]["by"], record["approval"]["note"]) == ("ada", "change OPS-42")


@pytest.mark.slow
def test_retry(user: User, tmp_path: Path) -> None:
    room = tmp_path / "room"
    failed = user.tenure("run", "examples/retry.yaml", "--var", f"room={room}")
    assert failed.returncode == 1
    old = record_of(user)
    package = old["steps"][0]["hosts"]["web1"]["vars"]["PACKAGE"]
    assert printed(failed.stdout)["install web3"] == [f"installed {package}"]
    room.touch()
    retried = user.tenure("retry", "latest")
    assert retried.returncode == 0, retried.stdout + retried.stderr
    assert printed(retried.stdout) == {
        "reload web1": ["reloaded"],
        "reload web3": ["reloaded"],
        "install web2": [f"installed {package}"],
        "reload web2": ["reloaded"],
        **{f"restart {host}": ["restarted"] for host in ("web1", "web2", "web3")},
    }
    record = record_of(user)
    assert (record["status"], record["retry_of"]) == ("success", old["run_id"])
    nothing = user.tenure("retry", "latest")
    assert nothing.returncode == 7
    assert "leaves nothing to retry" in nothing.stderr
