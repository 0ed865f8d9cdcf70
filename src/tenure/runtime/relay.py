"""Gets callbacks from the outbox to their receivers: each at least once, and in order.

A callback is, at any moment, in one of these hands:

*waiting*    in the outbox, due or not. Nobody's; any relay may claim it.
*queued*     claimed under a token by this relay, in the lane of its receiver (``runtime.lanes``).
             Nothing was sent. What has no place, or does not begin within ``begin`` seconds of
             the claim, is put back: it waits as before.
*under way*  one attempt (``runtime.carrying``), over within ``send`` seconds.
*ended*      we know how it went, the store does not yet (``runtime.settling``).
*settled*    delivered; or waiting again, later; or a dead letter.

The claim outlasts all of this: ``begin + send + 2 margin`` seconds from the moment it was *sent*,
not answered. So while our clock runs nobody else claims what we may still be sending, and the
next one of the same run and target does not overtake it.

A relay that closes (*ending*, then *closed*) has some seconds left. It goes on for the runs that
its process owes callbacks for, but begins nothing that would not be over by then, going by how long
that receiver took last. When those runs were tried, or nothing more can begin, it claims no more,
puts back what is queued, and lets everything under way end, whosever it is, until the seconds are
over. So also commands that live for a moment deliver what others left: what they began when they
opened gets the same time as what they owe. What is then *cut short* was an attempt like any other:
it counts, the waits grow, and the last one makes a dead letter.

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
from functools import partial
from itertools import chain, islice
from math import inf

from tenure.cancelling import end_anyway
from tenure.model.errors import StoreLost
from tenure.model.outbox import Delivery, Outcome, PutBack, Settlement
from tenure.model.retry import RetryPolicy
from tenure.ports.outbox import Outbox
from tenure.ports.sender import CallbackSender, NotTaken
from tenure.runtime.carrying import Carrying, Ending, Interruption
from tenure.runtime.flushing import all_tried
from tenure.runtime.lanes import Deadline, Held, Lanes
from tenure.runtime.patience import ENDLESS
from tenure.runtime.relay_timing import RelayTiming
from tenure.runtime.sending import CUT_SHORT, outcome_of
from tenure.runtime.settling import Claim, Settling
from tenure.runtime.turns import Turns
from tenure.runtime.waiting import happens_within, pause

_log = logging.getLogger("tenure.runtime")

_A_MOMENT = 1.0
"""Seconds for what takes none if all is well."""
_LOCKED_AGAIN = 0.25
"""Seconds until the next try to settle what somebody else keeps the store from."""
_NAMED_AT_ONCE = 500
_SILENT = "the store does not answer about callbacks (%s); they wait until it does"
_LOST = "no callbacks are sent any more: %s"


class Relay:
    """Any number of relays may share an outbox, in one process or in many.

    ``concurrency`` attempts at once in all, ``per_target`` to one receiver (scheme, host, port).
    ``settled`` hears of each attempt whose outcome the store has taken. ``only`` callbacks with
    these ids are sent; who gives it may take out of it what need not be sent any more. The sender
    stays its maker's to close, after the relay.
    """

    def __init__(
        self,
        outbox: Outbox,
        send: CallbackSender,
        policy: RetryPolicy,
        *,
        new_id: Callable[[], str],
        settled: Callable[[Delivery], None] = lambda _: None,
        only: Collection[str] | None = None,
        timing: RelayTiming = RelayTiming(),
        concurrency: int = 100,
        per_target: int = 10,
    ) -> None:
        self._outbox = outbox
        self._policy = policy
        self._new_id = new_id
        self._only = only
        self._timing = timing
        self._lanes = Lanes(concurrency, per_target)
        self._settling = Settling(outbox, settled)
        self._carrying = Carrying(send, self._following, self._ended)
        self._token: str | None = None
        """Of a claim that was not answered."""
        self._news = asyncio.Event()
        self._deadline = Deadline()
        self._closing = asyncio.Event()
        self._turns = Turns()
        self._failures = 0
        self._asked = False
        """Whether this turn had a question for the store: one without proves nothing of it."""
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
                    await self._turns.come_to_rest()
                else:
                    for run_id in run_ids:
                        await self._turns.bring_about(partial(self._has_tried, run_id))
        except TimeoutError:
            return False
        return True

    async def close(self, seconds: float = 5.0, run_ids: Collection[str] | None = ()) -> None:
        """``flush`` for these runs, claim no more, and let what is under way end: all within
        ``seconds``. Cancelled, it waits for nothing more.

        What is then cut short is settled as an attempt that failed, so that people see why. What
        was only queued is put back: another relay may have it at once.
        """
        if self._going is None:
            self._closing.set()
            return
        self._deadline = Deadline(self._time() + seconds, seconds / 2)
        try:
            if run_ids is None or run_ids:
                await self.flush(seconds, run_ids)
            self._claim_no_more()
            await _ends(self._going, max(self._deadline.end_by - self._time(), 0.0))
        finally:
            self._claim_no_more()
            self._carrying.stop()
            await self._let_go(self._going)

    def _claim_no_more(self) -> None:
        self._closing.set()
        self.wake()

    async def _let_go(self, going: asyncio.Task[None]) -> None:
        try:
            await _ends(going, _A_MOMENT)
        finally:
            await end_anyway(going)
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
                if self._asked:
                    self._back_in_touch()
            if self._closing.is_set() and not (self._lanes or self._settling):
                return
            if wait is not None:
                await self._pause(wait)
            elif not (more or self._settling.at_once):
                await happens_within(self._news, self._until_the_next_look())

    def _until_the_next_look(self) -> float:
        return min(self._timing.poll, _LOCKED_AGAIN) if self._settling else self._timing.poll

    async def _pause(self, seconds: float) -> None:
        """Unless closing begins meanwhile: then there is one more try, and perhaps nothing left to
        wait for."""
        if self._closing.is_set():
            await pause(seconds)
        else:
            await happens_within(self._closing, seconds)

    async def _settle_and_claim(self) -> bool:
        """Whether to go on at once: there may be more that we have room for."""
        self._turns.begin()
        at_rest = too_late = False
        try:
            more = await self._claim()
            self._carrying.begin()
            self._put_back(self._lanes.pass_over(self._time(), self._deadline))
            if not (more or self._lanes or self._settling):
                at_rest = not self._lanes.passed_over
                too_late = not at_rest and self._ending
        finally:
            self._turns.end(at_rest=at_rest, too_late=too_late)
        return more

    async def _claim(self) -> bool:
        """As much as there is room for, and settle what ended before."""
        sent_at = self._time()
        if self._closing.is_set():
            self._put_back(self._lanes.give_up_queued())
        room = self._lanes.room()
        claims = bool(room) and not self._closing.is_set()
        self._asked = claims or bool(self._settling)
        if not claims:
            await self._settling.settle()
            return False
        self._token = self._token or self._new_id()
        claimed = await self._settling.settle_and_claim(
            Claim(
                self._token,
                limit=room,
                seconds=self._timing.claim,
                per_origin=self._lanes.most_to_claim,
                except_origins=self._lanes.left_out(sent_at),
                only=None if self._only is None else list(islice(self._only, _NAMED_AT_ONCE)),
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
        return self._lanes.take(self._time(), self._deadline)

    def _ended(self, held: Held, ending: Ending) -> None:
        self._settle(held, self._outcome(held.delivery, ending))
        answered = ending is None or (isinstance(ending, NotTaken) and not ending.again)
        self._lanes.ended(held, self._time(), answered=answered)
        self._news.set()

    def _put_back(self, untried: list[Held]) -> None:
        for held in untried:
            self._settle(held, PutBack())

    def _settle(self, held: Held, outcome: Outcome) -> None:
        delivery = held.delivery
        self._settling.add(Settlement(delivery.id, delivery.token or "", outcome))

    def _outcome(self, delivery: Delivery, ending: Ending) -> Outcome:
        match ending:
            case Interruption.NOT_BEGUN:
                return PutBack()
            case Interruption.STOPPED:
                ending = CUT_SHORT
        return outcome_of(ending, delivery, self._policy, random.random())  # noqa: S311

    # A store that does not answer

    def _wait_after(self, error: Exception) -> float:
        self._failures += 1
        if self._failures == 1:
            lost = isinstance(error, StoreLost)  # for good: nothing waits in it
            _log.warning(_LOST if lost else _SILENT, str(error) or type(error).__name__)
        return ENDLESS.wait_after(self._failures, luck=random.random()) or 0.0  # noqa: S311

    def _back_in_touch(self) -> None:
        if self._failures:
            _log.warning("the store answers about callbacks again")
            self._failures = 0

    # Waiting for an end

    async def _has_tried(self, run_id: str) -> bool:
        """While we hold anything of this run there is more to come: the store is not asked."""
        held = chain(self._lanes.queued(), self._carrying)
        if any(each.delivery.run_id == run_id for each in held):
            return False
        try:
            return await all_tried(self._outbox, run_id)
        except Exception as error:  # noqa: BLE001  whatever it is, it must be asked again
            _log.info("cannot see whether the callbacks of run %s went out: %s", run_id, error)
            return False

    @property
    def _ending(self) -> bool:
        return self._deadline.end_by < inf

    @staticmethod
    def _time() -> float:
        return asyncio.get_running_loop().time()


async def _ends(task: asyncio.Task[None], seconds: float) -> bool:
    done, _ = await asyncio.wait([task], timeout=seconds)
    return bool(done)
