"""Write ``docs/reference/settings.md`` from ``tenure.config.Settings``: fields and docstrings."""

from __future__ import annotations

import ast
import inspect
import textwrap
from itertools import pairwise

from tools.generated import table, write_or_check

from tenure.config import FILE_NAME, PREFIX, READERS, Settings, shown_value
from tenure.runtime.options import LEASE_RULES

HEAD = f"""\
# Settings

<!-- Written by `make docs` from tenure.config.Settings. `make check` compares. -->

Read from four places; a later one wins:

1. `{FILE_NAME}` in your configuration directory (`~/.config/tenure`, or `$XDG_CONFIG_HOME/tenure`),
2. `{FILE_NAME}` in the working directory,
3. the environment: `{PREFIX}` and the name in capitals, such as `{PREFIX}STORE`,
4. flags of the command, such as `--store`.

Durations are written `0.5s`, `2m` or `1h30m`, sizes `4096` or `"10MiB"`. `tenure doctor` shows each
value with its source, and checks the rules below. Give all workers of a store the same values.

```toml
# {FILE_NAME}
store = "postgresql://tenure@db.example/tenure"
lease_duration = "20s"
renew_interval = "5s"
retention = "30d"

[[callbacks]]
url = "https://hooks.example/tenure"
secret_env = "TENURE_HOOK_DEPLOY"

[hooks.SHOP]
origins = ["https://shop.example"]
```
"""
STORE = "`sqlite:///~/.local/share/tenure/runs.db`"
TAIL = """
Secrets are no settings. Their values are in the environment: `TENURE_SECRET_NAME` of the process
that executes, `TENURE_HOOK_NAME` of the process that sends callbacks, `TENURE_TOKEN` for a gateway.
What these may sign for is one: [`hooks`](../guides/callbacks.md#what-a-secret-may-sign-for).

## Rules

Settings that break one are refused at start, with its name:
"""
MORE = """
## More about

- leases, intervals and what to set: [Leases](../operations/leases.md)
- what tasks may: [Security](../operations/security.md)
- workers, the broker, draining: [Running workers](../operations/workers.md)
- a store's URL: [SQLite](../operations/sqlite.md), [PostgreSQL](../operations/postgresql.md)
- callbacks: [Callbacks](../guides/callbacks.md), [keys of a target](workflow.md#callback)
- retention: [which store](../operations/stores.md#retention)
"""


def meanings() -> dict[str, str]:
    """What each field's docstring says."""
    source = ast.parse(textwrap.dedent(inspect.getsource(Settings)))
    body = [line for part in source.body if isinstance(part, ast.ClassDef) for line in part.body]
    return {
        field.target.id: " ".join(text.value.value.split())
        for field, text in pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


def page(_: str = "") -> str:
    defaults, meaning = Settings(), meanings()
    rows = [
        (f"`{name}`", STORE if name == "store" else shown_value(defaults, name), meaning[name])
        for name in READERS
    ]
    rules = [f"- `{rule.text}`: {rule.why}" for rule in LEASE_RULES]
    parts = [HEAD, *table(("setting", "default", "meaning"), rows), TAIL, *rules, MORE]
    return "\n".join(parts).rstrip() + "\n"


def main(arguments: list[str] | None = None) -> int:
    return write_or_check({"settings.md": page}, arguments)


if __name__ == "__main__":
    raise SystemExit(main())
