"""How large the house may be. Numbers fall by themselves; raising one is a decision.

To raise one: change it in ``BUDGETS``, in the commit that needs it, and say there what a user gets
for it. A review may ask for something else to go first. Fallen by a tenth or more: lower it.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
LENGTHS = {path: len(path.read_text().splitlines()) for path in SOURCES}
KIT = ROOT / "src" / "tenure" / "testing"
TEXTS = [*SOURCES, *(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CHANGELOG.md"]
PARABLE = re.compile(r"\b(who|whoever|nobody|somebody)\b", re.IGNORECASE)

ECHO = """
version: v1
name: echo
inventory: {hosts: {local: {address: local}}}
steps: [{name: echo, action: cmd.run, args: {cmd: echo hello}}]
"""
RUN = """
import sys
from tenure.cli.entry import main

sys.argv = ["tenure", "run", "-q", "--store", "memory:", "echo.yaml"]
try:
    main()
except SystemExit as ended:
    assert not ended.code, ended.code
names = [name for name in sys.modules if name.partition(".")[0] == "tenure"]
print("modules", len(names))
"""


def modules_of_one_echo(folder: Path) -> int:
    folder.joinpath("echo.yaml").write_text(ECHO)
    done = subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split()[-1])


MEASURED: dict[str, Callable[[Path], int]] = {
    "files in src": lambda _: len(SOURCES),
    "lines in src": lambda _: sum(LENGTHS.values()),
    "lines in src/tenure/testing": lambda _: sum(
        length for path, length in LENGTHS.items() if path.is_relative_to(KIT)
    ),
    "lines of the longest file": lambda _: max(LENGTHS.values()),
    "lines in tests": lambda _: sum(
        len(path.read_text().splitlines()) for path in (ROOT / "tests").rglob("*.py")
    ),
    "modules imported by `tenure run` of one echo": modules_of_one_echo,
    "modules named by a gerund": lambda _: sum(path.stem.endswith("ing") for path in SOURCES),
    "who, whoever, nobody, somebody": lambda _: sum(
        len(PARABLE.findall(path.read_text())) for path in TEXTS
    ),
}
BUDGETS = {
    "files in src": 272,
    "lines in src": 67_800,
    "lines in src/tenure/testing": 10_450,
    "lines of the longest file": 900,
    "lines in tests": 56_200,
    "modules imported by `tenure run` of one echo": 136,
    "modules named by a gerund": 7,
    "who, whoever, nobody, somebody": 7,
}


@pytest.mark.parametrize("what", BUDGETS)
def test_the_house_keeps_to_its_budget(what: str, tmp_path: Path) -> None:
    found = MEASURED[what](tmp_path)
    assert found <= BUDGETS[what], (
        f"{what}: {found}, and the budget is {BUDGETS[what]}. Let something else go; or raise the "
        f"number in {Path(__file__).name}, and tell the review what a user gets for it."
    )


def test_every_budget_is_measured() -> None:
    assert BUDGETS.keys() == MEASURED.keys()
