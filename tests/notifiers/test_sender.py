"""Whole attempts against a real receiver: what it gets, and what each of its vices comes to."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Mapping
from datetime import UTC, datetime
from random import Random

import pytest
import standardwebhooks
from msgspec.structs import replace

from tenure import __version__
from tenure.notifiers.http import HttpSender, HttpSettings
from tenure.testing.clock import ManualClock
from tenure.workflow.callbacks import Signing, read_hooks
from tests.notifiers.deliveries import HERE, SECRET, NewSender, delivery, no
from tests.notifiers.receiver import PATIENCE, Receiver, bomb

pytestmark = pytest.mark.slow

HASTY = replace(HERE, total_timeout=0.3)
"""For receivers that never answer."""


# -- what the receiver gets -----------------------------------------------------------------------


async def test_a_callback_as_it_arrives(new_sender: NewSender, receiver: Receiver) -> None:
    clock = ManualClock(datetime(2030, 5, 6, 7, 8, 9, 999_999, tzinfo=UTC))
    assert await new_sender(clock=clock).send(delivery(receiver.url("ok?a=%2F"))) is None
    [got] = await receiver.got(1)
    assert (got.method, got.path, got.query) == ("POST", "ok", {"a": "/"})
    assert (got.json["type"], got.json["run_id"]) == ("step.failed", "run-00001")
    assert got.json["error"]["message"] == "exited with 3: größer"
    assert got.headers == {
        "host": f"127.0.0.1:{receiver.port}",
        "content-type": "application/json",
        "content-length": str(len(got.body)),
        "user-agent": f"tenure/{__version__}",
        "accept": "*/*",
        "accept-encoding": "identity",
        "webhook-id": "delivery-000007",
        "webhook-timestamp": str(int(datetime(2030, 5, 6, 7, 8, 9, tzinfo=UTC).timestamp())),
    }


def by_resend(secret: str, body: bytes, headers: Mapping[str, str]) -> object:
    """A verifier that shares no code with the library that signs: that of a mail service."""
    import resend  # a large one, for a few tests

    return resend.Webhooks.verify(
        {
            "payload": body.decode(),
            "headers": {
                "id": headers["webhook-id"],
                "timestamp": headers["webhook-timestamp"],
                "signature": headers["webhook-signature"],
            },
            "webhook_secret": secret,
        }
    )


async def test_signed_for_receivers_that_share_a_secret(
    sender: HttpSender, receiver: Receiver
) -> None:
    signed = delivery(receiver.url("ok"), secret_env="TENURE_HOOK_SHOP")
    assert await sender.send(signed) is None
    [got] = await receiver.got(1)
    assert standardwebhooks.Webhook(SECRET).verify(got.body, got.headers) == got.json
    assert by_resend(SECRET, got.body, got.headers) == got.json


async def test_every_attempt_has_the_same_id_and_its_own_time(
    new_sender: NewSender, receiver: Receiver
) -> None:
    clock = ManualClock()
    sender = new_sender(clock=clock)
    for _ in range(2):
        await sender.send(delivery(receiver.url("503"), secret_env="TENURE_HOOK_SHOP"))
        clock.advance(60)
    first, second = await receiver.got(2)
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert first.body == second.body
    stamps = [int(got.headers["webhook-timestamp"]) for got in (first, second)]
    assert stamps[1] - stamps[0] == 60
    assert first.headers["webhook-signature"] != second.headers["webhook-signature"]


async def test_a_redelivery_is_marked_and_keeps_its_id(
    sender: HttpSender, receiver: Receiver
) -> None:
    await sender.send(delivery(receiver.url("ok")))
    await sender.send(delivery(receiver.url("ok"), redelivery=True))
    first, again = await receiver.got(2)
    assert "tenure-redelivery" not in first.headers
    assert again.headers["tenure-redelivery"] == "true"
    assert first.headers["webhook-id"] == again.headers["webhook-id"]


async def test_headers_of_the_target(sender: HttpSender, receiver: Receiver) -> None:
    headers = {"X-Team": "shop", "User-Agent": "shop/1"}
    assert await sender.send(delivery(receiver.url("ok"), headers=headers)) is None
    [got] = await receiver.got(1)
    assert got.headers["x-team"] == "shop"
    assert got.headers["user-agent"] == "shop/1"
    assert got.headers["host"] == f"127.0.0.1:{receiver.port}"


async def test_no_cookie_is_kept(sender: HttpSender, receiver: Receiver) -> None:
    await sender.send(delivery(receiver.url("cookie", host="localhost")))
    await sender.send(delivery(receiver.url("cookie", host="localhost")))
    for got in await receiver.got(2):
        assert "cookie" not in got.headers


async def test_proxies_of_the_environment_are_not_used(
    sender: HttpSender, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Receiver() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url(""))
        assert await sender.send(delivery(receiver.url("ok"))) is None
        assert proxy.connections == 0


class Notes:
    """A trace of what went over the wire."""

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self.answer: tuple[int, str] | None = None

    def sent(self, headers: dict[str, str]) -> None:
        self.headers = headers

    def answered(self, status: int, reason: str) -> None:
        self.answer = (status, reason)


async def test_a_trace_has_what_went_over_the_wire(
    new_sender: NewSender, receiver: Receiver
) -> None:
    seen = Notes()
    sender = new_sender(trace=seen)
    await sender.send(delivery(receiver.url("503"), secret_env="TENURE_HOOK_SHOP"))
    [got] = await receiver.got(1)
    assert (seen.headers, seen.answer) == (got.headers, (503, "Service Unavailable"))


async def test_a_trace_has_what_was_sent_when_no_answer_comes(
    new_sender: NewSender, receiver: Receiver
) -> None:
    seen = Notes()
    await new_sender(HASTY, trace=seen).send(delivery(receiver.url("hang")))
    [got] = await receiver.got(1)
    assert (seen.headers, seen.answer) == (got.headers, None)


async def test_a_secret_signs_for_its_origins_only(
    new_sender: NewSender, receiver: Receiver
) -> None:
    """Not sent unsigned either. What another process may sign is tried again."""
    mine = delivery(receiver.url("ok"), secret_env="TENURE_HOOK_SHOP")
    elsewhere = Signing(read_hooks({"SHOP": ["https://shop.example"]}))
    refused = await new_sender(signing=elsewhere).send(mine)
    assert "TENURE_HOOK_SHOP may not sign for http://" in no(refused, again=False)
    elsewhere.trust([])
    no(await new_sender(signing=elsewhere).send(mine), again=True)
    assert receiver.connections == 0
    listed = Signing(read_hooks({"SHOP": [f"http://127.0.0.1:{receiver.port}/"]}))
    for signing in (listed, Signing(own=[mine.target])):
        assert await new_sender(signing=signing).send(mine) is None


# -- targets that never can -----------------------------------------------------------------------


async def test_without_its_secret_nothing_is_sent(sender: HttpSender, receiver: Receiver) -> None:
    """Another process may have it, so it is tried again; a variable that is none of ours, never."""
    for variable, again in (("TENURE_HOOK_LOST", True), ("PATH", False)):
        refused = await sender.send(delivery(receiver.url("ok"), secret_env=variable))
        error = no(refused, again=again)
        assert variable in error
        assert "/bin" not in error
    assert receiver.connections == 0


@pytest.mark.parametrize(
    ("url", "headers"),
    [
        (None, {}),
        ("ftp://hooks.example/", {}),
        ("http://127.0.0.1:0/ok", {}),
        ("http://hooks.example/", {"Webhook-Id": "mine"}),
        ("http://hooks.example/", {"x-a": "1\r\nhost: evil.example"}),
    ],
)
async def test_a_target_of_no_use_is_given_up_at_once(
    url: str | None, headers: dict[str, str], sender: HttpSender
) -> None:
    no(await sender.send(delivery(url, headers=headers)), again=False)


@pytest.mark.parametrize("id", ["1\r\nhost: evil", "\ud800", "ä", "\x00"])
async def test_an_id_that_would_break_out_of_its_line(
    id: str, sender: HttpSender, receiver: Receiver
) -> None:
    no(await sender.send(replace(delivery(receiver.url("ok")), id=id)), again=False)
    assert receiver.connections == 0


# -- answers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
async def test_taken(status: int, sender: HttpSender, receiver: Receiver) -> None:
    assert await sender.send(delivery(receiver.url(str(status)))) is None


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
async def test_worth_another_try(status: int, sender: HttpSender, receiver: Receiver) -> None:
    refused = await sender.send(delivery(receiver.url(f"{status}?after=7&body=not+today")))
    assert no(refused, again=True) == f"answered {status}: not today"
    assert refused is not None
    assert refused.not_before == 7


@pytest.mark.parametrize("status", [304, 400, 401, 403, 404, 410, 413, 422])
async def test_a_final_no(status: int, sender: HttpSender, receiver: Receiver) -> None:
    refused = await sender.send(delivery(receiver.url(str(status))))
    assert no(refused, again=False) == f"answered {status}"


@pytest.mark.parametrize("status", ["301", "307"])
async def test_a_redirect_inward_is_not_followed(
    status: str, sender: HttpSender, receiver: Receiver
) -> None:
    error = no(await sender.send(delivery(receiver.url(status))), again=False)
    assert f"a redirect to http://127.0.0.1:{receiver.port}/inward, which is not followed" in error
    assert [got.path for got in receiver.received] == [status]


async def test_an_echo_of_our_secrets_is_not_repeated(
    sender: HttpSender, receiver: Receiver
) -> None:
    headers = {"X-Key": "k3y-of-the-shop", "Accept": "Bearer t0ken-of-the-shop"}
    headers["Authorization"] = "Basic c2hvcDpzM2NyZXQ="
    target = delivery(receiver.url("echo"), headers=headers, secret_env="TENURE_HOOK_SHOP")
    error = no(await sender.send(target), again=False)
    said = (await receiver.got(1))[0].headers
    for secret in ("k3y", "t0ken", said["authorization"].split()[1]):
        assert secret not in error


# -- vices ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("vice", ["hang", "trickle-headers"])
async def test_a_receiver_that_never_answers_is_left(
    vice: str, new_sender: NewSender, receiver: Receiver
) -> None:
    refused = await new_sender(HASTY).send(delivery(receiver.url(vice)))
    assert no(refused, again=True) == "no answer within 0.3 s"
    await receiver.alone()


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(replace(HERE, read_timeout=0.1), id="by time"),
        pytest.param(replace(HERE, read_timeout=1000, response_bytes=3), id="by size"),
    ],
)
async def test_a_body_that_trickles_after_the_status_changes_nothing(
    settings: HttpSettings, new_sender: NewSender, receiver: Receiver
) -> None:
    async with asyncio.timeout(PATIENCE / 2):
        assert await new_sender(settings).send(delivery(receiver.url("trickle-body"))) is None
        await receiver.alone()


async def test_an_endless_answer_is_cut_by_size(new_sender: NewSender, receiver: Receiver) -> None:
    patient = replace(HERE, read_timeout=1000, total_timeout=1000)
    async with asyncio.timeout(PATIENCE):
        assert await new_sender(patient).send(delivery(receiver.url("endless"))) is None
        await receiver.alone()


@pytest.mark.parametrize("status", [200, 500])
async def test_a_gzip_bomb_stays_packed(
    status: int, sender: HttpSender, receiver: Receiver
) -> None:
    packed = len(bomb())
    tracemalloc.start()
    try:
        refused = await sender.send(delivery(receiver.url(f"gzip-bomb?status={status}")))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (refused is None) is (status == 200)
    assert peak < 20 * packed < 64 * 1024 * 1024


async def test_a_reset_connection(sender: HttpSender, receiver: Receiver) -> None:
    refused = await sender.send(delivery(receiver.url("reset")))
    assert no(refused, again=True) == "connection failed: Connection reset by peer"


async def test_a_connection_closed_without_an_answer(
    sender: HttpSender, receiver: Receiver
) -> None:
    refused = await sender.send(delivery(receiver.url("drop")))
    assert no(refused, again=True) == "it closed the connection without an answer"


async def test_an_answer_that_is_not_http(sender: HttpSender, receiver: Receiver) -> None:
    """Nothing of it is quoted: it would land in the record."""
    error = no(await sender.send(delivery(receiver.url("garbage"))), again=True)
    assert error == "its answer is not HTTP"


PIECES = [
    *(b"HTTP/1.1 ", b"HTTP/1.0 ", b"HTTP/9.9 ", b"200", b"503", b"100", b"204", b" OK", b"\r\n"),
    *(b"\r\n\r\n", b"\n", b"content-length: ", b"5", b"-1", b"9" * 20, b"0\r\n\r\n", b"ffffffff"),
    *(b"transfer-encoding: chunked", b"content-encoding: gzip", b"content-encoding: br", b"zz"),
    *(b"location: http://[", b"retry-after: ", b"set-cookie: a=b; expires=;", b"link: <x"),
    *(b"content-type: text/html; charset=\xff", b":", b"\x00", b"\xff\xfe", b"a" * 9000),
    *(b"connection: upgrade\r\nupgrade: websocket\r\n", b"HTTP/1.1 101 x\r\n"),
]


async def test_whatever_is_answered_the_attempt_has_an_end(
    new_sender: NewSender, receiver: Receiver
) -> None:
    luck = Random(7)
    sender = new_sender(replace(HERE, read_timeout=0.1, total_timeout=1))
    for _ in range(150):
        pieces = luck.choices(PIECES, k=luck.randrange(12))
        status = luck.choice([b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 500 x\r\n"])
        answer = (status + b"".join(pieces)).hex()
        refused = await sender.send(delivery(receiver.url(f"raw?hex={answer[:40_000]}")))
        if refused is not None:
            no(refused, again=refused.again)


async def test_nobody_listens(sender: HttpSender) -> None:
    async with Receiver() as gone:
        url = gone.url("ok")
    refused = await sender.send(delivery(url))
    assert no(refused, again=True) == "connection failed: Connection refused"


async def test_an_unknown_name(new_sender: NewSender) -> None:
    async def unknown(host: str) -> list[str]:
        raise OSError(-2, "Name or service not known")

    refused = await new_sender(look_up=unknown).send(delivery("http://hooks.example/"))
    assert no(refused, again=True) == "its name cannot be resolved: Name or service not known"


async def test_a_name_that_is_never_resolved(new_sender: NewSender) -> None:
    asked = asyncio.Event()

    async def silent(host: str) -> list[str]:
        asked.set()
        await asyncio.Event().wait()
        return []

    refused = await new_sender(HASTY, look_up=silent).send(delivery("http://hooks.example/"))
    assert no(refused, again=True) == "no answer within 0.3 s"
    assert asked.is_set()


async def test_receivers_that_hang_do_not_hold_up_healthy_ones(
    new_sender: NewSender, receiver: Receiver
) -> None:
    sender = new_sender(replace(HERE, total_timeout=PATIENCE, read_timeout=PATIENCE))
    bad = ("hang", "trickle-headers", "trickle-body")
    stuck = [asyncio.create_task(sender.send(delivery(receiver.url(vice)))) for vice in bad * 15]
    await receiver.got(len(stuck))
    async with asyncio.timeout(PATIENCE / 2):
        sent = [sender.send(delivery(receiver.url("ok"))) for _ in range(100)]
        assert await asyncio.gather(*sent) == [None] * 100
    assert not any(task.done() for task in stuck)
    for task in stuck:
        task.cancel()
    await asyncio.gather(*stuck, return_exceptions=True)
