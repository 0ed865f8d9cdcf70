"""The supervisor's program: one thread, one loop, nothing that blocks.

``client.launch`` starts it with the number of its socket, its runner's process number, its token,
and whether tasks shall have groups. It ends when the runner has ended and nothing of the tasks is
left.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import inf
from signal import SIGKILL, SIGTERM, Signals

from tenure.transports.scratch import remove_if_abandoned
from tenure.transports.supervisor import processes, protocol, tree
from tenure.transports.supervisor.cgroups import Enclosures, TaskGroups, own_group
from tenure.transports.supervisor.processes import Orders, Process, Termination
from tenure.transports.supervisor.protocol import TO_ENTER, TO_EXECUTE, Channel, Malformed, Spawn
from tenure.transports.supervisor.tree import Lineage, Seen, Task, value_in

# Starting a task's leader: quickly (posix_spawn shares memory until the program is there, so the
# size of this process does not matter), in a session of its own.

TYPE_CHECKING = False  # as in tenure: a supervisor has no use for typing
if TYPE_CHECKING:
    from typing import NoReturn

_IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
"""Signals that reach all processes of a service or at a terminal. The supervisor's part comes after
its runner's end, so they do not mean the supervisor."""


class CannotStart(Exception):
    def __init__(self, number: int, what: int) -> None:
        super().__init__(number, what)
        self.number = number
        self.what = what


def ignore_signals() -> list[signal.Signals]:
    """The signals a task must hear again: those this process ignores and its runner did not."""
    unheard = [number for number in _IGNORED if signal.getsignal(number) is not signal.SIG_IGN]
    for number in unheard:
        signal.signal(number, signal.SIG_IGN)
    return [*unheard, signal.SIGPIPE, signal.SIGXFSZ]  # Python ignores the last two


def start_leader(order: Spawn, fds: Sequence[int], hear: Sequence[signal.Signals]) -> int:
    """The number of the new process. ``fds``: its stdout, stderr and, if it is fed, stdin."""
    if order.ids:
        return _execute_as(order, fds, hear)
    try:
        os.chdir(order.cwd)
    except OSError as error:
        raise CannotStart(error.errno or 0, TO_ENTER) from None
    try:
        return _execute(order, fds, hear)
    finally:
        os.chdir("/")


def _execute(order: Spawn, fds: Sequence[int], hear: Sequence[signal.Signals]) -> int:
    actions = [(os.POSIX_SPAWN_DUP2, fd, place) for fd, place in zip(fds, (1, 2, 0), strict=False)]
    number = errno.ENOENT
    for path in _candidates(order):
        try:
            return os.posix_spawn(
                path, order.argv, order.env, file_actions=actions, setsid=True, setsigdef=hear
            )
        except ValueError:  # a variable's name that Python does not pass on
            number = errno.EINVAL
        except OSError as error:
            # As a shell looks on: the first that is there and cannot be executed says why.
            if error.errno not in (errno.ENOENT, errno.ENOTDIR) and number == errno.ENOENT:
                number = error.errno or 0
    raise CannotStart(number, TO_EXECUTE)


def _execute_as(order: Spawn, fds: Sequence[int], hear: Sequence[signal.Signals]) -> int:
    """For another user: what it may not enter or execute is refused, though root might."""
    readable, writable = os.pipe2(os.O_CLOEXEC)
    try:
        pid = os.fork()
        if not pid:
            _become(order, fds, hear, writable)
        os.close(writable)
        writable = -1
        refused = os.read(readable, 64).split()
    finally:
        os.close(readable)
        if writable >= 0:
            os.close(writable)
    if not refused:
        return pid
    os.waitpid(pid, 0)
    raise CannotStart(int(refused[0]), int(refused[1]))


def _become(
    order: Spawn, fds: Sequence[int], hear: Sequence[signal.Signals], refusal: int
) -> NoReturn:
    """In the new process; does not come back."""
    what, number = TO_EXECUTE, errno.ENOENT
    try:
        os.setsid()
        for fd, place in zip(fds, (1, 2, 0), strict=False):
            os.dup2(fd, place)
        for each in hear:
            signal.signal(each, signal.SIG_DFL)
        uid, gid, *groups = map(int, order.ids.split())
        os.setgroups(groups)
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
        what = TO_ENTER
        os.chdir(order.cwd)
        what = TO_EXECUTE
        for path in _candidates(order):
            try:
                os.execve(path, order.argv, order.env)  # noqa: S606 - what the task asks for
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ENOTDIR) and number == errno.ENOENT:
                    number = error.errno or 0
    except OSError as error:
        number = error.errno or 0
    except BaseException:  # noqa: BLE001 - two processes must not go on with one program
        number = errno.EINVAL
    finally:
        os.write(refusal, b"%d %d" % (number, what))
        os._exit(127)


def _candidates(order: Spawn) -> list[bytes]:
    """Where the program may be, by the task's own ``PATH``. Only what is there: each try costs as
    much as a start."""
    program = order.argv[0]
    if b"/" in program:
        return [program]
    folders = order.env.get(b"PATH", os.fsencode(os.defpath)).split(b":")
    paths = [os.path.join(folder, program) for folder in folders]
    return [path for path in paths if os.access(path, os.F_OK)]


# Files of exports, removed at once when the runner was killed: nothing can use them, and they may
# hold a secret.


class ExportFolders:
    """Those of one runner, as its tasks' environments name them: rarely more than two."""

    def __init__(self) -> None:
        self._seen: set[bytes] = set()

    def note(self, environment: Mapping[bytes, bytes]) -> None:
        path = value_in(environment)
        if path:
            self._seen.add(os.path.dirname(path))

    def clear(self) -> None:
        """A runner that lives holds on to its folder, and keeps it. Tasks that are still being
        ended may write once more: call it again when they are gone."""
        for folder in self._seen:
            with suppress(OSError):
                remove_if_abandoned(os.fsdecode(folder))


# The tasks of one supervisor, from SPAWN to RELEASE. The package's head tells their states.

_A_WHILE_S, _A_MOMENT_S = 0.1, 0.01
_TRUST_LOOK_S = 1.0
"""Seconds at most between two looks at the boot clock: a sleeping machine stops the other one."""


class TaskTable:
    """``tell`` sends a frame to the runner. Times are passed in: ``now`` in seconds of the
    monotonic clock, ``boot`` in nanoseconds of the boot clock."""

    def __init__(
        self,
        tell: Callable[[bytes], None],
        token: int,
        groups: TaskGroups,
        enclosures: Enclosures,
        hear: Sequence[Signals] = (),
    ) -> None:
        self._tell = tell
        self._groups = groups
        self._enclosures = enclosures
        self._hear = hear
        self._tasks: dict[int, Task] = {}
        self._by_leader: dict[int, Task] = {}
        self._lineage = Lineage(token, groups, self._tasks, self._by_leader)
        self._dying: dict[int, Termination] = {}
        self._newest = 0
        self._just_started = self._untidy = False
        self._distrust_at: float = inf
        """No task has to be distrusted before this moment of the boot clock."""
        self._alone = False

    @property
    def empty(self) -> bool:
        return not self._tasks

    # What the runner asks for.

    def spawn(self, number: int, order: Spawn, fds: Sequence[int], boot: int) -> None:
        if order.until and boot >= order.until:
            self._tell(
                protocol.frame(protocol.REFUSED, number, protocol.refusal(0, protocol.TO_TRUST))
            )
            return
        value = tree.value_in(order.env)
        self._newest, self._just_started = number, True
        self._lineage.mark(number, value)
        self._groups.enter(number)
        try:
            leader = start_leader(order, fds, self._hear)
        except CannotStart as refused:
            self._lineage.forget(number, value)
            self._groups.release(number)
            body = protocol.refusal(refused.number, refused.what)
            self._tell(protocol.frame(protocol.REFUSED, number, body))
            return
        finally:
            self._groups.leave()
            self._lineage.mark_no_more()
        task = self._tasks[number] = self._by_leader[leader] = Task(number, leader, order, boot)
        self._heed(task)

    def end(self, number: int, grace: float, now: float, *, only_group: bool = False) -> None:
        task = self._tasks.get(number)
        if task is not None:
            self._tell(protocol.frame(protocol.LEADER, number, protocol.number(task.leader)))
            self._doom(task, grace, now, only_group=only_group)

    def end_all(self, now: float) -> None:
        """The runner is gone: what it did not release ends, and no answer is waited for."""
        self._alone = True
        for task in list(self._tasks.values()):
            task.released = True
            self._doom(task, task.grace, now)

    def release(self, number: int) -> None:
        task = self._tasks.get(number)
        if task is None:
            return
        task.released = True
        if number not in self._dying:
            self._forget(task)

    def trust(self, run: bytes, until: int, late_grace: float) -> None:
        for task in self._tasks.values():
            if task.run == run:
                task.until = until
                task.late_grace = late_grace
                self._heed(task)

    # What happens by itself.

    def reap(self) -> None:
        """All that ended: leaders, and orphans that came to us."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            task = self._by_leader.pop(pid, None)
            if task is None:
                self._lineage.reaped(pid)
                self._groups.look_again()
                continue
            task.status = status
            self._tell(protocol.frame(protocol.EXITED, task.number, protocol.number(status)))
            if task.number in self._dying:
                self._dying[task.number].look_at = 0.0

    def tidy(self) -> None:
        """What can be done while no answer is waited for: in a turn that started nothing, since
        a new task wants the processors for itself first. What is left to do then is a reason for
        another turn."""
        self._untidy = self._just_started and self._groups.possible
        self._just_started = False
        if not self._untidy:
            self._groups.tidy(self._newest + 1)
            self._untidy = self._groups.untidy

    def check_trust(self, now: float, boot: int) -> None:
        if boot < self._distrust_at:
            return
        self._distrust_at = inf
        for task in list(self._tasks.values()):
            if task.until and boot >= task.until and not task.untrusted:
                task.untrusted = True
                self._tell(protocol.frame(protocol.UNTRUSTED, task.number))
                self._doom(task, min(task.grace, task.late_grace), now)
            self._heed(task)

    def pursue(self, now: float) -> None:
        """Look at what is being ended, if it is time, and do what comes next."""
        due = [number for number, termination in self._dying.items() if now >= termination.look_at]
        if not due:
            return
        try:
            whole = {
                number for number, termination in self._dying.items() if not termination.only_group
            }
            unheard = {each for each in whole if self._alone or self._tasks[each].untrusted}
            for number in whole:
                if now >= self._dying[number].kill_at:
                    self._groups.freeze(number)  # what stands still can be counted
            seen = self._lineage.look(whole, unheard)
            for number in due:
                self._advance(self._tasks[number], seen, now)
            killing = {each for each in whole & self._dying.keys() if self._dying[each].killing}
            if killing:
                self._lineage.catch(killing, unheard, self.reap)
        except OSError:  # nothing left to look with
            for termination in self._dying.values():
                termination.look_at = max(termination.look_at, now + _A_WHILE_S)

    def until_next_look(self, now: float, boot: int) -> float:
        """Seconds until something has to be looked at whatever happens."""
        looks = [termination.look_at - now for termination in self._dying.values()]
        if self._distrust_at < inf:
            looks.append(min(_TRUST_LOOK_S, (self._distrust_at - boot) / 1e9))
        if self._untidy:
            looks.append(_A_MOMENT_S)
        return max(0.0, min(looks, default=inf))

    def _heed(self, task: Task) -> None:
        if task.until and not task.untrusted:
            self._distrust_at = min(self._distrust_at, task.until)

    def _doom(self, task: Task, grace: float, now: float, *, only_group: bool = False) -> None:
        termination = self._dying.get(task.number)
        if termination is None:
            self._dying[task.number] = Termination(now, grace, only_group=only_group)
            return
        termination.hasten(now, grace)
        if not only_group:
            termination.widen()

    def _advance(self, task: Task, seen: Seen, now: float) -> None:
        termination = self._dying[task.number]
        inside = set(self._groups.inside(task.number, seen.present))
        family = self._family(task, seen, inside)
        doubts = seen.doubts.get(task.number, [])
        hidden = _hidden(task) or task.number in seen.unseen or self._groups.inhabited(task.number)
        if termination.only_group:
            family = [process for process in family if process.group == task.leader]
            doubts, hidden = [], _hidden(task)
        frozen = not termination.only_group and now >= termination.kill_at
        self._carry_out(task, termination.step(now, family), inside if frozen else None)
        gone = termination.over(now, family, hidden=hidden, doubtful=bool(doubts))
        if gone is None:
            return
        if gone:
            body = protocol.number(termination.signalled)
            self._tell(protocol.frame(protocol.GONE, task.number, body))
        else:
            left = [process.pid for process in (*family, *doubts) if process.alive]
            body = protocol.numbers(left[:1000] or [task.leader])
            self._tell(protocol.frame(protocol.LEFT, task.number, body))
        if not termination.only_group:
            task.gone = gone
            if not gone:
                self._lineage.condemn(task)
        del self._dying[task.number]
        self._enclosures.open(task.number)
        self._groups.thaw(task.number)
        if task.released:
            self._forget(task)

    def _family(self, task: Task, seen: Seen, inside: set[int]) -> list[Process]:
        family = seen.families.get(task.number, [])
        more = inside.union(self._enclosures.inside(task.number))
        more.difference_update(process.pid for process in family)
        return family + [seen.present[pid] for pid in more if pid in seen.present]

    def _carry_out(self, task: Task, orders: Orders, held: set[int] | None) -> None:
        """``held``: those in the group of the task, if that is frozen."""
        killed = [process.pid for process, number in orders if number == SIGKILL]
        at_large = self._at_large(task, killed, held)
        self._kill_enclosed(task, at_large)
        warned: set[int] = set()
        refused: list[int] = []
        for process, number in orders:
            if number == SIGTERM:
                if process.group not in warned:
                    warned.add(process.group)
                    processes.send_to_group(process, number)
            elif not processes.send(process, number):
                refused.append(process.pid)
        if killed:
            self._kill_enclosed(task, [pid for pid in refused if pid not in at_large])

    def _at_large(self, task: Task, pids: list[int], held: set[int] | None) -> list[int]:
        if held is None:
            return pids
        # What died since the look is not listed any more, but still tells where it was.
        return [pid for pid in pids if pid not in held and self._groups.whose(pid) != task.number]

    def _kill_enclosed(self, task: Task, pids: list[int]) -> None:
        if pids:
            self._enclosures.enclose(task.number, pids)
            self._enclosures.kill(task.number)

    def _forget(self, task: Task) -> None:
        self._lineage.release(task)
        self._groups.release(task.number)
        del self._tasks[task.number]
        if self._by_leader.get(task.leader) is task:
            del self._by_leader[task.leader]


def _hidden(task: Task) -> bool:
    """Whether something of it is there although ``/proc`` may not show it to us: a leader not
    reaped, or another user's processes in its group."""
    if task.status is None:
        return True
    try:
        os.killpg(task.leader, 0)
    except PermissionError:
        return True
    except ProcessLookupError:
        return False
    return False


# The loop.

_SET_PDEATHSIG, _SET_DUMPABLE, _SET_NAME, _SET_CHILD_SUBREAPER = 1, 4, 15, 36
_NAME = b"tenure-superv"
_LONGEST_SLEEP_S = 3600.0
_MOST_FAILURES = 100
"""Then it gives up; a runner that lives ends what is left by the marks."""


def main() -> None:
    fd, runner, token, task_groups = map(int, sys.argv[2:6])
    os.chdir("/")
    hear = ignore_signals()
    connection = socket.socket(fileno=fd)
    connection.set_inheritable(False)
    channel = Channel(connection)
    try:
        adopt_orphans()
        supervisor = Supervisor(channel, runner, token, hear, task_groups=bool(task_groups))
    except OSError as error:
        channel.send(protocol.frame(protocol.FAILED, body=str(error).encode()))
        channel.flush()
        return
    supervisor.serve()


def adopt_orphans() -> None:
    """Become a subreaper, under a name that ``ps`` shows, and one that goes on when its runner ends
    even if it was stopped: else nothing would be left to end its tasks. What it was asked to start
    holds secrets of other tasks: its memory is not for its user's processes to read."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_SET_DUMPABLE, 0, 0, 0, 0)
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
        self._table = TaskTable(channel.send, token, self._groups, self._enclosures, hear)
        channel.send(protocol.frame(protocol.READY))

    def serve(self) -> None:
        failures = 0
        while not (self._alone and self._table.empty) and failures < _MOST_FAILURES:
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
        self._table.tidy()
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
        self._table.reap()
        self._table.check_trust(now, _boot_time())
        self._table.pursue(now)

    def _wait(self) -> set[int]:
        if self._channel.open:
            wanted = select.POLLIN | (select.POLLOUT if self._channel.wants_to_send else 0)
            self._poll.register(self._fd, wanted)
        pause = self._table.until_next_look(time.monotonic(), _boot_time())
        return {fd for fd, _ in self._poll.poll(min(pause, _LONGEST_SLEEP_S) * 1000)}

    def _go_on_alone(self) -> None:
        """The runner is gone, or does not make sense any more."""
        if self._alone:
            return
        self._alone = True
        self._poll.unregister(self._runner_ended)
        self._poll.unregister(self._fd)
        self._channel.close()
        self._table.end_all(time.monotonic())
        self._exports.clear()

    def _listen(self) -> None:
        for kind, task, body in self._channel.receive():
            now = time.monotonic()
            if kind == protocol.SPAWN:
                self._spawn(task, Spawn.decode(body))
            elif kind == protocol.END:
                self._table.end(task, protocol.read_end(body), now)
            elif kind == protocol.END_GROUP:
                self._table.end(task, 0.0, now, only_group=True)
            elif kind == protocol.RELEASE:
                self._table.release(task)
            elif kind == protocol.TRUST:
                self._table.trust(*protocol.read_trust(body))
            else:
                raise Malformed(f"a frame of kind {kind}")

    def _spawn(self, task: int, order: Spawn) -> None:
        fds = self._channel.take_fds(3 if order.feed else 2)
        try:
            if os.getppid() == self._runner:  # what a dead runner asked for comes too late
                self._exports.note(order.env)
                self._table.spawn(task, order, fds, _boot_time())
        finally:
            for fd in fds:
                os.close(fd)

    def _report(self, error: Exception) -> None:
        import traceback

        text = "".join(traceback.format_exception(error))
        self._channel.send(
            protocol.frame(protocol.FAILED, body=text.encode()[-protocol.MOST_ANSWERED :])
        )
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
