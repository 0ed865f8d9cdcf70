"""What a callback target must be, wherever it is given."""

from __future__ import annotations

import pytest
from aiohttp.helpers import is_canonical_ipv4_address, is_ip_address
from hypothesis import example, given
from hypothesis import strategies as st

from tenure.model.snapshot import CallbackTarget
from tenure.notifiers.http.target import route_to
from tenure.workflow.callbacks import fault_of_secret_env, fault_of_url, faults_of

BROKEN = {
    "http://shop.example/a b": "holds a space",
    "http://shop.example\xa0/": "holds a space",
    "http://shop.example\\@127.0.0.1/": "holds a backslash",
    "http://shop.example/\ud800": "holds half a character",
    "http://[::1/": "cannot be read as an address",
    "": "must begin with http:// or https://",
    "ftp://shop.example": "must begin with http:// or https://",
    "http:///run": "names no host",
    "http://shop.example:http/": "has a port that is no number from 1 to 65535",
    "http://shop.example:0/": "has a port that is no number from 1 to 65535",
    "http://shop.example:-1/": "has a port that is no number from 1 to 65535",
    "http://shop.example:٨٠/": "has a port that is no number from 1 to 65535",
    "http://[v1.x]/": "has something in brackets that is no IPv6 address",
    "http://127.1/": "names its host by numbers that are no IPv4 address",
    "http://127.0.0.1。/": "names its host by numbers that are no IPv4 address",
    "http://\xad127.0.0.1/": "names a host with characters that no name can have",
    "http://a\u200db.example/": "names a host with characters that no name can have",
    "http://%31%32%37.0.0.1/": "names a host that is no name",
    "http://a..example/": "names a host that is no name",
    f"http://{'a' * 64}.example/": "names a host that is no name",
    f"http://{'a.' * 130}example/": "names a host with more than 253 characters",
    "http://ada:opensesame@shop.example/": "holds a user name or a password",
}


@pytest.mark.parametrize(("url", "why"), BROKEN.items())
def test_a_url_is_refused_by_the_rule_it_breaks_and_never_repeated(url: str, why: str) -> None:
    fault = fault_of_url(url)
    assert fault is not None
    assert fault.message.startswith(why)
    assert "opensesame" not in str(fault)


@pytest.mark.parametrize(
    "url",
    [
        "https://shop.example/run?x=1#y",
        "HTTP://SHOP.example:8080",
        "http://shop.example.:/",
        "http://my_service-1/",
        "http://localhost:1/",
        "http://127.0.0.1/",
        "http://[::1]:8080/",
        "http://[fe80::1%lo]/",
        "https://bücher.example/größe",
        "https://shop.example/@ada:x",
    ],
)
def test_urls_that_are_fine(url: str) -> None:
    assert fault_of_url(url) is None


LETTERS = "aZ09.:@/?#[]%-_~ \\é。１\xad\u200d\x00"
PIECES = st.sampled_from([*LETTERS, "http://", "::1", "[::1]", "127.0.0.1", ":80", "xn--"])


@given(st.lists(PIECES, max_size=12).map("".join))
@example("http://xn--/")
@example("http://ﬀ.example/")
def test_what_the_rules_let_pass_a_request_can_be_made_of(rest: str) -> None:
    url = f"http://{rest}"
    if fault_of_url(url) is not None:
        return
    host = route_to(CallbackTarget(name="hook", url=url)).url.raw_host or ""
    assert host
    if is_ip_address(host):
        assert ":" in host or is_canonical_ipv4_address(host)  # what the client insists on


def test_all_faults_are_told_each_with_its_place() -> None:
    headers = {
        "Content-Type": "text/plain",
        "Webhook-Id": "1",
        "Transfer-Encoding": "chunked",
        "X-Größe": "1",
        "X-Name": "Jürgen",
        "X-a": "1",
        "x-A": "2",
        "Authorization": "Bearer fine",
    }
    told = [(fault.path, fault.message) for fault in faults_of("x", headers, "HOOK")]
    assert told == [
        (("url",), "must begin with http:// or https://"),
        (("headers", "Content-Type"), "is set by Tenure and cannot be replaced"),
        (("headers", "Webhook-Id"), "is set by Tenure and cannot be replaced"),
        (("headers", "Transfer-Encoding"), "belongs to the connection, not to a target"),
        (("headers", "X-Größe"), "is no name a header could have"),
        (("headers", "X-Name"), "has a value that is not printable ASCII on one line"),
        (("headers", "x-A"), "is given twice, in different spellings"),
        (("secret_env",), "must be TENURE_HOOK_ and then A-Z, 0-9 or _"),
    ]


@pytest.mark.parametrize(
    ("variable", "hint"),
    [
        ("HOOK", "name it TENURE_HOOK_HOOK"),
        ("shop-hook", "name it TENURE_HOOK_SHOP_HOOK"),
        ("TENURE_HOOK_shop", "name it TENURE_HOOK_SHOP"),
        ("tenure_hook_", "name it TENURE_HOOK_SHOP"),
        ("", "name it TENURE_HOOK_SHOP"),
        ("whsec_c2VjcmV0", "give the name of a variable, not the secret itself"),
    ],
)
def test_a_variable_is_named_as_it_should_be(variable: str, hint: str) -> None:
    fault = fault_of_secret_env(variable)
    assert fault is not None
    assert fault.hint == hint
