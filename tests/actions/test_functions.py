"""Python functions as actions: ``@action`` and ``python.call``; what a step may write is what the
function takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional

from tenure.actions import new_registry, python
from tenure.actions.python import signature_of
from tenure.actions.registry import DECLARED, FunctionAction, action
from tenure.model.errors import (
    HostUnreachable,
    InvalidAction,
    InvalidArguments,
    LeaseLost,
    StillRunning,
)
from tenure.model.status import HostStatus
from tenure.ports.execution import Command, Output, Task, TaskResult, Transport
from tenure.transports.local import LocalTransport
from tenure.transports.routing import UnreachableTransport
from tenure.workflow.catalogue import Argument
from tests.actions.making import new_task
from tests.transports.keeping import Kept

if TYPE_CHECKING:
    from tenure.ports.execution import Output
import asyncio
import sys
import threading

import pytest

NOWHERE = UnreachableTransport()
TENANT = ContextVar("tenant", default="nobody")


@pytest.fixture(autouse=True)
def nothing_stays_declared() -> Iterator[None]:
    before = dict(DECLARED)
    DECLARED.clear()
    yield
    DECLARED.clear()
    DECLARED.update(before)


async def apply(
    function: Callable[..., Any], args: dict[str, Any] | None = None, output: Output | None = None
) -> TaskResult:
    declared = FunctionAction("test.it", function)
    return await declared.apply(new_task("test.it", args), NOWHERE, output or Kept())


# -- calling --------------------------------------------------------------------------------------


async def test_the_function_stays_what_it_was() -> None:
    async def close(account: str) -> str:
        """Close it."""
        return f"closed {account}"

    assert action("billing.close")(close) is close
    assert await close("a") == "closed a"
    assert new_registry()["billing.close"].spec.description == "Close it."


async def test_an_async_function_runs_in_the_loop() -> None:
    seen: dict[str, object] = {}

    async def look(account: str, days: int = 3) -> None:
        seen.update(account=account, days=days, thread=threading.get_ident())

    assert await apply(look, {"account": "a"}) == TaskResult()
    assert seen == {"account": "a", "days": 3, "thread": threading.get_ident()}


async def test_a_plain_function_runs_in_a_thread_with_the_callers_context() -> None:
    def look() -> dict[str, Any]:
        return {"thread": threading.get_ident(), "tenant": TENANT.get()}

    TENANT.set("acme")
    result = await apply(look)
    assert result.vars["thread"] != threading.get_ident()
    assert result.vars["tenant"] == "acme"


async def test_plain_functions_do_not_wait_for_each_other() -> None:
    """However many: none is kept from starting by others that take long."""
    everybody = threading.Barrier(40, timeout=20)

    def meet() -> None:
        everybody.wait()

    results = await asyncio.gather(*(apply(meet) for _ in range(40)))
    assert {result.status for result in results} == {HostStatus.SUCCESS}


async def test_it_can_be_given_the_task_and_what_the_task_is_given() -> None:
    async def run(task: Task, transport: Transport, output: Output, word: str) -> dict[str, str]:
        await transport.run(task.host, Command(argv=("echo", word), env=task.env), output)
        return {"HOST": task.host.name}

    kept, transport = Kept(), LocalTransport()
    declared = FunctionAction("test.it", run)
    task = new_task("test.it", {"word": "hello"})
    result = await declared.apply(task, transport, kept)
    await transport.close()
    assert (result.vars, kept.stdout) == ({"HOST": "here"}, b"hello\n")
    assert [argument.name for argument in declared.spec.arguments] == ["word"]
    assert declared.spec.environment


# -- results and failures -------------------------------------------------------------------------


@pytest.mark.parametrize("value", [3, "text", [], {1: "a"}])
async def test_an_odd_result_is_a_failure_that_says_what_to_return(value: object) -> None:
    async def odd() -> object:
        return value

    result = await apply(odd)
    assert (result.status, result.kind) == (HostStatus.FAILED, "exception")
    assert f"returned {type(value).__name__}; return None, a dict" in (result.message or "")


def fail_plainly() -> None:
    raise ValueError("no such account")


async def fail_async() -> None:
    raise ValueError("no such account")


@pytest.mark.parametrize("function", [fail_plainly, fail_async])
async def test_an_exception_is_a_failure_and_its_traceback_is_output(
    function: Callable[..., Any],
) -> None:
    kept = Kept()
    result = await apply(function, output=kept)
    assert (result.status, result.kind) == (HostStatus.FAILED, "exception")
    assert result.message == "ValueError: no such account"
    assert b"Traceback" in kept.stderr
    assert function.__name__.encode() in kept.stderr


@pytest.mark.parametrize("error", [SystemExit(3), StopIteration("x"), KeyboardInterrupt()])
async def test_a_plain_function_cannot_end_the_program(error: BaseException) -> None:
    def leave() -> None:
        raise error

    result = await apply(leave)
    assert (result.status, result.kind) == (HostStatus.FAILED, "exception")
    assert type(error).__name__ in (result.message or "")


@pytest.mark.parametrize(
    "error",
    [
        HostUnreachable("web1", "ssh://web1", "no route"),
        StillRunning("x"),
        LeaseLost("run-1", fence=2, owner_id=None),
    ],
)
async def test_what_the_engine_must_know_passes_through(error: Exception) -> None:
    async def fail() -> None:
        raise error

    with pytest.raises(type(error)):
        await apply(fail)


# -- cancelling -----------------------------------------------------------------------------------


async def test_cancelling_reaches_an_async_function() -> None:
    begun, tidied = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            tidied.set()

    task = asyncio.ensure_future(apply(wait))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert tidied.is_set()


@pytest.mark.parametrize("failing", [False, True])
async def test_a_cancelled_plain_function_is_waited_for(failing: bool) -> None:
    loop, begun, go, ended = asyncio.get_running_loop(), asyncio.Event(), threading.Event(), []

    def work() -> None:
        loop.call_soon_threadsafe(begun.set)
        go.wait(20)
        ended.append(True)
        if failing:
            raise ValueError("too late to matter")

    task = asyncio.ensure_future(apply(work))
    await begun.wait()
    task.cancel()
    loop.call_soon(loop.call_soon, go.set)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended


@pytest.mark.parametrize("again", [False, True])
async def test_a_plain_function_that_does_not_end_is_said_to_run(
    monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    monkeypatch.setattr(python, "_GRACE_S", 60 if again else 0.05)
    loop, begun, go = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def work() -> None:
        loop.call_soon_threadsafe(begun.set)
        go.wait(20)

    task = asyncio.ensure_future(apply(work))
    await begun.wait()
    task.cancel()
    if again:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
    with pytest.raises(StillRunning, match=r"test\.it was told to end and still runs"):
        await task
    go.set()


# -- python.call ----------------------------------------------------------------------------------


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    name = "accounts_of_a_test"
    (tmp_path / f"{name}.py").write_text(
        "async def close(account, days=1):\n"
        "    return {'CLOSED': account, 'DAYS': days}\n"
        "def count(): return {'N': 1}\n"
        "class Ledger:\n"
        "    @staticmethod\n"
        "    def book(): return {'BOOKED': True}\n"
        "VALUE = 1\n"
    )
    (tmp_path / "broken_of_a_test.py").write_text("raise RuntimeError('half installed')")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield name
    sys.modules.pop(name, None)


async def python_call(function: str, args: Any = None) -> TaskResult:
    given = {"function": function} | ({} if args is None else {"args": args})
    return await new_registry()["python.call"].apply(
        new_task("python.call", given), NOWHERE, Kept()
    )


async def test_a_function_by_name(module: str) -> None:
    result = await python_call(f"{module}:close", {"account": "a", "days": 2})
    assert result.vars == {"CLOSED": "a", "DAYS": 2}
    assert (await python_call(f"{module}:count")).vars == {"N": 1}
    assert (await python_call(f"{module}:Ledger.book")).vars == {"BOOKED": True}


@pytest.mark.parametrize(
    ("function", "told"),
    [
        ("close", "is not of the form package.module:name"),
        ("accounts_of_a_test:missing", "has no function 'missing'"),
        ("accounts_of_a_test:VALUE", "has no function 'VALUE'"),
        ("no_such_module:x", "no_such_module cannot be imported here (ModuleNotFoundError"),
        ("broken_of_a_test:x", "cannot be imported here (RuntimeError: half installed)"),
    ],
)
async def test_a_function_that_is_not_there(module: str, function: str, told: str) -> None:
    with pytest.raises(InvalidArguments) as refused:
        await python_call(function)
    assert told in str(refused.value)
    task = new_task("python.call", {"function": function})
    with pytest.raises(InvalidArguments):
        await new_registry()["python.call"].check(task, NOWHERE)


async def test_checking_calls_nothing(module: str) -> None:
    task = new_task("python.call", {"function": f"{module}:close", "args": {"account": "a"}})
    check = await new_registry()["python.call"].check(task, NOWHERE)
    assert (check.changed, check.summary) == (None, f"would call {module}:close(account)")


# -- declaring ------------------------------------------------------------------------------------


def test_a_name_is_given_once() -> None:
    async def one() -> None: ...
    async def two() -> None: ...

    action("billing.close")(one)
    with pytest.raises(InvalidAction, match=r"taken by .*one; choose another name"):
        action("billing.close")(two)
    assert DECLARED["billing.close"].function is one


def test_our_own_names_are_not_given_away() -> None:
    with pytest.raises(InvalidAction, match="one of Tenure's own"):
        action("cmd.run")(fail_async)


@pytest.mark.parametrize("name", ["", "a b", ".x", "ünï", "x..y"])
def test_a_name_must_be_one(name: str) -> None:
    with pytest.raises(InvalidAction, match="no name for an action"):
        action(name)


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
