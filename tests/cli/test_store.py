"""``store``, ``doctor``, and stores that are not there: commands that only look create nothing."""

from __future__ import annotations

from time import monotonic

import pytest

import tenure
from tests.cli.conftest import Cli, read_until
from tests.cli.flows import GREET, WAIT
from tests.cli.terminal import Terminal

RUN = "01JCQ5T4Y9K3V8M2N6P7R1S0WX"
LOOKING = [
    ["list"],
    ["status", RUN],
    ["status", "latest"],
    ["watch", RUN],
    ["logs", RUN],
    ["explain", RUN],
    ["store", "check"],
]
CHANGING = [
    ["cancel", RUN],
    ["annotate", RUN, "a=b"],
    ["reconcile"],
    ["store", "prune", "--older-than", "1d"],
]


def contents(cli: Cli) -> list[str]:
    return sorted(str(path.relative_to(cli.home)) for path in cli.home.rglob("*"))


@pytest.mark.parametrize("store", ["sqlite:///typo.db", "file://{}/typo"])
@pytest.mark.parametrize("arguments", [*LOOKING, *CHANGING], ids=" ".join)
def test_a_named_store_that_is_not_there_is_an_error_and_stays_away(
    cli: Cli, arguments: list[str], store: str
) -> None:
    refused = cli.call(*arguments, "--store", store.format(cli.home))
    assert refused.code == 6
    said, advice = refused.err.splitlines()
    assert said.startswith("Error: there is no store at ")
    assert store.rpartition("/")[2] in said
    assert said.endswith(", as --store has it")
    assert "tenure run" in advice
    assert contents(cli) == ["work"]


def test_the_message_says_who_named_it(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    (cli.folder / "tenure.toml").write_text('store = "sqlite:///runs.db"')
    assert f"as {cli.folder}/tenure.toml has it" in cli.call("list").err
    monkeypatch.setenv("TENURE_STORE", "sqlite:///other.db")
    assert "no store at ~/work/other.db, as environment TENURE_STORE has it" in cli.call("list").err


@pytest.mark.parametrize("arguments", LOOKING[1:], ids=" ".join)
def test_without_any_run_yet_there_is_no_run_to_look_at(cli: Cli, arguments: list[str]) -> None:
    refused = cli.call(*arguments)
    assert refused.code == 5
    assert refused.err.splitlines() == [
        "Error: there are no runs yet; the first one creates ~/.local/share/tenure/runs.db",
        "  start one: tenure run workflow.yaml",
    ]
    assert contents(cli) == ["work"]


def test_doctor_finds_nothing_wrong_with_a_default_store_that_is_not_there_yet(cli: Cli) -> None:
    healthy = cli.call("doctor")
    assert healthy.code == 0
    assert "not there yet; the first run creates it" in healthy.out
    facts = cli.call("doctor", "--json").json["store"]
    assert facts["exists"] is False
    assert facts["place"] == "~/.local/share/tenure/runs.db"
    assert contents(cli) == ["work"]


def test_migrating_creates_the_store_it_names_and_the_default_one(cli: Cli) -> None:
    assert cli.call("store", "migrate", "--store", "sqlite:///new.db").code == 0
    assert "no runs yet in ~/work/new.db" in cli.call("list", "--store", "sqlite:///new.db").err
    assert cli.call("store", "migrate").code == 0
    assert cli.call("store", "check").code == 0


def findings(cli: Cli, *arguments: str) -> str:
    answer = cli.call("doctor", "--json", *arguments)
    assert answer.code == 1
    return "\n".join(answer.json["findings"])


# -- doctor ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_healthy_machine_has_no_findings(cli: Cli) -> None:
    cli.call("run", cli.workflow(GREET), "-q")
    healthy = cli.call("doctor")
    assert healthy.code == 0
    assert "✓ nothing to complain about" in healthy.out
    assert "renew_interval ≤ lease_duration / 2" in healthy.out
    assert "one renewal may be lost without losing the run" in healthy.out
    facts = cli.call("doctor", "--json").json
    assert facts["findings"] == []
    assert facts["versions"]["tenure"] == tenure.__version__
    assert facts["store"]["kind"] == "SQLiteStore"
    assert facts["store"]["durable"] is True
    assert 0 < facts["store"]["latency_ms"] < 10_000
    assert all(rule["holds"] for rule in facts["rules"])


@pytest.mark.slow
def test_doctor_shows_where_each_setting_comes_from(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cli.folder / "tenure.toml").write_text("claim_batch = 3")
    monkeypatch.setenv("TENURE_POLL_INTERVAL", "2s")
    cli.call("store", "migrate", "--store", "sqlite:///x.db")
    facts = cli.call("doctor", "--json", "--store", "sqlite:///x.db").json["settings"]
    sources = {fact["name"]: (fact["value"], fact["source"]) for fact in facts}
    assert sources["claim_batch"] == ("3", f"{cli.folder}/tenure.toml")
    assert sources["poll_interval"] == ("2s", "environment TENURE_POLL_INTERVAL")
    assert sources["store"] == ("~/work/x.db", "--store")
    assert sources["lease_duration"] == ("1m", "default")


@pytest.mark.slow
def test_doctor_shows_no_password_wherever_it_stands(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENURE_STORE", "postgresql://127.0.0.1:1/x?user=me&password=hunter2")
    monkeypatch.setenv("TENURE_BROKER", "redis://127.0.0.1:1/0?password=hunter2&namespace=a")
    for form in ((), ("--json",)):
        shown = cli.call("doctor", *form)
        assert "hunter2" not in shown.out + shown.err
        assert "postgresql://127.0.0.1:1/x?user=me&password=***" in shown.out
        assert "redis://127.0.0.1:1/0?password=***&namespace=a" in shown.out


@pytest.mark.slow
@pytest.mark.parametrize("name", ["STORE", "BROKER"])
@pytest.mark.parametrize(
    "written",
    [
        "host=db password=hunter2",
        "no-such-kind://h?password=hunter2",
        "sqlite:///runs.db?key=hunter2",
        "http://h:hunter2/",
    ],
)
def test_nor_does_any_refusal_of_an_address(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, name: str, written: str
) -> None:
    monkeypatch.setenv(f"TENURE_{name}", written)
    for arguments in (("doctor",), ("list",), ("worker",)):
        if name == "STORE" or arguments == ("doctor",):
            shown = cli.call(*arguments)
            assert shown.code != 0
            assert "hunter2" not in shown.out + shown.err


@pytest.mark.slow
def test_doctor_finds_misspelt_variables(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    for known in ("TENURE_SECRET_X", "TENURE_HOOK_Y", "TENURE_RUN_ID", "TENURE_FENCE"):
        monkeypatch.setenv(known, "fine")
    assert cli.call("doctor").code == 0
    monkeypatch.setenv("TENURE_STOR", "memory:")
    assert "environment TENURE_STOR is no setting; did you mean 'store'?" in findings(cli)


@pytest.mark.slow
def test_doctor_finds_stores_that_do_not_work(cli: Cli) -> None:
    (cli.folder / "notes.db").write_text("this is no database, and long enough to be read as one")
    assert "the store cannot be used" in findings(cli, "--store", "sqlite:///notes.db")
    assert "no store kind" in findings(cli, "--store", "mongo://x")
    assert "do not survive" in findings(cli, "--store", "memory:")


@pytest.mark.slow
def test_doctor_finds_runs_without_owner(cli: Cli) -> None:
    run = cli.start("run", cli.workflow(WAIT), "--var", "gate=/nowhere")
    read_until(run, "holding")
    assert cli.call("doctor").code == 0
    run.kill()
    run.wait()
    assert "1 unfinished run without an owner that renews: tenure reconcile" in findings(cli)


# -- store ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_sound_store_is_said_to_be_sound(cli: Cli) -> None:
    cli.call("run", cli.workflow(GREET), "-q")
    checked = cli.call("store", "check")
    assert checked.code == 0
    assert "is sound" in checked.out
    report = cli.call("store", "check", "--json").json
    assert report["problems"] == []
    assert report["schema"] == report["newest_schema"]
    assert report["runs"] == 1


@pytest.mark.slow
def test_prune_removes_what_ended_long_ago(cli: Cli) -> None:
    for number in range(3):
        cli.call("run", cli.workflow(GREET), "-q", "--run-id", f"old-run-{number}")
    assert cli.call("store", "prune", "--older-than", "1d").out == "no run ended that long ago\n"
    assert len(cli.call("list", "--json").json["runs"]) == 3
    answer = cli.call("store", "prune", "--older-than", "0s", "--json").json
    assert answer == {"removed": 3, "older_than": 0.0}
    assert cli.call("list", "--json").json["runs"] == []


@pytest.mark.slow
def test_prune_says_what_it_would_remove_and_wants_a_unit(cli: Cli) -> None:
    cli.call("run", cli.workflow(GREET), "-q", "--run-id", "a-finished-run")
    for no_unit in ("0", "30"):
        refused = cli.call("store", "prune", "--older-than", no_unit)
        assert refused.code == 2
        assert f"'{no_unit}' has no unit: {no_unit}d are days" in refused.err
    dry = cli.call("store", "prune", "--older-than", "0s", "--dry-run")
    assert dry.out.startswith("would remove 1 run of ~/.local/share/tenure/runs.db that ended ")
    as_json = cli.call("store", "prune", "--older-than", "0s", "--dry-run", "--json").json
    assert as_json == {"removed": 0, "would_remove": 1, "older_than": 0}
    assert (
        "would remove no run" in cli.call("store", "prune", "--older-than", "1d", "--dry-run").out
    )
    assert len(cli.call("list", "--json").json["runs"]) == 1
    done = cli.call("store", "prune", "--older-than", "0s")  # no terminal: there is no one to ask
    assert (done.out, done.err.startswith("would remove 1 run")) == ("1 run removed\n", True)


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "left"), [("n\n", 1), ("y\n", 0)])
def test_on_a_terminal_prune_asks(cli: Cli, answer: str, left: int) -> None:
    cli.call("run", cli.workflow(GREET), "-q")
    with Terminal("store", "prune", "--older-than", "0s") as terminal:
        assert "would remove 1 run" in terminal.read_until("Remove them? [y/N]")
        terminal.press(answer)
        assert terminal.finish() == 0
    assert len(cli.call("list", "--json").json["runs"]) == left


def test_prune_keeps_its_budget(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_PRUNE_RATE", "4")
    for _ in range(3):
        cli.call("run", cli.workflow(GREET), "-q")
    began = monotonic()
    assert cli.call("store", "prune", "--older-than", "0s").out == "3 runs removed\n"
    assert monotonic() - began >= 0.5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["check"], "FileStore cannot be checked as a whole: a damaged run is named when it is "),
        (["prune", "--older-than", "1d"], "FileStore cannot remove runs: it keeps all"),
    ],
    ids=["check", "prune"],
)
def test_a_store_without_the_power_says_so_with_7(
    cli: Cli, arguments: list[str], said: str
) -> None:
    (cli.home / "runs").mkdir()
    refused = cli.call("store", *arguments, "--store", f"file://{cli.home}/runs")
    assert refused.code == 7
    assert said in refused.err
