"""Files put on a host, by real shells: whole or not at all, and only if something is to change."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tenure.actions import files, new_registry
from tenure.model.errors import HostUnreachable, InvalidArguments, StillRunning, TransportError
from tenure.model.status import HostStatus
from tenure.ports.execution import (
    CheckResult,
    Command,
    Endpoint,
    Exit,
    Output,
    TaskResult,
    Transport,
)
from tenure.transports.commands import Starter
from tenure.transports.routing import UnreachableTransport
from tests.actions.carriers import (
    Altered,
    Change,
    as_it_is,
    by_nobody,
    by_shell,
    cut_off,
    instead_of,
    with_tools,
)
from tests.actions.making import new_task
from tests.transports.keeping import STARTERS, Kept, runs

pytestmark = pytest.mark.slow

NewTransport = Callable[..., Altered]
TOOLS = "cat mv chmod cksum mkdir rm"
HOSTILE = [
    "plain",
    "with space",
    "a'b\"c",
    "$(touch pwned)",
    "`touch pwned`",
    "-rf",
    "--help",
    "new\nline",
    "trailing\n",
    "*",
    "ünï→",
    "\udcff",
    "a;b&c|d>e",
    "\\n",
    "~",
]


@pytest.fixture
async def new_transport() -> AsyncIterator[NewTransport]:
    made: list[Altered] = []

    def make(change: Change, starter: Starter | None = None) -> Altered:
        made.append(Altered(change, starter))
        return made[-1]

    yield make
    for transport in made:
        await transport.close()


@pytest.fixture
def host(new_transport: NewTransport) -> Altered:
    return new_transport(as_it_is)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder to put files in; the host's shell is there too."""
    place = tmp_path / "place"
    place.mkdir()
    monkeypatch.chdir(place)
    before = os.umask(0o027)
    yield place
    os.umask(before)


async def copy(
    transport: Transport, dest: object, content: str = "new\n", **more: Any
) -> TaskResult:
    folder = more.pop("folder", None)
    task = new_task("file.copy", {"content": content, "dest": str(dest), **more}, folder=folder)
    return await new_registry()["file.copy"].apply(task, transport, Kept())


async def check(
    transport: Transport, dest: object, content: str = "new\n", **more: Any
) -> CheckResult:
    task = new_task("file.copy", {"content": content, "dest": str(dest), **more})
    return await new_registry()["file.copy"].check(task, transport)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# -- what is written ------------------------------------------------------------------------------


async def test_a_new_file(host: Altered, place: Path) -> None:
    kept = Kept()
    task = new_task("file.copy", {"content": "a\nb", "dest": f"{place}/x/y/motd"})
    assert await new_registry()["file.copy"].apply(task, host, kept) == TaskResult(changed=True)
    assert (place / "x/y/motd").read_text() == "a\nb"
    assert mode(place / "x/y/motd") == 0o640
    assert kept.stdout.decode() == f"wrote {place}/x/y/motd, 3 bytes\n"
    assert names(place / "x/y") == ["motd"]


@pytest.mark.parametrize("name", HOSTILE)
async def test_no_name_and_no_content_is_ever_read_as_code(
    name: str, host: Altered, place: Path
) -> None:
    for dest in (name, f"{place}/{name}", f"{place}/{name}.d/{name}"):
        if dest == "~":
            continue  # refused: see below
        assert (await copy(host, dest, name)).changed is True
        assert (await copy(host, dest, name, mode="0600")).changed is True
        assert (await copy(host, dest, name, mode="0600")).changed is False
        written = Path(dest)
        assert written.read_bytes() == name.encode(errors="surrogateescape")
        assert mode(written) == 0o600
        written.unlink()
    assert names(place) == [f"{name}.d"]


@pytest.mark.parametrize("size", [0, 1, 65536, 65537, 3_000_000])
async def test_any_bytes_of_any_length(size: int, host: Altered, tmp_path: Path) -> None:
    data = (bytes(range(256)) * (size // 256 + 1))[:size]
    (tmp_path / "blob").write_bytes(data)
    task = new_task("file.copy", {"src": "blob", "dest": "out"}, folder=str(tmp_path))
    action = new_registry()["file.copy"]
    assert (await action.apply(task, host, Kept())).changed is True
    assert Path("out").read_bytes() == data
    assert (await action.apply(task, host, Kept())).changed is False


async def test_a_file_that_is_as_wanted_is_not_touched(host: Altered, place: Path) -> None:
    motd = place / "motd"
    motd.write_text("new\n")
    motd.chmod(0o644)
    os.utime(motd, (1, 1))
    os.utime(place, (1, 1))
    before = motd.stat().st_ino
    assert await copy(host, motd) == TaskResult(changed=False)
    assert await copy(host, motd, mode="0644") == TaskResult(changed=False)
    assert (await check(host, motd, mode="0644")).changed is False
    assert (motd.stat().st_ino, motd.stat().st_mtime, place.stat().st_mtime) == (before, 1, 1)


async def test_another_mode_does_not_write_the_file_again(host: Altered, place: Path) -> None:
    motd = place / "motd"
    motd.write_text("new\n")
    motd.chmod(0o600)
    os.utime(motd, (1, 1))
    assert (await copy(host, motd, mode="4755")).changed is True
    assert (mode(motd), motd.stat().st_mtime) == (0o4755, 1)


@pytest.mark.parametrize("bits", [0o600, 0o644, 0o755, 0o400, 0o2750, 0o1777, 0o4711])
async def test_a_file_keeps_its_mode_unless_another_is_wanted(
    bits: int, host: Altered, place: Path
) -> None:
    motd = place / "motd"
    motd.write_text("old")
    motd.chmod(bits)
    assert (await copy(host, motd)).changed is True
    assert (motd.read_text(), mode(motd)) == ("new\n", bits)
    assert (await copy(host, motd, "newer", mode="0640")).changed is True
    assert (motd.read_text(), mode(motd)) == ("newer", 0o640)


async def test_a_file_keeps_its_owner(host: Altered, place: Path) -> None:
    motd = place / "motd"
    motd.write_text("old")
    if os.getuid() == 0:
        os.chown(motd, 65534, 65533)
    owner = motd.stat().st_uid, motd.stat().st_gid
    assert (await copy(host, motd)).changed is True
    assert (motd.stat().st_uid, motd.stat().st_gid) == owner


# -- where it is put ------------------------------------------------------------------------------


@pytest.mark.parametrize("dest", ["into", "into/", "into//", "new/", "into/link"])
async def test_a_directory_takes_a_file_under_its_own_name(
    dest: str, host: Altered, tmp_path: Path, place: Path
) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "-site.conf").write_text("new\n")
    (place / "into").mkdir()
    (place / "into" / "link").symlink_to(place / "elsewhere")
    (place / "elsewhere").mkdir()
    args = {"src": "files/-site.conf", "dest": dest}
    task = new_task("file.copy", args, folder=str(tmp_path))
    kept = Kept()
    foreseen = await new_registry()["file.copy"].check(task, host)
    assert (await new_registry()["file.copy"].apply(task, host, kept)).changed is True
    assert Path(dest, "-site.conf").read_text() == "new\n"
    assert "/-site.conf, 4 bytes" in foreseen.summary
    assert b"/-site.conf, 4 bytes" in kept.stdout


async def test_a_link_becomes_a_file_and_what_it_led_to_stays(host: Altered, place: Path) -> None:
    (place / "real").write_text("old")
    (place / "link").symlink_to("real")
    foreseen = await check(host, place / "link")
    assert "would put a file in place of the link" in foreseen.summary
    assert (await copy(host, place / "link")).changed is True
    assert (place / "real").read_text() == "old"
    assert (place / "link").read_text() == "new\n"
    assert not (place / "link").is_symlink()


async def test_a_link_that_leads_nowhere(host: Altered, place: Path) -> None:
    (place / "link").symlink_to("nowhere")
    foreseen = await check(host, place / "link")
    assert foreseen.summary == f"would put a file in place of the link {place}/link, 4 bytes"
    assert (await copy(host, place / "link")).changed is True
    assert (names(place), (place / "link").is_symlink()) == (["link"], False)


async def test_the_home_of_who_writes(
    host: Altered, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(place / "home"))
    assert (await copy(host, "~/.config/it")).changed is True
    assert (place / "home/.config/it").read_text() == "new\n"


@pytest.mark.parametrize("dest", ["", "a\0b", "~", "~nobody/x"])
async def test_a_path_that_is_none(dest: str, host: Altered) -> None:
    with pytest.raises(InvalidArguments, match="dest"):
        await copy(host, dest)
    assert host.commands == []


# -- what cannot be written -----------------------------------------------------------------------


async def failed(transport: Transport, dest: object, **more: Any) -> str:
    result = await copy(transport, dest, **more)
    assert (result.status, result.kind, result.changed) == (HostStatus.FAILED, "file", None)
    return result.message or ""


@pytest.mark.parametrize(
    ("dest", "why"),
    [
        (".", "dest ./.: is a directory; name the file in it"),
        ("new/", "dest ./new/: is a directory; name the file in it"),
        ("/dev/null", "dest /dev/null: is no ordinary file"),
        ("pipe", "dest ./pipe: is no ordinary file"),
        ("file/below", "./file/below cannot be written: mkdir: "),
    ],
)
async def test_a_place_where_no_file_can_be(
    dest: str, why: str, host: Altered, place: Path
) -> None:
    os.mkfifo(place / "pipe")
    (place / "file").write_text("old")
    assert (await failed(host, dest)).startswith(why)
    assert names(place) == ["file", "pipe"]
    assert Path("/dev/null").is_char_device()


async def test_a_directory_with_the_name_of_the_file(
    host: Altered, tmp_path: Path, place: Path
) -> None:
    (tmp_path / "src").write_text("x")
    (place / "src").mkdir()
    task = new_task("file.copy", {"src": "src", "dest": str(place)}, folder=str(tmp_path))
    result = await new_registry()["file.copy"].apply(task, host, Kept())
    assert result.message == f"dest {place}: is a directory"


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder everybody can enter, unlike those of tests."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


async def test_a_folder_nobody_may_write_in(new_transport: NewTransport, public: Path) -> None:
    (public / "motd").write_text("old")
    public.chmod(0o555)
    nobody = new_transport(by_nobody)
    assert await failed(nobody, public / "motd") == (
        f"{public}/motd cannot be written: no permission to write in {public}"
    )
    assert "Permission denied" in await failed(nobody, public / "sub" / "motd")
    assert (names(public), (public / "motd").read_text()) == (["motd"], "old")


async def test_a_file_nobody_may_read(new_transport: NewTransport, public: Path) -> None:
    (public / "motd").write_text("new\n")
    (public / "motd").chmod(0o000)
    public.chmod(0o777)
    foreseen = await check(new_transport(by_nobody), public / "motd")
    assert (foreseen.changed, foreseen.diff) == (True, None)
    assert foreseen.summary == (
        f"would change {public}/motd, 4 bytes; what is there cannot be read"
    )


async def test_a_mode_that_cannot_be_set(
    new_transport: NewTransport, tmp_path: Path, place: Path
) -> None:
    (place / "motd").write_text("new\n")
    host = new_transport(instead_of("chmod", tmp_path / "bin", "echo 'not yours' >&2; exit 1"))
    assert await failed(host, "motd", mode="0600") == (
        "the mode of ./motd cannot be set: not yours"
    )


async def test_a_disk_that_is_full(
    new_transport: NewTransport, tmp_path: Path, place: Path
) -> None:
    (place / "motd").write_text("old")
    script = "printf ha; echo 'cat: no space' >&2; exit 1"
    host = new_transport(instead_of("cat", tmp_path / "bin", script))
    assert await failed(host, "motd") == "./motd cannot be written: cat: no space"
    assert (names(place), (place / "motd").read_text()) == (["motd"], "old")


async def test_a_file_cut_off_on_the_way_is_never_seen(
    new_transport: NewTransport, place: Path
) -> None:
    (place / "motd").write_text("old")
    broken = new_transport(cut_off)
    said = await failed(broken, place / "motd", content="0123456789")
    assert said == f"{place}/motd cannot be written: only 5 of 10 bytes arrived"
    assert (names(place), (place / "motd").read_text()) == (["motd"], "old")


@pytest.mark.parametrize("starter", STARTERS)
async def test_being_cancelled_in_the_middle_leaves_nothing_behind(
    starter: str, new_transport: NewTransport, tmp_path: Path, place: Path
) -> None:
    (place / "motd").write_text("old")
    os.mkfifo(tmp_path / "pid")
    script = f"printf half; echo $$ >{tmp_path}/pid; exec sleep 1000"
    host = new_transport(instead_of("cat", tmp_path / "bin", script), STARTERS[starter]())
    copying = asyncio.create_task(copy(host, "motd"))
    pid = int(await asyncio.to_thread((tmp_path / "pid").read_text))
    [temporary] = [name for name in names(place) if name != "motd"]
    assert (place / temporary).read_text() == "half"
    copying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await copying
    assert not runs(pid)
    assert (names(place), (place / "motd").read_text()) == (["motd"], "old")


async def test_nobody_else_can_read_it_before_its_mode_is_set(
    new_transport: NewTransport, tmp_path: Path, place: Path
) -> None:
    script = f"ls -l {place}/.tenure-* >&2; exit 1"
    host = new_transport(instead_of("chmod", tmp_path / "bin", script))
    assert "cannot be written: -rw------- " in await failed(host, "key", mode="0644")
    assert names(place) == []


# -- hosts ----------------------------------------------------------------------------------------

SHELLS = [shell for shell in ("/bin/dash", "/bin/bash", "/bin/ash") if Path(shell).exists()]


@pytest.mark.parametrize("shell", SHELLS)
async def test_any_shell_will_do(shell: str, new_transport: NewTransport, place: Path) -> None:
    host = new_transport(by_shell(shell))
    for dest in ("a b/-x", f"{place}/y\nz"):
        assert (await copy(host, dest, mode="0604")).changed is True
        assert (await copy(host, dest, mode="0604")).changed is False
        assert "-new\n+newer" in ((await check(host, dest, "newer\n")).diff or "")
        assert (await copy(host, dest, "newer\n")).changed is True
        assert (Path(dest).read_text(), mode(Path(dest))) == ("newer\n", 0o604)


@pytest.mark.parametrize("tools", [f"{TOOLS} cmp ls", f"{TOOLS} ls", f"{TOOLS} cmp"])
async def test_a_host_with_hardly_any_tools(
    tools: str, new_transport: NewTransport, tmp_path: Path, place: Path
) -> None:
    host = new_transport(with_tools(tmp_path / "tools", tools))
    motd = place / "x" / "motd"
    assert (await copy(host, motd)).changed is True
    assert (await copy(host, motd)).changed is False
    assert (await copy(host, motd, "old\n")).changed is True
    assert (await copy(host, motd, "old\n", mode="0600")).changed is True
    assert (motd.read_text(), mode(motd), names(place / "x")) == ("old\n", 0o600, ["motd"])


async def test_what_runs_on_the_host_carries_the_run_and_no_values(host: Altered) -> None:
    args = {"content": "s3cret", "dest": "y"}
    task = new_task("file.copy", args, vars={"password": "s3cret"}, fence=7)
    await new_registry()["file.copy"].apply(task, host, Kept())
    assert len(host.commands) == 2
    for command in host.commands:
        assert command.env["TENURE_RUN_ID"] == "run-1"
        assert command.env["TENURE_FENCE"] == "7"
        assert "s3cret" not in "".join((*command.argv, *command.env, *command.env.values()))


async def test_it_is_done_as_the_user_the_step_names() -> None:
    seen: list[Command] = []

    class Noting(UnreachableTransport):
        async def run(self, host: Endpoint, command: Command, output: Output) -> Exit:
            seen.append(command)
            await output.write("stdout", b"here absent\n" if len(seen) == 1 else b"")
            return Exit(code=0)

    task = new_task("file.copy", {"content": "x", "dest": "y"}, become="deploy")
    assert (await new_registry()["file.copy"].apply(task, Noting(), Kept())).changed is True
    assert [command.become for command in seen] == ["deploy", "deploy"]


async def test_an_answer_that_makes_no_sense() -> None:
    class Babbling(UnreachableTransport):
        async def run(self, host: Endpoint, command: Command, output: Output) -> Exit:
            await output.write("stdout", b"Welcome to web1!\n")
            return Exit(code=0)

    assert await failed(Babbling(), "/etc/motd") == (
        "dest /etc/motd: the host's answer cannot be understood"
    )


@pytest.mark.parametrize("error", [StillRunning("it runs"), HostUnreachable("a", "ssh://a", "no")])
async def test_what_the_engine_must_know_passes_through(error: TransportError) -> None:
    class Raising(UnreachableTransport):
        async def run(self, host: Endpoint, command: Command, output: Output) -> Exit:
            raise error

    with pytest.raises(type(error)):
        await copy(Raising(), "/etc/motd")


# -- what is to be copied -------------------------------------------------------------------------


async def test_a_file_too_large_to_copy(host: Altered, tmp_path: Path) -> None:
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(files.MAX_COPY_BYTES + 1)
    task = new_task("file.copy", {"src": "huge", "dest": "x"}, folder=str(tmp_path))
    with pytest.raises(InvalidArguments, match="longer than 8388608 bytes; let the host fetch"):
        await new_registry()["file.copy"].apply(task, host, Kept())
    assert host.commands == []


@pytest.mark.parametrize("src", ["none", ".", "a\0b"])
async def test_a_file_that_cannot_be_read(src: str, host: Altered, tmp_path: Path) -> None:
    task = new_task("file.copy", {"src": src, "dest": "x"}, folder=str(tmp_path))
    with pytest.raises(InvalidArguments, match="cannot be read"):
        await new_registry()["file.copy"].check(task, host)


@pytest.mark.parametrize("action", ["file.copy", "template.render"])
@pytest.mark.parametrize("wrong", [{}, {"content": "", "template": "", "mode": 644}])
async def test_arguments_nobody_checked_before(
    action: str, wrong: dict[str, Any], host: Altered
) -> None:
    task = new_task(action, {"dest": "x", **wrong})
    with pytest.raises(InvalidArguments):
        await new_registry()[action].apply(task, host, Kept())
    assert host.commands == []


# -- foreseen -------------------------------------------------------------------------------------


async def test_what_would_change_is_shown_and_not_done(host: Altered, place: Path) -> None:
    motd = place / "motd"
    motd.write_text("one\ntwo\n")
    motd.chmod(0o644)
    foreseen = await check(host, motd, "one\nTWO\n", mode="0600")
    assert foreseen == CheckResult(
        changed=True,
        summary=f"would change {motd}, 8 bytes, mode 0600 (now 0644)",
        diff=f"--- {motd}\tnow\n+++ {motd}\tthen\n@@ -1,2 +1,2 @@\n one\n-two\n+TWO",
    )
    assert (motd.read_text(), mode(motd), names(place)) == ("one\ntwo\n", 0o644, ["motd"])


async def test_a_new_file_is_shown_whole(host: Altered, place: Path) -> None:
    foreseen = await check(host, "x/motd", "one\n")
    assert foreseen.summary == "would make ./x/motd, 4 bytes"
    assert (foreseen.diff or "").endswith("@@ -0,0 +1 @@\n+one")
    assert names(place) == []


@pytest.mark.parametrize(
    ("dest", "why"),
    [
        ("/proc/nope/x", "dest /proc/nope/x: no file can be made in /proc"),
        ("file/below/x", "dest ./file/below/x: ./file is no directory"),
    ],
)
async def test_a_folder_that_can_hold_no_file_is_foreseen(
    dest: str, why: str, host: Altered, place: Path
) -> None:
    (place / "file").write_text("old")
    with pytest.raises(TransportError, match=f"^{re.escape(why)}$"):
        await check(host, dest)
    await failed(host, dest)


async def test_a_folder_nobody_may_write_in_is_foreseen(
    new_transport: NewTransport, public: Path
) -> None:
    (public / "motd").write_text("old")
    public.chmod(0o555)
    for dest in (public / "motd", public / "new" / "motd"):
        with pytest.raises(TransportError, match=f"no permission to write in {public}$"):
            await check(new_transport(by_nobody), dest)


async def test_only_the_mode_would_change(host: Altered, place: Path) -> None:
    (place / "motd").write_text("new\n")
    (place / "motd").chmod(0o600)
    foreseen = await check(host, "motd", mode="0644")
    assert foreseen == CheckResult(
        changed=True, summary="would change ./motd, mode 0644 (now 0600)"
    )


@pytest.mark.parametrize(
    ("present", "content", "why"),
    [
        (b"\xff", "text", "; not text"),
        (b"a\0b", "text", "; not text"),
        (b"text", "\udcff", "; not text"),
        (b"x" * 70_000, "text", "; too long to show"),
        (b"text", "x" * 70_000, "; too long to show"),
        (b"x\n" * 3000, "text", "; too long to show"),
    ],
)
async def test_what_cannot_be_shown_is_said(
    present: bytes, content: str, why: str, host: Altered, place: Path
) -> None:
    (place / "motd").write_bytes(present)
    foreseen = await check(host, "motd", content)
    assert (foreseen.changed, foreseen.diff) == (True, None)
    assert foreseen.summary.endswith(why)


async def test_a_template_is_foreseen_and_written_alike(host: Altered, place: Path) -> None:
    args = {"template": "name {{ .name }}\n", "dest": "motd", "mode": "0644"}
    task = new_task("template.render", args, vars={"name": "web1"})
    action = new_registry()["template.render"]
    assert "+name web1" in ((await action.check(task, host)).diff or "")
    assert (await action.apply(task, host, Kept())).changed is True
    assert (place / "motd").read_text() == "name web1\n"
    assert (await action.apply(task, host, Kept())).changed is False
    assert (await action.check(task, host)).summary == "./motd is as wanted"
