"""What a target may ask for."""

from __future__ import annotations

import pytest

from tenure.model.snapshot import CallbackTarget
from tenure.notifiers.http.target import Route, UnusableTarget, route_to


def route(url: str | None = "https://hooks.example/run", **headers: str) -> Route:
    return route_to(
        CallbackTarget(
            name="hook",
            url=url,
            headers={name.replace("_", "-"): value for name, value in headers.items()},
        )
    )


@pytest.mark.parametrize(
    ("url", "meant"),
    [
        ("https://hooks.example/a%2Fb?x=%2F&s=a+b", "https://hooks.example/a%2Fb?x=%2F&s=a+b"),
        ("http://hooks.example?x=1", "http://hooks.example/?x=1"),
        ("https://hooks.example./x", "https://hooks.example./x"),
        ("http://HOOKS.example:8080", "http://hooks.example:8080/"),
        ("http://hooks.example/run#fragment", "http://hooks.example/run"),
        ("http://[2606:4700::1111]:8080/run", "http://[2606:4700::1111]:8080/run"),
        ("https://bücher.example/größe", "https://xn--bcher-kva.example/gr%C3%B6%C3%9Fe"),
    ],
)
def test_urls_that_work(url: str, meant: str) -> None:
    assert str(route(url).url) == meant


# Each rule has its tests in tests/workflow/test_callback_rules; here is what must hold even for a
# target that was stored before there was a rule.
@pytest.mark.parametrize(
    "url",
    [
        *(None, "", "hooks.example/run", "//hooks.example/run", "ftp://hooks.example/run"),
        *("unix:///run/docker.sock", "http://", "http:///run", "http:127.0.0.1/run"),
        *(
            "http://user@/run",
            "https://shop:secret@hooks.example/run",
            "http://h.example@127.0.0.1",
        ),
        *("http://h.example:0/run", "http://h.example:65536/run", "http://h.example:80:80/run"),
        *("http://[::1/run", "http://h.example\\@127.0.0.1/run", "http://h.example/run a"),
        *(
            "http://h.example/\r\nhost: evil.example",
            "http://h\n.example/run",
            " http://h.example/",
        ),
        *("http://h.example\x00.evil.example/", "http://h.example/\ud800"),
    ],
)
def test_urls_that_never_can(url: str | None) -> None:
    with pytest.raises(UnusableTarget, match="url"):
        route(url)


def test_a_url_that_cannot_be_used_is_not_repeated() -> None:
    for url in ("https://shop:hunter22@hooks.example:port/run", "https://[hunter22/", "hunter22"):
        with pytest.raises(UnusableTarget) as refused:
            route(url)
        assert "hunter22" not in f"{refused.value!r} {refused.value.__cause__!r}"


def test_headers_of_ones_own() -> None:
    known = route(Authorization="Bearer abc", X_Team="shop\tone", User_Agent="shop/1", Empty="")
    assert known.headers == {
        "content-type": "application/json",
        "user-agent": "shop/1",
        "accept": "*/*",
        "accept-encoding": "identity",
        "authorization": "Bearer abc",
        "x-team": "shop\tone",
        "empty": "",
    }


@pytest.mark.parametrize(
    "name",
    [
        *("Content-Type", "content-type", "HOST", "Webhook-Id", "Webhook-Anything"),
        *("Tenure-Redelivery", "Content-Length", "Transfer-Encoding", "Connection", "Expect"),
        *("Upgrade", "Content-Encoding", "Accept-Encoding", "Proxy-Authorization"),
    ],
)
def test_headers_that_are_not_theirs_to_set(name: str) -> None:
    with pytest.raises(UnusableTarget, match=name):
        route_to(CallbackTarget(name="hook", url="https://h.example", headers={name: "x"}))


@pytest.mark.parametrize(
    "value", ["a\r\nhost: evil", "a\n", "a\r", "\x00", "a\x7f", "\x1b[31m", "ä", "\ud800", "a\x0b"]
)
def test_values_that_would_break_out(value: str) -> None:
    with pytest.raises(UnusableTarget, match="header 'x-team'") as refused:
        route_to(CallbackTarget(name="hook", url="https://h.example", headers={"x-team": value}))
    assert value not in str(refused.value)


def test_what_one_target_asked_for_does_not_stick_to_the_next() -> None:
    assert route(X_Team="one").headers["x-team"] == "one"
    assert route(X_Team="two").headers["x-team"] == "two"
    assert "x-team" not in route().headers
