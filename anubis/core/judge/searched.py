"""Verdicts on nodes and parts by a search for the part of a job that fails, or for the nodes that
make groups of a benchmark slow."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

from anubis.core.fabric import Fabric, Part, natural_key
from anubis.core.judge.faulty_paths import PATH, list_names
from anubis.core.network.group_search import FEWEST
from anubis.core.network.job_search import (
    search_progress,
    searched_workloads,
    slow_group_progress,
)
from anubis.core.network.localization import describe
from anubis.core.network.pairing import Group
from anubis.core.network.reproduction import divide
from anubis.core.network.search_progress import SearchProgress
from anubis.core.records import WORST_FIRST, Judgement, PartVerdict, Plan, Verdict

SWITCH = "NETWORK.SWITCH"
SIZE = "GROUP-SIZE"
CAME_AND_WENT = "CAME-AND-WENT"


def searches(
    plan: Plan,
    verdicts: Sequence[Verdict],
    causes: Iterable[PartVerdict],
    lost: Collection[str],
) -> Iterator[Searched]:
    """Yield the search for the part of a job that fails, and that of each benchmark in groups."""
    if plan.reproducing:
        own = _measured_by(verdicts, searched_workloads(plan))
        progress = search_progress(plan, own, causes, lost)
        yield Searched(plan, progress, own, settles_all=True)
    for entry in chain.from_iterable(phase.entries for phase in plan.phases):
        if entry.workload in plan.in_groups:
            measured_by = entry.workload.benchmark, entry.workload.parameters
            own = _measured_by(verdicts, {measured_by})
            yield Searched(plan, slow_group_progress(plan, entry, own, lost), own)


def _measured_by(
    verdicts: Iterable[Verdict], workloads: Collection[tuple[str, str]]
) -> Sequence[Verdict]:
    return [
        verdict
        for verdict in verdicts
        if len(verdict.participants) > 1 and (verdict.benchmark, verdict.parameters) in workloads
    ]


@dataclass(frozen=True)
class Searched:
    """The verdicts on the groups of a search, and what the search found."""

    plan: Plan
    progress: SearchProgress
    verdicts: Sequence[Verdict]
    settles_all: bool = False  # what it does not name is not at fault

    @cached_property
    def groups(self) -> Mapping[Group, Verdict]:
        """The groups, each with its worst verdict."""
        worst: dict[Group, Verdict] = {}
        for verdict in sorted(self.verdicts, key=lambda v: WORST_FIRST.index(v.judgement)):
            worst.setdefault(verdict.participants, verdict)
        return worst

    @cached_property
    def _failed(self) -> dict[Group, Verdict]:
        return {
            group: verdict
            for group, verdict in self.groups.items()
            if verdict.judgement is Judgement.DEFECTIVE
        }

    @cached_property
    def _well(self) -> frozenset[str]:
        """The nodes of groups that are good in some metric, and bad in none."""
        good = (v.participants for v in self.verdicts if v.judgement is Judgement.HEALTHY)
        return frozenset().union(*(group for group in good if group not in self._failed))

    @cached_property
    def _leaves(self) -> tuple[Group, ...]:
        """Leaves whose nodes are all at fault: what they have in common is."""
        fabric = self.plan.fabric
        if fabric is None:
            return ()
        names = [node.name for node in self.plan.nodes if node.name in fabric.nodes]
        leaves = (leaf.nodes for leaf in divide(names, fabric).leaves())
        at_fault = set(self.progress.nodes)
        return tuple(leaf for leaf in leaves if len(leaf) >= FEWEST and at_fault.issuperset(leaf))

    # --- nodes -------------------------------------------------------------------------------

    def nodes(self) -> Iterator[Verdict]:
        """Yield a verdict on each node that is at fault or was in no good group."""
        at_fault = set(self.progress.nodes)
        on_bad_leaves = frozenset[str]().union(*self._leaves)
        of_node: dict[str, list[Verdict]] = {}
        for group, verdict in self.groups.items():
            for node in group:
                of_node.setdefault(node, []).append(verdict)
        for node, own in of_node.items():
            worst = min(own, key=lambda verdict: WORST_FIRST.index(verdict.judgement))
            worst = replace(worst, participants=(node,))
            if node in on_bad_leaves:
                yield _call_unknown(worst, "NO-GOOD-PAIR", "every node of its leaf fails alike")
            elif node in at_fault:
                yield replace(worst, reason=self._evidence(node, own))
            elif node in self._well:
                continue
            elif worst.judgement is Judgement.DEFECTIVE:
                reason = f"in failing groups of {worst.benchmark} only, with others"
                yield _call_unknown(worst, "CANNOT-TELL-APART", reason)
            else:
                yield worst

    def _evidence(self, node: str, own: Sequence[Verdict]) -> str:
        failed = [verdict for verdict in own if verdict.participants in self._failed]
        partners = dict.fromkeys(n for v in failed for n in v.participants if n != node)
        well = sum(partner in self._well for partner in partners)
        return (
            f"{len(failed)} of its {len(own)} groups fail, and {well} of its {len(partners)}"
            f" partners are well elsewhere: {failed[0].reason}"
        )

    # --- parts -------------------------------------------------------------------------------

    def parts(self) -> Iterator[PartVerdict]:
        """Yield what is at fault between nodes, and what failed and was well again."""
        progress, fabric = self.progress, self.plan.fabric
        for leaf in self._leaves:
            if fabric:
                yield self._switch(fabric, leaf)
        for together in (*progress.links, *(progress.paths if self.settles_all else ())):
            yield self._path(together)
        if progress.size:
            yield self._size(*progress.size)
        if self._vanished:
            yield self._came_and_went(self._vanished)

    def settles(self, verdict: Verdict) -> bool:
        """True if a bad group needs no verdict of its own beside those of the search."""
        group = verdict.participants
        return group in self._failed and (
            self.settles_all
            or group in self._vanished
            or any(set(group).issuperset(link) for link in self.progress.links)
        )

    @cached_property
    def _vanished(self) -> Sequence[Group]:
        """The groups that failed, and nothing that the search found explains it. Of a benchmark in
        groups, all of their nodes are good in others."""
        progress = self.progress
        if progress.size or progress.fails_everywhere or progress.named_between:
            return ()
        unexplained = [group for group in self._failed if not self._is_explained(set(group))]
        if self.settles_all:
            return unexplained
        return [g for g in unexplained if progress.is_over and self._well.issuperset(g)]

    def _is_explained(self, group: set[str]) -> bool:
        progress = self.progress
        return not group.isdisjoint(progress.nodes) or any(
            group.issuperset(together) for together in (*progress.links, *progress.paths)
        )

    def _switch(self, fabric: Fabric, leaf: Group) -> PartVerdict:
        """The switches that these nodes have to themselves, and their NVLink domain."""
        parts = tuple(Part("switch", switch) for switch in self._own_switches(fabric, leaf))
        domains = {fabric.domain_of[node].name for node in leaf if node in fabric.domain_of}
        named = [describe(fabric, part) for part in parts]
        named += [f"NVLink domain {name}" for name in domains if len(domains) == 1]
        subject = f"{' or '.join(named)}, or what its {len(leaf):,} nodes have in common"
        own = set(leaf)
        mixed = any(own & set(group) and set(group) - own for group in self._failed)
        partners = "and each with good nodes" if mixed else "whichever of them meet"
        reason = f"they fail together, {partners}"
        return self._verdict(subject, leaf, SWITCH, reason, parts)

    def _own_switches(self, fabric: Fabric, leaf: Group) -> Iterator[str]:
        """Yield the switches of these nodes; if they are an NVLink domain, those without others."""
        own, tested = set(leaf), {node.name for node in self.plan.nodes}
        switches = [
            nic.switch
            for node in leaf
            for rail in fabric.rails
            if (nic := fabric.nic(node, rail)) is not None
        ]
        for switch in dict.fromkeys(switches):
            beside = {nic.node for nic in fabric.nics_on[switch]} & tested - own
            if not (beside and own & fabric.domain_of.keys()):
                yield switch

    def _path(self, nodes: Sequence[str]) -> PartVerdict:
        subject = f"path between {list_names(nodes)}"
        reason = "they fail each time that they meet, and are well apart"
        return self._verdict(subject, nodes, PATH, reason)

    def _size(self, well: int, fails: int) -> PartVerdict:
        subject = f"groups of {fails:,} nodes or more"
        reason = (
            f"they fail wherever they are, and groups of {well:,} do not: the size decides, and no"
            " node; look at the programs, their settings and limits"
        )
        everybody = [node.name for node in self.plan.nodes]
        return self._verdict(subject, everybody, SIZE, reason, judgement=Judgement.UNKNOWN)

    def _came_and_went(self, unexplained: Sequence[Group]) -> PartVerdict:
        smallest = min(unexplained, key=len)
        subject = f"groups around {list_names(sorted(smallest, key=natural_key))}"
        reason = (
            f"{len(unexplained)} of {len(self.groups)} groups failed, and no part of them fails"
            " often enough to be named"
        )
        return self._verdict(subject, smallest, CAME_AND_WENT, reason, judgement=Judgement.UNKNOWN)

    def _verdict(
        self,
        subject: str,
        nodes: Sequence[str],
        code: str,
        reason: str,
        parts: tuple[Part, ...] = (),
        *,
        judgement: Judgement = Judgement.DEFECTIVE,
    ) -> PartVerdict:
        """A verdict on a part, with the smallest failed group that has all of these nodes."""
        own = set(nodes)
        met = [group for group in self._failed if own <= set(group)] or list(self._failed)
        worst = self._failed[min(met, key=len)]
        return PartVerdict(
            parts=parts,
            nodes=tuple(sorted(nodes, key=natural_key)),
            benchmarks=(worst.benchmark,),
            subject=subject,
            judgement=judgement,
            code=code,
            reason=f"{subject}: {reason}: {worst.benchmark}: {worst.reason}",
        )


def _call_unknown(verdict: Verdict, code: str, doubt: str) -> Verdict:
    reason = f"{doubt}: {verdict.reason}"
    return replace(verdict, judgement=Judgement.UNKNOWN, code=code, reason=reason, cause=doubt)
