"""The node of a group that is to blame, found without a topology from groups that did well."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from anubis.core.network.pairing import Group
from anubis.core.records import WORST_FIRST, Judgement, Verdict


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
