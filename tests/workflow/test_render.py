"""Text with values in it, taken apart, and the arguments of a step, per host."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.model.errors import ExpressionError
from tenure.workflow.arguments import compile_args, compile_loop, text_problems
from tenure.workflow.catalogue import ActionSpec
from tenure.workflow.placeholders import split_template
from tests.workflow.samples import CMD, HTTP, PYTHON


@pytest.mark.parametrize(
    ("text", "offset", "said"),
    [
        ("ab ${{ x", 3, "'${{' is not closed by '}}'"),
        ("${{ 'x }}", 0, "'${{' is not closed by '}}'"),
        ("${{ a }} ${{ b( }}", 9, "the expression ends too early in '${{ b( }}'"),
        ("${{ }}", 0, "the expression ends too early in '${{ }}'"),
    ],
)
def test_the_error_says_where(text: str, offset: int, said: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        split_template(text)
    assert caught.value.offset == offset
    assert caught.value.message == said


@given(st.text(alphabet="ab${}.' -", max_size=30))
def test_nothing_gets_lost(text: str) -> None:
    try:
        found = split_template(text, escapes=False)
    except ExpressionError:
        return
    raw = "".join(part if isinstance(part, str) else part.raw for part in found)
    assert raw == text.replace("$${{", "${{")


SCOPE: dict[str, Any] = {
    "name": "web",
    "n": 5,
    "flag": True,
    "nothing": None,
    "list": [1, "x"],
    "map": {"key": "v", "list": ["a"]},
}


def rendered(args: dict[str, Any], spec: ActionSpec = HTTP) -> dict[str, Any]:
    return compile_args(args, spec).render(SCOPE).args


# -- plain text -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("${name}", "web"),
        ("${n}", "5"),
        ("${flag}${nothing}", "true"),
        ("${map.key} ${map.list.0}", "v a"),
        ("${unknown} ${map.unknown} ${x:-y}", "${unknown} ${map.unknown} ${x:-y}"),
        ("${{ name }}", "web"),
        ("${{ n }}", 5),
        ("${{ nothing }}", None),
        ("${{ n + 1 }}/${{ name|upper }}", "6/WEB"),
        ("$${name} $${{ name }}", "${name} ${{ name }}"),
    ],
)
def test_plain(text: str, expected: Any) -> None:
    found = rendered({"url": "x", "body": text})["body"]
    assert found == expected
    assert type(found) is type(expected)


def test_a_value_is_not_expanded_again() -> None:
    scope = {"a": "${b} ${{ b }} $b", "b": "no"}
    assert compile_args({"url": "${a}"}, HTTP).render(scope).args["url"] == "${b} ${{ b }} $b"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"attempts": "${n}"}, 5),
        ({"attempts": "${{ n }}"}, 5),
        ({"wait": "2.5"}, 2.5),
        ({"follow": "${flag}"}, True),
        ({"follow": "${{ flag }}"}, True),
        ({"url": "${{ n }}"}, "5"),
    ],
)
def test_values_fit_what_the_action_takes(given: dict[str, Any], expected: Any) -> None:
    [name] = given
    found = rendered({"url": "x", **given})[name]
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"attempts": "${name}"}, "args.attempts: must be a whole number, not text"),
        ({"headers": "${name}"}, "args.headers: must be a map, not text"),
        ({"method": "${name}"}, "args.method: must be one of GET, POST, not text"),
        ({"body": "${{ nam }}"}, "args.body: 'nam' is not defined in 'nam'; did you mean 'name'?"),
    ],
)
def test_the_error_names_the_argument(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        rendered({"url": "x", **given})
    assert str(caught.value).startswith(said)


def test_rendered_text_is_bounded() -> None:
    compiled = compile_args({"url": "${big}${big}${big}"}, HTTP)
    with pytest.raises(ExpressionError, match="the text would be longer"):
        compiled.render({"big": "x" * 600_000})


# -- scripts --------------------------------------------------------------------------------------


def script(cmd: str, scope: dict[str, Any] | None = None) -> tuple[str, dict[str, str]]:
    """The command as a shell gets it, and the references in its environment."""
    done = compile_args({"cmd": cmd}, CMD).render(SCOPE if scope is None else scope)
    references = {key: val for key, val in done.env.items() if key.startswith("TENURE_X")}
    return done.args["cmd"], references


def test_names_are_left_to_the_shell() -> None:
    assert script("echo ${name} $name ${x:-y} $$ $${name}") == (
        "echo ${name} $name ${x:-y} $$ $${name}",
        {},
    )


def test_an_expression_becomes_a_reference() -> None:
    assert script('echo ${{ name }} "${{ n + 1 }}"') == (
        'echo "${TENURE_X1}" "${TENURE_X2}"',
        {"TENURE_X1": "web", "TENURE_X2": "6"},
    )


def test_a_dotted_name_becomes_a_reference_if_it_is_known() -> None:
    assert script('echo ${map.key} "${map.list.0}" ${map.nope} ${no.pe}') == (
        'echo "${TENURE_X1}" "${TENURE_X2}" ${map.nope} ${no.pe}',
        {"TENURE_X1": "v", "TENURE_X2": "a"},
    )


def test_a_dotted_name_where_nothing_expands_is_the_scripts_own() -> None:
    cmd = "node -e 'x(`${map.key}`)' \\${map.key}"
    assert script(cmd) == (cmd, {})


def test_values_never_reach_the_script() -> None:
    evil = "'; rm -rf / #\"$(id)`id`"
    command, references = script('echo ${{ v }} "${{ v }}" ${m.v}', {"v": evil, "m": {"v": evil}})
    assert evil not in command
    assert set(references.values()) == {evil}


def test_the_environment_has_variables_then_env_then_references() -> None:
    compiled = compile_args(
        {"cmd": "echo ${{ n }}", "env": {"name": "${name}!", "PATH": "/bin", "N": 1, "T": True}},
        CMD,
    )
    done = compiled.render({"name": "web", "n": 1, "PATH": "/evil", "TENURE_X1": "evil"})
    assert done.env == {
        "name": "web!",
        "n": "1",
        "PATH": "/bin",
        "N": "1",
        "T": "true",
        "TENURE_X1": "1",
    }


# -- Python ---------------------------------------------------------------------------------------


def run_python(text: str, scope: dict[str, Any]) -> str:
    done = compile_args({"script": text}, PYTHON).render(scope)
    return subprocess.run(
        [sys.executable, "-c", done.args["script"]],
        env=done.env,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_python_gets_values_as_text_from_its_environment() -> None:
    evil = '\'); import os; os._exit(3) #"""\n\\'
    text = "os = 1  # ${{ v }}\nd = {'a': ${{ v }}}\nprint(d['a'] + ${{ n }} * 2, end='')"
    assert run_python(text, {"v": evil, "n": 4}) == evil + "44"


@pytest.mark.parametrize(
    "text",
    ["print('${{ v }}')", "print('''\n${{ v }}\n''')", "print(f'{${{ v }}}')", "name${{ v }}"],
)
def test_a_value_inside_a_python_string_is_a_mistake(text: str) -> None:
    with pytest.raises(ExpressionError, match="stands inside a Python string or name") as caught:
        compile_args({"script": text}, PYTHON)
    assert caught.value.offset == text.index("${{")


# -- loops ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loop", "items"),
    [
        (["a", 1, {"b": None}], ["a", 1, {"b": None}]),
        (("${name}", {"x": "${{ n }}"}), ["web", {"x": 5}]),
        ("${{ list }}", [1, "x"]),
    ],
)
def test_loop(loop: Any, items: list[Any]) -> None:
    assert compile_loop(loop).items(SCOPE) == items


def test_a_loop_over_no_list_is_an_error() -> None:
    with pytest.raises(ExpressionError, match=r"loop: needs a list, not text; split text with"):
        compile_loop("${{ name }}").items(SCOPE)


def test_all_problems_of_the_arguments_are_found() -> None:
    args = {"cmd": "echo '${{ a }}'", "env": {"A": ["${{ b( }}", "fine"], "B": "${{"}}
    found = text_problems(args, CMD)
    assert [path for path, _ in found] == [("cmd",), ("env", "A", 0), ("env", "B")]
