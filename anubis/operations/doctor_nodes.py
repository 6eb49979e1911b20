"""Check what nodes lack before Ray is started on them: asked there, and judged here."""

from __future__ import annotations

import json
import platform
import secrets
import shlex
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from anubis.config import configs
from anubis.core.errors import ExecutorError, UsageError
from anubis.operations.caller import NO_CALLER, Caller
from anubis.operations.executors import ways_to
from anubis.operations.owners import others_work, shown_nodes
from anubis.reach.executors import ray_node
from anubis.reach.executors.callback import ConnectionCheck
from anubis.reach.executors.ray_link import safe_place
from anubis.reach.executors.ray_start import order_for
from anubis.reach.executors.remote_commands import RemoteCommand, Sender, address_for
from anubis.reach.executors.start_settings import RayStart, start_ways
from anubis.text import hostlist
from anubis.text.packages import require_package
from anubis.text.reading import read
from anubis.text.wording import quantity, time_span

AT_ONCE = 64  # ssh processes, each of a few MB
LOOK_LIMIT_S = 30.0  # a Python starts within seconds, and on a cold disk within half a minute
VISIT_DEADLINE_S = 90.0  # a scheduler may take a minute to find the node free
LOOK_EVERY_S = 0.05  # between glances at processes that have ended
SHM_BYTES = 1 << 30  # what NCCL's guide gives a container
NOFILE = 8192  # what Ray recommends
CLOCK_TOLERANCE_S = 5.0  # the way to a node may take seconds itself


@dataclass(frozen=True, kw_only=True)
class Lack:
    """A defect or missing thing on a node that prevents tests, and its remedy."""

    what: str
    found: str
    advice: str


@dataclass(frozen=True, kw_only=True)
class NodeCheck:
    node: str
    found: str  # what there is; "" if nothing answered
    lacks: tuple[Lack, ...]

    @property
    def is_ready(self) -> bool:
        return not self.lacks


@dataclass(frozen=True, kw_only=True)
class NodeFacts:
    """Facts that `ray_node` reports about its machine."""

    python: str
    executable: str
    ray: str
    free_ports: int
    memlock_bytes: int | None
    hcas: int
    shm_bytes: int
    shm_free_bytes: int
    nofile: int | None
    address: str
    out_trouble: str
    back_trouble: str
    time: float


def examine_nodes(
    cluster: str, nodes: Sequence[str] | None = None, caller: Caller = NO_CALLER
) -> tuple[NodeCheck, ...]:
    """Check each node, reached in the way in which Ray would be started on it."""
    file = configs.cluster(cluster)
    way = file.way if isinstance(file, configs.RayCluster) else None
    if way is None or not isinstance(file, configs.RayCluster):
        raise UsageError(
            f'nodes of cluster "{cluster}" are not reached by ssh, Slurm or Kubernetes: its'
            " file has no `start:`; on a node itself, `anubis doctor` says what it lacks"
        )
    require_package("ray", f'cluster "{cluster}"')
    names = nodes or (hostlist.expand(file.nodes) if file.nodes else ())
    if not names:
        names = _orchestrator_nodes(file, caller)
    caller.doing(f"looking at {quantity(len(names), 'node')}")
    address = address_for(way, names)
    password = secrets.token_hex(16)
    with (
        tempfile.TemporaryDirectory(prefix="anubis-visit-", dir=safe_place()) as folder,
        ConnectionCheck(address, way.ports, password) as bell,
        closing(Sender(way, address)) as sender,
    ):
        request = {"task": "look", "driver": (bell.address, bell.port)}
        env = {**way.env, "ANUBIS_PASSWORD": password}
        order = order_for(way.python, request, ports=way.ports, env=env, timeout_s=LOOK_LIMIT_S)
        checks = dict(_visit(ways_to(names, way), order, Path(folder), sender))
    return tuple(checks[name] for name in names)


def _orchestrator_nodes(file: configs.RayCluster, caller: Caller) -> list[str]:
    """Nodes of the orchestrator; a check does not disturb the jobs there."""
    # wall clock: only a look, before the history is read
    work = others_work(file, {}, caller.clock())
    if work.seen is None:
        raise UsageError(
            "which nodes? name them, or write `nodes:` or `orchestrator:` into the cluster's file"
        )
    return shown_nodes(work, caller)


def _visit(
    ways: Mapping[str, RayStart], order: Mapping[str, Any], folder: Path, sender: Sender
) -> Iterator[tuple[str, NodeCheck]]:
    """Checks of the nodes in the order of their answers; a node that is silent for too long lacks
    an answer."""
    queue = [*ways][::-1]
    away: dict[str, tuple[RemoteCommand, float]] = {}
    try:
        while queue or away:
            while queue and len(away) < AT_ONCE:
                # wall clock: a node's own is compared with it
                name, began = queue.pop(), time.time()
                remote_command = sender.send(ways[name], name, order, folder / str(len(queue)))
                away[name] = (remote_command, began)
            for name, (remote_command, began) in list(away.items()):
                if (
                    remote_command.has_ended
                    or time.monotonic() - remote_command.sent_at > VISIT_DEADLINE_S
                ):
                    # wall clock: a node's own is compared with it
                    yield name, check(ways[name], name, remote_command, (began, time.time()))
                    del away[name]
                    remote_command.close(time.monotonic())
            time.sleep(LOOK_EVERY_S)
    finally:
        for remote_command, _ in away.values():
            remote_command.close(time.monotonic())


def check(
    way: RayStart, name: str, remote_command: RemoteCommand, between: tuple[float, float]
) -> NodeCheck:
    if facts := facts_of(name, remote_command):
        summary = f"Python {facts.python}, Ray {facts.ray or 'none'}, {facts.address}"
        return NodeCheck(node=name, found=summary, lacks=tuple(lacks(facts, way, between)))
    words = f'"{remote_command.last_words()}"'
    if not remote_command.has_ended:
        words = f"no answer within {VISIT_DEADLINE_S:g} s; it said: {words}"
    lack = Lack(what="way", found=words, advice=_cure(way, name, words))
    return NodeCheck(node=name, found="", lacks=(lack,))


def _cure(way: RayStart, name: str, words: str) -> str:
    cures = (cure for printed, cure in start_ways()[way.by].advice.items() if printed in words)
    return next(cures, f"see what this says: {shlex.join(trial(way, name))}")


def facts_of(name: str, remote_command: RemoteCommand) -> NodeFacts | None:
    outcome = remote_command.outcome() if remote_command.has_ended else None
    if not outcome or outcome["exit"] != 0:
        return None
    with suppress(ValueError, ExecutorError):
        return read(json.loads(outcome["stdout"]), NodeFacts, name, ExecutorError)
    return None


def trial(way: RayStart, name: str) -> list[str]:
    """Command that a person would type to see the trouble."""
    return start_ways()[way.by].trial(way, name, [*way.prefix, way.python, "--version"])


def lacks(facts: NodeFacts, way: RayStart, between: tuple[float, float]) -> Iterator[Lack]:
    """Everything that the node lacks. `between`: the driver's times before and after the node read
    its own clock."""
    yield from _versions(facts)
    yield from _ways(facts, way)
    yield from _room(facts, way)
    began, ended = between
    wrong_s = max(began - facts.time, facts.time - ended)
    if wrong_s > CLOCK_TOLERANCE_S:
        side = "behind" if facts.time < began else "ahead of"
        yield Lack(
            what="time",
            found=f"its clock is {time_span(wrong_s)} {side} the driver's",
            advice="timedatectl set-ntp true, or chronyc makestep",
        )


def _versions(facts: NodeFacts) -> Iterator[Lack]:
    python, ray, executable = facts.python, facts.ray, facts.executable
    if python.split(".")[:2] != platform.python_version().split(".")[:2]:
        yield Lack(
            what="python",
            found=f"{executable} is Python {python}, the driver's is {platform.python_version()}",
            advice="name one of that version with `ray_python:`",
        )
    if ray != version("ray"):
        yield Lack(
            what="ray",
            found=f"Ray {ray} in {executable}" if ray else f"no Ray in {executable}",
            advice=f"{executable} -m pip install ray=={version('ray')}, or another `ray_python:`",
        )


def _ways(facts: NodeFacts, way: RayStart) -> Iterator[Lack]:
    if way.ports and facts.free_ports < ray_node.PORTS_NEEDED:
        yield Lack(
            what="ports",
            found=f"{facts.free_ports} of {way.ports} are free, Ray takes {ray_node.PORTS_NEEDED}",
            advice="ss -ltnp shows the programs that use them; or name another range as `ports:`",
        )
    firewall = "let the ports of `ports:` through its firewall"
    if facts.out_trouble:
        yield Lack(
            what="driver",
            found=f"it does not reach the driver: {facts.out_trouble}",
            advice="name an address that it reaches as `driver_address:`, and let `ports:` through"
            " the driver's firewall",
        )
    elif facts.back_trouble:
        yield Lack(what="firewall", found=facts.back_trouble, advice=firewall)


def _room(facts: NodeFacts, way: RayStart) -> Iterator[Lack]:
    memlock, nofile = facts.memlock_bytes, facts.nofile
    if facts.hcas and memlock is not None:
        yield Lack(
            what="memlock",
            found=f"{_size(memlock)} may be locked in memory, RDMA needs no limit",
            advice=start_ways()[way.by].limits["memlock"],
        )
    if facts.shm_bytes < SHM_BYTES:
        yield Lack(
            what="/dev/shm",
            found=f"it has {_size(facts.shm_bytes)}, NCCL wants {_size(SHM_BYTES)}",
            advice="mount -o remount,size=50% /dev/shm; --shm-size for a container",
        )
    elif facts.shm_free_bytes < 2 * ray_node.OBJECTS_BYTES:
        yield Lack(
            what="/dev/shm",
            found=f"{_size(facts.shm_free_bytes)} are free, Ray and NCCL take"
            f" {_size(2 * ray_node.OBJECTS_BYTES)}",
            advice="remove what ended jobs left there",
        )
    if nofile is not None and nofile < NOFILE:
        yield Lack(
            what="nofile",
            found=f"{nofile} open files at most, Ray recommends {NOFILE}",
            advice=start_ways()[way.by].limits["nofile"],
        )


def _size(count: int) -> str:
    return f"{count / 2**20:.0f} MiB" if count < 1 << 30 else f"{count / 2**30:.3g} GiB"
