"""Runs steps on the nodes of a Ray cluster, through one light agent on each. Only this imports ray.

Every answer of an agent arrives in one queue; nothing here waits for a particular node, because
a node that falls silent keeps a plain Ray call hanging for minutes. Silence is measured instead:
an agent that is wanted for something is pinged, and is lost when it does not answer.
"""

from __future__ import annotations

import logging
import os
import queue
import re
import shutil
import socket
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import distribution
from pathlib import Path
from types import MappingProxyType
from typing import Any

from anubis.core.campaign.machine import (
    CampaignEvent,
    Kill,
    Launch,
    NodeLost,
    Started,
    TimePassed,
)
from anubis.core.errors import ExecutorError, did_you_mean
from anubis.core.fabric import by_number
from anubis.core.records import BenchmarkSpec, Node
from anubis.executors import agent as agent_module
from anubis.executors import guardian, machine, other_gpus
from anubis.executors.machine import Machine
from anubis.executors.programs import (
    Parse,
    Program,
    ProgramOutcome,
    Rendezvous,
    StartSettings,
    exit_code,
    failed,
    group_event_of,
    order,
    outcome_in,
    processes_on_each,
    why_not,
)

START_DEADLINE_S = 60.0  # for an agent: a cold disk reads a Python and a Ray
PING_EVERY_S = 3.0
SILENCE_S = 12.0
GROUP_GRACE_S = 5.0  # after the first participant failed, for the others to say why they did
CLOSE_PATIENCE_S = guardian.KILL_PATIENCE_S + 2
REACH_PATIENCE_S = 5.0
PROGRAMS_AT_ONCE = 32  # on one node; exclusive ones come one at a time anyway
UNKNOWN_SKU = "unknown"
DRIVER_RESOURCE = "anubis_driver"  # marks a Ray node where only the operator sits

OnAnswer = Callable[..., None]  # (answer, trouble): trouble is "" when the agent could do it

# A silent partition must not go unnoticed for minutes; these are Ray's names for "soon".
HEALTH_CHECKS = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 1000,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 3,
}
# Never for a cluster we join: to servers that do not expect them, keep-alives are an offence.
OWN_CLUSTER = {
    "RAY_grpc_client_keepalive_time_ms": "1000",
    "RAY_grpc_client_keepalive_timeout_ms": "2000",
    "RAY_worker_niceness": "0",
    "RAY_memory_monitor_refresh_ms": "0",  # it would take the agent for what the program eats
}


@dataclass
class AgentHandle:
    """The driver's view of one node: what it expects of the agent there, and since when."""

    name: str
    address: str
    node_id: str = ""  # Ray's
    handle: Any = None  # None: it was never started
    machine: Machine | None = None  # None: it has not described itself yet
    folder: Path = Path()
    lost: str = ""
    awaited: int = 0  # answers that are owed to us
    pinged_at: float = 0.0
    pinging: bool = False
    silent_since: float | None = None
    dying: set[str] = field(default_factory=set)  # runs that are being killed

    @property
    def busy(self) -> bool:
        """Whether answers are due from it, other than to a ping."""
        return self.awaited > (1 if self.pinging else 0)


@dataclass
class RayLaunch:
    """One launch, and the reports of its participants so far."""

    launch: Launch
    program: Program
    outcomes: dict[str, ProgramOutcome] = field(default_factory=dict)  # in order of arrival
    begun: bool = False
    ordered: bool = False  # the participants were given their orders
    end_by: float | None = None  # when those that still run are killed for the one that failed

    @property
    def key(self) -> str:
        return _key(self.launch.step.id, self.launch.attempt)


def _key(step_id: str, attempt: int) -> str:
    return f"{step_id}#{attempt}"


class RayExecutor:
    def __init__(
        self,
        address: str | None,
        programs: Mapping[tuple[str, str], Program],
        parse: Parse,
        *,
        names: Iterable[str] = (),
        sku: str = "",
        skus: Mapping[str, str] = MappingProxyType({}),
        settings: StartSettings | None = None,
    ) -> None:
        """Join the cluster at `address`, or start one on this machine for None.

        `names` narrows the nodes to these; `sku` is the label of all of them, if the name of their
        hardware does not say enough, except of those with a label of their own in `skus`.
        """
        self._programs = programs
        self._settings = settings or StartSettings()
        self._parse = parse
        self._sku = sku
        self._skus = skus
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._events: list[CampaignEvent] = []
        self._running: dict[str, RayLaunch] = {}  # by their keys
        self._agents: dict[str, AgentHandle] = {}
        self._connected = False
        self._closed = False
        self._staging = Path(tempfile.mkdtemp(prefix="anubis-programs-"))
        self._staged = stage(programs.values(), self._staging)
        try:
            connect(address, self._staging)
            self._connected = True
            self._agents = {handle.name: handle for handle in members(tuple(names))}
            self._start_agents()
        except BaseException:
            self.close()
            raise

    # --- the protocol ----------------------------------------------------------------------

    def nodes(self) -> tuple[Node, ...]:
        return tuple(
            Node(
                name=agent.name,
                sku=self._sku_of(agent),
                address=agent.address,
            )
            for agent in self._agents.values()
        )

    def _sku_of(self, agent: AgentHandle) -> str:
        of_all = self._sku or (agent.machine.sku if agent.machine else UNKNOWN_SKU)
        return self._skus.get(agent.name, of_all)

    def now(self) -> float:
        return time.time()

    def launch(self, launch: Launch) -> None:
        step = launch.step
        running = RayLaunch(launch, self._programs[step.workload.benchmark, step.workload.version])
        self._running[running.key] = running
        for name in step.participants:
            agent = self._agents.get(name)
            if agent is None or agent.lost:
                reason = agent.lost if agent else f'"{name}" is not a node of this cluster'
                self._events.append(NodeLost(node=name, at=self.now(), reason=reason))
                self._forget(running)
                return
        self._begin(running)

    def kill(self, kill: Kill) -> None:
        running = self._running.get(_key(kill.step_id, kill.attempt))
        if running is None:
            return
        if running.ordered:
            self._kill_rest(running)
        else:
            self._fail(running, f"{running.program.spec.name} was ended early", again=False)

    def wait(self, until: float) -> list[CampaignEvent]:
        while not self._events and (left := until - self.now()) > 0:
            self._take_in(min(left, 1.0))
            self._tend()
        events, self._events = self._events, []
        return events or [TimePassed(at=self.now())]

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for running in list(self._running.values()):
            self._kill_rest(running)
            if not running.ordered:
                self._forget(running)
        deadline = time.monotonic() + CLOSE_PATIENCE_S
        while self._running and time.monotonic() < deadline:
            self._take_in(0.2)
            self._tend()
        if self._connected:
            disconnect()
        shutil.rmtree(self._staging, ignore_errors=True)

    # --- steps -----------------------------------------------------------------------------

    def _begin(self, running: RayLaunch) -> None:
        """Wait while a killed program is still ending: it would disturb the new one."""
        step, attempt = running.launch.step, running.launch.attempt
        if any(self._agents[name].dying for name in step.participants):
            return
        running.begun = True
        self._events.append(Started(step_id=step.id, attempt=attempt, at=self.now()))
        if running.program.spec.launcher == "torchrun":
            first = self._agents[step.participants[0]]
            on_port = partial(self._on_port, running)
            self._ask(first, on_port, "free_port", self._settings.ports)
        else:
            self._order(running, None)

    def _order(self, running: RayLaunch, port: int | None) -> None:
        """Send the participants their orders; they meet at the first one's port, if they meet."""
        running.ordered = True
        step = running.launch.step
        meeting = self._agents[step.participants[0]].address
        agents = [self._agents[name] for name in step.participants]
        processes = processes_on_each([agent.machine for agent in agents if agent.machine])
        for rank, name in enumerate(step.participants):
            agent = self._agents[name]
            assert agent.machine is not None
            rendezvous = port and Rendezvous(
                address=meeting,
                port=port,
                processes=processes,
                nodes=len(step.participants),
                rank=rank,
            )
            there = agent.folder / self._staged[running.program.file.parent]
            program = replace(running.program, file=there / running.program.file.name)
            program_order = order(
                program,
                step.workload.arguments,
                step.timeout_s,
                agent.machine,
                rendezvous or None,
                self._settings,
            )
            on_report = partial(self._on_report, running, name)
            self._ask(agent, on_report, "run", running.key, program_order, group="work")

    def _on_port(self, running: RayLaunch, port: int, trouble: str) -> None:
        if not self._is_current(running):
            return
        if trouble:
            name = running.launch.step.participants[0]
            self._fail(running, f"on {name}: no port to meet at: {trouble}", again=True)
        else:
            self._order(running, port)

    def _on_report(self, running: RayLaunch, name: str, report: bytes, trouble: str) -> None:
        agent = self._agents[name]
        if trouble:  # of the agent, or of the way to it: the program may run all the same
            unmeasured = {"could_not_start": trouble}
            then = partial(self._on_outcome, running, name, unmeasured)
            self._kill_on(agent, running.key, then)
        else:
            self._on_outcome(running, name, outcome_in(report))

    def _on_outcome(self, running: RayLaunch, name: str, outcome: ProgramOutcome) -> None:
        if not self._is_current(running):
            return
        running.outcomes[name] = outcome
        if len(running.outcomes) == len(running.launch.step.participants):
            self._settle(running)
        elif running.end_by is None and not _ended_well(outcome, running.program.spec):
            running.end_by = time.monotonic() + GROUP_GRACE_S

    def _settle(self, running: RayLaunch) -> None:
        self._forget(running)
        spec = running.program.spec
        event = group_event_of(running.outcomes, running.launch, spec, self.now(), self._parse)
        self._events.append(event)

    def _fail(self, running: RayLaunch, reason: str, *, again: bool) -> None:
        self._forget(running)
        self._events.append(failed(running.launch, self.now(), reason, infrastructure=again))

    def _kill_rest(self, running: RayLaunch) -> None:
        """Those that have not reported yet; each will, as killed."""
        running.end_by = None
        for name in running.launch.step.participants:
            agent = self._agents.get(name)
            if running.ordered and agent and not agent.lost and name not in running.outcomes:
                self._kill_on(agent, running.key)

    def _kill_on(
        self, agent: AgentHandle, key: str, then: Callable[[], None] = lambda: None
    ) -> None:
        agent.dying.add(key)
        self._ask(agent, partial(self._on_killed, agent, key, then), "kill", key)

    def _on_killed(
        self, agent: AgentHandle, key: str, then: Callable[[], None], _: None, trouble: str
    ) -> None:
        agent.dying.discard(key)
        if trouble:
            self._lose(agent, f"its agent is gone: {trouble}")
        else:
            then()

    def _is_current(self, running: RayLaunch) -> bool:
        return self._running.get(running.key) is running

    def _forget(self, running: RayLaunch) -> None:
        del self._running[running.key]

    # --- agents ----------------------------------------------------------------------------

    def _start_agents(self) -> None:
        """Start all at once; an agent that does not start is lost, and the others go on."""
        source = Path(guardian.__file__).read_text()
        starting = [agent for agent in self._agents.values() if not agent.lost]
        for agent in self._agents.values():
            if agent.lost:
                self._events.append(NodeLost(node=agent.name, at=self.now(), reason=agent.lost))
        for agent in starting:
            agent.handle = actor_on(agent, source)
            self._ask(agent, partial(self._on_description, agent), "describe")
        deadline = time.monotonic() + START_DEADLINE_S
        while any(not (agent.machine or agent.lost) for agent in starting):
            if time.monotonic() > deadline:
                for agent in starting:
                    if agent.machine is None and not agent.lost:
                        self._lose(agent, f"no agent started on it within {START_DEADLINE_S:g} s")
                return
            self._take_in(0.5)

    def _on_description(
        self, agent: AgentHandle, described: tuple[Machine, str], trouble: str
    ) -> None:
        if trouble:
            self._lose(agent, trouble)
        else:
            agent.machine, agent.folder = described[0], Path(described[1])

    def _ask(
        self,
        agent: AgentHandle,
        on_answer: OnAnswer,
        method: str,
        *arguments: object,
        group: str = "control",
    ) -> None:
        """The answer arrives through the inbox as `on_answer(answer, trouble)`; nothing waits."""
        agent.awaited += 1
        method_call = getattr(agent.handle, method).options(concurrency_group=group)
        future = method_call.remote(*arguments).future()
        future.add_done_callback(
            lambda future: self._inbox.put(partial(self._hear, agent, on_answer, future))
        )

    def _hear(self, agent: AgentHandle, on_answer: OnAnswer, future: Future[Any]) -> None:
        from ray.exceptions import ActorUnavailableError, RayTaskError

        agent.awaited -= 1
        if agent.lost:
            return
        error = future.exception()
        if error is None:
            on_answer(future.result(), "")
        elif isinstance(error, RayTaskError):  # the agent is well, but could not do it
            on_answer(None, shorten_error(error.cause))
        elif isinstance(error, ActorUnavailableError):  # for now: the next ping will tell
            on_answer(None, shorten_error(error))
        else:
            self._lose(agent, explain_loss(error))

    def _take_in(self, patience_s: float) -> None:
        """All answers that are there; waits for the first."""
        with suppress(queue.Empty):
            self._inbox.get(timeout=patience_s)()
            while True:
                self._inbox.get_nowait()()

    def _tend(self) -> None:
        now = time.monotonic()
        for running in list(self._running.values()):
            if not running.begun:
                self._begin(running)
            if running.end_by is not None and now > running.end_by:
                self._kill_rest(running)
        for agent in self._agents.values():
            if not agent.lost:
                self._listen_to(agent, now)

    def _listen_to(self, agent: AgentHandle, now: float) -> None:
        if not agent.busy:
            agent.silent_since = None
            return
        if not agent.pinging and now - agent.pinged_at > PING_EVERY_S:
            agent.pinging, agent.pinged_at = True, now
            self._ask(agent, partial(self._on_ping, agent), "ping")
        if agent.pinging and agent.silent_since is None:
            agent.silent_since = now
        if agent.silent_since is not None and now - agent.silent_since > SILENCE_S:
            self._lose(agent, f"its agent has not answered for {SILENCE_S:g} s")

    def _on_ping(self, agent: AgentHandle, _: None, trouble: str) -> None:
        agent.pinging = False
        if not trouble:
            agent.silent_since = None

    def _lose(self, agent: AgentHandle, reason: str) -> None:
        """Give the node up, with every group that it takes part in."""
        agent.lost = reason
        self._events.append(NodeLost(node=agent.name, at=self.now(), reason=reason))
        for running in list(self._running.values()):
            if agent.name in running.launch.step.participants:
                self._kill_rest(running)
                self._forget(running)
        dismiss(agent.handle)


# --- ray ---------------------------------------------------------------------------------------


def connect(address: str | None, staging: Path) -> None:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    if address is None:
        os.environ.update(OWN_CLUSTER)
    import ray

    ray._private.worker.print_to_stdstream = unheard
    settings: dict[str, Any] = {
        "runtime_env": {"working_dir": str(staging)},
        "log_to_driver": False,
        "logging_level": logging.ERROR,
    }
    if address is None:
        settings |= {
            "address": "local",
            "include_dashboard": False,
            "object_store_memory": 256 << 20,
            "_system_config": HEALTH_CHECKS,
        }
    else:
        reach(address)
        settings["address"] = address
        if own_address := os.environ.get("ANUBIS_NODE_IP"):
            settings["_node_ip_address"] = own_address
    where = f'the ray cluster at "{address}"' if address else "a ray cluster on this machine"
    try:
        ray.init(**settings)
    except Exception as error:
        raise ExecutorError(f"{where} cannot be used: {shorten_error(error)}") from error


def unheard(*_: object, **__: object) -> None:
    """Ray prints the news of its cluster to stdout, which belongs to our results; no option."""


def reach(address: str) -> None:
    """Ask the door before Ray does, which knocks for a minute."""
    host, _, port = address.rpartition(":")
    if not port.isdigit():
        return  # "auto" and the like: Ray's to resolve
    try:
        socket.create_connection((host, int(port)), timeout=REACH_PATIENCE_S).close()
    except OSError as error:
        raise ExecutorError(
            f'no ray cluster answers at "{address}" ({error}); '
            f'start one there with "ray start --head --port={port}"'
        ) from None


def disconnect() -> None:
    """Seats the job, and with it every agent; does not wait for nodes that do not answer."""
    import ray

    leaving = threading.Thread(target=ray.shutdown, daemon=True)
    leaving.start()
    leaving.join(timeout=CLOSE_PATIENCE_S)


def members(chosen: tuple[str, ...]) -> list[AgentHandle]:
    """The nodes of the cluster, narrowed to the chosen; a chosen one that died is already lost."""
    import ray

    return agents_of(ray.nodes(), chosen)  # type: ignore[no-untyped-call]


def agents_of(records: Iterable[Mapping[str, Any]], chosen: tuple[str, ...]) -> list[AgentHandle]:
    alive = [record for record in records if record["Alive"]]
    hosts = Counter(record["NodeManagerHostname"] for record in alive)
    addresses = Counter(record["NodeManagerAddress"] for record in alive)
    handles: dict[str, AgentHandle] = {}
    drivers: set[str] = set()
    for record in alive:
        host, address = record["NodeManagerHostname"], record["NodeManagerAddress"]
        alone = f"{address}:{record['NodeManagerPort']}"
        name = host if hosts[host] == 1 else address if addresses[address] == 1 else alone
        handles[name] = AgentHandle(name=name, address=address, node_id=record["NodeID"])
        if DRIVER_RESOURCE in record.get("Resources", {}):
            drivers.add(name)
    for record in records:
        for name in {record["NodeManagerHostname"], record["NodeManagerAddress"]} & set(chosen):
            if not record["Alive"] and name not in handles:
                address, lost = record["NodeManagerAddress"], "the ray cluster lists it as dead"
                handles[name] = AgentHandle(name=name, address=address, lost=lost)
    for name in chosen:
        if name not in handles:
            hint = did_you_mean(name, handles)
            raise ExecutorError(f'node "{name}" is not in the ray cluster; {hint}')
    names = chosen or handles.keys() - drivers
    return [handles[name] for name in sorted(set(names), key=by_number)]


def actor_on(agent: AgentHandle, guardian_source: str) -> Any:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    for module in (
        agent_module,
        guardian,
        machine,
        other_gpus,
    ):  # nodes need no Anubis: its code travels in the actor
        ray.cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    # two groups of threads, so that it answers while programs run; ray's types know nothing of it
    groups: Any = {"concurrency_groups": {"control": PROGRAMS_AT_ONCE, "work": PROGRAMS_AT_ONCE}}
    kind = ray.remote(**groups)(agent_module.Agent)
    return kind.options(
        num_cpus=0,
        max_restarts=0,
        scheduling_strategy=NodeAffinitySchedulingStrategy(agent.node_id, soft=False),
    ).remote(guardian_source, agent.address)


def dismiss(handle: Any) -> None:
    """If the node comes back, its agent must not: what it runs would disturb other programs."""
    import ray

    with suppress(Exception):
        ray.kill(handle)


def explain_loss(error: object) -> str:
    """Why an agent will never answer again, in words for the verdict."""
    if "node has died" in str(error):
        return "the node left the ray cluster: it crashed, its ray was ended, or it was cut off"
    return f"its agent is gone: {shorten_error(error)}"


def shorten_error(error: object) -> str:
    """Ray explains itself over many lines; the sentence that says why, or the first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if "because" in line or "reason" in line.lower()]
    sentence = (telling or lines or [type(error).__name__])[0]
    return re.split(r"\s*(?:Node|Actor) Id:", sentence, flags=re.IGNORECASE)[0][:160]


def _ended_well(outcome: ProgramOutcome, spec: BenchmarkSpec) -> bool:
    return exit_code(outcome, spec) == 0 and not why_not(outcome, spec, document=False)


def stage(programs: Iterable[Program], into: Path) -> dict[Path, str]:
    """One folder that holds all program folders: Ray ships one, by the hash of its content.

    Beside the programs lies the module with which they read GPUs; a node may have its own.
    """
    bindings = Path(str(distribution("nvidia-ml-py").locate_file("pynvml.py")))
    staged: dict[Path, str] = {}
    for folder in sorted({program.file.parent for program in programs}):
        staged[folder] = str(len(staged))
        unwanted = shutil.ignore_patterns("__pycache__", ".git*")
        shutil.copytree(folder, into / staged[folder], ignore=unwanted)
        packages = into / staged[folder] / "packages"  # not beside them: that would come first
        packages.mkdir(exist_ok=True)
        shutil.copy(bindings, packages)
    return staged
