"""The command in a home of its own: called here, or as a process like everybody's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tenure.cli.entry import main
from tests.cli.hooks import SECRET, Hook, listening

NOTHING_TO_RECONCILE = {
    "interrupted": 0,
    "run_ids": [],
    "canceled": [],
    "expired": [],
    "left_to_workers": 0,
}
TENURE = str(Path(sys.executable).with_name("tenure"))


class Answer(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def json_lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


class Cli:
    """``call`` runs the command in this process, which is quick; ``start`` in one of its own."""

    def __init__(
        self, home: Path, monkeypatch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[str]
    ) -> None:
        self.home = home
        self.folder = home / "work"
        self._monkeypatch = monkeypatch
        self._capture = capture
        self._started: list[subprocess.Popen[str]] = []

    def call(self, *arguments: str) -> Answer:
        self._monkeypatch.setattr(sys, "argv", ["tenure", *arguments])
        self._capture.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        said = self._capture.readouterr()
        return Answer(int(ended.value.code or 0), said.out, said.err)

    def workflow(self, text: str, name: str = "flow.yaml") -> str:
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def process(self, *arguments: str, stdin: str | None = None) -> Answer:
        done = subprocess.run(
            [TENURE, *arguments], input=stdin, capture_output=True, text=True, timeout=60
        )
        return Answer(done.returncode, done.stdout, done.stderr)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [TENURE, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self._started.append(process)
        return process

    def close(self) -> None:
        for process in self._started:
            process.kill()
            process.communicate()


@pytest.fixture
def cli(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Cli]:
    for name in list(os.environ):
        if name.startswith(("TENURE_", "XDG_")) or name == "PYTHONUNBUFFERED":
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TENURE_LISTEN", "127.0.0.1:0")  # many tests at once, many gateways
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    here = Cli(tmp_path, monkeypatch, capsys)
    yield here
    here.close()


@pytest.fixture
def hook(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hook]:
    """A receiver of callbacks on this machine. One attempt, so that a failure is final at once."""
    monkeypatch.setenv("TENURE_CALLBACK_ALLOW_PRIVATE", "true")
    monkeypatch.setenv("TENURE_CALLBACK_ATTEMPTS", "1")
    monkeypatch.setenv("TENURE_HOOK_SHOP", SECRET)
    with listening() as hook:
        yield hook


def read_until(process: subprocess.Popen[str], words: str) -> list[str]:
    """Lines of its output up to the one with ``words``."""
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line.rstrip("\n"))
        if words in line:
            return lines
    raise AssertionError(f"{words!r} never came: {lines}")


def finish(process: subprocess.Popen[str]) -> Answer:
    out, err = process.communicate(timeout=60)
    return Answer(process.returncode, out, err)
