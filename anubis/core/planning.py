"""suite x fleet -> plan, and phase x nodes -> steps.

A plan holds phases of entries, not steps: which steps a phase has depends on which nodes are
still fit when it begins, so they are made then, lazily and always alike.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import islice

from anubis.core.errors import ConfigError, UsageError, did_you_mean
from anubis.core.pairing import round_robin
from anubis.core.records import (
    BenchmarkSpec,
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

PHASES = (
    ("single-node micro", True, "micro"),
    ("single-node end-to-end", True, "end-to-end"),
    ("multi-node micro", False, "micro"),
    ("multi-node end-to-end", False, "end-to-end"),
)
TIMES_TYPICAL = 6  # a limit nobody stated: this often the typical duration, but at least
SHORTEST_LIMIT_S = 60.0  # a minute, because a busy node can take that long to import torch


def plan(suite: Suite, nodes: Sequence[Node], specs: Mapping[str, BenchmarkSpec]) -> Plan:
    """Everything resolved and checked before the first step runs."""
    if not nodes:
        raise UsageError("no nodes to plan for: the node list is empty")
    seen: set[str] = set()
    for node in nodes:
        if node.name in seen:
            raise UsageError(f'node "{node.name}" is named twice: name every node once')
        seen.add(node.name)
    planned = [(_spec(entry, specs, suite), entry) for entry in suite.benchmarks]
    able = [(spec, entry) for spec, entry in planned if spec.needs.min_nodes <= len(nodes)]
    if not able:
        raise UsageError(f'suite "{suite.name}" has nothing that {len(nodes)} node(s) can run')
    phases = []
    for name, single, level in PHASES:
        entries = tuple(
            _resolved(entry, spec, suite)
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
    )


def steps(plan: Plan, phase: int, fit: Collection[str]) -> Iterator[Step]:
    """The steps of one phase for the nodes fit to take part, in the order to try them."""
    nodes = [node.name for node in plan.nodes if node.name in fit]
    for position, entry in enumerate(plan.phases[phase].entries):
        for repeat in range(entry.repeats):
            for participants in _meetings(entry, nodes):
                yield Step(
                    id=f"{phase}.{position}.{repeat}/{entry.workload.benchmark}/"
                    + _label(participants),
                    workload=entry.workload,
                    participants=participants,
                    phase=phase,
                    repeat=repeat,
                    timeout_s=entry.timeout_s,
                    exclusive=entry.exclusive,
                )


def _meetings(entry: PlannedEntry, nodes: Sequence[str]) -> Iterator[tuple[str, ...]]:
    if len(nodes) < entry.min_nodes:
        return
    if entry.scope == "node":
        yield from ((node,) for node in nodes)
    elif len(nodes) > 1 and (entry.scope == "pair" or entry.groups == "pairs"):
        for matches in islice(round_robin(nodes), entry.rounds):
            yield from matches
    elif nodes:
        yield tuple(nodes)


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
    spec: BenchmarkSpec, given: Mapping[str, ParameterValue], where: str
) -> dict[str, ParameterValue]:
    """All parameters of a benchmark: its defaults, with what was given in their place."""
    parameters = {parameter.name: parameter.default for parameter in spec.parameters}
    types = {parameter.name: parameter.type for parameter in spec.parameters}
    for name, value in given.items():
        if name not in types:
            raise ConfigError(f'{where}: unknown parameter "{name}"; {did_you_mean(name, types)}')
        found = type(value).__name__
        if found != types[name] and not (found == "int" and types[name] == "float"):
            raise ConfigError(
                f'{where}: parameter "{name}" is of type {types[name]}, found {found} "{value}"'
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


def without(step: Step, lost: Collection[str]) -> Step | None:
    """The same group step for those who are left; None where a new one would say nothing new.

    Pairs are not re-made here: who was to meet a lost node meets others in other rounds.
    """
    left = tuple(name for name in step.participants if name not in lost)
    if len(step.participants) <= 2 or len(left) < 2:
        return None
    head, _, _ = step.id.rpartition("/")
    return replace(step, id=f"{head}/{_label(left)}", participants=left)
