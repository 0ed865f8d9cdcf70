"""Redis Streams keep the contract, and survive what happens to servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tenure.brokers.redis_streams import RedisStreams
from tenure.brokers.redis_streams import broker as broker_module
from tenure.model.errors import BrokerUnavailable, UnknownBroker
from tenure.ports.environment import Hint
from tenure.testing.contracts.broker import (
    ONE,
    THREE,
    TWO,
    BrokerContract,
    NewBroker,
    ids,
    nothing_comes,
    taken,
)
from tests.brokers.server import Server

pytestmark = pytest.mark.slow

STREAM, LATER, GROUP = "tenure:hints:q", "tenure:later:q", "workers"
STREAM_R = "tenure:hints:r"


@pytest.fixture
def server(valkey_server: Server) -> Server:
    valkey_server.empty()
    return valkey_server


class TestContract(BrokerContract):
    hidden_for = 0.8

    @pytest.fixture
    async def new_broker(self, server: Server) -> AsyncIterator[NewBroker]:
        async with AsyncExitStack() as opened:

            async def opening() -> RedisStreams:
                broker = RedisStreams(server.url, self.hidden_for)
                return await opened.enter_async_context(broker)

            yield opening


@pytest.fixture
async def broker(server: Server) -> AsyncIterator[RedisStreams]:
    async with RedisStreams(server.url) as opened:
        yield opened


class TestWhatIsNotOurs:
    async def test_is_dropped_and_never_handed_out(
        self, server: Server, broker: RedisStreams
    ) -> None:
        strange: list[dict[Any, Any]] = [
            {"run": "short"},
            {"run": "x" * 1_000_000},
            {"run": b"run-\xff\xfe0001"},
            {"run": "../../etc/passwd"},
            {"task": ONE},
            {"run": ONE, "state": "running"},
        ]
        with server.client() as client:
            for fields in strange:
                client.xadd(STREAM, fields)
            await broker.publish("q", TWO)
            assert ids(await taken(broker)) == [TWO]
            assert client.xlen(STREAM) == 1
            pending: Any = client.xpending(STREAM, GROUP)
            assert pending["pending"] == 1

    async def test_taken_over_from_another_it_is_dropped_too(self, server: Server) -> None:
        with server.client() as client:
            client.xadd(STREAM, {"odd": "one"})
            client.xadd(STREAM, {"run": ONE})
            client.xgroup_create(STREAM, GROUP, "0")
            client.xreadgroup(GROUP, "somebody", {STREAM: ">"})
            async with RedisStreams(server.url, 0.01) as broker:
                assert ids(await taken(broker)) == [ONE]
            assert client.xlen(STREAM) == 1

    async def test_a_key_of_another_kind_is_said(
        self, server: Server, broker: RedisStreams
    ) -> None:
        with server.client() as client:
            client.set(STREAM, "mine")
        with pytest.raises(BrokerUnavailable, match="WRONGTYPE"):
            await broker.take(["q"], limit=1, wait=0.1)


class TestBounds:
    async def test_the_stream_does_not_grow_without_end(
        self, server: Server, broker: RedisStreams
    ) -> None:
        with server.client() as client, client.pipeline() as many:
            for number in range(20_000):
                many.xadd(STREAM, {"run": f"run-{number:05}"})
            many.execute()
            await broker.publish("q", ONE)
            assert client.xlen(STREAM) < 11_000

    async def test_an_answered_hint_leaves_nothing(
        self, server: Server, broker: RedisStreams
    ) -> None:
        await broker.publish("q", ONE)
        await broker.publish("q", TWO)
        one, two = await taken(broker)
        await broker.acknowledge([one])
        await broker.give_back(two, 3600)
        with server.client() as client:
            assert client.xlen(STREAM) == 0
            assert client.zrange(LATER, 0, -1) == [TWO]

    async def test_a_reader_is_not_left_waiting_by_a_delay_that_ends(
        self, server: Server, broker: RedisStreams
    ) -> None:
        """It is the taker who moves what is due; waiting for new ones only would miss it."""
        await broker.publish("q", ONE)
        (hint,) = await taken(broker)
        await broker.give_back(hint, 0.2)
        assert await broker.take(["q"], limit=1, wait=1.0) == []
        assert ids(await broker.take(["q"], limit=1, wait=0.0)) == [ONE]


class TestMoreThanAskedFor:
    """A server counts for each stream: who waits at several is answered by all that have some."""

    def both_at_once(self, server: Server, *behind: str) -> None:
        """One for each of two queues, and what comes ``behind`` in the second."""
        with server.client() as client, client.pipeline(transaction=True) as at_once:
            at_once.xadd(STREAM, {"run": ONE})
            for run_id in (ONE, *behind):
                at_once.xadd(STREAM_R, {"run": run_id})
            at_once.execute()

    async def one_of_two(self, server: Server, broker: RedisStreams, *behind: str) -> list[Hint]:
        """What comes to one that waits at both, with room for one."""
        waiting = asyncio.create_task(broker.take(["q", "r"], limit=1, wait=5.0))
        await _blocks(server, 1)
        self.both_at_once(server, *behind)
        return await waiting

    async def test_goes_to_another_that_waits(self, server: Server) -> None:
        async with RedisStreams(server.url, 3600) as one, RedisStreams(server.url, 3600) as two:
            kept = await self.one_of_two(server, one)
            assert [hint.queue for hint in kept] == ["q"]
            assert ids(await taken(two, "r")) == [ONE]

    async def test_wakes_one_that_waits_already(
        self, server: Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is told, and not left until it looks again."""
        monkeypatch.setattr(broker_module, "_MAX_BLOCK_S", 2.5)
        async with RedisStreams(server.url, 3600) as one, RedisStreams(server.url, 3600) as two:
            greedy = asyncio.create_task(one.take(["q", "r"], limit=1, wait=5.0))
            await _blocks(server, 1)
            waiting = asyncio.create_task(two.take(["r"], limit=1, wait=5.0))
            await _blocks(server, 2)
            self.both_at_once(server)
            assert [hint.queue for hint in await greedy] == ["q"]
            assert ids(await waiting) == [ONE]

    async def test_stays_in_front_of_what_came_after_it(self, server: Server) -> None:
        async with RedisStreams(server.url, 3600) as one, RedisStreams(server.url, 3600) as two:
            await self.one_of_two(server, one, TWO, THREE)
            assert ids(await taken(two, "r", limit=2)) == [ONE, TWO]
            assert ids(await taken(two, "r", limit=2)) == [THREE]

    async def test_what_is_not_ours_leaves_room_for_what_is(self, server: Server) -> None:
        async with RedisStreams(server.url, 3600) as broker:
            with server.client() as client:
                client.xadd(STREAM, {"odd": "one"})
                client.xadd(STREAM_R, {"run": ONE})
            assert ids(await broker.take(["q", "r"], limit=1, wait=0.0)) == [ONE]


class TestConsumers:
    def names(self, server: Server) -> list[str]:
        with server.client() as client:
            consumers: Any = client.xinfo_consumers(STREAM, GROUP)
            return [consumer["name"] for consumer in consumers]

    async def test_who_goes_takes_its_name_along(
        self, server: Server, broker: RedisStreams
    ) -> None:
        await broker.publish("q", ONE)
        await broker.acknowledge(await taken(broker))
        assert len(self.names(server)) == 1
        await broker.close()
        assert self.names(server) == []

    async def test_what_it_still_held_is_others_at_once(self, server: Server) -> None:
        async with RedisStreams(server.url, 3600) as going:
            await going.publish("q", ONE)
            await taken(going)
        async with RedisStreams(server.url, 3600) as staying:
            assert ids(await taken(staying)) == [ONE]

    async def test_so_is_what_came_when_it_no_longer_waited(self, server: Server) -> None:
        async with RedisStreams(server.url, 3600) as going:
            waiting = asyncio.create_task(going.take(["q"], limit=1, wait=5.0))
            with server.client() as client:
                while not _blocked(client):
                    await asyncio.sleep(0.005)
                waiting.cancel()
                await asyncio.wait([waiting])
                client.xadd(STREAM, {"run": ONE})
        assert waiting.cancelled()
        async with RedisStreams(server.url, 3600) as staying:
            assert ids(await taken(staying)) == [ONE]

    async def test_the_name_of_one_that_died_is_forgotten(self, server: Server) -> None:
        with server.client() as client:
            client.xadd(STREAM, {"run": ONE})
            client.xgroup_create(STREAM, GROUP, "0")
            client.xreadgroup(GROUP, "died", {STREAM: ">"})
        async with RedisStreams(server.url, 0.05) as broker:
            await broker.acknowledge(await taken(broker))
            async with asyncio.timeout(20):
                while "died" in self.names(server):
                    await broker.take(["q"], limit=1, wait=0.05)


class TestWhatHappensToServers:
    @pytest.fixture
    def server(self) -> Iterator[Server]:
        with Server(durable=True) as server:
            yield server

    async def test_restarted_it_has_what_was_published_held_and_given_back(
        self, server: Server
    ) -> None:
        async with RedisStreams(server.url, 0.2) as broker:
            for run_id in ("run-later", "run-taken", "run-fresh"):
                await broker.publish("q", run_id)
            later, _ = await taken(broker, limit=2)
            await broker.give_back(later, 0.05)
            server.kill()
            with pytest.raises(BrokerUnavailable):
                await broker.take(["q"], limit=1, wait=0.1)
            server.start()
            found: set[str] = set()
            async with asyncio.timeout(20):
                while found != {"run-later", "run-taken", "run-fresh"}:
                    hints = await broker.take(["q"], limit=10, wait=0.1)
                    found.update(ids(hints))
                    await broker.acknowledge(hints)

    async def test_emptied_while_somebody_waits_it_goes_on(self, server: Server) -> None:
        async with RedisStreams(server.url) as broker, RedisStreams(server.url) as other:
            assert await nothing_comes(broker)
            waiting = asyncio.create_task(taken(broker))
            with server.client() as client:
                while not client.client_list(_type="normal") or not _blocked(client):
                    await asyncio.sleep(0.01)
            server.empty()
            await other.publish("q", ONE)
            assert ids(await waiting) == [ONE]

    async def test_frozen_it_holds_nobody_up_for_long(self, server: Server) -> None:
        async with RedisStreams(server.url) as broker:
            await broker.ping()
            server.freeze()
            try:
                async with asyncio.timeout(20):
                    with pytest.raises(BrokerUnavailable):
                        await broker.publish("q", ONE)
            finally:
                server.thaw()
            await broker.ping()

    async def test_frozen_it_does_not_hold_up_who_closes_after_publishing(
        self, server: Server
    ) -> None:
        """Nothing is there that others should get: an answer is of no use to anybody."""
        broker = RedisStreams(server.url)
        server.freeze()
        try:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(broker.publish("q", ONE), 0.1)
            await asyncio.wait_for(broker.close(), 2)
        finally:
            server.thaw()


def _blocked(client: Any) -> int:
    return int(client.info("clients")["blocked_clients"])


async def _blocks(server: Server, readers: int) -> None:
    """Returns when so many wait there."""
    with server.client() as client:
        async with asyncio.timeout(20):
            while _blocked(client) < readers:
                await asyncio.sleep(0.005)


class TestAddress:
    async def test_namespaces_are_apart(self, server: Server) -> None:
        async with (
            RedisStreams(f"{server.url}?namespace=staging") as staging,
            RedisStreams(server.url) as live,
        ):
            await staging.publish("q", ONE)
            assert await nothing_comes(live)
            assert ids(await taken(staging)) == [ONE]

    @pytest.mark.parametrize(
        ("url", "said"),
        [
            ("redis://", "names a host"),
            ("redis://h:nonsense/0", "host or port cannot be read"),
            ("redis://h/0?namespace=a b", "namespace"),
            ("redis://h/staging", "database is a number"),
            ("redis://h/1/2", "database is a number"),
            ("redis://h/0?db=x", "'db'"),
            ("redis://h/0?nonsense=1", "'nonsense'"),
            ("redis://:opensesame@h/0?socket_timeout=opensesame", "'socket_timeout'"),
            ("redis://me:12?opensesame&more@h/0", "it may have namespace, db"),
            ("rediss://h/0?ssl_cert_reqs=maybe", "maybe"),
        ],
    )
    def test_what_cannot_be_meant_is_refused(self, url: str, said: str) -> None:
        with pytest.raises(UnknownBroker, match=said) as refused:
            RedisStreams(url)
        assert "opensesame" not in str(refused.value)

    @pytest.mark.parametrize("option", ["protocol=3", "decode_responses=true", "timeout=0.1"])
    def test_what_the_broker_relies_on_is_not_for_a_url_to_set(self, option: str) -> None:
        with pytest.raises(UnknownBroker, match="no option"):
            RedisStreams(f"redis://h/0?{option}")

    def test_certificates_need_tls(self) -> None:
        options = "ssl_ca_certs=/ca.pem&ssl_certfile=/me.pem&ssl_keyfile=/me.key&ssl_password=x"
        RedisStreams(f"rediss://h/0?{options}&ssl_cert_reqs=required&ssl_check_hostname=no")
        with pytest.raises(UnknownBroker, match="with rediss://"):
            RedisStreams(f"redis://h/0?{options}")

    async def test_a_database_can_be_named_in_two_ways(self, server: Server) -> None:
        async with (
            RedisStreams(server.url.removesuffix("/0") + "/3") as one,
            RedisStreams(f"{server.url.removesuffix('/0')}?db=3") as other,
        ):
            await one.publish("q", ONE)
            assert ids(await taken(other)) == [ONE]
