"""A receiver of callbacks beside a command that blocks: answers as told, remembers what it got."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, NamedTuple

SECRET = "whsec_" + b64encode(b"thirty-two bytes nobody guessed!").decode()


class Received(NamedTuple):
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def said(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(self.body)
        return value


class Hook:
    """``status`` is what it answers; 0: it hangs up without an answer. What is sent to
    ``/echo/404`` is not remembered, and comes back with that status."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.status = 204
        self.received: list[Received] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    @property
    def types(self) -> list[str]:
        return [each.said["type"] for each in self.received]

    def workflow(self, *, cmd: str = "true", **target: Any) -> str:
        """JSON, which is YAML too."""
        step = {"name": "work", "action": "cmd.run", "args": {"cmd": cmd}}
        callbacks = [{"url": self.url, **target}]
        return json.dumps(
            {"version": "v1", "name": "deploy", "callbacks": callbacks, "steps": [step]}
        )


@contextmanager
def listening() -> Iterator[Hook]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.path.startswith("/echo/"):
                self._echo(int(self.path.split("/")[2][:3]), body)
                return
            headers = {name.lower(): value for name, value in self.headers.items()}
            hook.received.append(Received(headers, body))
            if hook.status:
                self.send_response(hook.status)
                self.send_header("content-length", "0")
                self.end_headers()

        def _echo(self, status: int, body: bytes) -> None:
            """What it was sent is what it says; as where to go, too, if that is asked."""
            self.send_response(status)
            if status in (301, 302):
                self.send_header("location", "/" + body.decode("latin-1"))
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """The test says what matters."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hook = Hook(server.server_port)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield hook
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
