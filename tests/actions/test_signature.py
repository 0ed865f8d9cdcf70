"""What a step may write is what the function takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional

import pytest

from tenure.actions.python import signature_of
from tenure.model.errors import InvalidAction
from tenure.ports.execution import Task
from tenure.workflow.catalogue import Argument

if TYPE_CHECKING:
    from decimal import Decimal

    from tenure.ports.execution import Output


def arguments(function: Callable[..., Any]) -> dict[str, Argument]:
    return {each.name: each for each in signature_of("x", function).spec.arguments}


def test_annotations_say_what_fits() -> None:
    def f(  # type: ignore[no-untyped-def]
        text: str,
        whole: int,
        number: float,
        flag: bool,
        listed: list[str],
        several: Sequence[int],
        pair: tuple[int, int],
        mapped: dict[str, Any],
        mapping: Mapping[str, int],
        maybe: str | None,
        older: Optional[int],  # noqa: UP045
        either: int | str,
        anything: Any,
        own: Argument,
        mixed: Argument | str,
        bare,
    ) -> None: ...

    assert {name: each.types for name, each in arguments(f).items()} == {
        "text": ("string",),
        "whole": ("integer",),
        "number": ("number",),
        "flag": ("boolean",),
        "listed": ("array",),
        "several": ("array",),
        "pair": ("array",),
        "mapped": ("object",),
        "mapping": ("object",),
        "maybe": ("string", "null"),
        "older": ("integer", "null"),
        "either": ("integer", "string"),
        "anything": (),
        "own": (),
        "mixed": (),
        "bare": (),
    }


def test_choices_and_descriptions() -> None:
    def f(
        size: Literal["s", "m"],
        level: Literal[1, "high"],
        odd: Literal[b"x"],
        account: Annotated[str, "Whose account."] = "",
        count: Annotated[int, 3, "How many."] = 0,
    ) -> None: ...

    found = arguments(f)
    assert (found["size"].types, found["size"].choices) == (("string",), ("s", "m"))
    assert (found["level"].types, found["level"].choices) == (("integer", "string"), (1, "high"))
    assert (found["odd"].types, found["odd"].choices) == ((), (b"x",))
    assert (found["account"].types, found["account"].description) == (("string",), "Whose account.")
    assert (found["count"].types, found["count"].description) == (("integer",), "How many.")


def test_without_a_default_it_is_required() -> None:
    def f(a: str, b: str = "x", *, c: int, d: int = 3) -> None: ...

    assert {name: each.required for name, each in arguments(f).items()} == {
        "a": True,
        "b": False,
        "c": True,
        "d": False,
    }


def test_rest_means_further_arguments() -> None:
    def closed(a: str) -> None: ...
    def wide(a: str, **rest: Any) -> None: ...

    assert not signature_of("x", closed).spec.further_arguments
    assert signature_of("x", wide).spec.further_arguments
    assert list(arguments(wide)) == ["a"]


def test_annotations_of_the_type_checker_do_no_harm() -> None:
    def f(output: Output, task: Task, price: Decimal, count: int) -> None: ...

    spec, supplied = signature_of("x", f)
    assert supplied == {"output": "output", "task": "task"}
    assert {each.name: each.types for each in spec.arguments} == {
        "price": (),
        "count": ("integer",),
    }


def test_the_description_is_the_first_paragraph() -> None:
    def f() -> None:
        """Close an account.

        Details nobody wants in a list.
        """

    spec = signature_of("x", f, on_takeover="ask").spec
    assert (spec.description, spec.on_takeover, spec.environment) == (
        "Close an account.",
        "ask",
        False,
    )


def test_what_no_name_can_fill_is_refused() -> None:
    def positional(a: str, /) -> None: ...
    def several(*accounts: str) -> None: ...

    for function in (positional, several):
        with pytest.raises(InvalidAction, match="cannot be given by name"):
            signature_of("billing.close", function)
