"""Variables, labels, durations and secrets as they are typed."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
import pytest

from tenure.cli.arguments import Moment, moment_before, pairs, values
from tenure.cli.secrets import for_worker, gather
from tenure.cli.variables import values_of_file, variables
from tenure.model.errors import InvalidWorkflow


@pytest.mark.parametrize(
    ("typed", "name", "value"),
    [
        ("a=b", "a", "b"),
        ("a=", "a", ""),
        ("a=b=c", "a", "b=c"),
        ("a=:=", "a", ":="),
        ("a=1", "a", "1"),
        ("a=line\nbreak", "a", "line\nbreak"),
        ("a:=1", "a", 1),
        ("a:=1.5", "a", 1.5),
        ("a:=true", "a", True),
        ("a:=null", "a", None),
        ('a:=["x", {"y": 2}]', "a", ["x", {"y": 2}]),
        ('a:="1"', "a", "1"),
        ("a b=c", "a b", "c"),
    ],
)
def test_a_value_is_text_or_json(typed: str, name: str, value: Any) -> None:
    assert values([typed], "--var") == {name: value}


@pytest.mark.parametrize(
    "typed",
    ["", "a", "=b", ":=1", "a:=", "a:={", "a:=NaN", "a:=1e999", "a:=" + "[" * 9999, "a=\udcff"],
)
def test_what_is_no_value_is_refused(typed: str) -> None:
    with pytest.raises(click.BadParameter):
        values([typed], "--var")


@pytest.mark.parametrize("name", ["a", "_", "release_1", "older-name", "A" * 200])
def test_names_a_workflow_can_say(name: str) -> None:
    assert variables([], [f"{name}=x"]) == {name: "x"}


@pytest.mark.parametrize("name", ["a b", "1st", "-a", "é", "a.b", "a[0]", "$a", "a" * 201])
def test_names_no_workflow_could_say_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(click.BadParameter, match=r"is no name of a variable|neither name=text"):
        variables([], [f"{name}=x"])
    path = tmp_path / "vars.yaml"
    path.write_text(f'fine: 1\n"{name}": 2\n')
    with pytest.raises(InvalidWorkflow, match=r"vars.yaml:2:1: .* is no name of a variable"):
        values_of_file(path)


def test_the_last_one_counts() -> None:
    assert values(["a=1", "a=2"], "--var") == {"a": "2"}


@pytest.mark.parametrize("typed", ["", "team", "=web", "team:=web"])
def test_what_is_no_label_is_refused(typed: str) -> None:
    with pytest.raises(click.BadParameter, match="key=value"):
        pairs([typed], "--label")


def test_files_of_variables(tmp_path: Path) -> None:
    first, second = tmp_path / "a.yaml", tmp_path / "b.json"
    first.write_text("x: 1\ny: [no, 0x10]\n")
    second.write_text('{"x": 2, "z": {"deep": null}}')
    found = variables([str(first), str(second)], ["z:=3"])
    assert found == {"x": 2, "y": ["no", 16], "z": 3}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"- a\n- b\n", "map of variables"),
        (b"just text", "map of variables"),
        (b"x: [1", "vars.yaml:"),
        (b"x: 1\nx: 2\n", "vars.yaml:2:"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (b"x: " + b"y" * (1 << 21), "vars.yaml"),
    ],
)
def test_wrong_files_of_variables_are_named(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "vars.yaml"
    path.write_bytes(content)
    with pytest.raises(InvalidWorkflow, match=said):
        values_of_file(path)


def test_a_missing_file_of_variables_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidWorkflow, match="No such file"):
        values_of_file(tmp_path / "none.yaml")


def test_moments() -> None:
    now = datetime(2026, 5, 1, tzinfo=UTC)
    kind = Moment()
    assert moment_before(kind.convert("2h", None, None), now) == now - timedelta(hours=2)
    at = moment_before(kind.convert("2026-04-30T12:00:00+00:00", None, None), now)
    assert at == datetime(2026, 4, 30, 12, tzinfo=UTC)
    midnight = kind.convert("2026-04-30", None, None)
    assert isinstance(midnight, datetime)
    assert midnight.tzinfo is not None
    assert moment_before(None, now) is None
    with pytest.raises(click.BadParameter, match="neither a duration"):
        kind.convert("yesterday", None, None)


# -- secrets --------------------------------------------------------------------------------------


def test_secrets_come_from_environment_or_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENURE_SECRET_TOKEN", "from prefix")
    monkeypatch.setenv("DB_PASSWORD", "from its own name")
    monkeypatch.setenv("unasked", "nobody's business")
    (tmp_path / "key").write_text("line one\nline two\n")
    declared = ["token", "unasked", "DB_PASSWORD", "key"]
    assert gather(["DB_PASSWORD", f"key=@{tmp_path}/key"], declared) == {
        "token": "from prefix",
        "DB_PASSWORD": "from its own name",
        "key": "line one\nline two",
    }


def test_a_secret_on_the_command_line_is_refused_without_repeating_it() -> None:
    with pytest.raises(click.BadParameter, match="every user of this machine") as refused:
        gather(["db=hunter2"], ["db"])
    assert "hunter2" not in str(refused.value.message)


def test_a_secret_nobody_gave_says_how_to_give_it() -> None:
    with pytest.raises(click.BadParameter, match="TENURE_SECRET_NOBODY_GAVE"):
        gather(["nobody_gave"], ["nobody_gave"])


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        (["token", "key"], "tokn is not among .*; did you mean 'token'"),
        (["a", "b"], "there is a, b"),
        ([], r"declare it there: secrets: \[tokn\]"),
    ],
)
def test_a_secret_that_is_not_declared_is_refused(declared: list[str], said: str) -> None:
    with pytest.raises(click.BadParameter, match=said):
        gather(["tokn"], declared)


def test_an_empty_variable_holds_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_SECRET_TOKEN", "")
    with pytest.raises(click.BadParameter, match="TENURE_SECRET_TOKEN is empty"):
        gather([], ["token"])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read"),
        (b"\xff", "not text"),
        (b"x" * (1 << 21), "1 MiB"),
        (b"\n", "secret is empty"),
    ],
)
def test_wrong_secret_files_are_named(tmp_path: Path, content: bytes | None, said: str) -> None:
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(click.BadParameter, match=said):
        gather([f"x=@{path}"], ["x"])


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What is said to people, whatever other tests have set up."""
    said: list[str] = []
    handler = logging.Handler()
    monkeypatch.setattr(handler, "emit", lambda record: said.append(record.getMessage()))
    logging.getLogger("tenure.cli").addHandler(handler)
    yield said
    logging.getLogger("tenure.cli").removeHandler(handler)


@pytest.mark.parametrize(
    ("value", "short"),
    [
        ("x", True),
        ("x7y", True),
        (" x7y \n", True),
        ("   ", True),
        ("    ", False),
        ("x7yz", False),
    ],
)
def test_a_secret_that_masks_ordinary_words_is_warned_of_without_its_value(
    monkeypatch: pytest.MonkeyPatch, warnings: list[str], value: str, short: bool
) -> None:
    monkeypatch.setenv("TENURE_SECRET_PW", value)
    assert gather([], ["pw"]) == {"pw": value}
    assert [said.split(":")[0] for said in warnings] == (
        ["the secret pw has fewer than 4 characters"] if short else []
    )
    assert "x7" not in "".join(warnings)


def test_a_worker_warns_of_a_short_secret_when_a_workflow_first_asks_for_it(
    monkeypatch: pytest.MonkeyPatch, warnings: list[str]
) -> None:
    monkeypatch.setenv("TENURE_SECRET_PW", "x7")
    secrets = for_worker([])
    assert warnings == []
    assert ["pw" in secrets, secrets["pw"], secrets["pw"]] == [True, "x7", "x7"]
    (said,) = warnings
    assert said.startswith("the secret pw has fewer than 4 characters")
    for_worker(["pw"])
    assert warnings == [said, said]
