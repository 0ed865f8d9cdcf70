"""Gets callbacks from the outbox to their receivers: each at least once, and in order.

A callback is, at any moment, in one of these hands:

*waiting*    in the outbox, due or not. Nobody's; any relay may claim it.
*queued*     claimed under a token by this relay, in the lane of its receiver (``runtime.lanes``).
             Nothing was sent. It begins within ``begin`` seconds of the claim or is forgotten.
*under way*  one attempt (``runtime.carrying``), over within ``send`` seconds.
*ended*      we know how it went, the store does not yet (``runtime.settling``).
*settled*    delivered; or waiting again, later; or a dead letter.

The claim outlasts all of this: ``begin + send + 2 margin`` seconds from the moment it was *sent*,
not answered. So while our clock runs nobody else claims what we may still be sending, and the
next one of the same run and target does not overtake it.

If the process dies, whatever it held runs out of its claim and is claimed anew: what was queued had
cost no attempt; what was under way or ended may arrive twice, under the same id. The same if it was
frozen: on waking it may finish a send that another relay repeats, and its settlement is refused.
If only an answer of the store is lost: a claim is sent again under the same token and returns what
it held; a settlement is sent again and changes nothing.

One loop talks to the store: it settles what ended and claims what there is room for, in one commit
where the store can. Whatever ends meanwhile shares the next. Settling makes the next callback of
that run and target eligible, and the claim right behind it takes it: a run's callbacks follow each
other without any polling. Polling finds what other processes wrote, and what falls due.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Collection
from itertools import chain

from tenure.model.outbox import Delivery, Outcome, PutBack, Settlement
from tenure.model.retry import RetryPolicy
from tenure.ports.outbox import Outbox
from tenure.ports.sender import CallbackSender, NotTaken
from tenure.runtime.carrying import Carrying, Ending, Interruption
from tenure.runtime.flushing import all_tried
from tenure.runtime.lanes import Held, Lanes
from tenure.runtime.patience import ENDLESS
from tenure.runtime.relay_timing import RelayTiming
from tenure.runtime.sending import cut_short, outcome_of
from tenure.runtime.settling import Claim, Settling
from tenure.runtime.waiting import happens_within, pause

_log = logging.getLogger("tenure.runtime")

_A_MOMENT = 1.0
"""Seconds for what takes none if all is well."""


class Relay:
    """Any number of relays may share an outbox, in one process or in many.

    ``concurrency`` attempts at once in all, ``per_target`` to one receiver (scheme, host, port).
    ``settled`` hears of each attempt whose outcome the store has taken. The sender stays its
    maker's to close, after the relay.
    """

    def __init__(
        self,
        outbox: Outbox,
        send: CallbackSender,
        policy: RetryPolicy,
        *,
        new_id: Callable[[], str],
        settled: Callable[[Delivery], None] = lambda _: None,
        timing: RelayTiming = RelayTiming(),
        concurrency: int = 100,
        per_target: int = 10,
    ) -> None:
        self._outbox = outbox
        self._policy = policy
        self._new_id = new_id
        self._timing = timing
        self._lanes = Lanes(concurrency, per_target)
        self._settling = Settling(outbox, settled)
        self._carrying = Carrying(send, self._following, self._ended)
        self._token: str | None = None
        """Of a claim that was not answered."""
        self._news = asyncio.Event()
        self._closing = asyncio.Event()
        self._turn = 0
        self._turned = asyncio.Event()
        self._at_rest_in = -1
        """The last turn that found nothing due and left nothing to do."""
        self._failures = 0
        self._going: asyncio.Task[None] | None = None

    def open(self) -> None:
        self._going = asyncio.create_task(self._go_on())

    def wake(self) -> None:
        """A hint that something may be due; carries no state, may be lost."""
        self._news.set()

    async def flush(self, seconds: float, run_ids: Collection[str] | None = None) -> bool:
        """Wait until every callback of these runs was tried once or stands behind one that failed;
        whether that was so before ``seconds`` were over. The rest stays in the outbox.

        Without ``run_ids``: until nothing is due, as far as one can tell from here.
        """
        self.wake()
        try:
            async with asyncio.timeout(seconds):
                if run_ids is None:
                    await self._comes_to_rest()
                else:
                    for run_id in run_ids:
                        await self._has_tried(run_id)
        except TimeoutError:
            return False
        return True

    async def close(self, seconds: float = 5.0) -> None:
        """Claim no more, and let what is under way end, for ``seconds`` at most.

        What is then cut short is settled as an attempt that failed, so that it is tried again soon
        and people see why. What was only queued is put back: another relay may have it at once.
        """
        self._closing.set()
        self.wake()
        if self._going is None:
            return
        at_rest = await _ends(self._going, seconds)
        self._carrying.stop()
        if at_rest:
            return
        if not await _ends(self._going, _A_MOMENT):
            self._going.cancel()
            await asyncio.wait([self._going])
        if self._settling:
            _log.warning(
                "%d callbacks were sent and the store could not be told: they will be sent again",
                len(self._settling),
            )

    # The loop

    async def _go_on(self) -> None:
        while True:
            self._news.clear()  # what comes from now on may be missed by this turn
            wait: float | None = None
            try:
                more = await self._settle_and_claim()
            except Exception as error:  # noqa: BLE001  whatever it is, callbacks must be tried again
                more, wait = False, self._wait_after(error)
            else:
                self._back_in_touch()
            if self._closing.is_set() and not (self._lanes or self._settling):
                return
            if wait is not None:
                await self._pause(wait)
            elif not (more or self._settling):
                await happens_within(self._news, self._timing.poll)

    async def _pause(self, seconds: float) -> None:
        """Unless closing begins meanwhile: then there is one more try, and perhaps nothing left to
        wait for."""
        if self._closing.is_set():
            await pause(seconds)
        else:
            await happens_within(self._closing, seconds)

    async def _settle_and_claim(self) -> bool:
        """Whether to go on at once: there may be more that we have room for."""
        self._turn += 1
        try:
            more = await self._claim()
            self._carrying.begin()
            if not (self._lanes or self._settling):
                self._at_rest_in = self._turn
        finally:
            self._turned.set()
            self._turned = asyncio.Event()
        return more

    async def _claim(self) -> bool:
        """As much as there is room for, and settle what ended before."""
        sent_at = asyncio.get_running_loop().time()
        self._lanes.forget_late(sent_at)
        if self._closing.is_set():
            for held in self._lanes.give_up_queued():
                self._settle(held, PutBack())
        room = self._lanes.room()
        if self._closing.is_set() or not room:
            await self._settling.settle()
            return False
        self._token = self._token or self._new_id()
        claimed = await self._settling.settle_and_claim(
            Claim(
                self._token,
                limit=room,
                seconds=self._timing.claim,
                per_origin=self._lanes.most_to_claim,
                except_origins=self._lanes.full(),
            )
        )
        self._token = None
        limits = self._timing.limits(sent_at)
        for delivery in claimed:
            held = Held(delivery, *limits)
            if not self._carrying.renew(held):
                self._lanes.put(held)
        return len(claimed) == room

    def _following(self) -> list[Held]:
        if self._closing.is_set():
            return []
        return self._lanes.take(asyncio.get_running_loop().time())

    def _ended(self, held: Held, ending: Ending) -> None:
        self._settle(held, self._outcome(held.delivery, ending))
        answered = ending is None or (isinstance(ending, NotTaken) and not ending.again)
        self._lanes.ended(held, answered=answered)
        self._news.set()

    def _settle(self, held: Held, outcome: Outcome) -> None:
        delivery = held.delivery
        self._settling.add(Settlement(delivery.id, delivery.token or "", outcome))

    def _outcome(self, delivery: Delivery, ending: Ending) -> Outcome:
        match ending:
            case Interruption.NOT_BEGUN:
                return PutBack()
            case Interruption.STOPPED:
                return cut_short(self._policy)
        return outcome_of(ending, delivery, self._policy, random.random())  # noqa: S311

    # A store that does not answer

    def _wait_after(self, error: Exception) -> float:
        self._failures += 1
        if self._failures == 1:
            _log.warning(
                "the store does not answer about callbacks (%s); they wait until it does",
                str(error) or type(error).__name__,
            )
        return ENDLESS.wait_after(self._failures, luck=random.random()) or 0.0  # noqa: S311

    def _back_in_touch(self) -> None:
        if self._failures:
            _log.info("the store answers about callbacks again")
            self._failures = 0

    # Waiting for an end

    async def _comes_to_rest(self) -> None:
        asked_in = self._turn
        while self._at_rest_in <= asked_in:
            await self._turned.wait()

    async def _has_tried(self, run_id: str) -> None:
        """While we hold anything of this run there is more to come: the store is not asked."""
        while True:
            turned = self._turned
            if not self._holds(run_id) and await self._all_tried(run_id):
                return
            await turned.wait()

    async def _all_tried(self, run_id: str) -> bool:
        try:
            return await all_tried(self._outbox, run_id)
        except Exception as error:  # noqa: BLE001  whatever it is, it must be asked again
            _log.info("cannot see whether the callbacks of run %s went out: %s", run_id, error)
            return False

    def _holds(self, run_id: str) -> bool:
        held = chain(self._lanes.queued(), self._carrying)
        return any(each.delivery.run_id == run_id for each in held)


async def _ends(task: asyncio.Task[None], seconds: float) -> bool:
    done, _ = await asyncio.wait([task], timeout=seconds)
    return bool(done)
