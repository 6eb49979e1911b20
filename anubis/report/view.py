"""Everything a report is made from, as one value, with the few facts that every report repeats:
among them the kinds of nodes under one sku, how sure they are, and what settles it.

Reports only read. They never judge and never run anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from itertools import chain, groupby
from pathlib import Path

from anubis.core.fabric import Fabric, Nic, Part, RailNic, RailNics
from anubis.core.judge.limits import remedy_of
from anubis.core.judge.node_kinds import kinds_of
from anubis.core.network.coverage import Coverage, coverage_of, untested_by_reason
from anubis.core.network.inspection import Inspection
from anubis.core.network.localization import NOTHING
from anubis.core.network.posterior import Observation
from anubis.core.network.recency import vanished_parts
from anubis.core.network.traffic import keep_crossing, observe_traffic
from anubis.core.records import (
    WORST_FIRST,
    Assessment,
    Campaign,
    Counters,
    CriteriaSet,
    Execution,
    Judgement,
    NodeKind,
    NodeVerdict,
    PartVerdict,
    Remedy,
)
from anubis.lab.simulation.reckoning import Reckoning
from anubis.report.json import json_line
from anubis.text.wording import damage_note, figure, names, quantity, share, short_node_list

PARTS_NAMED = 2  # in a headline
GLYPH = {
    Judgement.HEALTHY: "✓",
    Judgement.DEFECTIVE: "✗",
    Judgement.UNKNOWN: "?",
    Judgement.NOT_APPLICABLE: "-",
}


@dataclass(frozen=True, kw_only=True)
class CampaignView:
    campaign: Campaign
    executions: tuple[Execution, ...]
    assessment: Assessment
    criteria: tuple[CriteriaSet, ...]
    reckoning: Reckoning | None = None  # of a simulated fleet
    site: str = ""
    by: str = ""  # who began it
    is_by_itself: bool = False  # its criteria were learned from its own measurements
    cut_short: str = ""  # why it could not go on; "" where it ran to its end
    damaged: int = 0  # executions that were left out

    @cached_property
    def network(self) -> NetworkView | None:
        """Measurements of a scan, for its pictures."""
        fabric, nodes = self.campaign.plan.fabric, self.campaign.plan.nodes
        if fabric is None:
            return None
        measured = keep_crossing(self.campaign.plan, self.assessment)
        traffic = observe_traffic(fabric, measured.alone, measured.batch_verdicts)
        in_fabric = set(fabric.nodes)
        return NetworkView(
            fabric=fabric,
            counters=self.campaign.plan.counters,
            shortfall=traffic.shortfalls(),
            measured=traffic.measured_flows(),
            observations=traffic.observations,
            blamed=tuple(map(blamed_by, self.assessment.parts)),
            parts=self.assessment.parts,
            unplaced=tuple(node.name for node in nodes if node.name not in in_fabric),
            nodes=tuple(node.name for node in nodes),
            verdicts={node.node: node.judgement for node in self.assessment.nodes},
        )

    @property
    def caveat(self) -> str:
        """Return what these criteria cannot show, and what a single measurement of each cannot; ""
        if there is nothing to say."""
        return "; ".join(filter(None, (self._caveat_of_criteria(), self._caveat_of_single_runs())))

    def _caveat_of_single_runs(self) -> str:
        are_compared = any(
            v.judgement is Judgement.DEFECTIVE and v.similarity is not None
            for v in self.assessment.alone
        )
        if not are_compared or any(execution.step.turn for execution in self.executions):
            return ""
        return "nothing was measured again, so a run that is slow by chance looks like a slow node"

    def _caveat_of_criteria(self) -> str:
        """Return what criteria that were learned from these very nodes cannot show; "" if others
        taught them."""
        if not self.is_by_itself:
            return ""
        nodes = len(self.campaign.plan.nodes)
        if nodes == 1:
            return (
                "these criteria were learned from repeats on this machine and describe it alone: "
                "they can show that it changes, not that it is as good as other machines"
            )
        return (
            f"these criteria were learned from these {nodes:,} nodes and do not show a loss that"
            " half of them share: compare the medians with what the hardware should reach"
        )

    @property
    def duration_s(self) -> float:
        """Time until it finished or, if it was cut short, until its last execution ended."""
        begin, end = self.campaign.created_at, self.campaign.finished_at
        dated = [(e.started_at, e.duration_s) for e in self.executions if e.started_at]
        if self.campaign.is_in_memory:
            begin, end = min((at for at, _ in dated), default=begin), None
        if end is None:
            end = max((at + lasted_s for at, lasted_s in dated), default=begin)
        return max(0.0, end - begin)

    @property
    def headline(self) -> str:
        """Counts such as `defective: switch leaf3 · nodes: 64 healthy, 0 defective, 0 unknown`.

        If no part is at fault, nodes alone: `3 healthy · 1 defective · 0 unknown`. It begins with
        `incomplete` if that is not all there is to know.
        """
        incomplete = ["incomplete"] if self.cut_short else []
        if self.damaged:
            incomplete.append(damage_note(self.damaged))
        parts = [
            f"{judgement.value}: {names(subjects, PARTS_NAMED)}"
            for judgement in (Judgement.DEFECTIVE, Judgement.UNKNOWN)
            if (subjects := self.assessment.parts_named(judgement))
        ]
        counts = self._counts()
        clauses = [*parts, f"nodes: {', '.join(counts)}"] if parts else counts
        return " · ".join([*incomplete, *clauses])

    def _counts(self) -> list[str]:
        """Number of nodes by judgement; not applicable is named only if there is any."""
        numbers = {judgement: len(self.assessment.named(judgement)) for judgement in Judgement}
        shown = [Judgement.HEALTHY, Judgement.DEFECTIVE, Judgement.UNKNOWN]
        if numbers[Judgement.NOT_APPLICABLE]:
            shown.append(Judgement.NOT_APPLICABLE)
        return [f"{numbers[j]:,} {j.value.replace('-', ' ')}" for j in shown]

    def remedy(self, code: str) -> Remedy | None:
        """Return what to do about a verdict with this code; thousands of verdicts share a few."""
        return self._remedy(code)

    @cached_property
    def _remedy(self) -> Callable[[str], Remedy | None]:
        return cache(partial(remedy_of, policy=self.campaign.policy))

    @property
    def sentence(self) -> str:
        """State the answer for a reader who skips the table."""
        nodes = self.campaign.plan.nodes
        healthy, defective, unknown = (
            len(self.assessment.named(judgement))
            for judgement in (Judgement.HEALTHY, Judgement.DEFECTIVE, Judgement.UNKNOWN)
        )
        parts = len(self.assessment.parts_named(Judgement.DEFECTIVE))
        clauses = [f"{healthy:,} of {quantity(len(nodes), 'node')} may go into service"]
        if defective:
            clauses.append(f"{defective:,} must stay out until repaired and tested again")
        if unknown:
            clauses.append(f"{unknown:,} must be tested again before any use")
        if parts:
            clauses.append(f"{quantity(parts, 'part')} of the network must be repaired")
        if in_doubt := len(self.assessment.parts_named(Judgement.UNKNOWN)):
            clauses.append(f"{quantity(in_doubt, 'part')} of the network must be tested again")
        if len(nodes) > 1 and self.campaign.plan.fabric is None:
            clauses.append("the fabric between the nodes was not measured")
        return "; ".join(clauses) + "."

    @property
    def instructions(self) -> list[Instruction]:
        """List what to do about all that is not healthy: parts first, then nodes, the worst
        first."""
        subjects: dict[str, dict[str, None]] = {}
        evidence: dict[str, dict[str, None]] = {}
        about = [(part.subject, part.code) for part in self.assessment.parts]
        about += [(node.node, node.code) for node in self.nodes_worst_first()]
        for subject, code in about:
            if remedy := self.remedy(code):
                subjects.setdefault(remedy.action, {})[subject] = None
                evidence.setdefault(remedy.action, {})[remedy.evidence] = None
        return [
            Instruction(
                action=action,
                evidence=tuple(filter(None, evidence[action])),
                subjects=tuple(subjects[action]),
            )
            for action in subjects
        ]

    @property
    def causes(self) -> list[CauseGroup]:
        """Group all nodes that are not healthy by what is wrong with them: the worst verdict first,
        then the largest group."""
        groups: dict[tuple[Judgement, str, str], list[str]] = {}
        for node in self.nodes_worst_first():
            if node.judgement is not Judgement.HEALTHY:
                cause = node.cause or node.reason
                groups.setdefault((node.judgement, node.code, cause), []).append(node.node)
        ordered = sorted(groups, key=lambda key: (WORST_FIRST.index(key[0]), -len(groups[key])))
        return [
            CauseGroup(judgement=judgement, code=code, cause=cause, nodes=tuple(names_of_group))
            for judgement, code, cause in ordered
            if (names_of_group := groups[judgement, code, cause])
        ]

    @property
    def kinds(self) -> list[NodeKind]:
        """Kinds of nodes that were told apart under one sku, each judged by itself."""
        return kinds_of(self.criteria)

    def nodes_worst_first(self) -> list[NodeVerdict]:
        """Sort nodes by judgement; within one judgement the order of the assessment is kept."""
        return sorted(self.assessment.nodes, key=lambda node: WORST_FIRST.index(node.judgement))


@dataclass(frozen=True, kw_only=True)
class CampaignResult:
    """A campaign at its end."""

    view: CampaignView
    criteria_files: tuple[Path, ...] = ()  # what it learned, one for each sku

    @property
    def judgement(self) -> Judgement:
        return self.view.assessment.judgement


@dataclass(frozen=True, kw_only=True)
class CauseGroup:
    """Nodes with the same fault."""

    judgement: Judgement
    code: str
    cause: str
    """What is wrong with them all, without names and amounts."""
    nodes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Instruction:
    """What to do, and with which nodes and parts."""

    action: str
    evidence: tuple[str, ...]  # what a vendor asks for
    subjects: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Blamed:
    """The parts that a sentence blames; if there are several, one is at fault and it is not known
    which."""

    parts: tuple[Part, ...]
    sentence: str
    surely: bool = True
    evidence: tuple[str, ...] = ()  # a sentence each


@dataclass(frozen=True, kw_only=True)
class NetworkView:
    """The result of a scan, or a fabric that has not been measured yet."""

    fabric: Fabric
    # the share by which a flow is below what is normal for it; 1: nothing arrived
    shortfall: Mapping[RailNics, float]
    measured: Sequence[RailNics] = ()  # from where to where something arrived, or would have
    blamed: Sequence[Blamed] = ()
    unplaced: tuple[str, ...] = ()  # asked for, and not in the fabric
    nodes: tuple[str, ...] = ()  # that were asked for; none: all of the fabric
    verdicts: Mapping[str, Judgement] = field(default_factory=dict)  # of nodes; none: no campaign
    counters: Counters = Counters(counts=())
    parts: tuple[PartVerdict, ...] = ()
    observations: Sequence[Observation] = ()

    @cached_property
    def vanished(self) -> frozenset[Part]:
        """Parts that were bad once and good again."""
        return vanished_parts(self.fabric, self.observations)

    @cached_property
    def inspection(self) -> Inspection:
        return Inspection(fabric=self.fabric, counters=self.counters)

    @cached_property
    def measured_rail_nics(self) -> frozenset[RailNic]:
        return frozenset(chain.from_iterable((*self.measured, *self.shortfall)))

    @cached_property
    def carrying_rail_nics(self) -> frozenset[RailNic]:
        """NICs over which something arrived: below a dead switch none is."""
        dead = {flow for flow, share in self.shortfall.items() if share >= NOTHING}
        flows = {*self.measured, *self.shortfall} - dead
        return frozenset(chain.from_iterable(flows))

    def judgement_of(self, nic: Nic) -> Judgement | None:
        """Return the judgement of the NIC's node; healthy only if something arrived over this
        NIC."""
        judgement = self.verdicts.get(nic.node)
        carried = (nic.node, nic.rail) in self.carrying_rail_nics
        return judgement if carried or judgement is not Judgement.HEALTHY else None

    @cached_property
    def coverage(self) -> Coverage | None:
        """Links that were crossed; None if nothing was measured, or no switch is joined to
        another."""
        fabric = self.fabric
        ends = ((fabric.nic(*source), fabric.nic(*target)) for source, target in self.measured)
        flows = [(a, b) for a, b in ends if a and b]
        return coverage_of(fabric, flows) if flows and fabric.links else None

    @cached_property
    def uncrossed(self) -> dict[str, int]:
        """Number of links that were not surely crossed, by reason."""
        if self.coverage is None:
            return {}
        reasons = untested_by_reason(self.coverage, self.nodes or self.fabric.nodes)
        numbers: dict[str, int] = {why: len(links) for why, links in reasons.items()}
        if self.coverage.unsure_links:
            numbers["seldom"] = len(self.coverage.unsure_links)
        return numbers

    @cached_property
    def marks(self) -> dict[Part, Mark]:
        """The mark of each blamed part; if two sentences blame it, the surer one."""
        marks: dict[Part, Mark] = {}
        numbered = list(enumerate(self.blamed, start=1))
        for number, blamed in sorted(numbered, key=lambda item: not item[1].surely):
            mark = Mark(number=number, surely=blamed.surely, sentence=blamed.sentence)
            for part in blamed.parts:
                marks.setdefault(part, mark)
        return marks

    def mark_of_nic(self, node: str, rail: str) -> Mark | None:
        """Return the mark of the NIC or of its node."""
        return self.marks.get(Part("node", node)) or self.marks.get(Part("nic", node, rail))


@dataclass(frozen=True, kw_only=True)
class Mark:
    """The number of a sentence beside the pictures."""

    number: int
    surely: bool
    sentence: str

    @property
    def kind(self) -> str:
        """Name of the judgement whose colour the page uses for this mark."""
        return "defective" if self.surely else "unknown"

    @property
    def sign(self) -> str:
        return f"{GLYPH[Judgement.DEFECTIVE if self.surely else Judgement.UNKNOWN]}{self.number}"


def blamed_by(verdict: PartVerdict) -> Blamed:
    """Return the parts that a verdict blames. Several parts are one defect: a picture that shows
    them all as defective would mislead."""
    return Blamed(
        parts=verdict.parts,
        sentence=verdict.reason,
        surely=verdict.judgement is Judgement.DEFECTIVE and len(verdict.parts) == 1,
        evidence=verdict.evidence,
    )


def kinds_by_sku(kinds: Iterable[NodeKind]) -> list[tuple[str, list[NodeKind]]]:
    ordered = sorted(kinds, key=lambda kind: kind.sku)
    return [(sku, list(of_sku)) for sku, of_sku in groupby(ordered, key=lambda kind: kind.sku)]


def kinds_sentence(sku: str, kinds: Sequence[NodeKind]) -> str:
    confidence = min(kind.confidence for kind in kinds)
    return (
        f'sku "{sku}" has {len(kinds)} kinds of nodes (confidence {share(confidence)}); each node '
        "is judged among its own kind. If they are what you bought, give each kind a sku of its "
        'own ("skus" in the cluster\'s file); if not, something slows the nodes of a worse kind'
    )


def describe_kind(kind: NodeKind) -> str:
    """Return `gpu-kind-b: 25 nodes, node[076-100]; gemm tflops 322 TFLOP/s`"""
    unit = "" if kind.unit == "1" else f" {kind.unit}"
    return (
        f"{kind.label}: {quantity(len(kind.nodes), 'node')}, {short_node_list(kind.nodes)}; "
        f"{kind.metric} {figure(kind.typical)}{unit}"
    )


def kind_lines(kinds: Iterable[NodeKind]) -> Iterator[str]:
    for kind in kinds:
        yield json_line("kind", replace(kind, confidence=round(kind.confidence, 6)))
