"""How long what runs for a run may be trusted to be its owner's."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class TrustWindows(Protocol):
    """A transport that ends a run's processes by itself when the run's owner fell silent.

    The owner says how long it may still be trusted, each time that changes. If it says nothing more
    (it was killed, or frozen), the processes end without it, and until it is trusted again nothing
    of the run is started.
    """

    def trust(self, run_id: str, until: float, margin: float) -> None:
        """``until`` is a moment of ``time.monotonic`` (an event loop's ``time()``); ``inf``: there
        is no lease that could end. Processes are told to end then, and are gone ``margin`` seconds
        later. The last word counts. From any thread; never waits.
        """
        ...

    def forget(self, run_id: str) -> None:
        """The run has ended here: it will neither be trusted nor distrusted again."""
        ...
