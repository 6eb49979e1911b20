"""suite x fleet -> plan, and phase x nodes -> steps.

A plan holds phases of entries, not steps: which steps a phase has depends on which nodes are
still fit when it begins, so they are made then, lazily and always alike.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import chain, islice

from anubis.core.errors import ConfigError, UsageError, did_you_mean
from anubis.core.fabric import Fabric
from anubis.core.network.coverage import covering_rounds
from anubis.core.network.pairing import (
    HopRound,
    Pair,
    hops_between,
    quick_rounds,
    replace_unfit,
    round_robin,
)
from anubis.core.records import (
    BenchmarkSpec,
    Level,
    Node,
    ParameterValue,
    Phase,
    Plan,
    PlannedEntry,
    Step,
    Suite,
    SuiteEntry,
    Workload,
)

# Name, whether on single nodes, levels in their order. A node found defective in one phase takes no
# part in the next; within a phase it runs all, which shows which benchmarks find the same defects.
PHASES: tuple[tuple[str, bool, tuple[Level, ...]], ...] = (
    ("single-node", True, ("micro", "end-to-end")),
    ("multi-node", False, ("micro", "end-to-end")),
)
EARLY_PHASES: tuple[tuple[str, bool, tuple[Level, ...]], ...] = tuple(
    (f"{name} {level}", single, (level,)) for name, single, levels in PHASES for level in levels
)
TIMES_TYPICAL = 6  # a limit nobody stated: this often the typical duration, but at least
SHORTEST_LIMIT_S = 60.0  # a minute, because a busy node can take that long to import torch


BY_DISTANCE = ("quick", "covering")
FEWEST_PAIRS, MOST_TURNS = 12, 32  # pairs at one distance; shuffles that look for more


def plan(
    suite: Suite,
    nodes: Sequence[Node],
    specs: Mapping[str, BenchmarkSpec],
    fabric: Fabric | None = None,
    *,
    stop_early: bool = False,
) -> Plan:
    """Everything resolved and checked before the first step runs.

    With a fabric, pairs are made and judged by it; it calls the nodes as `nodes` does.
    `stop_early`: nodes that micro-benchmarks find defective run no end-to-end ones.
    """
    if not nodes:
        raise UsageError("no nodes to plan for: the node list is empty")
    seen: set[str] = set()
    for node in nodes:
        if node.name in seen:
            raise UsageError(f'node "{node.name}" is named twice: name every node once')
        seen.add(node.name)
    planned = [(_spec(entry, specs, suite), entry) for entry in suite.benchmarks]
    if fabric is None and any(entry.groups in BY_DISTANCE for entry in suite.benchmarks):
        raise UsageError(
            f'suite "{suite.name}" makes pairs by their distance: anubis scan does that'
        )
    able = [(spec, entry) for spec, entry in planned if spec.needs.min_nodes <= len(nodes)]
    if not able:
        raise UsageError(f'suite "{suite.name}" has nothing that {len(nodes)} node(s) can run')
    phases = []
    for name, single, levels in EARLY_PHASES if stop_early else PHASES:
        entries = tuple(
            _resolved(entry, spec, suite)
            for level in levels
            for spec, entry in able
            if (spec.scope == "node") is single and spec.level == level
        )
        if entries:
            phases.append(Phase(name=name, entries=entries))
    return Plan(
        suite=suite.name,
        nodes=tuple(nodes),
        phases=tuple(phases),
        specs=tuple({spec.name: spec for spec, _ in able}.values()),
        left_out=tuple(
            f"{spec.name} needs {spec.needs.min_nodes} nodes, there are {len(nodes)}"
            for spec, _ in planned
            if spec.needs.min_nodes > len(nodes)
        ),
        fabric=fabric,
    )


def steps(plan: Plan, phase: int, fit: Collection[str]) -> Iterator[Step]:
    """The steps of one phase for the nodes fit to take part, in the order to try them."""
    for position, entry in enumerate(plan.phases[phase].entries):
        for repeat in range(entry.repeats):
            for participants in _meetings(plan, entry, fit):
                yield _step(entry, participants, (phase, position, repeat))


def follow_ups(
    plan: Plan, phase: int, position: int, turn: int, groups: Collection[tuple[str, ...]]
) -> Iterator[Step]:
    """An entry of the phase once more, by these groups, in a later turn."""
    entry = plan.phases[phase].entries[position]
    for repeat in range(entry.repeats):
        for group in groups:
            yield _step(entry, group, (phase, position, repeat, turn))


def _step(entry: PlannedEntry, participants: tuple[str, ...], where: tuple[int, ...]) -> Step:
    head = ".".join(map(str, where))
    return Step(
        id=f"{head}/{entry.workload.benchmark}/{_label(participants)}",
        workload=entry.workload,
        participants=participants,
        phase=where[0],
        repeat=where[2],
        timeout_s=entry.timeout_s,
        exclusive=entry.exclusive,
    )


def _meetings(plan: Plan, entry: PlannedEntry, fit: Collection[str]) -> Iterator[tuple[str, ...]]:
    nodes = [node.name for node in plan.nodes if node.name in fit]
    if len(nodes) < entry.min_nodes:
        return
    if entry.scope == "node":
        yield from ((node,) for node in nodes)
    elif plan.fabric and entry.groups in BY_DISTANCE:
        yield from _by_distance(plan, plan.fabric, entry, fit)
    elif len(nodes) > 1 and (entry.scope == "pair" or entry.groups == "pairs"):
        if plan.fabric:
            nodes = [name for name in placed(plan, plan.fabric) if name in fit]
        for matches in islice(round_robin(nodes), entry.rounds):
            yield from matches
    elif nodes:
        yield tuple(nodes)


def _by_distance(
    plan: Plan, fabric: Fabric, entry: PlannedEntry, fit: Collection[str]
) -> Iterator[Pair]:
    """The rounds of all nodes, mended where nodes are unfit, so that the others meet as planned."""
    met: set[frozenset[str]] = set()
    for hop_round in islice(rounds(plan, fabric, entry.groups == "covering"), entry.rounds):
        for pair in replace_unfit(fabric, hop_round, fit):
            if frozenset(pair) not in met:  # as far apart on one rail as on another
                met.add(frozenset(pair))
                yield pair


def rounds(plan: Plan, fabric: Fabric, covering: bool) -> Iterator[HopRound]:
    """Per hop distance a round of all nodes; then more, until every uplink has been crossed.

    Where few pairs fit into a round, the next ones come with other partners: from a handful nobody
    could say what is normal, and in a small fabric most pairs may cross the one bad link.
    """
    nodes = placed(plan, fabric)
    quick = quick_rounds(fabric, nodes)
    yield from quick
    met = {hop_round.hops: _pairs_of(hop_round) for hop_round in quick}
    for turn in range(1, MOST_TURNS):
        if all(len(pairs) >= FEWEST_PAIRS for pairs in met.values()):
            break
        for hop_round in quick_rounds(fabric, nodes, seed=turn):
            new = _pairs_of(hop_round) - met[hop_round.hops]
            if len(met[hop_round.hops]) < FEWEST_PAIRS and new:
                met[hop_round.hops] |= new
                quick += (hop_round,)
                yield hop_round
    if covering:
        yield from covering_rounds(fabric, nodes, quick)


def _pairs_of(hop_round: HopRound) -> set[frozenset[str]]:
    return {frozenset(pair) for pair in hop_round.pairs}


def planned_rounds(plan: Plan, fabric: Fabric) -> Iterator[HopRound]:
    """All that the plan has nodes do in pairs, whoever is fit."""
    nodes = placed(plan, fabric)
    for entry in (entry for phase in plan.phases for entry in phase.entries):
        if entry.groups in BY_DISTANCE:
            yield from islice(rounds(plan, fabric, entry.groups == "covering"), entry.rounds)
        elif entry.groups == "pairs" or entry.scope == "pair":
            for pairs in islice(round_robin(nodes), entry.rounds):
                yield from _rail_by_rail(fabric, pairs)


def _rail_by_rail(fabric: Fabric, pairs: Sequence[Pair]) -> Iterator[HopRound]:
    for rail in fabric.rails:
        both = tuple(pair for pair in pairs if all(fabric.nic(name, rail) for name in pair))
        yield HopRound(hops=0, rails=(rail,), pairs=both, alone=(), spare=())


def placed(plan: Plan, fabric: Fabric) -> list[str]:
    in_fabric = set(fabric.nodes)
    return [node.name for node in plan.nodes if node.name in in_fabric]


def _label(participants: tuple[str, ...]) -> str:
    """Who takes part; for a large group a digest, so that ids stay short."""
    if len(participants) <= 2:
        return "+".join(participants)
    return f"{len(participants)}-{sha256(' '.join(participants).encode()).hexdigest()[:12]}"


def _spec(entry: SuiteEntry, specs: Mapping[str, BenchmarkSpec], suite: Suite) -> BenchmarkSpec:
    if entry.benchmark not in specs:
        raise ConfigError(
            f'suite "{suite.name}" names benchmark "{entry.benchmark}", which is not there; '
            + did_you_mean(entry.benchmark, specs)
        )
    return specs[entry.benchmark]


def _resolved(entry: SuiteEntry, spec: BenchmarkSpec, suite: Suite) -> PlannedEntry:
    duration_s = spec.duration_s if entry.duration_s is None else entry.duration_s
    timeout_s = entry.timeout_s
    if timeout_s is None:
        timeout_s = max(SHORTEST_LIMIT_S, TIMES_TYPICAL * duration_s)
    where = f'suite "{suite.name}", benchmark "{spec.name}"'
    return PlannedEntry(
        workload=Workload.of(spec.name, spec.version, complete(spec, entry.parameters, where)),
        scope=spec.scope,
        exclusive=spec.exclusive,
        repeats=entry.repeats,
        timeout_s=timeout_s,
        duration_s=duration_s,
        groups=entry.groups,
        rounds=entry.rounds,
        min_nodes=spec.needs.min_nodes,
    )


def complete(
    spec: BenchmarkSpec, chosen: Mapping[str, ParameterValue], where: str
) -> dict[str, ParameterValue]:
    """All parameters of a benchmark: its defaults, with what was chosen in their place."""
    parameters = {parameter.name: parameter.default for parameter in spec.parameters}
    types = {parameter.name: parameter.type for parameter in spec.parameters}
    for name, value in chosen.items():
        if name not in types:
            raise ConfigError(f'{where}: unknown parameter "{name}"; {did_you_mean(name, types)}')
        given_type = type(value).__name__
        if given_type != types[name] and not (given_type == "int" and types[name] == "float"):
            raise ConfigError(
                f'{where}: parameter "{name}" is of type {types[name]}, '
                f'found {given_type} "{value}"'
            )
        parameters[name] = float(value) if types[name] == "float" else value
    return parameters


@dataclass(frozen=True)
class Estimate:
    steps: int
    duration_s: float
    node_hours: float


def estimate(plan: Plan, phase: int, parallel_nodes: int | None) -> Estimate:
    """What a phase costs if every node is fit and every step takes its typical time."""
    fit = {node.name for node in plan.nodes}
    durations = {entry.workload: entry.duration_s for entry in plan.phases[phase].entries}
    count, node_seconds = 0, 0.0
    busy_s = dict.fromkeys(fit, 0.0)
    for step in steps(plan, phase, fit):
        count += 1
        duration_s = durations[step.workload]
        node_seconds += duration_s * len(step.participants)
        end_s = max(busy_s[name] for name in step.participants) + duration_s
        busy_s.update(dict.fromkeys(step.participants, end_s))
    longest_s = max(busy_s.values(), default=0.0)
    if parallel_nodes:
        longest_s = max(longest_s, node_seconds / parallel_nodes)
    return Estimate(count, longest_s, node_seconds / 3600)


def instead(plan: Plan, step: Step, lost: Collection[str]) -> Iterator[Step]:
    """What those who are left of a step may do without the lost; the first is the best.

    A larger group meets without them. In a scan by distance each node has one partner as far away,
    so it meets another; where everybody meets everybody, others are to come anyway.
    """
    left = tuple(name for name in step.participants if name not in lost)
    head, _, _ = step.id.rpartition("/")
    if len(step.participants) > 2 and len(left) > 1:
        yield replace(step, id=f"{head}/{_label(left)}", participants=left)
    elif len(step.participants) == 2 and len(left) == 1 and plan.fabric and not step.turn:
        entry = plan.phases[step.phase].entries[int(step.id.split(".")[1])]
        if entry.groups in BY_DISTANCE:
            hops = hops_between(plan.fabric, *step.participants)
            for partner in _from(placed(plan, plan.fabric), left[0]):
                if partner not in lost and hops_between(plan.fabric, left[0], partner) == hops:
                    pair = (left[0], partner)
                    yield replace(step, id=f"{head}/{_label(pair)}", participants=pair)


def _from(names: Sequence[str], first: str) -> Iterator[str]:
    """All others, starting after this one, so that not everyone gets the same partner."""
    place = names.index(first)
    return chain(names[place + 1 :], names[:place])


# --- bottlenecks -------------------------------------------------------------------------------


def narrow_leaves(fabric: Fabric) -> dict[str, int]:
    """The leaves whose uplinks carry less than what hangs on them, and how many pairs they bear.

    More at once would measure each other. Where nobody knows the speeds, nothing is bounded.
    """
    bearable = {}
    for leaf in fabric.leaves:
        if (fabric.oversubscription(leaf) or 0) > 1:
            above = [cable.gbit_s or 0.0 for link in fabric.uplinks(leaf) for cable in link.cables]
            fastest = max(nic.gbit_s or 0.0 for nic in fabric.nics_on[leaf])
            bearable[leaf] = max(1, int(sum(above) / fastest))
    return bearable


def leaves_crossed(fabric: Fabric, step: Step) -> tuple[str, ...]:
    """The leaves whose uplinks a pair uses, on any of its rails."""
    if len(step.participants) != 2:
        return ()
    first, second = step.participants
    crossed: dict[str, None] = {}
    for rail in fabric.rails:
        a, b = fabric.nic(first, rail), fabric.nic(second, rail)
        if a and b and a.switch != b.switch:
            crossed |= {a.switch: None, b.switch: None}
    return tuple(crossed)
