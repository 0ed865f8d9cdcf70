"""Commands on the pages do what the pages show."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.fences import ROOT, Block, blocks


def commands(block: Block) -> Iterator[tuple[str, list[str]]]:
    """Each command with the lines shown below it."""
    for part in re.split(r"^\$ ", block.body, flags=re.MULTILINE)[1:]:
        command, *shown = part.splitlines()
        yield command, [line for line in shown if line.strip()]


def pattern(shown: str) -> re.Pattern[str]:
    words = (re.escape(word).replace("…", ".*") for word in shown.split())
    return re.compile(r"\s*" + r"\s+".join(words) + r"\s*")


def in_order(shown: list[str], output: str) -> str | None:
    """The first line that is missing, if one is."""
    lines = iter(output.splitlines())
    return next((line for line in shown if not any(map(pattern(line).fullmatch, lines))), None)


def printed_by(command: str, home: Path) -> str:
    environment = {
        **{name: value for name, value in os.environ.items() if "TENURE" not in name},
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "XDG_DATA_HOME": str(home),
        "XDG_CONFIG_HOME": str(home),
    }
    ended = subprocess.run(
        ["/bin/sh", "-c", command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
        env=environment,
        timeout=60,
    )
    assert ended.returncode == 0, ended.stdout
    return ended.stdout


@pytest.mark.slow
@pytest.mark.parametrize("block", blocks("console run"), ids=str)
def test_the_commands_print_what_the_page_shows(block: Block, tmp_path: Path) -> None:
    for command, shown in commands(block):
        output = printed_by(command, tmp_path)
        assert in_order(shown, output) is None, output


def without_chance(text: str) -> list[str]:
    """The lines without times, ids, durations and the store's place, in one order."""
    text = re.sub(r"\b\d\d:\d\d:\d\d\b", "TIME", text)
    text = re.sub(r"\b[0-9A-Z]{26}\b", "RUN_ID", text)
    text = re.sub(r"\b\d+(\.\d+)?s\b", "DURATION", text)
    text = re.sub(r"\S+/tenure/runs\.db", "STORE", text)
    return sorted(line for line in text.splitlines() if line.strip())


@pytest.mark.slow
@pytest.mark.parametrize("block", blocks("console capture"), ids=str)
def test_a_capture_is_all_that_the_command_prints(block: Block, tmp_path: Path) -> None:
    ((command, shown),) = commands(block)
    assert without_chance("\n".join(shown)) == without_chance(printed_by(command, tmp_path))


def test_a_line_that_is_not_printed_is_noticed() -> None:
    assert in_order(["b …", "c"], "a\nb  one\nc\n") is None
    assert in_order(["c", "b …"], "a\nb  one\nc\n") == "b …"
    assert in_order(["b"], "a\nb  one\nc\n") == "b"


def test_pages_do_have_commands() -> None:
    assert sum(1 for block in blocks("console run") for _ in commands(block)) > 5
