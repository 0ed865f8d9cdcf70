"""What each host sees, which of it reaches processes, and as what."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.model.errors import ExpressionError
from tenure.workflow.environment import (
    LONGEST_ENTRY,
    HostExports,
    Scope,
    environment_of,
    reaches_processes,
)
from tenure.workflow.expressions import compile_expression
from tenure.workflow.plan import Exports, make_plan
from tenure.workflow.spec import GroupSpec, HostSpec, Inventory, Workflow
from tests.workflow.samples import plan, step

LAYERS = ["inventory", "group a", "group b", "host", "workflow", "run", "exported", "item"]


def layered(top: str) -> Any:
    """The value of ``v`` on ``h`` when every layer up to ``top`` sets it."""
    scope = scope_with("v", set(LAYERS[: LAYERS.index(top) + 1]))
    return scope["item"] if top == "item" else scope["v"]


def scope_with(name: str, given: set[str]) -> Scope:
    """What ``h`` sees when these layers set ``name``, each to its own name."""

    def v(layer: str) -> dict[str, Any]:
        return {name: layer} if layer in given else {}

    made = make_plan(
        Workflow(
            name="demo",
            steps=[step()],
            vars=v("workflow"),
            inventory=Inventory(
                vars=v("inventory"),
                # written in another order than that of their names
                groups={
                    "b": GroupSpec(hosts=["h"], vars=v("group b")),
                    "a": GroupSpec(hosts=["h"], vars=v("group a")),
                },
                hosts={"h": HostSpec(vars=v("host"))},
            ),
        )
    )
    exports = Exports(made, v("run"))
    exports.add({"h": v("exported")})
    return exports.scope("h", item="item") if "item" in given else exports.scope("h")


@pytest.mark.parametrize("top", LAYERS)
def test_the_nearer_layer_wins(top: str) -> None:
    assert layered(top) == top


# -- exports --------------------------------------------------------------------------------------


@pytest.fixture
def exports() -> Exports:
    return Exports(plan(vars={"base": 1}))


def seen(exports: Exports, name: str) -> dict[str, Any]:
    return {host: exports.scope(host).get(name) for host in ("db1", "web1", "web2")}


def test_hosts_that_export_different_values_see_their_own(exports: Exports) -> None:
    note = exports.add({"web1": {"K": "a", "L": 1}, "web2": {"K": "b", "L": 1}})
    assert note == (
        "note: hosts have different values of K; each sees its own, hosts['web1'].K is that of web1"
    )
    assert seen(exports, "K") == {"db1": None, "web1": "a", "web2": "b"}
    assert seen(exports, "L") == {"db1": 1, "web1": 1, "web2": 1}
    named = compile_expression("hosts['web1'].K ~ hosts.web2.K")
    assert {named.evaluate(exports.scope(host)) for host in ("db1", "web1")} == {"ab"}


def test_an_ambiguous_name_does_not_show_an_older_common_value(exports: Exports) -> None:
    """A host that took no part would act on news that are none."""
    exports.add({"web1": {"K": "old"}})
    exports.add({"web1": {"K": "a"}, "web2": {"K": "b"}})
    assert seen(exports, "K") == {"db1": None, "web1": "a", "web2": "b"}


# -- the host itself ------------------------------------------------------------------------------


def test_a_host_knows_its_name(exports: Exports) -> None:
    assert seen(exports, "host") == {name: name for name in ("db1", "web1", "web2")}
    both = exports.scope("web1", item=3)
    assert (both["host"], both["item"]) == ("web1", 3)
    assert environment_of(both) == {"base": "1", "host": "web1", "item": "3"}
    named = compile_expression("hosts[host].K")
    exports.add({"web1": {"K": "a"}, "web2": {"K": "b"}})
    assert [named.evaluate(exports.scope(name)) for name in ("web1", "web2")] == ["a", "b"]


@pytest.mark.parametrize("layer", LAYERS[:-1])
def test_a_variable_called_host_counts_more_than_ours(layer: str) -> None:
    """Files that had one before there was ours mean what they meant."""
    scope = scope_with("host", {layer})
    assert (scope["host"], environment_of(scope)["host"]) == (layer, layer)


HOSTS = ["db1", "web1", "web2"]
STEPS = st.lists(
    st.dictionaries(
        st.sampled_from(HOSTS), st.dictionaries(st.sampled_from("KLM"), st.integers(0, 2))
    ),
    max_size=6,
)


@given(STEPS, st.booleans())
def test_after_a_takeover_every_host_sees_the_same(
    steps: list[dict[str, dict[str, int]]], look: bool
) -> None:
    """Whether scopes were looked at in between or everything is added again at once."""
    made = plan()
    first, again = Exports(made), Exports(made)
    for exported in steps:
        first.add(exported)
        if look:
            for host in HOSTS:
                first.scope(host)
    for exported in steps:
        again.add(exported)
    assert [first.scope(host) for host in HOSTS] == [again.scope(host) for host in HOSTS]


@given(STEPS)
def test_the_last_step_that_exported_a_name_decides(steps: list[dict[str, dict[str, int]]]) -> None:
    exports = Exports(plan())
    for exported in steps:
        exports.add(exported)
    for name in "KLM":
        latest = next(
            (
                values
                for exported in reversed(steps)
                if (values := {h: v[name] for h, v in exported.items() if name in v})
            ),
            {},
        )
        common = len(set(latest.values())) == 1
        for host in HOSTS:
            if common or host in latest:
                expected = next(iter(latest.values())) if common else latest[host]
                assert exports.scope(host)[name] == expected


# -- cost -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is", "as it is"),
        (None, ""),
        (True, "true"),
        (-1.5, "-1.5"),
        ([1, "é", None], '[1,"é",null]'),
        ({"a": {"b": True}}, '{"a":{"b":true}}'),
    ],
)
def test_a_value_becomes(value: Any, text: str) -> None:
    assert environment_of({"v": value}) == {"v": text}


@pytest.mark.parametrize("name", ["a", "path", "LDAP", "TENURE"])
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


@pytest.mark.parametrize("name", ["", "a-b", "1a", "a=b", "a\n", "a\0"])
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
    ],
)
def test_the_error_names_the_variable(value: str, said: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        environment_of({"fine": "x", "v": value})
    assert str(caught.value).startswith(said)


def test_large_data_is_left_out_and_long_text_within_the_bound_is_not() -> None:
    scope = {"data": ["x" * 100] * 2000, "text": "x" * (LONGEST_ENTRY - 10)}
    assert list(environment_of(scope)) == ["text"]
