"""Which step runs where, and after what."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.model.errors import InvalidWorkflow
from tenure.workflow.plan import Plan, find_cycle, make_plan
from tenure.workflow.spec import (
    Defaults,
    GroupSpec,
    HostSpec,
    Inventory,
    OnTakeover,
    Verify,
    Workflow,
)
from tests.workflow.samples import CATALOGUE, plan, step, workflow


def with_hosts(**hosts: str | None) -> Plan:
    inventory = Inventory(
        hosts={name: HostSpec(address=address) for name, address in hosts.items()}
    )
    return make_plan(Workflow(name="demo", steps=[step()], inventory=inventory))


# -- hosts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "address", "place"),
    [
        ("web1", "local", "local"),
        ("web1", "localhost", "local"),
        ("local", None, "local"),
        ("web1", None, "ssh://web1"),
        ("local", "10.0.0.1", "ssh://10.0.0.1"),
        ("web1", "deploy@10.0.0.1", "ssh://deploy@10.0.0.1"),
        ("web1", "ssh://deploy@10.0.0.1:22", "ssh://deploy@10.0.0.1:22"),
        ("web1", "http://10.0.0.2:7072", "http://10.0.0.2:7072"),
        ("web1", "fe80::1", "ssh://[fe80::1]"),
    ],
)
def test_where_a_host_is(name: str, address: str | None, place: str) -> None:
    host = with_hosts(**{name: address}).hosts[name]
    assert host.address == place
    assert host.local is (place == "local")


@pytest.mark.parametrize("inventory", [Inventory(), Inventory(groups={"g": GroupSpec()})])
def test_without_hosts_there_is_this_machine(inventory: Inventory) -> None:
    made = make_plan(Workflow(name="demo", steps=[step()], inventory=inventory))
    assert list(made.hosts) == ["local"]
    assert made.hosts["local"].local
    assert made.steps[0].hosts == ("local",)


def test_a_group_may_name_hosts_listed_nowhere_else() -> None:
    inventory = Inventory(
        hosts={"b": HostSpec(address="local")},
        groups={"g": GroupSpec(hosts=["c", "b", "c"]), "a": GroupSpec(hosts=["c"])},
    )
    made = make_plan(Workflow(name="demo", steps=[step(targets=["g"])], inventory=inventory))
    assert list(made.hosts) == ["b", "c"]
    assert made.hosts["c"].address == "ssh://c"
    assert made.hosts["c"].groups == ("a", "g")
    assert made.steps[0].hosts == ("b", "c")


# -- targets --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("targets", "hosts"), [(["web"], ("web1", "web2")), (["web", "web1", "web"], ("web1", "web2"))]
)
def test_targets(targets: list[str], hosts: tuple[str, ...]) -> None:
    assert plan(step(targets=targets)).steps[0].hosts == hosts


@pytest.mark.parametrize(
    ("limit", "hosts"), [(["web"], ["web1", "web2"]), (["db1", "web2"], ["db1", "web2"])]
)
def test_a_limit_leaves_only_these_hosts(limit: list[str], hosts: list[str]) -> None:
    made = make_plan(workflow(step(), step("two", targets=["web"])), limit=limit)
    assert list(made.hosts) == hosts
    assert made.steps[0].hosts == tuple(hosts)
    assert set(made.steps[1].hosts) == set(hosts) & {"web1", "web2"}


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: make_plan(workflow(), limit=["wbe"]),
         "workflow: limit: no host or group named 'wbe'; did you mean 'web'?"),
        (lambda: plan(step(targets=["wbe"])),
         "workflow: steps[0].targets: no host or group named 'wbe'; did you mean 'web'?"),
        (lambda: plan(step(), step("two", needs=["oen"])),
         "workflow: steps[1].needs: no step named 'oen'; did you mean 'one'?"),
    ],
)  # fmt: skip
def test_a_name_that_leads_nowhere_is_refused(make: Any, said: str) -> None:
    with pytest.raises(InvalidWorkflow) as caught:
        make()
    assert str(caught.value) == said


# -- order ----------------------------------------------------------------------------------------


def test_a_step_follows_the_one_above_unless_it_says_otherwise() -> None:
    made = plan(
        step("a"), step("b"), step("c", needs=[]), step("d", needs=["c", "a", "c"]), step("e")
    )
    assert [planned.needs for planned in made.steps] == [(), (0,), (), (0, 2), (3,)]
    assert [planned.index for planned in made.steps] == [0, 1, 2, 3, 4]


@given(st.lists(st.lists(st.integers(0, 7), max_size=3), min_size=1, max_size=8))
def test_a_cycle_is_found_exactly_if_there_is_one(needs: list[list[int]]) -> None:
    known = [[each for each in before if each < len(needs)] for before in needs]
    cycle = find_cycle(known)
    left = set(range(len(known)))
    while free := {step for step in left if not set(known[step]) & left}:
        left -= free
    assert (cycle is None) is (not left)
    if cycle is not None:
        assert cycle[0] == cycle[-1]
        assert len(set(cycle)) == len(cycle) - 1
        assert all(later in known[step] for step, later in pairwise(cycle))


# -- what a step inherits -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own", "verify", "default", "action", "expected"),
    [
        (None, False, None, "cmd.run", OnTakeover.RERUN),
        (None, False, None, "python.call", OnTakeover.ASK),
        (None, False, "fail", "python.call", OnTakeover.FAIL),
        (None, True, "fail", "python.call", OnTakeover.VERIFY),
        ("rerun", True, "fail", "python.call", OnTakeover.RERUN),
    ],
)
def test_on_takeover(
    own: str | None, verify: bool, default: str | None, action: str, expected: OnTakeover
) -> None:
    one = step(on_takeover=own, verify=Verify(cmd="true") if verify else None, action=action)
    made = plan(one, defaults=Defaults(on_takeover=OnTakeover(default) if default else None))
    assert made.on_takeover_of(one, CATALOGUE[action]) is expected


def test_planning_needs_neither_yaml_nor_jinja() -> None:
    """So that a workflow built in Python runs where they are not installed."""
    script = (
        "import sys; from tenure.workflow import plan, spec; "
        "print(sorted({'yaml', 'jinja2'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
