"""Commands that only look create nothing: a mistyped store is named, a missing default is empty."""

from __future__ import annotations

import pytest

from tests.cli.conftest import NOTHING_TO_RECONCILE, Cli
from tests.cli.flows import GREET

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


@pytest.mark.parametrize("store", ["sqlite:///typo.db", "sqlite:///{}/no/typo", "file://{}/typo"])
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


def test_a_folder_that_is_not_there_either_is_named(cli: Cli) -> None:
    """Then no run could create the store."""
    refused = cli.call("list", "--store", "sqlite:///no/such/runs.db")
    assert f"runs.db (nor the folder {cli.folder}/no/such), as --store has it" in refused.err


LONG = "x" * 300


@pytest.mark.parametrize(
    ("store", "code"),
    [
        ("sqlite:///~nosuchuser/runs.db", 2),
        (f"sqlite:///{LONG}/runs.db", 6),
        (f"file:{LONG}/runs", 6),
    ],
    ids=["nobody's", "long", "long folder"],
)
def test_a_path_that_leads_nowhere_is_no_defect_of_ours(cli: Cli, store: str, code: int) -> None:
    refused = cli.call("list", "--store", store)
    assert refused.code == code
    assert refused.err.startswith("Error: ")


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


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (["list"], {"runs": [], "cursor": None}),
        (["reconcile"], NOTHING_TO_RECONCILE),
    ],
    ids=["list", "reconcile"],
)
def test_nothing_is_a_fine_answer_where_there_are_no_runs_yet(
    cli: Cli, arguments: list[str], answer: object
) -> None:
    said = cli.call(*arguments, "--json")
    assert (said.code, said.json) == (0, answer)
    assert cli.call("store", "prune", "--older-than", "1d").out == "no run ended that long ago\n"
    assert contents(cli) == ["work"]


def test_doctor_finds_nothing_wrong_with_a_default_store_that_is_not_there_yet(cli: Cli) -> None:
    healthy = cli.call("doctor")
    assert healthy.code == 0
    assert "not there yet; the first run creates it" in healthy.out
    facts = cli.call("doctor", "--json").json["store"]
    assert facts["exists"] is False
    assert facts["place"] == "~/.local/share/tenure/runs.db"
    assert contents(cli) == ["work"]


def test_doctor_finds_a_named_store_missing(cli: Cli) -> None:
    unwell = cli.call("doctor", "--store", "sqlite:///typo.db")
    assert unwell.code == 1
    assert "the store cannot be used: there is no store at ~/work/typo.db" in unwell.out
    assert contents(cli) == ["work"]


@pytest.mark.parametrize("kind", ["sqlite:///", "file://"])
def test_a_run_creates_the_store_it_names(cli: Cli, kind: str) -> None:
    url = f"{kind}{cli.home}/runs"
    assert cli.call("run", cli.workflow(GREET), "-q", "--store", url).code == 0
    assert len(cli.call("list", "--json", "--store", url).json["runs"]) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["submit", "greet.yaml"],
        ["worker"],
        ["up"],
        ["token", "create", "ops", "--role", "viewer"],
        ["store", "migrate"],
    ],
    ids=" ".join,
)
def test_a_kind_of_store_that_cannot_do_it_is_refused_before_it_is_made(
    cli: Cli, arguments: list[str]
) -> None:
    cli.workflow(GREET, "greet.yaml")
    before = contents(cli)
    refused = cli.call(*arguments, "--store", f"file://{cli.home}/new")
    assert refused.code == 7
    assert "FileStore" in refused.err
    assert contents(cli) == before


def test_migrating_creates_the_store_it_names_and_the_default_one(cli: Cli) -> None:
    assert cli.call("store", "migrate", "--store", "sqlite:///new.db").code == 0
    assert "no runs yet in ~/work/new.db" in cli.call("list", "--store", "sqlite:///new.db").err
    assert cli.call("store", "migrate").code == 0
    assert cli.call("store", "check").code == 0
