"""Hostile programs through the local executor: a clear reason each time, nothing left running."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from anubis.config.catalog import parse_result
from anubis.core.campaign.state_machine import (
    CampaignEvent,
    Failed,
    KeptWaiting,
    Kill,
    Launch,
    Measured,
    Started,
    TimedOut,
)
from anubis.core.records import BenchmarkSpec, MetricSpec, Node, Step, Workload
from anubis.reach.executors import local
from anubis.reach.executors.executor import SteadyClock
from anubis.reach.executors.local import LocalExecutor, this_machine
from anubis.reach.executors.machine import describe, free_port
from anubis.reach.executors.programs import order, torchrun
from anubis.reach.executors.start_settings import Program, Rendezvous, StartSettings
from tests.forked import ForkServer
from tests.patience import LIMIT_S, eventually

pytestmark = pytest.mark.long

HOSTILE = Path(__file__).parent / "hostile"
MARK = "ANUBIS_TEST_MARK"
NODE = Node(name="here", sku="any")


def spec_of(name: str, **changes: object) -> BenchmarkSpec:
    declared = {
        "version": "1",
        "summary": "",
        "stresses": "",
        "reveals": "",
        "level": "micro",
        "scope": "node",
        "duration_s": 1.0,
        "metrics": (MetricSpec(name="speed", unit="m/s", direction="higher"),),
    }
    return BenchmarkSpec(name=name, **{**declared, **changes})  # type: ignore[arg-type]


def program(file: Path, **changes: object) -> Program:
    return Program(file=file, spec=spec_of(file.stem, **changes))


def step_of(name: str, timeout_s: float = LIMIT_S, **arguments: int | str | bool) -> Step:
    return Step(
        id=f"{name}-1",
        workload=Workload.make(name, "1", arguments),
        participants=("here",),
        phase=0,
        repeat=0,
        timeout_s=timeout_s,
        exclusive=True,
    )


def bearers(mark: str) -> list[int]:
    """Every process that was started with the mark in its environment."""
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            marked = f"{MARK}={mark}".encode() in environ.read_bytes().split(b"\0")
            zombie = b") Z " in environ.with_name("stat").read_bytes()
        except OSError:
            continue
        if marked and not zombie:
            found.append(int(environ.parent.name))
    return found


def driver_environment() -> dict[str, str]:
    """Environment of a driver in a process of its own, which takes its tools from this file."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(HOSTILE.parent), *sys.path])}


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """A mark that every process of this test carries; after the test none may carry it any more."""
    monkeypatch.setenv(MARK, str(tmp_path))
    yield str(tmp_path)
    assert eventually(lambda: not bearers(str(tmp_path)))


def executor_of(*programs: Program) -> LocalExecutor:
    return LocalExecutor(NODE, {(p.spec.name, p.spec.version): p for p in programs}, parse_result)


def outcome_of(executor: LocalExecutor, step: Step) -> CampaignEvent:
    """The event that ends the step, without interference."""
    executor.launch(Launch(step=step, attempt=1))
    deadline = executor.now() + 60
    while executor.now() < deadline:
        for event in executor.wait(deadline):
            if not isinstance(event, Started | KeptWaiting):
                return event
    raise AssertionError("the step never ended")


def idle(reason: str) -> str:
    """The reason on a machine without other work."""
    return re.sub(r" and \d+ s of waiting for a processor", "", reason)


def run(file: str, timeout_s: float = LIMIT_S) -> CampaignEvent:
    hostile = program(HOSTILE / file)
    return outcome_of(executor_of(hostile), step_of(hostile.spec.name, timeout_s))


def test_a_program_that_behaves_is_measured_with_its_arguments(mark: str) -> None:
    answers = program(HOSTILE / "answers.sh")
    event = outcome_of(executor_of(answers), step_of("answers", size=4, deep=True, kind="a b"))
    assert isinstance(event, Measured)
    assert list(next(iter(event.result.series)).samples) == [1.0, 2.0]
    assert event.result.environment == {"arguments": "--deep=true --kind=a b --size=4"}


def test_a_program_that_hangs_is_timed_out(mark: str) -> None:
    event = run("hangs.py", timeout_s=1)
    assert isinstance(event, TimedOut)
    assert idle(event.reason) == "no answer within 1 s; killed"


def test_a_program_that_stops_all_that_watch_it_costs_its_step_only(mark: str) -> None:
    stops, answers = program(HOSTILE / "stops.py"), program(HOSTILE / "answers.sh")
    executor = executor_of(stops, answers)
    event = outcome_of(executor, step_of("stops", timeout_s=1))
    assert isinstance(event, TimedOut)
    assert (idle(event.reason), event.lost) == ("no answer within 1 s; killed", ())
    assert isinstance(outcome_of(executor, step_of("answers")), Measured)


def test_a_program_that_keeps_its_guardian_stopped_is_ended_from_outside(
    mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anubis.reach.executors.guardian.REPORT_PATIENCE_S", 0.5)
    event = run("keeps_stopping.py", timeout_s=3.0)  # by then it has begun to
    assert isinstance(event, TimedOut)
    assert event.lost == ()
    assert event.reason == (
        "keeps_stopping kept its guardian from reporting long past its limit of 3 s, as one that"
        " stops other processes does; all were killed"
    )


FLOOD = """
import resource
from tests.edges.test_local import *
def largest():
    return max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, -1))
before = largest()
event = run("floods.py")
print(json.dumps([event.reason, event.infrastructure, largest() - before]))
"""


def test_a_flood_is_stopped_and_costs_little_memory(mark: str) -> None:
    driver = subprocess.run(
        [sys.executable, "-c", FLOOD], env=driver_environment(), capture_output=True, check=True
    )
    reason, infrastructure, grown_kib = json.loads(driver.stdout)
    assert reason == ("floods wrote over 16 MiB to stdout (one JSON document expected); killed")
    assert not infrastructure
    assert grown_kib < 64 << 10  # of driver, guardian and program; the flood is 1 GiB


def test_half_a_document_is_refused(mark: str) -> None:
    event = run("half.py")
    assert isinstance(event, Failed)
    assert event.reason.startswith("half: not one JSON document")
    assert not event.infrastructure


def test_nan_is_refused(mark: str) -> None:
    event = run("nan.py")
    assert isinstance(event, Failed)
    assert event.reason == "nan: NaN is not JSON: expected finite numbers only"


def test_a_daemon_that_outlives_its_program_is_ended_and_noted(mark: str) -> None:
    event = run("outlived.py")
    assert isinstance(event, Measured)
    assert event.result.environment == {"processes_left_behind": 1}


def test_a_program_that_ignores_sigterm_is_killed_with_all_of_its_children(mark: str) -> None:
    event = run("stubborn.py", timeout_s=1)
    assert isinstance(event, TimedOut)
    assert idle(event.reason) == "no answer within 1 s; killed with 2 more processes"


def test_a_crash_is_reported_with_its_signal_and_last_words(mark: str) -> None:
    event = run("crashes.py")
    assert isinstance(event, Failed)
    assert event.reason == (
        'crashes was killed by SIGSEGV; last words on stderr: "about to read address 0"'
    )
    assert not event.infrastructure


def test_success_without_a_document_is_a_failure(mark: str) -> None:
    event = run("silent.py")
    assert isinstance(event, Failed)
    assert event.reason == (
        "silent exited with 0 but wrote nothing to stdout (one JSON document expected)"
    )


def test_a_program_that_does_not_apply_here_is_measured_as_such(mark: str) -> None:
    event = run("declines.py")
    assert isinstance(event, Measured)
    assert event.result.not_applicable == "no GPU here"


def test_a_file_that_cannot_be_executed_is_trouble_with_the_infrastructure(
    mark: str, tmp_path: Path
) -> None:
    text = tmp_path / "text.sh"
    text.write_text("echo not executable\n")
    event = outcome_of(executor_of(program(text)), step_of("text"))
    assert isinstance(event, Failed)
    assert "text could not be run" in event.reason
    assert event.infrastructure


def test_the_campaign_can_go_on_while_a_hostile_program_runs(mark: str) -> None:
    hangs, answers = program(HOSTILE / "hangs.py"), program(HOSTILE / "answers.sh")
    executor = executor_of(hangs, answers)
    executor.launch(Launch(step=step_of("hangs"), attempt=1))
    event = outcome_of(executor, step_of("answers"))
    assert isinstance(event, Measured)
    executor.close()
    assert not bearers(mark)


def test_a_killed_step_ends_at_once_with_all_of_its_processes(mark: str) -> None:
    executor = executor_of(program(HOSTILE / "stubborn.py"))
    executor.launch(Launch(step=step_of("stubborn"), attempt=1))
    assert eventually(lambda: len(bearers(mark)) == 5)  # front, guardian, program, 2 children
    executor.kill(Kill(step_id="stubborn-1", attempt=1, reason="not wanted"))
    events = [executor.wait(executor.now() + 30) for _ in range(2)]
    assert [type(event) for batch in events for event in batch] == [Started, Failed]
    assert not bearers(mark)


def test_a_step_of_the_wall_clock_does_not_move_the_clock_of_an_executor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = SteadyClock()
    began = clock.now()
    assert began == pytest.approx(time.time(), abs=60)
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert began <= clock.now() < began + 60


def test_waiting_without_news_ends_in_time() -> None:
    executor = executor_of()
    assert executor.wait(executor.now() + 0.01) == []
    executor.close()
    executor.close()


DRIVER = """
import sys
from tests.edges.test_local import *
executor = executor_of(program(HOSTILE / "stubborn.py"))
executor.launch(Launch(step=step_of("stubborn", timeout_s=600), attempt=1))
executor.wait(executor.now() + 600)
executor.wait(executor.now() + 600)
"""


def test_a_killed_driver_leaves_nothing_running(mark: str) -> None:
    driver = subprocess.Popen([sys.executable, "-c", DRIVER], env=driver_environment())
    assert eventually(lambda: len(bearers(mark)) == 6)  # the driver too
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    assert eventually(lambda: not bearers(mark))


Group = Callable[[str, str], LocalExecutor]


@pytest.fixture
def group(torch_forks: ForkServer, tmp_path: Path) -> Group:
    """An executor of a program of several ranks, whose launcher has loaded torch already."""

    def group(name: str, code: str) -> LocalExecutor:
        file = tmp_path / f"{name}.py"
        file.write_text("import json, os, signal, sys\n" + code)
        ranks = program(file, scope="group", launcher="torchrun")
        settings = StartSettings(python=torch_forks.python)
        return LocalExecutor(NODE, {(name, "1"): ranks}, parse_result, settings)

    return group


def test_a_single_rank_gets_the_environment_of_torchrun(
    tmp_path: Path, torch_forks: ForkServer
) -> None:
    rank = tmp_path / "rank.py"
    rank.write_text("import json, os\nprint(json.dumps(dict(os.environ)))\n")
    without_gpus = replace(describe(local.LOOPBACK, os.environ), gpus=0)
    port = free_port(local.LOOPBACK)
    pair_tests = [
        Rendezvous(address=local.LOOPBACK, port=port, processes=1, nodes=2, rank=n) for n in (0, 1)
    ]
    launchers = [
        subprocess.Popen(
            [torch_forks.python, *torchrun(pair_test, local.LOOPBACK), str(rank)],
            stdout=subprocess.PIPE,
        )
        for pair_test in pair_tests
    ]
    said = [launcher.communicate(timeout=LIMIT_S)[0] for launcher in launchers]
    for pair_test, told in zip(pair_tests, map(json.loads, said), strict=True):
        wanted = order(program(rank, launcher="torchrun"), {}, 10, without_gpus, pair_test)
        assert wanted["argv"] == [sys.executable, str(rank)]
        assert wanted["env"].pop("GLOO_SOCKET_IFNAME") == "lo"
        assert wanted["env"].pop("NCCL_SOCKET_IFNAME") == "=lo"  # and no other that begins so
        assert wanted["env"] == {name: told[name] for name in wanted["env"]}
        assert {"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_PORT"} <= set(wanted["env"])


def test_torchrun_hides_no_exit_code(mark: str, group: Group) -> None:
    code = (
        "if os.environ['RANK'] != '0':\n    sys.exit(0)\n"  # one that fails first ends the others
        "answer = {'schema': 'anubis.result/1', 'benchmark': 'declines', 'version': '1'}\n"
        "answer['not_applicable'] = 'no RDMA here'\n"
        "print(json.dumps(answer))\n"
        "sys.exit(3)\n"
    )
    event = outcome_of(group("declines", code), step_of("declines"))
    assert isinstance(event, Measured), event
    assert event.result.not_applicable == "no RDMA here"


def test_torchrun_hides_no_signal_and_no_last_words(mark: str, group: Group) -> None:
    code = "os.write(2, b'near the end\\n')\nos.kill(os.getpid(), signal.SIGSEGV)\n"
    event = outcome_of(group("crashes", code), step_of("crashes"))
    assert isinstance(event, Failed)
    assert event.reason == 'crashes was killed by SIGSEGV; last words on stderr: "near the end"'
    assert not event.infrastructure


def test_a_taken_port_is_trouble_with_the_infrastructure(
    mark: str, group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server((local.LOOPBACK, 0)) as taken:
        monkeypatch.setattr(local, "free_port", lambda address, ports: taken.getsockname()[1])
        event = outcome_of(group("unlucky", "sys.exit(1)"), step_of("unlucky"))
    assert isinstance(event, Failed)
    assert "failed to listen" in event.reason
    assert event.infrastructure


def test_a_group_on_one_machine_is_two_processes_that_meet(mark: str, group: Group) -> None:
    code = (
        "rank = os.environ['RANK']\n"
        "facts = {n: os.environ[n] for n in ('WORLD_SIZE', 'GLOO_SOCKET_IFNAME')}\n"
        "series = [{'metric': 'speed', 'device': 'cpu', 'samples': [1.0]}]\n"
        "document = {'schema': 'anubis.result/1', 'benchmark': 'meets', 'version': '1'}\n"
        "document |= {'series': series, 'environment': facts, 'not_applicable': None}\n"
        "rank == '0' and print(json.dumps(document))\n"
    )
    event = outcome_of(group("meets", code), step_of("meets"))
    assert isinstance(event, Measured), event
    gpus = this_machine().sku.endswith("x") and int(this_machine().sku.rsplit("-", 1)[1][:-1])
    world = str(gpus or 2)
    assert event.result.environment == {"WORLD_SIZE": world, "GLOO_SOCKET_IFNAME": "lo"}
