"""A workflow's text as anybody may see it: the same workflow, without credentials."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tenure.wire.callbacks import MASK
from tenure.wire.masking import shown_text
from tenure.workflow_file import read_workflow

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
