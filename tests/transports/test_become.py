"""As another user. The real sudo needs accounts and rules no test may make; a stand-in with its
manners (options, a reset environment) shows that we ask it rightly."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
from pathlib import Path

import pytest

from tenure.model.errors import NotStarted
from tenure.transports.commands import becoming, signalling
from tenure.transports.local import LocalTransport
from tests.transports.keeping import HERE, Kept, running, runs, sh

pytestmark = pytest.mark.slow

SUDO = r"""#!/bin/sh
echo "$0 $*" >> "$SUDO_LOG"
user= keep= home=
while [ $# -gt 0 ]; do
  case "$1" in
    -n) shift ;;
    -H) home=/home/them; shift ;;
    -u) user="$2"; shift 2 ;;
    --preserve-env=*) keep="${1#*=}"; shift ;;
    --) shift; break ;;
    *) echo "sudo: unknown option $1" >&2; exit 1 ;;
  esac
done
for name in $(env | sed -n 's/^\([A-Za-z_][A-Za-z0-9_]*\)=.*/\1/p'); do
  case ",$keep,PATH,SUDO_LOG," in *",$name,"*) ;; *) unset "$name" 2>/dev/null ;; esac
done
[ -n "$home" ] && export HOME="$home"
export SUDO_AS="$user"
exec "$@"
"""


@pytest.fixture
def sudo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The log of what the stand-in was asked."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "sudo").write_text(SUDO)
    (folder / "sudo").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("SUDO_LOG", str(tmp_path / "log"))
    monkeypatch.setenv("NOT_THEIRS", "x")
    return tmp_path / "log"


def test_values_are_never_arguments() -> None:
    argv = becoming("deploy", ("true",), {"A": "s3cret", "B": ""}, None)
    assert argv == ("sudo", "-n", "-H", "-u", "deploy", "--preserve-env=A,B", "--", "true")


def test_an_explicit_home_is_kept() -> None:
    argv = becoming("deploy", ("true",), {"HOME": "/srv"}, None)
    assert argv == ("sudo", "-n", "-u", "deploy", "--preserve-env=HOME", "--", "true")


def test_a_name_sudo_cannot_list_is_refused() -> None:
    with pytest.raises(NotStarted, match="'A,B'"):
        becoming("deploy", ("true",), {"A,B": "1"}, None)


def test_a_signal_by_the_other_user() -> None:
    argv = signalling("deploy", 123, signal.SIGTERM)
    assert argv[:5] == ("sudo", "-n", "-u", "deploy", "--")
    assert argv[-3:] == ("sh", "TERM", "123")


async def test_the_command_runs_as_that_user_with_its_variables(
    transport: LocalTransport, sudo: Path
) -> None:
    kept = Kept()
    script = 'echo "$SUDO_AS|$VALUE|$HOME|$NOT_THEIRS|"; exit 3'
    command = sh(script, become="deploy", env={"VALUE": "s3cret 'x'"})
    end = await transport.run(HERE, command, kept)
    assert (end.code, kept.stdout) == (3, b"deploy|s3cret 'x'|/home/them||\n")
    assert "s3cret" not in sudo.read_text()


async def test_that_user_enters_the_working_directory(
    transport: LocalTransport, sudo: Path, tmp_path: Path
) -> None:
    kept, odd = Kept(), tmp_path / "-it's odd"
    odd.mkdir()
    await transport.run(HERE, sh("pwd -P", become="deploy", cwd=str(odd)), kept)
    assert kept.stdout.decode().strip() == str(odd.resolve())
    end = await transport.run(HERE, sh("true", become="deploy", cwd="/no/such"), kept)
    assert end.code != 0
    assert b"/no/such" in kept.stderr


async def test_that_user_can_export_and_find_nothing_else(
    transport: LocalTransport, sudo: Path, temporary: Path
) -> None:
    kept = Kept()
    script = """
      stat -c %a "$TENURE_OUTPUT" "$(dirname "$TENURE_OUTPUT")"
      basename "$TENURE_OUTPUT"
      echo A=1 >> "$TENURE_OUTPUT"
    """
    end = await transport.run(HERE, sh(script, become="deploy"), kept)
    modes, name = kept.stdout.split()[:2], kept.stdout.split()[2]
    assert modes == [b"666", b"711"], "may write and pass through, not look around"
    assert len(name) == 32, "nobody guesses it"
    assert end.exported == b"A=1\n"
    [folder] = temporary.glob("tenure-*")
    assert list(folder.iterdir()) == []


async def test_an_export_file_may_be_open_to_one_task_only(
    transport: LocalTransport, sudo: Path, temporary: Path
) -> None:
    await transport.run(HERE, sh("true", become="deploy"), Kept())
    await transport.run(HERE, sh("true"), Kept())
    modes = {stat.S_IMODE(folder.stat().st_mode) for folder in temporary.glob("tenure-*")}
    assert modes == {0o700, 0o711}


@pytest.mark.parametrize("script", ["sleep 1000 &", "trap '' TERM; sleep 1000 &"])
async def test_their_processes_are_ended_by_themselves(
    transport: LocalTransport, sudo: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    """We may not signal them: what reaches them comes through sudo."""
    ours = os.killpg

    def only_look(group: int, number: int) -> None:
        if number and group == leader:
            raise PermissionError(1, "Operation not permitted")
        ours(group, number)

    kept = Kept()
    command = sh(f"{script} echo $!; echo $$; wait", become="deploy", grace=0.5)
    async with running(transport, command, kept) as task:
        family = await kept.numbers(2)
        leader = family[1]
        monkeypatch.setattr(os, "killpg", only_look)
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not any(map(runs, family))
    assert f'kill -s "$1" -- "-$2" sh TERM {leader}' in sudo.read_text()


async def test_without_sudo_the_message_names_it(
    transport: LocalTransport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotStarted, match="sudo is not installed here"):
        await transport.run(HERE, sh("true", become="deploy"), Kept())
