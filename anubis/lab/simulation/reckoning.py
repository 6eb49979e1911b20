"""Compares what was planted in a simulated fleet with what a campaign concluded.

Only trouble that the campaign can see counts: in its own benchmarks, on its own nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from anubis.core.fabric import Fabric, Part, place
from anubis.core.network.localization import describe
from anubis.core.records import Assessment, BenchmarkSpec, Counters, Judgement, NodeVerdict, Plan
from anubis.lab.simulation.simulated_fleet import (
    Plant,
    SimulatedFleet,
    Trouble,
    has_a_wrong_gpu,
    is_short_of_a_gpu,
    members,
    plants,
)
from anubis.lab.simulation.simulated_network import Fault, SimulatedNetwork, count_errors, faulty

Detected = Literal["missed", "unsure", "found"]  # unsure: the verdict is unknown
DETECTIONS: tuple[Detected, ...] = ("missed", "unsure", "found")
TROUBLES: dict[Trouble, str] = {
    "crash": "crashes in {benchmark}",
    "hang": "hangs in {benchmark}",
    "lost": "vanishes during {benchmark}",
    "slow": "{slow_by:.0%} slow in {benchmark}",
}


@dataclass(frozen=True, kw_only=True)
class PlantedTrouble:
    subject: str  # a node, or a part between nodes
    trouble: str
    detected: Detected


@dataclass(frozen=True, kw_only=True)
class Reckoning:
    planted: tuple[PlantedTrouble, ...]  # missed ones first
    wrongly_blamed: tuple[str, ...]  # called defective without a planted trouble

    def select(self, detected: Detected) -> tuple[PlantedTrouble, ...]:
        return tuple(trouble for trouble in self.planted if trouble.detected == detected)

    @property
    def headline(self) -> str:
        """Headline such as `planted: 11, of which 10 found, 1 missed. Sound nodes blamed: none`."""
        counts = {detected: len(self.select(detected)) for detected in reversed(DETECTIONS)}
        listed = ", ".join(f"{n:,} {word}" for word, n in counts.items() if n or word == "found")
        blamed = f"{len(self.wrongly_blamed):,}" if self.wrongly_blamed else "none"
        of_which = f", of which {listed}" if self.planted else ""
        return f"planted: {len(self.planted):,}{of_which}. Sound nodes blamed: {blamed}"


def plants_of(fleet: SimulatedFleet, specs: Iterable[BenchmarkSpec]) -> dict[str, Plant]:
    """Plants in programs for single nodes, so that each trouble belongs to one known node."""
    return plants(fleet, sorted(spec.name for spec in specs if spec.scope == "node"))


def network_of(fleet: SimulatedFleet, fabric: Fabric, nodes: Collection[str]) -> SimulatedNetwork:
    """Network whose faults are among these nodes."""
    network = faulty(fabric, nodes, fleet.faults, fleet.seed)
    return replace(network, loaded=fleet.loaded_share)


def counters_of(fleet: SimulatedFleet, fabric: Fabric, nodes: Sequence[str] | None) -> Counters:
    """Errors that the ports of a fleet counted. `nodes`: those that were requested, or None."""
    names = nodes or [node.name for node in members(fleet)]
    placement = place(fabric, names)
    if not placement.nodes:  # strangers are refused later
        return Counters()
    return count_errors(network_of(fleet, placement.fabric, names))


def reckon(fleet: SimulatedFleet, plan: Plan, assessment: Assessment) -> Reckoning:
    nodes = {node.name for node in plan.nodes}
    planted = plants_of(fleet, plan.specs)
    troubled = {name: plant for name, plant in planted.items() if name in nodes}
    verdicts = {verdict.node: verdict for verdict in assessment.nodes}
    troubles = [
        _node_trouble(fleet, name, plant, verdicts.get(name)) for name, plant in troubled.items()
    ]
    faults = network_of(fleet, plan.fabric, nodes).faults if plan.fabric else ()
    troubles += [_fault_trouble(plan.fabric, fault, assessment) for fault in faults if plan.fabric]
    troubles.sort(key=lambda trouble: (DETECTIONS.index(trouble.detected), trouble.subject))
    return Reckoning(
        planted=tuple(troubles),
        wrongly_blamed=tuple(_wrongly_blamed(plan, assessment, set(troubled), faults)),
    )


def _node_trouble(
    fleet: SimulatedFleet, name: str, plant: Plant, verdict: NodeVerdict | None
) -> PlantedTrouble:
    trouble = TROUBLES[plant.trouble].format(benchmark=plant.benchmark, slow_by=fleet.slow_by)
    if is_short_of_a_gpu(plant):
        trouble = f"has a GPU less in {plant.benchmark}"
    if has_a_wrong_gpu(plant):
        trouble = f"a GPU answers wrongly in {plant.benchmark}"
    is_told_lost = plant.trouble == "lost" and verdict is not None and verdict.code == "NODE-LOST"
    return PlantedTrouble(
        subject=name,
        trouble=trouble,
        detected="found" if is_told_lost else _detection([verdict.judgement] if verdict else []),
    )


def _fault_trouble(fabric: Fabric, fault: Fault, assessment: Assessment) -> PlantedTrouble:
    part = fault.part
    judgements = [verdict.judgement for verdict in assessment.parts if part in verdict.parts]
    if part.kind == "node":
        judgements += [node.judgement for node in assessment.nodes if node.node == part.name]
    return PlantedTrouble(
        subject=describe(fabric, part),
        trouble=f"{fault.kind}, {fault.loss:.0%} of its rate lost",
        detected=_detection(judgements),
    )


def _detection(judgements: Iterable[Judgement]) -> Detected:
    reached = set(judgements)
    if Judgement.DEFECTIVE in reached:
        return "found"
    return "unsure" if Judgement.UNKNOWN in reached else "missed"


def _wrongly_blamed(
    plan: Plan, assessment: Assessment, troubled: Collection[str], faults: Iterable[Fault]
) -> Iterator[str]:
    """Subjects called defective without a planted trouble. Miscabled parts do not count: the
    topology states them."""
    parts = {fault.part for fault in faults}
    ends = {*troubled, *_ends(parts)}
    yield from (name for name in assessment.named(Judgement.DEFECTIVE) if name not in ends)
    for verdict in assessment.parts:
        blamed = (*verdict.nodes, *_ends(verdict.parts))
        is_planted = parts.intersection(verdict.parts) or ends.intersection(blamed)
        is_told = is_planted or verdict in plan.wiring
        if verdict.judgement is Judgement.DEFECTIVE and not is_told:
            yield verdict.subject


def _ends(parts: Iterable[Part]) -> Iterator[str]:
    """Nodes that these parts are, or belong to."""
    return (part.name for part in parts if part.kind in ("node", "nic"))
