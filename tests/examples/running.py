"""Running examples as a user would, with a store of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
TENURE = str(Path(sys.executable).with_name("tenure"))


class User:
    """Somebody in the repository's folder, whose runs are kept in ``home``."""

    def __init__(self, home: Path) -> None:
        self.environment = {
            **{name: value for name, value in os.environ.items() if "TENURE" not in name},
            "XDG_DATA_HOME": str(home),
            "XDG_CONFIG_HOME": str(home),
        }

    def types(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, capture_output=True, text=True, cwd=ROOT, env=self.environment, timeout=60
        )

    def tenure(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.types(TENURE, *arguments)

    def python(self, *arguments: str) -> str:
        """What it prints; it must end well and complain about nothing."""
        ended = self.types(sys.executable, "-W", "error", *arguments)
        assert (ended.returncode, ended.stderr) == (0, "")
        return ended.stdout


def told(output: str) -> list[str]:
    """The lines a run printed, without the time of day and with single spaces."""
    timed = (re.fullmatch(r"\d\d:\d\d:\d\d +(.*)", line) for line in output.splitlines())
    return [" ".join(line[1].split()) for line in timed if line]


def printed(output: str) -> dict[str, list[str]]:
    """What tasks printed, by ``step host``."""
    by_place: dict[str, list[str]] = {}
    for line in told(output):
        place, bar, text = line.partition(" | ")
        if bar:
            by_place.setdefault(place, []).append(text)
    return by_place
