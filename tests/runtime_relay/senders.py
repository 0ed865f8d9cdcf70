"""Senders in the hands of a test, and runs with something to send."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from tenure.model.outbox import Delivery, origin_of
from tenure.model.snapshot import CallbackTarget, RunSnapshot
from tenure.model.status import DeliveryState
from tenure.model.update import Position
from tenure.ports.callbacks import NotTaken, Outbox
from tenure.testing.contracts.acts import create_embedded, write
from tenure.testing.factories import end_run, finish_step, planned_steps, start_step

PATIENCE = 20.0
"""Far beyond anything that goes well; a test that fails should not hang."""

BUSY = NotTaken(error="503 Service Unavailable", again=True)
GONE = NotTaken(error="410 Gone", again=False)

Answer = NotTaken | None | Exception
Rule = Callable[[Delivery], Answer | Awaitable[Answer]]


class Postman:
    """A sender that notes what it carries and answers by a rule for each target's name.

    ``most`` is how many of one run and target, of one origin (``str``) and of all (``None``) were
    ever on their way at once.
    """

    def __init__(self, **rules: Rule) -> None:
        self.rules = rules
        self.sent: list[Delivery] = []
        self.most: Counter[Any] = Counter()
        self._on_the_way: Counter[Any] = Counter()
        self._news = asyncio.Condition()

    async def send(self, delivery: Delivery) -> NotTaken | None:
        shared = (None, origin_of(delivery.target), (delivery.run_id, delivery.target.name))
        for key in shared:
            self._on_the_way[key] += 1
            self.most[key] = max(self.most[key], self._on_the_way[key])
        async with self._news:
            self.sent.append(delivery)
            self._news.notify_all()
        try:
            rule = self.rules.get(delivery.target.name)
            answer = rule(delivery) if rule else None
            if isinstance(answer, Awaitable):
                answer = await answer
            else:
                await asyncio.sleep(0)
        finally:
            for key in shared:
                self._on_the_way[key] -= 1
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def close(self) -> None:
        """Nothing to let go of."""

    async def carries(self, times: int) -> None:
        """Wait until so many attempts have begun."""
        async with asyncio.timeout(PATIENCE), self._news:
            await self._news.wait_for(lambda: len(self.sent) >= times)

    @property
    def ids(self) -> list[str]:
        return [delivery.id for delivery in self.sent]

    def places(self, run_id: str, target: str = "hook") -> list[Position]:
        """Of what went out for one run and target, in the order it went."""
        return [
            delivery.event.position
            for delivery in self.sent
            if (delivery.run_id, delivery.target.name) == (run_id, target)
        ]

    @property
    def most_per_run_and_target(self) -> int:
        return max(count for key, count in self.most.items() if isinstance(key, tuple))


def one_after_another(*answers: Answer) -> Rule:
    """Each attempt gets the next answer; when there is none left, the target takes it."""
    left = iter(answers)
    return lambda _: next(left, None)


def hanging(_: Delivery) -> Awaitable[Answer]:
    """Never answers."""
    forever: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    return forever


def target(number: int = 0, name: str = "hook", **rest: Any) -> CallbackTarget:
    """Each number is a receiver of its own."""
    return CallbackTarget(name=name, url=f"https://receiver-{number}.example/hook", **rest)


EVERYTHING = target(events=("run", "step", "host"))


async def busy_run(store: Any, *targets: CallbackTarget, steps: int = 8) -> RunSnapshot:
    """A run that has ended; with two hosts a step has six events for those who ask for all."""
    run = await create_embedded(store, callbacks=targets, steps=planned_steps(steps))
    for index in range(steps):
        run = await write(store, start_step(run, index))
        run = await write(store, finish_step(run, index))
    return await write(store, end_run(run))


def once_set(event: asyncio.Event) -> Rule:
    """Answers when somebody sets it."""

    async def wait(_: Delivery) -> None:
        await event.wait()

    return wait


def skipping() -> Callable[[float], None]:
    """Lets the running loop's clock jump ahead."""
    loop = asyncio.get_running_loop()
    real, skipped = loop.time, 0.0

    def skip(seconds: float) -> None:
        nonlocal skipped
        skipped += seconds

    loop.time = lambda: real() + skipped  # type: ignore[method-assign]
    return skip


async def states(store: Outbox) -> list[tuple[DeliveryState, int]]:
    return [(one.state, one.attempts) for one in (await store.list_deliveries()).items]
