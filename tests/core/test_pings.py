"""Standing pings: which flows ping at which rate, and the parts that their losses reveal."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import replace

import numpy as np
import pytest

from anubis.core.fabric import Fabric, Part, RailNic, rail_nics_on
from anubis.core.network.ping_mesh import (
    MOST_SHARE,
    PING_BITS,
    PingMesh,
    add_flows,
    ping_mesh,
)
from anubis.core.network.ping_results import PingCount, PingedFlow, PingReport, judge_pings
from anubis.core.records import Judgement
from anubis.operations.pings import JudgedPings
from tests.core.made_fabrics import FatTree

TREE = FatTree(nodes=20, nodes_per_leaf=4, spines=1).fabric()
MESH = ping_mesh(TREE, TREE.nodes)
SENT, WINDOWS = 30, 120
H, U = Judgement.HEALTHY, Judgement.UNKNOWN


def steps_from(fabric: Fabric, start: str) -> dict[str, int]:
    """Breadth first, switch by switch."""
    steps, queue = {start: 0}, deque([start])
    while queue:
        here = queue.popleft()
        for link in fabric.links:
            for a, b in ((link.a, link.b), (link.b, link.a)):
                if a == here and b not in steps:
                    steps[b] = steps[here] + 1
                    queue.append(b)
    return steps


def crossed(fabric: Fabric, ends) -> set[Part]:  # type: ignore[no-untyped-def]
    """All parts on any shortest path."""
    a, b = fabric.nic(*ends[0]), fabric.nic(*ends[1])
    near, far = steps_from(fabric, a.switch), steps_from(fabric, b.switch)
    whole = near[b.switch]
    parts = {Part("node", a.node), Part("node", b.node)}
    parts |= {Part("switch", s) for s in near if near[s] + far[s] == whole}
    for link in fabric.links:
        if whole in (near[link.a] + 1 + far[link.b], near[link.b] + 1 + far[link.a]):
            parts.add(Part("link", link.a, link.b))
    return parts


@pytest.mark.parametrize(
    "tree",
    [
        FatTree(nodes=16, nodes_per_leaf=4, spines=2, gbit_s=0.01),
        FatTree(nodes=16, nodes_per_leaf=4, spines=2, rails=2, rail_spines=True, cores=2),
    ],
)
def test_pings_cross_every_link_and_take_no_more_than_a_ten_thousandth_of_any(tree):
    fabric = tree.fabric()
    mesh = ping_mesh(fabric, fabric.nodes)
    load: Counter[Part] = Counter(part for ends in mesh.flows for part in crossed(fabric, ends))
    load += Counter(Part("nic", *rail_nic) for ends in mesh.flows for rail_nic in ends)
    busiest = max(count for part, count in load.items() if part.kind in ("link", "nic"))
    share = busiest * PING_BITS / mesh.every_s / (tree.gbit_s * 1e9)
    assert {Part("link", link.a, link.b) for link in fabric.links} <= set(load)
    assert mesh.share == pytest.approx(share)
    assert share <= MOST_SHARE * (1 + 1e-9)
    assert mesh.every_s == 1 or share == pytest.approx(MOST_SHARE)


def reports(bad, *, lost: int = 6, **of_node: PingReport) -> dict[str, PingReport]:  # type: ignore[no-untyped-def]
    """All agents' reports. `bad`: by flow, the windows in which it loses so many pings."""
    flows: dict[str, list[PingedFlow]] = {node: [] for node in TREE.nodes}
    for ends in MESH.flows:
        counts = {window: PingCount(SENT, SENT - lost) for window in bad.get(ends, ())}
        flow = PingedFlow(ends=ends, since=0, was_answered=True, lost=counts, best_us=20.0)
        flows[ends[0].node].append(flow)
    whole = {
        node: PingReport(first=0, last=WINDOWS - 1, flows=tuple(own)) for node, own in flows.items()
    }
    return whole | {
        node: replace(report, flows=whole[node].flows) for node, report in of_node.items()
    }


def through(part: Part, windows) -> dict:  # type: ignore[no-untyped-def,type-arg]
    return {ends: windows for ends in MESH.flows if part in crossed(TREE, ends)}


NODE = Part("node", TREE.nodes[6])
PLANTED = [
    NODE,
    Part("switch", TREE.leaves[2]),
    Part("link", TREE.links[3].a, TREE.links[3].b),
]


@pytest.mark.parametrize("part", PLANTED)
@pytest.mark.parametrize(
    "windows", [(10, 50, 51, 90), range(WINDOWS - 12, WINDOWS)], ids=["flaps", "lasts"]
)
def test_the_suspected_parts_are_those_that_all_bad_flows_cross_and_no_good_one(part, windows):
    findings = judge_pings(TREE, reports(through(part, windows)))
    (found,) = findings.suspicions
    bad = [crossed(TREE, ends) for ends in through(part, windows)]
    good = [crossed(TREE, ends) for ends in set(MESH.flows) - set(through(part, windows))]
    candidates = set.intersection(*bad).difference(*good)
    named = {p for p in found.verdict.parts if p.kind != "uplinks"}
    assert part in named <= candidates
    assert (found.since, found.lasts) == (windows[0], len(windows) > 4)
    assert found.episodes == (1 if found.lasts else 3)
    assert found.bad == len(bad)
    assert not findings.came_and_went


def test_a_loss_that_is_over_is_counted_and_blames_nothing():
    bad = through(NODE, (10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21))
    findings = judge_pings(TREE, reports(bad))
    assert not findings.suspicions
    assert not findings.doubts
    assert findings.came_and_went == dict.fromkeys(bad, 1)


def test_an_agent_that_does_not_run_is_no_bad_link():
    windows = (10, 50, 90)
    bad, asleep = through(NODE, windows), frozenset(windows)
    slept = PingReport(first=0, last=WINDOWS - 1, asleep=asleep)
    assert not judge_pings(TREE, reports(bad, **{NODE.name: slept})).suspicions
    began_anew = PingReport(first=91, last=WINDOWS - 1)
    assert not judge_pings(TREE, reports(bad, **{NODE.name: began_anew})).suspicions
    silent = {node: r for node, r in reports(bad).items() if node != NODE.name}
    findings = judge_pings(TREE, silent)
    assert not findings.suspicions
    assert findings.known == len(MESH.flows) - len(bad)


def test_losses_at_different_times_have_different_causes():
    first, second = NODE, Part("node", TREE.nodes[13])
    bad = through(first, (10, 50, 90)) | {
        ends: (20, 60, 100) for ends in through(second, ()) if ends not in through(first, ())
    }
    found = judge_pings(TREE, reports(bad)).suspicions
    assert {part for suspicion in found for part in suspicion.verdict.parts} == {first, second}


@pytest.mark.parametrize("others", [1, 5, 7])
def test_losses_of_one_flow_for_other_reasons_do_not_hide_those_that_all_flows_share(others):
    """Each flow of the leaf loses in the six windows of the leaf, and some of them in others."""
    leaf, shared = PLANTED[1], (10, 30, 50, 70, 90, 110)
    bad = through(leaf, shared)
    for place, ends in enumerate(list(bad)[: len(bad) // 2]):
        further = [55 + place] if place else range(15, 15 + 10 * others, 10)
        bad[ends] = (*shared, *further)
    (found,) = judge_pings(TREE, reports(bad)).suspicions
    assert found.verdict.parts == (leaf,)
    assert found.episodes == len(shared)


def test_a_leaf_that_most_flows_cross_is_named_by_the_few_that_do_not():
    small = FatTree(nodes=6, nodes_per_leaf=2, spines=1).fabric()
    uplink = Part("link", small.links[1].a, small.links[1].b)
    flows = ping_mesh(small, small.nodes).flows
    lost = dict.fromkeys((1, 3, 5, 7, 9), PingCount(SENT, 26))
    own = {
        node: PingReport(
            first=0,
            last=12,
            flows=tuple(
                PingedFlow(
                    ends=ends,
                    since=0,
                    was_answered=True,
                    lost=lost if uplink in crossed(small, ends) else {},
                )
                for ends in flows
                if ends[0].node == node
            ),
        )
        for node in small.nodes
    }
    (found,) = judge_pings(small, own).suspicions
    assert uplink in found.verdict.parts


def test_losses_on_all_flows_single_out_no_part():
    bad = {ends: range(place % 5, WINDOWS, 10) for place, ends in enumerate(MESH.flows)}
    assert not judge_pings(TREE, reports(bad)).suspicions


@pytest.mark.parametrize(("every", "judgement"), [(1, U), (12, U), (15, H), (WINDOWS, H)])
def test_a_mesh_whose_usual_flows_lose_pings_is_unknown(every, judgement):
    """Each flow loses one of 30 pings in every so many windows; the six worst do not count."""
    lossy = dict.fromkeys(MESH.flows, range(0, WINDOWS, every))
    findings = judge_pings(TREE, reports(lossy, lost=1))
    judged = JudgedPings(agents=20, answers={}, silent={}, window_s=30.0, findings=findings)
    assert findings.suspicions == ()
    assert findings.usual_loss == pytest.approx(max(0, WINDOWS / every - 6) / WINDOWS / SENT)
    assert judged.judgement is judgement
    assert any("usual flow loses" in words for words in judged.sentences()) == (judgement is U)


def test_one_lost_ping_in_a_window_is_no_evidence():
    bad = through(NODE, range(WINDOWS))
    assert not judge_pings(TREE, reports(bad, lost=1)).suspicions


def test_losses_before_the_last_ended_suspicion_do_not_count_again():
    bad = through(NODE, (10, 50, 90))
    assert judge_pings(TREE, reports(bad), {NODE.name: 10}).suspicions
    assert not judge_pings(TREE, reports(bad), {NODE.name: 11}).suspicions


def test_answers_that_take_far_longer_than_others_as_far_apart_are_a_fault():
    late = through(NODE, ())
    slow = {
        node: replace(
            report,
            flows=tuple(replace(f, best_us=90.0 if f.ends in late else 20.0) for f in report.flows),
        )
        for node, report in reports({}).items()
    }
    (found,) = judge_pings(TREE, slow).suspicions
    assert found.is_late
    assert found.verdict.parts == (NODE,)


def test_a_flow_that_was_never_answered_is_unknown():
    mute = RailNic(NODE.name, TREE.rails[0])
    quiet = {
        node: replace(
            report,
            flows=tuple(replace(f, was_answered=mute not in f.ends) for f in report.flows),
        )
        for node, report in reports(through(NODE, range(WINDOWS)), lost=30).items()
    }
    findings = judge_pings(TREE, quiet)
    assert not findings.suspicions
    assert all(mute in ends for ends in findings.unknown)
    assert findings.unknown


@pytest.mark.parametrize("seed", range(3))
def test_independent_losses_suspect_nothing(seed):
    rng = np.random.default_rng(seed)
    bad = {ends: np.flatnonzero(rng.random(WINDOWS) < 0.01).tolist() for ends in MESH.flows}
    assert not judge_pings(TREE, reports(bad)).suspicions


@pytest.mark.parametrize("sick", TREE.nodes[::4])
def test_further_flows_settle_a_doubt_within_ten_windows_and_name_no_wrong_part(sick):
    """Each node is pinged by one other only, so neither of two ends is known to be at fault."""
    half = len(TREE.nodes) // 2
    ends = [
        rail_nics_on(a, b, TREE.rails[0])
        for a, b in zip(TREE.nodes[:half], TREE.nodes[half:], strict=True)
    ]
    part, begun = Part("node", sick), WINDOWS - 40

    def judged(since: dict, last: int):  # type: ignore[no-untyped-def,type-arg]
        own: dict[str, list[PingedFlow]] = {node: [] for node in TREE.nodes}
        for pair, first in since.items():
            is_bad = part in crossed(TREE, pair)
            lost = dict.fromkeys(range(max(first, begun), last + 1), PingCount(SENT, 20))
            flow = PingedFlow(
                ends=pair, since=first, was_answered=True, lost=lost if is_bad else {}
            )
            own[pair[0].node].append(flow)
        return judge_pings(
            TREE, {n: PingReport(first=0, last=last, flows=tuple(f)) for n, f in own.items()}
        )

    since = dict.fromkeys(ends, 0)
    first = judged(since, WINDOWS)
    assert not first.suspicions
    assert first.doubts
    more = add_flows(TREE, PingMesh(flows=tuple(ends), every_s=1.0, share=0.0), first.further_flows)
    assert set(more.flows) > set(ends)
    (found,) = judged(dict.fromkeys(more.flows, WINDOWS + 1) | since, WINDOWS + 10).suspicions
    assert found.verdict.parts == (part,)


def test_flows_that_would_slow_the_others_are_not_added():
    slow = FatTree(nodes=16, nodes_per_leaf=4, spines=2, gbit_s=0.01).fabric()
    mesh = ping_mesh(slow, slow.nodes)
    hub, *rest = slow.nodes
    more = [rail_nics_on(hub, node, slow.rails[0]) for node in rest]
    assert mesh.every_s > 1
    assert add_flows(slow, mesh, more) == mesh
