"""Local tasks in control groups, and the setting that does without."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Cli
from tests.supervisor.grouping import allowed, group_of

WHERE = """
version: v1
name: where
steps:
  - name: look
    action: shell.run
    args: {script: "echo group=$(sed -n s/^0:://p /proc/self/cgroup)"}
"""


@pytest.mark.parametrize("wanted", ["", "no"])
def test_the_setting_decides(cli: Cli, monkeypatch: pytest.MonkeyPatch, wanted: str) -> None:
    monkeypatch.setenv("TENURE_TASK_GROUPS", wanted)
    done = cli.call("run", cli.workflow(WHERE))
    assert done.code == 0, done.err
    [group] = [line.partition("group=")[2] for line in done.out.splitlines() if "group=" in line]
    assert ("-tasks/" in group) is (allowed() and wanted == "")
    assert wanted == "" or group == group_of()
