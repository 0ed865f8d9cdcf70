"""What is kept of runs that ended is bounded, and never taken for another run of the same name."""

from __future__ import annotations

from msgspec.structs import replace

from tenure.model.snapshot import HostState, RunSnapshot
from tenure.stores import recent
from tenure.stores.lives import Life
from tenure.stores.recent import Known, Recent
from tests.model.samples import running


def _ended_here(runs: Recent[None], run_id: str) -> None:
    run = replace(running(), run_id=run_id)
    known = _known(run)
    runs.put(run_id, known)
    runs.end(known, replace(run, status="success"), {})


def _known(run: RunSnapshot) -> Known[None]:
    return Known(None, run.steps, _nobody, Life.of(run))


def _nobody(known: Known[None], step: int, name: str) -> HostState | None:
    return None


def test_last_record_is_there_until_somebody_takes_it() -> None:
    runs: Recent[None] = Recent()
    _ended_here(runs, "run-00001")
    assert runs.get("run-00001") is None
    assert runs.last_record("run-00001") is not None
    assert runs.last_record("run-00001") is None


def test_name_that_is_used_again_has_none() -> None:
    runs: Recent[None] = Recent()
    _ended_here(runs, "run-00001")
    runs.put("run-00001", _known(running()))
    assert runs.last_record("run-00001") is None


def test_run_that_was_written_after_its_end_has_none() -> None:
    runs: Recent[None] = Recent()
    _ended_here(runs, "run-00001")
    runs.forget("run-00001")
    assert runs.last_record("run-00001") is None


def test_records_nobody_asks_for_go_the_oldest_first() -> None:
    runs: Recent[None] = Recent()
    names = [f"run-{number:05}" for number in range(recent.MAX_ENDED + 1)]
    for name in names:
        _ended_here(runs, name)
    assert runs.last_record(names[0]) is None
    assert runs.last_record(names[1]) is not None
    assert runs.last_record(names[-1]) is not None


def test_wide_run_is_not_followed() -> None:
    run = running()
    many = replace(run.counts, hosts_total=1_000)
    assert Life.of(replace(run, counts=many)) is None
