"""The schema editors get says what the parser does."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator

from tenure.model.errors import InvalidWorkflow
from tenure.workflow.schema import ListOf, MapOf, Part, grammar, workflow_schema
from tenure.workflow.yaml import Reading, plain, read_document
from tests.workflow import test_mistakes
from tests.workflow.samples import CATALOGUE, HEAD, ONE_STEP, parse
from tests.workflow.whole_files import FULL, OLDER

SCHEMA = workflow_schema(CATALOGUE)
VALIDATOR = Draft202012Validator(SCHEMA)


def complaints(text: str) -> list[str]:
    value = plain(read_document(text, Reading("f")))
    return [error.message for error in VALIDATOR.iter_errors(value)]


def test_it_is_a_schema() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize("text", [FULL, ONE_STEP, OLDER[0]], ids=["full", "one step", "older"])
def test_what_the_parser_accepts_validates(text: str) -> None:
    parse(text)
    assert complaints(text) == []


BEYOND = (  # what only the names and texts in the file tell
    "queue: ''", "secrets:", "vars: {", "callbacks: [{url", "inventory: {hosts: {web1: {address",
    "inventory: {hosts: {''", 'inventory: {hosts: {"', "inventory: {groups", "targets: [",
    "needs: [", "notify: [", "when: ", "must_vars: [''", "become: ", "loop: ['", "loop: ${{",
    "on_takeover: verify", "verify: {cmd: \"echo", "timeout: 0s",
)  # fmt: skip
TOP = [line for line, _ in test_mistakes.TOP if not line.startswith(BEYOND)]
STEP = [line for line, _ in test_mistakes.STEP if not line.startswith(BEYOND)]


@pytest.mark.parametrize("line", TOP)
def test_what_the_parser_refuses_does_not_validate(line: str) -> None:
    assert complaints(ONE_STEP + line)


@pytest.mark.parametrize("line", STEP)
def test_what_the_parser_refuses_in_a_step_does_not_validate(line: str) -> None:
    assert complaints(ONE_STEP + f"  {line}\n")


def test_most_mistakes_show_in_an_editor_already() -> None:
    assert min(len(TOP), len(STEP)) > 10


@pytest.mark.parametrize(
    ("args", "action", "good"),
    [
        ("{cmd: x}", "cmd.run", True),
        ("{cmd: 5, export_vars: '${{ yes }}'}", "cmd.run", True),
        ("{}", "cmd.run", False),
        ("{cmd: x, cdm: y}", "cmd.run", False),
        ("{cmd: x, max_output_bytes: '${n}'}", "cmd.run", True),
        ("{script: x}", "script.python", True),
        ("{script: x, script_ref: y}", "script.python", False),
        ("{url: x, method: POST, body: {any: [thing]}}", "http.request", True),
        ("{function: x, further: y}", "python.call", True),
        ("{}", "no.such", False),
    ],
)
def test_arguments_depend_on_the_action(args: str, action: str, good: bool) -> None:
    text = HEAD + f"steps: [{{name: a, action: {action}, args: {args}}}]"
    assert (complaints(text) == []) is good
    try:
        parse(text)
    except InvalidWorkflow:
        assert not good
    else:
        assert good


def test_arguments_cannot_be_left_out_where_some_are_needed() -> None:
    assert complaints(HEAD + "steps: [{name: a, action: cmd.run}]")


# -- one table ------------------------------------------------------------------------------------


def parts(shape: Any) -> list[Part]:
    if isinstance(shape, Part):
        return [shape, *(inner for key in shape.keys for inner in parts(key.shape))]
    if isinstance(shape, ListOf | MapOf):
        return parts(shape.shape)
    return parts(shape.part) if hasattr(shape, "part") else []


def has(part: Part, dotted: str) -> bool:
    first, _, rest = dotted.partition(".")
    shapes = [key.shape for key in part.keys if key.name == first]
    return bool(shapes) and (not rest or any(has(inside, rest) for inside in parts(shapes[0])))


ALL = parts(grammar(CATALOGUE))


@pytest.mark.parametrize("part", ALL, ids=lambda part: part.struct.__name__)
def test_parser_schema_and_value_have_the_same_keys(part: Part) -> None:
    schema = part.schema()
    whole = schema["anyOf"][-1] if "anyOf" in schema else schema
    fields = {field.name for field in msgspec.structs.fields(part.struct)}
    assert {key.name for key in part.keys} == set(whole["properties"]) == fields

    assert all(key.description for key in part.keys)


@pytest.mark.parametrize("part", ALL, ids=lambda part: part.struct.__name__)
def test_every_hint_names_a_key_of_its_part(part: Part) -> None:
    """A key of another tool is answered with one that may stand there."""
    assert all(has(part, said) for said in part.instead.values())
