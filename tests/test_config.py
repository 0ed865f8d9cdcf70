"""Settings: where they come from, what they may be, and how wrong ones are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenure.config import (
    READERS,
    InvalidSettings,
    Settings,
    data_folder,
    load_settings,
    shown_value,
)
from tenure.runtime.options import LEASE_RULES
from tenure.workflow.spec import CallbackSpec


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home/.config/tenure").mkdir(parents=True)
    (tmp_path / "work").mkdir()
    return tmp_path


def load(home: Path, flags: dict[str, object] | None = None, /, **environ: str) -> Settings:
    return load_settings(
        flags, environ={"HOME": str(home / "home"), **environ}, folder=home / "work"
    )


def users(home: Path, text: str) -> None:
    (home / "home/.config/tenure/tenure.toml").write_text(text)


def here(home: Path, text: str) -> None:
    (home / "work/tenure.toml").write_text(text)


def problems(home: Path, /, **environ: str) -> str:
    with pytest.raises(InvalidSettings) as refused:
        load(home, **environ)
    return str(refused.value)


# -- defaults and sources -------------------------------------------------------------------------


def test_defaults_are_those_of_the_documentation(home: Path) -> None:
    found = load(home)
    expected = {
        "lease_duration": "1m",
        "renew_interval": "20s",
        "visibility_timeout": "30s",
        "poll_interval": "1s",
        "reconcile_interval": "5s",
        "control_interval": "500ms",
        "claim_batch": "10",
        "max_takeovers": "5",
        "drain_timeout": "30s",
        "listen": "127.0.0.1:8080",
        "gateway_rate": "500",
        "gateway_run_tasks": "200000",
        "callbacks": "none",
        "callback_attempts": "8",
        "callback_delay": "5s",
        "callback_backoff": "4",
        "callback_max_delay": "1h",
        "callback_timeout": "15s",
        "callback_allow_private": "false",
        "callback_flush": "5s",
        "progress_interval": "0s",
        "summary_bytes": "4096",
        "log_cap": "10485760",
        "task_groups": "true",
        "inherit_env": "false",
        "pass_env": "none",
        "task_user": "none",
        "python_modules": "none",
        "retention": "0s",
        "prune_rate": "100",
    }
    assert {name: shown_value(found, name) for name in expected} == expected
    assert {found.source_of(name) for name in READERS} == {"default"}
    assert set(READERS) == set(Settings.__struct_fields__) - {"sources"}


def test_the_default_store_is_sqlite_in_the_data_directory(home: Path) -> None:
    assert load(home).store == f"sqlite:///{home}/home/.local/share/tenure/runs.db"
    elsewhere = load(home, XDG_DATA_HOME="/data/with space")
    assert elsewhere.store == "sqlite:////data/with%20space/tenure/runs.db"


def test_a_relative_xdg_directory_is_ignored(home: Path) -> None:
    folder = data_folder({"HOME": "/home/me", "XDG_DATA_HOME": "data"})
    assert folder == Path("/home/me/.local/share/tenure")


def test_a_user_without_a_home_must_name_a_store(home: Path) -> None:
    with pytest.raises(InvalidSettings, match="name a store"):
        load_settings(environ={}, folder=home / "work")
    assert load_settings({"store": "memory:"}, environ={}, folder=home / "work").store == "memory:"


def test_user_file_then_working_directory_then_environment_then_flag(home: Path) -> None:
    users(home, 'store = "memory:"\nclaim_batch = 1\nmax_takeovers = 7\ndrain_timeout = "1m"')
    here(home, 'claim_batch = 2\nmax_takeovers = 8\ndrain_timeout = "2m"')
    found = load(home, {"claim_batch": 4}, TENURE_CLAIM_BATCH="3", TENURE_MAX_TAKEOVERS="9")
    assert found.store == "memory:"
    assert found.drain_timeout == 120
    assert found.max_takeovers == 9
    assert found.claim_batch == 4
    assert found.source_of("store").endswith("home/.config/tenure/tenure.toml")
    assert found.source_of("drain_timeout").endswith("work/tenure.toml")
    assert found.source_of("max_takeovers") == "environment TENURE_MAX_TAKEOVERS"
    assert found.source_of("claim_batch") == "--claim-batch"


def test_flags_and_variables_without_a_value_say_nothing(home: Path) -> None:
    assert load(home, {"store": None}, TENURE_STORE="").source_of("store") == "default"


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("drain_timeout", '"0.5s"', 0.5),
        ("drain_timeout", '"2m"', 120.0),
        ("drain_timeout", '"1h30m"', 5400.0),
        ("drain_timeout", '"0s"', 0.0),
        ("claim_batch", "25", 25),
        ("callback_backoff", "2.5", 2.5),
        ("callback_backoff", "2", 2.0),
        ("callback_allow_private", "true", True),
        ("log_cap", '"10MiB"', 10 << 20),
        ("log_cap", "0", 0),
        ("summary_bytes", '"64 KiB"', 65536),
        ("retention", '"30d"', 30 * 86400.0),
        ("listen", '"0.0.0.0:80"', "0.0.0.0:80"),
        ("listen", '"[::1]:0"', "[::1]:0"),
        ("gateway_rate", "0", 0),
        ("pass_env", '"ONE, TWO_*"', ("ONE", "TWO_*")),
    ],
)
def test_values_are_read_from_file_and_environment_alike(
    home: Path, name: str, text: str, value: object
) -> None:
    here(home, f"{name} = {text}")
    assert getattr(load(home), name) == value
    here(home, "")
    assert getattr(load(home, **{f"TENURE_{name.upper()}": text.strip('"')}), name) == value


# -- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("lease_duration = 60", 'has no unit: write "60s"'),
        ("lease_duration = true", "must be a duration"),
        ('lease_duration = "-1m"', "negative"),
        ('lease_duration = "soon"', "not a duration"),
        ('renew_interval = "0s"', "more than zero"),
        ('lease_duration = "200y"', "not a duration"),
        ('retention = "59s"', "at least 1m"),
        ('claim_batch = "many"', "whole number"),
        ("claim_batch = 1.5", "whole number"),
        ("claim_batch = true", "whole number"),
        ("claim_batch = 0", "from 1 to 1000"),
        ("claim_batch = 123456789012345678901234567890", "from 1 to 1000"),
        ("callback_backoff = nan", "number"),
        ("callback_backoff = inf", "number"),
        ("callback_backoff = 0.5", "from 1"),
        ('callback_timeout = "400d"', "callback_timeout: must be at most 1h"),
        ('callback_delay = "31d"', "callback_delay: must be at most 720h"),
        ('callback_max_delay = "31d"', "callback_max_delay: must be at most 720h"),
        ('callback_flush = "2d"', "callback_flush: must be at most 24h"),
        ('callback_allow_private = "perhaps"', "true or false"),
        ('log_cap = "10 elephants"', "not a size"),
        ("log_cap = -1", "from 0"),
        ("store = 5", "store URL"),
        ('store = "runs.db"', "store URL"),
        ("listen = 8080", "must be HOST:PORT"),
        ('listen = ":8080"', "must be HOST:PORT"),
        ('listen = "localhost"', "must be HOST:PORT"),
        ('listen = "localhost:65536"', "must be HOST:PORT"),
        ('listen = "localhost:http"', "must be HOST:PORT"),
        ("store = [1]", "a list"),
        ("[store]\nurl = 1", "a table"),
        ('lease_durations = "1m"', "did you mean 'lease_duration'?"),
        ("zzz = 1", "there is no setting 'zzz'"),
        ("= 1", "at line 1"),
        ("lease_duration = [[[[", "end of document"),
    ],
)
def test_a_wrong_file_is_refused_and_named(home: Path, text: str, said: str) -> None:
    here(home, text)
    refusal = problems(home)
    assert said in refusal
    assert str(home / "work/tenure.toml") in refusal


def test_hostile_files_are_refused(home: Path) -> None:
    path = home / "work/tenure.toml"
    path.write_bytes(b"x = '" + b"y" * 100_000 + b"'")
    assert "larger than" in problems(home)
    path.write_bytes(b"\xff\xfe\x00")
    assert "not UTF-8" in problems(home)
    path.write_text("x = " + "[" * 30_000)
    assert "nested too deeply" in problems(home)
    path.write_text("claim_batch = " + "9" * 5_000)
    assert str(path) in problems(home)
    path.unlink()
    path.mkdir()
    assert "cannot be read" in problems(home)


def test_all_problems_are_reported_together(home: Path) -> None:
    here(home, 'lease_duration = 1\nfoo = 2\nclaim_batch = "x"')
    refusal = problems(home, TENURE_LOG_CAP="huge")
    assert refusal.count("\n") == 3


def test_the_environment_is_named_in_refusals(home: Path) -> None:
    assert "environment TENURE_LEASE_DURATION" in problems(home, TENURE_LEASE_DURATION="5")


# -- whom to tell ---------------------------------------------------------------------------------


def test_targets_of_callbacks_are_tables(home: Path) -> None:
    here(
        home,
        """
        [[callbacks]]
        url = "https://ops.example.com/tenure"
        events = ["run", "step"]
        secret_env = "TENURE_HOOK_OPS"
        headers = {X-Team = "web"}
        [[callbacks]]
        url = "https://audit.example.com/"
        """,
    )
    found = load(home)
    assert found.callbacks == (
        CallbackSpec(
            url="https://ops.example.com/tenure",
            events=("run", "step"),
            secret_env="TENURE_HOOK_OPS",
            headers={"X-Team": "web"},
        ),
        CallbackSpec(url="https://audit.example.com/"),
    )
    assert found.source_of("callbacks").endswith("work/tenure.toml")
    assert shown_value(found, "callbacks") == "2 in all"


def test_origins_of_secrets(home: Path) -> None:
    here(home, '[hooks.SHOP]\norigins = ["https://shop.example", "http://[::1]:80/"]')
    in_file = load(home).hooks
    words = "SHOP=https://SHOP.example SHOP=http://[::1] TENURE_HOOK_OPS=https://a.b"
    found = load(home, TENURE_HOOKS=words)
    assert in_file == {"TENURE_HOOK_SHOP": ("https://shop.example:443", "http://[::1]:80")}
    assert found.hooks == in_file | {"TENURE_HOOK_OPS": ("https://a.b:443",)}
    assert shown_value(found, "hooks") == "2 in all"


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ("[hooks]\nSHOP = []", "are tables: [hooks.NAME] with origins"),
        ("[hooks.SHOP]\norigin = []", "are tables: [hooks.NAME] with origins"),
        ("[hooks.shop]\norigins = []", "'shop' must be A-Z, 0-9 or _"),
        ('[hooks.SHOP]\norigins = "https://a.b"', "SHOP: origins must be a list"),
        ('[hooks.SHOP]\norigins = ["a.b"]', "SHOP: origins must be a list"),
        ('[hooks.SHOP]\norigins = ["https://a.b/path"]', "SHOP: origins must be a list"),
        ('[hooks.SHOP]\norigins = ["https://me@a.b"]', "SHOP: origins must be a list"),
    ],
)
def test_what_is_no_origin_is_refused(home: Path, table: str, problem: str) -> None:
    here(home, table)
    assert f"hooks: {problem}" in problems(home)


def test_targets_of_the_working_directory_take_the_place_of_the_users(home: Path) -> None:
    users(home, '[[callbacks]]\nurl = "https://mine.example.com/"')
    assert len(load(home).callbacks) == 1
    here(home, "callbacks = []")
    assert load(home).callbacks == ()


def test_every_mistake_in_a_target_is_named_with_its_file(home: Path) -> None:
    here(
        home,
        """
        [[callbacks]]
        uri = "https://ops.example.com/"
        events = ["runs"]
        secret_env = "AWS_SECRET_ACCESS_KEY"
        [[callbacks]]
        url = "ops.example.com"
        headers = {"a b" = "c"}
        """,
    )
    file = home / "work/tenure.toml"
    assert problems(home).splitlines() == [
        f"{file}: callbacks[0].uri: unknown key 'uri'; did you mean 'url'?",
        f"{file}: callbacks[0].url: 'url' is missing",
        f"{file}: callbacks[0].events[0]: must be one of run, step, host, not 'runs'; did you mean "
        "'run'?",
        f"{file}: callbacks[0].secret_env: must be TENURE_HOOK_ and then A-Z, 0-9 or _; name it "
        "TENURE_HOOK_AWS_SECRET_ACCESS_KEY",
        f"{file}: callbacks[1].url: must begin with http:// or https://",
        f"{file}: callbacks[1].headers['a b']: is no name a header could have",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('callbacks = "https://ops.example.com/"', "are tables, [[callbacks]]"),
        ('callbacks = {url = "https://ops.example.com/"}', "must be a list, not a map"),
        ("callbacks = 5", "must be a list, not 5"),
        ("callbacks = [5]", "callbacks[0]: must be a map, not 5"),
        ("[[callbacks]]\nurl = 2026-05-01", "a date cannot be in a workflow"),
        ("callbacks = [" + "{}," * 21 + "]", "has 21 entries, more than 20"),
        ("callbacks = [" + "[" * 200 + "]" * 200 + "]", "nested more than"),
    ],
)
def test_targets_that_are_none_are_refused(home: Path, text: str, said: str) -> None:
    here(home, text)
    assert said in problems(home)


def test_targets_do_not_come_from_the_environment(home: Path) -> None:
    said = problems(home, TENURE_CALLBACKS="https://ops.example.com/")
    assert "environment TENURE_CALLBACKS" in said
    assert "stand in tenure.toml" in said


# -- timings that must fit together ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "rule"),
    [
        ({"TENURE_RENEW_INTERVAL": "31s", "TENURE_VISIBILITY_TIMEOUT": "40s"}, 0),
        ({"TENURE_VISIBILITY_TIMEOUT": "20s"}, 1),
        ({"TENURE_VISIBILITY_TIMEOUT": "61s"}, 1),
        ({"TENURE_POLL_INTERVAL": "7.6s"}, 2),
    ],
)
def test_timings_that_cannot_work_name_the_broken_rule(
    home: Path, environ: dict[str, str], rule: int
) -> None:
    refusal = problems(home, **environ)
    assert refusal.startswith(f"{LEASE_RULES[rule].text} does not hold: ")
    assert refusal.count("does not hold") == 1
    assert f"(environment {next(iter(environ))})" in refusal
    assert "(default)" in refusal


def test_timings_at_the_edge_of_the_rules_are_accepted(home: Path) -> None:
    found = load(
        home,
        TENURE_LEASE_DURATION="8s",
        TENURE_RENEW_INTERVAL="4s",
        TENURE_VISIBILITY_TIMEOUT="8s",
        TENURE_POLL_INTERVAL="1s",
    )
    assert all(rule.holds(found) for rule in LEASE_RULES)


@pytest.mark.parametrize(
    ("lease", "renew", "hidden"),
    [
        ("1m", "20s", "30s"),  # as documented
        ("20s", "5s", "10s"),
        ("2m", "30s", "1m"),
        ("1m", "30s", "45s"),  # the edge of the rules: half the lease would be one renewal
    ],
)
def test_an_unset_visibility_timeout_follows_from_the_lease(
    home: Path, lease: str, renew: str, hidden: str
) -> None:
    here(home, f'lease_duration = "{lease}"\nrenew_interval = "{renew}"')
    found = load(home)
    assert shown_value(found, "visibility_timeout") == hidden
    assert found.source_of("visibility_timeout") == "follows from lease_duration, renew_interval"


def test_only_what_was_said_is_named_as_what_it_follows_from(home: Path) -> None:
    found = load(home, TENURE_LEASE_DURATION="2m")
    assert found.visibility_timeout == 60
    assert found.source_of("visibility_timeout") == "follows from lease_duration"


def test_a_visibility_timeout_that_was_given_stays_and_is_judged(home: Path) -> None:
    refusal = problems(home, TENURE_LEASE_DURATION="20s", TENURE_VISIBILITY_TIMEOUT="30s")
    assert "visibility_timeout is 30s (environment TENURE_VISIBILITY_TIMEOUT)" in refusal
