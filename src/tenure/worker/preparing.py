"""A run made ready to be executed: from what the store keeps of it, and nothing else.

What a hint says of a run is not believed, unless the hint brought its record along under the
store's seal: that is the store's own word (``at_hand``).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping

from tenure.model.beginning import WaitingRun
from tenure.model.errors import NotRunnable
from tenure.model.leasing import ClaimedRun
from tenure.model.snapshot import RunSnapshot
from tenure.ports.definitions import Definitions
from tenure.runtime.definition import Definition, decode_definition
from tenure.runtime.embedded import Work
from tenure.runtime.patience import surely
from tenure.runtime.ready import Ready
from tenure.runtime.stored import stored_work

_MOST = 64

MakeReady = Callable[[Definition], Ready]


class Preparing:
    """``secrets`` are this worker's: a run gets those that its workflow declares."""

    def __init__(
        self, definitions: Definitions, make_ready: MakeReady, secrets: Mapping[str, str]
    ) -> None:
        self._definitions = definitions
        self._make_ready = make_ready
        self._secrets = secrets
        self._ready: OrderedDict[str, Ready] = OrderedDict()

    async def work(self, found: ClaimedRun | WaitingRun) -> Work:
        """``NotRunnable`` and ``InvalidWorkflow`` if this worker cannot execute it."""
        run = found.snapshot
        return self._work(await self._ready_for(run.run_id, found.definition_digest), run)

    def at_hand(self, found: WaitingRun) -> Work | None:
        """As ``work``, if what it takes is known; nobody is asked."""
        ready = self._known(found.definition_digest)
        return None if ready is None else self._work(ready, found.snapshot)

    def _work(self, ready: Ready, run: RunSnapshot) -> Work:
        declared = ready.source.workflow.secrets
        secrets = {name: self._secrets[name] for name in declared if name in self._secrets}
        return stored_work(ready, run, secrets, by_worker=True)

    def _known(self, digest: str | None) -> Ready | None:
        ready = self._ready.get(digest) if digest is not None else None
        if ready is not None:
            self._ready.move_to_end(digest or "")
        return ready

    async def _ready_for(self, run_id: str, digest: str | None) -> Ready:
        """Most runs of a queue are runs of a few workflows."""
        known = self._known(digest)
        if known is not None:
            return known
        text = await surely(lambda: self._definitions.get_definition(run_id))
        if text is None:
            raise NotRunnable(run_id, "its store keeps no definition of it: start a new run")
        ready = self._make_ready(decode_definition(text))
        if digest is not None:
            self._ready[digest] = ready
            if len(self._ready) > _MOST:
                self._ready.popitem(last=False)
        return ready
