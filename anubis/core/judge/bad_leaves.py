"""Switches whose nodes all fail together: with each other, and with any good partner.

Nothing but the switch separates its nodes from others, so it represents whatever they have in
common. The verdict names the switch, and says that the cause may be something else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from anubis.core.fabric import Fabric, Part
from anubis.core.network.localization import describe
from anubis.core.network.reproduction import divide
from anubis.core.records import Judgement, PartVerdict, Plan, Verdict

FEWEST = 4  # nodes of a switch, so that there are halves of several
SWITCH = "NETWORK.SWITCH"
Met = frozenset[str]


def name_bad_leaves(
    paths: Iterable[PartVerdict], verdicts: Iterable[Verdict], plan: Plan
) -> Iterator[PartVerdict]:
    """Yield the faulty paths of a search for the part of a job that fails. The paths of a faulty
    switch become evidence for it."""
    paths, fabric = list(paths), plan.fabric
    searched = {(workload.benchmark, workload.parameters) for workload in plan.reproducing}
    if fabric is None or not searched or not paths:
        yield from paths
        return
    bad: dict[Met, bool] = {}
    good: set[Met] = set()
    for verdict in verdicts:
        if len(verdict.participants) > 1 and (verdict.benchmark, verdict.parameters) in searched:
            if verdict.judgement is Judgement.DEFECTIVE:
                silent = not verdict.metric
                bad[frozenset(verdict.participants)] = silent
            elif verdict.judgement is Judgement.HEALTHY:
                good.add(frozenset(verdict.participants))
    nodes = [node.name for node in plan.nodes if node.name in fabric.nodes]
    leaves = [leaf.nodes for leaf in divide(nodes, fabric).leaves()]
    for leaf in leaves:
        if fails_together(frozenset(leaf), bad, good - bad.keys()):
            own = [path for path in paths if set(path.nodes) & set(leaf)]
            paths = [path for path in paths if path not in own]
            if own:
                yield _verdict(fabric, leaf, own)
    yield from paths


def excuse_whole_leaves(members: Sequence[Verdict], plan: Plan) -> Iterator[Verdict]:
    """Yield the verdicts on members of groups. If a search blames every node of a leaf, the leaf is
    to blame, and its nodes are in doubt."""
    searched = {(workload.benchmark, workload.parameters) for workload in plan.reproducing}
    blamed = {
        verdict.participants[0]
        for verdict in members
        if verdict.judgement is Judgement.DEFECTIVE
        and len(verdict.participants) == 1
        and (verdict.benchmark, verdict.parameters) in searched
    }
    fabric = plan.fabric
    names = [node.name for node in plan.nodes if fabric and node.name in fabric.nodes]
    leaves = [leaf.nodes for leaf in divide(names, fabric).leaves()] if blamed and fabric else []
    members_of_bad_leaves = {
        node for leaf in leaves if len(leaf) >= FEWEST and blamed.issuperset(leaf) for node in leaf
    }
    for verdict in members:
        if verdict.judgement is Judgement.DEFECTIVE and members_of_bad_leaves.issuperset(
            verdict.participants
        ):
            reason = f"every node of its leaf fails alike: {verdict.reason}"
            verdict = replace(
                verdict, judgement=Judgement.UNKNOWN, code="NO-GOOD-PAIR", reason=reason
            )
        yield verdict


def fails_together(leaf: Met, bad: Mapping[Met, bool], good: Collection[Met]) -> bool:
    """True if every part of the leaf that met good partners failed as well. `bad` has the groups
    that failed, and whether they gave no answer at all. If all groups of a size have nodes of the
    leaf, they are equally slow, and prove nothing."""
    if len(leaf) < FEWEST or leaf not in bad:
        return False
    parts = [group for group in bad if group & leaf and not leaf <= group]
    well = frozenset[str]().union(*(group for group in good if not group & leaf))
    partners = frozenset[str]().union(*parts) - leaf
    covers = leaf <= frozenset[str]().union(*parts)
    if not (covers and partners and partners <= well):
        return False
    hangs = any(bad[group] for group in parts)
    apart = {len(group) for group in (*bad, *good) if not group & leaf} | {len(p) for p in parts}
    return not any(group & leaf and (hangs or len(group) in apart) for group in good)


def _verdict(fabric: Fabric, leaf: Sequence[str], own: Sequence[PartVerdict]) -> PartVerdict:
    switches = dict.fromkeys(
        nic.switch
        for node in leaf
        for rail in fabric.rails
        if (nic := fabric.nic(node, rail)) is not None
    )
    parts = tuple(Part("switch", switch) for switch in switches)
    listed = " or ".join(describe(fabric, part) for part in parts)
    subject = f"{listed}, or what its {len(leaf):,} nodes have in common"
    worst = own[0]
    seen = worst.reason.removeprefix(f"{worst.subject}: ")
    return replace(
        worst,
        parts=parts,
        nodes=tuple(leaf),
        subject=subject,
        code=SWITCH,
        reason=f"{subject}: they fail together, and each half with good nodes: {seen}",
        evidence=tuple(path.reason for path in own[1:]),
    )
