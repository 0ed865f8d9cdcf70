"""Files put on a host, by real shells: whole or not at all, and only if something is to change."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.actions import new_registry
from tenure.actions.files import difference, mode_in, read_mode
from tenure.model.errors import InvalidArguments
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

NewTransport = Callable[..., Altered]
TOOLS = "cat mv chmod cksum mkdir rm"
HOSTILE = [
    "with space",
    "a'b\"c",
    "$(touch pwned)",
    "-rf",
    "new\nline",
    "trailing\n",
    "\udcff",
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


@pytest.mark.slow
async def test_a_new_file(host: Altered, place: Path) -> None:
    kept = Kept()
    task = new_task("file.copy", {"content": "a\nb", "dest": f"{place}/x/y/motd"})
    assert await new_registry()["file.copy"].apply(task, host, kept) == TaskResult(changed=True)
    assert (place / "x/y/motd").read_text() == "a\nb"
    assert mode(place / "x/y/motd") == 0o640
    assert kept.stdout.decode() == f"wrote {place}/x/y/motd, 3 bytes\n"
    assert names(place / "x/y") == ["motd"]


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("size", [0, 65537, 3_000_000])
async def test_any_bytes_of_any_length(size: int, host: Altered, tmp_path: Path) -> None:
    data = (bytes(range(256)) * (size // 256 + 1))[:size]
    (tmp_path / "blob").write_bytes(data)
    task = new_task("file.copy", {"src": "blob", "dest": "out"}, folder=str(tmp_path))
    action = new_registry()["file.copy"]
    assert (await action.apply(task, host, Kept())).changed is True
    assert Path("out").read_bytes() == data
    assert (await action.apply(task, host, Kept())).changed is False


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("bits", [0o644, 0o400, 0o2750, 0o4711])
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


@pytest.mark.slow
async def test_a_file_keeps_its_owner(host: Altered, place: Path) -> None:
    motd = place / "motd"
    motd.write_text("old")
    if os.getuid() == 0:
        os.chown(motd, 65534, 65533)
    owner = motd.stat().st_uid, motd.stat().st_gid
    assert (await copy(host, motd)).changed is True
    assert (motd.stat().st_uid, motd.stat().st_gid) == owner


# -- where it is put ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("dest", ["into", "new/", "into/link"])
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


@pytest.mark.slow
async def test_a_link_becomes_a_file_and_what_it_led_to_stays(host: Altered, place: Path) -> None:
    (place / "real").write_text("old")
    (place / "link").symlink_to("real")
    foreseen = await check(host, place / "link")
    assert "would put a file in place of the link" in foreseen.summary
    assert (await copy(host, place / "link")).changed is True
    assert (place / "real").read_text() == "old"
    assert (place / "link").read_text() == "new\n"
    assert not (place / "link").is_symlink()


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dest", "why"),
    [
        (".", "dest ./.: is a directory; name the file in it"),
        ("/dev/null", "dest /dev/null: is no ordinary file"),
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


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder everybody can enter, unlike those of tests."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.slow
async def test_a_folder_nobody_may_write_in(new_transport: NewTransport, public: Path) -> None:
    (public / "motd").write_text("old")
    public.chmod(0o555)
    nobody = new_transport(by_nobody)
    assert await failed(nobody, public / "motd") == (
        f"{public}/motd cannot be written: no permission to write in {public}"
    )
    assert "Permission denied" in await failed(nobody, public / "sub" / "motd")
    assert (names(public), (public / "motd").read_text()) == (["motd"], "old")


@pytest.mark.slow
async def test_a_disk_that_is_full(
    new_transport: NewTransport, tmp_path: Path, place: Path
) -> None:
    (place / "motd").write_text("old")
    script = "printf ha; echo 'cat: no space' >&2; exit 1"
    host = new_transport(instead_of("cat", tmp_path / "bin", script))
    assert await failed(host, "motd") == "./motd cannot be written: cat: no space"
    assert (names(place), (place / "motd").read_text()) == (["motd"], "old")


@pytest.mark.slow
async def test_a_file_cut_off_on_the_way_is_never_seen(
    new_transport: NewTransport, place: Path
) -> None:
    (place / "motd").write_text("old")
    broken = new_transport(cut_off)
    said = await failed(broken, place / "motd", content="0123456789")
    assert said == f"{place}/motd cannot be written: only 5 of 10 bytes arrived"
    assert (names(place), (place / "motd").read_text()) == (["motd"], "old")


@pytest.mark.slow
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


@pytest.mark.slow
async def test_nobody_else_can_read_it_before_its_mode_is_set(
    new_transport: NewTransport, tmp_path: Path, place: Path
) -> None:
    script = f"ls -l {place}/.tenure-* >&2; exit 1"
    host = new_transport(instead_of("chmod", tmp_path / "bin", script))
    assert "cannot be written: -rw------- " in await failed(host, "key", mode="0644")
    assert names(place) == []


# -- hosts ----------------------------------------------------------------------------------------

SHELLS = [shell for shell in ("/bin/dash", "/bin/bash", "/bin/ash") if Path(shell).exists()]


@pytest.mark.slow
@pytest.mark.parametrize("shell", SHELLS)
async def test_any_shell_will_do(shell: str, new_transport: NewTransport, place: Path) -> None:
    host = new_transport(by_shell(shell))
    for dest in ("a b/-x", f"{place}/y\nz"):
        assert (await copy(host, dest, mode="0604")).changed is True
        assert (await copy(host, dest, mode="0604")).changed is False
        assert "-new\n+newer" in ((await check(host, dest, "newer\n")).diff or "")
        assert (await copy(host, dest, "newer\n")).changed is True
        assert (Path(dest).read_text(), mode(Path(dest))) == ("newer\n", 0o604)


@pytest.mark.slow
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


@pytest.mark.slow
async def test_what_runs_on_the_host_carries_the_run_and_no_values(host: Altered) -> None:
    args = {"content": "s3cret", "dest": "y"}
    task = new_task("file.copy", args, vars={"password": "s3cret"}, fence=7)
    await new_registry()["file.copy"].apply(task, host, Kept())
    assert len(host.commands) == 2
    for command in host.commands:
        assert command.env["TENURE_RUN_ID"] == "run-1"
        assert command.env["TENURE_FENCE"] == "7"
        assert "s3cret" not in "".join((*command.argv, *command.env, *command.env.values()))


@pytest.mark.slow
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


# -- what is to be copied -------------------------------------------------------------------------


# -- foreseen -------------------------------------------------------------------------------------


@pytest.mark.slow
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


@pytest.mark.slow
async def test_a_template_is_foreseen_and_written_alike(host: Altered, place: Path) -> None:
    args = {"template": "name {{ .name }}\n", "dest": "motd", "mode": "0644"}
    task = new_task("template.render", args, vars={"name": "web1"})
    action = new_registry()["template.render"]
    assert "+name web1" in ((await action.check(task, host)).diff or "")
    assert (await action.apply(task, host, Kept())).changed is True
    assert (place / "motd").read_text() == "name web1\n"
    assert (await action.apply(task, host, Kept())).changed is False
    assert (await action.check(task, host)).summary == "./motd is as wanted"


TEXTS = st.text(st.sampled_from("ab\n\r\x1b\u2028é"), max_size=12).map(str.encode)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (b"a\r\nb\r\n", b"a\nb\n", "now CRLF (2 lines), then LF (2 lines)"),
        (
            b"a\rb\n",
            b"a\nb\r\n",
            "now LF (1 line) and CR (1 line), then CRLF (1 line) and LF (1 line)",
        ),
    ],
)
def test_line_ends_are_told_in_words_if_nothing_else_differs(
    old: bytes, new: bytes, words: str
) -> None:
    shown = (difference(old, new, "/etc/x") or "").split("\n")
    assert shown == ["--- /etc/x\tnow", "+++ /etc/x\tthen", f"only line ends differ: {words}"]


def test_a_long_difference_is_cut() -> None:
    shown = (difference(b"", b"a\n" * 1000, "x") or "").split("\n")
    assert len(shown) == 201
    assert shown[-1] == "… and 803 more lines"


@given(TEXTS, TEXTS)
def test_every_line_of_it_is_one_line(old: bytes, new: bytes) -> None:
    shown = difference(old, new, "x")
    assert (shown is None) == (old == new)
    lines = (shown or "").split("\n")
    assert lines == (shown or "").splitlines() or not shown
    assert all(line.replace("\t", "").isprintable() for line in lines)


MODES = st.integers(0, 0o7777)
USUAL = "0644 0755 0600 0640 0700 0750 0664 0660 0775 0777 0444 0440 0400 0500 0555 0711 1777 2755"


def test_a_usual_mode_is_read_however_it_is_written_unless_its_zero_is_missing() -> None:
    """As an octal number the file's reader gives it: ``0644`` is 420."""
    for text in USUAL.split():
        mode = int(text, 8)
        assert {read_mode(text), read_mode(f"{mode:o}"), read_mode(mode)} == {mode}
        with pytest.raises(ValueError, match="may be meant as"):
            read_mode(int(text))


@pytest.mark.parametrize(
    "value",
    [
        *("", "0", "44", "+x", "u=rw", "rw-r--r--", "0o644", "0888", "644 ", "\u0660\u0666\u0664"),
        *("77777", "077777", "-644", "6.4"),
        *("420", "493", "111"),  # a number that became text on its way; or nobody's wish
        *(True, None, 6.44, [420], -1, 0o10000),
    ],
)
def test_what_is_no_mode(value: Any) -> None:
    with pytest.raises(ValueError, match="no file mode"):
        read_mode(value)


@given(MODES)
def test_text_with_its_zero_is_always_read(mode: int) -> None:
    assert read_mode(f"0{mode:03o}") == mode


@given(MODES)
def test_a_number_is_itself_or_refused(mode: int) -> None:
    try:
        assert read_mode(mode) == mode
    except ValueError:
        assert int(str(mode), 8) != mode


@given(MODES)
def test_what_ls_shows_is_read_back(mode: int) -> None:
    for end in ("", ".", "+", "@"):
        assert mode_in(stat.filemode(stat.S_IFREG | mode) + end) == mode
