"""The test bed: separate hosts, real faults, no packet out, nothing left."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import gettempdir

import pytest

from tests.edges.bed import Bed, network_of, traces, why_not
from tests.patience import LIMIT_S, eventually

pytestmark = [pytest.mark.testbed, pytest.mark.skipif(bool(why_not()), reason=why_not())]

RECEIVE = """
import socket
with socket.create_server(("", 7000)) as server:
    print("listening", flush=True)
    peer, _ = server.accept()
    with peer:
        while peer.recv(1 << 20):
            pass
        peer.sendall(b"all here")
"""

SEND = """
import socket, sys, time
began = time.monotonic()
with socket.create_connection((sys.argv[1], 7000), timeout=60) as peer:
    peer.sendall(bytes(int(sys.argv[2])))
    peer.shutdown(socket.SHUT_WR)
    assert peer.recv(100) == b"all here"
print(time.monotonic() - began)
"""

# Nothing listens on this port, so a host that can be reached refuses, and refusing is an answer.
KNOCK = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=1)
except OSError as error:
    print(type(error).__name__, error.errno)
"""


SIZE = 4_000_000  # bytes: 0.16 s by a link of 200 Mbit/s, 0.8 s by one of 40

# Says how much processor it has used, and keeps the memory that it took until it is answered.
USE = """
import sys, time
held = bytearray(300_000_000)
while time.process_time() < 0.6:
    pass
print(time.process_time(), flush=True)
sys.stdin.readline()
"""


def python(bed: Bed, host: str, program: str, *arguments: str) -> str:
    return bed.run(host, [sys.executable, "-c", program, *arguments]).stdout.strip()


def transfer_s(bed: Bed, sender: str, receiver: str, size_bytes: int = SIZE) -> float:
    """The time that a transfer between two hosts takes, by threads of this process."""
    with bed.network_of(receiver):
        server = socket.create_server(("", 7000))
    with server, ThreadPoolExecutor(1) as beside:
        receiving = beside.submit(receive, server, size_bytes)
        with bed.network_of(sender):
            began = time.monotonic()
            peer = socket.create_connection((bed.address_of(receiver), 7000), timeout=LIMIT_S)
        with peer:
            peer.sendall(bytes(size_bytes))
            assert peer.recv(1)
        receiving.result()
    return time.monotonic() - began


def receive(server: socket.socket, size_bytes: int) -> None:
    peer, _ = server.accept()
    with peer:
        while size_bytes > 0:
            size_bytes -= len(peer.recv(1 << 20))
        peer.sendall(b"!")


def transfer_by_programs_s(bed: Bed, sender: str, receiver: str, size_bytes: int) -> float:
    """The same by programs, which have no more processor than their hosts."""
    with bed.start(receiver, [sys.executable, "-c", RECEIVE]) as listening:
        assert listening.stdout is not None
        assert listening.stdout.readline().strip() == "listening"
        return float(python(bed, sender, SEND, receiver, str(size_bytes)))


def is_slower(bed: Bed, rate_mbit_s: float, *ways: tuple[str, str]) -> bool:
    """Nothing is faster than its rate, but that a bucket lends 1 Mbit at once."""
    return all(transfer_s(bed, *way) > at_least_s(rate_mbit_s) for way in ways)


def is_faster(bed: Bed, rate_mbit_s: float, *ways: tuple[str, str]) -> bool:
    """Twice as fast as that rate, sooner or later: other work on the machine makes some transfers
    slower, and none faster."""
    limit_s = at_least_s(rate_mbit_s) / 2
    return all(eventually(lambda way=way: transfer_s(bed, *way) < limit_s) for way in ways)


def at_least_s(rate_mbit_s: float) -> float:
    return (SIZE * 8 / 1e6 - 1) / rate_mbit_s


def working(bed: Bed, host: str) -> subprocess.Popen[str]:
    """A program that has begun there, and does not end by itself."""
    program = bed.start(host, ["sh", "-c", "echo started; exec sleep 600"])
    assert program.stdout is not None
    assert program.stdout.readline() == "started\n"
    return program


def stand_in_for_ray(folder: Path, does: str) -> Path:
    """A Ray for `up` to find in this folder: its start is a program that does something else."""
    start, package = folder / "start", folder / "ray" / "scripts"
    package.mkdir(parents=True)
    programs = {
        start: f"#!/bin/sh\n{does}\n",
        folder / "python": f'#!/bin/sh\nPYTHONPATH={folder} exec {sys.executable} "$@"\n',
        package.parent / "__init__.py": "",
        package / "__init__.py": "",
        package / "scripts.py": f'import os\ndef main():\n    os.execv("{start}", ["start"])\n',
    }
    for program, text in programs.items():
        program.write_text(text)
        program.chmod(0o755)
    return start


def proc_of(bed: Bed, node: str) -> dict[str, float]:
    """Figures from its files: seconds of processor, megabytes held, bytes sent."""
    folder = Path(gettempdir(), f"testbed-{bed.name}", node, "proc")
    ticks = [int(word) for word in (folder / "stat").read_text().split("\n")[0].split()[1:]]
    lines = (folder / "meminfo").read_text().splitlines()
    memory_kb = {line.split(":")[0]: int(line.split()[1]) for line in lines}
    devices = (folder / "net" / "dev").read_text().splitlines()
    (eth0,) = [line for line in devices if line.strip().startswith("eth0:")]
    return {
        "busy": (sum(ticks) - ticks[3]) / 100,
        "idle": ticks[3] / 100,
        "steal": ticks[7] / 100,
        "held_mb": (memory_kb["MemTotal"] - memory_kb["MemAvailable"]) / 1024,
        "sent": int(eth0.split()[9]),
    }


def more(bed: Bed, node: str, before: dict[str, dict[str, float]]) -> dict[str, float]:
    return {name: value - before[node][name] for name, value in proc_of(bed, node).items()}


def written_anew(bed: Bed, node: str) -> dict[str, float]:
    """Figures from its files once they were written again, so that nothing of before is to come."""
    first = proc_of(bed, node)["idle"]
    assert eventually(lambda: proc_of(bed, node)["idle"] > first)
    return proc_of(bed, node)


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    faults = ("--slow-link", "node3:100mbit", "--slow-cpu", "node2:0.2")
    with Bed(3, "--no-ray", "--proc", *faults) as bed:
        yield bed


def test_no_packet_finds_a_way_out_of_a_host_nor_into_it(bed: Bed) -> None:
    for host in ("driver", *bed.nodes):
        assert python(bed, host, KNOCK, "198.51.100.1", "9") == "OSError 101"  # unreachable
        routes = bed.run(host, ["ip", "route"]).stdout.splitlines()
        assert [route.split()[0] for route in routes] == [bed.subnet]
        assert bed.run(host, ["ip", "-6", "route", "show", "dev", "eth0"]).stdout == ""
    address = bed.subnet.replace("0/24", "1")
    way = subprocess.run(["ip", "route", "get", address], capture_output=True, text=True)
    assert way.returncode != 0


def test_a_slow_link_is_slow_both_ways_and_the_others_are_not(bed: Bed) -> None:
    assert is_slower(bed, 100, ("node3", "node1"), ("node1", "node3"))
    assert is_faster(bed, 100, ("node1", "node2"), ("node2", "node1"))
    bed.verb("slow-link", "node3", "none")
    assert is_faster(bed, 100, ("node3", "node1"), ("node1", "node3"))


def test_usage_of_a_host_shows_in_its_own_proc_only(bed: Bed) -> None:
    before = {node: proc_of(bed, node) for node in bed.nodes}
    program = subprocess.Popen(
        bed.command("exec", "node2", argv=[sys.executable, "-c", USE]),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    used_s = float(program.stdout.readline())
    # Two fifths of a core for one thread: it was kept waiting for longer than it ran.
    assert eventually(lambda: more(bed, "node2", before)["busy"] > used_s - 0.05)
    used = more(bed, "node2", before)
    assert used["busy"] - used["steal"] < used_s + 1
    assert used["steal"] > 0.3
    assert used["held_mb"] > 200  # of 300: what earlier tests held may have become free meanwhile
    program.communicate("\n", timeout=LIMIT_S)
    for node in ("node1", "node3"):
        other = more(bed, node, before)
        assert max(other["busy"] / used_s, other["held_mb"] / 300) < 0.5
        assert other["idle"] > 0.5
        assert other["steal"] == 0
    assert eventually(lambda: more(bed, "node2", before)["held_mb"] < 100)


def test_a_host_s_own_proc_can_be_kept_open_and_read_again_as_the_kernel_s_can(bed: Bed) -> None:
    with Path(gettempdir(), f"testbed-{bed.name}", "node1", "proc", "stat").open("rb") as stat:
        first = os.pread(stat.fileno(), 4096, 0)
        assert eventually(lambda: os.pread(stat.fileno(), 4096, 0) != first)


def test_a_host_s_own_proc_counts_its_own_network(bed: Bed) -> None:
    before = {node: proc_of(bed, node)["sent"] for node in bed.nodes}
    transfer_s(bed, "node1", "node2", 3_000_000)
    sent = {node: proc_of(bed, node)["sent"] - before[node] for node in bed.nodes}
    assert sent["node1"] > 3_000_000
    assert sent["node2"] < 1_000_000
    assert sent["node3"] < 10_000


def test_a_host_that_has_all_of_the_processor_again_is_kept_waiting_no_longer(bed: Bed) -> None:
    bed.verb("slow-cpu", "node2", "1")
    before = written_anew(bed, "node2")
    python(bed, "node2", USE)
    assert written_anew(bed, "node2")["steal"] == before["steal"]


@pytest.fixture(scope="module")
def fabric(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """Six hosts under three leaves; only the network, so there is no Ray to wait for."""
    folder = tmp_path_factory.mktemp("no-ray")
    stand_in_for_ray(folder, "exit 0")
    bed = Bed(6, "--leaves", "3", "--link-rate", "200mbit", "--uplink-rate", "400mbit")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANUBIS_PYTHON", str(folder / "python"))
        bed.up()
    yield bed
    bed.verb("down")


def test_every_link_has_the_rate_it_was_given_and_mend_gives_that_back(fabric: Bed) -> None:
    there, back = ("node1", "node3"), ("node3", "node1")
    assert is_slower(fabric, 200, there, back)
    assert is_faster(fabric, 40, there, back)
    fabric.verb("slow-link", "node1", "40mbit")
    assert is_slower(fabric, 40, there, back)
    fabric.verb("mend", "node1")
    assert is_slower(fabric, 200, there, back)
    assert is_faster(fabric, 40, there, back)
    fabric.verb("slow-link", "node1", "none")
    fabric.verb("slow-link", "node3", "none")
    assert is_slower(fabric, 400, there, back)  # by the uplinks
    fabric.verb("mend", "node1")
    fabric.verb("mend", "node3")


def test_a_slow_uplink_slows_flows_across_it_and_none_below_one_leaf(fabric: Bed) -> None:
    across = [("node5", "node1"), ("node3", "node6"), ("node4", "node5")]
    beside = [("node5", "node6"), ("node6", "node5"), ("node2", "node3"), ("node1", "node2")]
    fabric.verb("slow-uplink", "leaf3", "40mbit")
    assert is_slower(fabric, 40, *across)
    assert is_faster(fabric, 40, *beside)
    fabric.verb("mend", "leaf3")
    assert is_faster(fabric, 40, *across)


def test_a_link_can_be_slow_one_way(fabric: Bed) -> None:
    for verb, part in (("slow-uplink", "leaf3"), ("slow-link", "node5")):
        fabric.verb(verb, part, "40mbit", "--way", "up")
        assert is_slower(fabric, 40, ("node5", "node1"))
        assert is_faster(fabric, 40, ("node1", "node5"))
        fabric.verb("mend", part)


def test_a_host_short_of_cpu_sends_and_receives_slower_than_its_link_would_let_it(
    fabric: Bed,
) -> None:
    for node in ("node1", "node2"):  # a tenth of a core still carries 200 Mbit/s
        fabric.verb("slow-link", node, "none")

    ways = [("node1", "node2"), ("node2", "node1")]
    fabric.verb("slow-cpu", "node2", "0.05")
    slowed = {way: transfer_by_programs_s(fabric, *way, 200_000_000) for way in ways}
    fabric.verb("slow-cpu", "node2", "1")
    for way in ways:
        limit_s = slowed[way] / 1.5
        sent_s = partial(transfer_by_programs_s, fabric, *way, 200_000_000)
        assert eventually(lambda: sent_s() < limit_s)  # noqa: B023
    for node in ("node1", "node2"):
        fabric.verb("mend", node)


def test_a_cut_uplink_parts_a_leaf_from_the_others(fabric: Bed) -> None:
    fabric.verb("cut", "leaf1")
    assert python(fabric, "node1", KNOCK, "node2", "9").startswith("ConnectionRefusedError")
    assert python(fabric, "node1", KNOCK, "node3", "9").startswith("TimeoutError")
    assert python(fabric, "driver", KNOCK, "node3", "9").startswith("ConnectionRefusedError")
    fabric.verb("mend", "leaf1")


def test_the_topology_it_prints_has_the_leaves_uplinks_and_speeds(
    fabric: Bed, tmp_path: Path
) -> None:
    file = tmp_path / "fabric.yaml"
    file.write_text(fabric.verb("topology").stdout)
    shown = subprocess.run(
        [sys.executable, "-m", "anubis", "scan", "--draw", "--topology", file, "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    records = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [r for r in records if r["type"] == "finding"] == []
    hosts = {r["node"]: (r["switch"], r["gbit_s"]) for r in records if r["type"] == "nic"}
    assert hosts == {f"node{index}": (f"leaf{(index + 1) // 2}", 0.2) for index in range(1, 7)}
    links = {
        frozenset((r["a"], r["b"])): [cable["gbit_s"] for cable in r["cables"]]
        for r in records
        if r["type"] == "link"
    }
    assert links == {frozenset((f"leaf{index}", "spine")): [0.4] for index in (1, 2, 3)}


@pytest.mark.parametrize(
    ("verb", "arguments", "found", "expected"),
    [
        ("slow-uplink", ("node1", "1gbit"), '"node1"', "leaf1, leaf2, leaf3"),
        ("slow-link", ("leaf1", "1gbit"), '"leaf1"', "node1, node2, node3, node4, node5, node6"),
        ("mend", ("leaf4",), '"leaf4"', "node6, leaf1, leaf2, leaf3"),
    ],
)
def test_a_part_that_is_not_there_is_named_with_those_that_are(
    fabric: Bed, verb: str, arguments: tuple[str, ...], found: str, expected: str
) -> None:
    refused = fabric.verb(verb, *arguments, check=False)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert found in refused.stderr
    assert expected in refused.stderr


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--leaves", "3"), "2 hosts can have 1 to 2 leaves, not 3"),
        (("--uplink-rate", "1gbit"), "give --leaves as well"),
        (("--slow-uplink", "leaf1:1gbit"), 'no "leaf1"'),
    ],
)
def test_leaves_that_cannot_be_are_refused_before_anything_is_made(
    options: tuple[str, ...], expected: str
) -> None:
    bed = Bed(2, *options)
    refused = bed.up(check=False)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert expected in refused.stderr
    assert traces(bed, set()) == []


def test_exit_codes_and_signals_pass_through_to_the_command(bed: Bed) -> None:
    assert bed.verb("driver", argv=["sh", "-c", "exit 7"], check=False).returncode == 7
    assert bed.verb("exec", "node1", argv=["false"], check=False).returncode == 1
    command = bed.command("driver", argv=["sh", "-c", "echo started; exec sleep 600"])
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as sleeping:
        assert sleeping.stdout is not None
        assert sleeping.stdout.readline() == "started\n"
        sleeping.send_signal(signal.SIGTERM)
        assert sleeping.wait(LIMIT_S) == -signal.SIGTERM


def test_a_command_finds_its_folder_the_cluster_and_its_own_address(bed: Bed) -> None:
    asked = 'pwd; hostname; echo "$RAY_ADDRESS $ANUBIS_NODE_IP"'
    said = bed.verb("driver", argv=["sh", "-c", asked]).stdout.split()
    head = bed.subnet.replace("0/24", "254")
    assert said == [str(Path.cwd()), "driver", f"{head}:6379", head]


def test_up_again_and_a_node_that_is_not_there_are_clear_errors(bed: Bed) -> None:
    again = bed.up(check=False)
    assert (again.returncode, again.stdout) == (2, "")
    assert "already up" in again.stderr
    unknown = bed.verb("cut", "node4", check=False)
    assert unknown.returncode == 2
    assert unknown.stderr.count("\n") == 1
    assert '"node4"' in unknown.stderr
    assert "node1, node2, node3" in unknown.stderr


@pytest.fixture
def ray_that_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The start of a Ray that the test writes."""
    monkeypatch.setenv("ANUBIS_PYTHON", str(tmp_path / "python"))
    return stand_in_for_ray(tmp_path, "exit 0")


@pytest.fixture
def bed_to_be() -> Iterator[Bed]:
    """A bed that is not up yet; it is removed after the test in any case."""
    bed = Bed(2)
    yield bed
    bed.verb("down")


def test_if_ray_does_not_start_up_gives_the_reason_and_leaves_nothing(
    ray_that_does: Path, bed_to_be: Bed
) -> None:
    ray_that_does.write_text(
        '#!/bin/sh\n[ $(hostname) != node2 ] || { echo "no room for node2" >&2; exit 5; }\n'
    )
    failed = bed_to_be.up(check=False)
    assert failed.returncode == 2
    assert '"node2"' in failed.stderr
    assert "no room for node2" in failed.stderr
    assert traces(bed_to_be, set()) == []


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM])
def test_down_removes_all_that_an_interrupted_up_left(
    ray_that_does: Path, bed_to_be: Bed, ending: int
) -> None:
    ray_that_does.write_text("#!/bin/sh\necho waiting\nexec sleep 600\n")
    bed = bed_to_be
    starting = subprocess.Popen(bed.command("up", "2", "--subnet", bed.subnet))
    said = Path(gettempdir()) / f"testbed-{bed.name}/driver/ray-start.log"
    waits = lambda: said.exists() and "waiting" in said.read_text()  # noqa: E731
    assert eventually(lambda: waits() or starting.poll() is not None)
    assert waits()
    network = network_of(bed, "node1")
    starting.send_signal(ending)
    starting.wait(LIMIT_S)
    if ending == signal.SIGKILL:  # it had no chance to tidy, so there is something to take away
        assert traces(bed, {network}) != []
        bed.verb("down")
    assert traces(bed, {network}) == []


# The last test here: what it takes away does not come back.
def test_a_cut_host_is_silent_and_a_killed_one_dead_and_down_leaves_nothing(bed: Bed) -> None:
    networks = {network_of(bed, host) for host in ("driver", *bed.nodes)}
    assert len(networks) == 4
    # a cgroup, a folder, a route, and who holds each host: the question finds what is there
    assert len(traces(bed, networks)) >= 3 + len(networks)

    assert python(bed, "driver", KNOCK, "node2", "9").startswith("ConnectionRefusedError")
    bed.verb("cut", "node2")
    assert python(bed, "driver", KNOCK, "node2", "9").startswith("TimeoutError")
    assert python(bed, "node2", KNOCK, "driver", "9").startswith("TimeoutError")
    bed.verb("mend", "node2")
    # the neighbours ask for its address once a second
    assert eventually(lambda: "ConnectionRefused" in python(bed, "driver", KNOCK, "node2", "9"))

    with working(bed, "node1") as killed, working(bed, "node3") as spared:
        bed.verb("kill", "node1")
        assert killed.wait(LIMIT_S) == -signal.SIGKILL
        assert spared.poll() is None
        assert bed.run("node1", ["hostname"]).stdout == "node1\n"  # the host outlives it
        spared.kill()

    bed.verb("down")
    assert traces(bed, networks) == []
    bed.verb("down")
    gone = bed.verb("driver", argv=["true"], check=False)
    assert gone.returncode == 2
    assert "is not up" in gone.stderr
