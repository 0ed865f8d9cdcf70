"""Arguments of a step, per host."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from tenure.model.errors import ExpressionError
from tenure.workflow.arguments import compile_args, compile_loop, text_problems
from tenure.workflow.catalogue import ActionSpec
from tenure.workflow.environment import HostExports
from tests.workflow.samples import CMD, HTTP, PYTHON

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
        ("plain", "plain"),
        ("${name}", "web"),
        ("a ${name} b", "a web b"),
        ("${n}", "5"),
        ("${flag}${nothing}", "true"),
        ("${list} ${map}", '[1,"x"] {"key":"v","list":["a"]}'),
        ("${map.key} ${map.list.0}", "v a"),
        ("${unknown} ${map.unknown} ${x:-y}", "${unknown} ${map.unknown} ${x:-y}"),
        ("${{ name }}", "web"),
        ("${{ n }}", 5),
        ("${{ list }}", [1, "x"]),
        ("${{ nothing }}", None),
        ("${{ n }}!", "5!"),
        ("${{ n + 1 }}/${{ name|upper }}", "6/WEB"),
        ("$${name} $${{ name }}", "${name} ${{ name }}"),
        ("$5 $(x) {{ y }}", "$5 $(x) {{ y }}"),
    ],
)
def test_plain(text: str, expected: Any) -> None:
    found = rendered({"url": "x", "body": text})["body"]
    assert found == expected
    assert type(found) is type(expected)


def test_lists_and_maps_are_walked() -> None:
    body = {"a": ["${name}", {"b": "${{ n }}"}], "c": 1, "${name}": "key"}
    assert rendered({"url": "x", "body": body})["body"] == {
        "a": ["web", {"b": 5}],
        "c": 1,
        "${name}": "key",
    }


def test_a_value_is_not_expanded_again() -> None:
    scope = {"a": "${b} ${{ b }} $b", "b": "no"}
    assert compile_args({"url": "${a}"}, HTTP).render(scope).args["url"] == "${b} ${{ b }} $b"


def test_fixed_text_is_left_alone() -> None:
    assert rendered({"url": "x", "raw": "${name} ${{ name }}"})["raw"] == "${name} ${{ name }}"


def test_without_values_the_arguments_are_the_same_object() -> None:
    args = {"url": "x", "headers": {"a": ["b"]}}
    compiled = compile_args(args, HTTP)
    assert compiled.render(SCOPE).args is args
    assert compiled.render({}).args is args


def test_rendering_leaves_the_arguments_as_they_are() -> None:
    args = {"url": "${name}", "headers": {"a": ["${name}"]}}
    compiled = compile_args(args, HTTP)
    assert compiled.render({"name": "one"}).args == {"url": "one", "headers": {"a": ["one"]}}
    assert compiled.render({"name": "two"}).args == {"url": "two", "headers": {"a": ["two"]}}
    assert args == {"url": "${name}", "headers": {"a": ["${name}"]}}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"attempts": "${n}"}, 5),
        ({"attempts": "${{ n }}"}, 5),
        ({"attempts": "7"}, 7),
        ({"attempts": 3.0}, 3.0),
        ({"wait": "${n}"}, 5),
        ({"wait": "2.5"}, 2.5),
        ({"follow": "${flag}"}, True),
        ({"follow": "no"}, False),
        ({"follow": "${{ flag }}"}, True),
        ({"url": 5}, "5"),
        ({"url": "${{ n }}"}, "5"),
        ({"method": "${{ 'POST' }}"}, "POST"),
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


def test_a_comment_is_left_alone() -> None:
    assert script("echo a # ${{ missing }}") == ("echo a # ${{ missing }}", {})


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


def test_an_explicit_env_does_not_replace_a_reference() -> None:
    compiled = compile_args({"cmd": "${{ n }}", "env": {"TENURE_X1": "evil"}}, CMD)
    assert compiled.render(SCOPE).env["TENURE_X1"] == "5"


def test_an_action_without_processes_gets_no_environment() -> None:
    assert compile_args({"url": "${name}"}, HTTP).render(SCOPE).env == {}


def test_a_value_no_environment_can_hold_is_an_error() -> None:
    with pytest.raises(ExpressionError, match=r"'\$\{\{ v \}\}' holds a NUL character"):
        script("echo ${{ v }}", {"v": {"inner": "\0"}["inner"]})


def test_what_hosts_exported_can_be_named_in_a_script() -> None:
    scope = {"hosts": HostExports(web1={"KEY": "v"})}
    assert script("echo ${hosts.web1.KEY} ${{ hosts['web1'].KEY }}", scope)[1] == {
        "TENURE_X1": "v",
        "TENURE_X2": "v",
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


def test_a_comment_in_python_is_left_alone() -> None:
    done = compile_args({"script": "x = 1  # ${{ missing }}"}, PYTHON).render({})
    assert (done.args["script"], done.env) == ("x = 1  # ${{ missing }}", {})


@pytest.mark.parametrize(
    "text",
    [
        "print('${{ v }}')",
        'print("a ${{ v }} b")',
        "print('''\n${{ v }}\n''')",
        "print(f'{${{ v }}}')",
        "print(r'${{ v }}', b'x')",
        "name${{ v }}",
        "${{ v }}name = 1",
    ],
)
def test_a_value_inside_a_python_string_is_a_mistake(text: str) -> None:
    with pytest.raises(ExpressionError, match="stands inside a Python string or name") as caught:
        compile_args({"script": text}, PYTHON)
    assert caught.value.offset == text.index("${{")


def test_a_script_that_is_no_python_is_a_mistake_only_with_values() -> None:
    compile_args({"script": "print('"}, PYTHON)
    with pytest.raises(ExpressionError, match="cannot be read as Python"):
        compile_args({"script": "print(${{ v }}"}, PYTHON)


def test_names_are_left_to_python() -> None:
    assert run_python("print('${v} $v', end='')", {"v": "x"}) == "${v} $v"


# -- loops ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loop", "items"),
    [
        ([], []),
        (["a", 1, {"b": None}], ["a", 1, {"b": None}]),
        (("${name}", {"x": "${{ n }}"}), ["web", {"x": 5}]),
        ("${{ list }}", [1, "x"]),
        ("${{ 'a,b'|split(',') }}", ["a", "b"]),
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
