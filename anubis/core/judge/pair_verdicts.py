"""Findings of pairs across a fabric, and their effect on the verdicts of a suite beside them.

A pair or group of the suite may be slow because of the path between its nodes. So no node is called
defective for that before pairs across the fabric have cleared the path.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from anubis.core.fabric import Fabric, Part
from anubis.core.network.attribution import node_verdicts, part_verdicts
from anubis.core.network.coverage import Reach
from anubis.core.network.localization import hops_of
from anubis.core.network.pairing import PairTest, joined_nics
from anubis.core.network.traffic import LIMIT, Traffic, observe_traffic, turns_of_pair_tests
from anubis.core.records import BatchVerdict, Execution, Judgement, PartVerdict, Plan, Verdict

NOT_MEASURED, NO_GOOD_PAIR = "NOT-MEASURED", "NO-GOOD-PAIR"


@dataclass(frozen=True)
class Crossed:
    plan: Plan
    fabric: Fabric
    traffic: Traffic
    causes: tuple[PartVerdict, ...]

    @classmethod
    def from_verdicts(
        cls,
        plan: Plan,
        fabric: Fabric,
        alone: Iterable[Verdict],
        batch_verdicts: Iterable[BatchVerdict],
        executions: Iterable[Execution],
    ) -> Crossed:
        traffic = observe_traffic(
            fabric,
            list(filter(plan.crosses, alone)),
            list(filter(plan.crosses, batch_verdicts)),
            turns_of_pair_tests(plan, executions),
        )
        idle = {node.name for node in plan.nodes}
        causes = part_verdicts(fabric, traffic, plan.counters, idle, plan.suspected)
        return cls(plan, fabric, traffic, causes)

    @cached_property
    def _searched_workloads(self) -> frozenset[tuple[str, str]]:
        """The workloads of a search that separates the nodes of one switch, so that no path between
        them is in doubt."""
        reproducing = self.plan.reproducing
        return frozenset((workload.benchmark, workload.parameters) for workload in reproducing)

    @property
    def nodes(self) -> Iterator[Verdict]:
        """The verdicts on nodes, by the fabric and by its cabling."""
        parts = (*self.plan.wiring, *self.causes)
        return node_verdicts(self.plan, self.fabric, self.traffic, parts)

    # --- beside a suite ----------------------------------------------------------------------

    def weigh(self, members: Iterable[Verdict], groups: Sequence[Verdict]) -> Iterator[Verdict]:
        """Yield the verdicts on members of groups. A blamed node is in doubt while its path is."""
        for verdict in members:
            doubt = self._doubt(verdict, groups)
            if doubt:
                reason = f"{doubt}; {verdict.reason}"
                verdict = replace(
                    verdict, judgement=Judgement.UNKNOWN, code=NO_GOOD_PAIR, reason=reason
                )
            yield verdict

    def _doubt(self, verdict: Verdict, groups: Sequence[Verdict]) -> str:
        node = verdict.participants[0]
        is_blamed = verdict.judgement is Judgement.DEFECTIVE and len(verdict.participants) == 1
        searched = (verdict.benchmark, verdict.parameters) in self._searched_workloads
        if not is_blamed or searched or node not in self.fabric.nodes:
            return ""
        slow = [
            group.participants
            for group in groups
            if node in group.participants
            and len(group.participants) > 1
            and group.benchmark == verdict.benchmark
            and group.judgement is Judgement.DEFECTIVE
        ]
        needed = min((self._most_hops(node, names) for names in slow), default=0)
        if self._hops_proven.get(node, -1) < needed:
            return "no good pair across the fabric has proven its path yet"
        between = [cause for cause in self.causes if not _is_of_nodes(cause)]
        ways = [self._causes_between(between, names) for names in slow]
        if ways and all(ways):
            cause = ways[0][0]
            be = "is" if cause.judgement is Judgement.DEFECTIVE else "may be"
            return f"its path crosses {cause.subject}, which {be} at fault"
        return ""

    def _most_hops(self, node: str, names: Sequence[str]) -> int:
        """The hops to the farthest of the other nodes, by the rail on which it is nearest."""
        nics = (
            joined_nics(self.fabric, PairTest(node, partner))
            for partner in names
            if partner != node
        )
        return max(
            min((self.fabric.hops(*ends) or 0 for ends in pairs), default=0) for pairs in nics
        )

    def settle(self, paths: Iterable[PartVerdict]) -> Iterator[PartVerdict]:
        """Yield the causes, and the faulty paths of a suite. A path that leads over a cause becomes
        evidence for it."""
        faulty = [cause for cause in self.causes if cause.judgement is Judgement.DEFECTIVE]
        led_over: dict[str, list[PartVerdict]] = {}
        unexplained = []
        for path in paths:
            faults = self._causes_between(faulty, path.nodes)
            for fault in faults:
                led_over.setdefault(fault.subject, []).append(path)
            unexplained += [] if faults else [path]
        for cause in self.causes:
            also = led_over.get(cause.subject, [])
            yield (
                replace(cause, evidence=(*cause.evidence, *_suite_evidence(also)))
                if also
                else cause
            )
        yield from unexplained

    def judge_passed_over(self, lost: Iterable[str]) -> Iterator[Verdict]:
        """Yield a verdict on each node that measured nothing across the fabric while others did."""
        if self._met_nodes:
            in_doubt = {node for stray in self.traffic.strays for node in stray.nodes}
            for node in self._placed_nodes - self._met_nodes - in_doubt - set(lost):
                yield Verdict(
                    participants=(node,),
                    benchmark="",
                    judgement=Judgement.UNKNOWN,
                    code=NOT_MEASURED,
                    reason="no pair with this node measured across the fabric",
                )

    def judge_unmeasured(self, executions: Iterable[Execution]) -> Iterator[PartVerdict]:
        """Yield a verdict on the whole fabric if pairs were to measure it and none could."""
        if self.traffic.observations or self.traffic.strays:
            return
        tried = [run for run in executions if run.step.workload in self.plan.crossing]
        if tried:
            reasons = Counter(f"{run.step.workload.benchmark}: {run.reason}" for run in tried)
            ((reason, _),) = reasons.most_common(1)
            yield PartVerdict(
                nodes=tuple(
                    node.name for node in self.plan.nodes if node.name in self._placed_nodes
                ),
                subject="fabric between the nodes",
                judgement=Judgement.UNKNOWN,
                code=NOT_MEASURED,
                reason=f"no pair measured across the fabric: {reason}",
            )

    def _causes_between(
        self, causes: Sequence[PartVerdict], nodes: Sequence[str]
    ) -> list[PartVerdict]:
        """The causes with a part on any path between two of these nodes."""
        reach = Reach(self.fabric, nodes, across=False) if causes else None
        return [
            cause
            for cause in causes
            if reach and any(self._is_on_way(part, reach, nodes) for part in cause.parts)
        ]

    def _is_on_way(self, part: Part, reach: Reach, nodes: Sequence[str]) -> bool:
        fabric = self.fabric
        match part.kind:
            case "node" | "nic":
                return part.name in nodes
            case "link":
                return reach.has(fabric.link(part.name, part.other))
            case "uplinks":
                return any(map(reach.has, fabric.uplinks(part.name)))
            case "switch":
                below = (nic.node for nic in fabric.nics_on.get(part.name, ()))
                return bool(set(nodes).intersection(below)) or any(
                    map(reach.has, fabric.links_of[part.name])
                )

    @cached_property
    def _placed_nodes(self) -> set[str]:
        return {node.name for node in self.plan.nodes}.intersection(self.fabric.nodes)

    @cached_property
    def _met_nodes(self) -> set[str]:
        flows = (observation.flow for observation in self.traffic.observations)
        return {end.node for flow in flows for end in (flow.source, flow.target)}

    @cached_property
    def _hops_proven(self) -> dict[str, int]:
        """The hops of the longest good flow of each node."""
        proven: dict[str, int] = {}
        for observation in self.traffic.observations:
            flow = observation.flow
            if observation.shortfall <= LIMIT:
                hops = hops_of(self.fabric, flow) or 0
                for end in (flow.source, flow.target):
                    proven[end.node] = max(hops, proven.get(end.node, 0))
        return proven


def _is_of_nodes(cause: PartVerdict) -> bool:
    return all(part.kind in ("node", "nic") for part in cause.parts)


def _suite_evidence(paths: Sequence[PartVerdict]) -> Iterator[str]:
    programs = ", ".join(dict.fromkeys(name for path in paths for name in path.benchmarks))
    several = f"{len(paths)} paths" if len(paths) > 1 else "a path"
    yield f"{several} that may cross it fell short in {programs} as well"
