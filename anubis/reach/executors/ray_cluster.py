"""Executor of steps on the nodes of a Ray cluster, through one light agent on each.

Every answer of an agent arrives in one queue; nothing here waits for a particular node, because a
node that falls silent keeps a plain Ray call hanging for minutes. Silence is measured instead: an
agent that is needed is pinged, and is lost when it does not answer. If one is silent, all are
pinged, so that it is known whether it is alone. Ray takes a millisecond or two for each request, so
that of thousands of agents few are pinged at a time, and no silence counts while Ray is behind.
"""

from __future__ import annotations

import queue
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import nsmallest
from importlib.metadata import distribution
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any

from anubis.core.campaign.state_machine import (
    INATTENTIVE_S,
    CampaignEvent,
    Kill,
    Launch,
    NodeLost,
    Started,
)
from anubis.core.errors import ExecutorError, did_you_mean
from anubis.core.fabric import natural_key
from anubis.core.records import BenchmarkSpec, Node
from anubis.reach.executors import guardian
from anubis.reach.executors.executor import SteadyClock
from anubis.reach.executors.machine import Machine
from anubis.reach.executors.programs import (
    Parse,
    ProgramOutcome,
    exit_code,
    failed_event,
    failure,
    group_event_of,
    order,
    outcome_in,
    processes_on_each,
)
from anubis.reach.executors.ray_link import Answer, RayLink, safe_place
from anubis.reach.executors.ray_start import StartedRay
from anubis.reach.executors.start_settings import Program, Rendezvous, StartSettings

START_DEADLINE_S = 60.0  # since the last agent that started: a cold disk reads a Python and a Ray
GPU_PATIENCE_S = 30.0  # those of a campaign that just ended are free by then
LEAST_TAKEN = 1e-3  # Ray hands out ten-thousandths
GATHER_EVERY_S = 0.3  # between questions to Ray, whose nodes join within seconds
PING_EVERY_S = 3.0  # an agent that fell silent is known within seconds; later if there are many
PINGS_A_SECOND = 100.0  # each takes Ray more than a millisecond
SILENCE_S = 12.0  # four pings
PINGS_AT_ONCE = 256  # not answered, nor silent yet: half a second of work for Ray
BEHIND_S = 1.0  # an echo takes milliseconds; from here on, Ray is behind with its requests
MOST_BEHIND_S = 180.0  # orders to 50,000 nodes take two minutes; a Ray that is frozen takes longer
GROUP_GRACE_S = 5.0  # after the first participant failed, for the others to say why they did
CLOSE_PATIENCE_S = guardian.KILL_PATIENCE_S + 2  # the guardians kill first
GOODBYE_S = 5.0  # the next agent clears away what is left
UNKNOWN_SKU = "unknown"
DRIVER_RESOURCE = "anubis_driver"  # marks a Ray node where only the operator sits

OnAnswer = Callable[..., None]  # (answer, trouble): trouble is "" when the agent could do it


@dataclass
class AgentHandle:
    """The driver's view of one node: what it expects of the agent there, and since when."""

    name: str
    address: str
    node_id: str = ""  # Ray's
    resources: Mapping[str, float] = field(default_factory=dict)  # that Ray hands out there
    machine: Machine | None = None  # None: it has not described itself yet
    folder: Path = Path()
    lost: str = ""
    awaited: int = 0  # answers that are owed to us
    pinged_at: float = 0.0
    pinging: bool = False
    silent_since: float | None = None
    dying: set[str] = field(default_factory=set)  # runs that are being killed

    def is_silent(self, now: float, for_s: float) -> bool:
        return self.silent_since is not None and now - self.silent_since > for_s

    @property
    def gpus(self) -> float:
        return self.resources.get("GPU", 0.0)

    @property
    def busy(self) -> bool:
        """True if the agent owes answers, other than to a ping."""
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
        address: str,
        programs: Mapping[tuple[str, str], Program],
        parse: Parse,
        *,
        names: Iterable[str] = (),
        sku: str = "",
        skus: Mapping[str, str] = MappingProxyType({}),
        settings: StartSettings | None = None,
        token: Path | None = None,
        missing_is_fine: bool = False,
        started: StartedRay | None = None,
    ) -> None:
        """Join the cluster at `address`, or for "local" start one on this machine. One that was
        started for us may still be gathering its nodes: they are waited for.

        `names` narrows the nodes to these; `sku` is the label of all of them, if the name of their
        hardware does not say enough, except of those with a label of their own in `skus`. `token`
        is the file with what a closed cluster asks for.
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
        self._clock = SteadyClock()
        self._tended_at = time.monotonic()
        self._echo_sent_at: float | None = None  # None: the last one came back
        self._echoed_at = 0.0
        self._closed = False
        self._staging, self._staged = newly_staged(programs.values())
        try:
            own_address = started.own_address if started else ""
            self._link = RayLink(address, self._staging, self._inbox.put, token, own_address)
        except BaseException:
            shutil.rmtree(self._staging, ignore_errors=True)
            raise
        try:
            self._link.join()
            records = self._gather(started) if started else self._link.joined.records
            missing_is_fine = missing_is_fine or bool(started)
            self._agents = {
                handle.name: handle for handle in agents_of(records, tuple(names), missing_is_fine)
            }
            if started:
                self._add_absent(started.absent)
            self._start_agents()
            self._absent = {name: agent.lost for name, agent in self._agents.items() if agent.lost}
        except BaseException:
            self.close()
            raise

    @property
    def is_open(self) -> bool | None:
        """True if the cluster takes commands without a token; None if that is not known."""
        return self._link.is_open()

    # --- the protocol ----------------------------------------------------------------------

    def nodes(self) -> tuple[Node, ...]:
        return tuple(
            Node(
                name=agent.name,
                sku=self._sku_of(agent),
                address=agent.address,
                gpus=agent.machine.gpus if agent.machine else 0,
            )
            for agent in self._agents.values()
        )

    def absent(self) -> dict[str, str]:
        return self._absent

    def _sku_of(self, agent: AgentHandle) -> str:
        of_all = self._sku or (agent.machine.sku if agent.machine else UNKNOWN_SKU)
        return self._skus.get(agent.name, of_all)

    def now(self) -> float:
        return self._clock.now()

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
            if self._link.broken:
                raise ExecutorError(f"no node can be reached any more: {self._link.broken}")
            self._take_in(min(left, 1.0))
            self._tend()
        events, self._events = self._events, []
        return events

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for running in list(self._running.values()):
            self._kill_rest(running)
            if not running.ordered:
                self._forget(running)
        deadline = time.monotonic() + CLOSE_PATIENCE_S
        while self._running and not self._link.broken and time.monotonic() < deadline:
            self._take_in(0.2)
            self._tend()
        self._say_goodbye()
        self._link.close()
        shutil.rmtree(self._staging, ignore_errors=True)

    def _say_goodbye(self) -> None:
        """Let agents remove the programs; the next agent does it for those that cannot."""
        leaving = [a for a in self._agents.values() if a.machine and not a.lost and not a.busy]
        for agent in leaving:
            self._ask(agent, lambda *_: None, "clear_away")
        until = time.monotonic() + GOODBYE_S
        while any(a.awaited and not a.lost for a in leaving) and time.monotonic() < until:
            if self._link.broken:
                break
            self._take_in(0.1)

    # --- steps -----------------------------------------------------------------------------

    def _begin(self, running: RayLaunch) -> None:
        """Begin a launch, unless a killed program is still ending: it would disturb the new one."""
        step, attempt = running.launch.step, running.launch.attempt
        if any(self._agents[name].dying for name in step.participants):
            return
        running.begun = True
        self._events.append(Started(step_id=step.id, attempt=attempt, at=self.now()))
        if running.program.spec.launcher == "torchrun":
            first = self._agents[step.participants[0]]
            on_port = partial(self._handle_port, running)
            self._ask(first, on_port, "free_port", self._settings.ports)
        else:
            self._order(running, None)

    def _order(self, running: RayLaunch, port: int | None) -> None:
        """Send the participants their orders; a group meets at the first one's port."""
        running.ordered = True
        step = running.launch.step
        pair_test = self._agents[step.participants[0]].address
        agents = [self._agents[name] for name in step.participants]
        processes = processes_on_each([agent.machine for agent in agents if agent.machine])
        for rank, name in enumerate(step.participants):
            agent = self._agents[name]
            assert agent.machine is not None
            rendezvous = port and Rendezvous(
                address=pair_test,
                port=port,
                processes=processes,
                nodes=len(step.participants),
                rank=rank,
            )
            there = agent.folder / self._staged[running.program.file.parent]
            shipped = running.program.library
            program = replace(
                running.program,
                file=there / running.program.file.name,
                library=shipped and agent.folder / self._staged[shipped],
            )
            program_order = order(
                program,
                running.launch.parameters,
                step.timeout_s,
                agent.machine,
                rendezvous or None,
                self._settings,
            )
            on_report = partial(self._handle_report, running, name)
            self._ask(agent, on_report, "run", running.key, program_order, group="work")

    def _handle_port(self, running: RayLaunch, port: int, trouble: str) -> None:
        if not self._is_current(running):
            return
        if trouble:
            name = running.launch.step.participants[0]
            self._fail(running, f"on {name}: no free port for its ranks: {trouble}", again=True)
        else:
            self._order(running, port)

    def _handle_report(self, running: RayLaunch, name: str, report: bytes, trouble: str) -> None:
        agent = self._agents[name]
        if trouble:  # of the agent, or of the way to it: the program may run all the same
            unmeasured = {"could_not_start": trouble}
            then = partial(self._handle_outcome, running, name, unmeasured)
            self._kill_on(agent, running.key, then)
        else:
            self._handle_outcome(running, name, outcome_in(report))

    def _handle_outcome(self, running: RayLaunch, name: str, outcome: ProgramOutcome) -> None:
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
        self._events.append(failed_event(running.launch, self.now(), reason, infrastructure=again))

    def _kill_rest(self, running: RayLaunch) -> None:
        """End the participants that have not reported yet; each will report that it was killed."""
        running.end_by = None
        for name in running.launch.step.participants:
            agent = self._agents.get(name)
            if running.ordered and agent and not agent.lost and name not in running.outcomes:
                self._kill_on(agent, running.key)

    def _kill_on(
        self, agent: AgentHandle, key: str, then: Callable[[], None] = lambda: None
    ) -> None:
        agent.dying.add(key)
        self._ask(agent, partial(self._handle_killed, agent, key, then), "kill", key)

    def _handle_killed(
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

    def _gather(self, started: StartedRay) -> list[dict[str, Any]]:
        """Return Ray's records, by the names that we gave, once no node is waited for any more."""
        started.tend(())
        while True:
            records = [{**node, "NodeManagerHostname": node["NodeName"]} for node in self._list()]
            started.tend({node["NodeName"] for node in records if node["Alive"]})
            if not started.is_gathering:
                return records
            time.sleep(GATHER_EVERY_S)

    def _list(self) -> list[dict[str, Any]]:
        lists: list[list[dict[str, Any]]] = []
        self._link.list_nodes(lambda answer: lists.append(answer.value))
        while not lists:
            self._take_in(1.0)
            if self._link.broken:
                raise ExecutorError(f"the Ray that was started here is gone: {self._link.broken}")
        return lists[0]

    def _add_absent(self, absent: Mapping[str, str]) -> None:
        lost = {name: AgentHandle(name=name, address="", lost=why) for name, why in absent.items()}
        all_agents = {**self._agents, **lost}
        self._agents = {name: all_agents[name] for name in sorted(all_agents, key=natural_key)}

    def _start_agents(self) -> None:
        """Start all at once; an agent that does not start is lost, and the others go on."""
        for agent in self._agents.values():
            if not agent.lost and (reserved := self._reserved_by_others(agent)):
                self._lose(agent, reserved)
        starting = [agent for agent in self._agents.values() if not agent.lost]
        for agent in starting:
            self._link.start_agent(agent.node_id, agent.address, agent.gpus)
            self._ask(agent, partial(self._handle_description, agent), "describe")
        moved_at, started = time.monotonic(), 0
        while starting := [agent for agent in starting if not (agent.machine or agent.lost)]:
            before, started = started, sum(bool(agent.machine) for agent in self._agents.values())
            if started > before:  # thousands take longer than one
                moved_at = time.monotonic()
            waited_s = START_DEADLINE_S if self._link.broken else time.monotonic() - moved_at
            for agent in starting:
                self._give_up_start(agent, waited_s)
            self._take_in(0.5)
        self._events.clear()  # who is lost already is absent

    def _reserved_by_others(self, agent: AgentHandle) -> str:
        """Say which other jobs reserve on a node. An agent has no more than the GPUs, so what else
        is taken is theirs."""
        reserved = taken_in_ray(agent.resources, self._link.joined.free.get(agent.node_id))
        reserved.pop("GPU", None)
        return reservation(reserved, agent.resources)

    def _give_up_start(self, agent: AgentHandle, waited_s: float) -> None:
        """Lose an agent that waited too long: it has all GPUs of its node alone, or does not
        start."""
        taken = taken_in_ray({"GPU": agent.gpus}, self._link.joined.free.get(agent.node_id))
        if taken and waited_s >= GPU_PATIENCE_S:
            self._lose(agent, reservation(taken, agent.resources))
        elif waited_s >= START_DEADLINE_S:
            self._lose(agent, f"no agent started on it within {START_DEADLINE_S:g} s")

    def _handle_description(
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
        """Call an agent; the answer arrives through the inbox as `on_answer(answer, trouble)`;
        nothing waits."""
        agent.awaited += 1
        hear = partial(self._hear, agent, on_answer)
        self._link.ask(hear, agent.node_id, method, *arguments, group=group)

    def _hear(self, agent: AgentHandle, on_answer: OnAnswer, answer: Answer) -> None:
        agent.awaited -= 1
        if agent.lost:
            return
        if answer.gone:
            self._lose(agent, answer.trouble)
        else:
            on_answer(answer.value, answer.trouble)

    def _take_in(self, patience_s: float) -> None:
        """Handle all answers that are there; wait for the first."""
        with suppress(queue.Empty):
            self._inbox.get(timeout=patience_s)()
            while True:
                self._inbox.get_nowait()()

    def _tend(self) -> None:
        now = time.monotonic()
        self._allow_for_gap(now)
        for running in list(self._running.values()):
            if not running.begun:
                self._begin(running)
            if running.end_by is not None and now > running.end_by:
                self._kill_rest(running)
        present = [agent for agent in self._agents.values() if not agent.lost]
        in_doubt = any(agent.is_silent(now, PING_EVERY_S) for agent in present)
        listened_to = [agent for agent in present if agent.busy or in_doubt]
        for agent in present:
            if not (agent.busy or in_doubt):
                agent.silent_since = None
        seldom_s = max(PING_EVERY_S, len(listened_to) / PINGS_A_SECOND)
        self._ping(listened_to, now, every_s=PING_EVERY_S if in_doubt else seldom_s)
        self._lose_silent(present, now)

    def _allow_for_gap(self, now: float) -> None:
        """Extend deadlines by the time in which this driver was stopped or suspended, or Ray was
        behind: no agent could answer."""
        gap_s, self._tended_at = now - self._tended_at, now
        if gap_s > INATTENTIVE_S or self._is_ray_behind(now):
            for agent in self._agents.values():
                agent.silent_since = agent.silent_since and agent.silent_since + gap_s
            for running in self._running.values():
                running.end_by = running.end_by and running.end_by + gap_s

    def _is_ray_behind(self, now: float) -> bool:
        """True if Ray's process has earlier requests than the last echo to carry out."""
        if self._echo_sent_at is None and now - self._echoed_at > BEHIND_S:
            self._echo_sent_at = now
            self._link.echo(self._handle_echo)
        waited_s = 0.0 if self._echo_sent_at is None else now - self._echo_sent_at
        return BEHIND_S < waited_s < MOST_BEHIND_S

    def _handle_echo(self, _: Answer) -> None:
        self._echo_sent_at, self._echoed_at = None, time.monotonic()

    def _ping(self, agents: Iterable[AgentHandle], now: float, *, every_s: float) -> None:
        """Ping those that were not pinged for the longest, as many as may wait for an answer."""
        waiting = [agent for agent in agents if agent.pinging]
        places = PINGS_AT_ONCE - sum(now - agent.pinged_at < PING_EVERY_S for agent in waiting)
        rested = (
            agent for agent in agents if not agent.pinging and now - agent.pinged_at > every_s
        )
        for agent in nsmallest(max(0, places), rested, key=attrgetter("pinged_at")):
            agent.pinging, agent.pinged_at = True, now
            agent.silent_since = now if agent.silent_since is None else agent.silent_since
            self._ask(agent, partial(self._handle_ping, agent), "ping")

    def _lose_silent(self, present: Iterable[AgentHandle], now: float) -> None:
        """Lose all silent agents together, once those that may be silent as well had the time to
        answer."""
        if all(a.is_silent(now, SILENCE_S) for a in present if a.is_silent(now, PING_EVERY_S)):
            for agent in present:
                if agent.is_silent(now, SILENCE_S):
                    self._lose(agent, f"its agent has not answered for {SILENCE_S:g} s")

    def _handle_ping(self, agent: AgentHandle, _: None, trouble: str) -> None:
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
        self._link.dismiss(agent.node_id)


def taken_in_ray(total: Mapping[str, float], free: Mapping[str, float] | None) -> dict[str, float]:
    """Return how much of a node's resources is taken. `free` has no entry for what is wholly taken;
    memory of the object store is no work, and if `free` is unknown, nothing is taken."""
    if free is None:
        return {}
    left = {kind: have - free.get(kind, 0.0) for kind, have in total.items()}
    left.pop("object_store_memory", None)
    return {kind: taken for kind, taken in left.items() if taken > LEAST_TAKEN}


def reservation(taken: Mapping[str, float], total: Mapping[str, float]) -> str:
    """Describe the first of the taken resources; empty if nothing is taken."""
    if not taken:
        return ""
    kind = min(taken)
    noun = f"{kind}s" if kind in ("CPU", "GPU") else f'"{kind}"'
    of_all = f"{taken[kind]:g} of its {total[kind]:g} {noun}"
    return f"{of_all} are taken by other jobs in Ray: wait until they end"


def agents_of(
    records: Iterable[Mapping[str, Any]], chosen: tuple[str, ...], missing_is_fine: bool = False
) -> list[AgentHandle]:
    alive = [record for record in records if record["Alive"]]
    hosts = Counter(record["NodeManagerHostname"] for record in alive)
    addresses = Counter(record["NodeManagerAddress"] for record in alive)
    handles: dict[str, AgentHandle] = {}
    drivers: set[str] = set()
    for record in alive:
        host, address = record["NodeManagerHostname"], record["NodeManagerAddress"]
        alone = f"{address}:{record['NodeManagerPort']}"
        name = host if hosts[host] == 1 else address if addresses[address] == 1 else alone
        resources = record.get("Resources", {})
        handles[name] = AgentHandle(
            name=name, address=address, node_id=record["NodeID"], resources=resources
        )
        if DRIVER_RESOURCE in resources:
            drivers.add(name)
    for record in records:
        for name in {record["NodeManagerHostname"], record["NodeManagerAddress"]} & set(chosen):
            if not record["Alive"] and name not in handles:
                address, lost = record["NodeManagerAddress"], "the ray cluster lists it as dead"
                handles[name] = AgentHandle(name=name, address=address, lost=lost)
    for name in chosen:
        if name not in handles and not missing_is_fine:
            hint = did_you_mean(name, handles)
            raise ExecutorError(f'node "{name}" is not in the ray cluster; {hint}')
    names = chosen or handles.keys() - drivers
    return [handles[name] for name in sorted(handles.keys() & set(names), key=natural_key)]


def _ended_well(outcome: ProgramOutcome, spec: BenchmarkSpec) -> bool:
    return exit_code(outcome, spec) == 0 and not failure(outcome, spec, document=False)


def newly_staged(programs: Iterable[Program]) -> tuple[Path, dict[Path, str]]:
    """Return a new folder with all programs; a full disk is one sentence, and leaves none."""
    folder = safe_place()
    try:
        into = Path(tempfile.mkdtemp(prefix="anubis-programs-", dir=folder))
        try:
            return into, stage(programs, into)
        except BaseException:
            shutil.rmtree(into, ignore_errors=True)
            raise
    except OSError as error:  # shutil's own has a list instead of a reason
        reason = error.strerror or str(error.args[0][0][-1])
        raise ExecutorError(
            f'the programs cannot be copied into "{folder}": {reason}; free some space there, or'
            " let $TMPDIR name another folder"
        ) from None


def stage(programs: Iterable[Program], into: Path) -> dict[Path, str]:
    """Copy all program folders into one folder: Ray ships one, by the hash of its content.

    The module with which programs read GPUs is put beside them; a node may have its own.
    """
    bindings = Path(str(distribution("nvidia-ml-py").locate_file("pynvml.py")))
    staged: dict[Path, str] = {}
    programs = list(programs)
    homes = {program.file.parent for program in programs}
    for folder in sorted(homes | {program.library for program in programs if program.library}):
        staged[folder] = str(len(staged))
        unwanted = shutil.ignore_patterns("__pycache__", ".git*")
        shutil.copytree(folder, into / staged[folder], ignore=unwanted)
        packages = into / staged[folder] / "packages"  # not beside them: that would come first
        packages.mkdir(exist_ok=True)
        shutil.copy(bindings, packages)
    return staged
