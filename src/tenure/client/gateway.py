"""``Gateway``: a typed client of the HTTP API."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any, Self

from tenure.client.store import RecordsOverHttp, known, listed
from tenure.client.transport import (
    TIMEOUT,
    HttpTransport,
    Stream,
    encoded,
    followed,
    key_header,
    part,
)
from tenure.model.errors import InvalidCursor
from tenure.model.query import Page, RunFilter
from tenure.model.snapshot import RunSnapshot, RunSummary
from tenure.model.status import DeliveryState
from tenure.model.update import Position, RecordedEvent
from tenure.runtime.explain import Explanation
from tenure.wire.callbacks import CallbackDetails
from tenure.wire.output import Output, OutputQuery, OutputStream, OutputStreams, StoredDefinition
from tenure.wire.runs import (
    AnnotateRequest,
    ApproveRequest,
    CallbackPage,
    Cancellation,
    ChangePage,
    PresentWorker,
    Reconciled,
    ReconcileRequest,
    RetryRequest,
    Submission,
    SubmitOptions,
    Workers,
)


class Gateway:
    """``async with Gateway("https://tenure.example.com") as gateway: …``

    ``token`` defaults to ``TENURE_TOKEN``. Raises the errors that ``Runner`` does, and
    ``NotPermitted``; after ``StoreUnavailable`` it is unknown whether the request was executed.
    """

    def __init__(self, url: str, token: str | None = None, *, timeout: float = TIMEOUT) -> None:
        self._line = HttpTransport(url, token, timeout=timeout)
        self._records = RecordsOverHttp(self._line)

    async def close(self) -> None:
        await self._line.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exit_details: object) -> None:
        await self.close()

    # Reading.

    async def get_run(self, run_id: str) -> RunSnapshot:
        return await self._line.ask("GET", f"/v1/runs/{known(run_id)}", RunSnapshot)

    async def list_runs(
        self, where: RunFilter = RunFilter(), *, limit: int = 50, cursor: str | None = None
    ) -> Page[RunSummary]:
        return await listed(self._line, "/v1/runs", where, limit, cursor)

    async def list_runnable(
        self, where: RunFilter = RunFilter(), *, limit: int = 50, cursor: str | None = None
    ) -> Page[RunSummary]:
        """Runs that a worker could claim now: highest priority first, then oldest."""
        return await listed(self._line, "/v1/runnable", where, limit, cursor)

    async def explain(self, run_id: str) -> Explanation:
        """Why a run is not moving."""
        return await self._line.ask("GET", f"/v1/runs/{known(run_id)}/explain", Explanation)

    async def get_definition(self, run_id: str) -> StoredDefinition | None:
        """What a run executes; ``None`` for one that was created without a definition."""
        return await self._records.definition(run_id)

    async def read_events(
        self, run_id: str, after: Position = Position(), *, limit: int = 1000
    ) -> list[RecordedEvent]:
        return await self._records.read_events(run_id, after, limit=limit)

    async def list_output(self, run_id: str) -> tuple[OutputStream, ...]:
        """Every stream of output of the run."""
        path = f"/v1/runs/{known(run_id)}/logs"
        return (await self._line.ask("GET", path, OutputStreams)).streams

    async def read_output(
        self, run_id: str, step: int, host: str, query: OutputQuery = OutputQuery()
    ) -> Output:
        """Output of a task from ``query.offset`` on; continue with the answer's ``next_offset``.
        ``OutputNotFound`` for a step or host that the run does not have."""
        path, asked = _output(run_id, step, host), _written(query)
        return await self._line.ask("GET", path, Output, query=asked)

    async def list_workers(self) -> tuple[PresentWorker, ...]:
        return (await self._line.ask("GET", "/v1/workers", Workers)).workers

    # Following: what was, then what happens. ``followed`` reconnects.

    def follow_events(
        self, run_id: str, after: Position | None = None
    ) -> AsyncGenerator[RecordedEvent]:
        """Each event of a run, to its end."""
        path = f"/v1/runs/{known(run_id)}/events"
        query = [] if after is None else [("after", str(after))]
        return followed(self._line, Stream(path, query, RecordedEvent))

    def follow_changes(self, after: str | None = "now") -> AsyncGenerator[ChangePage]:
        """Changes of all runs, a page at a time, without end. ``after`` is that of an earlier page;
        ``None`` begins with the oldest run."""
        query = [] if after is None else [("after", after)]
        return followed(self._line, Stream("/v1/events", query, ChangePage))

    def follow_output(
        self, run_id: str, step: int, host: str, query: OutputQuery = OutputQuery()
    ) -> AsyncGenerator[Output]:
        """Output of a task, piece by piece, until the attempt has ended."""
        asked = [*_written(query), ("follow", "true")]
        return followed(self._line, Stream(_output(run_id, step, host), asked, Output))

    # Changing.

    async def submit(
        self,
        workflow: str | dict[str, Any],
        options: SubmitOptions = SubmitOptions(),
        *,
        files: Mapping[str, bytes] | None = None,
        key: str | None = None,
    ) -> RunSummary:
        """``workflow`` is the text of a file, or the same as an object. ``key`` identifies this
        request: a repetition is answered with the run that the first one created. ``KeyReused`` for
        another request with the same key."""
        body = encoded(Submission(workflow=workflow, files=dict(files or {}), options=options))
        headers = key_header(key)
        return await self._line.ask("POST", "/v1/runs", RunSummary, body=body, headers=headers)

    async def cancel(self, run_id: str, *, reason: str | None = None) -> RunSnapshot:
        return await self._post_verb(run_id, "cancel", Cancellation(reason=reason))

    async def approve(self, run_id: str, *, note: str | None = None) -> RunSnapshot:
        return await self._post_verb(run_id, "approve", ApproveRequest(note=note))

    async def annotate(self, run_id: str, data: dict[str, Any]) -> RunSnapshot:
        return await self._post_verb(run_id, "annotate", AnnotateRequest(data=data))

    async def retry(
        self, run_id: str, request: RetryRequest = RetryRequest(), *, key: str | None = None
    ) -> RunSummary:
        """Returns the new run. ``key`` as in ``submit``."""
        path, body = f"/v1/runs/{known(run_id)}/retry", encoded(request)
        return await self._line.ask("POST", path, RunSummary, body=body, headers=key_header(key))

    async def reconcile(self, *, reason: str = "its owner is gone") -> Reconciled:
        body = encoded(ReconcileRequest(reason=reason))
        return await self._line.ask("POST", "/v1/reconcile", Reconciled, body=body)

    async def _post_verb(self, run_id: str, verb: str, request: object) -> RunSnapshot:
        path, body = f"/v1/runs/{known(run_id)}/{verb}", encoded(request)
        return await self._line.ask("POST", path, RunSnapshot, body=body)

    # Callbacks.

    async def list_callbacks(
        self,
        *,
        state: DeliveryState | None = None,
        run_id: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> CallbackPage:
        given = {"state": state, "run_id": run_id, "cursor": cursor}
        query = [(name, value) for name, value in given.items() if value is not None]
        return await self._line.ask(
            "GET",
            "/v1/callbacks",
            CallbackPage,
            query=[*query, ("limit", str(limit))],
            malformed=InvalidCursor,
        )

    async def get_callback(self, delivery_id: str) -> CallbackDetails:
        return await self._line.ask("GET", f"/v1/callbacks/{part(delivery_id)}", CallbackDetails)

    async def redeliver(self, delivery_id: str) -> CallbackDetails:
        path = f"/v1/callbacks/{part(delivery_id)}/redeliver"
        return await self._line.ask("POST", path, CallbackDetails)


def _output(run_id: str, step: int, host: str) -> str:
    return f"/v1/runs/{known(run_id)}/logs/{step}/{part(host)}"


def _written(query: OutputQuery) -> list[tuple[str, str]]:
    """The query without ``follow``, which each method sets itself."""
    given = {
        "stream": query.stream.value,
        "item": query.item,
        "attempt": query.attempt,
        "offset": query.offset,
        "limit": query.limit,
    }
    return [(name, str(value)) for name, value in given.items() if value is not None]
