"""Undefined variables in a file with other mistakes: told at once, and never too surely."""

from __future__ import annotations

import pytest

from tenure.model.errors import InvalidWorkflow
from tests.workflow.samples import HEAD, in_step, parse


@pytest.mark.parametrize(
    "mistake",
    [
        "prority: 5",
        "defaults: {timeout: 30}",
        "inventory: {hosts: {local: {address: 'ftp://x'}}}",
        "handlers: [{name: h, action: cmd.rn, args: {cmd: '${{ also }}'}, when: 'a =='}]",
    ],
)
def test_undefined_variables_are_told_beside_other_mistakes(mistake: str) -> None:
    with pytest.raises(InvalidWorkflow) as caught:
        parse(in_step("when: zone == 'a'") + mistake)
    (zone,) = caught.value.wanted
    assert (zone.name, zone.certain) == ("zone", True)
    assert (zone.said.line, zone.said.column) == (7, 9)


@pytest.mark.parametrize(
    "line",
    [
        "timeout: 30",
        "targets: [wbe]",
        "needs: [one, two]",
        "notify: [reload]",
        "loop: ${{ a( }}",
        "verify: {cmd: \"echo '${{ x }}'\"}",
    ],
)
def test_undefined_variables_are_told_also_of_a_step_with_mistakes(line: str) -> None:
    with pytest.raises(InvalidWorkflow) as caught:
        parse(in_step(line + "\n  must_vars: [zone]"))
    assert len(caught.value.mistakes) in (1, 2)
    assert [(each.name, each.certain) for each in caught.value.wanted] == [("zone", True)]


@pytest.mark.parametrize(
    "line", ["when: a ==", "when: [a]", "when: ${{ 'a }}"], ids=["syntax", "shape", "quote"]
)
def test_what_an_unreadable_condition_guards_is_not_certain(line: str) -> None:
    with pytest.raises(InvalidWorkflow) as caught:
        parse(in_step(line + "\n  must_vars: [zone]"))
    assert [(each.name, each.certain) for each in caught.value.wanted] == [("zone", False)]


def test_what_an_unknown_action_may_export_is_not_certain() -> None:
    steps = "steps:\n- {name: a, action: cmd.rn, args: {cmd: 'echo zone=1'}}\n"
    for name, told in (("zone", []), ("other", [("other", False)])):
        with pytest.raises(InvalidWorkflow) as caught:
            parse(HEAD + steps + f"- {{name: b, action: env.set, must_vars: [{name}], args: {{}}}}")
        assert [(each.name, each.certain) for each in caught.value.wanted] == told


def test_steps_that_wait_for_one_another_may_all_have_exported() -> None:
    steps = (
        "steps:\n- {name: a, needs: [b], action: env.set, args: {env: {x: 1}}, must_vars: [y, z]}\n"
        "- {name: b, needs: [a], action: env.set, args: {env: {y: 1}}, must_vars: [x]}\n"
    )
    with pytest.raises(InvalidWorkflow) as caught:
        parse(HEAD + steps)
    assert [each.name for each in caught.value.wanted] == ["z"]


@pytest.mark.parametrize(
    "mistake", ["vars: 5", "vars: {zone: .nan}", "secrets: zone", "inventory: {vars: [zone]}"]
)
def test_nothing_is_called_undefined_where_definitions_cannot_be_read(mistake: str) -> None:
    with pytest.raises(InvalidWorkflow) as caught:
        parse(in_step("when: zone == 'a'") + mistake)
    assert caught.value.wanted == ()
