"""``store``, ``doctor`` and ``version``."""

from __future__ import annotations

import re
from collections.abc import Callable
from time import monotonic

import pytest
from click import unstyle

import tenure
from tenure.cli.commands import store
from tenure.cli.commands.store import checked, migrated, pruned, report_lines
from tenure.model.errors import NotSupported
from tenure.ports.store import RunStateStore, StoreReport
from tests.cli.conftest import Cli, read_until
from tests.cli.flows import GREET, WAIT

pytestmark = pytest.mark.slow


def findings(cli: Cli, *arguments: str) -> str:
    answer = cli.call("doctor", "--json", *arguments)
    assert answer.code == 1
    return "\n".join(answer.json["findings"])


# -- doctor ---------------------------------------------------------------------------------------


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


def test_doctor_finds_settings_that_cannot_work(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_RENEW_INTERVAL", "50s")
    said = findings(cli)
    assert "renew_interval ≤ lease_duration / 2 does not hold" in said
    shown = cli.call("doctor")
    assert shown.code == 1
    assert "✗ 1 finding\n" in shown.out


def test_doctor_shows_settings_and_rules_most_of_all_when_they_are_broken(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli.call("run", cli.workflow(GREET), "-q")
    monkeypatch.setenv("TENURE_LEASE_DURATION", "20s")
    monkeypatch.setenv("TENURE_VISIBILITY_TIMEOUT", "30s")
    shown = cli.call("doctor").out
    assert re.search(r"lease_duration +20s +environment TENURE_LEASE_DURATION\n", shown)
    assert re.search(r"renew_interval +20s +default\n", shown)
    assert "  ✗ renew_interval ≤ lease_duration / 2\n" in shown
    assert "renew_interval is 20s (default), lease_duration is 20s (environment TENURE_LEA" in shown
    assert "  ✗ renew_interval < visibility_timeout ≤ lease_duration\n" in shown
    assert "  ✓ poll_interval ≤ lease_duration / 8\n" in shown
    facts = cli.call("doctor", "--json").json
    assert [rule["holds"] for rule in facts["rules"]] == [False, False, True]
    assert facts["store"]["runs"] == 1, "the store is examined all the same"


def test_doctor_shows_the_rest_when_a_setting_cannot_be_read(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli.call("run", cli.workflow(GREET), "-q")
    monkeypatch.setenv("TENURE_LEASE_DURATION", "soon")
    facts = cli.call("doctor", "--json").json
    sources = {fact["name"]: (fact["value"], fact["source"]) for fact in facts["settings"]}
    assert sources["lease_duration"] == ("unreadable", "environment TENURE_LEASE_DURATION")
    assert sources["poll_interval"] == ("1s", "default")
    assert [rule["holds"] for rule in facts["rules"]] == [None, None, None]
    assert facts["store"]["runs"] == 1
    assert "✗" not in cli.call("doctor").out.split("Leases")[1].split("Store")[0]


def test_doctor_looks_for_no_store_if_its_name_cannot_be_read(cli: Cli) -> None:
    (cli.folder / "tenure.toml").write_text("store = 5")
    facts = cli.call("doctor", "--json").json
    assert facts["store"] is None
    assert len(facts["findings"]) == 1


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


@pytest.mark.parametrize("name", ["STORE", "BROKER"])
@pytest.mark.parametrize(
    "written",
    [
        "host=db password=hunter2",
        "host=db password=hunter2:3",
        "no-such-kind://h?password=hunter2",
        "sqlite:///runs.db?key=hunter2",
        "sqlite://me:hunter2@h/runs.db",
        "http://h?token=hunter2",
        "http://h:hunter2/",
        "redis://me:hunter2/3@h",
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


def test_doctor_finds_misspelt_variables(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    for known in ("TENURE_SECRET_X", "TENURE_HOOK_Y", "TENURE_RUN_ID", "TENURE_FENCE"):
        monkeypatch.setenv(known, "fine")
    assert cli.call("doctor").code == 0
    monkeypatch.setenv("TENURE_STOR", "memory:")
    assert "environment TENURE_STOR is no setting; did you mean 'store'?" in findings(cli)


def test_doctor_finds_stores_that_do_not_work(cli: Cli) -> None:
    (cli.folder / "notes.db").write_text("this is no database, and long enough to be read as one")
    assert "the store cannot be used" in findings(cli, "--store", "sqlite:///notes.db")
    assert "no store kind" in findings(cli, "--store", "mongo://x")
    assert "do not survive" in findings(cli, "--store", "memory:")


def test_doctor_finds_a_folder_that_cannot_be(cli: Cli) -> None:
    (cli.home / ".local").write_text("in the way")
    assert f"{cli.home}/.local cannot be written to" in findings(cli)


@pytest.mark.slow
def test_doctor_finds_runs_without_owner(cli: Cli) -> None:
    run = cli.start("run", cli.workflow(WAIT), "--var", "gate=/nowhere")
    read_until(run, "holding")
    assert cli.call("doctor").code == 0
    run.kill()
    run.wait()
    assert "1 unfinished run without an owner that renews: tenure reconcile" in findings(cli)


# -- store ----------------------------------------------------------------------------------------


def test_a_sound_store_is_said_to_be_sound(cli: Cli) -> None:
    cli.call("run", cli.workflow(GREET), "-q")
    checked = cli.call("store", "check")
    assert checked.code == 0
    assert "is sound" in checked.out
    report = cli.call("store", "check", "--json").json
    assert report["problems"] == []
    assert report["schema"] == report["newest_schema"]
    assert report["runs"] == 1


def test_migrating_an_up_to_date_store_changes_nothing(cli: Cli) -> None:
    cli.call("run", cli.workflow(GREET), "-q")
    before = cli.call("store", "check", "--json").json
    assert cli.call("store", "migrate", "--json").json["schema"] == before["schema"]


def test_prune_removes_what_ended_long_ago(cli: Cli) -> None:
    for number in range(3):
        cli.call("run", cli.workflow(GREET), "-q", "--run-id", f"old-run-{number}")
    assert cli.call("store", "prune", "--older-than", "1d").out == "no run ended that long ago\n"
    assert len(cli.call("list", "--json").json["runs"]) == 3
    answer = cli.call("store", "prune", "--older-than", "0s", "--json").json
    assert answer == {"removed": 3, "older_than": 0.0}
    assert cli.call("list", "--json").json["runs"] == []


@pytest.mark.parametrize(
    ("arguments", "setting"), [(["--rate", "4"], "100"), ([], "4")], ids=["option", "setting"]
)
def test_prune_keeps_its_budget(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, arguments: list[str], setting: str
) -> None:
    monkeypatch.setenv("TENURE_PRUNE_RATE", setting)
    for _ in range(3):
        cli.call("run", cli.workflow(GREET), "-q")
    began = monotonic()
    assert cli.call("store", "prune", "--older-than", "0s", *arguments).out == "3 runs removed\n"
    assert monotonic() - began >= 0.5


def test_long_prune_says_how_far_it_is(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "PROGRESS_INTERVAL_S", 0.0)
    for _ in range(2):
        cli.call("run", cli.workflow(GREET), "-q")
    pruned = cli.call("store", "prune", "--older-than", "0s", "--rate", "4", "--json")
    assert pruned.json["removed"] == 2
    assert pruned.err == "1 run removed so far\n2 runs removed so far\n"


@pytest.mark.parametrize(
    ("schema", "shown"), [(2, "2, newest is 3: tenure store migrate"), (3, "3"), (99, "99")]
)
def test_only_an_older_schema_is_to_be_migrated(schema: int, shown: str) -> None:
    report = StoreReport(place="here", schema=schema, newest_schema=3, problems=("Upgrade.",))
    assert [
        line.split(maxsplit=1)[1] for line in map(unstyle, report_lines(report)) if "schema" in line
    ] == [shown]


def test_migrate_says_what_it_has_done_and_no_more(cli: Cli) -> None:
    """It has not looked for damage."""
    cli.call("run", cli.workflow(GREET), "-q")
    newest = cli.call("store", "check", "--json").json["newest_schema"]
    said = cli.call("store", "migrate").out
    assert said.splitlines()[0].endswith(f"runs.db is at schema {newest}")
    assert "sound" not in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["check"], "FileStore cannot be checked as a whole: a damaged run is named when it is "),
        (["migrate"], "FileStore has no schema that could be migrated"),
        (["prune", "--older-than", "1d"], "FileStore cannot remove runs: it keeps all"),
    ],
    ids=["check", "migrate", "prune"],
)
def test_a_store_without_the_power_says_so_with_7(
    cli: Cli, arguments: list[str], said: str
) -> None:
    (cli.home / "runs").mkdir()
    refused = cli.call("store", *arguments, "--store", f"file://{cli.home}/runs")
    assert refused.code == 7
    assert said in refused.err


@pytest.mark.parametrize("power", [checked, migrated, pruned])
def test_store_behind_a_gateway_is_tended_where_it_is(
    power: Callable[[RunStateStore], object],
) -> None:
    store = tenure.open_store("http://gateway.example:8700")
    with pytest.raises(
        NotSupported, match=r"the gateway at .*gateway\.example.*: name its own store"
    ):
        power(store)
