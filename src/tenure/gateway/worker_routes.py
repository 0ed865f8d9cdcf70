"""The part of the table that workers use: the store's own verbs, over HTTP."""

from __future__ import annotations

from typing import Any

from tenure.gateway import chunks, leasing, presence, records, renewing, writing
from tenure.gateway.problems import (
    LEASE_HELD,
    LEASE_LOST,
    NOT_RUNNABLE,
    NOT_SUPPORTED,
    RUN_NOT_FOUND,
    STORE_REJECTED,
)
from tenure.gateway.roles import OPERATE, READ, WORK
from tenure.gateway.route import Route
from tenure.model.leasing import Renewal
from tenure.model.snapshot import RunSnapshot
from tenure.wire import chunks as shapes
from tenure.wire.leases import (
    Claims,
    GivenLease,
    GivenLeases,
    LeaseClaim,
    LeaseRenewal,
    ReleaseQuery,
    Renewals,
    RenewalsQuery,
    RenewalsRequest,
)
from tenure.wire.listings import NoQuery
from tenure.wire.presence import Heartbeat, Wakeup, WakeupRequest
from tenure.wire.writes import MOST_BYTES, WriteOutcomes, Writes

_LARGEST_CHUNK = shapes.MOST_BYTES * 4 // 3 + (64 << 10)
_LARGEST_RENEWALS = 8 << 20

OWNERSHIP: tuple[Route[Any, Any], ...] = (
    Route(
        method="POST",
        path="/v1/updates",
        summary="Creations and updates of runs, an outcome each",
        roles=WORK | OPERATE,
        query=NoQuery,
        body=Writes,
        most_bytes=MOST_BYTES,
        handler=writing.update_runs,
        answers={200: WriteOutcomes},
    ),
    Route(
        method="POST",
        path="/v1/claims",
        summary="Claim runs that have no owner",
        roles=WORK,
        query=NoQuery,
        body=Claims,
        handler=leasing.claim_runs,
        answers={200: GivenLeases},
        problems=(NOT_SUPPORTED,),
    ),
    Route(
        method="POST",
        path="/v1/renewals",
        summary="Renew leases, and hear of cancel requests",
        roles=WORK,
        query=RenewalsQuery,
        body=RenewalsRequest,
        most_bytes=_LARGEST_RENEWALS,
        handler=renewing.renew_leases,
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
        handler=leasing.claim_run,
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
        handler=renewing.renew_lease,
        answers={200: Renewal},
        problems=(RUN_NOT_FOUND, LEASE_LOST, NOT_SUPPORTED),
    ),
    Route(
        method="DELETE",
        path="/v1/runs/{run_id}/lease",
        summary="Give this run back, its status untouched",
        roles=WORK,
        query=ReleaseQuery,
        handler=leasing.release_lease,
        answers={204: None},
        problems=(RUN_NOT_FOUND, LEASE_LOST, NOT_SUPPORTED),
    ),
    Route(
        method="GET",
        path="/v1/runs/{run_id}/record",
        summary="One run as the store keeps it; credentials of its callbacks for workers only",
        roles=READ,
        query=NoQuery,
        handler=records.get_record,
        answers={200: RunSnapshot},
        problems=(RUN_NOT_FOUND,),
    ),
)
EXECUTION: tuple[Route[Any, Any], ...] = (
    Route(
        method="POST",
        path="/v1/runs/{run_id}/logs/chunk",
        summary="Append to what a task printed",
        roles=WORK,
        query=NoQuery,
        body=shapes.NewChunk,
        most_bytes=_LARGEST_CHUNK,
        handler=chunks.append_chunk,
        answers={200: shapes.Appended},
        problems=(RUN_NOT_FOUND, LEASE_LOST, STORE_REJECTED, NOT_SUPPORTED),
    ),
    Route(
        method="GET",
        path="/v1/runs/{run_id}/logs/chunk",
        summary="The bytes that a task printed, from an offset on",
        roles=READ,
        query=shapes.ChunkQuery,
        handler=chunks.read_chunk,
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
        handler=presence.wait_for_wakeup,
        answers={200: Wakeup},
        problems=(NOT_SUPPORTED,),
    ),
    Route(
        method="POST",
        path="/v1/workers/{owner_id}",
        summary="Say that a worker is there",
        roles=WORK,
        query=NoQuery,
        body=Heartbeat,
        handler=presence.heartbeat,
        answers={204: None},
        problems=(NOT_SUPPORTED,),
    ),
    Route(
        method="DELETE",
        path="/v1/workers/{owner_id}",
        summary="Say that a worker has gone",
        roles=WORK,
        query=NoQuery,
        handler=presence.leave,
        answers={204: None},
        problems=(NOT_SUPPORTED,),
    ),
)
