"""No secret comes out, whatever it is cut into; everything else comes out as it was."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Callable
from itertools import pairwise
from xml.sax import saxutils

import markupsafe
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from jinja2.utils import htmlsafe_json_dumps
from yarl import URL

from tenure.runtime.masking import Masks

few_letters = st.text("ab\n", min_size=1, max_size=6)
some_text = st.text("ab\nc", max_size=60)


def masked(masks: Masks, data: bytes, cuts: list[int]) -> bytes:
    stream = masks.stream()
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    pieces = [stream.feed(data[start:end]) for start, end in pairwise(places)]
    return b"".join(pieces) + stream.finish()


def plainly(secrets: list[str], text: str) -> str:
    """Mark every letter of every occurrence, then show each marked stretch as one mask."""
    marked = [False] * len(text)
    for secret in {form for each in secrets for form in (each, each.strip()) if form}:
        for place in range(len(text)):
            if text.startswith(secret, place):
                marked[place : place + len(secret)] = [True] * len(secret)
    shown = "".join("\0" if hide else letter for letter, hide in zip(text, marked, strict=True))
    return re.sub("\0+", "***", shown)


@given(st.lists(few_letters, max_size=3), some_text, st.lists(st.integers(0, 60), max_size=8))
@example(["ab", "abab"], "xababab", [2, 3, 4, 5, 6])
@example(["aa"], "aaaaaaaa", [1, 2, 3, 4, 5, 6, 7])
@example(["ab", "bc"], "abc", [1, 2])
def test_chunks_make_no_difference(secrets: list[str], text: str, cuts: list[int]) -> None:
    masks = Masks(secrets)
    assert masked(masks, text.encode(), cuts).decode() == plainly(secrets, text)
    assert masks.text(text) == plainly(secrets, text)


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=8))
def test_bytes_without_a_secret_come_out_byte_for_byte(data: bytes, cuts: list[int]) -> None:
    assert masked(Masks(["a secret that is not there"]), data, cuts) == data


def test_nothing_is_held_back_that_cannot_become_a_secret() -> None:
    stream = Masks(["hunter2"]).stream()
    assert stream.feed(b"the password is ") == b"the password is "
    assert stream.feed(b"hunt") == b""
    assert stream.feed(b"ing") == b"hunting"
    assert stream.feed(b"hunter2 hun") == b"*** "
    assert stream.finish() == b"hun"


@pytest.mark.parametrize(
    "spelled",
    [
        lambda text: json.dumps(text).replace("/", "\\/"),
        lambda text: json.dumps(text, ensure_ascii=False).replace("/", "\\/"),
        lambda text: re.sub(
            r"u[0-9a-f]{4}", lambda code: "u" + code[0][1:].upper(), json.dumps(text)
        ),
        lambda text: htmlsafe_json_dumps(text),
        lambda text: in_a_page(json.dumps(text, ensure_ascii=False), "<>&"),
        lambda text: in_a_page(json.dumps(text, ensure_ascii=False), "<>&'="),
    ],
    ids=["php", "php-unicode", "capitals", "jinja2", "go", "gson"],
)
def test_a_secret_inside_json_is_found_however_it_is_spelled(spelled: Callable[[str], str]) -> None:
    for secret in ("https://user/päss", "a<b>&c", 'it\'s="so"+`x`', "😀/\n\\x\x07y"):
        assert Masks([secret]).text(f"<{spelled(secret)}>") == '<"***">'


def in_a_page(text: str, harmful: str) -> str:
    return text.translate({ord(each): f"\\u{ord(each):04x}" for each in harmful})


@pytest.mark.parametrize(
    "spelled",
    [
        lambda text: html.escape(text, quote=False),
        html.escape,
        lambda text: str(markupsafe.escape(text)),
        saxutils.escape,
        lambda text: saxutils.escape(text, {'"': "&quot;", "'": "&apos;"}),
        lambda text: html.escape(text).replace("&#x27;", "&#39;"),
        lambda text: html.escape(text).replace("&#x27;", "&#039;"),
        lambda text: html.escape(text).encode("ascii", "xmlcharrefreplace").decode(),
        lambda text: re.sub("[&<>\"']", lambda found: f"&#{ord(found[0])};", text),
        lambda text: re.sub("[&<>\"']", lambda found: f"&#x{ord(found[0]):X};", text),
    ],
    ids=["text", "html", "jinja2", "xml", "apos", "ruby", "php", "ascii", "decimal", "hex"],
)
def test_a_secret_inside_markup_is_found(spelled: Callable[[str], str]) -> None:
    for secret in ("a<b>&c", 'it\'s "so"', "&amp;", "päss&wörd", "a+b/c=`d`"):
        shown = f"<td>{spelled(secret)}</td>"
        masks = Masks([secret])
        assert masks.text(shown) == "<td>***</td>"
        for cut in range(len(shown.encode())):
            assert masked(masks, shown.encode(), [cut, cut + 2]) == b"<td>***</td>"


escapes = st.text("ab&<'\"/;\\#", max_size=5)


@st.composite
def encoded_at_will(draw: st.DrawFn, secret: str) -> bytes:
    """As some program or other may write it in a URL."""
    parts = []
    for byte in secret.encode():
        escapes = [f"%{byte:02x}".encode(), f"%{byte:02X}".encode()]
        plain = b"+" if byte == ord(" ") else bytes([byte])
        ways = [plain] if plain.isalnum() else escapes if plain == b"%" else [plain, *escapes]
        parts.append(draw(st.sampled_from(ways)))
    return b"".join(parts)


in_urls = st.text("aé4|% +", max_size=5).filter(lambda text: bool(set(text) - set("a4")))
fillers = st.text("a4|%+c", max_size=8)


@given(
    st.data(), st.lists(in_urls, min_size=1, max_size=2), st.lists(st.integers(0, 99), max_size=8)
)
def test_a_secret_inside_a_url_is_found_however_it_is_encoded_and_cut(
    data: st.DataObject, secrets: list[str], cuts: list[int]
) -> None:
    masks = Masks(secrets)
    inside = data.draw(encoded_at_will(secrets[0]))
    assert masked(masks, b"<" + inside + b">", cuts) == b"<***>"
    if secrets[0].isascii():
        assert masks.is_in(f"<{inside.decode()}>")
    around = data.draw(fillers).encode() + inside + data.draw(fillers).encode()
    assert masked(masks, around, cuts) == masked(masks, around, [])


@pytest.mark.parametrize("place", ["http://h/x/{}/y", "http://h/?x={}&y", "http://u:{}@h/"])
def test_what_requests_make_of_a_secret_is_found(place: str) -> None:
    for secret in ("Zqse|cret{1}é7", "a'b+c=d&e", "p%41ss%2f%zz", "~!*()^@:;,$"):
        asked = str(URL(place.format(secret)))
        assert Masks([secret]).text(asked) == place.format("***")


@pytest.mark.parametrize("secret", ['pa"ss\\word-99', "'both\"", "päss", "😀\x07x"])
def test_a_secret_is_found_as_python_shows_it(secret: str) -> None:
    masks = Masks([secret])
    for before in ("", "'", '"', "'\""):
        text = f"{before}<{secret}>"
        for shown in (repr(text), ascii(text), repr(text.encode())):
            assert "<***>" in masks.text(shown), shown


@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
@pytest.mark.parametrize("secret", ["päss", "hunter2", "a~~~?>\xff??~>b", "0123456789" * 9])
def test_a_secret_inside_base64_is_found_whatever_is_around_it(
    encode: Callable[[bytes], bytes], secret: str
) -> None:
    masks = Masks([secret])
    for data in (secret.encode(), secret.encode("latin-1")):
        for before in (b"", b"u", b"u:", b"us:", b"user:"):
            assert masked(masks, encode(before + data).rstrip(b"="), [1]).endswith(b"***")
            for after in (b"", b"~", b"~h", b"~h/"):
                text = encode(before + data + after)
                # Characters that hold a bit of what is around, and are all of it that is shown.
                begin, end = -(-len(before) * 8 // 6), (len(before) + len(data)) * 8 // 6
                shown = text[:begin] + b"***" + (text[end:] if after else b"")
                for cut in range(len(text)):
                    assert masked(masks, text, [cut, cut + 2]) == shown
                assert masks.is_in(text.decode())


@pytest.mark.parametrize("encode", [bytes.hex, lambda data: data.hex().upper()])
def test_a_secret_inside_hex_is_found(encode: Callable[[bytes], str]) -> None:
    assert Masks(["hunter2"]).text(encode(b"<hunter2>")) == f"{encode(b'<')}***{encode(b'>')}"


def test_encoded_credentials_are_found_in_urls_and_json() -> None:
    secret = "ab?cd~ef"
    text = base64.b64encode(secret.encode()).decode()
    assert text == "YWI/Y2R+ZWY="
    masks = Masks([secret])
    assert masks.text(str(URL("http://h/").with_query(x=text))) == "http://h/?x=***"
    assert masks.text(json.dumps(text).replace("/", "\\/")) == '"***"'


def test_encodings_of_very_short_secrets_are_ordinary_text() -> None:
    assert Masks(["abc"]).text("616263 YWJj") == "616263 YWJj"


def test_lines_of_a_long_secret_are_secrets() -> None:
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkq\nx\n-----END KEY-----\n"
    masks = Masks([key])
    assert masks.text("> MIIEvQIBADANBgkq <") == "> *** <"
    assert masks.text("x marks the spot") == "x marks the spot"
    assert masks.text(f"key: {key.strip()}!") == "key: ***!"


def test_a_text_that_was_shortened_shows_no_beginning_of_a_secret() -> None:
    masks = Masks(["hunter2-and"])
    for length in range(1, 12):
        assert masks.text(f"said {'hunter2-and'[:length]}…") == "said ***…"
    assert masks.text("said hunter1…") == "said hunter1…"
    assert masks.text("said hunter2-") == "said hunter2-"
    assert masks.text("hunter2-andhunter2…") == "***…"


def test_without_secrets_nothing_changes() -> None:
    masks = Masks([""])
    assert not masks
    assert masks.text("anything") == "anything"
    assert masked(masks, b"any\xffthing", [2]) == b"any\xffthing"


def test_values_that_hold_a_secret_are_recognised() -> None:
    masks = Masks(["hunter2", 4711])
    assert masks.is_in("my hunter2!")
    assert masks.is_in({"deep": [{"down": "hunter2"}]})
    assert masks.is_in({"hunter2": 1})
    assert masks.is_in(4711)
    assert not masks.is_in({"deep": ["hunter3", 1, None, 2.5]})
    assert not Masks([]).is_in("anything")
