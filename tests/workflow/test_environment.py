"""Which variables reach processes, and as what."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.model.errors import ExpressionError
from tenure.workflow.environment import (
    LONGEST_ENTRY,
    HostExports,
    Scope,
    environment_of,
    reaches_processes,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is", "as it is"),
        ("", ""),
        (None, ""),
        (True, "true"),
        (False, "false"),
        (5, "5"),
        (-1.5, "-1.5"),
        (1.0, "1.0"),
        ([1, "é", None], '[1,"é",null]'),
        ({"a": {"b": True}}, '{"a":{"b":true}}'),
    ],
)
def test_a_value_becomes(value: Any, text: str) -> None:
    assert environment_of({"v": value}) == {"v": text}


@pytest.mark.parametrize("name", ["a", "A_1", "_x", "path", "Home", "item", "LDAP", "PY", "TENURE"])
def test_a_name_that_reaches_processes(name: str) -> None:
    assert environment_of({name: "x"}) == {name: "x"}


@pytest.mark.parametrize(
    "name",
    [
        "PATH", "HOME", "IFS", "ENV", "BASH_ENV", "SHELLOPTS", "BASHOPTS", "PS4", "PROMPT_COMMAND",
        "CDPATH", "GLOBIGNORE", "LD_PRELOAD", "LD_LIBRARY_PATH", "DYLD_INSERT_LIBRARIES",
        "PYTHONPATH", "PYTHONSTARTUP", "PERL5OPT", "PERL5LIB", "RUBYOPT", "RUBYLIB",
        "NODE_OPTIONS", "GIT_SSH_COMMAND", "TENURE_RUN_ID", "TENURE_X1", "BASH_FUNC_ls%%",
        "JAVA_TOOL_OPTIONS", "SSH_ASKPASS", "SUDO_ASKPASS", "XDG_CONFIG_HOME", "EDITOR", "PAGER",
        "SHELL", "GCONV_PATH", "OPENSSL_CONF",
    ],
)  # fmt: skip
def test_a_name_that_steers_processes_stays_out(name: str) -> None:
    assert not reaches_processes(name)
    assert environment_of({name: "evil", "env": {name: "evil"}}).get(name) is None


@pytest.mark.parametrize("name", ["", "a-b", "a.b", "1a", "é", "a b", "a=b", "a\n", "a\0"])
def test_a_name_no_shell_can_say_stays_out(name: str) -> None:
    assert environment_of({name: "x"}) == {}


def test_what_hosts_exported_is_not_for_every_process_to_carry() -> None:
    assert environment_of({"hosts": HostExports(web1={"A": 1})}) == {}
    assert environment_of({"hosts": {"mine": 1}}) == {"hosts": '{"mine":1}'}


def test_a_map_named_env_is_environment_as_in_older_files() -> None:
    scope = {"A": "1", "B": "2", "env": {"A": "from env", "C": 3, "PATH": "/evil"}}
    env = environment_of(scope)
    assert (env["A"], env["B"], env["C"]) == ("from env", "2", "3")
    assert "PATH" not in env
    assert environment_of({"env": "prod"}) == {"env": "prod"}


def test_an_export_is_newer_than_a_map_named_env() -> None:
    scope = Scope({"A": "exported", "env": {"A": "old", "B": "b"}}, {"A": "exported"})
    env = environment_of(scope)
    assert (env["A"], env["B"]) == ("exported", "b")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("a\0b", "variable 'v' holds a NUL character: no environment can"),
        ("\ud800", "variable 'v' holds text that is no Unicode"),
        ("x" * LONGEST_ENTRY, "variable 'v' is too long for an environment"),
        ("é" * (LONGEST_ENTRY // 2 + 1), "variable 'v' is too long for an environment"),
    ],
)
def test_the_error_names_the_variable(value: str, said: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        environment_of({"fine": "x", "v": value})
    assert str(caught.value).startswith(said)


def test_large_data_is_left_out_and_long_text_within_the_bound_is_not() -> None:
    scope = {"data": ["x" * 100] * 2000, "text": "x" * (LONGEST_ENTRY - 10)}
    assert list(environment_of(scope)) == ["text"]


def test_the_environment_of_a_scope_is_made_once_and_given_away_as_a_copy() -> None:
    scope = Scope({"a": 1}, {})
    assert scope.environment is scope.environment
    environment_of(scope)["b"] = "2"
    assert environment_of(scope) == {"a": "1"}


def test_an_item_joins_the_environment() -> None:
    scope = Scope({"a": 1, "item": "outer"}, {})
    inner = scope.adding({"item": {"b": 2}})
    assert environment_of(inner) == {"a": "1", "item": '{"b":2}'}
    assert environment_of(scope) == {"a": "1", "item": "outer"}
