"""Shell completion. Silent on every error: a prompt is no place for error messages."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from tenure.bootstrap import OpenStore

_MAX_SUGGESTIONS = 50
_TIMEOUT_S = 2.0
_SUFFIXES = (".yaml", ".yml", ".json")


def run_ids(ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
    """The newest runs, each with its status and workflow."""

    async def ask(store: OpenStore) -> list[CompletionItem[str]]:
        page = await store.list_runs(limit=_MAX_SUGGESTIONS)
        return [
            CompletionItem(run.run_id, help=f"{run.status} {run.workflow_name}")
            for run in page.items
            if run.run_id.startswith(incomplete)
        ]

    latest = [CompletionItem("latest", help="the newest run")]
    return [item for item in latest if item.value.startswith(incomplete)] + _from_store(ctx, ask)


def callback_ids(ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
    """The newest callbacks, each with its event and state."""

    async def ask(store: OpenStore) -> list[CompletionItem[str]]:
        from tenure.cli.commands.callbacks import outbox_of

        page = await outbox_of(store).list_deliveries(limit=_MAX_SUGGESTIONS)
        return [
            CompletionItem(each.id, help=f"{each.state} {each.event.type} of {each.run_id}")
            for each in page.items
            if each.id.startswith(incomplete)
        ]

    return _from_store(ctx, ask)


def steps(ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
    async def ask(store: OpenStore) -> list[CompletionItem[str]]:
        run = await store.get_run(await _typed_run(ctx, store))
        names = dict.fromkeys(step.name for step in run.steps)
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]

    return _from_store(ctx, ask)


def hosts(ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
    async def ask(store: OpenStore) -> list[CompletionItem[str]]:
        run = await store.get_run(await _typed_run(ctx, store))
        step = ctx.params.get("step")
        names = dict.fromkeys(n for each in run.steps if each.name == step for n in each.hosts)
        return [CompletionItem(n) for n in names if n.startswith(incomplete)][:_MAX_SUGGESTIONS]

    return _from_store(ctx, ask)


def workflow_files(ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
    """Workflow files, and folders that may contain them."""
    folder, slash, start = incomplete.rpartition("/")
    found = []
    with suppress(OSError), os.scandir(folder + slash or ".") as entries:
        for entry in entries:
            hidden = entry.name.startswith(".") and not start
            if hidden or not entry.name.startswith(start):
                continue
            if entry.is_dir():
                found.append(f"{folder}{slash}{entry.name}/")
            elif entry.name.endswith(_SUFFIXES):
                found.append(f"{folder}{slash}{entry.name}")
    return [CompletionItem(path) for path in sorted(found)]


async def _typed_run(ctx: click.Context, store: OpenStore) -> str:
    from tenure.cli.context import meant_run

    return await meant_run(store, ctx.params.get("run_id") or "")


def _from_store(
    ctx: click.Context, ask: Callable[[OpenStore], Awaitable[list[CompletionItem[str]]]]
) -> list[CompletionItem[str]]:
    from tenure.cli.context import open_to_read
    from tenure.config import load_settings

    async def asking() -> list[CompletionItem[str]]:
        settings = load_settings({"store": ctx.params.get("store")})
        async with asyncio.timeout(_TIMEOUT_S), open_to_read(settings) as store:
            return await ask(store)

    try:
        return asyncio.run(asking())
    except Exception:  # noqa: BLE001  (silent, as said at the top)
        return []
