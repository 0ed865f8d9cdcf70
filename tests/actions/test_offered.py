"""Which actions there are, and where they come from."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.actions import new_registry
from tenure.actions.registry import DECLARED, MODULES, ActionRegistry, FunctionAction, action
from tenure.model.errors import InvalidAction, UnknownAction
from tenure.workflow.catalogue import Text

PLUGINS = {
    "plugin_of_a_test": """
from tenure.actions.registry import FunctionAction, action

@action("acme.decorated")
async def decorated(): ...

async def plain(): ...

INSTANCE = FunctionAction("acme.instance", plain)
TAKEN = FunctionAction("cmd.run", plain)

class Made(FunctionAction):
    def __init__(self):
        super().__init__("acme.made", plain)
""",
    "broken_plugin_of_a_test": "raise ImportError('libacme is missing')",
}
ENTRY_POINTS = """
[tenure.actions]
whole = plugin_of_a_test
one = plugin_of_a_test:decorated
instance = plugin_of_a_test:INSTANCE
made = plugin_of_a_test:Made
taken = plugin_of_a_test:TAKEN
odd = plugin_of_a_test:plain
broken = broken_plugin_of_a_test
"""


async def nothing() -> None: ...


@pytest.fixture(autouse=True)
def nothing_stays_declared() -> Iterator[None]:
    """Nor is there what other tests declared."""
    before = dict(DECLARED)
    DECLARED.clear()
    yield
    DECLARED.clear()
    DECLARED.update(before)


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed package, as the import system sees it."""
    for name, text in PLUGINS.items():
        (tmp_path / f"{name}.py").write_text(text)
    info = tmp_path / "acme_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for name in PLUGINS:
        sys.modules.pop(name, None)


def test_our_own_are_there_under_their_names() -> None:
    actions = ActionRegistry(plugins=False)
    assert set(actions) == {
        "cmd.run",
        "shell.run",
        "script.shell",
        "script.python",
        "env.set",
        "template.render",
        "file.copy",
        "http.request",
        "wait.until",
        "wait.port",
        "wait.event",
        "python.call",
    }
    assert all(action.spec.name == name for name, action in actions.items())
    assert actions["cmd.run"] is actions["cmd.run"]
    assert len(actions) == 12


def test_scripts_are_text_that_values_never_enter() -> None:
    """Everything else in them is plain text, or a variable could become code."""
    kinds = {
        (name, argument.name): argument.text
        for name, spec in ActionRegistry(plugins=False).catalogue().items()
        for argument in spec.arguments
        if argument.text is not Text.PLAIN
    }
    assert kinds == {
        ("cmd.run", "cmd"): Text.SHELL,
        ("shell.run", "script"): Text.SHELL,
        ("script.shell", "script"): Text.SHELL,
        ("script.python", "script"): Text.PYTHON,
        ("wait.until", "cmd"): Text.SHELL,
        ("python.call", "function"): Text.FIXED,
        ("template.render", "template"): Text.FIXED,
    }


def test_every_argument_is_explained() -> None:
    for name, spec in ActionRegistry(plugins=False).catalogue().items():
        assert spec.description.endswith("."), name
        for argument in spec.arguments:
            assert argument.description.endswith("."), (name, argument.name)


def test_who_starts_processes_gets_an_environment() -> None:
    catalogue = ActionRegistry(plugins=False).catalogue()
    assert {name for name, spec in catalogue.items() if spec.environment} == {
        "cmd.run",
        "shell.run",
        "script.shell",
        "script.python",
        "wait.until",
    }


def test_a_declared_action_is_there_whenever_it_was_declared() -> None:
    actions = ActionRegistry(plugins=False)
    assert "billing.close" not in actions
    action("billing.close")(nothing)
    assert "billing.close" in actions
    assert actions.catalogue()["billing.close"].name == "billing.close"


def test_registered_actions_belong_to_one_registry() -> None:
    own = FunctionAction("billing.close", nothing)
    actions = ActionRegistry(plugins=False)
    actions.register(own)
    assert actions["billing.close"] is own
    assert "billing.close" not in ActionRegistry(plugins=False)


@pytest.mark.parametrize("name", ["cmd.run", "billing.close", "billing.open"])
def test_a_taken_name_is_refused(name: str) -> None:
    actions = ActionRegistry(plugins=False)
    actions.register(FunctionAction("billing.open", nothing))
    action("billing.close")(nothing)
    with pytest.raises(InvalidAction, match="choose another name"):
        actions.register(FunctionAction(name, nothing))


def test_an_unknown_name_brings_the_nearest() -> None:
    actions = ActionRegistry(plugins=False)
    with pytest.raises(UnknownAction) as refused:
        actions["cmd.rum"]
    assert str(refused.value) == "there is no action 'cmd.rum'; did you mean 'cmd.run'?"
    with pytest.raises(UnknownAction, match=r"there are: cmd\.run, env\.set"):
        actions["zzzzzzzz"]
    assert actions.get("cmd.rum") is None


@pytest.mark.usefixtures("plugins")
def test_installed_packages_bring_actions(caplog: pytest.LogCaptureFixture) -> None:
    actions = ActionRegistry()
    with caplog.at_level(logging.WARNING):
        for name in ("acme.instance", "acme.made", "acme.decorated"):
            assert actions[name].spec.name == name
        assert {"acme.decorated", "acme.instance", "acme.made", *MODULES} <= set(actions)
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 3, "each once"
    assert any("broken" in text and "libacme is missing" in text for text in told)
    assert any("taken" in text and "Tenure's own" in text for text in told)
    assert any("odd" in text and "is no action" in text for text in told)


@pytest.mark.usefixtures("plugins")
def test_what_could_not_be_loaded_is_named_when_it_is_missed() -> None:
    with pytest.raises(UnknownAction, match=r"plugin broken .* libacme is missing"):
        ActionRegistry()["acme.missing"]


@pytest.mark.usefixtures("plugins")
def test_packages_are_not_loaded_for_our_own() -> None:
    assert ActionRegistry()["cmd.run"].spec.name == "cmd.run"
    assert "plugin_of_a_test" not in sys.modules


def test_one_registry_for_the_program() -> None:
    assert new_registry() is new_registry()


def test_importing_the_package_loads_no_action() -> None:
    program = (
        "import sys, tenure.actions, tenure.transports\n"
        "ours = [name for name in sys.modules if name.startswith('tenure.')]\n"
        "print(*sorted(ours))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == ["tenure._version", "tenure.actions", "tenure.transports"]
