"""Ray brought up on nodes without one: on separate hosts, by real ssh and by real Slurm."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest

from anubis.config import configs
from anubis.core.errors import ConfigError, ExecutorError, UsageError
from anubis.reach.executors import ray_link, ray_node, ray_start, remote_commands
from anubis.reach.executors.remote_commands import PipedCommand, RemoteCommand, address_for
from anubis.reach.executors.start_settings import RayStart, leave_own_job, start_ways
from tests.edges import slurm_bed
from tests.edges.desk import Desk
from tests.edges.slurm_bed import SlurmBed, SlurmHost
from tests.edges.ssh_hosts import SshBed, why_no_ssh
from tests.patience import LIMIT_S, eventually

PORTS = range(21000, 21200)
REFUSED = "ssh: connect to host node3 port 2222: Connection refused"
BUSY = "srun: error: Unable to allocate resources: Requested nodes are busy"
OF_THE_BED = re.compile(r"sleep infinity|sshd: |(\S*/)?slurm(d|stepd)\b")


class Campaign:
    """`anubis accept` in the driver's host, on one node that can come up and on one that cannot."""

    def __init__(
        self, bed: SshBed, folder: Path, node: str, way: Mapping[str, object], *, words: str
    ) -> None:
        """`words`: the last of the node that does not come up."""
        self.desk = Desk(folder)
        self.node = node
        self.bed = bed
        self.words = words
        ports = f"{PORTS[0]}-{PORTS[-1]}"
        cluster = {"executor": "ray", "nodes": f"{node},node3", "ports": ports, **way}
        self.settings = [f"ANUBIS_HOME={self.desk.home}", f"SLURM_CONF={folder}/../slurm.conf"]
        argv = [
            *("env", *self.settings, sys.executable, "-m", "anubis", "accept"),
            f"--cluster={self.desk.write('way.yaml', cluster)}",
            f"--suite={self.desk.suite(self.desk.held_flow())}",
            f"--benchmarks={self.desk.programs}",
        ]
        self.driver = bed.start("driver", argv)

    @property
    def runs(self) -> bool:
        return self.desk.began() > 0

    def ray_there(self) -> list[str]:
        return self.bed.programs_of(self.node, "raylet")

    def left(self) -> list[str]:
        """Files in the node's host beside those of the bed."""
        lines = self.bed.processes_of(self.node)
        return [line for line in lines if not OF_THE_BED.match(line)]


class Site:
    """Hosts: node1 with ssh; node2, node3 and node4 with Slurm. A foreign job has node3, and node4
    is drained, and has ssh."""

    def __init__(self, folder: Path, until_down: ExitStack) -> None:
        served = ["node2", "node3", "node4"]
        self.bed = until_down.enter_context(SshBed(folder, 4, without=["node2", "node3"]))
        hosts = {
            host: SlurmHost(
                address=self.bed.address_of(host), inside=self.bed.words_into(host), hostname=host
            )
            for host in ("driver", *served)
        }
        self.slurm = until_down.enter_context(
            SlurmBed(served, hosts=hosts, controller=hosts["driver"])
        )
        (folder / "slurm.conf").symlink_to(self.slurm.conf)
        self.slurm.submit("--nodelist=node3", "--exclusive")
        self.slurm.run("scontrol", "update", "nodename=node4", "state=drain", "reason=fan")
        assert eventually(lambda: self.jobs() == {"node3"})
        by_ssh = {
            "start": "ssh",
            "start_options": ["-F", str(self.bed.ssh_config)],
            "ray_prefix": ["sh", "-c", 'A="a b"; exec "$0" "$@"'],  # as for a module
        }
        by_slurm = {
            "start": "slurm",
            "start_options": ["--immediate=5"],
            "drained_by": ["ssh", "-F", str(self.bed.ssh_config)],
            "nodes": "node[2-4]",
        }
        ways = {"node1": (by_ssh, REFUSED), "node2": (by_slurm, BUSY)}
        self.campaigns = [
            self._begin(until_down, folder / node, node, way, words)
            for node, (way, words) in ways.items()
        ]

    def jobs(self) -> set[str]:
        """The nodes that Slurm has given away."""
        return {
            *self.slurm.run("squeue", "-h", "-t", "running,completing", "-o", "%N").stdout.split()
        }

    def _begin(
        self, until_down: ExitStack, folder: Path, node: str, way: Mapping[str, object], words: str
    ) -> Campaign:
        folder.mkdir()
        campaign = Campaign(self.bed, folder, node, way, words=words)
        until_down.callback(close, campaign.driver)
        return campaign


def close(driver: subprocess.Popen[str]) -> None:
    driver.kill()
    with driver:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Two campaigns at once, on disjoint nodes; both are at work."""
    if why_not := why_no_ssh() or slurm_bed.why_not():
        pytest.skip(why_not)
    before = folders()
    with ExitStack() as until_down:
        site = Site(tmp_path_factory.mktemp("site"), until_down)
        for campaign in site.campaigns:
            assert eventually(lambda c=campaign: c.runs or c.driver.poll() is not None)
            assert campaign.driver.poll() is None, campaign.driver.communicate()
        yield site
    assert eventually(lambda: folders() <= before), folders() - before


def heads(bed: SshBed) -> list[str]:
    return bed.programs_of("driver", "gcs_server")


def folders() -> set[Path]:
    return set(Path("/tmp").glob("anubis-node-*"))


def real(test: Callable[[Site], None]) -> Callable[[Site], None]:
    return pytest.mark.testbed(pytest.mark.ray(pytest.mark.long(test)))


@real
def test_two_campaigns_run_at_once_each_on_a_ray_of_its_own(site: Site) -> None:
    lines = [line for campaign in site.campaigns for line in campaign.ray_there()[:1]]
    addresses = {re.search(r"--gcs-address=(\S+)", line)[1] for line in lines}
    assert len(addresses) == len(site.campaigns)


@real
def test_slurm_gives_the_node_to_the_campaign_alone(site: Site) -> None:
    assert site.jobs() == {"node2", "node3"}
    shown = site.slurm.run("squeue", "-h", "-n", "anubis-test", "-o", "%N %h").stdout
    assert shown.split() == ["node2", "NO"]  # does not share it


@real
def test_a_drained_node_is_reached_past_slurm(site: Site) -> None:
    assert site.bed.programs_of("node4", "raylet")
    assert site.slurm.state("node4") == "idle+drain"


@real
def test_a_campaigns_own_slurm_job_is_not_counted_as_work_of_others(
    site: Site,
) -> None:
    _, campaign = site.campaigns
    file = campaign.desk.write("owned.yaml", {"executor": "ray", "orchestrator": "slurm"})
    ask = ["env", *campaign.settings, sys.executable, "-m", "anubis", "nodes", f"--cluster={file}"]
    shown = site.bed.run("driver", [*ask, "--json"], check=False).stdout
    lines = {line["node"]: line for line in map(json.loads, shown.splitlines()) if "node" in line}
    assert {name: len(line["jobs"]) for name, line in lines.items()} == {
        "node2": 0,
        "node3": 1,
        "node4": 0,
    }


@real
def test_ray_listens_on_ports_of_the_range_only(site: Site) -> None:
    for campaign in site.campaigns:
        shown = campaign.bed.run(campaign.node, ["ss", "-ltnpH"]).stdout
        places = [
            line.split()[3].rpartition(":")
            for line in shown.splitlines()
            if not re.search("sshd|slurm", line)
        ]
        ports = {int(port) for place, _, port in places if not place.startswith("127.")}
        assert len(ports) >= 3
        assert ports <= set(PORTS)


@real
def test_the_token_is_in_files_of_their_owner_and_on_no_command_line(site: Site) -> None:
    bed = site.bed
    lines = [line for host in ("driver", *bed.nodes) for line in bed.processes_of(host)]
    tokens = {Path(name, "token") for name in re.findall(r"--temp-dir=(\S+)/r ", " ".join(lines))}
    assert len(tokens) == 5, "of two heads and of three nodes"
    texts = {token.read_text() for token in tokens}
    assert len(texts) == 2, "one for each campaign"
    assert {token.stat().st_mode & 0o777 for token in tokens} == {0o600}
    assert {token.parent.stat().st_mode & 0o777 for token in tokens} == {0o700}
    shown = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert not any(text in shown.stdout for text in texts)


@real
def test_a_node_that_did_not_start_is_absent_with_its_last_output(site: Site) -> None:
    for campaign in site.campaigns:
        words = f'node3: Ray did not start on it: "{campaign.words}"'
        assert words in [campaign.driver.stderr.readline().strip() for _ in range(2)]


@real
def test_processes_of_a_killed_driver_end_on_the_nodes(site: Site) -> None:
    killed, goes_on = site.campaigns
    before = goes_on.ray_there()
    os.kill(killed.driver.pid, signal.SIGKILL)
    assert eventually(lambda: not killed.left()), killed.left()
    assert eventually(lambda: len(heads(site.bed)) == 1)
    assert goes_on.ray_there() == before


@real
def test_an_interrupted_campaign_takes_its_ray_and_its_jobs_with_it(site: Site) -> None:
    _, campaign = site.campaigns
    os.kill(campaign.driver.pid, signal.SIGINT)
    _, err = campaign.driver.communicate(timeout=LIMIT_S)
    assert "interrupted; what was measured is kept" in err
    assert "this ray cluster is open" not in err
    assert not campaign.left()
    assert not heads(site.bed)
    assert not site.bed.programs_of("node4", "raylet")
    assert eventually(lambda: site.jobs() == {"node3"})  # a foreign job


# --- without hosts -------------------------------------------------------------------------

BY_SSH = RayStart(by="ssh", options=("-F", "/etc/ours"), python="/a b/python")
BY_SLURM = RayStart(
    by="slurm", options=("--gres=gpu:8",), prefix=("apptainer", "exec"), python="python3"
)


def test_ssh_asks_no_questions_takes_no_node_as_an_option_and_quotes_words() -> None:
    *words, end, node, command = remote_commands.argv_to(BY_SSH, "-oProxyCommand=reboot")
    assert words[0] == "ssh"
    assert "BatchMode=yes" in words
    assert words[-2:] == ["-F", "/etc/ours"]
    assert (end, node) == ("--", "-oProxyCommand=reboot")
    assert shlex.split(command) == ["/a b/python", "-I", "-S", "-c", remote_commands.TAKE_IN]


def test_slurm_gives_the_whole_node_to_the_campaign() -> None:
    words = remote_commands.argv_to(BY_SLURM, "gpu7")
    assert {"--exclusive", "--nodes=1", "--mem=0", "--gres=gpu:8", "--nodelist=gpu7"} <= {*words}
    assert words[-7:-4] == ["apptainer", "exec", "python3"]


def test_a_driver_in_a_job_of_slurm_asks_for_nodes_outside_of_it() -> None:
    inside = {"SLURM_JOB_ID": "7", "SLURM_CONF": "/etc/slurm.conf", "PATH": "/bin"}
    outside = {"SLURM_CONF": "/etc/slurm.conf", "PATH": "/bin"}
    assert leave_own_job(inside) == outside


def remote_command_of(
    tmp_path: Path, code: str, *, greeting: str = "", **order: object
) -> RemoteCommand:
    """A command beside us, by a way that greets on stdout as a login shell may."""
    start = [
        "sh",
        "-c",
        f'echo "{greeting}"; exec "$0" "$@"',
        *remote_commands.argv_here(sys.executable),
    ]
    argv = [sys.executable, "-I", "-S", "-c", code]
    return PipedCommand(
        start, {"argv": argv, "timeout_s": 30, **order}, tmp_path / "remote_command"
    )


def end(remote_command: RemoteCommand) -> None:
    remote_command.close(time.monotonic() + 20)


def test_the_last_words_of_a_node_are_shown_without_those_of_ray(
    tmp_path: Path,
) -> None:
    words = "2026-11-22 15:23:26,855\tINFO scripts.py:1266 -- no disk\n\n"
    words += "Remaining processes will be killed."
    remote_command = remote_command_of(
        tmp_path, f"import sys; sys.exit({words!r})", greeting="welcome {"
    )
    assert eventually(lambda: remote_command.has_ended)
    assert remote_command.last_words() == "no disk"
    end(remote_command)


def test_without_a_guardian_the_last_words_are_those_of_the_way(tmp_path: Path) -> None:
    remote_command = PipedCommand(
        ["sh", "-c", "echo no route >&2; exit 255"], {}, tmp_path / "remote_command"
    )
    assert eventually(lambda: remote_command.has_ended)
    assert (remote_command.outcome(), remote_command.last_words()) == (None, "no route")
    end(remote_command)


def test_a_drained_node_is_reported_as_such_and_not_in_the_last_words_of_slurm(
    tmp_path: Path,
) -> None:
    said_by_srun = (  # 22.05
        "srun: Required node not available (down, drained or reserved)\n"
        "srun: job 1 queued and waiting for resources\n"
        "srun: error: Unable to allocate resources: Requested nodes are busy\n"
    )
    tell = ["sh", "-c", 'printf %s "$0" >&2; exit 1', said_by_srun]
    by_slurm = start_ways()["slurm"]
    remote_command = PipedCommand(tell, {}, tmp_path / "remote_command", by_slurm)
    assert eventually(lambda: remote_command.has_ended)
    words = "srun: Required node not available (down, drained or reserved)"
    assert remote_command.last_words() == words
    end(remote_command)


def test_a_python_that_is_too_old_is_reported_with_the_version_needed(tmp_path: Path) -> None:
    old = remote_commands.TAKE_IN.replace("(3, 11)", "(4, 0)")
    remote_command = PipedCommand(
        [sys.executable, "-I", "-S", "-c", old], {}, tmp_path / "remote_command"
    )
    assert eventually(lambda: remote_command.has_ended)
    assert re.search(r"is Python 3\.\S+, expected 3.11 or newer$", remote_command.last_words())
    end(remote_command)


@pytest.mark.parametrize(
    ("versions", "words"),
    [
        ({"ray": "1.0.0", "python": "3.11.0"}, r"has Ray \S+, and the driver has 1\.0\.0$"),
        ({"ray": version("ray"), "python": "2.7"}, r"is Python 3\.\S+, and the driver's is 2\.7$"),
    ],
)
def test_a_node_with_other_versions_is_reported_and_does_not_join(
    tmp_path: Path, versions: dict[str, str], words: str
) -> None:
    request = {"task": "start", "is_head": False, "head": "127.0.0.1:1", **versions}
    order = ray_start.order_for(sys.executable, request, ports="", timeout_s=30)
    remote_command = PipedCommand(
        remote_commands.argv_here(sys.executable), order, tmp_path / "remote_command"
    )
    assert eventually(lambda: remote_command.has_ended)
    assert re.search(words, remote_command.last_words())
    end(remote_command)


def test_the_address_of_the_driver_is_the_one_towards_the_first_node_that_resolves() -> None:
    by_slurm = RayStart(by="slurm", python="python3")
    assert address_for(by_slurm, ["no.such.host.invalid", "127.0.0.1"]) == "127.0.0.1"
    stated = replace(by_slurm, driver_address="127.0.0.2")
    assert address_for(stated, ["no.such.host.invalid"]) == "127.0.0.2"
    with pytest.raises(UsageError, match=r"`driver_address: 192\.0\.2\.7` .* no address of this"):
        address_for(replace(by_slurm, driver_address="192.0.2.7"), ["127.0.0.1"])
    with pytest.raises(UsageError, match="write `driver_address:`"):
        address_for(by_slurm, ["no.such.host.invalid"])


def test_an_remote_command_that_is_let_go_leaves_neither_process_nor_folder(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    write = "from pathlib import Path; import time; Path('pid').touch(); time.sleep(600)"
    remote_command = remote_command_of(tmp_path, write, scratch=str(scratch))
    assert eventually((scratch / "pid").exists)
    assert scratch.stat().st_mode & 0o777 == 0o700
    end(remote_command)
    assert remote_command.outcome()["killed"]
    assert not scratch.exists()


def test_a_folder_made_by_another_is_not_used(tmp_path: Path) -> None:
    remote_command = remote_command_of(tmp_path, "", scratch=str(tmp_path))
    assert eventually(lambda: remote_command.has_ended)
    assert "File exists" in remote_command.last_words()
    assert tmp_path.exists()
    end(remote_command)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"start": "docker"}, '"start" is "docker"; known: kubernetes, slurm, ssh'),
        ({"start": "slrum"}, '"start" is "slrum"; did you mean "slurm"?'),
        ({"start": "kubernetes"}, '"start: kubernetes" and "start_pod" with an image go together'),
        ({"start": "ssh", "start_pod": {"image": "a"}}, "go together"),
        ({"start": "ssh", "address": "a:1"}, '"address" (use a Ray that runs already) and "start"'),
        ({"start": "ssh", "ports": "20000-20010"}, "20000-20010 has fewer than 50"),
        ({"start": "ssh", "drained_by": ["ssh"]}, '"drained_by" is for "start: slurm"'),
        ({"start": "slurm", "drained_by": ["rsh"]}, 'begins with "ssh"'),
        ({"ray_python": "python3"}, '"ray_python" is for a Ray that is brought up'),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(
    tmp_path: Path, more: dict[str, object], words: str
) -> None:
    file = tmp_path / "way.yaml"
    file.write_text(json.dumps({"executor": "ray", **more}))
    with pytest.raises(ConfigError, match=re.escape(words)):
        configs.cluster(str(file))


def test_ray_finds_all_its_ports_in_the_range_and_each_once() -> None:
    request = {"address": "10.0.0.1", "head": "10.0.0.2:20000", "name": "n1", "is_head": False}
    ports = list(range(20001, 20001 + ray_node.PORTS_NEEDED))
    words = " ".join(ray_node.command(request, ports, Path("/tmp/x")))
    named = re.findall(r"-port=(\d+)|-list=(\S+)", words)
    taken = [int(port) for pair in named for port in ",".join(filter(None, pair)).split(",")]
    assert len(taken) == len(set(taken))
    assert set(taken) <= set(ports)


def test_ports_in_use_are_not_chosen() -> None:
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
        assert port not in ray_node.free_ports([port, port + 1], 2)


def test_a_folder_is_short_enough_for_the_paths_of_sockets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = "/r/session_2026-11-22_15-23-24_058144_4194304/sockets/plasma_store"
    longest = Path("/".ljust(ray_link.LONGEST_PARENT, "x"))
    for folder in (ray_start.scratch_in(longest), longest / "anubis-ray-12345678"):
        assert len(f"{folder}{below}") <= 107
    long = tmp_path / "a-rather-long-folder"
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    assert ray_link.safe_place(ray_link.LONGEST_PARENT) == "/tmp"
    assert ray_link.safe_place() == str(long)


class Head:
    """A head of Ray that says nothing, or writes what Ray writes once it has started."""

    has_ended = False

    def __init__(self, order: Mapping[str, object], *, starts: bool, at: str = "") -> None:
        self.sent_at = time.monotonic()
        if starts:
            request = json.loads(order["argv"][-1])
            folder = Path(str(order["scratch"])) / ray_node.OWN_FOLDER
            folder.mkdir(parents=True)
            (folder / ray_start.ADDRESS_FILE).write_text(at or request["head"])

    def let_go(self) -> None:
        pass

    def close(self, until: float) -> None:
        pass


@pytest.mark.parametrize(
    ("load", "cores", "times"), [(0.0, 2, 1.0), (2.0, 2, 1.0), (6.0, 2, 3.0), (90.0, 2, 10.0)]
)
def test_a_head_has_more_time_if_more_processes_wait_for_the_cores(
    monkeypatch: pytest.MonkeyPatch, load: float, cores: int, times: float
) -> None:
    monkeypatch.setattr(ray_start.os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(ray_start.os, "cpu_count", lambda: cores)
    assert ray_start.crowding() == times


def test_a_port_that_another_took_meanwhile_costs_a_try_and_is_no_head_of_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as another:
        ports = [another.getsockname()[1], 4711]
        monkeypatch.setattr(ray_start, "free_port", lambda *_: ports.pop(0))
        monkeypatch.setattr(ray_start, "HEAD_DEADLINE_S", 0.2)
        monkeypatch.setattr(
            ray_start, "PipedCommand", lambda argv, order, files: Head(order, starts=not ports)
        )
        start = RayStart(by="ssh", python=sys.executable, driver_address="127.0.0.1")
        ray = ray_start.StartedRay(start, {})
    assert ray.address == "127.0.0.1:4711"
    shutil.rmtree(ray.token.parent)
    ray.close()


def test_a_head_that_listens_elsewhere_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(ray_start, "scratch_in", lambda _: tmp_path)
    monkeypatch.setattr(
        ray_start,
        "PipedCommand",
        lambda argv, order, files: Head(order, starts=True, at="192.0.2.7:6379"),
    )
    start = RayStart(by="ssh", python=sys.executable, driver_address="127.0.0.1")
    with pytest.raises(ExecutorError, match=r"listens at 192\.0\.2\.7:6379 .* `driver_address:`"):
        ray_start.StartedRay(start, {})


class Busy(Head):
    """A way to a node that ends at once with these words."""

    has_ended = True

    def __init__(self, words: str) -> None:
        super().__init__({}, starts=False)
        self.words = words

    def last_words(self) -> str:
        return self.words


@pytest.mark.parametrize(
    ("by", "words", "asked"),
    [
        ("slurm", "srun: error: Unable to create step: Socket timed out on send/recv operation", 2),
        ("ssh", "kex_exchange_identification: Connection closed by remote host", 2),
        ("ssh", "root@n1: Permission denied (publickey)", 1),
    ],
)
def test_a_node_is_asked_once_more_if_the_way_to_it_was_only_too_busy(
    monkeypatch: pytest.MonkeyPatch, by: str, words: str, asked: int
) -> None:
    sent: list[str] = []

    class Way:
        def __init__(self, *_: object) -> None:
            pass

        def send(self, start: RayStart, name: str, *_: object) -> Busy:
            sent.append(name)
            return Busy(words)

        def close(self) -> None:
            pass

    monkeypatch.setattr(ray_start, "Sender", Way)
    monkeypatch.setattr(
        ray_start, "PipedCommand", lambda argv, order, files: Head(order, starts=True)
    )
    start = RayStart(by=by, python=sys.executable, driver_address="127.0.0.1")
    ray = ray_start.StartedRay(start, {"n1": start, "n2": start})
    while ray.is_gathering:
        ray.tend(())
    assert sorted(sent) == sorted(["n1", "n2"] * asked)
    assert sent[:2] == ["n1", "n2"]
    assert {*ray.absent.values()} == {f'Ray did not start on it: "{words}"'}
    shutil.rmtree(ray.token.parent)
    ray.close()
