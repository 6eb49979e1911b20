"""From facts to the culprit, the cause and the lightest cure: the decision tables of DLRover and
Aegis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from anubis.core.amounts import DAY_S
from anubis.core.diagnose.analyst import JobTrouble, analyse
from anubis.core.diagnose.cures import CureLevel, CurePolicy, PastDiagnosis
from anubis.core.diagnose.diagnostician import Diagnosis, diagnose
from anubis.core.diagnose.evidence import (
    Collector,
    Exit,
    JobEvidence,
    JobPace,
    RankMap,
    Rise,
    join_evidence,
)
from anubis.core.diagnose.facts import FAILED_FIRST, FactKind, InferenceRule, JobFact, Whom, reason
from anubis.core.diagnose.node_facts import RULES
from anubis.core.watch.findings import Deviation, Look, Sign, Suspicion
from anubis.core.watch.telemetry import Side

NOW = 1_000_000.0
RANKS = RankMap(nodes={rank: f"n{rank // 2}" for rank in range(8)})  # two ranks a node


def fact(kind: FactKind, rank: int | None = None, *, node: str = "", **more: object) -> JobFact:
    at = RANKS.node_of(rank) if rank is not None else node
    return JobFact(kind=kind, whom=Whom(node=at, rank=rank), evidence=kind, **more)  # type: ignore[arg-type]


def report(reporter: str, peer: str) -> JobFact:
    return JobFact(
        kind=FactKind.DISTRIBUTED_ERROR,
        whom=Whom(node=reporter),
        peer=Whom(node=peer),
        evidence=f"{reporter} lost {peer}",
    )


def told_facts(*facts: JobFact, **more: object) -> tuple[JobEvidence, list[InferenceRule]]:
    """A job, and a rule that says all of them."""
    evidence = JobEvidence(
        job="llama",
        at=NOW,
        collectors=frozenset({Collector.EXITS}),
        ranks=RANKS,
        **more,  # type: ignore[arg-type]
    )
    rule = InferenceRule(
        name="told",
        needs=frozenset({Collector.EXITS}),
        gives=frozenset(FactKind),
        infer=lambda hearing: facts,
    )
    return evidence, [rule]


def diagnosed(*facts: JobFact, past: tuple[PastDiagnosis, ...] = (), **more: object) -> Diagnosis:
    evidence, rules = told_facts(*facts, **more)
    return diagnose(evidence, rules, CurePolicy(), past=past)


def ranks_of(diagnosis: Diagnosis) -> list[int | None]:
    return [whom.rank for whom in diagnosis.culprits]


# --- the analyst -----------------------------------------------------------------------------


def test_a_broken_gpu_goes_before_the_rank_that_is_waited_for():
    """Aegis' training job: look at the hosts first."""
    diagnosis = diagnosed(
        fact(FactKind.ABSENT, 3), fact(FactKind.CRITICAL_ERROR, node="n2", code="xid-79")
    )
    assert diagnosis.nodes == ("n2",)
    assert diagnosis.cause is not None
    assert diagnosis.cause.code == "xid-79"


def test_reports_of_one_pair_name_both_its_ends():
    assert set(diagnosed(report("n0", "n2"), report("n2", "n0")).nodes) == {"n0", "n2"}


def test_reports_by_many_pairs_name_no_node():
    diagnosis = diagnosed(report("n0", "n1"), report("n1", "n2"), report("n2", "n3"), alive=False)
    assert diagnosis.nodes == ()
    assert diagnosis.trouble is JobTrouble.FAILED


def test_the_first_of_several_errors_of_ranks_counts():
    later = fact(FactKind.APPLICATION_ERROR, 1, at=20.0, code="traceback")
    first = fact(FactKind.APPLICATION_ERROR, 6, at=10.0, code="traceback")
    assert ranks_of(diagnosed(later, first)) == [6]


def test_a_rank_is_named_once_though_sources_name_its_node_differently():
    """It counted twice, and two of the four ranks were too many to be at fault."""
    raised = fact(FactKind.APPLICATION_ERROR, 1)
    elsewhere = replace(raised, whom=replace(raised.whom, node="localhost"), code=FAILED_FIRST)
    assert ranks_of(diagnosed(raised, elsewhere)) == [1]


def test_an_error_on_half_of_the_ranks_at_once_names_no_rank():
    facts = [fact(FactKind.APPLICATION_ERROR, rank, at=5.0) for rank in range(4)]
    assert diagnosed(*facts).culprits == ()


@pytest.mark.parametrize("kind", [FactKind.MISMATCH, FactKind.SAME_ERROR])
def test_an_error_of_the_program_blames_no_node_and_fails_the_job(kind: FactKind):
    diagnosis = diagnosed(JobFact(kind=kind, whom=Whom(), evidence=""), fact(FactKind.ABSENT, 3))
    assert (diagnosis.nodes, diagnosis.is_the_job_itself) == ((), True)
    assert diagnosis.cure.level is CureLevel.FAIL


def test_a_loss_that_is_no_number_fails_the_job_and_clears_no_node():
    """A GPU that computes wrong numbers does that too."""
    diagnosis = diagnosed(JobFact(kind=FactKind.BAD_LOSS, whom=Whom(), evidence=""))
    assert (diagnosis.nodes, diagnosis.is_the_job_itself) == ((), False)
    assert (diagnosis.trouble, diagnosis.answer) == ("failed", "unknown")
    assert diagnosis.cure.level is CureLevel.FAIL


def test_a_job_whose_processes_ended_failed_and_a_job_that_waits_hangs():
    waiting = fact(FactKind.ABSENT, 3)
    assert diagnosed(waiting).trouble is JobTrouble.HUNG
    assert diagnosed(waiting, exits=(Exit(rank=3, signal=9),)).trouble is JobTrouble.FAILED


def test_a_diagnosis_without_facts_names_no_culprit():
    diagnosis = diagnosed()
    assert (diagnosis.trouble, diagnosis.answer) == ("unknown", "unknown")
    assert diagnosis.cure.level is CureLevel.NONE
    assert (diagnosis.culprits, diagnosis.cause, diagnosis.confidence) == ((), None, 0.0)


# --- why, and how sure -------------------------------------------------------------------------


def test_an_error_logged_by_an_absent_rank_is_the_cause_of_its_absence():
    diagnosis = diagnosed(
        fact(FactKind.ABSENT, 3, confidence=0.9),
        fact(FactKind.OUT_OF_MEMORY, 3, confidence=0.8),
        fact(FactKind.APPLICATION_ERROR, 5, at=1.0),
    )
    assert ranks_of(diagnosis) == [3]
    assert diagnosis.cause is not None
    assert diagnosis.cause.kind is FactKind.OUT_OF_MEMORY
    assert diagnosis.confidence == pytest.approx(1 - 0.1 * 0.2)


def test_a_fact_about_a_node_applies_to_each_of_its_ranks():
    diagnosis = diagnosed(
        fact(FactKind.ABSENT, 3), fact(FactKind.SLOW_COMPUTE, node="n1"), fact(FactKind.DIED, 2)
    )
    assert diagnosis.cause is not None
    assert diagnosis.cause.kind is FactKind.SLOW_COMPUTE


# --- the lightest cure -------------------------------------------------------------------------

LIGHTEST: Mapping[FactKind, CureLevel] = {
    FactKind.CRITICAL_ERROR: CureLevel.REPLACE,
    FactKind.UNREACHABLE: CureLevel.REPLACE,
    FactKind.APPLICATION_ERROR: CureLevel.RESTART,
    FactKind.OUT_OF_MEMORY: CureLevel.RESTART,
    FactKind.DIED: CureLevel.RESTART,
    FactKind.STOPPED: CureLevel.RESTART,
    FactKind.ABSENT: CureLevel.RESTART,
    FactKind.SLOW_COMPUTE: CureLevel.LEAVE,
    FactKind.UNLIKE_PEERS: CureLevel.LEAVE,
}


@pytest.mark.parametrize("kind", LIGHTEST)
def test_the_first_time_the_lightest_cure_is_advised(kind: FactKind):
    assert diagnosed(fact(kind, 3)).cure.level is LIGHTEST[kind]


def tried(
    level: CureLevel, *, node: str = "n1", code: str = "absent", ago: float = 60.0
) -> PastDiagnosis:
    return PastDiagnosis(
        job="llama", nodes=(node,) if node else (), code=code, level=level, at=NOW - ago
    )


def test_a_cure_that_did_not_help_is_not_tried_again_within_a_day():
    absent = fact(FactKind.ABSENT, 3, code="absent")
    restarted = tried(CureLevel.RESTART)
    cure = diagnosed(absent, past=(restarted,)).cure
    assert (cure.level, cure.replaced) == (CureLevel.REPLACE, ("n1",))
    assert cure.why == "the same happened on it within a day"


def test_cures_of_another_node_or_code_or_of_long_ago_do_not_count():
    absent = fact(FactKind.ABSENT, 3, code="absent")
    other_node = tried(CureLevel.RESTART, node="n2")
    long_ago = tried(CureLevel.RESTART, ago=DAY_S + 1)
    other_code = tried(CureLevel.RESTART, code="xid-13")
    cure = diagnosed(absent, past=(other_node, long_ago, other_code)).cure
    assert cure.level is CureLevel.RESTART


def test_a_node_that_is_slow_a_second_time_is_replaced():
    slow = fact(FactKind.SLOW_COMPUTE, 3, code="alpha")
    assert diagnosed(slow, past=(tried(CureLevel.LEAVE, code="alpha"),)).cure.replaced == ("n1",)


def test_a_job_is_tried_again_twice_then_restarted():
    nobody = [tried(CureLevel.RETRY, node="", code="x") for _ in range(2)]
    policy = CurePolicy(levels={FactKind.DIED: 1})
    evidence, rules = told_facts(fact(FactKind.DIED, 3, code="died"))
    levels = [
        diagnose(evidence, rules, policy, past=nobody[:times]).cure.level for times in range(3)
    ]
    assert levels == [CureLevel.RETRY, CureLevel.RETRY, CureLevel.RESTART]


def test_when_restarts_are_spent_the_node_is_replaced():
    past = tuple(tried(CureLevel.RESTART, node=f"n{i}", code="died") for i in (0, 2, 3))
    cure = diagnosed(fact(FactKind.DIED, 3, code="died"), past=past).cure
    assert cure.replaced == ("n1",)


def test_more_suspects_than_may_be_replaced_are_tested_first():
    cure = diagnosed(report("n0", "n2")).cure
    assert (cure.replaced, cure.tested) == ((), ("n0", "n2"))
    assert "1 may be replaced" in cure.why


def test_a_large_job_may_lose_five_of_a_hundred_nodes_and_a_small_one_two():
    policy = CurePolicy()
    assert [policy.replaced_at_once(nodes) for nodes in (1, 8, 39, 40, 100)] == [2, 2, 2, 2, 5]
    assert policy.replaced_at_once(8, is_either=True) == 1


def test_two_broken_hosts_are_both_replaced_and_on_a_third_nothing_is_restarted():
    broken = [fact(FactKind.CRITICAL_ERROR, node=f"n{i}", code="xid-79") for i in range(3)]
    cure = diagnosed(*broken[:2]).cure
    assert (cure.level, cure.replaced) == (CureLevel.REPLACE, ("n0", "n1"))
    cure = diagnosed(*broken).cure
    assert (cure.level, cure.replaced, cure.tested) == (CureLevel.FAIL, (), ("n0", "n1", "n2"))
    assert cure.why == "3 nodes are broken and 2 may be replaced: test them first"


def test_among_ended_processes_only_a_rank_with_a_failed_exit_is_named():
    gone = [fact(FactKind.GONE, rank, at=10.0 + rank) for rank in range(4)]
    ended = diagnosed(*gone, alive=False)
    assert (ended.culprits, ended.trouble) == ((), JobTrouble.UNKNOWN)
    assert ranks_of(diagnosed(*gone, alive=False, exits=(Exit(rank=2, code=1),))) == [0]
    assert ranks_of(diagnosed(gone[2], alive=True)) == [2]


MOVES = Rise(what="steps", before=3, after=9, since=NOW - 30.0, until=NOW - 1.0, vouches_s=10.0)


@pytest.mark.parametrize("kind", [FactKind.APPLICATION_ERROR, FactKind.ABSENT, FactKind.DIED])
def test_a_fact_older_than_the_progress_of_the_job_names_no_rank(kind: FactKind):
    before = diagnosed(fact(kind, 3, at=NOW - 60.0), progress=(MOVES,))
    assert (before.culprits, before.trouble) == ((), JobTrouble.UNKNOWN)
    assert ranks_of(diagnosed(fact(kind, 3, at=NOW - 2.0), progress=(MOVES,))) == [3]
    assert ranks_of(diagnosed(fact(kind, 3), progress=(MOVES,))) == [3]


def test_a_job_that_moves_with_a_broken_gpu_has_not_failed_and_the_node_is_replaced():
    broken = fact(FactKind.CRITICAL_ERROR, node="n2", code="xid-79", at=NOW - 60.0)
    diagnosis = diagnosed(broken, progress=(MOVES,))
    assert (diagnosis.nodes, diagnosis.trouble) == (("n2",), JobTrouble.UNEVEN)
    assert diagnosis.cure.replaced == ("n2",)


def test_ranks_that_the_launcher_ended_are_no_cause_beside_a_rank_that_raised():
    """As seen of four ranks under one torchrun, asked while it ended."""
    raised = fact(FactKind.APPLICATION_ERROR, 1, at=10.0, code="python-error")
    gone = [fact(FactKind.GONE, rank) for rank in range(4)]
    assert ranks_of(diagnosed(raised, *gone, alive=False)) == [1]


def test_a_site_s_level_for_a_code_goes_before_that_of_its_kind():
    evidence, rules = told_facts(fact(FactKind.CRITICAL_ERROR, 3, code="xid-94"))
    assert diagnose(evidence, rules, CurePolicy(codes={"xid-94": 2})).cure.level == 2


# --- what bystanders say ------------------------------------------------------------------------


def test_an_unreachable_node_is_reported_with_the_time_since_it_last_answered():
    evidence = JobEvidence(
        job="llama",
        at=NOW,
        collectors=frozenset({Collector.REACH}),
        unreachable={"n1": NOW - 61.0, "n2": NOW + 30.0},
    )
    facts = reason(evidence, RULES).facts
    assert [(fact.kind, fact.whom.node, fact.at, fact.evidence) for fact in facts] == [
        (
            FactKind.UNREACHABLE,
            "n1",
            NOW - 61,
            "n1 answers no other node, since 61 s before the job was in trouble",
        ),
        (
            FactKind.UNREACHABLE,
            "n2",
            NOW + 30,
            "n2 answers no other node, since 30 s after the job was in trouble",
        ),
    ]


def test_a_suspicion_of_telemetry_is_as_sure_as_its_source_was_right_here():
    deviation = Deviation(
        sign=Sign.UNLIKE_PEERS,
        metric="gpu_duty_share",
        family="gpu",
        since=NOW - 300,
        until=NOW,
        side=Side.LOW,
        value=0.1,
        peers=0.95,
        effect=0.85,
    )
    suspicion = Suspicion(node="n3", since=NOW - 300, deviations=(deviation,), confidence=0.6)
    look = Look(job="llama", nodes=("n3",), start=0.0, end=NOW, suspicions=(suspicion,))
    evidence = JobEvidence(
        job="llama", at=NOW, collectors=frozenset({Collector.TELEMETRY}), look=look, ranks=RANKS
    )
    analysis = analyse(reason(evidence, RULES), evidence)
    assert (analysis.trouble, analysis.nodes) == (JobTrouble.UNEVEN, ("n3",))
    assert analysis.decisive[0].evidence == "n3's gpu_duty_share is 0.1, that of its peers 0.95"
    assert analysis.decisive[0].confidence == 0.6


# --- evidence, piece by piece -------------------------------------------------------------------


def test_pieces_of_evidence_are_one_and_a_gap_that_was_filled_is_none():
    job = JobEvidence(job="llama", at=NOW, collectors=frozenset(), ranks=RankMap(nodes={0: "n0"}))
    exits = JobEvidence(
        job="",
        at=0.0,
        collectors=frozenset({Collector.EXITS}),
        exits=(Exit(rank=1, code=1),),
        ranks=RankMap(nodes={0: "elsewhere", 1: "n1"}),
        gaps={
            Collector.KERNEL_LOG: "not readable",
            Collector.CALLS: "no dumps",
            Collector.EXITS: "that of rank 3 is cut",
        },
    )
    kernel = JobEvidence(job="", at=0.0, collectors=frozenset({Collector.KERNEL_LOG}), alive=False)
    evidence = join_evidence(job, [exits, kernel, exits])
    assert (evidence.job, evidence.at, evidence.alive) == ("llama", NOW, False)
    assert evidence.collectors == {Collector.EXITS, Collector.KERNEL_LOG}
    assert len(evidence.exits) == 2
    assert evidence.ranks.nodes == {0: "n0", 1: "n1"}  # what was said of the job goes first
    assert evidence.gaps == {
        Collector.CALLS: "no dumps",
        Collector.EXITS: "that of rank 3 is cut",
    }


def test_the_slower_of_two_paces_of_a_job_counts():
    """As of its live collectives and of the steps in its logs, whichever was read first."""
    steady = JobEvidence(collectors=frozenset(), pace=JobPace(earlier_s=1, lately_s=1, since=0))
    slower = JobEvidence(collectors=frozenset(), pace=JobPace(earlier_s=1, lately_s=3, since=0))
    for pieces in ([steady, slower], [slower, steady]):
        assert join_evidence(JobEvidence(collectors=frozenset()), pieces).pace == slower.pace
