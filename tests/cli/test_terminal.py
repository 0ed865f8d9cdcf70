"""What a person sees on a terminal."""

from __future__ import annotations

import os
import re
from datetime import datetime

import pytest

from tests.cli.conftest import Cli
from tests.cli.flows import BREAK, GREET, WAIT
from tests.cli.terminal import Terminal

pytestmark = pytest.mark.slow

HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "")


def test_the_live_view_shows_steps_hosts_output_and_place(cli: Cli) -> None:
    gate = cli.home / "gate"
    with Terminal("run", cli.workflow(WAIT), "--var", f"gate={gate}") as terminal:
        terminal.read_until("│")
        picture = plain(terminal.read_until("holding"))
        gate.touch()
        assert terminal.finish() == 0
    everything = plain(terminal.seen)
    assert "● running  wait" in everything
    assert "store ~/.local/share/tenure/runs.db" in everything
    assert "● hold    0/1 · 1 running" in everything
    assert "local │ holding" in everything + picture
    report = everything.rpartition("✓ success  wait")[2]
    assert "✓ hold    1 ok" in report
    assert "\x1b[32m✓ success" in terminal.seen
    assert terminal.seen.count(HIDE_CURSOR) == terminal.seen.count(SHOW_CURSOR)
    assert terminal.seen.rfind(SHOW_CURSOR) > terminal.seen.rfind(HIDE_CURSOR), "left as it was"


def test_ctrl_c_once_cancels_cleanly_and_says_so(cli: Cli) -> None:
    with Terminal("run", cli.workflow(WAIT), "--var", "gate=/nowhere") as terminal:
        terminal.read_until("holding")
        terminal.press("\x03")
        assert terminal.finish() == 3
    assert "⊘ canceled  wait" in plain(terminal.seen)
    assert "canceled with Ctrl-C" in plain(terminal.seen)
    record = cli.call("status", "latest", "--json").json
    assert (record["status"], record["cancel_reason"]) == ("canceled", "canceled with Ctrl-C")
    assert record["unconfirmed_hosts"] == []


def test_a_narrow_and_low_terminal_is_survived(cli: Cli) -> None:
    gate = cli.home / "gate"
    flow = cli.workflow(WAIT.replace("name: hold", f"name: {'long-' * 30}step"))
    with Terminal("run", flow, "--var", f"gate={gate}", columns=24, lines=6) as terminal:
        terminal.read_until("long-")
        terminal.resize(60, 20)
        terminal.read_until("1 running")
        gate.touch()
        assert terminal.finish() == 0


def test_a_chatty_run_is_drawn_at_most_eight_times_a_second(cli: Cli) -> None:
    flow = cli.workflow(
        "version: v1\nname: chatty\nsteps:\n  - name: talk\n    action: cmd.run\n"
        "    args: {cmd: 'for i in $(seq 60); do echo line $i; sleep 0.02; done'}\n"
    )
    with Terminal("run", flow, "--run-id", "my-run-01") as terminal:
        assert terminal.finish() == 0
    record = cli.call("status", "my-run-01", "--json").json
    times = (datetime.fromisoformat(record[name]) for name in ("started_at", "finished_at"))
    began, ended = times
    frames = plain(terminal.seen).count("● talk")
    assert 2 <= frames <= (ended - began).total_seconds() * 8 + 2


def test_a_stopped_terminal_holds_up_no_run(cli: Cli) -> None:
    """Ctrl-S: nobody reads. The run goes on and ends; another process sees it."""
    gate = cli.home / "gate"
    ended = cli.home / "ended"
    flow = cli.workflow(
        WAIT + f"  - {{name: last, action: cmd.run, args: {{cmd: 'touch {ended}'}}}}\n"
    )
    with Terminal("run", flow, "--var", f"gate={gate}") as terminal:
        terminal.read_until("holding")
        terminal.press("\x13")
        gate.touch()
        assert cli.process("watch", "latest", "--json").json_lines[-1]["status"] == "success"
        assert ended.exists()
        terminal.press("\x11")
        assert terminal.finish() == 0


def test_no_color_and_dumb_terminals_are_honoured(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Terminal("run", cli.workflow(GREET), term="dumb") as terminal:
        assert terminal.finish() == 0
    assert "\x1b" not in terminal.seen
    monkeypatch.setenv("NO_COLOR", "1")
    with Terminal("status", "latest") as terminal:
        assert terminal.finish() == 0
    assert "\x1b" not in terminal.seen
    assert "✓ success" in terminal.seen


def test_a_terminal_that_is_not_unicode_gets_plain_signs(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    with Terminal("run", cli.workflow(BREAK)) as terminal:
        assert terminal.finish() == 1
    assert "x failed" in plain(terminal.seen)
    assert terminal.seen.isascii()


def test_raw_output_is_still_made_harmless_on_a_terminal(cli: Cli) -> None:
    flow = cli.workflow(
        "version: v1\nname: evil\nsteps:\n  - name: print\n    action: cmd.run\n"
        "    args: {cmd: \"printf '\\\\033]0;title\\\\007x\\\\n'\"}\n"
    )
    cli.call("run", flow, "-q")
    with Terminal("logs", "latest", "--raw") as terminal:
        assert terminal.finish() == 0
    assert terminal.seen == "x\r\n"
    assert cli.process("logs", "latest", "--raw").out == "\x1b]0;title\x07x\n"


def test_a_secret_is_asked_for_without_showing_it(cli: Cli) -> None:
    flow = cli.workflow(
        "version: v1\nname: s\nsecrets: [token]\n"
        "steps: [{name: use, action: cmd.run, args: {cmd: 'test \"${token}\" = hunter2'}}]"
    )
    with Terminal("run", flow, "--secret", "token") as terminal:
        terminal.read_until("Secret token")
        terminal.press("hunter2\n")
        assert terminal.finish() == 0
    assert "hunter2" not in terminal.seen


def test_a_closed_terminal_cancels_the_run(cli: Cli) -> None:
    terminal = Terminal("run", cli.workflow(WAIT), "--var", "gate=/nowhere")
    terminal.read_until("holding")
    os.close(terminal._master)
    assert terminal.process.wait(30) in (3, -1)
    record = cli.call("status", "latest", "--json").json
    assert record["status"] == "canceled"
    assert record["cancel_reason"] == "canceled because its terminal was closed"
