"""Rolling: batch after batch, within a budget that counts over the whole step.

Against a plain model: the sentences of the manual, one by one. It knows no waves, courses or
drafts. It is told what ended and says what begins; the engine must say the same after every single
turn, and the record must end as the model says."""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.model.status import RunStatus
from tenure.runtime.retry_history import Continuation, StepPast, forgotten, past_of
from tenure.workflow.plan import make_plan
from tenure.workflow.spec import Rolling
from tests.runtime.playing import FAILED, OK, SKIPPED, UNREACHABLE, Play, exporting, step, workflow


def rolling(hosts: str = "abcdef", loop: Any = None, **settings: Any) -> Play:
    return Play(workflow(step("roll", rolling=Rolling(**settings), loop=loop), hosts=hosts))


def test_one_failure_too_many_starts_no_further_host() -> None:
    play = rolling(batch=2, max_failures=1)
    play.end("roll/a", outcome=FAILED).end("roll/b")
    assert play.started == ["roll/c", "roll/d"], "the budget is used up, not overdrawn"
    play.end("roll/c", outcome=FAILED)
    assert play.started == []
    play.end("roll/d")
    assert play.status is RunStatus.FAILED
    assert play.hosts("roll") == {
        "a": "failed",
        "b": "success",
        "c": "failed",
        "d": "success",
        "e": "skipped",
        "f": "skipped",
    }


def test_failures_within_the_budget_are_tolerated_and_remembered() -> None:
    play = rolling("ab", batch=1, max_failures="50%").end("roll/a", outcome=FAILED).end("roll/b")
    assert play.status is RunStatus.SUCCESS
    assert play.statuses() == {"roll": "success"}
    assert play.step("roll").message == "failed on 1 of 2 hosts (a): it broke"
    assert play.record.last_error is not None
    assert play.record.last_error.failed_hosts == ("a",)


def test_a_tolerated_failure_excuses_nobody_from_what_the_step_must_export() -> None:
    roll = step("roll", rolling=Rolling(batch=2, max_failures=1), expect_vars=["A"])
    play = Play(workflow(roll)).end("roll/a", outcome=FAILED).end("roll/b")
    assert (play.status, play.step("roll").message) == (
        RunStatus.FAILED,
        "expected vars missing: A",
    )
    play = Play(workflow(roll)).end("roll/a", outcome=FAILED).end("roll/b", outcome=exporting(A=1))
    assert play.status is RunStatus.SUCCESS


ALL_HOSTS = "abcdefg"
SHARES = st.sampled_from(["1%", "10%", "25%", "34%", "50%", "99%", "100%"])
NUMBERS = st.integers(0, 7) | SHARES | st.just("0%")
ROLLING = st.builds(
    Rolling,
    batch=st.integers(2, 7) | SHARES,
    max_failures=NUMBERS,
    max_unreachable=st.none() | NUMBERS,
)


def amount(written: int | str, hosts: int) -> int:
    """A share is rounded down."""
    return written if isinstance(written, int) else math.floor(hosts * int(written[:-1]) / 100)


class Count:
    """Hosts that failed, each once, and whether they are too many. ``before`` are those that an
    earlier run left failed and this one does not touch: they count when another one fails."""

    def __init__(self, rolling: Rolling, hosts: int, before: dict[str, str] | None = None) -> None:
        self._rolling = rolling
        self._hosts = hosts
        self._before = before or {}
        self.failed: dict[str, str] = {}

    def of(self, *kinds: str) -> int:
        return sum(each in kinds for each in (*self.failed.values(), *self._before.values()))

    @property
    def spent(self) -> bool:
        failures = amount(self._rolling.max_failures, self._hosts)
        apart = self._rolling.max_unreachable
        if not self.failed:
            return False
        if apart is None:
            return self.of("failed", "unreachable") > failures
        return self.of("failed") > failures or self.of("unreachable") > amount(apart, self._hosts)


Ended = list[tuple[str, str]]
"""Hosts that ended, and how."""


def by_hand(
    hosts: str, count: Count, size: int, items: int, at_once: int
) -> Generator[list[str], Ended, None]:
    """Yields the hosts that begin, in order; is sent those that ended."""
    begun: set[str] = set()
    for first in range(0, len(hosts), size):
        batch = hosts[first : first + size]
        for _ in range(items):
            queue, running = list(batch), set[str]()
            while True:
                queue = [
                    host
                    for host in queue
                    if host not in count.failed and (host in begun or not count.spent)
                ]
                starting, queue = _split(queue, at_once - len(running))
                begun.update(starting)
                running.update(starting)
                if not running:
                    break
                for host, how in (yield starting):
                    running.remove(host)
                    if how in ("failed", "unreachable"):
                        count.failed[host] = how


def _split(queue: list[str], at: int) -> tuple[list[str], list[str]]:
    return queue[:at], queue[at:]


BAD = ("failed", "unreachable")
OUTCOMES = {"success": OK, "failed": FAILED, "unreachable": UNREACHABLE, "skipped": SKIPPED}
Turns = list[tuple[int, int, str]]
"""Which of the hosts that run end next, how many with it in the same turn, and how."""
TURNS = st.lists(
    st.tuples(st.integers(0, 6), st.integers(1, 3), st.sampled_from(sorted(OUTCOMES))), max_size=25
)


def compare(
    hosts: str,
    rolling: Rolling,
    at_once: int,
    turns: Turns,
    *,
    items: int | None = None,
    unwanted: str = "",
) -> None:
    """Play a step turn by turn beside the model. When ``turns`` are over, all end well."""
    condition = " and ".join(f"host != '{host}'" for host in unwanted) or None
    loop = None if items is None else list(range(items))
    roll = step("roll", rolling=rolling, concurrency=at_once, loop=loop, when=condition)
    play = Play(workflow(roll, hosts=hosts))

    wanted = "".join(host for host in hosts if host not in unwanted)
    tally = Count(rolling, len(hosts))
    model = by_hand(wanted, tally, max(1, amount(rolling.batch, len(hosts))), items or 1, at_once)
    ends = beside(model, play, turns)
    assert list(ends) == list(hosts)
    assert play.status is (RunStatus.FAILED if tally.spent else RunStatus.SUCCESS)


def beside(model: Generator[list[str], Ended, None], play: Play, turns: Turns) -> dict[str, str]:
    """Turn by turn to the end: how each host ended, by the play and by what was said."""
    said: dict[str, list[str]] = {}
    expected = next(model, [])
    while play.running:
        assert [_host(label) for label in play.started] == expected
        which, together, how = turns.pop(0) if turns else (0, 1, "success")
        running = sorted(play.running)
        ended = [running[(which + more) % len(running)] for more in range(together)]
        ended = list(dict.fromkeys(ended))
        for label in ended:
            said.setdefault(_host(label), []).append(how)
        play.end(*ended, outcome=OUTCOMES[how])
        try:
            expected = model.send([(_host(label), how) for label in ended])
        except StopIteration:
            expected = []
    assert play.started == expected == []
    ends = play.hosts("roll")
    assert ends == {host: _end_of(said.get(host, [])) for host in ends}
    return ends


@given(count=st.integers(2, 7), rolling=ROLLING, at_once=st.integers(1, 3), turns=TURNS)
def test_after_every_turn_exactly_those_hosts_begin_that_may(
    count: int, rolling: Rolling, at_once: int, turns: Turns
) -> None:
    compare(ALL_HOSTS[:count], rolling, at_once, turns)


@given(
    batch=st.integers(2, 4),
    most=st.integers(0, 2),
    items=st.integers(2, 3),
    at_once=st.integers(2, 4),
    turns=TURNS,
)
def test_so_it_is_in_loops(batch: int, most: int, items: int, at_once: int, turns: Turns) -> None:
    compare(ALL_HOSTS[:5], Rolling(batch=batch, max_failures=most), at_once, turns, items=items)


@given(
    count=st.integers(3, 6),
    share=st.sampled_from(["34%", "50%", "60%"]),
    most=st.sampled_from(["20%", "25%", "34%", "50%"]),
    turns=TURNS,
)
def test_shares_are_those_of_all_hosts_of_the_step_also_of_those_a_condition_leaves_out(
    count: int, share: str, most: str, turns: Turns
) -> None:
    rolling = Rolling(batch=share, max_failures=most, max_unreachable=most)
    compare(ALL_HOSTS[:count], rolling, 7, turns, unwanted="b")


# -- retries --------------------------------------------------------------------------------------
HARD = st.lists(
    st.tuples(st.integers(0, 6), st.integers(1, 3), st.sampled_from(["success", *BAD])), max_size=9
)
RETRIES = st.lists(
    st.tuples(HARD, st.none() | st.sets(st.sampled_from(ALL_HOSTS[:5])), st.booleans()), min_size=1
)
"""How each retry goes, the hosts it is asked for, and whether those run again that were through."""
SOME = st.sampled_from([0, 1, 2, 3, "20%", "40%", "60%"])
TIGHT = st.builds(
    Rolling,
    batch=st.sampled_from([1, 2, 5, "40%"]),
    max_failures=SOME,
    max_unreachable=st.none() | SOME,
)


@pytest.mark.slow
@settings(max_examples=300)
@given(rolling=TIGHT, at_once=st.integers(1, 3), turns=HARD, retries=RETRIES)
def test_a_chain_of_retries_has_one_budget(
    rolling: Rolling,
    at_once: int,
    turns: Turns,
    retries: list[tuple[Turns, set[str] | None, bool]],
) -> None:
    """A share is one of all hosts; each host counts as it last ended, unless it is tried again;
    and a retry in which a host fails again and none comes through has failed, budget or not. To
    run again who was through wipes out nothing."""
    hosts = ALL_HOSTS[:5]
    played = workflow(step("roll", rolling=rolling, concurrency=at_once), hosts=hosts)
    plan, past = make_plan(played), dict[int, StepPast]()
    ends: dict[str, str] = {}
    """As each host last ended."""
    done: set[str] = set()
    for how_it_goes, only, again in [(turns, None, False), *retries]:
        asked = set(hosts) if only is None else only
        left = [host for host in hosts if host in asked and (again or host not in done)]
        if not left:
            continue
        if again:
            done -= asked
            past = forgotten(past, [0], only)
        chosen = None if only is None else tuple(sorted(only))
        play = Play(played, Continuation(past=past, hosts=chosen))
        assert list(play.hosts("roll")) == left
        elsewhere = {host: end for host, end in ends.items() if end in BAD and host not in left}
        tally = Count(rolling, len(hosts), elsewhere)
        size = max(1, amount(rolling.batch, len(left)))
        now = beside(by_hand("".join(left), tally, size, 1, at_once), play, how_it_goes)
        once_more = any(ends.get(host) in BAD for host in tally.failed)
        failed = tally.spent or (once_more and "success" not in now.values())
        assert play.status is (RunStatus.FAILED if failed else RunStatus.SUCCESS)
        ends |= {host: end for host, end in now.items() if end != "skipped"}
        done |= {host for host, end in now.items() if end == "success"}
        past = past_of(plan, play.record, past)


def _host(label: str) -> str:
    return label.removeprefix("roll/")[0]


def _end_of(said: list[str]) -> str:
    """Of a host, by what its items came to. One that never began is skipped."""
    if said and said[-1] in ("failed", "unreachable"):
        return said[-1]
    return "success" if "success" in said else "skipped"
