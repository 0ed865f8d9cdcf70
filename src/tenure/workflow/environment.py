"""Variables as the environment of a process.

Every variable with a valid shell name is passed on, except names that control processes (``PATH``,
``LD_PRELOAD`` …): setting a variable must not decide which program runs or what it loads. Those
need an explicit ``args.env``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from tenure.model.errors import ExpressionError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_STEERING_NAMES = """
    PATH HOME SHELL PWD OLDPWD TMPDIR IFS ENV OPTIND POSIXLY_CORRECT SHELLOPTS BASHOPTS PS1 PS2 PS3
    PS4 PROMPT_COMMAND CDPATH GLOBIGNORE EXECIGNORE FIGNORE FPATH ZDOTDIR INPUTRC HISTFILE
    EDITOR VISUAL PAGER BROWSER LESSOPEN LESSCLOSE TERMINFO TERMCAP MAKEFLAGS MAKEFILES AWKPATH
    AWKLIBPATH PERLLIB NODE_OPTIONS NODE_PATH CLASSPATH JAVA_TOOL_OPTIONS JDK_JAVA_OPTIONS
    _JAVA_OPTIONS PHPRC PHP_INI_SCAN_DIR TCLLIBPATH GCONV_PATH LOCPATH NLSPATH HOSTALIASES
    RES_OPTIONS LOCALDOMAIN GLIBC_TUNABLES CURL_HOME WGETRC NETRC
"""
_STEERING = frozenset(_STEERING_NAMES.split())
_STEERING_STARTS = (
    "LD_",
    "DYLD_",
    "BASH_",
    "PYTHON",
    "PERL5",
    "RUBY",
    "GEM_",
    "LUA_",
    "GIT_",
    "SSH_",
    "SUDO_",
    "XDG_",
    "OPENSSL_",
    "MALLOC_",
    "SYSTEMD_",
    "TENURE_",
)
LONGEST_ENTRY = 128 * 1024 - 1
"""Linux starts no process with a longer ``NAME=value``."""


class HostExports(dict[str, dict[str, Any]]):
    """What each host exported: the variable ``hosts``. Too large for an environment."""


class Scope(dict[str, Any]):
    """The variables one host sees. Read-only by convention, so its environment is made once."""

    __slots__ = ("_added", "_environment", "exported", "outer")

    def __init__(self, variables: Mapping[str, Any], exported: Mapping[str, Any]) -> None:
        super().__init__(variables)
        self.exported = exported
        self.outer: Scope | None = None
        """The scope that this one extends."""
        self._added: Mapping[str, Any] = {}
        self._environment: dict[str, str] | None = None

    def adding(self, variables: Mapping[str, Any]) -> Scope:
        inner = Scope(self, self.exported)
        inner.update(variables)
        inner.outer, inner._added = self, variables
        return inner

    @property
    def environment(self) -> dict[str, str]:
        if self._environment is None:
            if self.outer is None:
                self._environment = _environment(self, self.exported)
            else:
                self._environment = self.outer.environment.copy()
                for name, value in self._added.items():
                    if reaches_processes(name):
                        _put(self._environment, name, value)
        return self._environment


def environment_of(scope: Mapping[str, Any]) -> dict[str, str]:
    """A new dict. ``ExpressionError`` names a variable that no environment can hold."""
    if isinstance(scope, Scope):
        return scope.environment.copy()
    return _environment(scope, {})


def _environment(scope: Mapping[str, Any], exported: Mapping[str, Any]) -> dict[str, str]:
    env: dict[str, str] = {}
    for name, value in scope.items():
        if reaches_processes(name) and type(value) is not HostExports:
            _put(env, name, value)
    entries = scope.get("env")
    if isinstance(entries, dict) and not isinstance(entries, HostExports):
        # A map in the variable ``env`` was the environment of older files.
        for name, value in entries.items():
            if reaches_processes(name) and name not in exported:
                _put(env, name, value)
    return env


def _put(env: dict[str, str], name: str, value: Any) -> None:
    text = text_of(value)
    if len(text) + len(name) > LONGEST_ENTRY and not isinstance(value, str):
        return  # data for templates, not for a shell
    env[name] = entry(name, text)


def entry(name: str, text: str) -> str:
    """``text`` if it is a valid value for ``name`` in an environment. ``ExpressionError``."""
    if text.isascii() and len(text) < 1024 and "\0" not in text:
        return text
    if "\0" in text:
        raise ExpressionError(f"variable {name!r} holds a NUL character: no environment can")
    try:
        size = len(text.encode()) + len(name)
    except UnicodeEncodeError as error:
        raise ExpressionError(f"variable {name!r} holds text that is no Unicode") from error
    if size > LONGEST_ENTRY:
        raise ExpressionError(
            f"variable {name!r} is too long for an environment ({size} bytes)",
            hint="put it into a file and pass its name",
        )
    return text


@lru_cache(maxsize=4096)
def reaches_processes(name: str) -> bool:
    return (
        _NAME.fullmatch(name) is not None
        and name not in _STEERING
        and not name.startswith(_STEERING_STARTS)
    )


def text_of(value: Any) -> str:
    """A value as text, in the environment and within other text."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    return msgspec.json.encode(value).decode()
