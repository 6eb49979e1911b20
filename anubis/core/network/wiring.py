"""Find NICs whose cabling differs from that of the nodes beside them, without traffic.

The plan of the cabling is unknown. So the most common cabling of the nodes on the same leaves is
taken as the plan: the leaf of each rail, and its speed. A node that has little in common with the
nodes beside it is of another kind, and is not judged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

from anubis.core.fabric import Fabric, Nic, Part, natural_key, port_name
from anubis.core.network.crossing import nic_part
from anubis.core.records import WORST_FIRST, Judgement, PartVerdict

FEWEST = 3  # nodes with the same cabling; fewer do not make a plan
RARER = 3  # times as many nodes must follow the plan as another cabling
LISTED = 4  # nodes in a sentence

Cabling = frozenset[tuple[str, str]]  # each rail of a node, and the leaf it is on
Cablings = Mapping[Cabling, Sequence[str]]  # the nodes with each cabling


def audit(fabric: Fabric) -> tuple[PartVerdict, ...]:
    """Verdicts on cables at the wrong leaf, missing NICs and links slower than others, the worst
    first."""
    nodes_of = _cablings(fabric)
    verdicts = list(_misfits(fabric, nodes_of))
    named = {part.name for verdict in verdicts for part in verdict.parts}
    verdicts += _lacking_rails(nodes_of, named)
    verdicts += _slow_links(fabric, nodes_of)
    return tuple(sorted(verdicts, key=lambda verdict: WORST_FIRST.index(verdict.judgement)))


def verdicts_about(
    verdicts: Sequence[PartVerdict], nodes: Collection[str]
) -> tuple[PartVerdict, ...]:
    return tuple(
        verdict for verdict in verdicts if any(part.name in nodes for part in verdict.parts)
    )


def _cablings(fabric: Fabric) -> Cablings:
    rail_nics: dict[str, list[tuple[str, str]]] = {}
    for nic in fabric.nics:
        if nic.node:
            rail_nics.setdefault(nic.node, []).append((nic.rail, nic.switch))
    nodes_of: dict[Cabling, list[str]] = {}
    for node, own in rail_nics.items():
        nodes_of.setdefault(frozenset(own), []).append(node)
    return nodes_of


# --- at the wrong leaf, or missing -------------------------------------------------------------


def _misfits(fabric: Fabric, nodes_of: Cablings) -> Iterator[PartVerdict]:
    plans_on: dict[str, list[Cabling]] = {}
    for cabling, nodes in nodes_of.items():
        if len(nodes) >= FEWEST:
            for leaf in {leaf for _, leaf in cabling}:
                plans_on.setdefault(leaf, []).append(cabling)
    for cabling, nodes in nodes_of.items():
        plans = _nearest_plans(cabling, nodes_of, plans_on)
        if _is_between_two(cabling, plans) and len(nodes) < FEWEST:
            yield from (_verdict_between_two(fabric, node) for node in nodes)
        elif plans and _is_of_the_kind(cabling, plans[0], len(nodes)):
            for node in nodes:
                yield from _differences(fabric, node, cabling, plans[0], nodes_of)


def _nearest_plans(
    cabling: Cabling, nodes_of: Cablings, plans_on: Mapping[str, Sequence[Cabling]]
) -> list[Cabling]:
    """The much more common cablings that have most leaves in common with this one."""
    needed = max(FEWEST, RARER * len(nodes_of[cabling]))
    common = {
        plan: (_leaves_in_common(cabling, plan), len(cabling & plan))
        for _, leaf in cabling
        for plan in plans_on.get(leaf, ())
        if len(nodes_of[plan]) >= needed
    }
    highest = max(common.values(), default=None)
    nearest = [plan for plan in common if common[plan] == highest]
    return sorted(nearest, key=lambda plan: (-len(nodes_of[plan]), sorted(plan)))


def _leaves_in_common(first: Cabling, second: Cabling) -> int:
    counts = [Counter(leaf for _, leaf in cabling) for cabling in (first, second)]
    return (counts[0] & counts[1]).total()


def _is_between_two(cabling: Cabling, plans: Sequence[Cabling]) -> bool:
    """True if half of it is as in one plan, half as in another."""
    return bool(plans) and any(
        2 * len(cabling & plan) == len(cabling) and cabling <= plans[0] | plan for plan in plans[1:]
    )


def _is_of_the_kind(cabling: Cabling, plan: Cabling, nodes: int) -> bool:
    """True if nodes with this cabling were meant to be cabled by the plan.

    Nodes with fewer NICs that are all where the plan has them may be of another kind, if they lack
    more than a quarter and there are several of them.
    """
    rails, planned = dict(cabling).keys(), dict(plan).keys()
    if len(planned - rails) > max(1, len(plan) // 4) or (planned - rails and rails - planned):
        return False
    if all(rail_nic in plan for rail_nic in cabling if rail_nic[0] in planned):
        return 4 * len(cabling & plan) >= 3 * len(plan) or nodes < FEWEST
    return 2 * _leaves_in_common(cabling, plan) > len(plan)


def _differences(
    fabric: Fabric, node: str, cabling: Cabling, plan: Cabling, nodes_of: Cablings
) -> Iterator[PartVerdict]:
    rail_nics, planned = dict(cabling), dict(plan)
    rails = sorted(planned, key=natural_key)
    moved = [rail for rail in rails if rail_nics.get(rail, planned[rail]) != planned[rail]]
    unlike = len(nodes_of[cabling]) >= FEWEST or len(moved) == len(plan) > 2
    judgement = Judgement.UNKNOWN if unlike else Judgement.DEFECTIVE
    beside = nodes_of[plan]
    if Counter(rail_nics[rail] for rail in moved) == Counter(planned[rail] for rail in moved):
        exchanged = [moved] if moved else []
    else:
        exchanged = [[rail] for rail in moved]
    for group in exchanged:
        yield _wrong_leaf_verdict(fabric, node, group, planned, beside, judgement)
    for rail in rails:
        if rail not in rail_nics:
            yield _missing_nic_verdict(fabric, node, rail, planned[rail], beside, len(plan))


def _wrong_leaf_verdict(
    fabric: Fabric,
    node: str,
    rails: Sequence[str],
    planned: Mapping[str, str],
    beside: Sequence[str],
    judgement: Judgement,
) -> PartVerdict:
    nics = _nics(fabric, node, rails)
    like = f"{_count_in_words(len(beside))} beside it"
    if len(rails) > 1:
        order = "the other way round" if len(rails) == 2 else "in another order"
        difference = f"exchanged, {like} have them {order}"
    else:
        difference = f"expected on {fabric.name(planned[rails[0]])}, as on {like}"
    if judgement is Judgement.UNKNOWN:
        difference += ", unless its devices are numbered otherwise or it is another kind of node"
    return PartVerdict(
        parts=tuple(Part("nic", node, rail) for rail in rails),
        subject=_subject(nics),
        judgement=judgement,
        code="WIRING.EXCHANGED" if len(rails) > 1 else "WIRING.WRONG-LEAF",
        reason=f"{node}: {_ends(fabric, nics)}: {difference}",
        evidence=(f"{beside[0]}: {_ends(fabric, _nics(fabric, beside[0], rails))}",),
    )


def _verdict_between_two(fabric: Fabric, node: str) -> PartVerdict:
    nics = _nics(fabric, node, fabric.rails)
    return PartVerdict(
        parts=tuple(Part("nic", node, nic.rail) for nic in nics),
        subject=f"cables of {node}",
        judgement=Judgement.DEFECTIVE,
        code="WIRING.WRONG-LEAF",
        reason=f"{node}: {_ends(fabric, nics)}: half is cabled as one group of nodes, half as "
        "another: one half is at the wrong leaves",
    )


def _missing_nic_verdict(
    fabric: Fabric, node: str, rail: str, leaf: str, beside: Sequence[str], planned: int
) -> PartVerdict:
    nics = _nics(fabric, beside[0], [rail])
    unknown = sum(not nic.node for nic in fabric.nics_on[leaf])
    where = f"expected one on {fabric.name(leaf)}, as on {_count_in_words(len(beside))} beside it"
    if unknown:
        where += f", unless it is among the NICs of unknown nodes there ({unknown})"
    half = planned == 2
    if half and not unknown:
        where += ", unless it is another kind of node"
    return PartVerdict(
        parts=(Part("nic", node, rail),),
        subject=f"NIC {nics[0].device or rail} of {node}",
        judgement=Judgement.UNKNOWN if unknown or half else Judgement.DEFECTIVE,
        code="WIRING.MISSING",
        reason=f"{node} has no NIC on rail {rail}: {where}",
        evidence=(f"{beside[0]}: {_ends(fabric, nics)}",),
    )


def _lacking_rails(nodes_of: Cablings, named: Collection[str]) -> Iterator[PartVerdict]:
    """Yield verdicts on rails that whole groups of nodes lack and most of the fleet has: their leaf
    may be missing."""
    kinds: Counter[frozenset[str]] = Counter()
    for cabling, nodes in nodes_of.items():
        kinds[frozenset(dict(cabling))] += len(nodes)
    usual, alike = max(kinds.items(), key=lambda kind: kind[1], default=(frozenset(), 0))
    if alike < FEWEST or 3 * alike < 2 * kinds.total():
        return
    lacking: dict[frozenset[str], list[str]] = {}
    for cabling, nodes in nodes_of.items():
        missing = usual.difference(dict(cabling))
        if 0 < 4 * len(missing) <= len(usual) and dict(cabling).keys() <= usual:
            unnamed = [node for node in nodes if node not in named]
            lacking.setdefault(missing, []).extend(unnamed)
    for missing, nodes in lacking.items():
        if nodes:
            yield _lacking_rail_verdict(sorted(missing, key=natural_key), nodes, alike)


def _lacking_rail_verdict(rails: Sequence[str], nodes: Sequence[str], alike: int) -> PartVerdict:
    named = f"rail{'s' if len(rails) > 1 else ''} {', '.join(rails)}"
    listed = ", ".join(nodes[:LISTED]) + (" and others" if len(nodes) > LISTED else "")
    return PartVerdict(
        parts=tuple(Part("nic", node, rail) for node in nodes for rail in rails),
        subject=f"{named} of {_count_in_words(len(nodes))}",
        judgement=Judgement.UNKNOWN,
        code="WIRING.MISSING",
        reason=f"no NIC on {named}, but {_count_in_words(alike)} have one: {listed}; a leaf is "
        "missing, or this is another kind of node",
    )


# --- slower than others ------------------------------------------------------------------------

Sisters = dict[tuple[frozenset[str], str, str], list[Nic]]  # kind of node, rail, and leaf or ""


def _slow_links(fabric: Fabric, nodes_of: Cablings) -> Iterator[PartVerdict]:
    """Yield verdicts on slow links. They are compared on one rail, among nodes with the same rails:
    on the leaf or, if these are few, in the whole fabric."""
    kind_of = {
        node: frozenset(dict(cabling)) for cabling, nodes in nodes_of.items() for node in nodes
    }
    sisters: Sisters = {}
    for nic in fabric.nics:
        if nic.node and nic.gbit_s is not None:
            for leaf in (nic.switch, ""):
                sisters.setdefault((kind_of[nic.node], nic.rail, leaf), []).append(nic)
    usual_of = {key: _usual_speed(nics) for key, nics in sisters.items()}
    slow: dict[str, list[tuple[Nic, float]]] = {}
    for (kind, rail, leaf), nics in sisters.items():
        usual = usual_of[kind, rail, leaf if len(nics) > FEWEST else ""]
        for nic in nics if leaf and usual else ():
            if usual and nic.gbit_s is not None and nic.gbit_s < usual:
                slow.setdefault(nic.node, []).append((nic, usual))
    for node, links in slow.items():
        if 1 < len(links) == len(kind_of[node]):
            yield _slow_node(node, links)
        else:
            yield from (_slow_link(fabric, nic, usual) for nic, usual in links)


def _usual_speed(nics: Sequence[Nic]) -> float | None:
    """The speed of at least three quarters of them; None if there is none."""
    speed, count = Counter(nic.gbit_s for nic in nics).most_common(1)[0]
    return speed if count >= FEWEST and 4 * count >= 3 * len(nics) else None


def _slow_link(fabric: Fabric, nic: Nic, usual: float) -> PartVerdict:
    link = f"link {_name(nic)} - {port_name(fabric, nic.switch, nic.port)}"
    return PartVerdict(
        parts=(nic_part(fabric, nic.node, nic.rail),),
        subject=link,
        judgement=Judgement.DEFECTIVE,
        code="WIRING.SLOW",
        reason=f"{link} runs at {nic.gbit_s:g} Gbit/s, those like it at {usual:g}",
    )


def _slow_node(node: str, links: Sequence[tuple[Nic, float]]) -> PartVerdict:
    nic, usual = links[0]
    return PartVerdict(
        parts=(Part("node", node),),
        subject=f"links of {node}",
        judgement=Judgement.UNKNOWN,
        code="WIRING.SLOW",
        reason=f"all {len(links)} links of {node} run at {nic.gbit_s:g} Gbit/s, those like them at "
        f"{usual:g}, unless it is another kind of node",
    )


# --- in words ----------------------------------------------------------------------------------


def _nics(fabric: Fabric, node: str, rails: Sequence[str]) -> list[Nic]:
    return [nic for rail in rails if (nic := fabric.nic(node, rail))]


def _name(nic: Nic) -> str:
    return f"{nic.node} {nic.device}".rstrip()


def _ends(fabric: Fabric, nics: Sequence[Nic]) -> str:
    """The devices and their ports: `mlx5_4 on leaf-3[7], mlx5_5 on leaf-4[7]`."""
    return ", ".join(
        f"{nic.device or 'its NIC'} on {port_name(fabric, nic.switch, nic.port)}" for nic in nics
    )


def _subject(nics: Sequence[Nic]) -> str:
    devices = " and ".join(nic.device or nic.rail for nic in nics)
    return f"NIC{'s' if len(nics) > 1 else ''} {devices} of {nics[0].node}"


def _count_in_words(nodes: int) -> str:
    return f"{nodes:,} node{'' if nodes == 1 else 's'}"
