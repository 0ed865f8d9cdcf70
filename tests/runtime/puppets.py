"""Actions, onlookers and stores in the hands of a test."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import tenure
from tenure.model.errors import StillRunning, StoreUnavailable
from tenure.model.status import HostStatus
from tenure.model.update import RecordedEvent
from tenure.ports.execution import CheckResult, Output, OutputChunk, Task, TaskResult, Transport
from tenure.testing.faults import METHODS
from tenure.wire.callbacks import CallbackPayload
from tenure.workflow.catalogue import ActionSpec

T = TypeVar("T")
PATIENCE = 20.0
"""Far beyond anything that goes well; a test that fails should not hang."""
BROKEN = TaskResult(status=HostStatus.FAILED, kind="exit", exit_code=3, message="it broke")


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():
            await asyncio.sleep(0.005)


class Puppet:
    """An action that says who began and, where told to hold, waits to be let go.

    A task's label is ``step/host``, with ``[item]`` in a loop and ``#attempt`` from the second on.
    """

    def __init__(self, name: str = "act", *, environment: bool = False) -> None:
        self.spec = ActionSpec(name=name, further_arguments=True, environment=environment)
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.cancelled: list[str] = []
        self.tasks: dict[str, Task] = {}
        self.results: dict[str, TaskResult | Exception | Callable[[Task], Any]] = {}
        self.says: dict[str, bytes] = {}
        """What a task prints when it begins, by its label."""
        self._held: dict[str, asyncio.Event] = {}
        self._news = asyncio.Condition()

    def hold(self, *labels: str) -> None:
        for label in labels:
            self._held[label] = asyncio.Event()

    def let_go(self, *labels: str) -> None:
        for label in labels:
            self._held[label].set()

    async def holding(self, run: Coroutine[Any, Any, T], *labels: str) -> asyncio.Task[T]:
        """A run, under way, in which these have begun and wait to be let go."""
        self.hold(*labels)
        running = asyncio.create_task(run)
        await self.begins(*labels)
        return running

    async def begins(self, *labels: str) -> None:
        """Wait until these have begun."""
        async with asyncio.timeout(PATIENCE), self._news:
            await self._news.wait_for(lambda: set(labels) <= set(self.begun))

    async def apply(self, task: Task, transport: Transport, output: Output) -> TaskResult:
        label = label_of(task)
        self.tasks[label] = task
        if label in self.says:
            await output.write("stdout", self.says[label])
        await self._note(self.begun, label)
        try:
            if label in self._held:
                await self._held[label].wait()
        except asyncio.CancelledError:
            self.cancelled.append(label)
            raise
        await self._note(self.ended, label)
        result = self.results.get(label, TaskResult())
        if callable(result):
            result = result(task)
            if isinstance(result, Awaitable):
                result = await result
        if isinstance(result, Exception):
            raise result
        return result

    async def check(self, task: Task, transport: Transport) -> CheckResult:
        return CheckResult()

    async def _note(self, notes: list[str], label: str) -> None:
        async with self._news:
            notes.append(label)
            self._news.notify_all()


async def unkillable(task: Task) -> TaskResult:
    """As a result: what nobody could end."""
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        raise StillRunning("process 1234 could not be killed") from None
    return TaskResult()


def label_of(task: Task) -> str:
    item = "" if task.item is None else f"[{task.item}]"
    attempt = "" if task.attempt == 1 else f"#{task.attempt}"
    return f"{task.step}/{task.host.name}{item}{attempt}"


def step(name: str, action: str = "act", **rest: Any) -> tenure.Step:
    return tenure.Step(name=name, action=action, **rest)


def shell(name: str, cmd: str, **rest: Any) -> tenure.Step:
    return tenure.Step(name=name, action="cmd.run", args={"cmd": cmd}, **rest)


def workflow(
    *steps: tenure.Step, hosts: Iterable[str] = ("local",), **rest: Any
) -> tenure.Workflow:
    inventory = tenure.Inventory(hosts={host: tenure.HostSpec(address="local") for host in hosts})
    return tenure.Workflow(name="deploy", steps=steps, inventory=inventory, **rest)


class Onlooker:
    """A recorder that keeps everything, and lets a test wait for an event."""

    def __init__(self) -> None:
        self.events: list[RecordedEvent] = []
        self.chunks: list[OutputChunk] = []
        self.planned: list[tenure.RunSnapshot] = []
        self._news = asyncio.Condition()

    def begin(self, planned: tenure.RunSnapshot) -> None:
        self.planned.append(planned)

    async def record(self, event: RecordedEvent) -> None:
        async with self._news:
            self.events.append(event)
            self._news.notify_all()

    def output(self, chunk: OutputChunk) -> None:
        self.chunks.append(chunk)

    @property
    def types(self) -> list[str]:
        return [event.type for event in self.events]

    async def hears(self, kind: str) -> None:
        async with asyncio.timeout(PATIENCE), self._news:
            await self._news.wait_for(lambda: kind in self.types)


class Inbox:
    """A notifier that keeps what it gets."""

    def __init__(self) -> None:
        self.payloads: list[CallbackPayload] = []

    async def notify(self, payload: CallbackPayload) -> None:
        self.payloads.append(payload)


class Between:
    """A store behind a door: counts calls, and can refuse, delay or follow up any of them.

    ``rules[method]`` is called in place of the store's method, with the real one as first argument.
    """

    def __init__(self, store: Any) -> None:
        self.real = store
        self.durable: bool = store.durable
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.rules: dict[str, Callable[..., Awaitable[Any]]] = {}
        for name in METHODS:
            if hasattr(store, name):
                setattr(self, name, self._through(name))

    def _through(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append((name, args))
            real = getattr(self.real, name)
            if name in self.rules:
                return await self.rules[name](real, *args, **kwargs)
            return await real(*args, **kwargs)

        return call

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def fails(self, name: str, *errors: Exception) -> None:
        """The next calls raise these, one each."""
        left = list(errors)

        async def rule(real: Callable[..., Awaitable[Any]], *args: Any, **kwargs: Any) -> Any:
            if left:
                raise left.pop(0)
            return await real(*args, **kwargs)

        self.rules[name] = rule

    def count(self, name: str) -> int:
        return sum(called == name for called, _ in self.calls)


class Outage:
    """Every call of a ``Between`` fails while it is on."""

    def __init__(self, store: Between, *methods: str) -> None:
        self.on = False
        self.refused = 0
        self._news = asyncio.Condition()
        for name in methods or METHODS:
            store.rules[name] = self._rule

    async def refuses(self, times: int = 1) -> None:
        """Wait until it has refused so many calls in all."""
        async with asyncio.timeout(PATIENCE), self._news:
            await self._news.wait_for(lambda: self.refused >= times)

    async def _rule(self, real: Callable[..., Awaitable[Any]], *args: Any, **kwargs: Any) -> Any:
        if not self.on:
            return await real(*args, **kwargs)
        async with self._news:
            self.refused += 1
            self._news.notify_all()
        raise StoreUnavailable("the network is down")
