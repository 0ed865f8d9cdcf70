"""``--broker``: submitted here, heard there; and what ``tenure doctor`` says of it."""

from __future__ import annotations

import signal

import pytest

from tests.brokers.server import Server
from tests.cli.conftest import Cli, finish, read_until
from tests.cli.flows import GREET

pytestmark = pytest.mark.slow


@pytest.fixture
def broker(valkey_server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    valkey_server.empty()
    monkeypatch.setenv("TENURE_POLL_INTERVAL", "7s")
    return valkey_server


@pytest.mark.parametrize("verb", ["worker", "up"])
def test_a_hint_goes_from_one_process_to_another(cli: Cli, broker: Server, verb: str) -> None:
    """The worker has looked, and will not look again for long."""
    worker = cli.start(verb, "--broker", broker.url)
    with broker.client() as client:
        while not client.info("clients")["blocked_clients"]:
            assert worker.poll() is None
        submitted = cli.call("submit", cli.workflow(GREET), "--broker", broker.url)
        assert submitted.code == 0
        read_until(worker, "success")
        assert client.xlen("tenure:hints:default") == 0
    worker.send_signal(signal.SIGTERM)
    assert finish(worker).code == 0


def test_a_submit_without_its_broker_is_stored_and_says_so(cli: Cli) -> None:
    submitted = cli.call("submit", cli.workflow(GREET), "--broker", "redis://127.0.0.1:1/0")
    assert submitted.code == 0
    assert "find them by looking" in submitted.err
    assert cli.call("status", submitted.out.strip(), "--json").json["status"] == "queued"


def test_a_submit_whose_broker_does_not_answer_says_which_and_for_how_long(cli: Cli) -> None:
    with Server() as frozen:
        frozen.freeze()
        url = frozen.url.replace("//", "//me:opensesame@")
        submitted = cli.call("submit", cli.workflow(GREET), "--broker", url)
    assert submitted.code == 0
    shown = frozen.url.replace("//", "//me:***@")
    assert f"the broker {shown} did not answer for 2 s" in submitted.err
    assert "opensesame" not in submitted.out + submitted.err


def test_a_worker_refuses_a_broker_that_cannot_be_meant(cli: Cli) -> None:
    answer = cli.call("worker", "--broker", "carrier-pigeon:loft")
    assert answer.code != 0
    assert "no broker kind 'carrier-pigeon'" in answer.err


class TestDoctor:
    def test_measures_it(self, cli: Cli, broker: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TENURE_BROKER", broker.url)
        found = cli.call("doctor", "--json").json["broker"]
        assert found["place"] == broker.url
        assert found["latency_ms"] > 0

    def test_takes_one_from_the_command_line(self, cli: Cli, broker: Server) -> None:
        answer = cli.call("doctor", "--json", "--broker", broker.url)
        assert answer.json["broker"]["place"] == broker.url

    def test_leaves_nothing_there(self, cli: Cli, broker: Server) -> None:
        answer = cli.call("doctor", "--json", "--broker", broker.url)
        assert not [text for text in answer.json["findings"] if "broker" in text]
        with broker.client() as client:
            assert client.keys("*") == []

    def test_says_which_option_is_none(self, cli: Cli, broker: Server) -> None:
        answer = cli.call("doctor", "--broker", f"{broker.url}?protocol=3")
        assert answer.code == 1
        assert "no option 'protocol'" in answer.out

    def test_says_that_it_is_away_and_what_that_costs(
        self, cli: Cli, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TENURE_BROKER", "redis://me:opensesame@127.0.0.1:1/0")
        answer = cli.call("doctor")
        assert answer.code == 1
        assert "redis://me:***@127.0.0.1:1/0" in answer.out
        assert "workers find runs by looking, up to 1s later" in answer.out
        assert "opensesame" not in answer.out + answer.err
