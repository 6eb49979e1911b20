"""What all tests share: their limits of time, and which tests run beside each other.

Workers (pytest -n) take groups of tests. A group is a file, so that what its fixtures built is
built once; beds of hosts are one group, and what needs a PostgreSQL is another. The longest groups
begin first.
"""

from __future__ import annotations

import gc
import re
import signal
import sys
from collections.abc import Callable, Generator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import workers

# The suite tries the same examples each time: what fails is due to a change, not to chance or pace.
settings.register_profile(
    "anubis",
    deadline=None,
    max_examples=30,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "search", settings.get_profile("anubis"), derandomize=False, print_blob=True
)
settings.load_profile("anubis")

ROOT = Path(__file__).parents[1]
DATA = ROOT.parent / "shared" / "data"
HOSTS, POSTGRESQL = "hosts", "postgresql"
LONGEST = (HOSTS, "tests/studies/test_studies.py", POSTGRESQL)  # would be alone at the end
ASKS_FOR_SERVER = re.compile(r'getfixturevalue\("server"\)|def test_\w+\([^)]*\bserver\b')
STARTS_PROCESSES = {"desk", "run", "forked", "site", "home", "checkout"}  # fixtures


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fast", action="store_true", help="leave out what waits for processes, but for a smoke"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Listen to Ctrl-C again: what a shell begins in its background ignores it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.path[:0] = [place for place in workers.places_of_tests if place not in sys.path]
    places = getattr(config.option, "tx", None)
    if places and set(places) == {"popen"} and not config.option.collectonly:  # pytest -n
        forked = workers.Workers(config.invocation_params.args)
        config.add_cleanup(forked.end)
        if forked.ready:  # else each worker collects for itself, and tells why it cannot
            config.option.tx = [f"popen//python={forked.python}"] * len(places)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if "real" in getattr(item, "fixturenames", ()) and not item.get_closest_marker("twin"):
            raise pytest.UsageError(
                f"{item.nodeid} needs real data, which most people do not have: name the test "
                'that shows the same on made data, @pytest.mark.twin("test_…")'
            )
    if config.getoption("fast"):
        left_out = [item for item in items if waits(item)]
        items[:] = [item for item in items if not waits(item)]
        config.hook.pytest_deselected(items=left_out)
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: place_of(group_of(item.nodeid)))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Modules and thousands of tests live to the end: looking at them again for garbage, a hundred
    times a minute, took a tenth of the processor time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000)


@pytest.fixture(scope="session", autouse=True)
def apart_from_yours(tmp_path_factory: pytest.TempPathFactory) -> Generator[None]:
    """No test reads or writes the history and the settings of the user who runs it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANUBIS_HOME", str(tmp_path_factory.mktemp("anubis")))
        yield


@pytest.fixture(scope="session")
def real() -> Callable[[str], Path]:
    """A file of the real data beside the checkout; a twin shows the same on made data."""

    def file(name: str) -> Path:
        if not (DATA / name).exists():
            pytest.skip("the real data is not beside the checkout (../shared/data)")
        return DATA / name

    return file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        """xdist's own groups are lost with pytest 9.2, which keeps the ids of tests elsewhere."""

        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return Groups(config, log)


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
    """A test that passed at a later try is listed at the end: more of them on a quiet machine is a
    defect."""
    for report in terminalreporter.getreports("passed"):
        for loads in (value for name, value in report.user_properties if name == "repeats"):
            shown = ", ".join(f"{load:.1f}" for load in loads)
            terminalreporter.write_line(f"REPEATED at load {shown}: {report.nodeid}")


def waits(item: pytest.Item) -> bool:
    if item.get_closest_marker("smoke"):
        return False
    starts = STARTS_PROCESSES & set(getattr(item, "fixturenames", ()))
    return bool(starts) or any(item.get_closest_marker(m) for m in ("ray", "testbed", "long"))


@cache
def has_hosts(file: str) -> bool:
    """A bed of hosts has the machine's processors to share out: one at a time."""
    return file.startswith("tests/edges/") and "mark.testbed" in (ROOT / file).read_text()


@cache
def has_server(file: str) -> bool:
    """A PostgreSQL takes two seconds to be made, in each worker that needs one."""
    return file.startswith("tests/edges/") and bool(
        ASKS_FOR_SERVER.search((ROOT / file).read_text())
    )


def place_of(group: str) -> int:
    """Place of a group among those that begin: the longest first."""
    return LONGEST.index(group) if group in LONGEST else len(LONGEST)


def group_of(nodeid: str) -> str:
    file = nodeid.partition("::")[0]
    return HOSTS if has_hosts(file) else POSTGRESQL if has_server(file) else file
