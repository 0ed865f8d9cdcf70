"""Records of runs: ``RunStateStore`` and ``BatchUpdates``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tenure.client.line import Line, encoded, part
from tenure.client.listings import listed
from tenure.client.refusals import error_of
from tenure.model.codec import storable
from tenure.model.errors import (
    InvalidRunId,
    RunNotFound,
    StoreIncompatible,
    StoreRejected,
    TenureError,
)
from tenure.model.ids import check_run_id
from tenure.model.query import Page, RunFilter
from tenure.model.snapshot import RunSnapshot, RunSummary
from tenure.model.update import NewRun, Receipt, Update, Write, run_id_of
from tenure.wire.writes import MOST_BYTES, WriteOutcome, WriteOutcomes

_ENOUGH = 8 << 20
"""Bytes after which a batch goes on in another request; a single write may be larger."""
_MOST = 500


class RunsOverHttp:
    durable = True
    """They outlive this process, whatever the gateway keeps them in."""

    def __init__(self, line: Line) -> None:
        self._line = line

    async def create_run(self, new: NewRun) -> Receipt:
        return await self._alone(new)

    async def update_run(self, update: Update) -> Receipt:
        return await self._alone(update)

    async def _alone(self, write: Write) -> Receipt:
        (outcome,) = await self.update_runs([write])
        if isinstance(outcome, TenureError):
            raise outcome
        return outcome

    async def update_runs(self, writes: Sequence[Write]) -> list[Receipt | TenureError]:
        """What can never be stored is refused here, so that it harms no other on the way."""
        prepared = dict(enumerate(_prepared(writes)))
        outcomes: dict[int, Receipt | TenureError] = {
            number: refused
            for number, refused in prepared.items()
            if not isinstance(refused, bytes)
        }
        fine = {number: data for number, data in prepared.items() if isinstance(data, bytes)}
        for portion in _portions(fine):
            outcomes |= zip(portion, await self._send(writes, portion), strict=True)
        return [outcomes[number] for number in range(len(writes))]

    async def _send(
        self, writes: Sequence[Write], portion: dict[int, bytes]
    ) -> list[Receipt | TenureError]:
        body = b'{"writes":[%s]}' % b",".join(portion.values())
        if len(body) > MOST_BYTES:  # of one write alone
            said = f"is too large to be sent: {len(body)} bytes, of {MOST_BYTES} at most"
            return [StoreRejected(run_id_of(writes[number]), said) for number in portion]
        answer = await self._line.ask("POST", "/v1/updates", WriteOutcomes, body=body)
        return [self._outcome(each) for each in answer.outcomes]

    def _outcome(self, outcome: WriteOutcome) -> Receipt | TenureError:
        if outcome.receipt is not None:
            return outcome.receipt
        if outcome.problem is None:
            raise StoreIncompatible(f"{self._line.address} answered a write with nothing")
        return error_of(outcome.problem, self._line.address, InvalidRunId)

    async def get_run(self, run_id: str) -> RunSnapshot:
        path = f"/v1/runs/{known(run_id)}/record"
        return await self._line.ask("GET", path, RunSnapshot)

    async def list_runs(
        self, where: RunFilter = RunFilter(), *, limit: int = 50, cursor: str | None = None
    ) -> Page[RunSummary]:
        return await listed(self._line, "/v1/runs", where, limit, cursor)


def known(run_id: str) -> str:
    """As a part of a path. ``RunNotFound`` for an id against the rules: nobody can have created
    it, and in a path it might mean something else."""
    try:
        return part(check_run_id(run_id))
    except InvalidRunId:
        raise RunNotFound(run_id) from None


def _portions(written: dict[int, bytes]) -> Iterator[dict[int, bytes]]:
    """In order; each for one request."""
    portion: dict[int, bytes] = {}
    size = 0
    for number, data in written.items():
        if portion and (size + len(data) > _ENOUGH or len(portion) == _MOST):
            yield portion
            portion, size = {}, 0
        portion[number] = data
        size += len(data)
    if portion:
        yield portion


def _prepared(writes: Sequence[Write]) -> Iterator[bytes | TenureError]:
    """At most one for each run; also one that was refused counts."""
    seen: set[str] = set()
    for write in writes:
        try:
            run_id = run_id_of(write)
            if run_id in seen:
                raise StoreRejected(run_id, "is written twice in one batch")
            seen.add(run_id)
            storable(run_id, write)
            if isinstance(write, NewRun):
                check_run_id(run_id)
            else:
                known(run_id)
            yield encoded(write)
        except TenureError as error:
            yield error
