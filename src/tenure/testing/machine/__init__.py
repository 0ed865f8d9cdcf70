"""Random test of a store against a plain model.

Hypothesis chooses the operations (creations, writes of owners and operators, claims, renewals,
releases, callbacks, output, passing time, clocks set, repeated calls); after each one the store's
answer and record are compared with a model of dictionaries that shares no code with
``tenure.model``. A failure is shrunk to the shortest history.

    @asynccontextmanager
    async def open_my_store(clock):
        store = await MyStore.connect(clock=clock)
        try:
            yield store
        finally:
            await store.close()

    def test_my_store():
        run_store_machine(open_my_store)

or, with settings:

    class MyMachine(StoreMachine):
        open_store = staticmethod(open_my_store)

    class TestMyStore(MyMachine.TestCase):
        settings = settings(max_examples=500)

Each example opens its own store, which must be empty and use the given clock. Protocols that the
store lacks are not tested. ``model`` decides with dictionaries, ``driver`` compares, ``rules``
chooses the calls.
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import HealthCheck, settings
from hypothesis import seed as hypothesis_seed
from hypothesis.stateful import run_state_machine_as_test as play

from tenure.testing.clock import ManualClock
from tenure.testing.machine.driver import OpenStore
from tenure.testing.machine.rules import LeaseRules, LogRules, OutboxRules, ReadRules, TimeRules


class StoreMachine(LeaseRules, OutboxRules, LogRules, ReadRules, TimeRules):
    """All rules. Give it ``open_store`` by subclassing, or use ``run_store_machine``."""


def run_store_machine(
    open_store: OpenStore,
    *,
    examples: int = 100,
    steps: int = 40,
    seed: int | None = None,
    new_clock: Callable[[], ManualClock] = ManualClock,
) -> None:
    """Play ``examples`` random histories of up to ``steps`` operations each.

    Without a ``seed`` every call plays the same ones, so that a failure is reproducible.
    ``new_clock`` is for a store with the time of a server.
    """

    members = {"open_store": staticmethod(open_store), "new_clock": staticmethod(new_clock)}
    machine = type("StoreMachine", (StoreMachine,), members)
    play(
        machine if seed is None else hypothesis_seed(seed)(machine),
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            derandomize=seed is None,
            suppress_health_check=list(HealthCheck),
        ),
    )


__all__ = ["OpenStore", "StoreMachine", "run_store_machine"]
