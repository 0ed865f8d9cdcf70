"""Tasks that were begun by an owner that is lost: what is done about each, as its step says.

========  ======================================================================================
rerun     it begins anew, as a further attempt
verify    its probe is asked, and stays ``unknown`` meanwhile: done, it is a success; else it begins
          anew
fail      it failed
ask       the run ends as interrupted: a person looks
========  ======================================================================================

Where the run is to end before that is decided, they stay ``unknown``, and their hosts are listed as
unconfirmed.
"""

from __future__ import annotations

from collections.abc import Sequence

from tenure.model.status import HostStatus
from tenure.runtime.crew import Crew, Execute
from tenure.runtime.draft import Draft
from tenure.runtime.executor import Outcome
from tenure.runtime.resuming import Doubt
from tenure.runtime.stop import asked
from tenure.runtime.unfolding import Start, Unfolding, started_again
from tenure.workflow.spec import OnTakeover


class Doubts:
    """``probe`` executes the probe of what is in doubt."""

    def __init__(self, crew: Crew, unfolding: Unfolding, probe: Execute) -> None:
        self._crew = crew
        self._unfolding = unfolding
        self._probe = probe
        self._probed: dict[Start, int] = {}
        """Those that are looked at now, and how many attempts they have had."""
        self._before: dict[Start, int] = {}

    def attempts(self, start: Start) -> int:
        """That earlier owners made of it."""
        return self._before.get(start, 0)

    def decide(self, doubts: Sequence[Doubt], draft: Draft) -> None:
        for start, attempts in doubts:
            recipe = start.course.recipe
            if attempts and recipe.on_takeover is OnTakeover.ASK:
                self._crew.stop(asked(recipe.name, start.host))
        for start, attempts in doubts:
            recipe = start.course.recipe
            if self._crew.stopped is not None:
                if attempts:
                    self._crew.unconfirmed.add(start.host)
            elif not attempts:  # it was to begin when its owner was told to stop
                self._again(start, attempts, draft)
            elif recipe.on_takeover is OnTakeover.FAIL:
                self._crew.arrive(start, _failed(attempts))
            elif recipe.on_takeover is OnTakeover.VERIFY and recipe.probe is not None:
                self._probed[start] = attempts
                self._crew.begin(start, self._probe)
            else:
                self._again(start, attempts, draft)

    def settled(self, start: Start, outcome: Outcome, draft: Draft) -> bool:
        """Take in what a probe says; whether it was one."""
        attempts = self._probed.pop(start, None)
        if attempts is None:
            return False
        if outcome.cut_short or self._crew.stopped is not None:
            self._crew.unconfirmed.add(start.host)
        elif outcome.status is HostStatus.SUCCESS:
            self._unfolding.settle(start, _found_done(attempts), draft)
        else:
            self._again(start, attempts, draft)
        return True

    def _again(self, start: Start, attempts: int, draft: Draft) -> None:
        self._before[start] = attempts
        started_again(start, attempts + 1, draft)
        self._unfolding.starts.append(start)


def _failed(attempts: int) -> Outcome:
    return Outcome(
        status=HostStatus.FAILED,
        kind="takeover",
        message="its worker was lost while it ran; on_takeover says fail",
        attempts=attempts,
    )


def _found_done(attempts: int) -> Outcome:
    return Outcome(
        status=HostStatus.SUCCESS,
        message="its worker was lost while it ran; verify found the work done",
        attempts=attempts,
    )
