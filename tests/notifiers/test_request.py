"""A request, byte for byte, and what could never be part of one."""

from __future__ import annotations

import pytest
from yarl import URL

from tenure import __version__
from tenure.notifiers.http.request import headers_of, opening, request

HOOK = URL("https://hooks.example/a%2Fb?x=%2F", encoded=True)


def test_a_request_as_it_goes_out() -> None:
    start = opening(HOOK, {"x-team": "shop\tone", "accept": "text/plain"})
    assert (
        request(start, {"webhook-id": "1"}, b"{}")
        == (
            "POST /a%2Fb?x=%2F HTTP/1.1\r\n"
            "host: hooks.example\r\n"
            "content-type: application/json\r\n"
            f"user-agent: tenure/{__version__}\r\n"
            "accept: text/plain\r\n"
            "accept-encoding: identity\r\n"
            "x-team: shop\tone\r\n"
            "webhook-id: 1\r\n"
            "content-length: 2\r\n"
            "\r\n"
            "{}"
        ).encode()
    )


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://hooks.example:443/", "hooks.example"),
        ("https://hooks.example:80/", "hooks.example:80"),
        ("http://hooks.example:8080/", "hooks.example:8080"),
        ("http://[2606:4700::1111]/", "[2606:4700::1111]"),
        ("http://[2606:4700::1111]:8080/", "[2606:4700::1111]:8080"),
        ("http://[fe80::1%25eth0]:8080/", "[fe80::1]:8080"),
        ("http://[fe80::1%\u202e]/", "[fe80::1]"),
        ("http://bücher.example/", "xn--bcher-kva.example"),
    ],
)
def test_whom_it_is_for(url: str, host: str) -> None:
    assert headers_of(request(opening(URL(url), {}), {}, b""))["host"] == host


def test_what_it_said_of_itself() -> None:
    sent = request(opening(HOOK, {"x-a": "b: c"}), {}, b"x-not: mine\r\n\r\n")
    said = headers_of(sent)
    assert (said["x-a"], said["content-length"]) == ("b: c", "15")
    assert "x-not" not in said


@pytest.mark.parametrize("value", ["1\r\nhost: evil", "1\n", "1\r", "\x00", "ä", "\u2028", "\x85"])
def test_nothing_breaks_out_of_its_line(value: str) -> None:
    with pytest.raises(ValueError, match="lines of printable ASCII"):
        request(opening(HOOK, {}), {"webhook-id": value}, b"")
    with pytest.raises(ValueError, match="lines of printable ASCII"):
        opening(HOOK, {"x-a": value})
    with pytest.raises(ValueError, match="lines of printable ASCII"):
        opening(HOOK, {value: "x"})
    path = URL.build(scheme="http", host="hooks.example", path=f"/{value}", encoded=True)
    with pytest.raises(ValueError, match="lines of printable ASCII"):
        opening(path, {})


def test_no_second_word_in_the_path() -> None:
    path = URL.build(scheme="http", host="h.example", path="/ HTTP/1.1", encoded=True)
    with pytest.raises(ValueError, match="lines of printable ASCII"):
        opening(path, {})
