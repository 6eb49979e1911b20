"""Among hosts that report each other, the cause is named, and its victims are not."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anubis.core.diagnose.analyst import analyse
from anubis.core.diagnose.crash import CrashScene, Report
from anubis.core.diagnose.crash_likelihood import rank_parts
from anubis.core.diagnose.cures import CurePolicy
from anubis.core.diagnose.diagnostician import diagnose
from anubis.core.diagnose.evidence import (
    Collector,
    Gravity,
    JobEvidence,
    LogEvent,
    RankMap,
    Transfer,
    WorkingPair,
)
from anubis.core.diagnose.facts import FactKind, JobFact, Reasoning, Whom, reason
from anubis.core.diagnose.root_cause import FIRST, RULES, SURE, root_causes
from anubis.core.fabric import Part
from tests.core.made_fabrics import FatTree

FABRIC = FatTree(nodes=16, nodes_per_leaf=4, spines=2).fabric()
HOSTS = FABRIC.nodes
LEAF_OF = {node: FABRIC.nic(node, "0").switch for node in HOSTS}  # type: ignore[union-attr]


def scene(*reports: Report, with_fabric: bool = True, **more: object) -> CrashScene:
    fabric = FABRIC if with_fabric else None
    return CrashScene(hosts=HOSTS, reports=reports, fabric=fabric, **more)  # type: ignore[arg-type]


def says(reporter: int, peer: int, at: float | None = 0.0) -> Report:
    return Report(reporter=HOSTS[reporter], peer=HOSTS[peer], at=at)


def told(at: CrashScene) -> list[tuple[Part, ...]]:
    return [cause.parts for cause in root_causes(at) if cause.is_sure]


def test_two_hosts_that_report_each_other_are_both_suspected_without_a_cause():
    assert root_causes(scene(says(1, 2), says(2, 1))) == ()
    facts = [
        JobFact(
            kind=FactKind.DISTRIBUTED_ERROR,
            whom=Whom(node=HOSTS[1]),
            peer=Whom(node=HOSTS[2]),
            evidence="",
        )
    ]
    evidence = JobEvidence(job="llama", at=0.0, collectors=frozenset())
    analysis = analyse(Reasoning(facts=tuple(facts), unmet={}), evidence)
    assert analysis.nodes == (HOSTS[1], HOSTS[2])


def test_a_silent_host_that_others_report_is_named_before_noisier_victims():
    cascade = [says(victim, 1, at=9.0) for victim in range(8, 16)]
    reports = [says(1, 0), says(2, 0), *cascade]
    for with_fabric in (True, False):
        assert told(scene(*reports, with_fabric=with_fabric)) == [(Part("node", HOSTS[0]),)]


def test_a_host_without_a_log_is_not_called_silent():
    reports = [says(1, 0), says(2, 0), *(says(victim, 1, at=9.0) for victim in range(8, 16))]
    unread = frozenset({HOSTS[0]})
    assert not any(cause.code == "silent" for cause in root_causes(scene(*reports, unread=unread)))


def test_reports_on_both_sides_of_a_dead_leaf_name_the_leaf_and_no_host():
    below = [place for place, node in enumerate(HOSTS) if LEAF_OF[node] == LEAF_OF[HOSTS[0]]]
    above = [place for place in range(len(HOSTS)) if place not in below]
    reports = [says(*ends) for a, b in product(below, above[:6]) for ends in ((a, b), (b, a))]
    reports += [says(*ends) for a, b in product(below, below) if a < b for ends in ((a, b), (b, a))]
    (cause,) = root_causes(scene(*reports))
    assert cause.parts[0] == Part("switch", LEAF_OF[HOSTS[0]])
    assert not any(whom.node for whom in cause.whom)


def chance(at: CrashScene, host: int) -> float:
    return sum(one.chance for one in rank_parts(at) if one.part == Part("node", HOSTS[host]))


def test_small_messages_clear_a_dead_host_and_other_parts_less_than_large_ones_do():
    """A host that answers is not dead; but its NIC or a switch may drop what is larger."""
    reports = [says(*ends) for b in range(4, 9) for ends in ((0, b), (b, 0))]
    small = [WorkingPair(a=HOSTS[0], b=HOSTS[b], size_bytes=64) for b in range(9, 16)]
    large = [WorkingPair(a=HOSTS[0], b=HOSTS[b], size_bytes=8 << 20) for b in range(9, 16)]
    unclear = chance(scene(*reports), 0)
    assert unclear > 0.5
    assert 0.2 < chance(scene(*reports, working=tuple(small)), 0) < unclear
    assert chance(scene(*reports, working=tuple(large)), 0) < 0.01
    silence = [says(b, 0) for b in range(4, 9)]
    assert chance(scene(*silence), 0) > 0.8
    assert chance(scene(*silence, working=tuple(small)), 0) < 0.1


def test_a_host_whose_reported_pairs_work_again_is_less_likely_than_another_one():
    reports = [says(*ends) for a in (0, 1) for b in range(4, 9) for ends in ((a, b), (b, a))]
    again = [WorkingPair(a=HOSTS[1], b=HOSTS[b], size_bytes=8 << 20) for b in range(4, 9)]
    assert chance(scene(*reports), 0) == pytest.approx(chance(scene(*reports), 1))
    at = scene(*reports, working=tuple(again))
    assert chance(at, 0) > 1.5 * chance(at, 1)


def test_hosts_that_wait_for_minutes_are_told_from_victims_that_waited_for_them():
    """All ends of what broke report within a minute, and later victims name each of them."""
    first = [
        says(*ends, at=600 + 7.0 * place)
        for place, b in enumerate(range(4, 9))
        for ends in ((0, b), (b, 0))
    ]
    later = [
        says(v, b, at=1210 + 9.0 * v) for v in range(9, 16) for b in range(4, 9) if (v + b) % 2
    ]
    likeliest = root_causes(scene(*first, *later))[0]
    assert likeliest.parts == (Part("node", HOSTS[0]),)
    assert likeliest.confidence > 0.7


def test_a_part_that_a_scan_called_defective_is_likelier():
    reports = [says(*ends) for b in range(4, 9) for ends in ((0, b), (b, 0))]
    uplinks = Part("uplinks", LEAF_OF[HOSTS[0]])
    plain, hinted = (
        {one.part: one.chance for one in rank_parts(scene(*reports, hints=hints))}
        for hints in ({}, {uplinks: 20.0})
    )
    odds = [chances[uplinks] / chances[Part("node", HOSTS[0])] for chances in (plain, hinted)]
    assert odds[1] > 5 * odds[0]


def test_pairs_that_were_slow_before_a_crash_raise_the_odds_of_a_part_that_they_share():
    """Host 0 fails alone, or its leaf does: its neighbours were slow across the same leaf."""
    reports = [says(*ends) for b in range(4, 9) for ends in ((0, b), (b, 0))]
    leaf, host = Part("switch", LEAF_OF[HOSTS[0]]), Part("node", HOSTS[0])
    beside = [frozenset((HOSTS[a], HOSTS[b])) for a in range(1, 4) for b in range(4, 9)]
    usual, plain, slow = (
        {one.part: one.chance for one in rank_parts(scene(*reports, paces=paces))}
        for paces in (dict.fromkeys(beside, 1.1), {}, dict.fromkeys(beside, 3.0))
    )
    odds = [chances[leaf] / chances[host] for chances in (usual, plain, slow)]
    assert odds[0] < odds[1] < odds[2] / 3


def test_slow_pairs_of_the_job_are_part_of_the_scene():
    """Two hosts report a third, and both pairs took three times as long before."""
    errors = [
        JobFact(kind=FactKind.DISTRIBUTED_ERROR, whom=Whom(rank=a), peer=Whom(rank=0), evidence="")
        for a in (4, 5)
    ]
    given_first = type(RULES[0])(
        name="errors",
        needs=frozenset(),
        gives=frozenset({FactKind.DISTRIBUTED_ERROR}),
        infer=lambda hearing: errors,
    )

    def chance_of_leaf(took_s: float) -> float:
        moved = [
            Transfer(ranks=frozenset(pair), what="message", took_s=seconds, at=float(at))
            for pairs, seconds in (
                ([(1, 8), (2, 9), (3, 12)], took_s),
                ([(4, 8), (5, 9), (6, 13), (7, 12)], 0.1),
            )
            for pair in pairs
            for at in range(5)
        ]
        evidence = JobEvidence(
            collectors=frozenset(Collector),
            ranks=RankMap(nodes=dict(enumerate(HOSTS))),
            fabric=FABRIC,
            transfers=tuple(moved),
        )
        facts = reason(evidence, [given_first, RULES[0]]).facts
        return sum(fact.confidence for fact in facts if LEAF_OF[HOSTS[0]] in fact.whom.part)

    assert chance_of_leaf(0.3) > 2 * chance_of_leaf(0.1)


def test_parts_that_fit_best_are_tested_first_also_if_the_reports_fit_none_well():
    fabric = FatTree(nodes=16, nodes_per_leaf=4, spines=4).fabric()
    pairs = [(a, b) for a in range(16) for b in range(a // 4 * 4) if (7 * a + b) % 5 == 0]
    reports = tuple(says(*ends) for a, b in pairs for ends in ((a, b), (b, a)))
    causes = root_causes(CrashScene(hosts=HOSTS, reports=reports, fabric=fabric))
    assert len(causes) == FIRST
    assert not any(cause.is_sure for cause in causes)
    assert "chance below 0.5%; 50% if one part or two explain the errors" in causes[0].sentence


def test_a_report_without_a_device_may_be_about_any_rail():
    """A pair uses all of its rails, so one leaf of one rail is enough to break all pairs of it."""
    fabric = FatTree(nodes=16, nodes_per_leaf=4, spines=2, rails=4).fabric()
    pairs = [(a, b) for a in range(4) for b in range(16) if a < b]
    reports = tuple(says(*ends, at=None) for a, b in pairs for ends in ((a, b), (b, a)))
    (cause, *_) = root_causes(CrashScene(hosts=fabric.nodes, reports=reports, fabric=fabric))
    leaves = {Part("switch", fabric.nic(fabric.nodes[0], rail).switch) for rail in fabric.rails}
    assert set(cause.parts) == leaves
    assert cause.confidence > 0.9


def test_victims_that_report_ended_peers_do_not_hide_the_host_that_they_waited_for():
    """Hosts 4 to 7 wait for host 0. Their neighbours learn at once that they have ended."""
    waited = [says(place, 0, at=20.0 + 0.3 * place) for place in range(4, 8)]
    heard = [says(place + 4, place, at=22.5 + 0.3 * place) for place in range(4, 8)]
    heard += [says(place + 8, place, at=22.7 + 0.3 * place) for place in range(4, 8)]
    at = scene(*waited, *heard, unread=frozenset({HOSTS[0]}))
    assert rank_parts(at)[0].part == Part("node", HOSTS[0])


def test_if_no_part_is_sure_the_first_three_are_to_be_tested_and_none_is_blamed():
    reports = [says(*ends) for b in range(4, 7) for ends in ((0, b), (b, 0))]
    ranks = RankMap(nodes=dict(enumerate(HOSTS)))
    numbers = {host: rank for rank, host in ranks.nodes.items()}
    errors = [
        JobFact(
            kind=FactKind.DISTRIBUTED_ERROR,
            whom=Whom(rank=numbers[report.reporter]),
            peer=Whom(rank=numbers[report.peer]),
            evidence="",
            at=report.at,
        )
        for report in reports
    ]
    given_first = type(RULES[0])(
        name="errors",
        needs=frozenset(),
        gives=frozenset({FactKind.DISTRIBUTED_ERROR}),
        infer=lambda hearing: errors,
    )
    evidence = JobEvidence(
        job="llama", at=0.0, collectors=frozenset(Collector), ranks=ranks, fabric=FABRIC
    )
    answer = diagnose(evidence, [given_first, RULES[0]], CurePolicy())
    assert answer.culprits == ()
    chances = [fact.confidence for fact in answer.likeliest]
    assert 1 <= len({fact.evidence for fact in answer.likeliest}) <= FIRST
    assert 0.3 < chances[0] < SURE
    assert HOSTS[0] in answer.cure.tested


def test_if_all_hosts_report_each_other_none_is_named():
    reports = [says(a, b) for a in range(16) for b in range(16) if a != b]
    assert root_causes(scene(*reports, with_fabric=False)) == ()
    assert not any(whom.node for cause in root_causes(scene(*reports)) for whom in cause.whom)


def test_without_a_fabric_the_group_that_all_pairs_touch_is_named():
    reports = [
        says(*ends) for a, b in zip(range(4), range(4, 8), strict=True) for ends in ((a, b), (b, a))
    ]
    groups = {
        "leaf": {
            node: LEAF_OF[node] if place < 4 else f"other-{place}"
            for place, node in enumerate(HOSTS)
        }
    }
    (cause,) = root_causes(scene(*reports, with_fabric=False, groups=groups))
    assert cause.whom == (Whom(part=f"leaf {LEAF_OF[HOSTS[0]]}"),)


@settings(max_examples=12)
@given(
    st.lists(
        st.tuples(st.integers(0, 15), st.integers(0, 15), st.none() | st.floats(0, 30)), max_size=25
    ),
    st.randoms(use_true_random=False),
    st.booleans(),
)
def test_only_hosts_that_reports_name_are_named_and_their_order_does_not_matter(
    edges, random, with_fabric
):
    reports = [says(a, b, at) for a, b, at in edges if a != b]
    causes = root_causes(scene(*reports, with_fabric=with_fabric))
    ends = {end for report in reports for end in (report.reporter, report.peer)}
    assert {whom.node for cause in causes for whom in cause.whom} <= ends | {""}
    random.shuffle(reports)
    assert root_causes(scene(*reports, with_fabric=with_fabric)) == causes


def test_the_rule_maps_ranks_to_nodes_and_a_node_with_any_log_line_is_not_silent():
    ranks = RankMap(nodes={rank: HOSTS[rank // 2] for rank in range(32)})

    def report(rank: int, peer: int) -> JobFact:
        kind, whom = FactKind.DISTRIBUTED_ERROR, Whom(rank=rank)
        return JobFact(kind=kind, whom=whom, evidence="", peer=Whom(rank=peer), at=0.0)

    errors = [report(2, 0), report(4, 1), report(6, 0)]
    rule = RULES[0]

    def facts(*log: LogEvent) -> list[JobFact]:
        evidence = JobEvidence(
            job="llama",
            at=0.0,
            collectors=frozenset(Collector),
            ranks=ranks,
            log=log,
            fabric=FABRIC,
        )
        given_first = type(rule)(
            name="errors",
            needs=frozenset(),
            gives=frozenset({FactKind.DISTRIBUTED_ERROR}),
            infer=lambda hearing: errors,
        )
        return [fact for fact in reason(evidence, [given_first, rule]).facts if fact not in errors]

    assert [(fact.kind, fact.whom.node) for fact in facts()] == [(FactKind.SILENT, HOSTS[0])]
    spoke = LogEvent(
        collector=Collector.TRAINING_LOG, code="nccl", gravity=Gravity.DISTRIBUTED, text="", rank=1
    )
    assert not any(fact.kind is FactKind.SILENT for fact in facts(spoke))


@pytest.mark.parametrize(("dead", "off_s"), [(0, -100.0), (10, -100.0), (5, 100.0)])
def test_the_clock_of_a_single_host_never_makes_a_victim_the_cause(dead, off_s):
    """A ring with a partner half way round: the peers of a dead host report it after 10 s, theirs
    report them after 20 s, and so on. Then one host's clock is wrong."""
    beside = {host: {(host + step) % 16 for step in (1, -1, 8)} for host in range(16)}
    rounds, gone = [], {dead}
    while new := {host for end in gone for host in beside[end]} - gone:
        rounds.append([(host, end) for host in sorted(new) for end in sorted(beside[host] & gone)])
        gone |= new
    for wrong in range((dead + 1) % 3, 16, 3):
        reports = [
            says(host, end, at=10.0 * number + 0.1 * host + off_s * (host == wrong))
            for number, pairs in enumerate(rounds, start=1)
            for host, end in pairs
        ]
        unread = frozenset({HOSTS[dead]})
        for parts in told(scene(*reports, unread=unread)):
            assert Part("node", HOSTS[dead]) in parts
