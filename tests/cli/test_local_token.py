"""The admin token that a gateway makes at its first start, and how commands of its user find it."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

import pytest

from tenure.local_tokens import token_for
from tests.cli.conftest import Cli, finish, read_until
from tests.cli.flows import GREET
from tests.cli.test_gateway import ask

GATEWAY = ("gateway", "--json", "--listen", "127.0.0.1:0")
SECRET = "x" * 40


def said_by(process: subprocess.Popen[str]) -> tuple[str, str | None]:
    """Its address, and where the token is."""
    said = json.loads(read_until(process, "address")[-1])
    return said["address"], said["token_file"]


def stopped(process: subprocess.Popen[str]) -> str:
    process.send_signal(signal.SIGTERM)
    ended = finish(process)
    assert ended.code == 0
    return ended.out + ended.err


@pytest.mark.slow
def test_the_first_start_makes_an_admin_token_and_shows_only_its_file(cli: Cli) -> None:
    gateway = cli.start(*GATEWAY)
    address, path = said_by(gateway)
    place = urlsplit(address).netloc
    assert ask(place, "GET", "/v1/runs")[0] == 401
    assert path is not None
    text = Path(path).read_text().strip()
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(Path(path).parent).st_mode) == 0o700
    assert ask(place, "GET", "/v1/runs", token=text)[0] == 200
    (token,) = cli.call("token", "list", "--json").json["tokens"]
    assert (token["name"], token["role"], token["expires_at"]) == ("admin", "admin", None)
    assert text not in stopped(gateway)
    again = cli.start(*GATEWAY)
    assert said_by(again)[1] == path, "the same one at the next start"
    assert len(cli.call("token", "list", "--json").json["tokens"]) == 1
    stopped(again)


@pytest.mark.slow
def test_a_store_with_tokens_gets_no_further_one(cli: Cli) -> None:
    cli.call("token", "create", "ci", "--role", "viewer")
    cli.call("token", "revoke", "ci")
    gateway = cli.start(*GATEWAY)
    assert said_by(gateway)[1] is None
    stopped(gateway)
    assert len(cli.call("token", "list", "--json").json["tokens"]) == 1


@pytest.mark.slow
def test_up_says_where_the_token_is(cli: Cli) -> None:
    up = cli.start("up", "--store", "memory:")
    assert up.stderr is not None
    lines = [up.stderr.readline(), up.stderr.readline()]  # the first: it is kept in memory
    (line,) = (line for line in lines if "API at" in line)
    path = Path(line.partition("a new admin token is in ")[2].partition(";")[0])
    assert path.read_text().startswith("tenure_first_")
    assert path.read_text().strip() not in line + stopped(up)
    assert not path.exists(), "of no use once the store in memory has gone"


@pytest.mark.slow
def test_commands_of_this_user_find_the_token(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = cli.start(*GATEWAY)
    address, _ = said_by(gateway)
    flow = cli.workflow(GREET)
    assert cli.call("submit", flow, "--store", address).code == 0
    assert len(cli.call("list", "--store", address, "--json").json_lines) == 1
    monkeypatch.setenv("TENURE_TOKEN", "tenure_first_of-another-store")
    assert cli.call("list", "--store", address).code == 7, "what is given counts more"
    monkeypatch.delenv("TENURE_TOKEN")
    assert token_for(address) is not None
    other = address.replace("127.0.0.1", "localhost")
    assert token_for(other) is None, "another origin, which may be another process's"
    stopped(gateway)
    assert token_for(address) is None, "its port may be another user's by now"


@pytest.mark.slow
def test_a_token_is_not_sent_to_the_successor_of_a_killed_gateway(cli: Cli) -> None:
    gateway = cli.start(*GATEWAY)
    address, _ = said_by(gateway)
    assert token_for(address) is not None
    gateway.kill()
    gateway.wait()
    assert token_for(address) is None


@pytest.mark.slow
def test_a_token_found_here_does_not_go_through_a_proxy(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str | None] = []

    class Proxy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers["authorization"])
            self.send_error(502)

        def log_message(self, format: str, *args: object) -> None: ...

    gateway = cli.start(*GATEWAY)
    address, _ = said_by(gateway)
    with HTTPServer(("127.0.0.1", 0), Proxy) as proxy:
        thread = Thread(target=proxy.serve_forever)
        thread.start()
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.server_port}")
        try:
            listed = cli.call("list", "--store", address)
        finally:
            proxy.shutdown()
            thread.join()
    assert (listed.code, seen) == (0, [])


@pytest.mark.slow
def test_a_token_is_provided_by_a_file(cli: Cli) -> None:
    cli.call("token", "create", "ci", "--role", "viewer")
    given = cli.folder / "admin.token"
    given.write_text(f"tenure_ops_{SECRET}\n")
    gateway = cli.start(*GATEWAY, "--token-file", "admin.token")
    address, path = said_by(gateway)
    assert path == "admin.token"
    place = urlsplit(address).netloc
    assert ask(place, "GET", "/v1/workers", token=f"tenure_ops_{SECRET}")[0] == 200
    assert cli.call("list", "--store", address).code == 0
    stopped(gateway)
    cli.call("token", "revoke", "ops")
    refused = cli.call(*GATEWAY, "--token-file", "admin.token")
    assert (refused.code, "was revoked" in refused.err) == (7, True)


@pytest.mark.slow
@pytest.mark.parametrize("text", ["", "hunter2", "tenure_ops_short", f"tenure__{SECRET}"])
def test_a_file_without_a_token_is_refused(cli: Cli, text: str) -> None:
    (cli.folder / "admin.token").write_text(text)
    refused = cli.call(*GATEWAY, "--token-file", "admin.token")
    assert (refused.code, "holds no token" in refused.err) == (7, True)
    assert "hunter2" not in refused.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--no-token", "--listen", "0.0.0.0:0"), 7, "127.0.0.1 only"),
        (("--store", "file:///{folder}/runs"), 7, "--no-token"),
        (("--token-file", "none"), 2, "does not exist"),
        (("--allow-anyone",), 2, "--allow-anyone"),
    ],
)
def test_what_is_not_safe_is_refused(
    cli: Cli, arguments: tuple[str, ...], code: int, words: str
) -> None:
    refused = cli.call("gateway", *(each.format(folder=cli.folder) for each in arguments))
    assert refused.code == code
    assert words in refused.err
