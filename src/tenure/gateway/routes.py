"""The table of routes: method, path, roles, parameters and body, answers.

The server's routes, the check of roles, the validation of requests, the OpenAPI document, the
reference page and the tests of every route are made from it. A new route needs a row here, its
shapes in ``tenure.wire``, and a thin handler; the logic is in ``tenure.runtime``.
"""

from __future__ import annotations

from typing import Any

from tenure.gateway import callbacks, leases, output, runs, submit, system, updates
from tenure.gateway.calls import OPERATE, READ, WORK, Route
from tenure.gateway.problems import (
    DELIVERY_NOT_FOUND,
    INVALID_OPTIONS,
    INVALID_TRANSITION,
    INVALID_WORKFLOW,
    KEY_REUSED,
    LEASE_HELD,
    LEASE_LOST,
    NOT_FOUND,
    NOT_RUNNABLE,
    NOT_SUPPORTED,
    OUTPUT_NOT_FOUND,
    RUN_EXISTS,
    RUN_NOT_FOUND,
    STORE_REJECTED,
    VERSION_CONFLICT,
)
from tenure.model.leases import Renewal
from tenure.model.snapshot import RunSnapshot, RunSummary
from tenure.runtime.explain import Explanation
from tenure.runtime.prepare import MAX_FILES_BYTES
from tenure.wire import output as shapes
from tenure.wire.answers import Health, Readiness
from tenure.wire.callbacks import CallbackDetails
from tenure.wire.leases import (
    MAX_WRITES_BYTES,
    Claims,
    GivenLease,
    GivenLeases,
    Heartbeat,
    LeaseClaim,
    LeaseRenewal,
    ReleaseQuery,
    Renewals,
    RenewalsQuery,
    RenewalsRequest,
    Wakeup,
    WakeupRequest,
    WriteOutcomes,
    Writes,
)
from tenure.wire.output import Output, OutputQuery, OutputStreams, StoredDefinition
from tenure.wire.runs import (
    AnnotateRequest,
    ApproveRequest,
    CallbackPage,
    CallbacksQuery,
    Cancellation,
    ChangePage,
    ChangesQuery,
    EventPage,
    EventsQuery,
    NoQuery,
    Reconciled,
    ReconcileRequest,
    RetryRequest,
    RunPage,
    RunsQuery,
    Submission,
    Workers,
)

# For workers: the store's own methods, over HTTP.


_MAX_CHUNK_BODY_BYTES = shapes.MAX_APPEND_BYTES * 4 // 3 + (64 << 10)
_MAX_RENEWALS_BODY_BYTES = 8 << 20

OWNERSHIP: tuple[Route[Any, Any], ...] = (
    Route(
        method="POST",
        path="/v1/updates",
        summary="Updates under leases that the token holds, an outcome each; for admins any",
        roles=WORK,
        query=NoQuery,
        body=Writes,
        max_body_bytes=MAX_WRITES_BYTES,
        handler=updates.update_runs,
        answers={200: WriteOutcomes},
    ),
    Route(
        method="POST",
        path="/v1/claims",
        summary="Claim runs that have no owner",
        roles=WORK,
        query=NoQuery,
        body=Claims,
        handler=leases.claim_runs,
        answers={200: GivenLeases},
        problems=(NOT_SUPPORTED,),
    ),
    Route(
        method="POST",
        path="/v1/renewals",
        summary="Renew leases, and get cancel requests",
        roles=WORK,
        query=RenewalsQuery,
        body=RenewalsRequest,
        max_body_bytes=_MAX_RENEWALS_BODY_BYTES,
        handler=leases.renew_leases,
        answers={200: Renewals},
        problems=(NOT_SUPPORTED,),
    ),
    Route(
        method="POST",
        path="/v1/runs/{run_id}/lease",
        summary="Claim this run",
        roles=WORK,
        query=NoQuery,
        body=LeaseClaim,
        handler=leases.claim_run,
        answers={200: GivenLease},
        problems=(RUN_NOT_FOUND, LEASE_HELD, NOT_RUNNABLE, NOT_SUPPORTED),
    ),
    Route(
        method="PUT",
        path="/v1/runs/{run_id}/lease",
        summary="Renew the lease of this run",
        roles=WORK,
        query=NoQuery,
        body=LeaseRenewal,
        handler=leases.renew_lease,
        answers={200: Renewal},
        problems=(RUN_NOT_FOUND, LEASE_LOST, NOT_SUPPORTED),
    ),
    Route(
        method="DELETE",
        path="/v1/runs/{run_id}/lease",
        summary="Release this run, its status untouched",
        roles=WORK,
        query=ReleaseQuery,
        handler=leases.release_lease,
        answers={204: None},
        problems=(RUN_NOT_FOUND, LEASE_LOST, NOT_SUPPORTED),
    ),
    Route(
        method="GET",
        path="/v1/runs/{run_id}/record",
        summary="One run as the store keeps it; credentials of its callbacks for workers only",
        roles=READ,
        query=NoQuery,
        handler=runs.get_record,
        answers={200: RunSnapshot},
        problems=(RUN_NOT_FOUND,),
    ),
)
EXECUTION: tuple[Route[Any, Any], ...] = (
    Route(
        method="POST",
        path="/v1/runs/{run_id}/logs/chunk",
        summary="Append to the output of a task",
        roles=WORK,
        query=NoQuery,
        body=shapes.NewChunk,
        max_body_bytes=_MAX_CHUNK_BODY_BYTES,
        handler=output.append_chunk,
        answers={200: shapes.Appended},
        problems=(RUN_NOT_FOUND, LEASE_LOST, STORE_REJECTED, NOT_SUPPORTED),
    ),
    Route(
        method="GET",
        path="/v1/runs/{run_id}/logs/chunk",
        summary="Output of a task as bytes, from an offset on",
        roles=READ,
        query=shapes.ChunkQuery,
        handler=output.read_chunk,
        answers={200: shapes.Chunk},
        problems=(RUN_NOT_FOUND, NOT_SUPPORTED),
    ),
    Route(
        method="POST",
        path="/v1/wakeups",
        summary="Wait for a hint that there may be something to do",
        roles=WORK,
        query=NoQuery,
        body=WakeupRequest,
        handler=system.wait_for_wakeup,
        answers={200: Wakeup},
        problems=(NOT_SUPPORTED,),
    ),
    Route(
        method="POST",
        path="/v1/workers/{owner_id}",
        summary="Report that a worker is alive",
        roles=WORK,
        query=NoQuery,
        body=Heartbeat,
        handler=system.heartbeat,
        answers={204: None},
        problems=(NOT_SUPPORTED,),
    ),
    Route(
        method="DELETE",
        path="/v1/workers/{owner_id}",
        summary="Report that a worker has stopped",
        roles=WORK,
        query=NoQuery,
        handler=system.leave,
        answers={204: None},
        problems=(NOT_SUPPORTED,),
    ),
)


HTML = "text/html"
_MAX_SUBMISSION_BODY_BYTES = MAX_FILES_BYTES * 4 // 3 + (4 << 20)
"""All files of a run in base64, and the workflow."""
_KEY_HEADER = {
    "Idempotency-Key": "Identifies this request: a repetition is answered with the run that the "
    "first one created, as it is by now. Not together with a run_id, which identifies the run."
}
_STREAM_HEADERS = {
    "Last-Event-ID": "The id of the last server-sent event received: the stream continues after it."
}

RUNS = (
    Route(
        method="GET",
        path="/v1/runs/{run_id}",
        summary="One run, down to each host",
        roles=READ,
        query=NoQuery,
        handler=runs.get_run,
        answers={200: RunSnapshot, 304: None},
        problems=(RUN_NOT_FOUND,),
        request_headers={"If-None-Match": "The ETag of an earlier answer: 304 if nothing changed."},
    ),
    Route(
        method="GET",
        path="/v1/runs",
        summary="Runs, newest first",
        roles=READ,
        query=RunsQuery,
        handler=runs.list_runs,
        answers={200: RunPage},
    ),
    Route(
        method="POST",
        path="/v1/runs",
        summary="Queue a workflow for workers",
        roles=OPERATE,
        query=NoQuery,
        body=Submission,
        max_body_bytes=_MAX_SUBMISSION_BODY_BYTES,
        handler=submit.submit,
        answers={201: RunSummary},
        problems=(RUN_EXISTS, KEY_REUSED, INVALID_WORKFLOW, INVALID_OPTIONS, STORE_REJECTED),
        request_headers=_KEY_HEADER,
    ),
    Route(
        method="GET",
        path="/v1/runs/{run_id}/definition",
        summary="What a run executes; credentials of its callbacks for workers only",
        roles=READ,
        query=NoQuery,
        handler=runs.get_definition,
        answers={200: StoredDefinition},
        problems=(RUN_NOT_FOUND, NOT_FOUND, NOT_SUPPORTED),
    ),
    Route(
        method="GET",
        path="/v1/runs/{run_id}/explain",
        summary="Why a run is not moving",
        roles=READ,
        query=NoQuery,
        handler=runs.explain,
        answers={200: Explanation},
        problems=(RUN_NOT_FOUND,),
    ),
    Route(
        method="GET",
        path="/v1/runnable",
        summary="Runs a worker could claim now: highest priority first, then oldest",
        roles=READ,
        query=RunsQuery,
        handler=runs.list_runnable,
        answers={200: RunPage},
        problems=(NOT_SUPPORTED,),
    ),
)
VERBS = (
    Route(
        method="POST",
        path="/v1/runs/{run_id}/cancel",
        summary="Stop a run; the answer shows it as it then stands",
        roles=OPERATE,
        query=NoQuery,
        body=Cancellation,
        body_optional=True,
        handler=runs.cancel,
        answers={200: RunSnapshot},
        problems=(RUN_NOT_FOUND, STORE_REJECTED),
    ),
    Route(
        method="POST",
        path="/v1/runs/{run_id}/approve",
        summary="Approve a run that waits for approval",
        roles=OPERATE,
        query=NoQuery,
        body=ApproveRequest,
        body_optional=True,
        handler=runs.approve,
        answers={200: RunSnapshot},
        problems=(RUN_NOT_FOUND, INVALID_TRANSITION, STORE_REJECTED),
    ),
    Route(
        method="POST",
        path="/v1/runs/{run_id}/annotate",
        summary="Annotate a run; ended runs too",
        roles=OPERATE,
        query=NoQuery,
        body=AnnotateRequest,
        handler=runs.annotate,
        request_headers={
            "Idempotency-Key": "Names this very request: sent again, nothing is noted twice."
        },
        answers={200: RunSnapshot},
        problems=(RUN_NOT_FOUND, STORE_REJECTED),
    ),
    Route(
        method="POST",
        path="/v1/runs/{run_id}/retry",
        summary="Create a run, for workers, that does what an ended one left",
        roles=OPERATE,
        query=NoQuery,
        body=RetryRequest,
        body_optional=True,
        handler=submit.retry,
        answers={201: RunSummary},
        problems=(
            RUN_NOT_FOUND,
            RUN_EXISTS,
            KEY_REUSED,
            NOT_RUNNABLE,
            INVALID_WORKFLOW,
            INVALID_OPTIONS,
            STORE_REJECTED,
            NOT_SUPPORTED,
        ),
        request_headers=_KEY_HEADER,
    ),
    Route(
        method="POST",
        path="/v1/reconcile",
        summary="End runs whose owner is gone",
        roles=OPERATE,
        query=NoQuery,
        body=ReconcileRequest,
        body_optional=True,
        handler=runs.reconcile,
        answers={200: Reconciled},
        problems=(LEASE_HELD, VERSION_CONFLICT),
    ),
)
HISTORY = (
    Route(
        method="GET",
        path="/v1/runs/{run_id}/events",
        summary="Events of one run",
        roles=READ,
        query=EventsQuery,
        handler=runs.run_events,
        answers={200: EventPage, 204: None},
        streams=True,
        problems=(RUN_NOT_FOUND, NOT_SUPPORTED),
        request_headers=_STREAM_HEADERS,
    ),
    Route(
        method="GET",
        path="/v1/events",
        summary="Events of all runs, losing nothing",
        roles=READ,
        query=ChangesQuery,
        handler=runs.changes,
        answers={200: ChangePage},
        streams=True,
        problems=(NOT_SUPPORTED,),
        request_headers=_STREAM_HEADERS,
    ),
)
OUTPUT = (
    Route(
        method="GET",
        path="/v1/runs/{run_id}/logs",
        summary="List the output of a run",
        roles=READ,
        query=NoQuery,
        handler=output.list_output,
        answers={200: OutputStreams},
        problems=(RUN_NOT_FOUND, NOT_SUPPORTED),
    ),
    Route(
        method="GET",
        path="/v1/runs/{run_id}/logs/{step_index}/{host}",
        summary="Output of a task, from an offset on",
        roles=READ,
        query=OutputQuery,
        handler=output.read_output,
        answers={200: Output},
        streams=True,
        problems=(RUN_NOT_FOUND, OUTPUT_NOT_FOUND, NOT_SUPPORTED),
        request_headers={
            "Accept": "application/octet-stream gives the bytes unchanged.",
            **_STREAM_HEADERS,
        },
    ),
)
CALLBACKS = (
    Route(
        method="GET",
        path="/v1/callbacks",
        summary="Callbacks, newest first",
        roles=READ,
        query=CallbacksQuery,
        handler=callbacks.list_callbacks,
        answers={200: CallbackPage},
        problems=(RUN_NOT_FOUND, NOT_SUPPORTED),
    ),
    Route(
        method="GET",
        path="/v1/callbacks/{delivery_id}",
        summary="One callback, with its content",
        roles=READ,
        query=NoQuery,
        handler=callbacks.get_callback,
        answers={200: CallbackDetails},
        problems=(DELIVERY_NOT_FOUND, NOT_SUPPORTED),
    ),
    Route(
        method="POST",
        path="/v1/callbacks/{delivery_id}/redeliver",
        summary="Send a callback again, under the same id",
        roles=OPERATE,
        query=NoQuery,
        handler=callbacks.redeliver,
        answers={200: CallbackDetails},
        problems=(DELIVERY_NOT_FOUND, INVALID_TRANSITION, NOT_SUPPORTED),
    ),
)
FLEET = (
    Route(
        method="GET",
        path="/v1/workers",
        summary="Live workers and the runs they own",
        roles=READ,
        query=NoQuery,
        handler=system.list_workers,
        answers={200: Workers},
        problems=(NOT_SUPPORTED,),
    ),
)
METRICS = (
    Route(
        method="GET",
        path="/metrics",
        summary="Metrics of this process and of its store, for Prometheus",
        roles=READ,
        query=NoQuery,
        handler=system.metrics,
        answers={200: "text/plain"},
    ),
)
PROBES = (
    Route(
        method="GET",
        path="/healthz",
        summary="Whether the process answers",
        roles=None,
        query=NoQuery,
        handler=system.healthz,
        answers={200: Health},
    ),
    Route(
        method="GET",
        path="/readyz",
        summary="Whether it can serve: its store answers, with this version's schema",
        roles=None,
        query=NoQuery,
        handler=system.readyz,
        answers={200: Readiness, 503: Readiness},
    ),
    Route(
        method="GET",
        path="/openapi.json",
        summary="This document",
        roles=None,
        query=NoQuery,
        handler=system.openapi,
        answers={200: dict[str, Any], 304: None},
    ),
    Route(
        method="GET",
        path="/docs",
        summary="The same for people",
        roles=None,
        query=NoQuery,
        handler=system.docs,
        answers={200: HTML, 304: None},
    ),
)

ROUTES: tuple[Route[Any, Any], ...] = (
    *RUNS,
    *OWNERSHIP,
    *VERBS,
    *HISTORY,
    *EXECUTION,
    *OUTPUT,
    *CALLBACKS,
    *FLEET,
    *METRICS,
    *PROBES,
)
"""In matching order: the most frequent first."""
