"""What an answer makes possible: the OpenAPI links of the document, for readers, and for tools that
follow them from one request to the next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenure.gateway.route import Route
from tenure.model.leasing import Renewal
from tenure.model.snapshot import RunSnapshot
from tenure.wire.leases import GivenLease, GivenLeases
from tenure.wire.listings import CallbackPage, RunPage
from tenure.wire.output import OutputStreams

_ANSWER = "$response.body#"
_SENT = "$request.body#"
_A_MINUTE = 60

Links = dict[str, dict[str, Any]]


def links_of(route: Route[Any, Any], routes: Sequence[Route[Any, Any]]) -> dict[int, Links]:
    """By status."""
    found = {status: _links(kind, status, routes) for status, kind in route.answers.items()}
    return {status: links for status, links in found.items() if links}


def _links(kind: Any, status: int, routes: Sequence[Route[Any, Any]]) -> Links:
    if kind is RunSnapshot and status == 201:
        return _about_run(f"{_ANSWER}/run_id", routes)
    if kind is RunPage:
        return _about_run(f"{_ANSWER}/runs/0/run_id", routes)
    if kind is GivenLease:
        return _as_owner(_ANSWER)
    if kind is GivenLeases:
        return _as_owner(f"{_ANSWER}/leases/0")
    if kind is Renewal:
        return _still_owner()
    if kind is CallbackPage:
        callback = {"delivery_id": f"{_ANSWER}/callbacks/0/id"}
        return dict([_link("get_callback", callback), _link("redeliver", callback)])
    if kind is OutputStreams:
        part = {
            "run_id": "$request.path.run_id",
            "step_index": f"{_ANSWER}/streams/0/step",
            "host": f"{_ANSWER}/streams/0/host",
        }
        return dict([_link("read_output", part)])
    return {}


def _about_run(run_id: str, routes: Sequence[Route[Any, Any]]) -> Links:
    return dict(
        _link(route.handler.__name__, {"run_id": run_id})
        for route in routes
        if route.parameters == ["run_id"]
    )


def _as_owner(lease: str) -> Links:
    """What the lease that was given allows: to keep it, to write under it, to give it back."""
    run_id, right = f"{lease}/run_id", _right(lease)
    begin = {
        "type": "update",
        "run_id": run_id,
        "update_id": "begin",
        "base_version": f"{lease}/snapshot/version",
        "lease": right,
        "effect": {"changes": {"run": {"status": "running"}}},
    }
    printed = {"step": 0, "host": "local", "stream": "stdout", "offset": 0, "data": "aGVsbG8K"}
    held = {"leases": [{"run_id": run_id, **right}], "lease_seconds": _A_MINUTE}
    return dict(
        [
            _link("renew_lease", {"run_id": run_id}, {**right, "lease_seconds": _A_MINUTE}),
            _link("renew_leases", {}, held),
            _link("update_runs", {}, {"writes": [begin]}),
            _link("append_chunk", {"run_id": run_id}, {**right, **printed}),
            _link("release_lease", {"run_id": run_id, **right}),
        ]
    )


def _still_owner() -> Links:
    run, right = {"run_id": "$request.path.run_id"}, _right(_SENT)
    return dict(
        [
            _link("renew_lease", run, {**right, "lease_seconds": _A_MINUTE}),
            _link("release_lease", {**run, **right}),
        ]
    )


def _right(place: str) -> dict[str, str]:
    return {"owner_id": f"{place}/owner_id", "fence": f"{place}/fence"}


def _link(
    operation: str, parameters: dict[str, str], body: dict[str, Any] | None = None
) -> tuple[str, dict[str, Any]]:
    link: dict[str, Any] = {"operationId": operation, "parameters": parameters}
    return operation, link if body is None else {**link, "requestBody": body}
