"""Variables nobody defines: found before anything runs, and never in what would run."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.model.errors import ExpressionError, InvalidWorkflow, Wanted
from tenure.workflow.expressions import compile_condition, compile_expression
from tenure.workflow.parse import check_workflow, parse_workflow
from tenure.workflow.plan import make_plan
from tenure.workflow.spec import HostSpec, Inventory, Step, Workflow
from tenure.workflow.undefined import check_supplied
from tests.workflow.samples import CATALOGUE, HEAD, workflow

RENDER: dict[str, Any] = {"action": "template.render", "args": {"src": "a", "dest": "b"}}
"""Exports nothing."""


def wanted(text: str) -> tuple[Wanted, ...]:
    return parse_workflow(HEAD + text, CATALOGUE, source="f").wanted


def certain(text: str) -> list[str]:
    return [each.name for each in wanted(text) if each.certain]


def one(step: str, rest: str = "") -> str:
    return f"steps:\n- name: one\n  action: cmd.run\n  {step}\n{rest}"


def said(text: str) -> str:
    (only,) = wanted(text)
    return str(only.said).removeprefix("f:")


# -- what it says ---------------------------------------------------------------------------------


def test_it_names_the_place_the_nearest_name_and_the_way_out() -> None:
    text = one("when: relase != '1'\n  args: {cmd: 'true'}", "vars: {release: 1}\n")
    assert said(text) == (
        "6:9: steps[0].when: 'relase' is not defined here; did you mean 'release'? or give it "
        "with --var relase=… (vars=… in Python) or quote it ('relase') if it is meant as text"
    )


def test_the_place_is_that_of_the_name_also_inside_a_script() -> None:
    text = one("args:\n    cmd: |\n      echo hello\n      echo ${{ 'x' ~ missing }}")
    assert said(text).startswith("9:22: steps[0].args.cmd: 'missing' is not defined here; ")


# -- where a name may come from -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "rest"),
    [
        ("args: {cmd: 'echo ${{ v }}'}", "vars: {v: 1}"),
        ("args: {cmd: 'echo ${{ v }}'}", "inventory: {hosts: {a: {vars: {v: 1}}, b: }}"),
        ("args: {cmd: 'echo ${{ v }}'}", "secrets: [v]"),
        ("args: {cmd: 'echo ${{ host }} ${{ hosts.a.K }}'}", ""),
        ("loop: [1]\n  args: {cmd: 'echo ${{ item }}'}", ""),
        ("args: {cmd: 'echo $v ${v} ${v.w}'}", ""),
        ('args: {cmd: "true # ${{ v }}"}', ""),
        ("args: {cmd: 'echo ${{ v | default(1) }}'}", ""),
        ("when: v is defined and v == 1\n  args: {cmd: 'true'}", ""),
    ],
)
def test_these_are_defined_or_need_not_be(step: str, rest: str) -> None:
    assert wanted(one(step, rest)) == ()


@pytest.mark.parametrize(
    ("step", "rest"),
    [
        ("args: {cmd: 'echo ${{ v }}'}", ""),
        ("when: v\n  args: {cmd: 'true'}", ""),
        ("must_vars: [v]\n  args: {cmd: 'true'}", ""),
        ("loop: ${{ v }}\n  args: {cmd: 'true'}", ""),
        (
            "targets: [b]\n  args: {cmd: 'echo ${{ v }}'}",
            "inventory: {hosts: {a: {vars: {v: 1}}, b: }}",
        ),
    ],
)
def test_these_can_only_fail(step: str, rest: str) -> None:
    assert certain(one(step, rest)) == ["v"]


@pytest.mark.parametrize(
    "step",
    [
        "when: mode == 'x' and v == 1\n  args: {cmd: 'true'}",
        "when: mode == 'x'\n  args: {cmd: 'echo ${{ v }}'}",
        "loop: ${{ mode }}\n  args: {cmd: 'echo ${{ v }}'}",
        "args: {cmd: 'echo ${{ v if mode else 1 }}'}",
        "args: {cmd: 'true'}\n  verify: {cmd: 'test ${{ v }}'}",
    ],
)
def test_what_is_perhaps_never_looked_at_is_told_and_not_certain(step: str) -> None:
    (only,) = wanted(one(step, "vars: {mode: x}"))
    assert (only.name, only.certain) == ("v", False)


# -- what earlier steps export --------------------------------------------------------------------


def two(first: str, second: str = "when: NAME == 1") -> str:
    return (
        f"steps:\n- name: first\n  {first}\n"
        f"- name: second\n  action: cmd.run\n  args: {{cmd: 'true'}}\n  {second}\n"
    )


@pytest.mark.parametrize(
    "first",
    [
        "action: env.set\n  args: {env: {NAME: 1}}",
        "action: template.render\n  args: {src: a, dest: b}\n  expect_vars: [NAME]",
        "action: cmd.run\n  args: {cmd: './find >> $TENURE_OUTPUT'}",
        "action: script.python\n  args: {script_ref: find.py}",
        "action: python.call\n  args: {function: 'app:find'}",
    ],
)
def test_a_step_that_may_well_export_it_keeps_us_quiet(first: str) -> None:
    assert wanted(two(first)) == ()


def test_a_command_that_does_not_look_like_it_makes_a_notice_at_most() -> None:
    (only,) = wanted(two("action: cmd.run\n  args: {cmd: ./find}"))
    assert (only.name, only.certain) == ("NAME", False)
    assert str(only.said).startswith(
        "f:10:9: steps[1].when: 'NAME' is not defined here, unless a command exports it; "
    )
    assert (only.said.hint or "").endswith(
        "add expect_vars: [NAME] to the step that exports it "
        "or quote it ('NAME') if it is meant as text"
    )


def test_a_step_that_waits_for_this_one_is_not_before_it() -> None:
    setting = "action: env.set\n  args: {env: {NAME: 1}}"
    asking = "- name: ask\n  action: cmd.run\n  args: {cmd: 'true'}\n  when: NAME == 1\n"
    later = f"steps:\n{asking}- name: set\n  {setting}\n"
    assert certain(later) == ["NAME"]
    beside = f"steps:\n{asking}- name: set\n  needs: []\n  {setting}\n"
    assert wanted(beside) == (), "it may have ended by then"
    above = f"steps:\n{asking}  needs: [set]\n- name: set\n  needs: []\n  {setting}\n"
    assert wanted(above) == ()


def test_a_handler_has_what_the_steps_have_that_notify_it() -> None:
    text = (
        "steps:\n- name: one\n  loop: [1]\n  action: env.set\n  args: {env: {NAME: 1}}\n"
        "  notify: [tell]\n"
        "handlers:\n- name: tell\n  action: cmd.run\n"
        "  args: {cmd: 'echo ${{ NAME }} ${{ item }} ${{ host }}'}\n"
    )
    assert wanted(text) == ()
    (only,) = wanted(text.replace("env: {NAME", "env: {OTHER"))
    assert (only.name, only.certain, only.step) == ("NAME", False, None)
    assert wanted(text.replace("[tell]", "[]").replace("NAME: 1", "O: 1")) == (), "it never runs"


# -- with what a run is given ---------------------------------------------------------------------


def test_given_variables_are_no_longer_missing() -> None:
    made = workflow(
        Step(name="one", when="release == mode", **RENDER),
        Step(name="two", targets=["db1"], must_vars=["password"], **RENDER),
    )
    found, plan = check_workflow(made, CATALOGUE).wanted, make_plan(made)
    with pytest.raises(InvalidWorkflow) as caught:
        check_supplied(found, plan, {"mode"})
    assert [mistake.path for mistake in caught.value.mistakes] == [
        "steps[0].when",
        "steps[1].must_vars[0]",
    ]
    check_supplied(found, plan, {"mode", "release", "password"})
    check_supplied(found, make_plan(made, limit=["web"]), {"mode", "release"})


# -- what would run is never certain to fail ------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "c"])


LARGER = (
    "({} == {})", "({} != {})", "({} < {})", "({} ~ {})", "({} + {})", "({} and {})", "({} or {})",
    "({} in {})", "({} | default(1))", "({} | default({}))", "({} | string)", "({} | length)",
    "({} | first)", "({} is defined)", "({} is not undefined)", "({} is string)", "(not {})",
    "{}.k", "{}[{}]", "[{}, {}]", "{}.get({})", "({} if {} else {})", "({} < {} < {})",
)  # fmt: skip


def expressions() -> st.SearchStrategy[str]:
    atoms = NAMES | st.sampled_from(["1", "'x'", "[1, 2]", "true"])
    return st.recursive(
        atoms,
        lambda inner: st.builds(str.format, st.sampled_from(LARGER), inner, inner, inner),
        max_leaves=6,
    )


VALUES = st.sampled_from([0, 1, "x", "", [1], {"k": 1}, None, True])


@settings(max_examples=300)
@given(expressions(), st.dictionaries(NAMES, VALUES), st.booleans())
def test_an_expression_has_no_value_without_what_it_needs(
    text: str, scope: dict[str, Any], condition: bool
) -> None:
    try:
        expression = compile_condition(text) if condition else compile_expression(text)
    except ExpressionError:
        return
    assert expression.needs <= expression.names
    try:
        expression.evaluate(scope)
    except ExpressionError:
        return
    assert expression.needs <= scope.keys()


@st.composite
def workflows(draw: st.DrawFn) -> Workflow:
    """Of steps whose exports, if any, can be read off the file."""
    steps = []
    for index in range(draw(st.integers(1, 4))):
        rest: dict[str, Any] = {}
        if draw(st.booleans()):
            rest |= {"action": "env.set", "args": {"env": {draw(NAMES): "1"}}}
        else:
            rest |= RENDER
        if draw(st.booleans()):
            rest["when"] = draw(NAMES) + draw(st.sampled_from([" == 1", " is defined", " or b"]))
        rest["must_vars"] = draw(st.lists(NAMES, max_size=1))
        rest["targets"] = draw(st.sampled_from([[], ["h"], ["i"]]))
        if draw(st.booleans()):
            rest["needs"] = [f"s{n}" for n in range(index) if draw(st.booleans())]
        steps.append(Step(name=f"s{index}", **rest))
    inventory = Inventory(
        vars=draw(st.sampled_from([{}, {"a": 1}])),
        hosts={"h": HostSpec(vars=draw(st.sampled_from([{}, {"b": 1}]))), "i": HostSpec()},
    )
    return Workflow(name="drawn", steps=steps, inventory=inventory)


@pytest.mark.slow
@given(workflows(), st.sets(NAMES), st.data())
def test_what_runs_is_never_refused(
    drawn: Workflow, supplied: set[str], data: st.DataObject
) -> None:
    """Steps one after another in some order they may end in, by the rules of the reference."""
    plan = make_plan(drawn)
    exported: set[str] = set()
    left = list(plan.steps)
    broken: set[int] = set()
    while left:
        done = {step.index for step in plan.steps} - {step.index for step in left}
        turn = data.draw(st.sampled_from([step for step in left if done.issuperset(step.needs)]))
        left.remove(turn)
        for host in turn.hosts:
            has = {*plan.hosts[host].vars, *supplied, *exported}
            condition = compile_condition(turn.step.when) if turn.step.when else None
            try:
                if condition is not None and not condition.holds(dict.fromkeys(has, 1)):
                    continue
                if has.issuperset(turn.step.must_vars):
                    continue
            except ExpressionError:
                pass
            broken.add(turn.index)
        exported |= turn.step.args.get("env", {}).keys()
    refused = {
        each.step
        for each in check_workflow(drawn, CATALOGUE).wanted
        if each.certain and each.name not in supplied
    }
    assert refused <= broken
