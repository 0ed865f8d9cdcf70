"""What the runner says arrives in order, with its descriptors, however slowly it is taken."""

from __future__ import annotations

import array
import asyncio
import errno
import os
import socket
import threading
from collections.abc import Iterator

import pytest

from tenure.transports.streams import Ends
from tenure.transports.supervisor.client import Sender

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    yield ours, theirs
    ours.close()
    theirs.close()


def files(count: int) -> list[int]:
    return [os.open("/dev/null", os.O_RDONLY) for _ in range(count)]


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


async def received(theirs: socket.socket, size: int, most: int = 1 << 16) -> tuple[bytes, int]:
    """Exactly so many bytes, and how many descriptors came with them."""
    data, descriptors = b"", 0
    async with asyncio.timeout(20):
        while len(data) < size:
            try:
                part, beside, _, _ = theirs.recvmsg(most, socket.CMSG_SPACE(64))
            except BlockingIOError:
                await asyncio.sleep(0)
                continue
            data += part
            for _, _, packed in beside:
                fds = array.array("i")
                fds.frombytes(packed)
                descriptors += len(fds)
                for fd in fds:
                    os.close(fd)
    return data, descriptors


async def test_what_is_posted_goes_before_what_is_sent_later(pair: Pair) -> None:
    ours, theirs = pair
    sender, out, err = Sender(asyncio.get_running_loop(), ours), *files(2)
    sender.post(b"one")
    sender.post(b"two")
    assert sender.send(b"three", Ends(None, out, err))
    assert await received(theirs, 11) == (b"onetwothree", 2)
    assert not is_open(out)
    assert not is_open(err)


async def test_what_is_posted_does_not_wait_for_more(pair: Pair) -> None:
    ours, theirs = pair
    Sender(asyncio.get_running_loop(), ours).post(b"alone")
    assert await received(theirs, 5) == (b"alone", 0)


async def test_descriptors_are_sent_once_however_their_frame_is_cut(pair: Pair) -> None:
    ours, theirs = pair
    sender = Sender(asyncio.get_running_loop(), ours)
    frames = [bytes([number]) * 300_000 for number in range(5)]
    for frame in frames:
        sender.post(b"-" * 1000)
        out, err, into = files(3)
        sender.send(frame, Ends(into, out, err))
    data, descriptors = await received(theirs, 5 * 301_000, most=10_000)
    assert data == b"".join(b"-" * 1000 + frame for frame in frames)
    assert descriptors == 15


async def test_nobody_there(pair: Pair) -> None:
    ours, theirs = pair
    sender, fds = Sender(asyncio.get_running_loop(), ours), files(2)
    theirs.close()
    assert not sender.send(b"hello", Ends(None, *fds))
    assert not any(map(is_open, fds))
    assert not sender.connected


async def test_what_still_waits_when_it_is_closed_is_let_go(pair: Pair) -> None:
    ours, _ = pair
    sender, fds = Sender(asyncio.get_running_loop(), ours), files(2)
    assert sender.send(b"x" * (8 << 20))
    assert sender.send(b"behind", Ends(None, *fds))
    await asyncio.sleep(0)
    sender.close()
    assert not any(map(is_open, fds))
    assert not sender.send(b"later", Ends(None, *files(2)))


async def test_too_many_descriptors_on_their_way_are_sent_a_little_later(pair: Pair) -> None:
    ours, theirs = pair

    class Crowded(socket.socket):
        refused = 0

        def sendmsg(self, *arguments: object) -> int:
            if self.refused < 3:
                self.refused += 1
                raise OSError(errno.ETOOMANYREFS, os.strerror(errno.ETOOMANYREFS))
            return super().sendmsg(*arguments)  # type: ignore[arg-type]

    crowded = Crowded(fileno=os.dup(ours.fileno()))
    sender = Sender(asyncio.get_running_loop(), crowded)
    assert sender.send(b"hello", Ends(None, *files(2)))
    assert await received(theirs, 5) == (b"hello", 2)
    crowded.close()


async def test_from_many_threads_nothing_is_mixed(pair: Pair) -> None:
    ours, theirs = pair
    sender = Sender(asyncio.get_running_loop(), ours)

    def say(letter: int) -> None:
        for _ in range(100):
            sender.send(bytes([letter]) * 1000)

    threads = [threading.Thread(target=say, args=(65 + number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    data, _ = await received(theirs, 400_000)
    for thread in threads:
        thread.join()
    pieces = [data[at : at + 1000] for at in range(0, len(data), 1000)]
    assert all(len(set(piece)) == 1 for piece in pieces)
    assert {piece[0]: pieces.count(piece) for piece in pieces} == dict.fromkeys(range(65, 69), 100)
