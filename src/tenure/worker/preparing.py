"""A claimed run made ready to be executed: from what the store keeps of it, and nothing else."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from tenure.model.errors import NotRunnable
from tenure.ports.definitions import Definitions
from tenure.runtime.definition import Definition, decode_definition
from tenure.runtime.embedded import Claim, Work
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

    async def work(self, claim: Claim) -> Work:
        """``NotRunnable`` and ``InvalidWorkflow`` if this worker cannot execute it."""
        run = claim.run.snapshot
        text = await surely(lambda: self._definitions.get_definition(run.run_id))
        if text is None:
            raise NotRunnable(run.run_id, "its store keeps no definition of it: start a new run")
        ready = self._readied(text)
        declared = ready.source.workflow.secrets
        secrets = {name: self._secrets[name] for name in declared if name in self._secrets}
        return replace(stored_work(ready, run, secrets), claim=claim)

    def _readied(self, text: str) -> Ready:
        """Most runs of a queue are runs of a few workflows."""
        ready = self._ready.get(text)
        if ready is None:
            ready = self._ready[text] = self._make_ready(decode_definition(text))
            if len(self._ready) > _MOST:
                self._ready.popitem(last=False)
        else:
            self._ready.move_to_end(text)
        return ready
