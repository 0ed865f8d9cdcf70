"""The supervisor's program: one thread, one loop, nothing that blocks.

``launch`` starts it with the number of its socket, its runner's process number, its token, and
whether tasks shall have groups. It ends when the runner has ended and nothing of the tasks is left.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import socket
import sys
import time

from tenure.transports.supervisor import frames
from tenure.transports.supervisor.cgroups import own_group
from tenure.transports.supervisor.channel import Channel
from tenure.transports.supervisor.enclosures import Enclosures
from tenure.transports.supervisor.export_folders import ExportFolders
from tenure.transports.supervisor.frames import Malformed, Spawn
from tenure.transports.supervisor.spawning import turn_deaf
from tenure.transports.supervisor.task_groups import TaskGroups
from tenure.transports.supervisor.wardship import Wardship

_SET_PDEATHSIG, _SET_NAME, _SET_CHILD_SUBREAPER = 1, 15, 36
_NAME = b"tenure-superv"
_LONGEST_SLEEP = 3600.0
_MOST_FAILURES = 100
"""Then it gives up; a runner that lives ends what is left by the marks."""


def main() -> None:
    fd, runner, token, task_groups = map(int, sys.argv[2:6])
    os.chdir("/")
    hear = turn_deaf()
    connection = socket.socket(fileno=fd)
    connection.set_inheritable(False)
    channel = Channel(connection)
    try:
        adopt_orphans()
        supervisor = Supervisor(channel, runner, token, hear, task_groups=bool(task_groups))
    except OSError as error:
        channel.send(frames.frame(frames.FAILED, body=str(error).encode()))
        channel.flush()
        return
    supervisor.serve()


def adopt_orphans() -> None:
    """Become a subreaper, under a name that ``ps`` shows, and one that goes on when its runner ends
    even if somebody has stopped it: else nobody would be left to end its tasks."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_SET_PDEATHSIG, int(signal.SIGCONT), 0, 0, 0)
    libc.prctl(_SET_NAME, _NAME, 0, 0, 0)
    if libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"cannot become a subreaper: {os.strerror(number)}")


class Supervisor:
    def __init__(
        self,
        channel: Channel,
        runner: int,
        token: int,
        hear: list[signal.Signals],
        *,
        task_groups: bool,
    ) -> None:
        self._channel = channel
        self._runner = runner
        self._fd = channel.fileno()
        self._runner_ended = os.pidfd_open(runner)
        self._child_ended = _wake_on_child()
        self._poll = select.poll()
        self._poll.register(self._runner_ended, select.POLLIN)
        self._poll.register(self._child_ended, select.POLLIN)
        self._poll.register(self._fd, select.POLLIN)
        self._alone = False
        self._exports = ExportFolders()
        home = own_group()
        self._groups = TaskGroups(home if task_groups else None)
        self._enclosures = Enclosures(home)
        self._wards = Wardship(channel.send, token, self._groups, self._enclosures, hear)
        channel.send(frames.frame(frames.READY))

    def serve(self) -> None:
        failures = 0
        while not (self._alone and self._wards.empty) and failures < _MOST_FAILURES:
            try:
                self._turn()
            except Exception as error:  # noqa: BLE001  whatever it is, no task may be left behind
                failures += 1
                self._report(error)
                self._go_on_alone()
        self._exports.clear()
        self._enclosures.close()
        self._groups.close()

    def _turn(self) -> None:
        self._channel.flush()
        self._wards.tidy()
        ready = self._wait()
        if self._child_ended in ready:
            os.read(self._child_ended, 4096)
        if self._fd in ready and not self._alone:
            self._listen()
        # Any of the three is enough: the connection may be held open by a fork of the runner.
        gone = self._runner_ended in ready or os.getppid() != self._runner
        if gone or not self._channel.open:
            self._go_on_alone()
        now = time.monotonic()
        self._wards.reap()
        self._wards.check_trust(now, _boot_time())
        self._wards.pursue(now)

    def _wait(self) -> set[int]:
        if self._channel.open:
            wanted = select.POLLIN | (select.POLLOUT if self._channel.wants_to_send else 0)
            self._poll.register(self._fd, wanted)
        pause = self._wards.until_next_look(time.monotonic(), _boot_time())
        return {fd for fd, _ in self._poll.poll(min(pause, _LONGEST_SLEEP) * 1000)}

    def _go_on_alone(self) -> None:
        """The runner is gone, or does not make sense any more."""
        if self._alone:
            return
        self._alone = True
        self._poll.unregister(self._runner_ended)
        self._poll.unregister(self._fd)
        self._channel.close()
        self._wards.end_all(time.monotonic())
        self._exports.clear()

    def _listen(self) -> None:
        for kind, task, body in self._channel.receive():
            now = time.monotonic()
            if kind == frames.SPAWN:
                self._spawn(task, Spawn.decode(body))
            elif kind == frames.END:
                self._wards.end(task, frames.read_end(body), now)
            elif kind == frames.END_GROUP:
                self._wards.end(task, 0.0, now, only_group=True)
            elif kind == frames.RELEASE:
                self._wards.release(task)
            elif kind == frames.TRUST:
                self._wards.trust(*frames.read_trust(body))
            else:
                raise Malformed(f"a frame of kind {kind}")

    def _spawn(self, task: int, order: Spawn) -> None:
        fds = self._channel.take_fds(3 if order.feed else 2)
        try:
            if os.getppid() == self._runner:  # what a dead runner asked for comes too late
                self._exports.note(order.env)
                self._wards.spawn(task, order, fds, _boot_time())
        finally:
            for fd in fds:
                os.close(fd)

    def _report(self, error: Exception) -> None:
        import traceback

        text = "".join(traceback.format_exception(error))
        self._channel.send(frames.frame(frames.FAILED, body=text.encode()[-frames.MOST_ANSWERED :]))
        self._channel.flush()


def _wake_on_child() -> int:
    """A descriptor that becomes readable when a child has ended."""
    readable, writable = os.pipe()
    os.set_blocking(readable, False)
    os.set_blocking(writable, False)
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, where: None)
    return readable


def _boot_time() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
