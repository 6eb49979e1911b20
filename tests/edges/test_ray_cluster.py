"""Steps on a real Ray of several nodes on this machine; nodes die and fall silent for good."""

from __future__ import annotations

import ast
import hashlib
import heapq
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anubis.core.campaign.state_machine import (
    CampaignEvent,
    Failed,
    Kill,
    Launch,
    Measured,
    NodeLost,
    Started,
    TimedOut,
)
from anubis.core.errors import ExecutorError
from anubis.core.records import BenchmarkSpec, MetricSpec, Readings, Result, Series, Step, Workload
from anubis.reach.executors import (
    forked_python,
    guardian,
    machine,
    node_agent,
    ray_cluster,
    ray_link,
    ray_node,
    ray_process,
)
from anubis.reach.executors.ray_cluster import RayExecutor, agents_of, newly_staged, taken_in_ray
from anubis.reach.executors.ray_link import Answer, Joined, answers_a_stranger
from anubis.reach.executors.start_settings import Program
from tests.edges.desk import Desk
from tests.patience import LIMIT_S, eventually

MARK = f"a-program-of-the-ray-tests-{os.getpid()}"  # in the argv of every program here

ANSWERS = """#!/bin/sh
echo '{"environment": {"home": "'$PWD'", "path": "'$PYTHONPATH'", "arguments": "'$*'"},
"series": [{"metric": "speed", "device": "cpu", "samples": [1, 2]}]}'
"""
SLEEPS = """#!/bin/sh
(setsid sh -c "sleep 600; :" "$1" &)
sleep 600
"""
MEETS = """
import json, os
facts = {name: os.environ.get(name) for name in ("WORLD_SIZE", "RANK", "GLOO_SOCKET_IFNAME")}
if facts["RANK"] == "0":
    series = [{"metric": "speed", "device": "cpu", "samples": [1.0]}]
    print(json.dumps({"environment": facts, "series": series}))
"""
ONE_FAILS = """
import os, sys, time
if os.environ["RANK"] == "1":
    sys.exit("the cable is loose")
time.sleep(600)
"""
STOPS = (Path(__file__).parent / "hostile" / "stops.py").read_text()
PROGRAMS = {
    "answers.sh": ANSWERS,
    "stops.sh": STOPS,
    "sleeps.sh": SLEEPS,
    "meets.py": MEETS,
    "one_fails.py": ONE_FAILS,
}


def parse(text: str, spec: BenchmarkSpec, *_: object) -> Result:
    document = json.loads(text)
    series = Readings.pack(
        Series(metric=each["metric"], device=each["device"], samples=np.array(each["samples"]))
        for each in document["series"]
    )
    return Result(series=series, environment=document["environment"])


def programs_in(folder: Path) -> dict[tuple[str, str], Program]:
    programs = {}
    for name, text in PROGRAMS.items():
        file = folder / name
        file.write_text(text)
        file.chmod(0o755)
        spec = BenchmarkSpec(
            name=file.stem,
            version="1",
            summary="",
            stresses="",
            reveals="",
            level="micro",
            scope="node" if file.suffix == ".sh" else "group",
            launcher="plain" if file.suffix == ".sh" else "torchrun",
            duration_s=1.0,
            metrics=(MetricSpec(name="speed", unit="m/s", direction="higher"),),
        )
        programs[spec.name, spec.version] = Program(file=file, spec=spec)
    return programs


def step_of(name: str, *participants: str, timeout_s: float = LIMIT_S) -> Step:
    return Step(
        id=f"{name} {'+'.join(participants)}",
        workload=Workload.make(name, "1", {"mark": MARK}),
        participants=participants,
        phase=0,
        repeat=0,
        timeout_s=timeout_s,
        exclusive=True,
    )


def news(executor: RayExecutor, count: int = 1, look_s: float = 1) -> list[CampaignEvent]:
    """The next events beside Started and Tick."""
    events: list[CampaignEvent] = []
    deadline = time.monotonic() + LIMIT_S
    while len(events) < count and time.monotonic() < deadline:
        for event in executor.wait(executor.now() + look_s):
            if not isinstance(event, Started):
                events.append(event)
    assert len(events) == count, events
    return events


def running_programs() -> list[str]:
    """The programs of these tests and their daemons, by their command lines."""
    lines = []
    for cmdline in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = cmdline.read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if MARK in line and "pytest" not in line:
            lines.append(line)
    return lines


class Cluster:
    """A head and two more Ray nodes: a test freezes the first for a while, one ends the last."""

    def __init__(self) -> None:
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        # how long raylets and drivers survive their head: a minute by default
        os.environ.update(RAY_gcs_rpc_server_reconnect_timeout_s="5")
        from ray.cluster_utils import Cluster as RayCluster

        # Ray's own health checks stay slow here: what finds the silent must be ours
        alone = {"no_monitor": True, "include_log_monitor": False}  # these two are not needed here
        head = {"include_dashboard": False, **alone}
        self.ray = RayCluster(initialize_head=True, head_node_args=head)
        others = [self.ray.add_node(num_cpus=1, num_gpus=gpus, **alone) for gpus in (0, 4)]
        self.nodes = [self.ray.head_node, *others]
        self.address: str = self.ray.address

    def name(self, index: int) -> str:
        record = next(r for r in self.records() if r["NodeID"] == self.nodes[index].node_id)
        return f"{record['NodeManagerAddress']}:{record['NodeManagerPort']}"

    def records(self) -> list[dict[str, Any]]:
        """Records as Ray keeps them, without joining it: that is for a process of its own."""
        records: list[dict[str, Any]] = self.ray.global_state.node_table()
        return records

    def raylet(self, index: int) -> int:
        (process,) = self.nodes[index].all_processes["raylet"]
        pid: int = process.process.pid
        return pid


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    yield cluster
    cluster.ray.shutdown()


NOBODY = 65534


class Intruder:
    """Another user with an account on these nodes, for as long as `with intruder:` lasts."""

    def __init__(self, cluster: Cluster, programs: Mapping[tuple[str, str], Program]) -> None:
        self.loot = Path(tempfile.mkdtemp(prefix="loot-"))
        self.loot.chmod(0o777)
        self.session = Path(cluster.nodes[0].get_session_dir_path())
        staging, _ = newly_staged(programs.values())
        digest = hashlib.sha256(ray_process.pack(staging)).hexdigest()
        shutil.rmtree(staging)
        self.planted = [self.session / "anubis" / digest[:16], Path("/tmp", f"anubis-{digest}")]
        self.pid = 0

    def __enter__(self) -> Intruder:
        reading, writing = os.pipe()
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            with suppress(BaseException):
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
                for folder in self.planted:
                    self.plant(folder)
                os.write(writing, b".")
                while os.getppid() == parent:
                    self.take_over()
                    time.sleep(0.002)
            os._exit(0)
        os.close(writing)
        assert os.read(reading, 1) == b"."
        os.close(reading)
        return self

    def __exit__(self, *_: object) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)

    def plant(self, folder: Path) -> None:
        """A program of the right name and size, and a path to it that every user can change."""
        (folder / "0").mkdir(mode=0o777, parents=True, exist_ok=True)
        evil = f"#!/bin/sh\nid -u >>{self.loot}/by\n".ljust(len(ANSWERS), "#")
        (folder / "0" / "answers.sh").write_text(evil)
        for place in (folder, folder / "0", folder / "0" / "answers.sh"):
            place.chmod(0o777)

    def take_over(self) -> None:
        """Folders of programs that another user can replace or write to."""
        for place in (self.session, Path(tempfile.gettempdir())):
            for found in place.glob("anubis*"):
                with suppress(OSError):
                    if found.stat().st_uid != NOBODY:
                        below = [entry.name for entry in found.iterdir()]
                        found.rename(found.with_name(f"{time.time_ns()}"))
                        for name in below:
                            self.plant(found / name)

    def loot_found(self) -> str:
        file = self.loot / "by"
        return file.read_text() if file.exists() else ""


@pytest.fixture(scope="module")
def intruder(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Intruder]:
    """A process that was there before the programs came, and tries to be quicker when they come."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    intruder = Intruder(cluster, programs_in(tmp_path_factory.mktemp("known")))
    yield intruder
    shutil.rmtree(intruder.loot)
    shutil.rmtree(intruder.planted[1])


@contextmanager
def on_a_busy_machine() -> Iterator[pytest.MonkeyPatch]:
    """Let Ray and agents begin as slowly as a machine may be that runs much else."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ray_link, "JOIN_DEADLINE_S", LIMIT_S)
        patch.setattr(ray_link, "PATIENCE_WITH_START_S", LIMIT_S)
        patch.setattr(ray_cluster, "START_DEADLINE_S", LIMIT_S)
        yield patch


@pytest.fixture(scope="module")
def executor(
    cluster: Cluster, intruder: Intruder, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RayExecutor]:
    """An executor for all of these tests: agents start once."""
    folder = tmp_path_factory.mktemp("programs")
    with intruder, on_a_busy_machine():
        executor = RayExecutor(cluster.address, programs_in(folder), parse)
    yield executor
    left = [agent.folder for agent in executor._agents.values() if not agent.lost]
    executor.close()
    assert not [folder for folder in left if folder.exists()]


@pytest.mark.ray
def test_every_node_runs_the_program_that_travelled_there(
    executor: RayExecutor, cluster: Cluster, intruder: Intruder
) -> None:
    names = [cluster.name(index) for index in (0, 1)]
    assert set(names) < {node.name for node in executor.nodes()}
    for name in names:
        executor.launch(Launch(step=step_of("answers", name), attempt=1))
    events = news(executor, 2)
    assert intruder.loot_found() == ""  # whose programs would have run as Ray's user
    for event in events:
        assert isinstance(event, Measured), event
        assert event.result.environment["arguments"] == f"--mark={MARK}"
        home = Path(event.result.environment["home"])
        assert home.parent.name.startswith(node_agent.FOLDERS)
        assert guardian.foreign_writers(str(home)) == ""
        assert event.result.environment["path"] == os.environ.get("PYTHONPATH", "")  # not Ray's
        assert list(next(iter(event.result.series)).samples) == [1, 2]


@pytest.mark.ray
def test_a_group_meets_and_its_first_participant_writes(
    executor: RayExecutor, cluster: Cluster
) -> None:
    names = [cluster.name(index) for index in (1, 0)]
    executor.launch(Launch(step=step_of("meets", *names), attempt=1))
    (event,) = news(executor)
    assert isinstance(event, Measured), event
    facts = event.result.environment
    assert facts["WORLD_SIZE"] == "2"
    assert facts["GLOO_SOCKET_IFNAME"]


@pytest.mark.ray
def test_a_group_of_one_cpu_node_is_two_processes(executor: RayExecutor, cluster: Cluster) -> None:
    executor.launch(Launch(step=step_of("meets", cluster.name(1)), attempt=1))
    (event,) = news(executor)
    assert isinstance(event, Measured), event
    assert event.result.environment["WORLD_SIZE"] == "2"


@pytest.mark.ray
def test_the_participant_at_fault_is_named_and_the_others_are_ended(
    executor: RayExecutor, cluster: Cluster
) -> None:
    names = [cluster.name(index) for index in (0, 1)]
    executor.launch(Launch(step=step_of("one_fails", *names), attempt=1))
    (event,) = news(executor)
    assert isinstance(event, Failed), event
    assert event.reason == (
        f'on {names[1]}: one_fails exited with 1; last words on stderr: "the cable is loose"'
    )
    assert not event.infrastructure
    assert not running_programs()


@pytest.mark.ray
def test_a_killed_step_ends_and_its_node_goes_on(executor: RayExecutor, cluster: Cluster) -> None:
    name = cluster.name(1)
    sleeps = step_of("sleeps", name)
    executor.launch(Launch(step=sleeps, attempt=1))
    assert eventually(lambda: len(running_programs()) == 2)
    executor.kill(Kill(step_id=sleeps.id, attempt=1, reason="not wanted"))
    executor.launch(Launch(step=step_of("answers", name), attempt=2))
    ended, answered = news(executor, 2)
    assert isinstance(ended, Failed)
    assert ended.reason.startswith("sleeps was ended early; killed")
    assert isinstance(answered, Measured)
    assert not running_programs()


@pytest.mark.ray
def test_a_program_that_stops_all_that_watch_it_costs_its_step_only(
    executor: RayExecutor, cluster: Cluster
) -> None:
    name = cluster.name(1)
    executor.launch(Launch(step=step_of("stops", name, timeout_s=0.5), attempt=1))
    (ended,) = news(executor)
    assert isinstance(ended, TimedOut), ended
    assert ended.reason.startswith("no answer within 0.5 s; killed")
    assert ended.lost == ()
    executor.launch(Launch(step=step_of("answers", name), attempt=1))
    assert isinstance(news(executor)[0], Measured)


SOMEBODYS_JOB = """
import sys
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
there = NodeAffinitySchedulingStrategy(sys.argv[2], soft=False)

@ray.remote(num_cpus=1, scheduling_strategy=there)
class Work:
    def has_begun(self):
        return True

work = Work.remote()
ray.get(work.has_begun.remote())
print("at work", flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def second(
    executor: RayExecutor, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RayExecutor]:
    """An executor that was given a token, and that came while others had the GPUs of a node and the
    CPU of another: its agent would have to measure beside their jobs."""
    folder = tmp_path_factory.mktemp("second")
    token = folder / "token"
    token.write_text("a" * 64)
    names = [cluster.name(index) for index in (0, 1, 2)]
    command = [sys.executable, "-c", SOMEBODYS_JOB, cluster.address, cluster.nodes[1].node_id]
    job = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with job, on_a_busy_machine() as patch:
        patch.setattr(ray_cluster, "GPU_PATIENCE_S", 3.0)
        assert job.stdout is not None
        assert job.stdout.readline() == "at work\n"
        programs = programs_in(folder)
        second = RayExecutor(cluster.address, programs, parse, names=names, token=token)
    with closing(second):
        yield second


@pytest.mark.ray
def test_a_node_of_which_another_job_of_ray_has_cpus_or_gpus_is_left_alone(
    second: RayExecutor, cluster: Cluster
) -> None:
    assert second.absent() == {
        cluster.name(1): "1 of its 1 CPUs are taken by other jobs in Ray: wait until they end",
        cluster.name(2): "4 of its 4 GPUs are taken by other jobs in Ray: wait until they end",
    }


def test_only_taken_cpus_and_gpus_of_ray_count_as_work() -> None:
    total = {"CPU": 8.0, "GPU": 4.0, "object_store_memory": 9e9, "node:10.0.0.1": 1.0}
    assert taken_in_ray(total, total) == {}
    assert taken_in_ray(total, {"CPU": 7.5, "object_store_memory": 8e9, "node:10.0.0.1": 1.0}) == {
        "CPU": 0.5,
        "GPU": 4.0,
    }
    assert taken_in_ray(total, None) == {}


@pytest.mark.ray
def test_a_node_that_dies_is_lost_and_the_others_are_not(
    executor: RayExecutor, cluster: Cluster, capfd: pytest.CaptureFixture[str]
) -> None:
    doomed, partner = cluster.name(2), cluster.name(0)
    executor.launch(Launch(step=step_of("one_fails", partner, doomed), attempt=7))
    executor.kill(Kill(step_id="no such step", attempt=1, reason="must not disturb"))
    executor.launch(Launch(step=step_of("sleeps", doomed), attempt=1))
    assert eventually(running_programs)
    os.kill(cluster.raylet(2), signal.SIGKILL)
    (lost,) = news(executor)
    assert isinstance(lost, NodeLost), lost
    assert lost.node == doomed
    executor.launch(Launch(step=step_of("answers", partner), attempt=3))
    executor.launch(Launch(step=step_of("answers", doomed), attempt=3))
    again, answered = news(executor, 2)
    assert isinstance(again, NodeLost)
    assert isinstance(answered, Measured)
    assert eventually(lambda: not running_programs()), running_programs()
    assert eventually(lambda: [each["Alive"] for each in cluster.records()].count(False) == 1)
    assert capfd.readouterr().out == ""  # stdout is for results, whatever Ray has to say


@pytest.mark.ray
def test_a_node_that_falls_silent_is_lost(executor: RayExecutor, cluster: Cluster) -> None:
    silent = cluster.name(1)
    executor.launch(Launch(step=step_of("sleeps", silent), attempt=2))  # the first was killed
    assert eventually(running_programs)
    raylet = cluster.raylet(1)
    frozen = [raylet, *children(raylet)]
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    try:
        (lost,) = news(executor)
        assert isinstance(lost, NodeLost), lost
        assert lost.node == silent
    finally:
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)
    assert eventually(lambda: not running_programs()), running_programs()


@pytest.mark.ray
def test_closing_ends_running_programs_and_closing_again_does_nothing(
    executor: RayExecutor, cluster: Cluster
) -> None:
    executor.launch(Launch(step=step_of("sleeps", cluster.name(0)), attempt=99))
    assert eventually(running_programs)
    executor.close()
    executor.close()
    assert eventually(lambda: not running_programs()), running_programs()


@pytest.mark.ray
def test_an_open_ray_cluster_is_recognised_and_used_without_the_token_that_was_given(
    second: RayExecutor, cluster: Cluster
) -> None:
    """With a token its driver would refuse the agents, which have none."""
    assert second.is_open
    second.launch(Launch(step=step_of("answers", cluster.name(0)), attempt=1))
    assert isinstance(news(second)[0], Measured)
    assert answers_a_stranger("127.0.0.1:1") is None


@pytest.mark.ray
def test_one_of_two_drivers_measures_and_no_end_of_the_head_is_a_verdict(
    desk: Desk, second: RayExecutor, cluster: Cluster
) -> None:
    """Frozen it delays no closing driver; killed it ends no driver."""
    way = desk.write("way.yaml", {"executor": "ray", "address": cluster.address})
    words = ["accept", "--cluster", str(way), "--suite", desk.suite(desk.held_flow())]
    first = desk.start(*words)
    assert eventually(desk.began), first.communicate()
    refused = desk.ask(*words)
    assert (refused.code, refused.out) == (2, "")
    assert 'of cluster "way" is held by campaign "accept-' in refused.err
    assert "this ray cluster is open: anyone who reaches its ports" in refused.err

    (head,) = cluster.nodes[0].all_processes["gcs_server"]
    os.kill(head.process.pid, signal.SIGSTOP)
    second.close()
    os.kill(head.process.pid, signal.SIGKILL)
    out, err = first.communicate(timeout=LIMIT_S)
    assert (first.returncode, out) == (2, "")
    *_, last = err.splitlines()
    why = r"anubis: error: (no node can be reached any more|\d of \d nodes fell silent): "
    assert re.match(why, last), err
    assert "; go on with: anubis accept --resume --campaign accept-" in last
    assert "Traceback" not in err


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


# --- without a Ray -------------------------------------------------------------------------


def test_a_program_that_is_not_as_it_was_sent_is_put_there_again(tmp_path: Path) -> None:
    source, places = tmp_path / "source", tmp_path / "places"
    (source / "beside").mkdir(parents=True)
    places.mkdir(mode=0o700)
    programs_in(source)
    (source / "beside" / "table.csv").write_text("a,b")
    package = ray_process.pack(source)
    sent = node_agent.ProgramFolder(package, hashlib.sha256(package).hexdigest())
    sent.settle([str(places)])
    assert sent.folder.stat().st_mode & 0o7777 == 0o700
    whole, missing, changed, led_away = (
        sent.folder / name for name in ("answers.sh", "meets.py", "beside/table.csv", "sleeps.sh")
    )
    kept = whole.stat().st_ino
    missing.unlink()
    changed.write_text("a;b")  # of the same size
    led_away.rename(sent.folder / "elsewhere")
    led_away.symlink_to("elsewhere")
    sent.restore()
    assert whole.stat().st_ino == kept  # a process may be running it
    assert os.access(whole, os.X_OK)
    assert (missing.read_text(), changed.read_text()) == (MEETS, "a,b")
    assert not led_away.is_symlink()
    (sent.folder / "elsewhere").unlink()
    assert len([*sent.folder.rglob("*")]) == len(PROGRAMS) + 2


def test_programs_that_were_changed_on_the_way_are_refused(tmp_path: Path) -> None:
    programs_in(tmp_path)
    package = ray_process.pack(tmp_path)
    (tmp_path / "answers.sh").write_text(ANSWERS.replace("speed", "haste"))
    with pytest.raises(RuntimeError, match="came are not those that were sent"):
        node_agent.ProgramFolder(ray_process.pack(tmp_path), hashlib.sha256(package).hexdigest())


@pytest.fixture
def street() -> Iterator[Path]:
    """A folder that every user can enter, unlike those of a test."""
    folder = Path(tempfile.mkdtemp(prefix="street-")).resolve()
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_a_folder_that_others_could_exchange_is_refused_in_one_sentence(street: Path) -> None:
    """The owner of a folder above ours, or a user who may write to one, decides what is at our
    path."""
    open_to_all, shut = street / "open", street / "shut"
    for folder in (open_to_all / "below", shut / "below"):
        folder.mkdir(parents=True)
        folder.chmod(0o777)
    for mode, trouble in (
        (0o777, f'any user may change "{open_to_all}" (mode 0777)'),
        (0o775, f'group {open_to_all.stat().st_gid} may change "{open_to_all}" (mode 0775)'),
        (0o1777, f'any user may change "{open_to_all / "below"}" (mode 0777)'),
    ):
        open_to_all.chmod(mode)
        assert guardian.foreign_writers(str(open_to_all / "below")) == trouble
    shut.chmod(0o700)  # no other user gets below it
    assert guardian.foreign_writers(str(shut / "below")) == ""
    if os.geteuid() == 0:
        open_to_all.chmod(0o755)
        os.chown(open_to_all, NOBODY, NOBODY)
        theirs = f'"{open_to_all}" belongs to nobody'
        assert guardian.foreign_writers(str(open_to_all)) == theirs
        with pytest.raises(RuntimeError, match=re.escape(theirs)):
            node_agent.make_own_folder("mine", [str(open_to_all), str(open_to_all)])
    made = node_agent.make_own_folder("mine", [str(open_to_all / "below"), str(shut)])
    assert made.parent == shut


# where each is mounted: what a kubelet made for this pod alone, with and without a fsGroup; a
# folder of any user; one that has the name of a kubelet's and belongs to another user; one below
MOUNTED = """
at=$1; pod=$1/pods/0d5f/volumes/kubernetes.io~empty-dir
mkdir -p $pod/plain $pod/group $pod/theirs $at/shared $at/a $at/b $at/c $at/d
chmod 0777 $pod/plain $pod/theirs $at/shared; chmod 2777 $pod/group; chown 65534 $pod/theirs
mount --bind $pod/plain $at/a; mount --bind $pod/group $at/b
mount --bind $at/shared $at/c; mount --bind $pod/theirs $at/d
mkdir -m 0777 $at/a/below; chmod 0777 $at/a/below
shift; exec "$@"
"""
LOOK = """
import os, sys
from pathlib import Path
names = {"__name__": "guardian"}
exec(Path(sys.argv[1]).read_text(), names)
os.setgroups([10001]); os.setgid(10001); os.setuid(10001)
for name in ("a", "b", "c", "d", "a/below", "pods/0d5f/volumes/kubernetes.io~empty-dir/plain"):
    print(names["foreign_writers"](f"{sys.argv[2]}/{name}").replace(sys.argv[2], ""))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts folders, and becomes another user")
def test_a_volume_of_one_pod_is_safe_although_world_writable(street: Path) -> None:
    """A kubelet gives an emptyDir the mode 0777, to root, without the sticky bit."""
    look = [sys.executable, "-I", "-S", "-c", LOOK, str(guardian.__file__), str(street)]
    apart = ["unshare", "--mount", "--propagation=private", "sh", "-ec", MOUNTED, "sh", str(street)]
    done = subprocess.run([*apart, *look], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "",
        "",
        'any user may change "/c" (mode 0777)',
        '"/d" belongs to nobody',
        'any user may change "/a/below" (mode 0777)',
        'any user may change "/pods/0d5f/volumes/kubernetes.io~empty-dir/plain" (mode 0777)',
    ]


def test_the_folder_of_a_killed_agent_is_removed_and_foreign_ones_stay(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    left, foreign = (tmp_path / f"mine-{number}" for number in (1, 2))
    for folder in (left, foreign):
        folder.mkdir(mode=0o700)
        (folder / "file").touch()
    held, descriptor = node_agent.make_held_folder("mine", [str(tmp_path)])
    (tmp_path / "mine-link").symlink_to(held)
    if os.geteuid() == 0:
        os.chown(foreign, NOBODY, NOBODY)
    else:
        foreign.chmod(0o755)
    node_agent.remove_unheld("mine", tmp_path)
    os.close(descriptor)
    assert {*tmp_path.iterdir()} == {held, foreign, tmp_path / "mine-link"}
    assert (foreign / "file").exists()


def test_the_same_programs_make_the_same_package_whenever_they_are_packed(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
        programs_in(folder)
    os.utime(second / "answers.sh", (1e9, 1e9))
    assert ray_process.pack(first) == ray_process.pack(second)
    (second / "answers.sh").write_text("#!/bin/sh\n")
    assert ray_process.pack(first) != ray_process.pack(second)


class MuteLink:
    """A way to three nodes whose agents answer until it is cut."""

    broken = ""

    def __init__(
        self, address: str, programs: Path, hear: Any, token: Path | None, own_address: str
    ) -> None:
        self.joined = Joined(records=[record(f"n{i}", f"10.0.0.{i}") for i in range(3)])
        self.cut: set[str] = set()
        self.asked: set[str] = set()  # whether they are there
        self._hear = hear

    def is_open(self) -> bool:
        return False

    def ask(self, hearer: Any, node_id: str, method: str, *arguments: object, group: str) -> None:
        self.asked |= {node_id} if method == "ping" else set()
        values = {"describe": (machine.describe("127.0.0.1", {}), "/nowhere"), "ping": None}
        if method in values and node_id not in self.cut:
            self._hear(lambda: hearer(Answer(number=0, value=values[method])))

    def echo(self, hearer: Any) -> None:
        self._hear(lambda: hearer(Answer(number=0)))

    def join(self, *_: object) -> None: ...

    start_agent = dismiss = close = join


@pytest.fixture
def mute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> RayExecutor:
    for name, value in (("RayLink", MuteLink), ("PING_EVERY_S", 0.1), ("SILENCE_S", 0.5)):
        monkeypatch.setattr(ray_cluster, name, value)
    executor = RayExecutor("anywhere", programs_in(tmp_path), parse)
    executor.launch(Launch(step=step_of("sleeps", "n0"), attempt=1))
    return executor


def test_if_a_busy_node_falls_silent_idle_nodes_are_asked(mute: RayExecutor) -> None:
    mute._link.cut.add("10.0.0.0:1")
    (lost,) = news(mute, look_s=0.05)
    assert isinstance(lost, NodeLost)
    assert lost.node == "n0"
    assert mute._link.asked >= {f"10.0.0.{i}:1" for i in range(3)}


def test_nodes_that_are_silent_together_are_lost_in_one_breath(mute: RayExecutor) -> None:
    """So that a person can see that they are not to blame."""
    mute._link.cut.update(f"10.0.0.{i}:1" for i in range(3))
    while not (events := mute.wait(mute.now() + 0.05)) or isinstance(events[0], Started):
        pass
    assert [event.node for event in events if isinstance(event, NodeLost)] == ["n0", "n1", "n2"]


def test_agents_that_start_one_after_the_other_are_waited_for_until_no_more_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each takes 40 s, all three two minutes, and one may take a minute."""
    now, pending = [0.0], list[Any]()

    class SlowLink(MuteLink):
        def ask(self, hearer: Any, node_id: str, method: str, *_: object, group: str) -> None:
            described = machine.describe("127.0.0.1", {}), "/nowhere"
            pending.append(lambda: hearer(Answer(number=0, value=described)))

    def take_in(executor: RayExecutor, patience_s: float) -> None:
        now[0] += 40.0
        if len(pending) > 1:  # the last one never starts
            pending.pop(0)()

    monkeypatch.setattr(ray_cluster, "RayLink", SlowLink)
    monkeypatch.setattr(ray_cluster.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(RayExecutor, "_take_in", take_in)
    executor = RayExecutor("anywhere", programs_in(tmp_path), parse)
    assert executor.absent() == {"n2": "no agent started on it within 60 s"}


class BusyLink(MuteLink):
    """Ray's process takes a while for each request, one after the other, on a clock of its own."""

    takes_s = 0.3
    runs_s = 60.0
    now = 1000.0

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.joined = Joined(records=[record(f"n{i}", f"10.0.0.{i}") for i in range(60)])
        self.free_at = 0.0
        self.coming: list[tuple[float, int, Any]] = []

    def answer(self, hearer: Any, value: object, after_s: float = 0.0) -> None:
        self.free_at = max(self.free_at, BusyLink.now) + self.takes_s
        place = len(self.coming)
        heapq.heappush(self.coming, (self.free_at + after_s, place, lambda: hearer(value)))

    def ask(self, hearer: Any, node_id: str, method: str, *arguments: object, group: str) -> None:
        described = machine.describe("127.0.0.1", {}), "/nowhere"
        value = {"describe": described, "run": b"{}"}.get(method)
        if node_id not in self.cut:
            self.answer(hearer, Answer(number=0, value=value), self.runs_s * (method == "run"))

    def echo(self, hearer: Any) -> None:
        self.answer(hearer, Answer(number=0))

    def let_pass(self, patience_s: float) -> None:
        """The time until the next answer, or all of this."""
        until = BusyLink.now + patience_s
        if self.coming and self.coming[0][0] <= until:
            BusyLink.now, _, answer = heapq.heappop(self.coming)
            answer()
        else:
            BusyLink.now = until


@pytest.mark.parametrize("cut", [(), ("10.0.0.7:1",)])
def test_agents_that_wait_for_a_busy_driver_are_not_silent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cut: tuple[str, ...]
) -> None:
    """Orders to all of them take 18 s, a ping of all as long, and 12 s of silence are too many."""
    monkeypatch.setattr(ray_cluster, "RayLink", BusyLink)
    monkeypatch.setattr(ray_cluster.time, "monotonic", lambda: BusyLink.now)
    monkeypatch.setattr(RayExecutor, "_take_in", lambda self, s: self._link.let_pass(s))
    executor = RayExecutor("anywhere", programs_in(tmp_path), parse)
    monkeypatch.setattr(executor, "now", lambda: BusyLink.now)
    executor._link.cut.update(cut)
    for node in executor.nodes():
        executor.launch(Launch(step=step_of("sleeps", node.name), attempt=1))
    ended, lost, until = 0, list[str](), BusyLink.now + 300
    while BusyLink.now < until and ended + len(lost) < 60:
        for event in executor.wait(until):
            ended += isinstance(event, Measured | Failed)
            lost += [event.node] if isinstance(event, NodeLost) else []
    assert (ended, lost) == (60 - len(cut), ["n7"] * len(cut))


def test_all_agents_are_of_one_class_which_ray_sends_once() -> None:
    assert ray_process.agent_kind() is ray_process.agent_kind()


def test_a_driver_that_was_suspended_loses_no_node(
    mute: RayExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    mute._link.cut.add("10.0.0.0:1")
    for _ in range(3):
        mute.wait(mute.now() + 0.1)  # its node is asked, and not yet given up
    mute._link.cut.clear()
    steady = time.monotonic
    monkeypatch.setattr(ray_cluster.time, "monotonic", lambda: steady() + 45)
    assert mute.wait(mute.now() + 0.15) == []


def test_an_address_that_accepts_and_stays_silent_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_link, "JOIN_DEADLINE_S", 0.5)
    monkeypatch.setattr(ray_link, "LEAVE_PATIENCE_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        sentence = f'the ray cluster at "{address}" cannot be used: something listens there'
        with pytest.raises(ExecutorError, match=sentence):
            RayExecutor(address, programs_in(tmp_path), parse)


@pytest.mark.parametrize(
    ("given", "mode", "kept"),
    [
        ({}, None, None),
        ({"RAY_AUTH_TOKEN": "secret"}, "token", "secret"),
        ({"RAY_AUTH_TOKEN": "secret", "RAY_AUTH_MODE": "disabled"}, "disabled", "secret"),
        ({"RAY_AUTH_MODE": "token"}, "token", None),
    ],
)
def test_a_token_that_ray_finds_is_shown_unless_that_is_switched_off(
    given: dict[str, str],
    mode: str | None,
    kept: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A head that was started in the same home asks for it."""
    home = tmp_path / "home"
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {**given, "HOME": str(home)}.items():
        monkeypatch.setenv(name, value)
    settings = ray_link.environment("10.0.0.1:6379", None, tmp_path)
    assert (settings.get("RAY_AUTH_MODE"), settings.get("RAY_AUTH_TOKEN")) == (mode, kept)
    (home / ".ray").mkdir(parents=True)
    (home / ".ray" / "auth_token").write_text("secret")
    settings = ray_link.environment("10.0.0.1:6379", None, tmp_path)
    assert settings["RAY_AUTH_MODE"] == (mode or "token")


def test_a_ray_of_our_own_is_closed_and_leaves_no_token_in_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "of something else")
    settings = ray_link.environment(ray_link.HERE, None, tmp_path)
    token = Path(settings["RAY_AUTH_TOKEN_PATH"])
    assert (settings["RAY_AUTH_MODE"], token.parent) == ("token", tmp_path)
    assert (len(token.read_text()), token.stat().st_mode & 0o777) == (64, 0o600)
    assert "RAY_AUTH_TOKEN" not in settings


def test_an_address_without_a_ray_cluster_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ExecutorError, match=r'no ray cluster answers at "127\.0\.0\.1:1"'):
        RayExecutor("127.0.0.1:1", programs_in(tmp_path), parse)


def record(host: str, address: str, port: int = 1, *, alive: bool = True) -> dict[str, Any]:
    return {
        "NodeID": f"{address}:{port}",
        "Alive": alive,
        "NodeManagerHostname": host,
        "NodeManagerAddress": address,
        "NodeManagerPort": port,
    }


def test_nodes_are_called_by_host_then_address_then_port() -> None:
    records = [
        record("n10", "10.0.0.10"),
        record("n2", "10.0.0.2"),
        record("twin", "10.0.0.4"),
        record("twin", "10.0.0.3"),
        record("local", "10.0.0.5", 7),
        record("local", "10.0.0.5", 8),
    ]
    names = [agent.name for agent in agents_of(records, ())]
    assert names == ["10.0.0.3", "10.0.0.4", "10.0.0.5:7", "10.0.0.5:8", "n2", "n10"]


def test_the_rail_nic_of_the_operator_is_measured_only_when_it_is_asked_for() -> None:
    rail_nic = {**record("login", "10.0.0.9"), "Resources": {"anubis_driver": 1.0}}
    records = [record("n1", "10.0.0.1"), rail_nic]
    assert [agent.name for agent in agents_of(records, ())] == ["n1"]
    assert [agent.name for agent in agents_of(records, ("login",))] == ["login"]


def test_a_wanted_node_that_died_is_lost_and_one_that_never_was_is_an_error() -> None:
    records = [record("n1", "10.0.0.1"), record("n2", "10.0.0.2", alive=False)]
    alive, dead = agents_of(records, ("n1", "n2"))
    assert (alive.lost, dead.lost) == ("", "the ray cluster lists it as dead")
    with pytest.raises(ExecutorError, match='"n3" is not in the ray cluster; known: n1'):
        agents_of(records, ("n3",))
    (resumed,) = agents_of(records, ("n1", "n3"), missing_is_fine=True)
    assert resumed.name == "n1"


def test_modules_sent_to_nodes_need_only_the_standard_library() -> None:
    sent = (forked_python, guardian, machine)
    travellers = {module.__name__ for module in sent}
    for module in (node_agent, *sent, ray_node):
        for node in ast.walk(ast.parse(Path(module.__file__).read_text())):
            match node:
                case ast.Import(names=names):
                    imported = {alias.name for alias in names}
                case ast.ImportFrom(module=str(name)):
                    imported = {name}
                case _:
                    continue
            tops = {name.partition(".")[0] for name in imported - travellers}
            assert tops <= sys.stdlib_module_names, module.__name__


def test_the_module_is_light_until_it_is_used() -> None:
    code = "import sys, anubis.reach.executors.ray_cluster; print('ray' in sys.modules)"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    said = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=True)
    assert said.stdout == b"False\n"
