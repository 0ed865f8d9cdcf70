"""``Gateway``: what programs ask of one, with types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from tenure.client.line import TIMEOUT, Line, encoded, part
from tenure.client.listings import listed
from tenure.client.records import RecordsOverHttp
from tenure.client.runs import known
from tenure.model.errors import InvalidCursor
from tenure.model.events import Position, RecordedEvent
from tenure.model.query import Page, RunFilter
from tenure.model.snapshot import RunSnapshot, RunSummary
from tenure.model.status import DeliveryState
from tenure.runtime.queries import Explanation
from tenure.wire.deliveries import CallbackDetails
from tenure.wire.listings import CallbackPage, PresentWorker, Workers
from tenure.wire.submission import RetryRequest, Submission, SubmitOptions
from tenure.wire.verbs import (
    AnnotateRequest,
    ApproveRequest,
    Cancellation,
    Reconciled,
    ReconcileRequest,
)


class Gateway:
    """``async with Gateway("https://tenure.example.com") as gateway: …``

    ``token`` or what ``TENURE_TOKEN`` holds. Raises the errors that ``Runner`` does, and
    ``NotPermitted``; ``StoreUnavailable`` means that nobody knows whether it happened.
    """

    def __init__(self, url: str, token: str | None = None, *, timeout: float = TIMEOUT) -> None:
        self._line = Line(url, token, timeout=timeout)
        self._records = RecordsOverHttp(self._line)

    async def close(self) -> None:
        await self._line.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exit_details: object) -> None:
        await self.close()

    # Reading

    async def get_run(self, run_id: str) -> RunSnapshot:
        return await self._line.ask("GET", f"/v1/runs/{known(run_id)}", RunSnapshot)

    async def list_runs(
        self, where: RunFilter = RunFilter(), *, limit: int = 50, cursor: str | None = None
    ) -> Page[RunSummary]:
        return await listed(self._line, "/v1/runs", where, limit, cursor)

    async def explain(self, run_id: str) -> Explanation:
        """Why a run is not moving."""
        return await self._line.ask("GET", f"/v1/runs/{known(run_id)}/explain", Explanation)

    async def read_events(
        self, run_id: str, after: Position = Position(), *, limit: int = 1000
    ) -> list[RecordedEvent]:
        return await self._records.read_events(run_id, after, limit=limit)

    async def list_workers(self) -> tuple[PresentWorker, ...]:
        return (await self._line.ask("GET", "/v1/workers", Workers)).workers

    # Changing

    async def submit(
        self,
        workflow: str | dict[str, Any],
        options: SubmitOptions = SubmitOptions(),
        *,
        files: Mapping[str, bytes] | None = None,
        key: str | None = None,
    ) -> RunSnapshot:
        """``workflow`` is the text of a file, or the same as an object. ``key`` names this very
        request: sent again with it, it answers with the run that the first one made."""
        body = encoded(Submission(workflow=workflow, files=dict(files or {}), options=options))
        headers = {} if key is None else {"idempotency-key": key}
        return await self._line.ask("POST", "/v1/runs", RunSnapshot, body=body, headers=headers)

    async def cancel(self, run_id: str, *, reason: str | None = None) -> RunSnapshot:
        return await self._told(run_id, "cancel", Cancellation(reason=reason))

    async def approve(self, run_id: str, *, note: str | None = None) -> RunSnapshot:
        return await self._told(run_id, "approve", ApproveRequest(note=note))

    async def annotate(self, run_id: str, data: dict[str, Any]) -> RunSnapshot:
        return await self._told(run_id, "annotate", AnnotateRequest(data=data))

    async def retry(self, run_id: str, request: RetryRequest = RetryRequest()) -> RunSnapshot:
        """The new run."""
        return await self._told(run_id, "retry", request)

    async def reconcile(self, *, reason: str = "its owner is gone") -> Reconciled:
        body = encoded(ReconcileRequest(reason=reason))
        return await self._line.ask("POST", "/v1/reconcile", Reconciled, body=body)

    async def _told(self, run_id: str, verb: str, request: object) -> RunSnapshot:
        path = f"/v1/runs/{known(run_id)}/{verb}"
        return await self._line.ask("POST", path, RunSnapshot, body=encoded(request))

    # Callbacks

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
