"""Promises the repository makes about itself."""

from __future__ import annotations

import inspect
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tools import state_diagram

from tenure.model import errors

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(?P<info>[^\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
EXTRAS = ("postgres", "redis", "gateway")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


# -- names ----------------------------------------------------------------------------------------


def test_the_readme_can_be_read_in_one_go() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) < 150


def test_no_module_is_named_after_nothing() -> None:
    nothing = {"base", "common", "helper", "helpers", "manager", "misc", "util", "utils"}
    named = [
        shown(path)
        for folder in ("src", "tests", "tools", "benchmarks", "examples")
        for path in (ROOT / folder).rglob("*.py")
        if nothing & {path.stem, *path.relative_to(ROOT).parts[:-1]}
    ]
    assert named == []


# -- dependencies ---------------------------------------------------------------------------------


def test_constraints_pin_versions_and_name_no_registry() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pin = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9.!+]+( *;.*)?")
    odd = [line for line in lines if line.strip() and not pin.fullmatch(line)]
    assert odd == [], "only name==version: no index, no address, no comment"


def test_what_builds_and_sets_up_a_checkout_is_pinned_too() -> None:
    facts = tomllib.loads((ROOT / "pyproject.toml").read_text())
    setup = facts["dependency-groups"]["setup"]
    assert set(facts["build-system"]["requires"]) <= set(setup)
    pinned = {
        line.partition("==")[0] for line in (ROOT / "constraints.txt").read_text().splitlines()
    }
    assert {re.split(r"[<>=!~;\[ ]", each)[0] for each in setup} <= pinned


def for_users() -> list[str]:
    """What the package and those of its extras that users install depend on."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    return [*project["dependencies"], *(each for name in EXTRAS for each in extras[name])]


def test_what_users_install_is_locked_with_hashes_and_names_no_registry() -> None:
    text = (ROOT / "requirements.lock").read_text()
    entry = re.compile(
        r"([a-z0-9-]+)(==[^\s;]+)( ; [^\\\n]+)?(?: \\\n    --hash=sha256:[0-9a-f]{64})+\n"
    )
    assert entry.sub("", text) == "", "only versions and hashes: no index, no address, no comment"
    locked = {found[1]: found[1] + found[2] for found in entry.finditer(text)}
    needed = {re.split(r"[<>=!~;\[ ]", each)[0] for each in for_users()}
    assert needed | {"psycopg-binary", "psycopg-pool"} <= set(locked)
    pinned = set((ROOT / "constraints.txt").read_text().split())
    assert set(locked.values()) <= pinned, "the versions that the tests run with"


def test_no_dependency_is_of_a_version_that_promises_nothing() -> None:
    assert [each for each in for_users() if re.search(r">=0\.0\b", each)] == []


def test_a_dependency_that_may_break_with_each_minor_version_is_bounded() -> None:
    early = [each for each in for_users() if re.search(r">=0\.", each)]
    assert early
    bounds = {each: re.sub(r".*>=0\.(\d+).*", r"\1", each) for each in early}
    assert [each for each in early if not each.endswith(f",<0.{int(bounds[each]) + 1}")] == []


def test_all_that_is_installed_is_installed_as_pinned() -> None:
    """Nor are versions anywhere else, where `make lock` would not find them."""
    makefile = (ROOT / "Makefile").read_text()
    assert "==" not in makefile
    installs = [line for line in makefile.splitlines() if "pip install" in line]
    assert installs
    assert all("-c constraints.txt" in line for line in installs)
    builds = [line for line in makefile.splitlines() if re.search(r"\s-e\s", line)]
    assert builds
    assert all("--no-build-isolation" in line for line in builds), (
        "pip constrains no isolated build"
    )


def test_no_file_that_installs_names_a_registry() -> None:
    address = re.compile(r"--(extra-)?index-url[= ]+\S|--find-links|--trusted-host|\b\w+://\S+")
    for name in ("pyproject.toml", "Makefile", "constraints.txt", "requirements.lock", ".ci/run"):
        text = (ROOT / name).read_text()
        assert [found.group() for found in address.finditer(text)] == [], name


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (None, "{python} cannot be run"),
        (
            "#!/bin/sh\ncase $1 in --version) echo Python 3.9.1;; *) exit 1;; esac",
            "is Python 3.9.1",
        ),
    ],
    ids=["absent", "old"],
)
def test_make_says_what_is_wrong_with_python(
    tmp_path: Path, script: str | None, words: str
) -> None:
    python = tmp_path / "python"
    if script is not None:
        python.write_text(script)
        python.chmod(0o755)
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    done = subprocess.run(
        ["make", f"PYTHON={python}", "run"], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode != 0
    assert words.format(python=python) in done.stdout
    assert "make PYTHON=python3.11 run" in done.stdout
    assert not (tmp_path / ".venv").exists()


# -- documentation --------------------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    text = FENCE.sub("", page.read_text())
    headings = re.findall(r"^#+ +(.+)$", text, re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in plain}


def test_every_relative_link_leads_somewhere() -> None:
    broken = []
    for page in PAGES:
        for link in LINK.findall(FENCE.sub("", page.read_text())):
            if "://" in link or link.startswith("mailto:"):
                continue
            name, _, anchor = link.partition("#")
            target = (page.parent / name).resolve() if name else page
            if not target.exists() or (anchor and anchor not in anchors(target)):
                broken.append(f"{shown(page)}: {link}")
    assert broken == []


def test_every_module_the_architecture_names_is_there() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    named = re.findall(r"`([a-z_/]+\.py)`", page)
    assert len(named) > 10
    assert [name for name in named if not (ROOT / "src" / "tenure" / name).is_file()] == []


def test_every_page_can_be_reached_from_the_index() -> None:
    start = ROOT / "docs" / "index.md"
    reached, open_pages = {start}, [start]
    while open_pages:
        page = open_pages.pop()
        for link in LINK.findall(FENCE.sub("", page.read_text())):
            target = (page.parent / link.partition("#")[0]).resolve()
            if target.suffix == ".md" and target.is_file() and target not in reached:
                reached.add(target)
                open_pages.append(target)
    assert [shown(page) for page in PAGES if page not in reached] == []


def runnable(page: Path) -> str:
    """The blocks marked ```python run of a page, in order: one program."""
    blocks = FENCE.finditer(page.read_text())
    return "\n".join(block["body"] for block in blocks if block["info"] == "python run")


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if runnable(page)], ids=shown)
def test_the_code_on_the_page_runs(page: Path, tmp_path: Path) -> None:
    program = tmp_path / "page.py"
    program.write_text(runnable(page))
    done = subprocess.run(
        [sys.executable, "-W", "error", program], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def test_the_pages_a_newcomer_reads_first_do_run() -> None:
    assert runnable(ROOT / "README.md")
    assert runnable(ROOT / "docs" / "quick-start.md")
    assert runnable(ROOT / "docs" / "guides" / "write-your-own-store.md")


def test_every_error_is_explained() -> None:
    explained = anchors(ROOT / "docs" / "reference" / "errors.md")
    raised = [
        name.lower()
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, errors.TenureError)
    ]
    assert len(raised) > 10
    assert sorted(set(raised) - explained) == []


def test_a_stale_state_page_is_noticed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "states.md"
    assert state_diagram.main(["--check", "--folder", str(tmp_path)]) == 1
    assert state_diagram.main(["--folder", str(tmp_path)]) == 0
    assert state_diagram.main(["--check", "--folder", str(tmp_path)]) == 0
    page.write_text(page.read_text().replace("queued --> running", "queued --> success"))
    assert state_diagram.main(["--check", "--folder", str(tmp_path)]) == 1
    assert "run `make docs`" in capsys.readouterr().err


def test_the_committed_state_page_is_fresh() -> None:
    assert state_diagram.main(["--check"]) == 0
