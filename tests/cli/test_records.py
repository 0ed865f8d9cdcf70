"""``list``, ``status``, ``explain``, ``logs``, ``cancel``, ``annotate``: of runs that ended."""

from __future__ import annotations

import json
import shlex

import pytest

from tests.cli.conftest import Cli
from tests.cli.flows import BREAK, GREET

pytestmark = pytest.mark.slow


@pytest.fixture
def history(cli: Cli) -> Cli:
    """Two runs: ``greet-run`` succeeded, then ``break-run`` failed."""
    cli.call("run", cli.workflow(GREET), "-q", "--run-id", "greet-run", "--label", "env=prod")
    cli.call("run", cli.workflow(BREAK, "break.yaml"), "-q", "--run-id", "break-run")
    return cli


# -- list -----------------------------------------------------------------------------------------


def test_runs_are_listed_newest_first_in_80_columns(history: Cli) -> None:
    title, *rows = history.call("list").out.splitlines()
    assert title.split() == ["RUN", "STATUS", "WORKFLOW", "TASKS", "TOOK", "CREATED"]
    assert [row.split()[0] for row in rows] == ["break-run", "greet-run"]
    assert "✗ failed" in rows[0]
    assert "1/4 ✗1" in rows[0]
    assert "✓ success" in rows[1]
    assert "3/3" in rows[1]
    assert max(map(len, [title, *rows])) <= 80


@pytest.mark.parametrize("columns", [80, 56])
def test_long_names_give_way_to_the_terminal(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    flow = cli.workflow(BREAK.replace("name: break", f"name: {'very-long-' * 9}name"))
    cli.call("run", flow, "-q")
    title, row = cli.call("list").out.splitlines()
    assert max(len(title), len(row)) <= columns
    assert "very-" in row
    assert ("TOOK" in title) is (columns > 64)


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        (["--status", "failed", "--status", "success"], ["break-run", "greet-run"]),
        (["--workflow", "greet"], ["greet-run"]),
        (["--label", "team=web", "--label", "env=prod"], ["greet-run"]),
        (["--since", "1h"], ["break-run", "greet-run"]),
        (["--since", "2099-01-01"], []),
        (["--limit", "1"], ["break-run"]),
    ],
    ids=" ".join,
)
def test_lists_can_be_filtered(history: Cli, filters: list[str], found: list[str]) -> None:
    runs = history.call("list", "--json", *filters).json["runs"]
    assert [run["run_id"] for run in runs] == found


def test_a_list_is_continued_by_its_cursor(history: Cli) -> None:
    first = history.call("list", "--limit", "1")
    cursor = first.err.split("--cursor ")[1].strip()
    rest = history.call("list", "--limit", "1", "--cursor", cursor)
    assert "greet-run" in rest.out
    assert rest.err == ""
    assert history.call("list", "--limit", "1", "--json").json["cursor"] == cursor
    refused = history.call("list", "--cursor", "made-up")
    assert refused.code == 2
    assert "start again without --cursor" in refused.err


# -- status ---------------------------------------------------------------------------------------


def test_status_shows_steps_and_what_went_wrong(history: Cli) -> None:
    shown = history.call("status", "break-run")
    assert shown.code == 0
    head, *lines = shown.out.splitlines()
    assert head.startswith("✗ failed  break  in ")
    assert "  run       break-run" in lines
    assert any(line.startswith("  ✗ fragile    1 ok · 1 failed") for line in lines)
    assert "  – never      not started" in lines
    assert "    b  exit 1: it broke" in lines
    assert "  all of its output: tenure logs break-run fragile b" in lines


@pytest.mark.parametrize(
    "arguments",
    [
        ["status", "no-such-run"],
        ["watch", "no-such-run"],
        ["logs", "no-such-run"],
        ["explain", "no-such-run"],
        ["cancel", "no-such-run"],
        ["annotate", "no-such-run", "a=b"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_run_that_is_not_there_exits_with_5(history: Cli, arguments: list[str]) -> None:
    refused = history.call(*arguments)
    assert refused.code == 5
    assert refused.err.startswith("Error: no run ")
    assert "tenure list" in refused.err


@pytest.mark.parametrize("verb", ["status", "watch", "logs", "explain", "cancel", "annotate"])
@pytest.mark.parametrize("word", ["x", "no such\x1b[31m run"])
def test_what_can_be_no_run_id_exits_with_2_and_the_rule(
    history: Cli, verb: str, word: str
) -> None:
    refused = history.call(verb, "--", word, *(["a=b"] if verb == "annotate" else []))
    assert refused.code == 2
    assert "use 8-128 characters, the first a letter or digit" in refused.err
    assert "`tenure list` shows the runs there are" in refused.err
    assert "\x1b[31m" not in refused.err


# -- acting on ended runs -------------------------------------------------------------------------


def test_annotations_are_kept_and_shown(history: Cli) -> None:
    done = history.call("annotate", "greet-run", "ticket=OPS-42", "cost:=1.5", "--by", "ann")
    assert done.code == 0
    assert "1 annotation now" in done.out
    record = history.call("annotate", "greet-run", "again=yes", "--json").json
    assert [note["data"] for note in record["annotations"]] == [
        {"ticket": "OPS-42", "cost": 1.5},
        {"again": "yes"},
    ]
    assert record["status"] == "success"
    assert "ticket=OPS-42 cost=1.5 (ann)" in history.call("status", "greet-run").out


# -- logs -----------------------------------------------------------------------------------------


def test_lines_say_whose_they_are_where_several_speak(history: Cli) -> None:
    assert history.call("logs", "greet-run").out.splitlines() == [
        "hello a | hello world from a",
        "hello b | hello world from b",
        "bye a   | bye",
    ]
    assert history.call("logs", "greet-run", "hello").out.splitlines() == [
        "a | hello world from a",
        "b | hello world from b",
    ]
    assert history.call("logs", "greet-run", "hello", "a").out == "hello world from a\n"
    assert history.call("logs", "greet-run", "1", "a").out == "bye\n"


def test_streams_can_be_told_apart(history: Cli) -> None:
    assert history.call("logs", "latest", "fragile", "b").out == "trying\nit broke\n"
    only = history.call("logs", "latest", "fragile", "b", "--stream", "stderr")
    assert only.out == "it broke\n"
    lines = history.call("logs", "latest", "fragile", "b", "--json").json_lines
    assert [(line["stream"], line["line"]) for line in lines] == [
        ("stdout", "trying"),
        ("stderr", "it broke"),
    ]
    assert {"step", "step_index", "host", "item", "attempt"} <= lines[0].keys()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["helo"], "did you mean 'hello'?"),
        (["hello", "c"], "no host 'c' in hello; there are: a, b"),
        (["hello", "--attempt", "2"], "there was no attempt 2; the newest is 1"),
        (["hello", "--item", "0"], "there is no item 0; nothing here is a loop"),
    ],
)
def test_a_step_or_host_that_is_not_there_exits_with_5(
    history: Cli, arguments: list[str], said: str
) -> None:
    refused = history.call("logs", "greet-run", *arguments)
    assert refused.code == 5
    assert said in refused.err


def test_attempts_and_items_can_be_chosen(cli: Cli) -> None:
    flow = cli.workflow(
        "version: v1\nname: loops\nsteps:\n"
        "  - {name: try, action: cmd.run, retries: 2, continue_on_error: true,\n"
        "     args: {cmd: 'echo attempt $TENURE_TASK_ID; false'}}\n"
        "  - {name: each, action: cmd.run, loop: [x, y], args: {cmd: 'echo item ${item}'}}\n"
    )
    assert cli.call("run", flow, "-q").code == 0
    newest = cli.call("logs", "latest", "try").out
    assert newest.count("attempt") == 1
    assert newest.strip().endswith(":3")
    assert cli.call("logs", "latest", "try", "--attempt", "1").out.strip().endswith(":1")
    assert cli.call("logs", "latest", "each").out == "[0] | item x\n[1] | item y\n"
    assert cli.call("logs", "latest", "each", "--item", "1").out == "[1] | item y\n"
    assert "there is no item 2; there are 0 to 1" in cli.call("logs", "latest", "--item", "2").err
    assert "the newest is 3" in cli.call("logs", "latest", "try", "--attempt", "4").err


def test_output_that_is_no_text_is_replaced_unless_it_is_wanted_raw(cli: Cli) -> None:
    flow = cli.workflow(
        "version: v1\nname: bytes\nsteps:\n"
        "  - {name: print, action: cmd.run,\n"
        "     args: {cmd: \"printf '\\\\377\\\\033[2Jx\\\\n'\"}}\n"
    )
    assert cli.call("run", flow, "-q").code == 0
    assert cli.call("logs", "latest").out == "�x\n"
    assert json.loads(cli.call("logs", "latest", "--json").out)["line"] == "�\x1b[2Jx"


def test_a_store_without_output_shows_what_the_record_has(cli: Cli) -> None:
    store = f"file://{cli.home}/runs"
    assert cli.call("run", cli.workflow(GREET), "-q", "--store", store).code == 0
    shown = cli.call("logs", "latest", "hello", "--store", store)
    assert shown.code == 0
    assert shown.out == "a | hello world from a\nb | hello world from b\n"
    assert "keeps no full output" in shown.err


def test_a_printed_command_reaches_the_store_that_was_named(cli: Cli) -> None:
    store = ("--store", f"sqlite:///{cli.home}/else where.db")
    failed = cli.call("run", cli.workflow(BREAK), *store)
    (logs, retry) = [
        line.partition(": tenure ")[2] for line in failed.out.splitlines() if ": tenure " in line
    ]
    assert "it broke" in cli.call(*shlex.split(logs)).out
    assert cli.call(*shlex.split(retry)).code == 1
    queued = cli.call("submit", cli.workflow(GREET), *store)
    assert f"tenure worker --store '{store[1]}'" in queued.err
    unknown = cli.call("status", "no-such-run", *store)
    assert f"`tenure list --store '{store[1]}'`" in unknown.err
    assert "--store" not in cli.call("run", cli.workflow(BREAK)).out
