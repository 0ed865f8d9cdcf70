"""``tenure run``: what is executed, what is printed, what remains."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.cli.flows import BREAK, GREET, WAIT

pytestmark = pytest.mark.slow


def test_a_run_ends_with_success_and_lines_that_say_so(cli: Cli) -> None:
    done = cli.call("run", cli.workflow(GREET), "--run-id", "my-run-01")
    assert done.code == 0
    lines = [line.partition("  ")[2] for line in done.out.splitlines()]
    assert lines[0] == "run my-run-01 of greet, store ~/.local/share/tenure/runs.db"
    assert "hello  a  | hello world from a" in lines
    assert "hello  b  success" in lines
    assert "run success" in lines
    assert done.out.splitlines()[-1].startswith("✓ success  greet  in ")
    assert done.err == ""


def test_a_failed_run_names_hosts_words_and_where_to_look(cli: Cli) -> None:
    done = cli.call("run", cli.workflow(BREAK), "--run-id", "my-run-01")
    assert done.code == 1
    report = done.out.partition("✗ failed  break")[2]
    assert "fragile failed on 1 of 2 hosts" in report
    assert "b  exit 1: it broke" in report
    assert "tenure logs my-run-01 fragile b" in report


def test_json_is_one_line_per_event_and_the_final_record(cli: Cli) -> None:
    done = cli.call("run", cli.workflow(BREAK), "--json", "--run-id", "my-run-01")
    assert done.code == 1
    *events, record = done.json_lines
    assert [event["type"] for event in events][:3] == ["run.queued", "run.running", "step.running"]
    assert events[-1]["type"] == "run.failed"
    positions = [(event["version"], event["seq"]) for event in events]
    assert positions == sorted(positions)
    assert {"run_id", "at", "fence", "step", "host", "message", "error"} <= events[0].keys()
    assert record["run_id"] == "my-run-01"
    assert record["status"] == "failed"
    assert record["steps"][0]["hosts"]["b"]["exit_code"] == 1
    assert record["steps"][1]["status"] == "skipped"
    assert cli.call("status", "my-run-01", "--json").json == record


PRINTS = """
version: v1
name: prints
steps: [{name: call, action: python.call, args: {function: "printing_things:tell"}}]
"""


@pytest.mark.parametrize("style", ["--json", "--quiet"])
def test_what_a_function_prints_is_not_among_the_answers(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, style: str
) -> None:
    (tmp_path / "printing_things.py").write_text("def tell(): print('by the way')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    done = cli.call("run", cli.workflow(PRINTS), style)
    assert (done.code, done.err) == (0, "by the way\n")
    if style == "--json":
        assert done.json_lines[-1]["status"] == "success"
    else:
        assert done.out == ""


def test_quiet_says_nothing_unless_something_goes_wrong(cli: Cli) -> None:
    assert cli.call("run", cli.workflow(GREET), "--quiet") == (0, "", "")
    broken = cli.call("run", cli.workflow(BREAK), "-q")
    assert (broken.code, broken.out) == (1, "")
    assert "fragile failed on 1 of 2 hosts" in broken.err


def test_variables_come_from_files_and_flags(cli: Cli) -> None:
    (cli.folder / "vars.json").write_text('{"who": "file"}')
    flow = cli.workflow(GREET)
    done = cli.call("run", flow, "--vars-file", "vars.json")
    assert "hello file from a" in done.out
    done = cli.call("run", flow, "--vars-file", "vars.json", "--var", "who=flag", "--json")
    record = done.json_lines[-1]
    assert record["vars"]["who"] == "flag"
    assert record["steps"][0]["hosts"]["a"]["stdout"] == "hello flag from a\n"


def test_a_variable_is_text_or_json_and_the_last_one_counts(cli: Cli) -> None:
    given = ("a=b=c", "b=", "c=:=", "d=1", "older-name=x", "n:=1.5", 't:="1"', "y:=null", "who=1")
    options = [word for each in (*given, 'who:=["x", 1]') for word in ("--var", each)]
    done = cli.call("run", cli.workflow(GREET), "--json", *options)
    assert done.json_lines[-1]["vars"] == {
        "a": "b=c", "b": "", "c": ":=", "d": "1", "older-name": "x",
        "n": 1.5, "t": "1", "y": None, "who": ["x", 1],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"- a\n- b\n", "map of variables"),
        (b"x: [1", "vars.yaml:"),
        (b"x: 1\nx: 2\n", "vars.yaml:2:"),
        (b"fine: 1\n'b c': 2\n", "vars.yaml:2:1: 'b c' is no name of a variable"),
        (b"\xff\xfe\x00", "not UTF-8"),
    ],
)
def test_wrong_files_of_variables_are_named(cli: Cli, content: bytes, said: str) -> None:
    (cli.folder / "vars.yaml").write_bytes(content)
    refused = cli.call("run", cli.workflow(GREET), "--vars-file", "vars.yaml")
    assert refused.code == 2
    assert said in refused.err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read"),
        (b"\xff", "not text"),
        (b"x" * (1 << 21), "1 MiB"),
        (b"\n", "secret is empty"),
    ],
)
def test_wrong_secret_files_are_named(cli: Cli, content: bytes | None, said: str) -> None:
    if content is not None:
        (cli.folder / "secret").write_bytes(content)
    refused = cli.call("run", cli.workflow(TOKEN), "--secret", "tok=@secret")
    assert refused.code == 2
    assert said in " ".join(refused.err.split())


def test_an_empty_variable_holds_no_secret(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_SECRET_TOK", "")
    refused = cli.call("run", cli.workflow(TOKEN))
    assert refused.code == 2
    assert "TENURE_SECRET_TOK is empty" in " ".join(refused.err.split())


def test_labels_limit_and_timeout_are_recorded(cli: Cli) -> None:
    done = cli.call(
        *("run", cli.workflow(GREET), "--json", "--label", "ticket=OPS-1"),
        *("--limit", "b,", "--timeout", "1h30m"),
    )
    record = done.json_lines[-1]
    assert record["labels"] == {"team": "web", "ticket": "OPS-1"}
    assert record["timeout"] == 5400
    assert [list(step["hosts"]) for step in record["steps"]] == [["b"], []]


def test_local_puts_every_host_on_this_machine(cli: Cli) -> None:
    flow = cli.workflow(GREET.replace("address: local", "address: 'ssh://nowhere.invalid'"))
    assert cli.call("run", flow, "--local", "-q").code == 0
    remote = cli.call("run", flow, "--json")
    assert remote.code == 1
    assert remote.json_lines[-1]["steps"][0]["hosts"]["a"]["status"] == "unreachable"


def test_a_secret_reaches_the_task_and_never_the_record(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = cli.workflow(
        "version: v1\nname: s\nsecrets: [token]\n"
        "steps: [{name: use, action: cmd.run, args: {cmd: 'test \"${token}\" = hunter2'}}]"
    )
    monkeypatch.setenv("TENURE_SECRET_TOKEN", "hunter2")
    assert cli.call("run", flow, "-q").code == 0
    (cli.folder / "token").write_text("hunter2\n")
    monkeypatch.delenv("TENURE_SECRET_TOKEN")
    done = cli.call("run", flow, "--secret", "token=@token", "--json")
    assert done.code == 0
    assert "hunter2" not in done.out
    for option, value in (("--secret", "token=hunter2"), ("--var", 'token:="hunter2"')):
        refused = cli.call("run", flow, option, value)
        assert refused.code == 2
        assert "every user of this machine" in " ".join(refused.err.split())
        assert "hunter2" not in refused.err


def test_a_short_secret_is_warned_of_once_and_masks_all_the_same(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = cli.workflow(
        "version: v1\nname: s\nsecrets: [pw]\n"
        "steps: [{name: use, action: cmd.run, args: {cmd: 'exit 1'}}]"
    )
    monkeypatch.setenv("TENURE_SECRET_PW", "x")
    done = cli.call("run", flow)
    assert done.err.count("warning: the secret pw has fewer than 4 characters: ") == 1
    assert "e***it 1" in done.out


def test_without_tracking_nothing_is_kept(cli: Cli) -> None:
    done = cli.call("run", cli.workflow(GREET), "--no-tracking", "--json")
    assert done.code == 0
    assert done.json_lines[-1]["status"] == "success"
    assert not (cli.home / ".local").exists()


def test_a_run_that_takes_too_long_fails(cli: Cli) -> None:
    done = cli.call("run", cli.workflow(WAIT), "--var", "gate=/nowhere", "--timeout", "200ms")
    assert done.code == 1
    assert "timed out after 200ms" in done.out


def test_the_store_is_where_flag_variable_or_file_say(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = cli.workflow(GREET)
    cli.call("run", flow, "-q", "--store", "sqlite:///flag.db")
    monkeypatch.setenv("TENURE_STORE", "sqlite:///variable.db")
    cli.call("run", flow, "-q")
    monkeypatch.delenv("TENURE_STORE")
    (cli.folder / "tenure.toml").write_text('store = "sqlite:///file.db"')
    cli.call("run", flow, "-q")
    for name in ("flag", "variable", "file"):
        assert (cli.folder / f"{name}.db").exists()
        assert len(cli.call("list", "--json", "--store", f"sqlite:///{name}.db").json["runs"]) == 1
    assert not (cli.home / ".local").exists()


# -- what is refused ------------------------------------------------------------------------------


def test_every_mistake_is_shown_with_its_place(cli: Cli) -> None:
    flow = cli.workflow(
        "version: v1\nname: x\nsteps:\n  - name: a\n    action: cmd.rum\n    timeoot: 3s\n"
    )
    refused = cli.call("run", flow)
    assert refused.code == 2
    assert f"{flow}:5:13: steps[0].action:" in refused.err
    assert f"{flow}:6:5:" in refused.err
    assert "Error: " in refused.err
    assert "nothing was executed" in refused.err
    assert refused.out == ""
    assert not (cli.home / ".local").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["folw.yaml"], "No such file or directory; did you mean 'flow.yaml'?"),
        (["no/flow.yaml"], "No such file or directory; there is no folder no; you are in /"),
        (["flow.yaml", "--run-id", "x"], "run_id 'x' is not allowed"),
        (
            ["flow.yaml", "--limit", "nobody"],
            '--limit: there is no host or group "nobody"; there are: a, b',
        ),
        (["wide.yaml", "--limit", "a,wbe1"], "\"wbe1\"; did you mean 'web1'?"),
        (["flow.yaml", "--limit", ""], "names no host"),
        (["flow.yaml", "--var", "a b=3"], "--var: 'a b' is no name of a variable"),
        (["flow.yaml", "--var", "who:={"], "--var: who: '{' is not JSON"),
        (["flow.yaml", "--var", "who=\udcff"], "--var: who: the value is not UTF-8 text"),
        (["flow.yaml", "--var", "who:=NaN"], "--var: who: 'NaN' is not JSON"),
        (["flow.yaml", "--var", "1st=x"], "--var: '1st' is no name of a variable"),
        (["flow.yaml", "--var", "=x"], "neither name=text nor name:=JSON"),
        (["flow.yaml", "--var", "novalue"], "neither name=text nor name:=JSON"),
        (["flow.yaml", "--label", "x"], "key=value"),
        (["flow.yaml", "--secret", "nobody"], "nobody is not among the secrets of this workflow"),
        (["."], "cannot be read: Is a directory; name a file in it: flow.yaml, wide.yaml"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_input_exits_with_2_and_executes_nothing(
    cli: Cli, arguments: list[str], said: str
) -> None:
    cli.workflow(GREET.replace("echo bye", f"touch {cli.home}/executed"))
    cli.workflow(GREET.replace("b: {", "web1: {"), "wide.yaml")
    refused = cli.call("run", *arguments)
    assert refused.code == 2
    assert said in refused.err
    assert "Traceback" not in refused.err
    assert not Path(cli.home / "executed").exists()


def test_a_store_that_cannot_be_used_exits_with_6(cli: Cli) -> None:
    (cli.folder / "notes.db").write_text("this is no database, and long enough to be read as one")
    for url in ("sqlite:///notes.db", "sqlite:////proc/none/runs.db"):
        refused = cli.call("run", cli.workflow(GREET), "--store", url)
        assert refused.code == 6, refused
        assert refused.err.startswith("Error: ")
        assert "tenure doctor" in refused.err
        assert "Traceback" not in refused.err


PLANTED = "Zqplantedsecret7"
TOKEN = """
version: v1
name: token
secrets: [tok]
steps: [{name: go, action: cmd.run, args: {cmd: "true"}}]
"""


@pytest.mark.parametrize("from_file", [False, True])
def test_a_secret_in_another_variable_or_a_label_is_refused_and_kept_nowhere(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, from_file: bool
) -> None:
    monkeypatch.setenv("TENURE_SECRET_TOK", PLANTED)
    more = cli.home / "more.yaml"
    more.write_text(f"url: http://u:{PLANTED}@h\n")
    given = ["--vars-file", str(more)] if from_file else ["--var", f"url=http://u:{PLANTED}@h"]
    given += ["--label", f"l={PLANTED}", "--secret", "tok"]
    refused = cli.call("run", cli.workflow(TOKEN), *given, "--run-id", "my-run-01")
    assert refused.code == 2
    assert "variable url: the value of the secret tok is in it" in refused.err
    assert "label l: the value of the secret tok is in it" in refused.err
    assert PLANTED not in refused.out + refused.err
    assert cli.call("status", "my-run-01").code == 5
    kept = [path for path in cli.home.rglob("*") if path.is_file() and path != more]
    assert [path for path in kept if PLANTED.encode() in path.read_bytes()] == []


@pytest.mark.parametrize("verb", ["run", "submit"])
def test_an_empty_run_id_is_refused_and_nothing_is_executed(cli: Cli, verb: str) -> None:
    refused = cli.call(verb, cli.workflow(GREET), "--run-id", "")
    assert refused.code == 2
    assert "run_id '' is not allowed" in refused.err
    assert cli.call("list", "--json").json["runs"] == []
