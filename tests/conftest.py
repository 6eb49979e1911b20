"""What all tests share: no test fails because the machine was slow; who runs beside whom.

Workers (pytest -n) take groups of tests. A group is a file, so that what its fixtures built is
built once; what fills the machine by itself (Ray, hosts) is one group, the first to begin.
"""

from __future__ import annotations

import sys
from collections.abc import Generator

import pytest
from hypothesis import settings

settings.register_profile("anubis", deadline=None, print_blob=True)
settings.load_profile("anubis")

FILLS_THE_MACHINE = {"ray", "testbed"}
STARTS_PROCESSES = {"desk", "run", "forked", "site", "home", "checkout"}  # fixtures


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fast", action="store_true", help="leave out what waits for processes, but for a smoke"
    )


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("fast"):
        left_out = [item for item in items if waits(item)]
        items[:] = [item for item in items if not waits(item)]
        config.hook.pytest_deselected(items=left_out)
    for item in items:
        item.add_marker(pytest.mark.xdist_group(group_of(item)))
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: group_of(item) not in LONG)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    bed = sys.modules.get("tests.edges.bed")
    if bed and call.when == "call" and bed.repeats:
        report.user_properties.append(("repeats", list(bed.repeats)))
        bed.repeats.clear()
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A test that passed at a later try is told: more of them on a quiet machine is a defect."""
    for report in terminalreporter.getreports("passed"):
        for loads in (value for name, value in report.user_properties if name == "repeats"):
            shown = ", ".join(f"{load:.1f}" for load in loads)
            terminalreporter.write_line(f"REPEATED at load {shown}: {report.nodeid}")


def waits(item: pytest.Item) -> bool:
    if item.get_closest_marker("smoke"):
        return False
    starts = STARTS_PROCESSES & set(getattr(item, "fixturenames", ()))
    return bool(starts) or any(item.get_closest_marker(m) for m in (*FILLS_THE_MACHINE, "long"))


def group_of(item: pytest.Item) -> str:
    if any(item.get_closest_marker(name) for name in FILLS_THE_MACHINE):
        return "machine"
    return item.nodeid.partition("::")[0]


# The long group first: else a worker would be left alone with it at the end.
LONG = {"machine"}
