"""Records as bytes: what goes in comes out, and what cannot is refused by name."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.model.codec import (
    SCHEMA,
    decode_snapshot,
    encode_snapshot,
    full_record,
    storable,
    storable_together,
)
from tenure.model.errors import StoreIncompatible, StoreRejected
from tenure.model.snapshot import (
    SUMMARY_FIELDS,
    Annotation,
    Approval,
    CallbackError,
    CallbackTarget,
    Counts,
    ErrorInfo,
    HostState,
    ItemState,
    RunSnapshot,
    RunSummary,
    StepState,
    summarize,
)
from tenure.model.status import HostStatus, Recovery, RunStatus, StepKind, StepStatus
from tenure.model.update import Changes, Effect, NewRun, RunChange, Update
from tests.model.samples import running

# One level of choice per field keeps examples small; the shapes below are complete.
_texts = st.text(st.characters(codec="utf-8"), max_size=8)
_maybe_text = st.none() | _texts
_times = st.none() | st.datetimes(timezones=st.just(UTC))
_numbers = st.integers(-(2**63), 2**64 - 1)
_json = st.recursive(
    st.none()
    | st.booleans()
    | _numbers
    | st.floats(allow_nan=False, allow_infinity=False)
    | _texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_texts, inner, max_size=2),
    max_leaves=4,
)
_vars = st.dictionaries(_texts, _json, max_size=2)
_errors = st.none() | st.builds(
    ErrorInfo,
    kind=_texts,
    message=_texts,
    step=_maybe_text,
    exit_code=st.none() | st.integers(-255, 255),
    failed_hosts=st.lists(_texts, max_size=2).map(tuple),
    failed_count=st.integers(0, 9),
)
_item: dict[str, Any] = {
    "status": st.sampled_from(HostStatus),
    "message": _maybe_text,
    "exit_code": st.none() | st.integers(-255, 255),
    "attempts": st.integers(0, 99),
    "changed": st.none() | st.booleans(),
    "started_at": _times,
    "finished_at": _times,
    "stdout": _maybe_text,
    "stderr": _maybe_text,
    "truncated": st.booleans(),
    "vars": _vars,
}
_hosts = st.builds(
    HostState, items=st.lists(st.builds(ItemState, **_item), max_size=2).map(tuple), **_item
)
_steps = st.builds(
    StepState,
    index=st.integers(0, 9),
    name=_texts,
    kind=st.sampled_from(StepKind),
    action=_texts,
    notified_by=st.none() | st.integers(0, 9),
    status=st.sampled_from(StepStatus),
    message=_maybe_text,
    started_at=_times,
    hosts=st.dictionaries(_texts, _hosts, max_size=2),
)
_snapshots = st.builds(
    RunSnapshot,
    run_id=_texts,
    workflow_name=_texts,
    status=st.sampled_from(RunStatus),
    message=_maybe_text,
    error=_errors,
    version=st.integers(0, 2**62),
    fence=st.integers(0, 2**62),
    owner_id=_maybe_text,
    recovery=st.sampled_from(Recovery),
    approval=st.builds(Approval, required=st.booleans(), by=_maybe_text, at=_times),
    priority=st.integers(-100, 100),
    run_after=_times,
    timeout=st.none() | st.floats(0, 1e9),
    labels=st.dictionaries(_texts, _texts, max_size=2),
    created_at=_times,
    annotations=st.lists(
        st.builds(Annotation, id=_texts, data=_vars, by=_maybe_text, at=_times), max_size=2
    ).map(tuple),
    callback_error=st.none()
    | st.builds(
        CallbackError,
        target=_texts,
        event=_texts,
        error=_texts,
        attempts=st.integers(0, 9),
        at=st.just(datetime(2026, 1, 1, tzinfo=UTC)),
    ),
    counts=st.builds(
        Counts, steps=st.dictionaries(st.sampled_from(StepStatus), st.integers(1, 9), max_size=2)
    ),
    vars=_vars,
    callbacks=st.lists(
        st.builds(CallbackTarget, name=_texts, headers=st.dictionaries(_texts, _texts, max_size=1)),
        max_size=2,
    ).map(tuple),
    steps=st.lists(_steps, max_size=2).map(tuple),
)


@pytest.mark.slow
@settings(deadline=None, max_examples=150)
@given(_snapshots)
def test_every_snapshot_comes_back_as_it_was(snapshot: RunSnapshot) -> None:
    data = encode_snapshot(snapshot)
    assert decode_snapshot(data) == snapshot
    assert encode_snapshot(decode_snapshot(data)) == data


def test_the_record_has_the_fields_of_the_specification() -> None:
    written = (
        "run_id workflow_name workflow_version workflow_digest status message error last_error "
        "interrupted_reason version owner_id owner_lost fence lease_expires_at takeovers recovery "
        "cancel_requested_at cancel_reason unconfirmed_hosts approval queue priority run_after "
        "timeout labels vars callbacks created_at started_at finished_at updated_at retry_of "
        "annotations callback_error steps"
    )
    record = full_record(running())
    assert set(written.split()) <= set(record)
    step = "index name kind action notified_by status message started_at finished_at hosts"
    assert set(record["steps"][0]) == set(step.split())
    host = (
        "status message kind exit_code attempts changed started_at finished_at stdout stderr "
        "truncated vars withheld items"
    )
    assert set(record["steps"][0]["hosts"]["web1"]) == set(host.split())


def test_a_summary_is_the_same_run_without_steps_and_variables() -> None:
    run = running(vars={"a": 1})
    summary = summarize(run)
    assert type(summary) is RunSummary
    assert all(getattr(summary, name) == getattr(run, name) for name in SUMMARY_FIELDS)
    assert not {"steps", "vars", "callbacks"} & set(SUMMARY_FIELDS)


def test_a_newer_schema_is_refused_by_its_number() -> None:
    newer = SCHEMA + 1
    data = encode_snapshot(running()).replace(b'"schema":%d' % SCHEMA, b'"schema":%d' % newer, 1)
    with pytest.raises(StoreIncompatible, match=rf"schema {newer}.*Upgrade"):
        decode_snapshot(data)


def test_fields_a_later_writer_added_are_ignored() -> None:
    data = encode_snapshot(running()).replace(b'"run_id"', b'"mood":"sunny","run_id"', 1)
    assert decode_snapshot(data) == running()


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b'{"schema": "1", "run": {}}',
        b'{"schema": 1, "run": {}}',
        b'{"schema": 1, "run": {"run_id": "a", "workflow_name": "x", "status": "odd"}}',
        encode_snapshot(running())[:-9],
    ],
)
def test_damage_is_named_and_no_decoders_error_leaks(damaged: bytes) -> None:
    with pytest.raises(StoreIncompatible, match="cannot be read"):
        decode_snapshot(damaged)


def _endless() -> list[Any]:
    endless: list[Any] = []
    endless.append(endless)
    return endless


@pytest.mark.parametrize(
    "poison",
    ["\ud800", {"\udfff": 1}, object(), {(1, 2): 3}, _endless(), float("inf")],
    ids=["surrogate", "surrogate key", "object", "tuple key", "endless", "infinity"],
)
def test_what_no_store_could_hold_is_rejected_with_the_run_named(poison: object) -> None:
    with pytest.raises(StoreRejected, match="run run-0001: cannot be stored") as rejected:
        storable("run-0001", {"vars": {"x": poison}})
    assert rejected.value.run_id == "run-0001"


def test_a_value_of_the_wrong_type_is_rejected_and_a_plain_word_becomes_its_status() -> None:
    wrong: Any = "very"
    with pytest.raises(StoreRejected):
        storable("run-0001", RunSnapshot(run_id="run-0001", workflow_name="w", priority=wrong))
    word: Any = "running"
    kept = storable("run-0001", RunSnapshot(run_id="run-0001", workflow_name="w", status=word))
    assert kept.status is RunStatus.RUNNING


def _update(run_id: str, value: object) -> Update:
    note = Annotation(id="n1", data={"x": value})
    return Update(
        run_id=run_id,
        update_id=f"u-{run_id}",
        effect=Effect(changes=Changes(run=RunChange(annotate=(note,)))),
    )


def test_writes_copied_together_are_what_each_of_them_is_by_itself() -> None:
    new = NewRun(snapshot=running(run_id="run-0001", vars={"text": "2>/dev/null"}), update_id="u1")
    update = _update("run-0002", [None, {"x": None}])
    assert storable_together([new, update]) == [
        storable("run-0001", new),
        storable("run-0002", update),
    ]
    assert storable_together([]) == []


@pytest.mark.parametrize(
    "poison",
    ["\ud800", object(), [float("-inf")]],
    ids=["surrogate", "object", "infinity"],
)
def test_one_write_that_may_not_be_storable_sends_all_of_them_one_by_one(poison: object) -> None:
    assert storable_together([_update("run-0001", 1), _update("run-0002", poison)]) is None
    with pytest.raises(StoreRejected):
        storable("run-0002", _update("run-0002", poison))
