"""Which control group we are in."""

from __future__ import annotations

import pytest

from tenure.transports.supervisor import cgroups
from tenure.transports.supervisor.cgroups import own_group

MOUNTS = b"""24 1 0:22 / /proc rw - proc proc rw
30 24 0:26 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
31 24 0:27 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
"""


@pytest.mark.parametrize(
    ("groups", "mounts", "home"),
    [
        (b"4:memory:/x\n0::/\n", MOUNTS, "/sys/fs/cgroup/unified"),
        (b"0::/user.slice/a b\n", MOUNTS, "/sys/fs/cgroup/unified/user.slice/a b"),
        (b"0::/pod/x\n", MOUNTS.replace(b"0:26 /", b"0:26 /pod"), "/sys/fs/cgroup/unified/x"),
        (b"0::/pod\n", MOUNTS.replace(b"0:26 /", b"0:26 /pod"), "/sys/fs/cgroup/unified"),
        (b"0::/podium\n", MOUNTS.replace(b"0:26 /", b"0:26 /pod"), None),
        (b"0::/other\n", MOUNTS.replace(b"0:26 /", b"0:26 /pod"), None),
        (b"0::/../outside\n", MOUNTS, None),
        (b"4:memory:/x\n", MOUNTS, None),
        (b"0::/\n", b"", None),
        (b"", b"", None),
    ],
)
def test_which_group_we_are_in(
    monkeypatch: pytest.MonkeyPatch, groups: bytes, mounts: bytes, home: str | None
) -> None:
    files = {b"/proc/self/cgroup": groups, b"/proc/self/mountinfo": mounts}
    monkeypatch.setattr(cgroups, "read", lambda path, most=0: files[path])
    assert own_group() == home
