"""``tenure token``: made once, listed without secrets, revoked by name or id."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tenure.model.tokens import Token, bearer_of
from tenure.stores.sqlite import SQLiteStore
from tests.cli.conftest import Cli

STORE = ("--store", "sqlite:///runs.db")


async def tokens_of(path: Path) -> list[Token]:
    async with await SQLiteStore.open(path) as store:
        return await store.list_tokens()


def test_a_token_is_shown_once_and_kept_as_a_digest(cli: Cli) -> None:
    text = cli.call("token", "create", "ci", "--role", "operator", *STORE).out.strip()
    (kept,) = asyncio.run(tokens_of(cli.folder / "runs.db"))
    secret = text.rpartition("_")[2]
    assert bearer_of(text, [kept]) is kept
    assert len(secret) >= 43
    listed = cli.call("token", "list", "--json", *STORE)
    assert secret not in listed.out
    assert kept.digest.hex() not in listed.out
    (shown,) = listed.json["tokens"]
    assert (shown["name"], shown["role"], shown["queues"]) == ("ci", "operator", None)
    assert shown["state"] == "valid"
    for path in cli.folder.iterdir():
        if path.is_file():
            assert secret.encode() not in path.read_bytes()


def test_a_token_may_be_limited_in_time_and_to_queues(cli: Cli) -> None:
    made = cli.call(
        "token", "create", "web", "--role", "viewer", "--queue", "a", "--queue", "b",
        "--expires", "1h", "--json", *STORE,
    ).json  # fmt: skip
    assert made["queues"] == ["a", "b"]
    assert made["token"].startswith("tenure_")
    assert made["created_at"] < made["expires_at"]
    assert "a, b" in cli.call("token", "list", *STORE).out


def test_a_token_is_revoked_by_name_by_id_or_by_itself(cli: Cli) -> None:
    texts = {
        name: cli.call("token", "create", name, "--role", "admin", "--json", *STORE).json
        for name in ("first", "second", "third")
    }
    for word in ("first", texts["second"]["id"], texts["third"]["token"]):
        assert cli.call("token", "revoke", word, *STORE).code == 0
    states = {each["state"] for each in cli.call("token", "list", "--json", *STORE).json["tokens"]}
    assert states == {"revoked"}


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("create", "x y", "--role", "admin"), 2, "letters, digits"),
        (("create", "x", "--role", "king"), 2, "king"),
        (("create", "x"), 2, "--role"),
        (("create", "x", "--role", "admin", "--expires", "2000-01-01T00:00Z"), 2, "in the past"),
        (("revoke", "nobody"), 5, "no token has the id or name 'nobody'"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    cli: Cli, arguments: tuple[str, ...], code: int, said: str
) -> None:
    cli.call("token", "create", "one", "--role", "viewer", *STORE)
    answer = cli.call("token", *arguments, *STORE)
    assert answer.code == code
    assert said in answer.err


def test_two_tokens_of_one_name_must_be_told_apart(cli: Cli) -> None:
    ids = [
        cli.call("token", "create", "ci", "--role", "viewer", "--json", *STORE).json["id"]
        for _ in range(2)
    ]
    answer = cli.call("token", "revoke", "ci", *STORE)
    assert answer.code == 2
    assert all(each in answer.err for each in ids)


def test_a_store_that_keeps_no_tokens_says_so(cli: Cli) -> None:
    answer = cli.call(
        "token", "create", "ci", "--role", "viewer", "--store", f"file://{cli.folder}/runs"
    )
    assert answer.code == 7
    assert "FileStore keeps no tokens" in answer.err
