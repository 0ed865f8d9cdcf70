"""``Broker``: each hint to one worker, at least once, until it is acknowledged.

Give one fixture, ``new_broker``: each call opens another process's broker on the same server, empty
when the test begins, which hides a taken hint for ``hidden_for`` seconds. The fixture closes them::

    class TestMine(BrokerContract):
        @pytest.fixture
        async def new_broker(self):
            async with AsyncExitStack() as opened:
                yield lambda: opened.enter_async_context(MyBroker(URL, self.hidden_for))
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from tenure.ports.environment import Broker, Hint

NewBroker = Callable[[], Awaitable[Broker]]
ONE, TWO, THREE = "run-00001", "run-00002", "run-00003"
TIMEOUT_S = 20.0
QUIET_S = 0.15
"""A hint that does not arrive meanwhile does not arrive."""


async def taken(broker: Broker, *queues: str, limit: int = 10) -> list[Hint]:
    """The next hints, with a timeout."""
    async with asyncio.timeout(TIMEOUT_S):
        while not (hints := await broker.take(queues or ("q",), limit=limit, wait=0.1)):
            pass
    return hints


async def nothing_comes(broker: Broker, *queues: str) -> bool:
    return not await broker.take(queues or ("q",), limit=10, wait=QUIET_S)


def ids(hints: Sequence[Hint]) -> list[str]:
    return [hint.run_id for hint in hints]


class BrokerContract:
    pytestmark = pytest.mark.asyncio

    hidden_for = 1.0
    """Seconds; several times ``QUIET_S``."""

    @pytest.fixture
    async def broker(self, new_broker: NewBroker) -> Broker:
        return await new_broker()

    @pytest.fixture
    async def other(self, new_broker: NewBroker) -> Broker:
        return await new_broker()

    async def test_is_a_broker_that_answers(self, broker: Broker) -> None:
        assert isinstance(broker, Broker)
        await broker.ping()

    async def test_a_hint_arrives_as_it_was_published(self, broker: Broker) -> None:
        await broker.publish("q", ONE)
        (hint,) = await taken(broker)
        assert (hint.queue, hint.run_id) == ("q", ONE)

    async def test_one_that_waits_hears_of_it_at_once(self, broker: Broker, other: Broker) -> None:
        waiting = asyncio.create_task(taken(other))
        await broker.publish("q", ONE)
        assert ids(await waiting) == [ONE]

    async def test_waiting_ends_with_nothing(self, broker: Broker) -> None:
        assert await broker.take(["q"], limit=1, wait=0.05) == []

    async def test_hints_come_in_their_order_and_not_more_than_asked_for(
        self, broker: Broker
    ) -> None:
        for run_id in (ONE, TWO, THREE):
            await broker.publish("q", run_id)
        assert ids(await taken(broker, limit=2)) == [ONE, TWO]
        assert ids(await taken(broker, limit=2)) == [THREE]

    async def test_each_hint_goes_to_one(self, broker: Broker, other: Broker) -> None:
        await broker.publish("q", ONE)
        await taken(other)
        assert await nothing_comes(broker)

    async def test_queues_are_apart_and_can_be_served_together(self, broker: Broker) -> None:
        await broker.publish("q", ONE)
        await broker.publish("r", TWO)
        await broker.publish("s", THREE)
        hints = await taken(broker, "q", "r")
        while len(hints) < 2:
            hints += await taken(broker, "q", "r")
        assert sorted((hint.queue, hint.run_id) for hint in hints) == [("q", ONE), ("r", TWO)]
        assert await nothing_comes(broker, "q", "r")

    async def test_not_more_than_asked_for_of_all_queues_together(
        self, broker: Broker, other: Broker
    ) -> None:
        for queue in ("q", "r", "s"):
            for run_id in (ONE, TWO):
                await broker.publish(queue, run_id)
        held: list[Hint] = []
        for limit in (1, 3):
            came = await taken(broker, "q", "r", "s", limit=limit)
            assert len(came) <= limit
            held += came
        while len(held) < 6:
            held += await taken(other, "q", "r", "s")
        assert len({(hint.queue, hint.run_id) for hint in held}) == 6

    async def test_no_queue_waits_until_another_is_empty(self, broker: Broker) -> None:
        for number in range(20):
            await broker.publish("q", f"run-{number:05}")
            await broker.publish("r", f"run-{number:05}")
        served = [(await taken(broker, "q", "r", limit=1))[0].queue for _ in range(10)]
        assert {*served} == {"q", "r"}

    async def test_hints_that_came_before_anybody_served_the_queue_are_kept(
        self, broker: Broker, other: Broker
    ) -> None:
        await broker.publish("q", ONE)
        await broker.publish("q", TWO)
        assert ids(await taken(other)) == [ONE, TWO]

    async def test_what_is_acknowledged_does_not_come_again(
        self, broker: Broker, other: Broker
    ) -> None:
        await broker.publish("q", ONE)
        await broker.acknowledge(await taken(broker))
        await broker.publish("q", TWO)
        await self.hidden_no_longer()
        assert ids(await taken(other)) == [TWO]
        assert await nothing_comes(other)

    async def test_what_is_not_acknowledged_goes_to_another(
        self, broker: Broker, other: Broker
    ) -> None:
        await broker.publish("q", ONE)
        (first,) = await taken(broker)
        assert await nothing_comes(other)
        (second,) = await taken(other)
        assert (second.run_id, second.queue) == (first.run_id, first.queue)

    async def test_who_held_it_before_has_no_say_in_it(self, broker: Broker, other: Broker) -> None:
        await broker.publish("q", ONE)
        late = await taken(broker)
        await taken(other)
        await broker.acknowledge(late)
        await broker.give_back(late[0], 0)
        assert await nothing_comes(broker)
        assert ids(await taken(broker)) == [ONE], "the other held it, and did not answer"

    async def test_given_back_it_comes_again_at_once(self, broker: Broker, other: Broker) -> None:
        await broker.publish("q", ONE)
        (hint,) = await taken(broker)
        await broker.give_back(hint, 0)
        assert ids(await taken(other)) == [ONE]
        assert await nothing_comes(broker)

    async def test_given_back_with_a_delay_it_comes_after_that(
        self, broker: Broker, other: Broker
    ) -> None:
        await broker.publish("q", ONE)
        (hint,) = await taken(broker)
        await broker.give_back(hint, QUIET_S * 2)
        assert await nothing_comes(other)
        assert ids(await taken(other)) == [ONE]

    async def test_given_back_twice_it_comes_once(self, broker: Broker, other: Broker) -> None:
        await broker.publish("q", ONE)
        await broker.publish("q", ONE)
        for hint in await taken(broker):
            await broker.give_back(hint, 0.05)
        assert ids(await taken(other)) == [ONE]
        assert await nothing_comes(broker)

    async def test_answers_to_nothing_are_harmless(self, broker: Broker) -> None:
        await broker.acknowledge([])
        await broker.publish("q", ONE)
        hints = await taken(broker)
        await broker.acknowledge(hints)
        await broker.acknowledge(hints)
        await broker.give_back(hints[0], 0)
        assert await nothing_comes(broker)

    async def test_purged_there_is_nothing_and_it_goes_on(
        self, broker: Broker, other: Broker
    ) -> None:
        for run_id in (ONE, TWO, THREE):
            await broker.publish("q", run_id)
        first, second = await taken(broker, limit=2)
        await broker.give_back(first, 0.05)
        await broker.purge("q")
        assert await nothing_comes(other)
        await broker.acknowledge([second])
        await broker.publish("q", ONE)
        assert ids(await taken(other)) == [ONE]

    async def hidden_no_longer(self) -> None:
        """Wait until a taken hint is visible again."""
        await asyncio.sleep(self.hidden_for * 1.1)
