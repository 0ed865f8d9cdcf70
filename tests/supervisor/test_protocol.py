"""What runner and supervisor say to each other survives any cut, and nonsense is seen as such."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.transports.supervisor import protocol
from tenure.transports.supervisor.protocol import Malformed, Spawn, Splitter

texts = st.binary().map(lambda data: data.replace(b"\0", b"."))
names = texts.map(lambda data: data.replace(b"=", b".") or b"A")
seconds = st.floats(min_value=0, allow_nan=False)
orders = st.builds(
    Spawn,
    argv=st.lists(texts, min_size=1).map(lambda parts: [b"x" + parts[0], *parts[1:]]),
    env=st.dictionaries(names, texts),
    cwd=texts.map(lambda data: b"/" + data),
    feed=st.booleans(),
    grace=seconds,
    run=texts,
    until=st.integers(0, 2**64 - 1),
    late_grace=seconds,
)
said = st.tuples(st.integers(0, 255), st.integers(0, 2**64 - 1), st.binary(max_size=500))


def facts(order: Spawn) -> dict[str, Any]:
    return {name: getattr(order, name) for name in Spawn.__slots__}


@given(orders)
def test_an_order_arrives_as_it_was_given(order: Spawn) -> None:
    assert facts(Spawn.decode(order.encode())) == facts(order)


@given(st.lists(said), st.lists(st.integers(0, 3000)))
def test_frames_come_out_whole_wherever_they_were_cut(
    sent: list[tuple[int, int, bytes]], cuts: list[int]
) -> None:
    data = b"".join(protocol.frame(*each) for each in sent)
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    splitter = Splitter(1000)
    came = [each for start, end in pairwise(places) for each in splitter.split(data[start:end])]
    assert came == sent


@given(st.binary(max_size=200))
def test_any_bytes_are_an_order_or_malformed(body: bytes) -> None:
    try:
        order = Spawn.decode(body)
    except Malformed:
        return
    assert facts(Spawn.decode(order.encode())) == facts(order)


@given(st.binary(max_size=40))
def test_any_bytes_are_an_answer_or_malformed(body: bytes) -> None:
    for read in (
        protocol.read_end,
        protocol.read_trust,
        protocol.read_refusal,
        protocol.read_number,
        protocol.read_numbers,
    ):
        try:
            read(body)
        except Malformed:
            continue


def test_more_than_was_agreed_is_not_waited_for() -> None:
    splitter = Splitter(1000)
    assert splitter.split(protocol.frame(protocol.LEFT, 1, b"x" * 1000)) != []
    with pytest.raises(Malformed, match="1001 bytes"):
        splitter.split(protocol.frame(protocol.LEFT, 1, b"x" * 1001)[:20])


@pytest.mark.parametrize("grace", [-1.0, float("nan")])
def test_an_impossible_grace(grace: float) -> None:
    with pytest.raises(Malformed):
        protocol.read_end(protocol.end(grace))
    with pytest.raises(Malformed):
        protocol.read_trust(protocol.trust(b"run", 1, grace))


def test_numbers_and_runs_there_and_back() -> None:
    assert protocol.read_numbers(protocol.numbers([1, 32768, 4194304])) == [1, 32768, 4194304]
    assert protocol.read_number(protocol.number(-9)) == -9
    assert protocol.read_refusal(protocol.refusal(13, protocol.TO_ENTER)) == (13, protocol.TO_ENTER)
    assert protocol.read_trust(protocol.trust(b"run-1", 2**63, 2.5)) == (b"run-1", 2**63, 2.5)
