"""What anybody may see of an address and of a workflow's text: all but credentials."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tenure.wire.addresses import shown_address
from tenure.wire.callbacks import MASK
from tenure.wire.masking import shown_text
from tenure.workflow_file import read_workflow

SECRET = "hunter2"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("memory:", "memory:"),
        ("file:///var/lib/runs", "file:///var/lib/runs"),
        ("https://tenure.example.com/api", "https://tenure.example.com/api"),
        ("postgresql://me@db:5432/runs", "postgresql://me@db:5432/runs"),
        ("postgresql://me:hunter2@a:1,b:2/runs", "postgresql://me:***@a:1,b:2/runs"),
        (
            "postgresql://db/runs?user=me&password=hunter2&sslmode=require",
            "postgresql://db/runs?user=me&password=***&sslmode=require",
        ),
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
        f"postgresql://me:a@{SECRET}/2@db/runs",
        f"postgresql://db/runs?{SECRET}",
        f"postgresql://db/runs?user=me@x&pass%77ord={SECRET}",
        f"postgresql://db/runs#{SECRET}",
        f"postgresql://me:{SECRET}@[db/runs",
        f"host=db password={SECRET}",
        f"me:{SECRET}@db",
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


STEPS = """
version: v1
name: 1.10
vars: {mode: 0644, share: 1.50, nothing: ~, yes: true, text: "a\\tb\u2028 #", list: [], map: {}}
steps:
  - {name: "yes", action: cmd.run, args: {cmd: "echo \'hi\'"}, timeout: 90s}
"""
PLAIN = "callbacks: [{url: https://example.com/hook, events: [step]}]"


@pytest.mark.parametrize("callbacks", ["", PLAIN, "callbacks: []"])
def test_without_credentials_it_stays_as_it_was_written(callbacks: str) -> None:
    text = f"# why\n{STEPS}{callbacks}\n"
    assert shown_text(text) == text


@pytest.mark.parametrize(
    "callbacks",
    [
        "callbacks: [{url: https://example.com/a?b=hush, headers: {X-Key: hush, 'Y': hush}}]",
        'callbacks: [{url: "https://example.com/?h\\u0075sh", headers: {X-Key: "h\\x75sh"}}]',
        "callbacks:\n- url: https://example.com/\n  headers:\n    X-Key: >-\n      hu\\\n      sh",
        "callbacks: [&one {url: https://example.com/, headers: {X-Key: hush}}, *one]",
        "callbacks: [{url: https://example.com/, headers: &h {X-Key: hush}}, "
        "{url: https://example.com/b, headers: {<<: *h, Y: z}}]",
    ],
)
def test_it_says_the_same_without_credentials(callbacks: str) -> None:
    text = f"{STEPS}{callbacks}\n"
    shown = shown_text(text)
    assert shown is not None
    assert "hush" not in shown
    assert "sh" not in shown.replace("share", "")
    before, after = read_workflow(text).workflow, read_workflow(shown).workflow
    assert replace(after, callbacks=()) == replace(before, callbacks=())
    assert len(after.callbacks) == len(before.callbacks)
    for seen, real in zip(after.callbacks, before.callbacks, strict=True):
        assert seen.headers == dict.fromkeys(real.headers, MASK)
        assert (seen.events, seen.secret_env) == (real.events, real.secret_env)
    assert shown_text(shown) == shown


@pytest.mark.parametrize("text", ["a: [b", "", "- a", "a: 1\na: 2", "!!python/none x"])
def test_what_nobody_can_read_is_not_shown(text: str) -> None:
    assert shown_text(text) is None
