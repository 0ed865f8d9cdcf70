"""The table of routes: method, path, who may, what it takes, what it answers.

From it come the server's routes, the check of roles, the validation of requests, the OpenAPI
document, the reference page, and what the tests try on every route. Whoever adds a route adds a row
here, its shapes in ``tenure.wire``, and a thin handler; the logic is in ``tenure.runtime``.
"""

from __future__ import annotations

from typing import Any

from tenure.gateway import (
    definitions,
    deliveries,
    fleet,
    history,
    measuring,
    operating,
    output,
    probes,
    runs,
    submitting,
)
from tenure.gateway.problems import (
    DELIVERY_NOT_FOUND,
    INVALID_OPTIONS,
    INVALID_TRANSITION,
    INVALID_WORKFLOW,
    KEY_REUSED,
    LEASE_HELD,
    NOT_FOUND,
    NOT_RUNNABLE,
    NOT_SUPPORTED,
    OUTPUT_NOT_FOUND,
    RUN_EXISTS,
    RUN_NOT_FOUND,
    STORE_REJECTED,
    VERSION_CONFLICT,
)
from tenure.gateway.roles import OPERATE, READ
from tenure.gateway.route import Route
from tenure.gateway.worker_routes import EXECUTION, OWNERSHIP
from tenure.model.snapshot import RunSnapshot
from tenure.runtime.queries import Explanation
from tenure.runtime.travelling import MOST_BYTES
from tenure.wire.deliveries import CallbackDetails
from tenure.wire.listings import (
    CallbackPage,
    CallbacksQuery,
    ChangePage,
    ChangesQuery,
    EventPage,
    EventsQuery,
    NoQuery,
    RunPage,
    RunsQuery,
    Workers,
)
from tenure.wire.output import Output, OutputQuery, OutputStreams, StoredDefinition
from tenure.wire.probes import Health, Readiness
from tenure.wire.submission import RetryRequest, Submission
from tenure.wire.verbs import (
    AnnotateRequest,
    ApproveRequest,
    Cancellation,
    Reconciled,
    ReconcileRequest,
)

HTML = "text/html"
_LARGEST_SUBMISSION = MOST_BYTES * 4 // 3 + (4 << 20)
"""All files of a run in base64, and the workflow."""
_KEY_HEADER = {
    "Idempotency-Key": "Names this very request: sent again, it answers with the run that the "
    "first one made. Not together with a run_id, which names the run already."
}
_STREAM_HEADERS = {
    "Last-Event-ID": "The id of the last server-sent event that came: goes on behind it."
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
        most_bytes=_LARGEST_SUBMISSION,
        handler=submitting.submit,
        answers={201: RunSnapshot},
        problems=(RUN_EXISTS, KEY_REUSED, INVALID_WORKFLOW, INVALID_OPTIONS, STORE_REJECTED),
        request_headers=_KEY_HEADER,
    ),
    Route(
        method="GET",
        path="/v1/runs/{run_id}/definition",
        summary="What a run executes; credentials of its callbacks for workers only",
        roles=READ,
        query=NoQuery,
        handler=definitions.get_definition,
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
        handler=operating.cancel,
        answers={200: RunSnapshot},
        problems=(RUN_NOT_FOUND, STORE_REJECTED),
    ),
    Route(
        method="POST",
        path="/v1/runs/{run_id}/approve",
        summary="Let a run begin that waits for approval",
        roles=OPERATE,
        query=NoQuery,
        body=ApproveRequest,
        body_optional=True,
        handler=operating.approve,
        answers={200: RunSnapshot},
        problems=(RUN_NOT_FOUND, INVALID_TRANSITION, STORE_REJECTED),
    ),
    Route(
        method="POST",
        path="/v1/runs/{run_id}/annotate",
        summary="Note on a run what was found out later; ended runs too",
        roles=OPERATE,
        query=NoQuery,
        body=AnnotateRequest,
        handler=operating.annotate,
        answers={200: RunSnapshot},
        problems=(RUN_NOT_FOUND, STORE_REJECTED),
    ),
    Route(
        method="POST",
        path="/v1/runs/{run_id}/retry",
        summary="A new run, for workers, that does what an ended one left",
        roles=OPERATE,
        query=NoQuery,
        body=RetryRequest,
        body_optional=True,
        handler=submitting.retry,
        answers={201: RunSnapshot},
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
        handler=operating.reconcile,
        answers={200: Reconciled},
        problems=(LEASE_HELD, VERSION_CONFLICT),
    ),
)
HISTORY = (
    Route(
        method="GET",
        path="/v1/runs/{run_id}/events",
        summary="What happened to one run",
        roles=READ,
        query=EventsQuery,
        handler=history.run_events,
        answers={200: EventPage, 204: None},
        streams=True,
        problems=(RUN_NOT_FOUND, NOT_SUPPORTED),
        request_headers=_STREAM_HEADERS,
    ),
    Route(
        method="GET",
        path="/v1/events",
        summary="What happened to all runs, losing nothing",
        roles=READ,
        query=ChangesQuery,
        handler=history.changes,
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
        summary="Which output there is",
        roles=READ,
        query=NoQuery,
        handler=output.list_output,
        answers={200: OutputStreams},
        problems=(RUN_NOT_FOUND, NOT_SUPPORTED),
    ),
    Route(
        method="GET",
        path="/v1/runs/{run_id}/logs/{step_index}/{host}",
        summary="What a task printed, from an offset on",
        roles=READ,
        query=OutputQuery,
        handler=output.read_output,
        answers={200: Output},
        streams=True,
        problems=(RUN_NOT_FOUND, OUTPUT_NOT_FOUND, NOT_SUPPORTED),
        request_headers={
            "Accept": "application/octet-stream gives the very bytes.",
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
        handler=deliveries.list_callbacks,
        answers={200: CallbackPage},
        problems=(RUN_NOT_FOUND, NOT_SUPPORTED),
    ),
    Route(
        method="GET",
        path="/v1/callbacks/{delivery_id}",
        summary="One callback, with what it says",
        roles=READ,
        query=NoQuery,
        handler=deliveries.get_callback,
        answers={200: CallbackDetails},
        problems=(DELIVERY_NOT_FOUND, NOT_SUPPORTED),
    ),
    Route(
        method="POST",
        path="/v1/callbacks/{delivery_id}/redeliver",
        summary="Send a callback again, under the same id",
        roles=OPERATE,
        query=NoQuery,
        handler=deliveries.redeliver,
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
        handler=fleet.list_workers,
        answers={200: Workers},
        problems=(NOT_SUPPORTED,),
    ),
)
METRICS = (
    Route(
        method="GET",
        path="/metrics",
        summary="Numbers of this process and of its store, for Prometheus",
        roles=READ,
        query=NoQuery,
        handler=measuring.metrics,
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
        handler=probes.healthz,
        answers={200: Health},
    ),
    Route(
        method="GET",
        path="/readyz",
        summary="Whether it can serve: its store answers, with this version's schema",
        roles=None,
        query=NoQuery,
        handler=probes.readyz,
        answers={200: Readiness, 503: Readiness},
    ),
    Route(
        method="GET",
        path="/openapi.json",
        summary="This document",
        roles=None,
        query=NoQuery,
        handler=probes.openapi,
        answers={200: dict[str, Any], 304: None},
    ),
    Route(
        method="GET",
        path="/docs",
        summary="The same for people",
        roles=None,
        query=NoQuery,
        handler=probes.docs,
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
"""In the order in which a path is looked for: what is asked most stands first."""
