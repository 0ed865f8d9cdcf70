"""No address that is shown holds what may be a credential."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.wire.addresses import shown_address

SECRET = "hunter2"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("memory:", "memory:"),
        ("runs.db", "runs.db"),
        ("file:///var/lib/runs", "file:///var/lib/runs"),
        ("own:///a/b", "own:///a/b"),
        ("https://tenure.example.com/api", "https://tenure.example.com/api"),
        ("postgresql://me@db:5432/runs", "postgresql://me@db:5432/runs"),
        ("postgresql://me:hunter2@a:1,b:2/runs", "postgresql://me:***@a:1,b:2/runs"),
        (
            "postgresql://db/runs?user=me&password=hunter2&sslmode=require",
            "postgresql://db/runs?user=me&password=***&sslmode=require",
        ),
        ("postgresql://db/runs?sslpassword=hunter2", "postgresql://db/runs?sslpassword=***"),
        ("redis://h/0?password=hunter2&namespace=a", "redis://h/0?password=***&namespace=a"),
        ("redis://:hunter2@h:6379/0", "redis://:***@h:6379/0"),
        ("own://h?never_heard_of=hunter2", "own://h?never_heard_of=***"),
    ],
)
def test_what_is_known_to_be_harmless_is_shown(url: str, shown: str) -> None:
    assert shown_address(url) == shown


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://me:{SECRET}/2@db/runs",
        f"postgresql://me:{SECRET}?2@db/runs",
        f"postgresql://me:{SECRET}#2@db/runs",
        f"postgresql://me:a@{SECRET}/2@db/runs",
        f"postgresql://db/runs?{SECRET}",
        f"postgresql://db/runs?user=me;password={SECRET}",
        f"postgresql://db/runs?user=me@x&pass%77ord={SECRET}",
        f"postgresql://db/runs#{SECRET}",
        f"postgresql://me:{SECRET}@[db/runs",
        f"host=db password={SECRET}",
        f"host=db password={SECRET}:2",
        f"me:{SECRET}@db",
        f"redis:me:{SECRET}@h",
        f"redis://me:{SECRET}",
        f"https://me:{SECRET}/path",
    ],
)
def test_the_rest_is_not_however_it_is_written(url: str) -> None:
    assert SECRET not in shown_address(url)


@given(
    before=st.text(max_size=8),
    after=st.text(max_size=8),
    url=st.sampled_from(
        [
            "postgresql://me:{}@db/runs",
            "redis://:{}@h:6379/0?namespace=a",
            "postgresql://db/runs?password={}",
            "redis://h?password={}&namespace=b",
        ]
    ),
)
def test_nor_whatever_is_around_it(before: str, after: str, url: str) -> None:
    """A password of any characters, some of which end it where it stands."""
    shown = shown_address(url.format(f"{before}{SECRET}{after}"))
    if "&" not in before:  # else it is the name of the next parameter
        assert SECRET not in shown
