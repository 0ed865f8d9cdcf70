"""What steps export: what a command writes or prints, and what ``env.set`` sets."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.actions import new_registry
from tenure.actions.commands import LONGEST_LINE, MOST, PrintedExports, parse_exports
from tenure.model.errors import InvalidArguments, InvalidExports
from tenure.ports.execution import CheckResult, TaskResult
from tenure.transports.routing import UnreachableTransport
from tests.actions.making import new_task
from tests.transports.keeping import Kept


@pytest.mark.parametrize(
    ("written", "exported"),
    [
        ("A=1\nB=two words\n", {"A": "1", "B": "two words"}),
        ("A=x<<EOF", {"A": "x<<EOF"}),
        ("A<<EOF\none\n\ntwo=2\nEOF\nB=1", {"A": "one\n\ntwo=2", "B": "1"}),
        ("A<<end of it=1\nx\nend of it=1", {"A": "x"}),
        ("_a1=ünï", {"_a1": "ünï"}),
        ("A=1\r\n", {"A": "1\r"}),
    ],
)
def test_what_the_file_says(written: str, exported: dict[str, str]) -> None:
    assert parse_exports(written.encode()) == exported


@pytest.mark.parametrize(
    ("written", "told"),
    [
        (b"A=1\nnonsense", "line 2: nothing is given to nonsense"),
        (b"my key=1", "line 1: 'my key' is no variable name"),
        (b"x" * 100 + b" =1", "line 1: a text of 101 characters is no variable name"),
        (b"\n\nA<<EOF\nx\ny", "line 3: the block of A is never ended by a line 'EOF'"),
        (b"A=1\nB=\xff", "line 2: is not UTF-8 text"),
        (b"A=1\0", "line 1: holds a NUL character"),
    ],
)
def test_a_mistake_names_its_line(written: bytes, told: str) -> None:
    with pytest.raises(InvalidExports) as refused:
        parse_exports(written)
    assert str(refused.value).startswith(f"$TENURE_OUTPUT, {told}")


def printed(*chunks: bytes) -> dict[str, str]:
    exports = PrintedExports()
    for chunk in chunks:
        exports.feed(chunk)
    return exports.finish()


@pytest.mark.parametrize(
    ("line", "exported"),
    [
        (b"TENURE_EXPORT:A=1", {"A": "1"}),
        (b"BOPS_EXPORT:A=1", {"A": "1"}),
        (b"  \tTENURE_EXPORT: A = 1 \r", {"A": "1"}),
        (b"TENURE_EXPORT:{A: x=1}", {"A": "x=1"}),
        (b"TENURE_EXPORT:A=\xff\0", {"A": "\ufffd\ufffd"}),
        (b"TENURE_EXPORT:nothing", {}),
        (b"OTHER_EXPORT:A=1", {}),
        (b"echo TENURE_EXPORT:A=1", {}),
    ],
)
def test_what_a_printed_line_says(line: bytes, exported: dict[str, str]) -> None:
    assert printed(b"before\n" + line + b"\nafter\n") == exported


@given(st.integers(1, 70), st.integers(0, 3))
def test_how_it_is_cut_into_chunks_does_not_matter(size: int, blanks: int) -> None:
    text = b"out\nTENURE_EXPORT:A=one\n" + b"x" * 90 + b"\nBOPS_EXPORT:B: two\ntail" + b" " * blanks
    chunks = [text[start : start + size] for start in range(0, len(text), size)]
    assert printed(*chunks) == {"A": "one", "B": "two"}


def test_an_endless_line_is_not_kept() -> None:
    exports = PrintedExports()
    for _ in range(64):
        exports.feed(b"x" * LONGEST_LINE)
    assert len(exports._line) <= LONGEST_LINE
    exports.feed(b"\nTENURE_EXPORT:A=1\n")
    assert exports.finish() == {"A": "1"}


@pytest.mark.parametrize("end", [b"", b"\nmore\n"])
def test_too_long_an_export_is_a_failure_not_a_loss(end: bytes) -> None:
    with pytest.raises(InvalidExports, match="longer than 65536 bytes"):
        printed(b"TENURE_EXPORT:A=", b"x" * LONGEST_LINE, b"x", end)


def test_too_much_of_exports_is_a_failure_not_a_loss() -> None:
    line = b"TENURE_EXPORT:A=" + b"x" * 60_000 + b"\n"
    with pytest.raises(InvalidExports, match="more than 1048576 bytes"):
        printed(*[line] * (MOST // 60_000 + 1))


@given(st.dictionaries(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True), st.text()))
def test_any_text_can_be_exported_in_blocks(values: dict[str, str]) -> None:
    kept = {
        name: value.encode(errors="ignore").decode().replace("\0", "")
        for name, value in values.items()
    }
    written = "".join(f"{name}<<--end--\n{value}\n--end--\n" for name, value in kept.items())
    assert parse_exports(written.encode()) == kept


NOWHERE = UnreachableTransport()


async def apply(env: Any, **rest: Any) -> TaskResult:
    task = new_task("env.set", {"env": env}, **rest)
    return await new_registry()["env.set"].apply(task, NOWHERE, Kept())


async def test_values_become_text_and_reach_no_host() -> None:
    result = await apply({"A": "x", "N": 3, "B": True, "E": None, "L": [1, "a"]})
    assert result.vars == {"A": "x", "N": "3", "B": "true", "E": "", "L": '[1,"a"]'}


@pytest.mark.parametrize(
    ("before", "changed", "summary"),
    [
        ({}, True, "would set A, B"),
        ({"A": "1", "B": "old"}, True, "would set B"),
        ({"A": "1", "B": "2", "C": "3"}, False, "all set already"),
    ],
)
async def test_changed_is_known(before: dict[str, str], changed: bool, summary: str) -> None:
    env = {"A": "1", "B": 2}
    assert (await apply(env, vars=before)).changed is changed
    task = new_task("env.set", {"env": env}, vars=before)
    check = await new_registry()["env.set"].check(task, NOWHERE)
    assert check == CheckResult(changed=changed, summary=summary)


@pytest.mark.parametrize("env", [None, {}])
async def test_at_least_one_variable(env: Any) -> None:
    with pytest.raises(InvalidArguments, match="at least one variable"):
        await apply(env)


@pytest.mark.parametrize("name", ["", "  "])
async def test_no_blank_names(name: str) -> None:
    with pytest.raises(InvalidArguments, match="must not be blank"):
        await apply({"A": "1", name: "2"})
