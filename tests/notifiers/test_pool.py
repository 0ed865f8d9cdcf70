"""Places for connections: never too many, never lost, and fairly shared."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from random import Random

import pytest
from msgspec.structs import replace

from tenure.notifiers.http.connection import Connection, State
from tenure.notifiers.http.failures import NoLongerSending, Unanswered
from tenure.notifiers.http.guard import anywhere
from tenure.notifiers.http.lookup import SystemLookUp
from tenure.notifiers.http.names import Names
from tenure.notifiers.http.opening import Opening, system_certificates
from tenure.notifiers.http.pool import IDLE, Pool
from tenure.notifiers.http.target import Origin
from tests.notifiers.deliveries import HERE, NewSender, delivery
from tests.notifiers.receiver import PATIENCE, Receiver
from tests.notifiers.timing import move_clock


@pytest.fixture
async def others(receiver: Receiver) -> AsyncIterator[list[Receiver]]:
    async with Receiver() as first, Receiver() as second:
        yield [first, second]


@pytest.fixture
async def one_place(receiver: Receiver) -> AsyncIterator[Pool]:
    """A pool for one connection."""
    opening = Opening(HERE, Names(SystemLookUp(), anywhere), anywhere, system_certificates())
    pool = Pool(opening, 1, 1)
    async with asyncio.timeout(PATIENCE):
        yield pool
        await pool.close()
        await receiver.alone()


def origin(receiver: Receiver) -> Origin:
    return Origin("http", "127.0.0.1", receiver.port)


async def waiting(pool: Pool, receiver: Receiver) -> asyncio.Task[Connection]:
    """Somebody who found no place. One round of the loop, and they stand in line."""
    task = asyncio.create_task(pool.obtain(origin(receiver)))
    done, _ = await asyncio.wait({task}, timeout=0)
    assert not done
    return task


# -- bounds ---------------------------------------------------------------------------------------


async def test_idle_connections_count_and_make_room(
    new_sender: NewSender, receiver: Receiver, others: list[Receiver]
) -> None:
    sender = new_sender(replace(HERE, connections=2))
    for each in (*others, receiver):
        assert await sender.send(delivery(each.url("ok"))) is None
    await others[0].alone()  # the one that was idle for longest
    assert (others[1].open, receiver.open) == (1, 1)


async def test_idle_connections_end_by_themselves(
    new_sender: NewSender,
    receiver: Receiver,
    others: list[Receiver],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sender = new_sender()
    await sender.send(delivery(receiver.url("ok")))
    move_clock(monkeypatch, IDLE / 2)
    await sender.send(delivery(others[0].url("ok")))
    move_clock(monkeypatch, IDLE / 2)
    await receiver.alone()
    assert others[0].open == 1
    move_clock(monkeypatch, IDLE / 2)
    await others[0].alone()


async def test_waiting_for_a_place_counts(new_sender: NewSender, receiver: Receiver) -> None:
    """Fifty who wait for one place that is never free: none waits for longer than it may."""
    sender = new_sender(replace(HERE, connections=1, total_timeout=0.3))
    async with asyncio.timeout(PATIENCE / 2):
        sent = [sender.send(delivery(receiver.url("hang"))) for _ in range(50)]
        refused = await asyncio.gather(*sent)
    assert {each and (each.error, each.again) for each in refused} == {
        ("no answer within 0.3 s", True)
    }
    assert receiver.connections < 25  # hardly anybody had a turn, and no time left


# -- nothing gets lost ----------------------------------------------------------------------------


@pytest.mark.parametrize("vice", ["hang", "trickle-headers", "trickle-body"])
async def test_one_who_is_cancelled_gives_the_place_back_and_not_the_connection(
    vice: str, new_sender: NewSender, receiver: Receiver
) -> None:
    patient = replace(HERE, connections=1, read_timeout=PATIENCE, total_timeout=PATIENCE)
    sender = new_sender(patient)
    first = asyncio.create_task(sender.send(delivery(receiver.url(vice))))
    await receiver.got(1)
    next_one = asyncio.create_task(sender.send(delivery(receiver.url("ok"))))
    await asyncio.wait({next_one}, timeout=0)
    first.cancel()
    assert await next_one is None
    assert [got.connection for got in receiver.received] == [1, 2]


async def test_what_never_connects_gives_its_place_back(
    new_sender: NewSender, receiver: Receiver
) -> None:
    sender = new_sender(replace(HERE, connections=1, connect_timeout=0.2))
    async with Receiver() as gone:
        nobody = gone.url("ok")
    for url in (nobody, receiver.url("ok").replace("http:", "https:"), "http://no.invalid/"):
        assert await sender.send(delivery(url)) is not None
        assert await sender.send(delivery(receiver.url("ok"))) is None


async def test_one_who_stops_waiting_is_in_nobodys_way(one_place: Pool, receiver: Receiver) -> None:
    held = await one_place.obtain(origin(receiver))
    first, second = await waiting(one_place, receiver), await waiting(one_place, receiver)
    first.cancel()
    one_place.give_back(origin(receiver), held)
    assert await second is held
    assert first.cancelled()


@pytest.mark.parametrize("answered", [True, False])
async def test_what_is_granted_to_one_who_is_cancelled_at_that_moment_goes_on(
    answered: bool, one_place: Pool, receiver: Receiver
) -> None:
    """A connection, or a place to open one."""
    held = await one_place.obtain(origin(receiver))
    first, second = await waiting(one_place, receiver), await waiting(one_place, receiver)
    if not answered:
        held.close()
    one_place.give_back(origin(receiver), held)
    first.cancel()
    assert (await second is held) is answered
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_a_connection_that_ends_as_it_is_granted_makes_room_for_another(
    one_place: Pool, receiver: Receiver
) -> None:
    held = await one_place.obtain(origin(receiver))
    task = await waiting(one_place, receiver)
    one_place.give_back(origin(receiver), held)
    held.eof_received()
    got = await task
    assert (got.state, got is held) == (State.IDLE, False)
    one_place.give_back(origin(receiver), got)
    assert await one_place.obtain(origin(receiver)) is got


async def test_closed_as_a_connection_is_granted(one_place: Pool, receiver: Receiver) -> None:
    held = await one_place.obtain(origin(receiver))
    task = await waiting(one_place, receiver)
    one_place.give_back(origin(receiver), held)
    await one_place.close()
    with pytest.raises(NoLongerSending):
        await task
    with pytest.raises(NoLongerSending):
        await one_place.obtain(origin(receiver))
    assert receiver.connections == 1


async def test_closing_ends_all_waiting(new_sender: NewSender, receiver: Receiver) -> None:
    sender = new_sender(replace(HERE, connections=1))
    sent = [asyncio.create_task(sender.send(delivery(receiver.url("hang")))) for _ in range(3)]
    await receiver.got(1)
    await sender.close()
    refused = await asyncio.gather(*sent)
    assert [each and each.again for each in refused] == [True] * 3
    assert [each and each.error for each in refused[1:]] == [
        "not sent: this process is about to end"
    ] * 2
    assert len(receiver.received) == 1


async def test_closed_while_a_connection_comes_about(receiver: Receiver) -> None:
    """Those who wait behind it do not wait for it, and it is not kept."""
    opened = asyncio.Event()
    opening = Opening(HERE, Names(SystemLookUp(), anywhere), anywhere, system_certificates())
    made: list[Connection] = []

    async def open_slowly(to: Origin) -> Connection:
        made.append(await opening(to))
        await opened.wait()
        return made[0]

    pool = Pool(open_slowly, 1, 1)
    first, second = await waiting(pool, receiver), await waiting(pool, receiver)
    await pool.close()
    with pytest.raises(NoLongerSending):
        await second
    opened.set()
    with pytest.raises(NoLongerSending):
        await first
    assert [connection.state for connection in made] == [State.OVER]
    await receiver.alone()


async def test_closed_nothing_is_left(one_place: Pool, receiver: Receiver) -> None:
    held = await one_place.obtain(origin(receiver))
    one_place.give_back(origin(receiver), held)
    await one_place.close()
    assert held.lost.done()


async def test_receivers_nobody_sends_to_are_forgotten(
    one_place: Pool, receiver: Receiver, others: list[Receiver]
) -> None:
    """There is no end of addresses a submitter may invent."""
    held = await one_place.obtain(origin(receiver))
    for other in others:
        task = await waiting(one_place, other)
        task.cancel()
        await asyncio.wait({task})
    assert set(one_place._receivers) == {origin(receiver)}
    one_place.give_back(origin(receiver), held)
    one_place.give_back(origin(others[0]), await one_place.obtain(origin(others[0])))
    assert set(one_place._receivers) == {origin(others[0])}


async def test_a_connection_that_ends_as_it_comes_about(receiver: Receiver) -> None:
    opening = Opening(HERE, Names(SystemLookUp(), anywhere), anywhere, system_certificates())

    async def open_for_nothing(to: Origin) -> Connection:
        connection = await opening(to)
        connection.close()
        return connection

    pool = Pool(open_for_nothing, 1, 1)
    for _ in range(2):  # its place is free again
        with pytest.raises(Unanswered):
            await pool.obtain(origin(receiver))
    await pool.close()
    await receiver.alone()


async def test_a_connection_that_died_idle_is_not_handed_out(
    one_place: Pool, receiver: Receiver
) -> None:
    held = await one_place.obtain(origin(receiver))
    one_place.give_back(origin(receiver), held)
    held._transport.abort()
    await held.lost
    other = await one_place.obtain(origin(receiver))
    assert (other.state, other is held) == (State.IDLE, False)
    one_place.give_back(origin(receiver), other)


async def test_a_storm_costs_no_place(new_sender: NewSender, receiver: Receiver) -> None:
    """Vices, cancellations and time-outs in any order; then there are as many places as before."""
    luck = Random(11)
    settings = replace(HERE, connections=3, read_timeout=0.05, total_timeout=0.3)
    sender = new_sender(settings)
    vices = ["ok", "hang", "drop", "reset", "garbage", "trickle-body", "chatter", "503", "crumbs"]
    tasks = [
        asyncio.create_task(sender.send(delivery(receiver.url(luck.choice(vices)))))
        for _ in range(100)
    ]
    for task in luck.sample(tasks, 40):
        await asyncio.wait({luck.choice(tasks)}, timeout=0.005)
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    before = len(receiver.received)
    gated = [asyncio.create_task(sender.send(delivery(receiver.url("gate")))) for _ in range(3)]
    with suppress(TimeoutError):
        await receiver.got(before + 3)
    receiver.gate.set()
    assert len(receiver.received) == before + 3
    assert await asyncio.gather(*gated) == [None] * 3


# -- turns ----------------------------------------------------------------------------------------


async def test_receivers_take_turns(
    one_place: Pool, receiver: Receiver, others: list[Receiver]
) -> None:
    """However many wait for one of them."""
    order: list[Receiver] = []

    async def have_a_turn(to: Receiver) -> None:
        connection = await one_place.obtain(origin(to))
        order.append(to)
        one_place.give_back(origin(to), connection)

    held = await one_place.obtain(origin(receiver))
    turns = [receiver, receiver, receiver, others[0], others[0], others[1]]
    tasks = [asyncio.create_task(have_a_turn(to)) for to in turns]
    await asyncio.wait(tasks, timeout=0)
    one_place.give_back(origin(receiver), held)
    await asyncio.gather(*tasks)
    assert order == [receiver, others[0], others[1], receiver, others[0], receiver]
