"""What a template says is what stands in the file: the cases are in ``templates.yaml``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tenure.actions import files
from tenure.model.errors import ExpressionError, InvalidArguments
from tests.actions.making import new_task

CASES: dict[str, dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("templates.yaml").read_text()
)


def filled_in(args: dict[str, Any], **rest: Any) -> bytes:
    task = new_task("template.render", {"dest": "/etc/motd", **args}, **rest)
    return files.file_to_render(task).content


@pytest.mark.parametrize("case", [pytest.param(case, id=title) for title, case in CASES.items()])
def test_a_template(case: dict[str, Any], tmp_path: Path) -> None:
    variables = case.get("vars", {})
    (tmp_path / "template").write_text(case["template"])
    for args in ({"template": case["template"]}, {"src": "template"}):
        task = {"args": args, "vars": variables, "folder": str(tmp_path)}
        if "text" in case:
            assert filled_in(**task).decode() == case["text"]
            continue
        kind = ExpressionError if "refused" in case else InvalidArguments
        with pytest.raises(kind) as refused:
            filled_in(**task)
        assert str(refused.value).startswith(case.get("refused") or case["unreadable"])


def test_a_template_is_read_from_the_folder_of_the_workflow(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a b.j2").write_text("{{ x }}é\n")
    assert filled_in({"src": "sub/a b.j2"}, folder=str(tmp_path), vars={"x": 1}) == "1é\n".encode()


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (None, "cannot be read"),
        (b"a\xff", "not UTF-8 text at byte 1; use file.copy"),
        (b"x" * (files.MAX_TEMPLATE_BYTES + 1), "longer than 1048576 bytes"),
    ],
)
def test_a_file_that_is_no_template(data: bytes | None, why: str, tmp_path: Path) -> None:
    if data is not None:
        (tmp_path / "t").write_bytes(data)
    with pytest.raises(InvalidArguments, match=why):
        filled_in({"src": "t"}, folder=str(tmp_path))


# -- line ends ------------------------------------------------------------------------------------


PIECES = st.sampled_from(
    [
        "{{ x }}",
        "{{\n x }}",
        "{% set y = 1 %}",
        "  {%- set y = 1 -%}  ",
        "{# a\n comment -#}",
        "{% raw -%} {{ x }}\n {%- endraw %}",
        "{% raw %}\n{% endraw %}",
        "{% for each in [1, 2] %}",
        "  {%+ endfor +%}",
        "text",
        " ",
        "¶\n",
        "¶\n",
    ]
)


@given(st.lists(PIECES, max_size=20), st.lists(st.sampled_from(["\n", "\r\n", "\r"]), min_size=40))
def test_every_line_of_a_template_keeps_its_own_end(pieces: list[str], ends: list[str]) -> None:
    """Each line break that comes through stands beside the number of its line."""
    lines = "".join(pieces).split("\n")
    numbered = [line.replace("¶", f"<{number}") for number, line in enumerate(lines[:-1])]
    source = "".join(line + end for line, end in zip(numbered, ends, strict=False)) + lines[-1]
    try:
        plain = filled_in({"template": re.sub("\r\n|\r", "\n", source)}, vars={"x": 0})
    except InvalidArguments:
        return  # no template
    text = filled_in({"template": source}, vars={"x": 0}).decode()
    assert re.sub("\r\n|\r", "\n", text) == plain.decode()
    for number, end in re.findall("<([0-9]+)(\r\n|\r|\n)", text):
        assert end == ends[int(number)]
