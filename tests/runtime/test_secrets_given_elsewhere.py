"""What is kept with a run must not have a secret's value in it, whoever put it there."""

from __future__ import annotations

from typing import Any

import pytest

import tenure
from tenure.model.errors import InvalidOptions, RunNotFound
from tenure.stores.sqlite import SQLiteStore
from tests.runtime.conftest import NewRunner
from tests.runtime.puppets import shell, workflow

SECRET = "Zqplanted|secret7"
RUN = "run-with-a-plant"
FLOW = workflow(shell("one", "true"), secrets=["tok"])


@pytest.mark.parametrize("queued", [False, True])
@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({"vars": {"url": f"http://u:{SECRET}@h"}}, "variable url"),
        ({"vars": {"url": "http://u:Zqplanted%7Csecret7@h"}}, "variable url"),
        ({"vars": {"deep": [{"down": SECRET}]}}, "variable deep"),
        ({"vars": {f"x{SECRET}": 1}}, "variable x***"),
        ({"labels": {"l": SECRET}}, "label l"),
        ({"labels": {SECRET: "l"}}, "label ***"),
        ({"callbacks": [{"url": f"https://h/{SECRET}"}]}, "callback 1, its url"),
        (
            {"callbacks": [{"url": "https://h/", "headers": {"X-Key": SECRET}}]},
            "callback 1, its X-Key",
        ),
    ],
)
async def test_it_is_refused_by_its_place_before_anything_is_stored(
    sqlite: SQLiteStore, new_runner: NewRunner, given: dict[str, Any], place: str, queued: bool
) -> None:
    if "callbacks" in given:
        given = {"callbacks": [tenure.CallbackSpec(**each) for each in given["callbacks"]]}
    options = tenure.RunOptions(run_id=RUN, secrets={"tok": SECRET}, **given)
    runner = new_runner(sqlite)
    with pytest.raises(InvalidOptions) as refused:
        await (runner.submit if queued else runner.run)(FLOW, options)
    [said] = refused.value.problems
    assert said.startswith(f"{place}: the value of the secret tok is in it")
    assert SECRET not in said
    with pytest.raises(RunNotFound):
        await sqlite.get_run(RUN)


async def test_the_message_says_what_to_do(sqlite: SQLiteStore, new_runner: NewRunner) -> None:
    given = tenure.RunOptions(secrets={"tok": SECRET}, vars={"a": SECRET}, labels={"b": SECRET})
    with pytest.raises(InvalidOptions) as refused:
        await new_runner(sqlite).run(FLOW, given)
    assert refused.value.problems == (
        "variable a: the value of the secret tok is in it, and variables are kept with the run; "
        "if it is meant to be there, put it together in the step that uses it, with ${{ tok }}; "
        "if it is there by chance, the secret is too easy to guess: use another one",
        "label b: the value of the secret tok is in it, and labels are kept with the run; "
        "if it is meant to be there, leave it out; "
        "if it is there by chance, the secret is too easy to guess: use another one",
    )


async def test_a_value_under_a_secrets_name_is_one_too(
    sqlite: SQLiteStore, new_runner: NewRunner
) -> None:
    given = tenure.RunOptions(vars={"tok": SECRET, "copy": SECRET})
    with pytest.raises(InvalidOptions, match=r"^variable copy: the value of the secret tok "):
        await new_runner(sqlite).run(FLOW, given)


@pytest.mark.parametrize(("secret", "short"), [("x7", True), ("0x7", True), ("0x7f", False)])
async def test_a_short_one_is_looked_for_like_any_other_and_named_as_short(
    sqlite: SQLiteStore, new_runner: NewRunner, secret: str, short: bool
) -> None:
    """As it is masked: where output shows ``***`` for it, a variable would show what that is."""
    given = tenure.RunOptions(secrets={"tok": secret}, vars={"release": "0x7f"})
    with pytest.raises(InvalidOptions, match="use another one") as refused:
        await new_runner(sqlite).run(FLOW, given)
    assert refused.value.problems[0].endswith("one, of 4 characters at least") is short


async def test_what_stands_in_the_file_is_no_secret(
    sqlite: SQLiteStore, new_runner: NewRunner
) -> None:
    flow = workflow(shell("one", "true"), secrets=["tok"], vars={"user": "admin"})
    run = await new_runner(sqlite).run(flow, tenure.RunOptions(secrets={"tok": "admin"}))
    assert (run.status, run.vars) == ("success", {"user": "admin"})


async def test_nor_is_it_if_it_is_given_once_more(
    sqlite: SQLiteStore, new_runner: NewRunner
) -> None:
    flow = workflow(
        shell("one", "true"),
        secrets=["tok"],
        vars={"user": "admin", "admin_mail": "a@b"},
        labels={"team": "admin"},
    )
    given = tenure.RunOptions(
        secrets={"tok": "admin"},
        vars={"user": "admin", "admin_mail": "b@c"},
        labels={"team": "admin"},
    )
    run = await new_runner(sqlite).run(flow, given)
    assert (run.status, run.vars["admin_mail"]) == ("success", "b@c")
    other = tenure.RunOptions(secrets={"tok": "admin"}, vars={"user": "sysadmin"})
    with pytest.raises(InvalidOptions, match="variable user"):
        await new_runner(sqlite).run(flow, other)


async def test_what_nobody_keeps_may_have_it(new_runner: NewRunner) -> None:
    given = tenure.RunOptions(secrets={"tok": SECRET}, vars={"url": f"http://u:{SECRET}@h"})
    run = await new_runner(tracking=False).run(FLOW, given)
    assert run.status == "success"
