"""A pytest plugin that reports the version of the contract suite that was run.

It reports only if contract tests ran, also under pytest-xdist and in JUnit reports.
"""

from __future__ import annotations

import pytest

# Before the first import of the package, so that failed assertions show values.
pytest.register_assert_rewrite("tenure.testing.contracts")

_PROPERTY = "tenure_contract_suite"


def pytest_itemcollected(item: pytest.Item) -> None:
    from tenure.testing.contracts.harness import SUITE_VERSION, ContractHarness

    cls = getattr(item, "cls", None)
    if isinstance(cls, type) and issubclass(cls, ContractHarness):
        item.user_properties.append((_PROPERTY, SUITE_VERSION))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    from tenure import ports

    results = {
        name: [report for report in reports if _suite_version(report) is not None]
        for name in ("passed", "failed", "error")
        if (reports := terminalreporter.getreports(name))
    }
    versions = {_suite_version(report) for reports in results.values() for report in reports}
    if not versions:
        return
    counts = ", ".join(f"{len(reports)} {name}" for name, reports in results.items() if reports)
    suite = ", ".join(sorted(str(version) for version in versions))
    terminalreporter.write_line(
        f"tenure store contracts: suite {suite}, ports {ports.VERSION}: {counts}"
    )


def _suite_version(report: object) -> object:
    return dict(getattr(report, "user_properties", ())).get(_PROPERTY)
