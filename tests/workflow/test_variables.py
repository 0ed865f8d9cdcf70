"""What each host sees."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.workflow.environment import Scope, environment_of
from tenure.workflow.expressions import compile_expression
from tenure.workflow.plan import Exports, Plan, make_plan
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


def test_an_item_hides_a_variable_of_that_name() -> None:
    exports = Exports(plan(vars={"item": "mine"}))
    assert exports.scope("db1")["item"] == "mine"
    assert exports.scope("db1", item=None)["item"] is None
    assert exports.scope("db1")["item"] == "mine"


def test_merging_is_shallow() -> None:
    made = make_plan(
        Workflow(
            name="demo",
            steps=[step()],
            inventory=Inventory(
                vars={"m": {"a": 1}}, hosts={"h": HostSpec(vars={"m": {"b": 2}}), "i": HostSpec()}
            ),
        )
    )
    exports = Exports(made)
    assert exports.scope("h")["m"] == {"b": 2}
    assert exports.scope("i")["m"] == {"a": 1}


# -- exports --------------------------------------------------------------------------------------


@pytest.fixture
def exports() -> Exports:
    return Exports(plan(vars={"base": 1}))


def seen(exports: Exports, name: str) -> dict[str, Any]:
    return {host: exports.scope(host).get(name) for host in ("db1", "web1", "web2")}


def test_an_export_of_one_host_is_seen_by_all(exports: Exports) -> None:
    assert exports.add({"web1": {"K": "v"}}) is None
    assert seen(exports, "K") == {"db1": "v", "web1": "v", "web2": "v"}


def test_equal_exports_are_no_ambiguity(exports: Exports) -> None:
    assert exports.add({"web1": {"K": "v"}, "web2": {"K": "v"}}) is None
    assert seen(exports, "K") == {"db1": "v", "web1": "v", "web2": "v"}


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


def test_a_host_keeps_what_it_exported_itself(exports: Exports) -> None:
    exports.add({"db1": {"K": "mine"}})
    exports.add({"web1": {"K": "a"}, "web2": {"K": "b"}})
    assert seen(exports, "K") == {"db1": "mine", "web1": "a", "web2": "b"}


def test_a_later_common_value_ends_the_ambiguity(exports: Exports) -> None:
    exports.add({"web1": {"K": "a"}, "web2": {"K": "b"}})
    exports.add({"db1": {"K": "c"}})
    assert seen(exports, "K") == {"db1": "c", "web1": "c", "web2": "c"}
    assert exports.scope("db1")["hosts"]["web1"]["K"] == "a"


def test_a_base_variable_shows_where_an_export_is_ambiguous() -> None:
    exports = Exports(plan(vars={"K": "base"}))
    exports.add({"web1": {"K": "a"}, "web2": {"K": "b"}})
    assert seen(exports, "K") == {"db1": "base", "web1": "a", "web2": "b"}


def test_nothing_exported_changes_nothing(exports: Exports) -> None:
    before = exports.scope("web1")
    assert exports.add({}) is None
    assert exports.add({"web1": {}}) is None
    assert exports.scope("web1").outer is before.outer


def test_hosts_of_ones_own_hide_the_exports() -> None:
    exports = Exports(plan(vars={"hosts": "mine"}))
    exports.add({"web1": {"K": 1}})
    assert exports.scope("web1")["hosts"] == "mine"


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


def test_exports_reach_the_environment(exports: Exports) -> None:
    exports.add({"web1": {"K": "a"}, "web2": {"K": "b"}})
    assert environment_of(exports.scope("web1")) == {"base": "1", "host": "web1", "K": "a"}
    assert environment_of(exports.scope("db1")) == {"base": "1", "host": "db1"}


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
def test_the_last_step_that_exported_a_name_decides(
    steps: list[dict[str, dict[str, int]]],
) -> None:
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


def crowd(size: int) -> Plan:
    names = [f"h{number}" for number in range(size)]
    return make_plan(
        Workflow(
            name="demo",
            steps=[step()],
            inventory=Inventory(groups={"all": GroupSpec(hosts=names, vars={"a": 1})}),
        )
    )


def shared(exports: Exports) -> set[int]:
    """What the scopes of the crowd are made of, and their environments with them."""
    return {id(exports.scope(host).outer) for host in exports._plan.hosts}


def test_hosts_that_differ_in_nothing_but_their_name_share_all_the_rest() -> None:
    exports = Exports(crowd(100))
    assert len(shared(exports)) == 1
    exports.add({"h1": {"K": "v"}})
    assert len(shared(exports)) == 1


def test_a_scope_is_kept_until_something_is_exported() -> None:
    exports = Exports(crowd(2))
    first = exports.scope("h0")
    assert exports.scope("h0").outer is first.outer
    exports.add({"h1": {"K": "v"}})
    assert exports.scope("h0").outer is not first.outer
    assert "K" not in first
