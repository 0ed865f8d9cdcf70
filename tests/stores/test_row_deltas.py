"""Rows written update by update, from what was remembered, read as the whole run does."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tenure.model.decide import apply, decide
from tenure.model.errors import Refused
from tenure.model.progress import Decision
from tenure.model.snapshot import HostState, RunSnapshot, StepState
from tenure.model.status import HostStatus, RunStatus, StepKind, StepStatus
from tenure.model.update import HostChange, ItemChange, StepChange, Update
from tenure.stores import rows
from tenure.stores.rows import (
    HOST_ITSELF,
    TaskRow,
    added_hosts,
    assembled,
    bare,
    host_of,
    item_rows,
    step_row,
)
from tenure.stores.run_cache import CachedRun
from tests.model.samples import LIVE, after, as_bytes, by_owner, effect, running

_HANDLER = StepState(
    index=2, name="handler", kind=StepKind.HANDLER, hosts={"web1": HostState(), "web2": HostState()}
)

_host_status = st.sampled_from(
    [HostStatus.RUNNING] * 5 + [HostStatus.SUCCESS] * 4 + [HostStatus.UNKNOWN] * 2 + [*HostStatus]
)
_items = st.dictionaries(st.integers(0, 2), st.builds(ItemChange, status=_host_status), max_size=2)
_hosts = st.dictionaries(
    st.sampled_from(["web1", "web2", "web2", "nowhere"]),
    st.one_of(
        st.builds(HostChange, status=_host_status, stdout=st.text(max_size=3)),
        st.builds(HostChange, status=_host_status, items=_items),
        st.builds(HostChange, attempts=st.integers(1, 3)),
    ),
    max_size=2,
)
_step_status = st.sampled_from([StepStatus.RUNNING] * 5 + [StepStatus.SUCCESS] * 3 + [*StepStatus])
_steps = st.dictionaries(
    st.sampled_from([0, 0, 0, 1, 1, 2]),
    st.one_of(
        st.builds(StepChange, hosts=_hosts),
        st.builds(StepChange, status=_step_status, hosts=_hosts),
        st.builds(StepChange, status=_step_status, message=st.text(max_size=3)),
        st.builds(StepChange, status=_step_status, hosts=_hosts, plan=st.just(_HANDLER)),
    ),
    max_size=3,
)
_ends = st.sampled_from([None] * 12 + [*RunStatus])


class _Rows:
    """What a store of rows keeps of one run, in dictionaries."""

    def __init__(self, run: RunSnapshot) -> None:
        self.run = run
        self._plan = rows.plan_text(run.steps)
        self._steps: dict[int, tuple[str, str | None]] = {}
        self._tasks: dict[tuple[int, str, int], str] = {}
        self._known = CachedRun(None, run.steps, self._ended_host)

    def _ended_host(self, known: CachedRun[None], index: int, name: str) -> HostState | None:
        body = self._tasks.get((index, name, HOST_ITSELF))
        return host_of(body) if body else None

    def write(self, update: Update, at: float) -> None:
        decision = decide(self.run, self._known, update, at=after(at), circumstances=LIVE)
        if decision.effect is None:
            return
        self.run = decision.own_fields(self.run)
        self._put(decision)
        self._known.advance(None, decision.steps)

    def _put(self, decision: Decision) -> None:
        for index, delta in decision.steps.items():
            if delta.after is not delta.before:
                body = rows.text(bare(delta.after))
                hosts, (*_, known) = added_hosts(delta), self._steps.get(index, (None,))
                self._steps[index] = (body, known if hosts is None else rows.text(hosts))
            for name, host in delta.hosts.items():
                for item, value in item_rows(self._known, delta, name, host):
                    self._tasks[index, name, item] = rows.text(value)

    def steps(self) -> tuple[StepState, ...]:
        steps = [step_row(index, *texts) for index, texts in self._steps.items()]
        tasks = [TaskRow(*place, host_of(body)) for place, body in sorted(self._tasks.items())]
        plan = rows.plan_of(self._plan)
        return assembled(self.run.status, self.run.finished_at, plan, steps, tasks)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(_ends, _steps, st.floats(-50, 50)), min_size=1, max_size=20))
def test_rows_and_whole_runs_go_the_same_way(moves: list[Any]) -> None:
    whole = running()
    rows = _Rows(whole)
    for end, steps, at in moves:
        update = by_owner(whole, effect(run=end, steps=steps))
        try:
            whole = apply(whole, update, at=after(at), circumstances=LIVE).snapshot
        except Refused as refusal:
            with pytest.raises(type(refusal), match=f"^{re.escape(str(refusal))}$"):
                rows.write(update, at)
            continue
        rows.write(update, at)
        assert as_bytes(replace(rows.run, steps=rows.steps())) == as_bytes(whole)
