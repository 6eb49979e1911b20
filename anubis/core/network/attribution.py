"""Verdicts on the parts of the fabric between the nodes, from flows that fall short.

One slow pair proves nothing against either node. `localization` weighs all pairs together, and its
causes become verdicts here.

NICs below a leaf may explain its bad flows as well as the leaf does: every flow of a NIC crosses
its leaf. So a faulty leaf leaves no good flow, and each NIC below it falls short with NICs of other
leaves that are good elsewhere. If some of its flows are good, there may as well be several slow
nodes below a sound leaf. The same holds if half of its NICs explain all flows, other leaves have
slow nodes too, and no other rail shows these nodes to be good.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from itertools import chain

import numpy as np

from anubis.core.fabric import Fabric, Part, RailNic, natural_key
from anubis.core.network.crossing import Flow, link_part, may_cross, nic_part
from anubis.core.network.hints import add_hints, congested_links, parts_of_known_load
from anubis.core.network.inspection import Inspection
from anubis.core.network.localization import (
    DEAD,
    NOTHING,
    Cause,
    describe,
    hops_of,
    locate,
    ranking,
    sentence,
    subject,
)
from anubis.core.network.posterior import Observation
from anubis.core.network.repetition import CauseDoubt, Repetition
from anubis.core.network.traffic import LIMIT, Traffic
from anubis.core.network.unexplained import unexplained_parts
from anubis.core.records import COMPARED_IN_VAIN, Counters, Judgement, PartVerdict, Plan, Verdict

NOTHING_COUNTED = Counters()
NO_CONTRAST = "NO-CONTRAST"
SURE = 0.9  # the least confidence in a cause that is called defective
MOST_OR = 2  # alternative switches of a path that are named
EXCUSED = 0.25  # share of the bad flows of a cause that rivals leave unexplained
FEWEST_CUT = 3  # pairs without an answer that show a part through which nothing passes
ALIKE = 0.06  # shares of the rate that differ by less may be of one fault
SHOWN = 4  # flows that are shown as evidence of a cause
MOST_RANKED = 8  # parts of a class
CAUSES = {  # what is wrong with a node, by the code of the part that is blamed
    "NETWORK.NODE": "slow with every other node",
    "NETWORK.NIC": "a NIC or its cable is at fault",
    "WIRING.EXCHANGED": "NICs are exchanged",
    "WIRING.WRONG-LEAF": "cabled to another leaf than the nodes beside it",
    "WIRING.MISSING": "a NIC is missing",
    "WIRING.SLOW": "a link runs slower than those like it",
}
WHAT_ALL_SHARE = (
    "the criteria are of another cluster (learn new ones), or these leaves share what slows them"
)
HOW_TO_EXCLUDE = "test again while they are idle, or with --counters and --over"
HOW_TO_SHOW_PATHS = (
    "this topology may hide planes or rails: the output of ibnetdiscover or "
    "LLDP would show which cables these flows take"
)
MAYBE = "a NIC or its cable may be at fault"
ROUTES_ASIDE = (
    "the forwarding tables were left aside: paths taken by chance explain these flows better "
    "(adaptive routing, or tables older than the cables)"
)


def part_verdicts(
    fabric: Fabric,
    traffic: Traffic,
    counters: Counters = NOTHING_COUNTED,
    idle: Collection[str] | None = None,
    suspected: Iterable[Part] = (),
) -> tuple[PartVerdict, ...]:
    """The causes of all shortfalls, the surest first, with the counters of their ports; then bad
    flows without a cause. All nodes but the `idle` ones may have other work. Parts that are
    `suspected` came and went in earlier campaigns."""
    inspection = Inspection(fabric=fabric, counters=counters)
    model = add_hints(traffic.model, fabric, counters, suspected)
    located = locate(fabric, traffic.observations, model)
    routed = any(observation.flow.via for observation in traffic.observations)
    doubts = () if located.by_routes or not routed else (ROUTES_ASIDE,)
    repetition, congested = Repetition(fabric, traffic), congested_links(fabric, counters)
    known_load = parts_of_known_load(fabric, counters)
    causes = []
    for place, cause in enumerate(located.causes):
        doubt = repetition.doubt(cause, located.causes[:place])
        doubt = doubt or _congestion(cause, congested, counters)
        doubt = doubt or _load_of_others(fabric, cause, known_load, idle)
        doubt = doubt or _detours(fabric, cause)
        doubt = doubt or _hidden_paths(fabric, cause, located.causes, traffic)
        doubt = doubt or _several_links(fabric, cause)
        doubt = doubt or _exchanged_places(fabric, cause, located.causes)
        doubt = doubt or _slow_ends(fabric, cause, traffic)
        doubt = doubt or _slow_leaf(fabric, cause, traffic)
        causes.append(_part_verdict(inspection, cause, traffic, doubt, doubts))
    causes = _merge_without_contrast(fabric, located.causes, causes, traffic)
    silent = (_silent_rail(fabric, rail, nodes) for rail, nodes in sorted(traffic.silent.items()))
    return (*causes, *silent, *unexplained_parts(fabric, located, traffic.strays))


def _congestion(cause: Cause, congested: Set[Part], counters: Counters) -> CauseDoubt | None:
    """The doubt about a link whose ports held traffic back and counted no error."""
    if congested.isdisjoint(cause.parts):
        return None
    reason = f"its ports paused, marked or dropped packets in {counters.over_s:g} s and count no"
    return CauseDoubt(code="CONGESTED", reason=f"{reason} error: traffic of others explains it too")


def _load_of_others(
    fabric: Fabric, cause: Cause, known_load: Set[Part], idle: Collection[str] | None
) -> CauseDoubt | None:
    """The doubt about links, or switches above the leaves, that nodes with other work may have
    loaded all the time: a cable that is shared is as slow in each repeat as a bad one."""
    is_between = all(
        part.kind in ("link", "uplinks")
        or (part.kind == "switch" and part.name not in fabric.leaves)
        for part in cause.parts
    )
    if idle is None or not is_between or cause.shortfall >= DEAD:
        return None
    if _links(fabric, cause.parts[0]) <= known_load:
        return None
    users = frozenset[str]().union(*map(fabric.nodes_below, _lower_ends(fabric, cause.parts)))
    busy = users.difference(idle)
    if not busy or not _are_jobs_possible(fabric, idle):
        return None
    named = ", ".join(sorted(busy, key=natural_key)[:SHOWN])
    more = f" and {len(busy) - SHOWN:,} more" if len(busy) > SHOWN else ""
    reason = f"or the traffic of nodes outside of this test: {named}{more}; {HOW_TO_EXCLUDE}"
    return CauseDoubt(code="LOAD-NOT-EXCLUDED", reason=reason)


def _detours(fabric: Fabric, cause: Cause) -> CauseDoubt | None:
    """The doubt about a link if flows may take detours: how many do is unknown, and so is how many
    cross it."""
    if not fabric.may_detour or all(part.kind != "link" for part in cause.parts):
        return None
    reason = "flows may have taken detours: forwarding tables in the topology show their paths"
    return CauseDoubt(code="CANNOT-TELL-APART", reason=reason)


def _hidden_paths(
    fabric: Fabric, cause: Cause, causes: Iterable[Cause], traffic: Traffic
) -> CauseDoubt | None:
    """The doubt about a cause if the topology is an outline: what it shows as one link or NIC may
    be many, of several planes or rails. A node is proven by flows that all fall short, if no other
    node of its leaf has such; a leaf, if each node measured over one device.
    """
    if not fabric.is_outline:
        return None
    part = cause.parts[0]
    if part.kind == "switch" and part.name in fabric.leaves and not traffic.is_merged:
        return None
    if part.kind == "node" and cause.steady and not cause.good:
        beside = {rival.name for c in causes if c is not cause for rival in c.parts}
        leaves = {nic.switch for nic in fabric.nics if nic.node == part.name}
        if not any(nic.node in beside for leaf in leaves for nic in fabric.nics_on[leaf]):
            return None
    return CauseDoubt(code="CANNOT-TELL-APART", reason=HOW_TO_SHOW_PATHS)


def _several_links(fabric: Fabric, cause: Cause) -> CauseDoubt | None:
    """The doubt about a switch above the leaves if its flows lose different shares: it takes the
    same of all, and several bad links do not."""
    is_above = all(p.kind == "switch" and p.name not in fabric.leaves for p in cause.parts)
    low, high = np.quantile([seen.shortfall for seen in cause.bad], (0.1, 0.9))
    if fabric.is_nvlink or not is_above or high - low <= 2 * ALIKE:
        return None
    reason = f"flows lose from {low:.0%} to {high:.0%}: several bad links explain that as well"
    return CauseDoubt(code="CANNOT-TELL-APART", reason=reason)


def _exchanged_places(fabric: Fabric, cause: Cause, causes: Iterable[Cause]) -> CauseDoubt | None:
    """The doubt about a node that is slow in some pairs only, or one way only, by as much as a part
    between nodes: its pairs cross that part if the topology has it in the place of another node."""
    is_end = cause.parts[0].kind in ("node", "nic")
    if not is_end or (cause.steady and cause.way == "both"):
        return None
    for rival in causes:
        is_between = rival.parts[0].kind not in ("node", "nic")
        if is_between and abs(rival.shortfall - cause.shortfall) <= ALIKE:
            reason = f"as much is lost at {subject(fabric, rival)}, which these flows cross if the"
            return CauseDoubt(
                code="CANNOT-TELL-APART", reason=f"{reason} topology has two nodes exchanged"
            )
    return None


def _links(fabric: Fabric, part: Part) -> set[Part]:
    """The links of a switch, or the part itself."""
    if part.kind != "switch":
        return {part}
    return {link_part(link) for link in fabric.links_of[part.name]}


def _are_jobs_possible(fabric: Fabric, idle: Collection[str]) -> bool:
    """Return whether a node with as many NICs as those under test takes no part. If none does, only
    nodes of another kind are left, as for storage or logins, and no job makes them send."""
    nics = Counter(nic.node for nic in fabric.nics if nic.node)
    fewest = min((nics[node] for node in idle if nics[node]), default=0)
    return any(number >= fewest for node, number in nics.items() if node not in idle)


def _lower_ends(fabric: Fabric, parts: Iterable[Part]) -> set[str]:
    """Switches, and the ends of links that are nearer to the nodes; both ends between switches of
    one tier."""
    ends = {part.name for part in parts if part.kind in ("uplinks", "switch")}
    for part in parts:
        if part.kind == "link":
            link = fabric.link(part.name, part.other)
            ends |= {link.a, link.b} - ({fabric.upper(link)} if fabric.is_uplink(link) else set())
    return ends


def _slow_ends(fabric: Fabric, cause: Cause, traffic: Traffic) -> CauseDoubt | None:
    """The doubt about a cause if other slow nodes explain the same flows."""
    ends = rival_ends(fabric, cause, traffic)
    if not ends:
        return None
    nodes = sorted({end.node for end in ends}, key=natural_key)
    more = f" and {len(nodes) - SHOWN:,} more" if len(nodes) > SHOWN else ""
    reason = f"slow nodes explain the same flows: {', '.join(nodes[:SHOWN])}{more}"
    return CauseDoubt(code="CANNOT-TELL-APART", reason=reason)


def _slow_leaf(fabric: Fabric, cause: Cause, traffic: Traffic) -> CauseDoubt | None:
    """The doubt about a node or NIC if its leaf explains the same flows.

    A good flow clears a leaf if it is as long as a bad one, or if flows of its length avoid the
    leaf. Between the two leaves of a small fabric none do: what is normal there may be slow.
    """
    on_leaves = [_leaves(fabric, seen) for seen in cause.bad]
    shared = set.intersection(*on_leaves)
    if cause.parts[0].kind not in ("node", "nic") or not shared:
        return None
    lengths = {hops_of(fabric, seen.flow) for seen in cause.bad}
    for leaf in sorted(shared):
        across = [seen for seen in traffic.observations if leaf in _leaves(fabric, seen)]
        telling = lengths | {
            hops_of(fabric, seen.flow)
            for seen in traffic.observations
            if leaf not in _leaves(fabric, seen)
        }
        if not any(_is_good(seen) and hops_of(fabric, seen.flow) in telling for seen in across):
            reason = f"switch {fabric.name(leaf)} explains the same flows"
            return CauseDoubt(code="CANNOT-TELL-APART", reason=reason)
    return None


def _leaves(fabric: Fabric, seen: Observation) -> set[str]:
    nics = (fabric.nic(*end) for end in (seen.flow.source, seen.flow.target))
    return {nic.switch for nic in nics if nic}


def _silent_rail(fabric: Fabric, rail: str, nodes: Collection[str]) -> PartVerdict:
    on_it = [nic for nic in fabric.nics if nic.rail == rail and nic.node in nodes]
    switches = sorted({fabric.name(nic.switch) for nic in on_it}, key=natural_key)
    behind = f"; all its NICs are on switch {switches[0]}" if len(switches) == 1 else ""
    return PartVerdict(
        nodes=tuple(sorted(nodes, key=natural_key)),
        subject=f"rail {rail}",
        judgement=Judgement.UNKNOWN,
        code="NOT-MEASURED",
        reason=f"rail {rail}: no pair of {len(nodes)} nodes brought a result on it{behind}",
    )


def _part_verdict(
    inspection: Inspection,
    cause: Cause,
    traffic: Traffic,
    doubt: CauseDoubt | None,
    doubts: Sequence[str],
) -> PartVerdict:
    fabric = inspection.fabric
    judgement, code = _judge(fabric, cause, traffic, doubt)
    return PartVerdict(
        parts=cause.parts,
        subject=subject(fabric, cause),
        judgement=judgement,
        code=code,
        reason=_reason(fabric, cause, code, doubt),
        confidence=cause.confidence,
        evidence=(
            *doubts,
            *_rank_parts(fabric, cause),
            *(
                _evidence(fabric, observation, traffic)
                for observation in _worst_observations(cause)
            ),
            *_inspect(inspection, cause),
        ),
    )


def _rank_parts(fabric: Fabric, cause: Cause) -> list[str]:
    """The probability of each of several parts, the most probable first."""
    if len(cause.parts) == 1:
        return []
    more = len(cause.parts) - MOST_RANKED
    listed = ranking(fabric, cause)[:MOST_RANKED]
    return [*listed, f"and {more:,} more, none of them more probable"] if more > 0 else listed


def _reason(fabric: Fabric, cause: Cause, code: str, doubt: CauseDoubt | None) -> str:
    summary = sentence(fabric, cause)
    if code == "NOT-MEASURED":
        parts = ", ".join(describe(fabric, part) for part in cause.parts[:SHOWN])
        return f"{parts}: none of {len(cause.bad)} flows across it could be measured"
    if code == NO_CONTRAST:
        return f"{summary}; no good pair at this distance avoids it: nothing to compare it with"
    if doubt and code == doubt.code:
        return f"{summary}; {doubt.reason}"
    return summary


def _judge(
    fabric: Fabric, cause: Cause, traffic: Traffic, doubt: CauseDoubt | None
) -> tuple[Judgement, str]:
    """The judgement on a cause, and its code. Several parts that cannot be told apart are still a
    defect, unless nodes are among them: then a good node would be blamed together with the bad one.
    """
    unmeasured = [seen.flow in traffic.unmeasured for seen in cause.bad]
    if all(unmeasured) and not _is_cut(cause, traffic):
        return Judgement.UNKNOWN, "NOT-MEASURED"
    if not _has_contrast(fabric, cause, traffic):
        return Judgement.UNKNOWN, NO_CONTRAST
    nodes = any(part.kind in ("node", "nic") for part in cause.parts)
    if cause.confidence < SURE or (nodes and len(cause.parts) > 1):
        return Judgement.UNKNOWN, "CANNOT-TELL-APART"
    if doubt:
        return Judgement.UNKNOWN, doubt.code
    return Judgement.DEFECTIVE, f"NETWORK.{cause.parts[0].kind.upper()}"


def _is_cut(cause: Cause, traffic: Traffic) -> bool:
    """True if pairs without an answer show that nothing passes a part between switches: each of
    their NICs measured well with others, so that no program failed."""
    ends = {frozenset((seen.flow.source, seen.flow.target)) for seen in cause.bad}
    good = {
        end
        for seen in traffic.observations
        if _is_good(seen) and not seen.flow.gone
        for end in (seen.flow.source, seen.flow.target)
    }
    is_between = not any(part.kind in ("node", "nic") for part in cause.parts)
    return is_between and len(ends) >= FEWEST_CUT and good.issuperset(chain.from_iterable(ends))


def _has_contrast(fabric: Fabric, cause: Cause, traffic: Traffic) -> bool:
    """True if a good flow over the same distance as the bad ones avoids the cause. If none is good,
    as by the criteria of a faster cluster, each leaf would be blamed for what all share."""
    distances = {hops_of(fabric, observation.flow) for observation in cause.bad}
    good = sum(
        _is_good(seen) and hops_of(fabric, seen.flow) in distances for seen in traffic.observations
    )
    return cause.good < good


def _merge_without_contrast(
    fabric: Fabric, causes: Sequence[Cause], verdicts: Sequence[PartVerdict], traffic: Traffic
) -> list[PartVerdict]:
    """The verdicts on causes; several that have no good pair beside them are one: all that was
    measured at their distance is slow."""
    alike = [verdict for verdict in verdicts if verdict.code == NO_CONTRAST]
    if len(alike) < 2:
        return list(verdicts)
    bad = (cause.bad for cause, of in zip(causes, verdicts, strict=True) if of.code == NO_CONTRAST)
    lengths = {hops_of(fabric, seen.flow) for seen in chain.from_iterable(bad)}
    measured = [
        seen
        for seen in traffic.observations
        if not seen.flow.gone and hops_of(fabric, seen.flow) in lengths
    ]
    slow = [seen for seen in measured if not _is_good(seen)]
    leaves, slow_leaves = (
        len({leaf for seen in flows for leaf in _leaves(fabric, seen)})
        for flows in (measured, slow)
    )
    share = "all" if leaves == slow_leaves else f"{slow_leaves} of"
    loss = float(np.median([seen.shortfall for seen in slow]))
    hops = " or ".join(str(length) for length in sorted(filter(None, lengths)))
    subject = f"{share} {leaves} leaves"
    merged = PartVerdict(
        parts=tuple(dict.fromkeys(part for verdict in alike for part in verdict.parts)),
        subject=subject,
        judgement=Judgement.UNKNOWN,
        code=NO_CONTRAST,
        reason=f"{subject}: {len(slow):,} of {len(measured):,} flows of {hops} hops are below the "
        f"criteria, by {loss:.0%} at the median; {WHAT_ALL_SHARE}",
        evidence=tuple(verdict.reason for verdict in alike),
    )
    return [merged, *(verdict for verdict in verdicts if verdict.code != NO_CONTRAST)]


def _inspect(inspection: Inspection, cause: Cause) -> list[str]:
    """The missing uplinks and the counters of these parts, which help if pairs cannot tell them
    apart."""
    remarks = dict.fromkeys(
        remark for part in cause.parts for remark in inspection.sentences_about(part)
    )
    return list(remarks)[:SHOWN]


def _worst_observations(cause: Cause) -> list[Observation]:
    return sorted(cause.bad, key=lambda observation: -observation.shortfall)[:SHOWN]


def _evidence(fabric: Fabric, observation: Observation, traffic: Traffic) -> str:
    flow = observation.flow
    arrow = "↔" if flow.mutual else "→"
    near, far = flow.source.rail, flow.target.rail
    rails = f" on rail {near}" if near == far else f" from rail {near} to rail {far}"
    rails = rails if len(fabric.rails) > 1 else ""
    rate = f"{observation.shortfall:.0%} below normal"
    if observation.shortfall >= NOTHING:
        rate = "nothing arrived"
    if flow in traffic.unmeasured:
        rate = "nothing measured"
    ends = f"{flow.source.node} {arrow} {flow.target.node}"
    return f"{ends}{rails}: {rate}, {_path(fabric, flow)}"


def _path(fabric: Fabric, flow: Flow) -> str:
    """The path of a flow: `4 hops: leaf1, spine1 or spine2, leaf3`; exact if its route is known."""
    a, b = fabric.nic(*flow.source), fabric.nic(*flow.target)
    hops = fabric.hops(a, b) if a and b else None
    if a is None or b is None or hops is None:
        return "no path is known"
    if flow.via:
        return f"{hops} hops: " + ", ".join(fabric.name(switch) for switch in flow.via)
    steps: dict[int, list[str]] = {}
    for switch in fabric.parts_between(a.switch, b.switch)[1]:
        steps.setdefault(fabric.steps_between(switch, a.switch), []).append(fabric.name(switch))
    way = ", ".join(
        " or ".join(names) if len(names) <= MOST_OR else f"one of {len(names)}"
        for _, names in sorted(steps.items())
    )
    return f"{hops} hops: {way}" + ", or a detour" * (fabric.may_detour and a.switch != b.switch)


def node_verdicts(
    plan: Plan, fabric: Fabric, traffic: Traffic, parts: Sequence[PartVerdict]
) -> Iterator[Verdict]:
    """Yield verdicts on nodes that a cause names, that the topology lacks, or that have a NIC
    without a good pair."""
    about = list(blamed_nodes(parts))
    yield from about
    blamed = {verdict.participants[0] for verdict in about}
    well, short = _rail_nics(traffic)
    met_well, met = (
        {rail_nic.node for rail_nic in well},
        {rail_nic.node for rail_nic in (*well, *short)},
    )
    unproven = {
        **{rail_nic.node: rail_nic for rail_nic in short},
        **{
            node: RailNic(node, rail)
            for rail, nodes in sorted(traffic.silent.items())
            for node in nodes
        },
    }
    doubtful = [stray for stray in traffic.strays if stray.reason]
    in_doubt = {node for stray in doubtful for node in stray.nodes}
    unjudged = {
        rail_nic.node: rail_nic
        for stray in doubtful
        for rail_nic in stray.ends
        if rail_nic not in well
    }
    unmapped = dict(sorted(traffic.unmapped))
    placed = set(fabric.nodes)
    for node in (member.name for member in plan.nodes):
        if node not in placed:
            reason = "this node is missing from the topology"
            yield _node_verdict(node, Judgement.UNKNOWN, "NOT-PLACED", reason)
        elif node in blamed:
            continue
        elif node in met - met_well:
            reason = _no_good_pair_reason(fabric, node, parts)
            cause = "no pair with this node was good"
            yield _node_verdict(node, Judgement.UNKNOWN, "NO-GOOD-PAIR", reason, cause)
        elif rail_nic := unproven.get(node):
            part = describe(fabric, nic_part(fabric, *rail_nic))
            culprit = _culprit(fabric, short.get(rail_nic, ()), parts)
            reason = f"no pair was good over {part}{culprit}"
            cause = "no pair was good over one of its NICs"
            if culprit:
                cause = "a fault of the network behind one of its NICs"
            yield _node_verdict(node, Judgement.UNKNOWN, "NO-GOOD-PAIR", reason, cause)
        elif device := unmapped.get(node):
            reason = (
                f"no pair with this node was good on {device}, which the topology does not show"
            )
            yield _node_verdict(node, Judgement.UNKNOWN, "NO-GOOD-PAIR", reason)
        elif node in in_doubt - met_well:
            reason = "no pair with this node could be judged"
            yield _node_verdict(node, Judgement.UNKNOWN, _code_of_doubts(node, traffic), reason)
        elif rail_nic := unjudged.get(node):
            part = describe(fabric, nic_part(fabric, *rail_nic))
            reason = f"no pair over {part} could be judged"
            yield _node_verdict(node, Judgement.UNKNOWN, _code_of_doubts(node, traffic), reason)


def _code_of_doubts(node: str, traffic: Traffic) -> str:
    """The code for a node in doubt. A node whose pairs measured, but could not be compared, has
    answered."""
    strays = [stray for stray in traffic.strays if stray.reason and node in stray.nodes]
    codes = {stray.code for stray in strays}
    return min(codes) if codes <= COMPARED_IN_VAIN else "NO-GOOD-PAIR"


def _rail_nics(traffic: Traffic) -> tuple[set[RailNic], dict[RailNic, list[Flow]]]:
    """The NICs with a good flow; and those without one, with their flows."""
    well = set[RailNic]()
    short: dict[RailNic, list[Flow]] = {}
    for observation in traffic.observations:
        flow = observation.flow
        for rail_nic in (flow.source, flow.target):
            if observation.shortfall <= LIMIT:
                well |= set() if flow.gone else {rail_nic}
            else:
                short.setdefault(rail_nic, []).append(flow)
    return well, {rail_nic: flows for rail_nic, flows in short.items() if rail_nic not in well}


def _culprit(fabric: Fabric, flows: Collection[Flow], parts: Sequence[PartVerdict]) -> str:
    """End of a sentence that names the defect which explains all of these flows; empty: none
    does. The ends of the flows stay unproven."""
    for verdict in parts if flows else ():
        faulty = set(verdict.parts)
        is_faulty = verdict.judgement is Judgement.DEFECTIVE
        if is_faulty and all(may_cross(fabric, flow, faulty) for flow in flows):
            return f": all cross {verdict.subject}, which is at fault"
    return ""


def blamed_nodes(parts: Sequence[PartVerdict]) -> Iterator[Verdict]:
    """Yield verdicts on nodes from those on parts: a node is responsible for its NICs and their
    cables."""
    for blame in parts:
        for node in dict.fromkeys(p.name for p in blame.parts if p.kind in ("node", "nic")):
            cause = CAUSES.get(blame.code, MAYBE)
            yield _node_verdict(node, blame.judgement, blame.code, blame.reason, cause)


def _node_verdict(
    node: str, judgement: Judgement, code: str, reason: str, cause: str = ""
) -> Verdict:
    return Verdict(
        participants=(node,),
        benchmark="",
        judgement=judgement,
        code=code,
        reason=reason,
        cause=cause,
    )


def _no_good_pair_reason(fabric: Fabric, node: str, parts: Sequence[PartVerdict]) -> str:
    nics = (fabric.nic(node, rail) for rail in fabric.rails)
    leaves = {nic.switch for nic in nics if nic}
    above = [
        part for verdict in parts for part in verdict.parts if leaves & {part.name, part.other}
    ]
    if not above:
        return "no pair with this node was good, and nothing shows whether the node is at fault"
    blamed = any(above[0] in v.parts for v in parts if v.judgement is Judgement.DEFECTIVE)
    cause = f"the cause {'is' if blamed else 'may be'} {describe(fabric, above[0])}"
    return f"no pair with this node was good; {cause}"


def rival_ends(fabric: Fabric, cause: Cause, traffic: Traffic) -> list[RailNic]:
    """NICs that explain the bad flows of a cause in its place; none if it is the better cause.

    A node is proven bad by a partner that is good with others. A faulty link or switch above the
    leaves leaves its nodes good flows elsewhere, so several NICs that have none explain its flows
    as well. A faulty leaf leaves no good flow, and is bad towards other leaves too. Its NICs are
    rivals if that is not so; or if half of them explain all flows, other leaves have slow nodes
    too, and no other rail shows these nodes to be good.
    """
    if fabric.is_nvlink:
        return []
    part = cause.parts[0]
    well = _ends(seen for seen in traffic.observations if _is_good(seen))
    if part.kind in ("node", "nic"):
        partners = {end for end in _ends(cause.bad) if end.node != part.name}
        return sorted(partners) if well.isdisjoint(partners) else []
    ends = _cover([_ends([seen]) - well for seen in cause.bad])
    on_leaf = {nic.rail_nic for nic in fabric.nics_on.get(part.name, ())}
    if part.kind != "switch" or len(cause.parts) > 1 or not on_leaf:
        return ends if len(ends) > 1 else []
    if cause.way != "both":
        return []
    measured = on_leaf & _ends(traffic.observations)
    stays_below = all(_ends([seen]) <= on_leaf for seen in cause.bad)
    stays_below = stays_below and _has_partners(fabric, on_leaf)
    half = 2 * len(ends) <= len(measured) and not _are_well(ends, well)
    is_doubtful = cause.good or stays_below or (half and _is_bad_elsewhere(traffic, on_leaf))
    return ends if is_doubtful else []


def _has_partners(fabric: Fabric, on_leaf: set[RailNic]) -> bool:
    """True if other leaves have NICs on these rails."""
    rails = {rail for _, rail in on_leaf}
    return any(nic.node and nic.rail in rails for nic in fabric.nics if nic.rail_nic not in on_leaf)


def _are_well(ends: Iterable[RailNic], well: set[RailNic]) -> bool:
    nodes = {end.node for end in well}
    return any(end.node in nodes for end in ends)


def _is_bad_elsewhere(traffic: Traffic, on_leaf: set[RailNic]) -> bool:
    bad = (seen for seen in traffic.observations if seen.shortfall > LIMIT)
    return any(on_leaf.isdisjoint(_ends([seen])) for seen in bad)


def _ends(observations: Iterable[Observation]) -> set[RailNic]:
    return {end for seen in observations for end in (seen.flow.source, seen.flow.target)}


def _is_good(seen: Observation) -> bool:
    return seen.shortfall <= LIMIT and not seen.flow.gone


def _cover(suspects: list[set[RailNic]]) -> list[RailNic]:
    """A few NICs, one or both of each flow; none if the ends of many flows are good elsewhere.
    Traffic of others may slow a few."""
    chosen: list[RailNic] = []
    if suspects.count(set()) > EXCUSED * len(suspects):
        return chosen
    suspects = list(filter(None, suspects))
    while suspects:
        counts = Counter(end for ends in suspects for end in ends)
        chosen.append(min(counts, key=lambda end: (-counts[end], end)))
        suspects = [ends for ends in suspects if chosen[-1] not in ends]
    return sorted(chosen)
