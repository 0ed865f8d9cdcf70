"""``tenure callbacks test``."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import click
import msgspec

from tenure.cli.callbacks.probing import Probe, probe
from tenure.cli.callbacks.targets import checked_targets, problem_with, target_of
from tenure.cli.display import json_lines
from tenure.cli.display.moments import took
from tenure.cli.display.paint import bold, dim, in_color, note, say, sign
from tenure.cli.display.text import one_line
from tenure.cli.exits import Exit
from tenure.cli.opening import callback_settings, settings_for
from tenure.cli.verb import json_option, verb
from tenure.model.retry import RetryPolicy
from tenure.wire.targets import address_of


@verb(
    "test",
    "tenure callbacks test https://example.com/hook --secret-env TENURE_HOOK_SHOP",
    "tenure callbacks test http://127.0.0.1:8000/ --allow-private",
)
@click.argument("url", metavar="URL")
@click.option(
    "--secret-env",
    metavar="TENURE_HOOK_…",
    help="The environment variable with the signing secret; without it nothing is signed.",
)
@click.option(
    "--allow-private",
    is_flag=True,
    help="Also to loopback, link-local and private addresses, as callback_allow_private does.",
)
@json_option
def command(url: str, secret_env: str | None, allow_private: bool, as_json: bool) -> int:
    """Send a sample callback to a URL and say what came back.

    It goes out as a run's would, signed and guarded, once. Shows what was sent, what came back, and
    what Tenure would do about it. Exit code 0 only if it was taken; 1 if the receiver answered
    otherwise, 6 if there was no answer, 7 if nothing may or can be sent there.
    """
    settings = settings_for(None)
    (spec,) = checked_targets({"url": url, "secret_env": secret_env})
    if secret_env is not None and not os.environ.get(secret_env):
        raise click.BadParameter(
            f"{secret_env} is not set here; set it to the target's signing secret.",
            param_hint="--secret-env",
        )
    seen = asyncio.run(
        probe(
            target_of(spec, "test"),
            settings.callback_timeout,
            allow_private or settings.callback_allow_private,
            settings.callbacks,
        )
    )
    if as_json:
        say(json_lines.as_json(_facts(seen)))
    else:
        for line in _lines(seen, callback_settings(settings).policy):
            say(line)
        if secret_env is None:
            note("not signed: name a secret with --secret-env, so that receivers can check it")
    return _exit_code(seen)


def _exit_code(seen: Probe) -> Exit:
    if seen.refusal is None:
        return Exit.SUCCESS
    if seen.status is not None:
        return Exit.FAILED
    can_be_sent = problem_with(seen.delivery.target, os.environ) is None
    return Exit.STORE if seen.refusal.again and can_be_sent else Exit.REFUSED


def _outcome(seen: Probe) -> str:
    if seen.refusal is None:
        return "delivered"
    return "retried" if seen.refusal.again else "dead"


def _facts(seen: Probe) -> dict[str, object]:
    return {
        "outcome": _outcome(seen),
        "url": address_of(seen.delivery.target.url or ""),
        "headers": seen.headers,
        "payload": seen.payload,
        "status": seen.status,
        "seconds": round(seen.seconds, 4),
        "error": seen.refusal and seen.refusal.error,
        "retry_after": (seen.refusal and seen.refusal.not_before) or None,
    }


def _lines(seen: Probe, policy: RetryPolicy) -> Iterator[str]:
    yield bold(f"POST {one_line(address_of(seen.delivery.target.url or ''))}")
    for name, value in seen.headers.items():
        yield f"  {dim(f'{name}:')} {one_line(value)}"
    if seen.headers:
        yield f"\n  {msgspec.json.encode(seen.payload).decode()}\n"
    elapsed = dim(f"in {seen.seconds * 1000:.0f} ms")
    if seen.status is not None:
        yield f"{seen.status} {one_line(seen.reason)}  {elapsed}"
    if seen.refusal is None:
        yield in_color("success", f"{sign('success')} taken")
        return
    yield in_color("failed", f"{sign('failed')} not taken: {one_line(seen.refusal.error)}")
    yield f"  {_what_then(seen, policy)}"


def _what_then(seen: Probe, policy: RetryPolicy) -> str:
    if seen.refusal is None or not seen.refusal.again:
        return "a callback would be a dead letter at once"
    waits = [
        policy.wait_after(failed, at_least=seen.refusal.not_before) or 0.0
        for failed in range(1, policy.attempts)
    ]
    if not waits:
        return "a callback would be a dead letter at once: callback_attempts is 1"
    return (
        f"a callback would be tried again after {took(waits[0])}, {policy.attempts} times in all "
        f"within {took(sum(waits))}, then be a dead letter"
    )
