"""Where a gateway is, and that no secret is part of it."""

from __future__ import annotations

import pytest

import tenure
from tenure.client import HttpStore
from tenure.client.address import address_of
from tenure.model.errors import UnknownStore


def test_a_gateway_may_stand_below_a_path() -> None:
    assert address_of("https://example.com/tenure/") == "https://example.com/tenure"


@pytest.mark.parametrize(
    "url",
    [
        "http://user:hunter2@example.com",
        "http://hunter2@example.com",
        "http://",
        "ftp://example.com",
        "example.com",
        "http://example.com:port",
        "http://example.com?token=hunter2",
        "http://example.com#x",
    ],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(UnknownStore) as refused:
        address_of(url)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("token", ["hush\nx: y", "hüsh", "hush\x00"])
def test_what_is_no_token_is_refused_and_not_shown(
    token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UnknownStore) as refused:
        HttpStore("http://127.0.0.1:1", token)
    assert "sh" not in str(refused.value)
    monkeypatch.setenv("TENURE_TOKEN", " hush\n")
    HttpStore("http://127.0.0.1:1")  # as it comes out of a file


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_url_opens_a_store_without_asking_anybody(scheme: str) -> None:
    store = tenure.open_store(f"{scheme}://127.0.0.1:1")
    assert isinstance(store, HttpStore)
    assert store.durable
    assert store.attended_by == f"the gateway at {scheme}://127.0.0.1:1"


async def test_nobody_there_is_a_store_that_is_away() -> None:
    async with HttpStore("http://127.0.0.1:1") as store:
        with pytest.raises(tenure.StoreUnavailable, match=r"127\.0\.0\.1:1 did not answer"):
            await store.get_run("run-00001")
