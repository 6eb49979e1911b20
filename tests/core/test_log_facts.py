"""From events of logs to facts, and to the ranks that the analyst then names."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anubis.core.diagnose import crash, log_facts, root_cause
from anubis.core.diagnose.analyst import analyse
from anubis.core.diagnose.evidence import Collector, Exit, Gravity, JobEvidence, LogEvent, RankMap
from anubis.core.diagnose.facts import FactKind, reason

RULES = (*crash.RULES, *log_facts.RULES, *root_cause.RULES)
NODES = [f"n{number}" for number in range(8)]
RANKS = RankMap(
    nodes=dict(enumerate(NODES)),
    addresses={**{node: node for node in NODES}, **{f"10.0.0.{i}": f"n{i}" for i in range(8)}},
)
CRASH = 100_000.0


def kernel(node, code, at=CRASH, gravity=Gravity.CRITICAL, device="0000:3b:00"):
    return LogEvent(
        collector=Collector.KERNEL_LOG,
        code=code,
        gravity=gravity,
        text=code,
        node=node,
        at=at,
        device=device,
    )


def said(rank, code, gravity, at=CRASH, **more):
    return LogEvent(
        collector=Collector.TRAINING_LOG,
        code=code,
        gravity=gravity,
        text=code,
        rank=rank,
        at=at,
        detail=code,
        **more,
    )


def closed(rank, peer, at=CRASH):
    return said(rank, "nccl-closed", Gravity.DISTRIBUTED, at, peer=f"10.0.0.{peer}")


def raised(rank, at=CRASH, code="python-error"):
    return said(rank, code, Gravity.APPLICATION, at)


def evidence_of(*log, exits=(), **more):
    return JobEvidence(
        job="17",
        at=CRASH,
        collectors=frozenset({Collector.KERNEL_LOG, Collector.TRAINING_LOG, Collector.EXITS}),
        ranks=RANKS,
        log=log,
        exits=exits,
        **more,
    )


def facts_of(evidence, *kinds):
    return [fact for fact in reason(evidence, RULES).facts if fact.kind in kinds]


def named(evidence):
    return set(analyse(reason(evidence, RULES), evidence).nodes)


def test_a_critical_error_is_named_although_all_others_report_their_peers():
    reports = [closed(rank, (rank + 1) % 8, CRASH + rank) for rank in range(8) if rank != 3]
    assert named(evidence_of(kernel("n3", "xid-79"), *reports)) == {"n3"}


@pytest.mark.parametrize(("before", "names"), [(200, {"n3"}), (400, set())])
def test_a_critical_error_counts_within_five_minutes_of_the_crash(before, names):
    evidence = evidence_of(
        kernel("n3", "xid-79", CRASH - before),
        said(0, "watchdog-timeout", Gravity.DISTRIBUTED),
    )
    assert named(evidence) == names


def test_a_time_out_reaches_back_to_when_it_began_to_wait():
    waited = replace(said(0, "watchdog-timeout", Gravity.DISTRIBUTED), lasted_s=600.0)
    assert named(evidence_of(kernel("n3", "xid-79", CRASH - 700), waited)) == {"n3"}


def test_a_critical_error_at_an_unknown_time_has_less_confidence():
    (fact,) = facts_of(evidence_of(kernel("n3", "xid-79", None)), FactKind.CRITICAL_ERROR)
    assert fact.confidence == 0.5


def test_notes_and_application_errors_are_no_critical_errors():
    evidence = evidence_of(
        kernel("n1", "xid-63", gravity=Gravity.NOTE),
        kernel("n2", "xid-94", gravity=Gravity.APPLICATION),
    )
    assert not facts_of(evidence, FactKind.CRITICAL_ERROR)
    (fact,) = facts_of(evidence, FactKind.APPLICATION_ERROR)
    assert (fact.whom.node, fact.code) == ("n2", "xid-94")


def test_the_first_error_of_a_rank_counts_and_later_ones_are_listed():
    evidence = evidence_of(closed(2, 5, CRASH), raised(2, CRASH + 1))
    assert not facts_of(evidence, FactKind.APPLICATION_ERROR)
    (fact,) = facts_of(
        evidence_of(raised(5, CRASH), closed(5, 2, CRASH + 1)), FactKind.APPLICATION_ERROR
    )
    assert fact.whom.rank == 5
    assert fact.evidence == "rank 5 on n5: python-error; then nccl-closed"


def test_the_rank_that_raised_first_is_named_and_not_those_that_lost_it():
    reports = [closed(rank, 5, CRASH + 2) for rank in (4, 6)]
    assert named(evidence_of(raised(5), *reports)) == {"n5"}


@pytest.mark.parametrize(("ranks", "is_shared"), [(7, True), (6, False)])
def test_an_error_of_all_ranks_but_one_of_eight_is_shared_and_names_none(ranks, is_shared):
    evidence = evidence_of(*[raised(rank) for rank in range(ranks)])
    assert bool(facts_of(evidence, FactKind.SAME_ERROR)) is is_shared
    assert not named(evidence)


def test_a_time_out_on_all_ranks_names_no_node():
    evidence = evidence_of(
        *[said(rank, "watchdog-timeout", Gravity.DISTRIBUTED) for rank in range(8)]
    )
    (fact,) = facts_of(evidence, FactKind.DISTRIBUTED_ERROR)
    assert not fact.whom.node
    assert not named(evidence)


def test_a_report_is_an_edge_from_node_to_node():
    (fact,) = facts_of(evidence_of(closed(2, 5)), FactKind.DISTRIBUTED_ERROR)
    assert (fact.whom.node, fact.peer.node) == ("n2", "n5")


@pytest.mark.parametrize("peer", ["10.0.0.2", "127.0.0.1", "10.9.9.9", "localhost", "rank 2"])
def test_an_error_about_a_peer_on_the_same_node_or_outside_the_job_names_no_node(peer):
    event = said(2, "gloo-closed", Gravity.DISTRIBUTED, peer=peer)
    (fact,) = facts_of(evidence_of(event), FactKind.DISTRIBUTED_ERROR)
    assert (fact.whom.node, fact.peer) == ("", None)
    assert not named(evidence_of(event))


def test_both_ends_of_one_pair_are_named_and_of_many_the_silent_one():
    assert named(evidence_of(closed(2, 5))) == {"n2", "n5"}
    many = [closed(rank, 5, CRASH + rank / 10) for rank in (0, 2, 4, 6)]
    assert named(evidence_of(*many)) == {"n5"}


@pytest.mark.parametrize(("signal", "dies"), [(9, True), (11, True), (15, False), (6, False)])
def test_a_process_that_a_launcher_ended_did_not_die_by_itself(signal, dies):
    evidence = evidence_of(exits=(Exit(rank=3, signal=signal, at=CRASH),))
    assert bool(facts_of(evidence, FactKind.DIED)) is dies


def test_a_loss_that_is_no_number_names_no_node():
    evidence = evidence_of(said(3, "loss-not-a-number", Gravity.LOSS))
    assert facts_of(evidence, FactKind.BAD_LOSS)
    assert not named(evidence)


def missed(rank, peer, at=CRASH):
    return said(rank, "jax-missing", Gravity.DISTRIBUTED, at, peer=f"rank {peer}")


def test_a_rank_that_others_waited_for_by_its_number_is_absent_and_they_are_not():
    evidence = evidence_of(missed(0, 5), missed(1, 5))
    (fact,) = facts_of(evidence, FactKind.ABSENT)
    assert fact.whom.rank == 5
    assert named(evidence) == {"n5"}


def test_half_of_the_ranks_are_not_absent_and_none_is_that_reports_another():
    assert not facts_of(evidence_of(*(missed(0, rank) for rank in (4, 5, 6, 7))), FactKind.ABSENT)
    assert not facts_of(evidence_of(missed(0, 5), missed(5, 0)), FactKind.ABSENT)


@pytest.mark.parametrize("ranks", [range(8), (1, 6)])
def test_storage_that_fails_on_several_nodes_is_the_fault_of_none_and_not_the_programs(ranks):
    evidence = evidence_of(*(raised(rank, code="storage-io") for rank in ranks))
    analysis = analyse(reason(evidence, RULES), evidence)
    assert (analysis.culprits, analysis.is_the_job_itself) == ((), False)
    assert named(evidence_of(raised(6, code="storage-io"))) == {"n6"}


@pytest.mark.parametrize("node", [3, 6])
def test_a_host_whose_nic_lost_its_link_is_named_by_nccl_alone(node):
    event = said(node, "nccl-ib-port", Gravity.DISTRIBUTED, device="mlx5_1")
    assert named(evidence_of(event)) == {f"n{node}"}
    flaps = [said(rank, "nccl-ib-port", Gravity.DISTRIBUTED) for rank in (1, 2, 3)]
    assert named(evidence_of(*flaps)) == set()  # a switch, as it may be
