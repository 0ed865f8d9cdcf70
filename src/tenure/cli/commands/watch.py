"""``tenure watch``."""

from __future__ import annotations

from tenure.cli.context import settings_for
from tenure.cli.follow import watch
from tenure.cli.options import json_option, run_argument, store_option, verb


@verb("watch", "tenure watch latest", "tenure watch 01JCQ5T4Y9K3V8M2N6P7R1S0WX --json")
@run_argument
@json_option
@store_option
def command(run_id: str, as_json: bool, store: str | None) -> int:
    """Follow a run that another process executes.

    The same view as that of tenure run, with the history so far. With --json one line per event,
    and a last line with the final record. Ctrl-C stops watching; the run continues. The exit code
    is that of the run: 0 success, 1 failed, 3 canceled, 4 interrupted. A run whose process is gone,
    and that no worker will resume, counts as interrupted; tenure reconcile records that.
    """
    return watch(
        settings_for(store), run_id, "stopped watching; the run is as it was", as_json=as_json
    )
