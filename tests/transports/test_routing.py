"""Each address to what can reach it."""

from __future__ import annotations

import pytest

from tenure.model.errors import HostUnreachable
from tenure.ports.execution import Command, Endpoint
from tenure.transports.local import LocalTransport
from tenure.transports.routing import RoutingTransport, UnreachableTransport, kind_of
from tests.transports.keeping import Kept


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("local", "local"),
        ("localhost", "local"),
        ("127.0.0.1", "local"),
        ("ssh://deploy@10.0.0.1:22", "ssh"),
        ("HTTP://10.0.0.2:7072", "http"),
        ("https://agent", "https"),
        ("10.0.0.3", "ssh"),
        ("web1", "ssh"),
        ("", "ssh"),
    ],
)
def test_kind_of_address(address: str, kind: str) -> None:
    assert kind_of(address) == kind


@pytest.mark.slow
async def test_a_local_host_runs_here(transport: LocalTransport) -> None:
    routing = RoutingTransport({"local": transport}, otherwise=UnreachableTransport())
    kept = Kept()
    here = Endpoint(name="here", address="localhost")
    assert (await routing.run(here, Command(argv=("echo", "hello")), kept)).code == 0
    assert kept.stdout == b"hello\n"


@pytest.mark.parametrize("address", ["ssh://deploy@10.0.0.1:22", "http://10.0.0.2:7072", "web1"])
async def test_a_host_nothing_can_reach_names_its_address(address: str) -> None:
    routing = RoutingTransport({}, otherwise=UnreachableTransport())
    with pytest.raises(HostUnreachable, match="this version") as refused:
        await routing.run(Endpoint(name="web", address=address), Command(argv=("true",)), Kept())
    assert (refused.value.host, refused.value.address) == ("web", address)
    assert address in str(refused.value)


class Closed:
    def __init__(self, failure: Exception | None = None) -> None:
        self.failure = failure
        self.closed = 0

    async def close(self) -> None:
        self.closed += 1
        if self.failure is not None:
            raise self.failure


class ClosedTransport(Closed, UnreachableTransport):
    pass


async def test_all_are_closed_even_if_one_fails() -> None:
    good = ClosedTransport()
    bad = ClosedTransport(OSError("stuck"))
    last = ClosedTransport()
    with pytest.raises(OSError, match="stuck"):
        await RoutingTransport({"a": good, "b": bad}, otherwise=last).close()
    assert [each.closed for each in (good, bad, last)] == [1, 1, 1]
