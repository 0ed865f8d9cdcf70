"""Tasks that do not hear it the first time are ended all the same."""

from __future__ import annotations

import asyncio

import pytest

from tenure.aio import cancel_and_wait, end, finished_within

PATIENCE = 10.0


async def deaf(times: int) -> None:
    """Takes so many cancellations for an error that it has to bear."""
    while times:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            times -= 1
    await asyncio.Event().wait()


async def begun(times: int) -> asyncio.Task[None]:
    task = asyncio.create_task(deaf(times))
    await asyncio.sleep(0)
    return task


async def test_who_does_not_hear_is_told_again() -> None:
    tasks = [await begun(0), await begun(1), await begun(3)]
    async with asyncio.timeout(PATIENCE):
        await end(*tasks)
    assert all(task.cancelled() for task in tasks)


async def test_what_has_ended_is_left_as_it_is() -> None:
    task = asyncio.create_task(asyncio.sleep(0, "done"))
    await task
    await end(task)
    assert task.result() == "done"


async def test_who_is_cancelled_waits_no_longer() -> None:
    stubborn = await begun(1_000_000)
    ending = asyncio.create_task(end(stubborn))
    await asyncio.sleep(0)
    ending.cancel()
    async with asyncio.timeout(PATIENCE):
        await asyncio.wait([ending])
    assert ending.cancelled()
    assert not stubborn.done()
    stubborn.get_coro().close()


async def test_what_takes_too_long_is_ended() -> None:
    async with asyncio.timeout(PATIENCE):
        assert not await finished_within(0.01, deaf(2))


async def test_what_does_not_is_heard() -> None:
    async def fails() -> None:
        raise KeyError("why")

    assert await finished_within(PATIENCE, asyncio.sleep(0))
    with pytest.raises(KeyError, match="why"):
        await finished_within(PATIENCE, fails())


async def test_who_is_cancelled_meanwhile_leaves_nothing_behind() -> None:
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await deaf(1)
        finally:
            ended.set()

    waiting = asyncio.create_task(finished_within(PATIENCE, work()))
    await asyncio.sleep(0.01)
    waiting.cancel()
    async with asyncio.timeout(PATIENCE):
        await asyncio.wait([waiting])
    assert waiting.cancelled()
    assert ended.is_set()


async def test_a_loop_whose_every_call_forgets_it_once_is_ended_between_two_calls() -> None:
    async def goes_round() -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await asyncio.sleep(0.05)

    task = asyncio.create_task(goes_round())
    await asyncio.sleep(0)
    async with asyncio.timeout(PATIENCE):
        await end(task)
    assert task.cancelled()


async def test_what_is_ended_anyway_ends_without_who_waited_for_it() -> None:
    task = await begun(3)
    ending = asyncio.create_task(cancel_and_wait(task))
    await asyncio.sleep(0)
    ending.cancel()
    async with asyncio.timeout(PATIENCE):
        await asyncio.wait([ending, task])
    assert ending.cancelled()
    assert task.cancelled()
