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


@pytest.mark.parametrize(
    "url",
    [
        None,
        "",
        "hooks.example/run",
        "//hooks.example/run",
        "ftp://hooks.example/run",
        "file:///etc/passwd",
        "unix:///run/docker.sock",
        "gopher://hooks.example/",
        "http+unix://hooks.example/",
        "http://",
        "http:///run",
        "http:127.0.0.1/run",
        "http:/127.0.0.1/run",
        "http://:80/run",
        "http://user@/run",
        "https://shop:secret@hooks.example/run",
        "http://hooks.example@127.0.0.1/",
        "http://hooks.example:0/run",
        "http://hooks.example:65536/run",
        "http://hooks.example:-1/run",
        "http://hooks.example:eighty/run",
        "http://hooks.example:80:80/run",
        "http://[::1/run",
        "http://hooks.example\\@127.0.0.1/run",
        "http://hooks.example\\.evil.example/run",
        "http://hooks.example/run a",
        "http://hooks.example/\r\nhost: evil.example",
        "http://hooks\n.example/run",
        "http://hooks\t.example/run",
        " http://hooks.example/run",
        "http://hooks.example\x00.evil.example/",
        "http://hooks.example/\ud800",
    ],
)
def test_urls_that_never_can(url: str | None) -> None:
    with pytest.raises(UnusableTarget, match="url"):
        route(url)


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://hooks.example#@127.0.0.1/", "hooks.example"),
        ("http://hooks.example?@127.0.0.1/", "hooks.example"),
        ("http://hooks.example/@127.0.0.1/", "hooks.example"),
    ],
)
def test_there_is_one_reading_of_a_url(url: str, host: str) -> None:
    assert route(url).url.raw_host == host


def test_a_url_that_cannot_be_used_is_not_repeated() -> None:
    for url in ("https://shop:hunter22@hooks.example:port/run", "https://[hunter22/", "hunter22"):
        with pytest.raises(UnusableTarget) as refused:
            route(url)
        assert "hunter22" not in f"{refused.value!r} {refused.value.__cause__!r}"


def test_headers_of_ones_own() -> None:
    known = route(Authorization="Bearer abc", X_Team="shop\tone", User_Agent="shop/1", Empty="")
    assert known.headers == {
        "authorization": "Bearer abc",
        "x-team": "shop\tone",
        "user-agent": "shop/1",
        "empty": "",
    }


@pytest.mark.parametrize(
    "name",
    [
        "Content-Type",
        "content-type",
        "HOST",
        "Webhook-Id",
        "webhook-signature",
        "Webhook-Anything",
        "Tenure-Redelivery",
        "Content-Length",
        "Transfer-Encoding",
        "Connection",
        "Expect",
        "Upgrade",
        "TE",
        "Trailer",
        "Keep-Alive",
        "Content-Encoding",
        "Accept-Encoding",
        "Proxy-Authorization",
    ],
)
def test_headers_that_are_not_theirs_to_set(name: str) -> None:
    with pytest.raises(UnusableTarget, match=name):
        route_to(CallbackTarget(name="hook", url="https://h.example", headers={name: "x"}))


@pytest.mark.parametrize(
    "name", ["", "a b", "a:b", "a\r\nb", "a\n", "ä", "a\x00", "(a)", "webhook-id\n"]
)
def test_names_no_header_could_have(name: str) -> None:
    with pytest.raises(UnusableTarget, match="no name a header could have"):
        route_to(CallbackTarget(name="hook", url="https://h.example", headers={name: "x"}))


@pytest.mark.parametrize(
    "value", ["a\r\nhost: evil", "a\n", "a\r", "\x00", "a\x7f", "\x1b[31m", "ä", "\ud800", "a\x0b"]
)
def test_values_that_would_break_out(value: str) -> None:
    with pytest.raises(UnusableTarget, match="header 'x-team'") as refused:
        route_to(CallbackTarget(name="hook", url="https://h.example", headers={"x-team": value}))
    assert value not in str(refused.value)


def test_one_header_in_two_spellings() -> None:
    with pytest.raises(UnusableTarget, match="twice"):
        route_to(
            CallbackTarget(name="hook", url="https://h.example", headers={"X-a": "1", "x-A": "2"})
        )


def test_what_one_target_asked_for_does_not_stick_to_the_next() -> None:
    assert route(X_Team="one").headers == {"x-team": "one"}
    assert route(X_Team="two").headers == {"x-team": "two"}
    assert route().headers == {}
