"""Plan a campaign (suite x fleet -> plan), and make its steps (phase x nodes -> steps).

A plan has phases of entries, not steps. The steps of a phase depend on the nodes that are still fit
when it begins, so they are made then, lazily and always alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from itertools import chain, islice

from anubis.core.amounts import HOUR_S
from anubis.core.errors import ConfigError, UsageError, did_you_mean
from anubis.core.fabric import Fabric
from anubis.core.network.coverage import covering_rounds, scan_rounds
from anubis.core.network.pairing import (
    HopRound,
    Pair,
    PairTest,
    batches,
    hops_between,
    mirror,
    pair_test_of,
    replace_unfit,
    round_robin,
)
from anubis.core.network.reproduction import divide, first_groups, pair_tests_between
from anubis.core.network.sharing import (
    Bottleneck,
    CableUse,
    fair_order,
    fewest_turns,
    narrowest_bottleneck,
    pick_narrowest,
    rails_share_no_cable,
    waves,
)
from anubis.core.records import (
    PARTS,
    VARIABLE,
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

# Name, on single nodes?, levels in their order. A node found defective in one phase takes no
# part in the next; within a phase it runs all, which shows which benchmarks find the same defects.
PhaseKind = tuple[str, bool, tuple[Level, ...]]
ON_SINGLE_NODES: PhaseKind = ("single-node", True, ("micro", "end-to-end"))
ON_SEVERAL_NODES: PhaseKind = ("multi-node", False, ("micro", "end-to-end"))
TIMES_TYPICAL = 6  # default limit: this many times the typical duration, but at least
AT_ONCE = "at_once"  # the parameter that measures all rails of a pair at the same time
IN_TURN = "in_turn"  # the value of `gpus` that measures the GPUs of a node one after the other
FABRIC = "fabric"  # the phase whose pairs cross the fabric
SHORTEST_LIMIT_S = 60.0  # a minute, because a busy node can take that long to import torch


Party = tuple[str, ...] | PairTest  # the participants of a step
BY_DISTANCE = ("quick", "covering")
NARROWING = (PARTS, "across")  # the groups follow from results; only the first are planned
SAMPLED_ROUNDS = 3  # rounds of all pairs, to estimate the turns of a round
MET = 2  # partners of a tested node


def plan(
    suite: Suite,
    nodes: Sequence[Node],
    specs: Mapping[str, BenchmarkSpec],
    fabric: Fabric | None = None,
    *,
    then: Suite | None = None,
    stop_early: bool = False,
) -> Plan:
    """Plan a campaign, with everything resolved and checked before the first step runs.

    With a fabric, pairs are made and judged by it; its nodes have the names of `nodes`. With a
    suite for `then`, only the pairs of that suite are, in a phase after all others. `stop_early`:
    nodes that micro-benchmarks find defective run no end-to-end ones.
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
        least = min(spec.needs.min_nodes for spec, _ in planned)
        raise UsageError(
            f'suite "{suite.name}" needs {least} nodes or more, and has only {len(nodes)}: '
            "name more nodes, or choose a cluster that has them with --cluster"
        )
    phases = []
    kinds = [ON_SINGLE_NODES, ON_SEVERAL_NODES]
    if stop_early:
        is_search = any(entry.groups == PARTS for entry in suite.benchmarks)
        several = [ON_SEVERAL_NODES] if is_search else _split_levels(ON_SEVERAL_NODES)
        kinds = [*_split_levels(ON_SINGLE_NODES), *several]  # a search needs all of its programs
    for name, single, levels in kinds:
        entries = tuple(
            _resolve(entry, spec, suite, nodes)
            for level in levels
            for spec, entry in able
            if (spec.scope == "node") is single and spec.level == level
        )
        if entries:
            phases.append(Phase(name=name, entries=entries, crosses_fabric=then is None))
    for entry in chain(suite.benchmarks, then.benchmarks if then else ()):
        if fabric and entry.parameters.get(AT_ONCE) and not rails_share_no_cable(fabric):
            raise UsageError(
                f"{entry.benchmark} is to measure all rails at once ({AT_ONCE}), but rails of this"
                " network share cables: use a suite without it, such as scan-rdma"
            )
    if then:
        phases.append(_crossing_phase(then, specs, nodes, phases))
        able += [(specs[entry.benchmark], entry) for entry in then.benchmarks]
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


def _split_levels(kind: PhaseKind) -> list[PhaseKind]:
    """Return the phases of a kind if each level is a phase of its own."""
    name, single, levels = kind
    return [(f"{name} {level}", single, (level,)) for level in levels]


def _crossing_phase(
    then: Suite, specs: Mapping[str, BenchmarkSpec], nodes: Sequence[Node], before: Iterable[Phase]
) -> Phase:
    """The phase that crosses the fabric. If an earlier phase has the same workload, the phase is
    added to its name: it is compared with other pairs, and loads the network differently."""
    measured = {entry.workload for phase in before for entry in phase.entries}
    entries = []
    for wish in then.benchmarks:
        spec = _spec(wish, specs, then)
        entry = _resolve(wish, spec, then, nodes)
        if entry.workload in measured:
            entry = replace(entry, workload=entry.workload.add_plan_facts({"phase": FABRIC}))
        entries.append(entry)
    return Phase(name=FABRIC, entries=tuple(entries))


def narrow(plan: Plan, tests: Mapping[str, Collection[str]], partners: Sequence[str]) -> Plan:
    """Limit each benchmark to its own nodes. With partners, a node in a test for several nodes
    meets only partners of its kind."""
    kinds = {plan.sku(name) for name in partners}
    left_out, phases = list(plan.left_out), []
    for phase in plan.phases:
        entries = []
        for entry in phase.entries:
            name = entry.workload.benchmark
            nodes = [node for node in plan.nodes if node.name in tests.get(name, ())]
            if partners and entry.scope != "node":
                if not all_meet(entry):
                    continue  # a test of all at once does not describe one of them
                alone = [node.name for node in nodes if node.sku not in kinds]
                left_out += [f"{name} on {node}: no proven node of its kind" for node in alone]
                nodes = [node for node in nodes if node.sku in kinds]
            if nodes:
                entries.append(replace(entry, nodes=tuple(node.name for node in nodes)))
        if entries:
            phases.append(replace(phase, entries=tuple(entries)))
    return replace(plan, phases=tuple(phases), partners=tuple(partners), left_out=tuple(left_out))


def steps(plan: Plan, phase: int, fit: Collection[str]) -> Iterator[Step]:
    """Yield the steps of one phase for the nodes fit to take part, in the order to try them."""
    scheduled = schedule(plan)
    parts = parts_positions(plan, phase)
    for position in range(len(plan.phases[phase].entries)):
        if position not in parts[1:]:
            yield from _steps_of(plan, phase, position, fit, scheduled)


def parts_positions(plan: Plan, phase: int) -> list[int]:
    """The positions of the entries that reproduce a job, the shortest one first. The others wait:
    a group that fails by one need not run them."""
    entries = plan.phases[phase].entries
    positions = (position for position, entry in enumerate(entries) if entry.groups == PARTS)
    return sorted(positions, key=lambda position: entries[position].duration_s)


def _steps_of(
    plan: Plan, phase: int, position: int, fit: Collection[str], scheduled: Schedule
) -> Iterator[Step]:
    entry = plan.phases[phase].entries[position]
    for repeat in range(entry.repeats):
        for group in _pair_tests(plan, entry, fit, scheduled):
            yield _step(entry, group, (phase, position, repeat, 0))


def follow_ups(
    plan: Plan, phase: int, position: int, turn: int, groups: Collection[Party]
) -> Iterator[Step]:
    """Yield the steps of an entry again, for these groups, in a later turn."""
    entry = plan.phases[phase].entries[position]
    for repeat in range(entry.repeats):
        for group in groups:
            yield _step(entry, group, (phase, position, repeat, turn))


def _step(entry: PlannedEntry, group: Party, where: tuple[int, int, int, int]) -> Step:
    """A step. Its id begins with phase, entry and repeat, then turn and shift if they are not 0."""
    participants, shift = (group.pair, group.shift) if isinstance(group, PairTest) else (group, 0)
    numbers: tuple[int, ...] = (*where, shift)
    while len(numbers) > 3 and not numbers[-1]:
        numbers = numbers[:-1]
    head = ".".join(map(str, numbers))
    return Step(
        id=f"{head}/{entry.workload.benchmark}/{_label(participants)}",
        workload=entry.workload,
        participants=participants,
        phase=where[0],
        repeat=where[2],
        timeout_s=entry.timeout_s,
        exclusive=entry.exclusive,
    )


def is_planned(plan: Plan, step: Step) -> bool:
    """True if the id, the participants and the workload of a step agree with each other and with
    the plan. Then it reports truly which nodes ran what, even if the rest of it is in doubt."""
    numbers, _, name = step.id.partition("/")
    places = numbers.split(".")
    if len(places) < 3 or not all(place.isdecimal() for place in places):
        return False
    phase, entry, repeat, *_ = map(int, places)
    entries = plan.phases[phase].entries if phase < len(plan.phases) else ()
    return (
        entry < len(entries)
        and entries[entry].workload == step.workload
        and name == f"{step.workload.benchmark}/{_label(step.participants)}"
        and (phase, repeat) == (step.phase, step.repeat)
        and {node.name for node in plan.nodes}.issuperset(step.participants)
    )


def extra_parameters(plan: Plan, step: Step) -> dict[str, ParameterValue]:
    """The parameters of a program beside its workload: the rails across which a pair measures."""
    if not step.shift or not plan.fabric:
        return {}
    return {"shift": step.shift, "rails": ",".join(plan.fabric.rails)}


Schedule = Callable[[bool], Sequence[HopRound]]


def schedule(plan: Plan) -> Schedule:
    """The rounds of a scan by distance, with or without those that cover all uplinks; computed once
    for all users."""

    @cache
    def make_rounds(covering: bool) -> Sequence[HopRound]:
        if plan.fabric is None:
            return ()
        nodes, across = placed_nodes(plan, plan.fabric), crosses_rails(plan)
        return tuple(scan_rounds(plan.fabric, nodes, covering=covering, across=across))

    return make_rounds


def _pair_tests(
    plan: Plan, entry: PlannedEntry, fit: Collection[str], scheduled: Schedule
) -> Iterator[Party]:
    tested = None if entry.nodes is None else frozenset(entry.nodes)
    nodes = [
        node.name
        for node in plan.nodes
        if node.name in fit and (tested is None or node.name in tested)
    ]
    if entry.scope != "node" and plan.partners:
        yield from _pairs_with_partners(
            plan, nodes, [name for name in plan.partners if name in fit]
        )
    elif len(nodes) < entry.min_nodes:
        return
    elif entry.scope == "node":
        yield from ((node,) for node in nodes)
    elif entry.groups in NARROWING:
        if entry.groups == PARTS:
            yield from first_groups(divide(nodes, plan.fabric))
    elif plan.fabric and entry.groups in BY_DISTANCE:
        hop_rounds = _rounds_of(plan, entry, scheduled)
        yield from _pair_tests_by_distance(plan, entry, plan.fabric, hop_rounds, fit)
    elif len(nodes) > 1 and all_meet(entry):
        for matches in islice(round_robin(_everybody(plan, entry, fit)), entry.rounds):
            yield from _pairs_that_meet(fabric_of(plan, entry.workload), matches)
    elif entry.size and entry.groups == "batches":
        yield from chain.from_iterable(batches(nodes, entry.size))
    elif nodes:
        yield tuple(nodes)


def _rounds_of(plan: Plan, entry: PlannedEntry, scheduled: Schedule) -> Sequence[HopRound]:
    """The rounds that the program can measure."""
    can_cross = plan.spec(entry.workload).crosses_rails
    every = scheduled(entry.groups == "covering")
    able = [hop_round for hop_round in every if can_cross or not hop_round.shift]
    return able[: entry.rounds]


def crosses_rails(plan: Plan) -> bool:
    """True if any of its programs for pairs can cross rails."""
    entries = (entry for phase in plan.phases for entry in phase.entries)
    return any(
        entry.groups == "covering" and plan.spec(entry.workload).crosses_rails for entry in entries
    )


def _pairs_with_partners(
    plan: Plan, nodes: Sequence[str], partners: Sequence[str]
) -> Iterator[Pair]:
    """Yield pairs of each node with two partners of its kind, and of these partners: if a pair is
    bad, the other two show which node is at fault."""
    met: set[frozenset[str]] = set()
    for turn, node in enumerate(nodes):
        alike = [p for p in partners if p != node and plan.sku(p) == plan.sku(node)]
        chosen = [alike[(MET * turn + i) % len(alike)] for i in range(min(MET, len(alike)))]
        for pair in (*((node, partner) for partner in chosen), tuple(chosen)):
            if len(pair) == 2 and frozenset(pair) not in met:
                met.add(frozenset(pair))
                yield pair


def all_meet(entry: PlannedEntry) -> bool:
    by_distance = entry.groups in (*BY_DISTANCE, *NARROWING)
    return not by_distance and (entry.scope == "pair" or entry.groups == "pairs")


def _pairs_that_meet(fabric: Fabric | None, pairs: Iterable[Pair]) -> Iterator[Pair]:
    """Yield pairs of which something joins both nodes: NVLink joins those of one domain only."""
    for pair in pairs:
        if not fabric or not fabric.is_nvlink or hops_between(fabric, PairTest(*pair)):
            yield pair


def _everybody(plan: Plan, entry: PlannedEntry, fit: Collection[str]) -> list[str]:
    fabric = fabric_of(plan, entry.workload)
    nodes = placed_nodes(plan, fabric) if fabric else [node.name for node in plan.nodes]
    return [name for name in nodes if name in fit]


def fabric_of(plan: Plan, workload: Workload) -> Fabric | None:
    """The fabric that judges the pairs of a program, if any."""
    return plan.fabric if workload in plan.crossing else None


def _pair_tests_by_distance(
    plan: Plan,
    entry: PlannedEntry,
    fabric: Fabric,
    hop_rounds: Iterable[HopRound],
    fit: Collection[str],
) -> Iterator[PairTest]:
    met: set[PairTest] = set()
    for hop_round in _mend(plan, entry, fabric, hop_rounds, fit):
        for pair_test in fair_order(fabric, hop_round.pair_tests):
            if pair_test not in met:  # not yet at the same distance on another rail
                met |= {pair_test, mirror(fabric, pair_test)}
                yield pair_test


def _mend(
    plan: Plan,
    entry: PlannedEntry,
    fabric: Fabric,
    hop_rounds: Iterable[HopRound],
    fit: Collection[str],
) -> Iterator[HopRound]:
    """Yield the rounds of all nodes without the unfit, so that the others meet as planned; then
    further rounds, if the others leave links uncrossed that they can cross."""
    mended = [
        replace(hop_round, pairs=tuple(met.pair for met in replace_unfit(fabric, hop_round, fit)))
        for hop_round in hop_rounds
    ]
    yield from mended
    all_nodes = placed_nodes(plan, fabric)
    left = [name for name in all_nodes if name in fit]
    if entry.groups == "covering" and entry.rounds is None and 1 < len(left) < len(all_nodes):
        across = plan.spec(entry.workload).crosses_rails
        yield from covering_rounds(fabric, left, mended, across=across)


def planned_rounds(
    plan: Plan, fabric: Fabric, scheduled: Schedule | None = None
) -> Iterator[HopRound]:
    """Yield all planned rounds of pairs, for all nodes, fit or not; but not those in which all
    pairs meet."""
    nodes, scheduled = placed_nodes(plan, fabric), scheduled or schedule(plan)
    for entry in _crossing_entries(plan):
        if entry.groups in BY_DISTANCE:
            yield from _rounds_of(plan, entry, scheduled)
        elif all_meet(entry) and (entry.rounds is not None or fabric.is_nvlink):
            for every in islice(round_robin(nodes), entry.rounds):
                pairs = tuple(_pairs_that_meet(fabric, every))
                yield HopRound(hops=0, rails=fabric.rails, pairs=pairs, alone=(), spare=())


def nodes_that_meet_all(plan: Plan, fabric: Fabric) -> list[str]:
    """The nodes for which the plan measures every pair; none if NVLink joins only some of them."""
    if fabric.is_nvlink:
        return []
    entries = _crossing_entries(plan)
    meet = any(all_meet(entry) and entry.rounds is None for entry in entries)
    return placed_nodes(plan, fabric) if meet else []


def _crossing_entries(plan: Plan) -> Iterator[PlannedEntry]:
    entries = (entry for phase in plan.phases for entry in phase.entries)
    return (entry for entry in entries if entry.workload in plan.crossing)


def placed_nodes(plan: Plan, fabric: Fabric) -> list[str]:
    in_fabric = set(fabric.nodes)
    return [node.name for node in plan.nodes if node.name in in_fabric]


def _label(participants: tuple[str, ...]) -> str:
    """The names of the participants; for a large group a digest, so that ids stay short."""
    if len(participants) <= 2:
        return "+".join(participants)
    return f"{len(participants)}-{sha256(' '.join(participants).encode()).hexdigest()[:12]}"


def _spec(entry: SuiteEntry, specs: Mapping[str, BenchmarkSpec], suite: Suite) -> BenchmarkSpec:
    if entry.benchmark not in specs:
        raise ConfigError(
            f'suite "{suite.name}" names benchmark "{entry.benchmark}", which does not exist; '
            + did_you_mean(entry.benchmark, specs)
        )
    return specs[entry.benchmark]


def _resolve(
    entry: SuiteEntry, spec: BenchmarkSpec, suite: Suite, nodes: Sequence[Node]
) -> PlannedEntry:
    duration_s = spec.duration_s if entry.duration_s is None else entry.duration_s
    timeout_s = entry.timeout_s
    if timeout_s is None:
        timeout_s = max(SHORTEST_LIMIT_S, TIMES_TYPICAL * duration_s)
    where = f'suite "{suite.name}", benchmark "{spec.name}"'
    parameters = complete(spec, entry.parameters, where)
    times = max(1, *(node.gpus for node in nodes)) if parameters.get("gpus") == IN_TURN else 1
    return PlannedEntry(
        workload=Workload.make(
            spec.name,
            spec.version,
            parameters | {f"{VARIABLE}{name}": value for name, value in entry.env.items()},
        ),
        scope=spec.scope,
        exclusive=spec.exclusive,
        repeats=entry.repeats,
        timeout_s=times * timeout_s,
        duration_s=times * duration_s,
        groups=entry.groups,
        rounds=entry.rounds,
        min_nodes=spec.needs.min_nodes,
        size=entry.size,
    )


def complete(
    spec: BenchmarkSpec, chosen: Mapping[str, ParameterValue], where: str
) -> dict[str, ParameterValue]:
    """All parameters of a benchmark: its defaults, replaced by those chosen."""
    chosen_once = [parameter for parameter in spec.parameters if not parameter.of_pair_test]
    parameters = {parameter.name: parameter.default for parameter in chosen_once}
    types = {parameter.name: parameter.type for parameter in chosen_once}
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


@dataclass(frozen=True, kw_only=True)
class Estimate:
    steps: int
    turns: int  # steps of one turn run at once
    duration_s: float
    node_hours: float
    fewest_turns: int = 0  # in whatever order pairs run; 0: nothing limits it
    bottleneck: Bottleneck | None = None  # the leaf that makes pairs take turns


def estimate(
    plan: Plan, phase: int, parallel_nodes: int | None, scheduled: Schedule | None = None
) -> Estimate:
    """The cost of a phase if every node is fit and every step takes its typical time."""
    scheduled = scheduled or schedule(plan)
    use = CableUse(plan.fabric) if plan.fabric and not plan.non_blocking else None
    costs = [
        _cost(plan, entry, scheduled, use if entry.workload in plan.crossing else None)
        for entry in plan.phases[phase].entries
    ]
    duration_s = sum(cost.duration_s for cost in costs)
    node_hours = sum(cost.node_hours for cost in costs)
    if parallel_nodes:
        duration_s = max(duration_s, HOUR_S * node_hours / parallel_nodes)
    return Estimate(
        steps=sum(cost.steps for cost in costs),
        turns=sum(cost.turns for cost in costs),
        duration_s=duration_s,
        node_hours=node_hours,
        fewest_turns=sum(cost.fewest_turns for cost in costs),
        bottleneck=pick_narrowest(cost.bottleneck for cost in costs),
    )


def _cost(plan: Plan, entry: PlannedEntry, scheduled: Schedule, use: CableUse | None) -> Estimate:
    """The cost of an entry by itself: all nodes begin the next entry together."""
    fit = {node.name for node in plan.nodes}
    all_nodes = _everybody(plan, entry, fit)
    everybody_meets = entry.scope != "node" and all_meet(entry) and entry.nodes is None
    everybody_meets &= not (plan.fabric and plan.fabric.is_nvlink)
    bottleneck, fewest = None, 0
    if everybody_meets and len(all_nodes) > 1:
        turns, steps, taking_part = _all_pairs(all_nodes, entry.rounds, use)
    else:
        groups, pair_tests = list[tuple[str, ...]](), list[PairTest]()
        for group in _pair_tests(plan, entry, fit, scheduled):
            step = _step(entry, group, (0, 0, 0, 0))
            groups.append(step.participants)
            pair_tests += filter(None, [pair_test_of(step)])
        together = len(pair_tests) == len(groups) and entry.scope != "node"
        busiest = max(Counter(chain.from_iterable(groups)).values(), default=1)
        turns = busiest
        if use and together:
            ways = use.find_all_ways(pair_tests)
            turns = sum(1 for _ in waves(use, pair_tests, ways))
            bottleneck = narrowest_bottleneck(use, ways.values())
            fewest = max(fewest_turns(use, ways), bottleneck.fewest_turns if bottleneck else 0)
        steps, taking_part = len(groups), sum(map(len, groups))
    duration_s = entry.repeats * entry.duration_s
    return Estimate(
        steps=entry.repeats * steps,
        turns=entry.repeats * turns,
        duration_s=turns * duration_s,
        node_hours=taking_part * duration_s / HOUR_S,
        fewest_turns=entry.repeats * fewest,
        bottleneck=bottleneck,
    )


def turns_across(plan: Plan, parts: Sequence[tuple[str, ...]]) -> int:
    """The turns of pairs across parts of a job that are well, but not all together."""
    if plan.fabric is None:
        return 0
    return sum(1 for _ in waves(CableUse(plan.fabric), pair_tests_between(parts)))


def _all_pairs(
    nodes: Sequence[str], rounds: int | None, use: CableUse | None
) -> tuple[int, int, int]:
    """The numbers of turns, pairs and nodes in them, from a few rounds: there may be millions of
    pairs."""
    every = len(nodes) - 1 + len(nodes) % 2
    count = every if rounds is None else min(rounds, every)
    pairs = count * (len(nodes) // 2)
    if use is None:
        return count, pairs, 2 * pairs
    sample = list(islice(round_robin(nodes), min(count, SAMPLED_ROUNDS)))
    pair_tests = [[PairTest(*pair) for pair in matches] for matches in sample]
    turns = sum(1 for matches in pair_tests for _ in waves(use, matches))
    return round(turns * count / len(sample)), pairs, 2 * pairs


def replacement_steps(plan: Plan, step: Step, lost: Collection[str]) -> Iterator[Step]:
    """Yield steps for the remaining nodes of a step without the lost ones, the best first.

    A larger group meets without them. In a scan by distance each node has one partner at that
    distance, so it gets another one; if all nodes meet each other, other partners follow anyway.
    """
    left = tuple(name for name in step.participants if name not in lost)
    head, _, _ = step.id.rpartition("/")
    if len(step.participants) > 2 and len(left) > 1:
        yield replace(step, id=f"{head}/{_label(left)}", participants=left)
    elif len(step.participants) == 2 and len(left) == 1 and plan.fabric and not step.turn:
        entry = plan.phases[step.phase].entries[int(step.id.split(".")[1])]
        if entry.groups in BY_DISTANCE:
            pair_test = PairTest(step.participants[0], step.participants[1], step.shift)
            hops = hops_between(plan.fabric, pair_test)
            for partner in _names_after(placed_nodes(plan, plan.fabric), left[0]):
                pair_test_left = PairTest(left[0], partner, step.shift)
                if partner not in lost and hops_between(plan.fabric, pair_test_left) == hops:
                    pair = pair_test_left.pair
                    yield replace(step, id=f"{head}/{_label(pair)}", participants=pair)


def _names_after(names: Sequence[str], first: str) -> Iterator[str]:
    """All other names, starting after this one, so that not all nodes get the same partner."""
    place = names.index(first)
    return chain(names[place + 1 :], names[:place])
