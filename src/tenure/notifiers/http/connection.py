"""One connection to a receiver, and who may do what with it.

*idle*      Nothing is owed to anybody. The pool holds it; whoever takes it from there may ``ask``.
            If anything comes, or the other end closes, it is over.
*asked*     A request went out and its answer has not ended. It belongs to the task that asked,
            which waits for the answer and gives the connection back, whatever comes of it. The
            answer ends when it is whole; when its status is known and the rest is too long, too
            late or cut off; or as a failure, if there is no status by then.
*over*      Closed, by either side. It is never used again.

From *asked* the way back to *idle* is narrow: the answer was whole, all of the request had gone
out, nothing followed, and the receiver said that it goes on. Everything else leads to *over*. A
task that is cancelled leaves it *asked*: nobody who finds it in that state may ask, and giving it
back ends it.

The time each answer has is kept by one timer, which is set anew only when it rings: nearly all
answers come in time, and a timer for each would cost more than reading them.
"""

from __future__ import annotations

import asyncio
from enum import Enum, auto
from typing import cast

from tenure.notifiers.http.failures import NoLongerSending, Unanswered
from tenure.notifiers.http.receiving import Answers, Reply


class State(Enum):
    IDLE = auto()
    ASKED = auto()
    OVER = auto()


class Connection(asyncio.Protocol):
    """``read_timeout`` is for the rest of an answer once its status is known."""

    _transport: asyncio.Transport
    _answer: asyncio.Future[Reply]

    def __init__(self, rest_bytes: int, read_timeout: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._answers = Answers(rest_bytes)
        self._read_timeout = read_timeout
        self._end_by = 0.0
        self._alarm: asyncio.TimerHandle | None = None
        self.state = State.OVER
        """Until it is made."""
        self.lost = self._loop.create_future()
        """Done when nothing of it is left."""
        self.idle_since = 0.0
        """The pool's to set and to read."""

    def ask(self, request: bytes, end_by: float) -> asyncio.Future[Reply]:
        """The answer, or the failure, by ``end_by`` of the loop's time."""
        if self.state is not State.IDLE:
            raise RuntimeError(f"a connection that is {self.state.name.lower()} cannot be asked")
        self.state = State.ASKED
        self._answers.expect()
        self._answer = self._loop.create_future()
        self._end_within(end_by)
        self._transport.write(request)
        return self._answer

    def close(self) -> None:
        """Say goodbye if nothing is owed, and hang up otherwise."""
        if self.state is State.IDLE:
            self.state = State.OVER
            self._transport.close()
        else:
            self._fail(NoLongerSending("stopped while sending: this process is about to end"))

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.state = State.IDLE

    def data_received(self, data: bytes) -> None:
        if self.state is not State.ASKED:  # nobody asked
            self._hang_up()
            return
        try:
            over = self._answers.feed(data)
        except OSError as error:
            self._fail(error)
            return
        if over:
            self._end()
        elif self._answers.status is not None:
            self._end_within(min(self._end_by, self._loop.time() + self._read_timeout))

    def eof_received(self) -> None:
        self._cut_off(Unanswered())

    def connection_lost(self, exc: Exception | None) -> None:
        gone = exc if isinstance(exc, OSError) else Unanswered()
        self._cut_off(gone)
        if self._alarm is not None:
            self._alarm.cancel()
        if not self.lost.done():
            self.lost.set_result(None)

    # How an answer ends

    def _end(self) -> None:
        """With what there is of it."""
        if self._answers.goes_on and not self._transport.get_write_buffer_size():
            self.state = State.IDLE
        else:
            self._hang_up()
        if not self._answer.done():
            self._answer.set_result(self._answers.reply())

    def _fail(self, error: OSError) -> None:
        asked = self.state is State.ASKED
        self._hang_up()
        if asked and not self._answer.done():
            self._answer.set_exception(error)

    def _cut_off(self, error: OSError) -> None:
        """No more will come."""
        if self.state is State.ASKED and self._answers.status is not None:
            self._end()
        else:
            self._fail(error)

    def _hang_up(self) -> None:
        self.state = State.OVER
        self._transport.abort()

    # Time

    def _end_within(self, end_by: float) -> None:
        self._end_by = end_by
        if self._alarm is None or end_by < self._alarm.when():
            self._set_alarm()

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self._loop.call_at(self._end_by, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        if self.state is not State.ASKED:
            return
        if self._loop.time() < self._end_by:
            self._set_alarm()
        else:
            self._cut_off(TimeoutError())
