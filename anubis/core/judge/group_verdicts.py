"""Verdicts on nodes and parts from groups of nodes, some of which fail or are slow: without a
topology, by groups that did well; or by a search for the part of a job that fails, or for the nodes
that make groups of a benchmark slow."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, combinations

from anubis.core.fabric import Fabric, Part, natural_key
from anubis.core.judge.faulty_paths import PATH, list_names
from anubis.core.network.group_search import FEWEST, SearchProgress
from anubis.core.network.job_search import search_progress, searched_workloads, slow_group_progress
from anubis.core.network.localization import describe
from anubis.core.network.pairing import Group
from anubis.core.network.reproduction import divide
from anubis.core.records import WORST_FIRST, Judgement, PartVerdict, Plan, Verdict


def blame(groups: Mapping[Group, bool]) -> set[str]:
    """The nodes in bad groups only, whose partners all did well elsewhere.

    `groups` gives for each group whether it is bad. A node in any good group is cleared. If all
    nodes of a bad group are cleared, it has a bad link. If it has several suspects, they cannot be
    told apart. In both cases no node is blamed.
    """
    cleared = {node for group, bad in groups.items() if not bad for node in group}
    suspects = [set(group) - cleared for group, bad in groups.items() if bad]
    return set().union(*(nodes for nodes in suspects if len(nodes) == 1))


def slow_pair(groups: Mapping[Group, bool]) -> tuple[str, str] | None:
    """The only two nodes that are in every bad group together, and in no good one.

    Each is good elsewhere, so the fault is between them. A pair that was measured by itself needs
    no such reasoning.
    """
    bad = [set(group) for group, is_bad in groups.items() if is_bad]
    good = [set(group) for group, is_bad in groups.items() if not is_bad]
    large = min(map(len, bad), default=0) > 2
    everywhere = sorted(set.intersection(*bad)) if large else []
    pairs = [
        pair
        for pair in combinations(everywhere, 2)
        if not any(set(pair) <= group for group in good)
    ]
    cleared = set().union(*good)
    return pairs[0] if len(pairs) == 1 and set(pairs[0]) <= cleared else None


def cast_votes(groups: Sequence[Group], rates: Sequence[float]) -> list[int]:
    """The position of one of the faster groups of each node, which shows what it can do with good
    partners.

    A slow node or link slows all groups across it, so in a small fleet half of all pairs may be bad
    while most nodes are good. With one vote per node, most votes are still good. Of two or three
    groups the best is taken. Of many it is the one at the upper quartile, which chance does not
    make faster than groups usually are.
    """
    groups_of: dict[str, list[int]] = {}
    for place, group in enumerate(groups):
        for node in group:
            groups_of.setdefault(node, []).append(place)
    for places in groups_of.values():
        places.sort(key=rates.__getitem__)
    return [places[-(-3 * (len(places) - 1) // 4)] for places in groups_of.values()]


def judge_members(verdicts: Iterable[Verdict]) -> Iterable[Verdict]:
    """Verdicts on single nodes, from the groups of each benchmark and metric."""
    by_metric: defaultdict[tuple[str, str, str], list[Verdict]] = defaultdict(list)
    good: set[tuple[str, str]] = set()
    well: defaultdict[tuple[str, str], set[Group]] = defaultdict(set)  # good groups, by any metric
    for verdict in verdicts:
        if len(verdict.participants) > 1:
            by_metric[verdict.benchmark, verdict.parameters, verdict.metric].append(verdict)
            if verdict.judgement is Judgement.HEALTHY:
                good.update((verdict.benchmark, name) for name in verdict.participants)
                well[verdict.benchmark, verdict.parameters].add(verdict.participants)
    for (benchmark, parameters, metric), groups in by_metric.items():
        answered = () if metric else well[benchmark, parameters]  # a failure has no metric
        bad = dict.fromkeys(answered, False) | {
            verdict.participants: verdict.judgement is Judgement.DEFECTIVE
            for verdict in groups
            if verdict.judgement in (Judgement.DEFECTIVE, Judgement.HEALTHY)
        }
        blamed = blame(bad)
        between = slow_pair(bad)
        if between:
            worst = min(groups, key=lambda verdict: WORST_FIRST.index(verdict.judgement))
            reason = f"slow only together, good in {_count_good(bad)} other groups: {worst.reason}"
            yield replace(worst, participants=between, reason=reason)
        members = dict.fromkeys(name for verdict in groups for name in verdict.participants)
        for name in members:
            own = [verdict for verdict in groups if name in verdict.participants]
            own.sort(key=lambda verdict: WORST_FIRST.index(verdict.judgement))
            if name in blamed:
                yield replace(own[0], participants=(name,), reason=_evidence(name, own))
            elif (benchmark, name) in good:
                continue  # a good group proves the node; a bad one then indicates a link
            elif own[0].judgement is Judgement.DEFECTIVE:
                yield replace(
                    own[0],
                    participants=(name,),
                    judgement=Judgement.UNKNOWN,
                    code="CANNOT-TELL-APART",
                    reason=f"in a slow group of {benchmark} with others that no good group clears",
                    cause=f"in a slow group of {benchmark} that cannot be told apart",
                )
            else:
                yield replace(own[0], participants=(name,))


def _count_good(groups: Mapping[tuple[str, ...], bool]) -> int:
    return sum(not bad for bad in groups.values())


def _evidence(name: str, own: Sequence[Verdict]) -> str:
    partners = [p for v in own for p in v.participants if p != name]
    shown = ", ".join(sorted(dict.fromkeys(partners))[:4])
    return f"slow with every partner ({shown}), and each partner is fast elsewhere: {own[0].reason}"


SWITCH = "NETWORK.SWITCH"
SIZE = "GROUP-SIZE"
CAME_AND_WENT = "CAME-AND-WENT"


def searches(
    plan: Plan, verdicts: Sequence[Verdict], causes: Iterable[PartVerdict], lost: Collection[str]
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
            elif node in at_fault and self._vanished and node in self._well:
                reason = f"{self._evidence(node, own)}; but groups without it come and go, too"
                yield _call_unknown(worst, CAME_AND_WENT, reason)
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
            f"they fail on any nodes, and groups of {well:,} do not: the size is the cause, and no"
            " node; check the programs, their settings and limits"
        )
        all_nodes = [node.name for node in self.plan.nodes]
        return self._verdict(subject, all_nodes, SIZE, reason, judgement=Judgement.UNKNOWN)

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
