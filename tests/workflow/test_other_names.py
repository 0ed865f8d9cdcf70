"""A key of another tool is answered with one that may stand there, or with what happens instead."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import Struct

from tenure.workflow.schema import Part, grammar
from tests.workflow.samples import CATALOGUE, ONE_STEP, mistakes


def _parts(shape: Any) -> Iterator[Part]:
    """Those of a shape and of all that is in it."""
    if isinstance(shape, Part):
        yield shape
    if isinstance(shape, Struct):
        for name in shape.__struct_fields__:
            yield from _parts(getattr(shape, name))
    elif isinstance(shape, list | tuple):
        for each in shape:
            yield from _parts(each)


def _has(part: Part, dotted: str) -> bool:
    first, _, rest = dotted.partition(".")
    shapes = [key.shape for key in part.keys if key.name == first]
    return bool(shapes) and (not rest or any(_has(inside, rest) for inside in _parts(shapes[0])))


PARTS = {part.struct.__name__: part for part in _parts(grammar(CATALOGUE))}


def test_parts_are_all_found() -> None:
    assert {"Workflow", "Step", "Handler", "Rolling", "HostSpec", "CallbackSpec"} <= set(PARTS)
    assert sum(bool(part.instead) for part in PARTS.values()) >= 3


@pytest.mark.parametrize("name", PARTS)
def test_every_hint_names_a_key_of_its_part(name: str) -> None:
    part = PARTS[name]
    for said in part.instead.values():
        assert _has(part, said), said


ACTION = "action: env.set, args: {env: {}}"
NOT_OF_A_HANDLER = {
    "targets": "it runs on the hosts that notified it",
    "hosts": "it runs on the hosts that notified it",
    "needs": "it runs after the step that notifies it",
    "depends_on": "it runs after the step that notifies it",
    "loop": "it runs after each item of the step that notifies it",
    "with_items": "it runs after each item of the step that notifies it",
    "rolling": "it runs after each batch of the step that notifies it",
    "serial": "it runs after each batch of the step that notifies it",
    "continue_on_error": "if it fails, the step that notified it does: say it there",
    "ignore_errors": "if it fails, the step that notified it does: say it there",
    "on_error": "if it fails, the step that notified it does: say it there",
    "expect_vars": "what a handler exports is not passed on to other steps",
    "register": "what a handler exports is not passed on to other steps",
}


@pytest.mark.parametrize(("key", "said"), NOT_OF_A_HANDLER.items(), ids=NOT_OF_A_HANDLER)
def test_handler_is_told_what_happens_instead(key: str, said: str) -> None:
    (only,) = mistakes(f"{ONE_STEP}handlers: [{{name: a, {ACTION}, {key}: 1}}]\n")
    assert only.endswith(f"handlers[0].{key}: unknown key {key!r}; {said}")


@pytest.mark.parametrize("key", ["with", "retry", "become_user"])
def test_handler_is_told_what_a_key_is_called(key: str) -> None:
    (only,) = mistakes(f"{ONE_STEP}handlers: [{{name: a, {ACTION}, {key}: 1}}]\n")
    assert only.endswith("here")
