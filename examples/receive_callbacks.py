"""A receiver of callbacks: checks who sent them, takes each once, and keeps the newest status.

    export TENURE_HOOK_SHOP="whsec_$(openssl rand -base64 32)"
    python examples/receive_callbacks.py 8000

and, where the same variable is set:

    tenure callbacks test http://127.0.0.1:8000/ --secret-env TENURE_HOOK_SHOP --allow-private

Nothing but the standard library. ``docs/guides/callbacks.md`` explains each part.
"""

from __future__ import annotations

import hmac
import json
import os
import sys
import time
from base64 import b64decode, b64encode
from email.message import Message
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

TOLERANCE = 5 * 60
"""Seconds a callback may be old: a recorded one must not be of use for long."""
LARGEST = 1024 * 1024


class NotOurs(Exception):
    """Nobody we trust sent this, or somebody sends it a second time much later."""


def verified(headers: Message, body: bytes, secret: str) -> dict[str, Any]:
    """What the callback says, if it was signed with our secret, and lately."""
    sent_at = headers.get("webhook-timestamp", "")
    now = time.time()  # noqa: TID251  the one clock a receiver has
    if not sent_at.isdecimal() or abs(now - int(sent_at)) > TOLERANCE:
        raise NotOurs("too old, or from a clock that is wrong")
    key = b64decode(secret.removeprefix("whsec_"))
    signed = b".".join((headers.get("webhook-id", "").encode(), sent_at.encode(), body))
    expected = b64encode(hmac.digest(key, signed, "sha256"))
    for each in headers.get("webhook-signature", "").split():
        version, _, signature = each.partition(",")
        if version == "v1" and hmac.compare_digest(signature.encode(), expected):
            said: dict[str, Any] = json.loads(body)
            return said
    raise NotOurs("not signed with our secret")


class Board:
    """The newest status of each run. A real one keeps both tables in its database, and writes
    them in one transaction, before it answers."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.newest: dict[str, tuple[int, int]] = {}

    def take(self, webhook_id: str, said: dict[str, Any]) -> str:
        if webhook_id in self.seen:
            return "had it already"
        self.seen.add(webhook_id)
        place = (said["version"], said["seq"])
        if place <= self.newest.get(said["run_id"], (0, 0)):
            return "an old story"
        self.newest[said["run_id"]] = place
        why = f": {said['error']['message']}" if said["error"] else ""
        return f"{said['workflow_name']} {said['type']}{why}"


class Receiver(BaseHTTPRequestHandler):
    board = Board()
    secret = ""

    def do_POST(self) -> None:
        size = int(self.headers.get("content-length", "0"))
        body = self.rfile.read(min(size, LARGEST))
        try:
            said = verified(self.headers, body, self.secret)
        except NotOurs as refusal:
            print(f"refused: {refusal}", flush=True)
            self.send_error(401)  # for good: Tenure does not try again
            return
        print(self.board.take(self.headers["webhook-id"], said), flush=True)
        self.send_response(204)  # taken: from here on it is ours to remember
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """What was received is said above."""


def main() -> None:
    Receiver.secret = os.environ["TENURE_HOOK_SHOP"]
    with HTTPServer(("127.0.0.1", int(sys.argv[1])), Receiver) as server:
        print(f"listening on http://127.0.0.1:{server.server_port}/", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
