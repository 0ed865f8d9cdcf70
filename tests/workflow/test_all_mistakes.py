"""Mistakes together: all of them, each once, in order, and an end to them."""

from __future__ import annotations

import pickle

import pytest

from tenure.model.errors import InvalidWorkflow, Mistake, TenureError
from tests.workflow.samples import HEAD, ONE_STEP, found, in_step, mistakes, parse


def test_all_mistakes_come_together_and_in_order() -> None:
    text = (
        "version: v1\nname: demo\nprority: 5\nsteps:\n"
        "- name: one\n  action: cmd.rn\n  timeout: 30\n  targets: [wbe]\n"
        "- 5\n"
        "- name: two\n  action: cmd.run\n  needs: [oen]\n  when: a ==\n"
        "  args:\n    cmd: |\n      echo\n      echo '${{ x }}'\n"
        "inventory: {hosts: {web: , web: }}\n"
    )
    assert mistakes(text) == [
        "3:1: prority: unknown key 'prority'; did you mean 'priority'?",
        "6:11: steps[0].action: no action named 'cmd.rn'; did you mean 'cmd.run'?",
        "7:12: steps[0].timeout: a duration needs a unit: 30; write 30s",
        "8:13: steps[0].targets[0]: no host or group named 'wbe'; did you mean 'web'?",
        "9:3: steps[1]: must be a map, not 5",
        "12:11: steps[2].needs[0]: no step named 'oen'; did you mean 'one'?",
        "13:9: steps[2].when: the expression ends too early",
        "17:13: steps[2].args.cmd: '${{ x }}': a value inside single quotes would not be expanded; "
        "use double quotes, or pass it by name: the variables are in the environment",
        "18:28: inventory.hosts.web: 'web' is given twice; the first is on line 18",
    ]


def test_a_mistake_is_said_once() -> None:
    """What its shape has complained about, no later check complains about again."""
    text = HEAD + "steps:\n- {name: [], action: {}, args: {cmd: x}, targets: [[]]}"
    assert [mistake.path for mistake in found(text)] == [
        "steps[0].name",
        "steps[0].action",
        "steps[0].targets[0]",
    ]


@pytest.mark.slow
def test_hosts_and_steps_are_counted() -> None:
    steps = "".join(f"- {{name: s{n}, action: cmd.run, args: {{cmd: x}}}}\n" for n in range(2001))
    assert mistakes(HEAD + "steps:\n" + steps) == ["4:1: steps: has 2001 entries, more than 2000"]
    hosts = ", ".join(f"h{n}: " for n in range(20_001))
    assert mistakes(ONE_STEP + f"inventory: {{hosts: {{{hosts}}}}}") == [
        "7:20: inventory.hosts: has 20001 entries, more than 20000"
    ]


@pytest.mark.slow
def test_hosts_that_only_groups_name_are_counted() -> None:
    groups = ", ".join(
        f"g{group}: {{hosts: [{', '.join(f'h{group}-{n}' for n in range(10_001))}]}}"
        for group in range(2)
    )
    assert mistakes(ONE_STEP + f"inventory: {{groups: {{{groups}}}}}") == [
        "7:12: inventory: more than 20000 hosts"
    ]


@pytest.mark.slow
def test_hosts_over_all_steps_are_counted() -> None:
    steps = "".join(f"- {{name: s{n}, action: cmd.run, args: {{cmd: x}}}}\n" for n in range(101))
    hosts = ",".join(f"h{n}" for n in range(10_000))
    text = HEAD + f"inventory: {{groups: {{all: {{hosts: [{hosts}]}}}}}}\nsteps:\n" + steps
    assert mistakes(text) == ["5:1: steps: more than 1000000 hosts over all steps"]


@pytest.mark.slow
def test_mistakes_without_end_are_cut() -> None:
    assert len(found(ONE_STEP + "".join(f"k{n}: 1\n" for n in range(5000)))) == 100
    targets = ", ".join(f"x{n}" for n in range(5000))
    assert len(found(in_step(f"targets: [{targets}]"))) == 100


def test_the_nearest_of_very_many_names_is_found() -> None:
    hosts = ", ".join(f"{letter}-host{n}: " for letter in "abc" for n in range(300))
    [said] = mistakes(in_step("targets: [c-hots299]") + f"inventory: {{hosts: {{{hosts}}}}}")
    assert said.endswith("did you mean 'c-host299'?")


# -- the error ------------------------------------------------------------------------------------


def test_a_mistake_is_shown_with_its_place() -> None:
    mistake = Mistake(
        source="deploy.yaml",
        line=12,
        column=5,
        path="steps[1].timeout",
        message="a duration needs a unit: 30",
        hint="write 30s",
    )
    assert str(mistake) == (
        "deploy.yaml:12:5: steps[1].timeout: a duration needs a unit: 30; write 30s"
    )
    assert str(Mistake(path="name", message="must not be empty")) == (
        "workflow: name: must not be empty"
    )
    assert str(Mistake(source="a.yaml", line=1, column=1, message="is empty")) == (
        "a.yaml:1:1: is empty"
    )


def test_the_error_holds_and_shows_them_all() -> None:
    with pytest.raises(InvalidWorkflow) as caught:
        parse(HEAD + "steps: [{name: a}, {name: b}]", "x.yaml")
    error = caught.value
    assert isinstance(error, TenureError)
    assert isinstance(error, ValueError)
    assert len(error.mistakes) == 2
    assert str(error).splitlines() == [str(mistake) for mistake in error.mistakes]
    assert pickle.loads(pickle.dumps(error)).mistakes == error.mistakes
