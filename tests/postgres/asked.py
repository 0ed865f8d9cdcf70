"""Every statement that is asked while Tenure works, with values to ask it with, as they would be
for the store of ``long_history``."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from tenure.model.query import RunFilter
from tenure.model.status import DeliveryState, RunStatus
from tenure.stores.postgres.leases import runnable_statement
from tenure.stores.postgres.outbox import page_statement
from tenure.stores.postgres.read import newest
from tenure.stores.postgres.statements import SQL


class Asked(NamedTuple):
    sql: str
    values: tuple[Any, ...]
    carefully: bool
    """Always in a transaction that begins with ``carefully``."""


NO_PLAN = {
    "begin",
    "commit",
    "carefully",
    "confirm",
    "for_prepared_statements",
    "clock",
    "listen",
    "listen_to_queues",
    "oldest_at_work",
    "functions_out_of_reach",
    "announce",
    "make_room_for_hints",
}
MAY_READ_ALL = {
    "schema",  # a row per version of the schema
    "workers",  # a row per process
    "put_worker",
    "forget_silent_workers",
    "tokens",  # a row per token
    "token",
    "revoke_token",
    "add_first_token",
    "token_secret",  # one row
    "unfinished_prunes",
    "changes_of_another_server",
    "adopt_runs",  # `tenure store migrate`
    "adopt_journal",
    "count_runs",  # `tenure store check`, which says that it takes a while
    "bytes_used",
    "runs_without_spec",
    "runs_with_gaps",
    "specs_without_definition",
    "rows_without_run",
    "unused_definitions",
    "lock_all_unused_definitions",  # `tenure store migrate`
}
NEWEST = 1 << 62
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
UNFINISHED = frozenset({RunStatus.QUEUED, RunStatus.RUNNING})
RUNS = ["run-00000012", "run-00000013"]
SEQS = [12, 13]
PRUNED = [-12, -13]
WAITING = ["d-10", "d-20"]
STREAM = (0, "web1", -1, 1, "stdout")
FILTERS = {
    "all": RunFilter(),
    "status": RunFilter(statuses=frozenset({RunStatus.FAILED, RunStatus.RUNNING})),
    "workflow": RunFilter(workflow_name="deploy-3"),
    "queue": RunFilter(queue="queue-2"),
    "owner": RunFilter(owner_id="worker-1"),
    "held": RunFilter(held=True),
    "held, canceling": RunFilter(canceling=True),
    "owner, canceling": RunFilter(owner_id="worker-1", canceling=True),
    "held, and more": RunFilter(
        held=True,
        statuses=UNFINISHED,
        queue="queue-2",
        workflow_name="deploy-3",
        labels={"team": "team-1"},
    ),
    "unapproved": RunFilter(unapproved=True),
    "unapproved, and more": RunFilter(
        unapproved=True, statuses=UNFINISHED, queue="queue-2", labels={"team": "team-1"}
    ),
    "label": RunFilter(labels={"team": "team-1"}),
    "created": RunFilter(created_from=MOMENT, created_to=MOMENT),
    "workflow, queue and status": RunFilter(
        workflow_name="deploy-3", queue="queue-2", statuses=frozenset({RunStatus.SUCCESS})
    ),
    "status, created": RunFilter(
        statuses=frozenset({RunStatus.FAILED}), created_from=MOMENT, created_to=MOMENT
    ),
    "status, created lately": RunFilter(
        statuses=frozenset({RunStatus.SUCCESS}), created_from=datetime(2100, 1, 1, tzinfo=UTC)
    ),
    "label, created lately": RunFilter(
        labels={"team": "team-1"}, created_from=datetime(2100, 1, 1, tzinfo=UTC)
    ),
}


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()


_RUN = {
    "i": 0,
    "run_id": "run-new",
    "workflow_name": "deploy-1",
    "status": "queued",
    "version": 1,
    "fence": 0,
    "recovery": "resume",
    "queue": "queue-1",
    "rank": 0,
    "ready_at": MOMENT,
    "readiness": 1,
    "approved": True,
    "updated_at": MOMENT,
    "counts": {"steps_total": 1, "hosts_total": 1},
    "digest": "digest-1",
    "definition": '"text"',
    "summary": "{}",
    "plan": "[]",
    "labels": {"team": "team-1"},
    "update_id": "update-1",
}
_UPDATE = {
    "i": 0,
    "seq": 12,
    "base": 1,
    "base_fence": 1,
    "status": "running",
    "version": 2,
    "updated_at": MOMENT,
    "counts": {"steps_total": 1, "hosts_total": 1},
    "update_id": "update-2",
}
_CALLBACK = {"i": 0, "id": "d-new", "target": "hook", "ordinal": 0, "origin": "o", "event": "{}"}
_STEPS = ([0], [1], "[{}]", "[null]", [0], [1], [-1], '["web1"]', "[{}]")
_SETTLED = {
    "number": 10,
    "state": "delivered",
    "attempts": 1,
    "due_at": MOMENT,
    "redelivery": False,
}
_LEASES = (["run-00000012"], ["worker-1"], [1], 30.0)
_VALUES: dict[str, tuple[Any, ...]] = {
    "create_runs": (_text([_RUN]), "[[]]", *_STEPS, _text([_CALLBACK])),
    "create_plain_runs": (_text([_RUN]), "[[]]"),
    "update_runs": (_text([_UPDATE]), "[[]]", *_STEPS, _text([_CALLBACK])),
    "update_quiet_runs": (_text([_UPDATE]), "[[]]", *_STEPS),
    "runs_to_write": (RUNS, [1, 1], [True, True]),
    "versions_by_id": (RUNS,),
    "runs_by_id": (RUNS,),
    "runs_by_seq": (SEQS,),
    "lease_tokens": (RUNS,),
    "tokens_of_held": (SEQS, "3f9a0c77b2de"),
    "bind_leases": (SEQS, "3f9a0c77b2de"),
    "seq_of_run": (RUNS[0],),
    "definition": (RUNS[0],),
    "active_retry": (RUNS[0],),
    "journal_after": (12, 0, 50),
    "waiting_runs": (["queue-1", "queue-2"], 50),
    "renew_leases": _LEASES,
    "lease_facts": _LEASES[:3],
    "deliveries_by_id": (WAITING,),
    "append_log": (RUNS[0], 1, "worker-1", *STREAM, 1, b"y"),
    "log_chunks": (12, *STREAM, 0, 100),
    "log_size": (12, *STREAM),
    "log_sizes": (RUNS, [0, 0], ["web1"] * 2, [-1, -1], [1, 1], ["stdout"] * 2),
    "log_streams": (12,),
    "add_token": ("token-1", "{}"),
}
_VALUES_CAREFULLY: dict[str, tuple[Any, ...]] = {
    "lock_runs": (RUNS,),
    "changes_after": ("1", 12, 0, 50),
    "held_under_claim": ("worker-1", "claim-1"),
    "promote_parked": (),
    "pick_by_priority": (["queue-1", "queue-2"], 50, True, ["worker-1"]),
    "pick_by_age": (["queue-1", "queue-2"], 50, True, ["worker-1"]),
    "pick_abandoned": (50, True, ["worker-1"]),
    "renew_held_deliveries": ("token-1", 30.0),
    "origins_due": ("", 50),
    "hold_due_deliveries": ("token-new", 30.0, ["https://1", "https://2"], 20, 20),
    "hold_named_deliveries": ("token-new", 30.0, WAITING, 20, 20, []),
    "held_deliveries": ("token-1", []),
    "keep_run_of_delivery": (WAITING[0],),
    "lock_deliveries": (WAITING,),
    "lock_following": (WAITING,),
    "lock_failing_runs": ([2001, 2002],),
    "put_deliveries": (_text([_SETTLED]), [10]),
    "unblock_heads": ([10], ["hook"]),
    "block_all_but_head": (10, "hook"),
    "newest_dead_letters": ([2001, 2002],),
    "show_dead_letters": (_text([{"seq": 2001, "error": "{}"}]), [2001]),
    "owners": (),
    "runs_by_status": (50, [status.value for status in RunStatus]),
    "census": (50,),
    "queue_lengths": (50,),
    "lock_prunable": (-1e9, 50),
    "hide_locked": (SEQS,),
    "lock_unused_definitions": (PRUNED,),
    "delete_unused_definitions": (["digest-1", "digest-2"],),
    "pruned": (-1_000_000, 50),
    "forget_pruned": (PRUNED,),
    **{name: (SEQS, 50) for name in SQL if name.startswith("delete_some")},
}
PAGES = {
    "all": (None, None),
    "dead": (DeliveryState.DEAD, None),
    "waiting": (DeliveryState.WAITING, None),
    "run": (None, RUNS[0]),
    "run, dead": (DeliveryState.DEAD, RUNS[0]),
}


def _put_together() -> Iterator[tuple[str, tuple[str, list[Any]]]]:
    for name, where in FILTERS.items():
        yield f"newest: {name}", newest(where, NEWEST, 50)
        yield f"runnable: {name}", runnable_statement(where, None, 50)
    for name, asked in PAGES.items():
        yield f"deliveries: {name}", page_statement(*asked, NEWEST, 50)


STATEMENTS = {
    **{name: Asked(SQL[name], values, False) for name, values in _VALUES.items()},
    **{name: Asked(SQL[name], values, True) for name, values in _VALUES_CAREFULLY.items()},
    **{name: Asked(sql, tuple(values), True) for name, (sql, values) in _put_together()},
}
