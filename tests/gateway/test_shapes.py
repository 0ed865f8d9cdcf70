"""Pieces of the gateway that can be looked at by themselves."""

from __future__ import annotations

import json
from typing import Annotated, Any

import msgspec
import pytest
from msgspec import Meta, Struct

from tenure.gateway.calls import ParsedWorkflows
from tenure.gateway.problems import KINDS, kind_of, problem_of
from tenure.model import errors
from tenure.wire.answers import full, shown_as


class Leaf(Struct, omit_defaults=True, frozen=True):
    word: str = ""


class Tree(Struct, omit_defaults=True, frozen=True):
    """Everything that shapes are made of."""

    leaf: Leaf = Leaf()
    perhaps: Leaf | None = None
    many: tuple[Leaf, ...] = ()
    named: dict[str, Leaf] = {}
    bounded: Annotated[int, Meta(ge=0)] = 0
    anything: Any = None


def test_a_full_shape_leaves_nothing_out_at_any_depth() -> None:
    tree = Tree(many=(Leaf(),), named={"a": Leaf()})
    assert msgspec.json.encode(tree) == b'{"many":[{}],"named":{"a":{}}}'
    assert json.loads(msgspec.json.encode(shown_as(Tree, tree))) == {
        "leaf": {"word": ""},
        "perhaps": None,
        "many": [{"word": ""}],
        "named": {"a": {"word": ""}},
        "bounded": 0,
        "anything": None,
    }
    schema = msgspec.json.schema(full(Tree))["$defs"]["Tree"]
    assert schema["required"] == list(Tree.__struct_fields__)
    assert schema["description"] == "Everything that shapes are made of."
    assert full(Tree) is full(Tree)


def test_every_error_of_a_store_has_a_problem_of_its_own_or_one_of_its_kind() -> None:
    """None of them is a defect, and what a driver said is not passed on."""
    leaves = [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.StoreError)
    ]
    assert len(leaves) > 10
    for kind in leaves:
        error = kind.__new__(kind)
        error.args = ("password=opensesame",)
        assert kind_of(error).status != 500, kind
        if kind_of(error).status == 503:
            assert "opensesame" not in problem_of(error).detail


def test_what_nobody_foresaw_is_a_defect_without_its_words() -> None:
    problem = problem_of(ValueError("/etc/secret: opensesame"))
    assert (problem.status, problem.type) == (500, "urn:tenure:problem:defect")
    assert "opensesame" not in msgspec.json.encode(problem).decode()


def test_problems_are_told_apart_by_their_names() -> None:
    names = [kind.name for kind in KINDS]
    assert len(set(names)) == len(names) > 20


def test_a_workflow_is_read_once_and_the_oldest_forgotten_first() -> None:
    read: list[str] = []

    def upper(text: str) -> str:
        read.append(text)
        return text.upper()

    library = ParsedWorkflows(upper)
    assert [library.read("a"), library.read("b"), library.read("a")] == ["A", "B", "A"]
    assert read == ["a", "b"]
    for number in range(63):
        library.read(f"n{number}")
    library.read("a")
    library.read("b")
    assert read.count("a") == 1, "it was asked for again and again"
    assert read.count("b") == 2


def test_a_workflow_with_mistakes_is_not_remembered() -> None:
    def read(text: str) -> str:
        raise errors.InvalidWorkflow([errors.Mistake(message=text)])

    library = ParsedWorkflows(read)
    for _ in range(2):
        with pytest.raises(errors.InvalidWorkflow):
            library.read("bad")
