"""The keeper of a fleet: its invariants, under any events in any order."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest

from anubis.core.amounts import DAY_S
from anubis.core.history.events import (
    Debt,
    EventRecord,
    FleetUpgraded,
    IncidentReported,
    JobAllocated,
    JobEnded,
    JobUnexplained,
    NodeAdded,
    NodeRemoved,
    OperatorSaid,
    Order,
    RepairBegun,
    RepairDone,
    SuspicionRaised,
)
from anubis.core.history.maintenance import Window
from anubis.core.keep.breaker import Breaker, ScopeCount, scopes
from anubis.core.keep.commands import (
    CloseTicket,
    Cordon,
    Docket,
    EndSuspicion,
    LifeAction,
    Mode,
    Notify,
    OpenTicket,
    Outcome,
    Prove,
    Release,
    Requeue,
    Stage,
    Swap,
    TryRepair,
    has_shown,
    is_moot,
)
from anubis.core.keep.keeper import Keeper
from anubis.core.keep.keeper_events import (
    Concluded,
    FleetSeen,
    RepairRan,
    SeenNode,
    TestRefused,
    VerdictReached,
    Waited,
)
from anubis.core.keep.keeping_policy import KeepingPolicy, LocatePolicy
from anubis.core.keep.life import Life, OpenIncident, Proof, State
from anubis.core.keep.lives import next_in_line, reserve_of
from anubis.core.keep.reasons import is_ours, reason
from anubis.core.records import Judgement, Remedy
from tests.core.saboteurs import (
    ACTING,
    CHECKED,
    DEFECTIVE,
    HEALTHY,
    IN_PART,
    UNPROVEN,
    blaming,
    live_by,
)

UNKNOWN = Concluded(judgement=Judgement.UNKNOWN, reason="no partner", owes=True)
LIVES = 120
ORDERING = replace(ACTING, repair=None, locate=None)
CYCLE = Remedy(
    codes=("xid-79",), action="", commands=(("reset", "{node}"), ("cycle", "--node={node}"))
)
SWAPPED = Remedy(codes=("GEMM.*",), action="", commands=(("replace", "{node}"),))


def noticed(at, event):
    return EventRecord(id="", at=at, event=event)


def suspected(at, id, node):
    raised = SuspicionRaised(nodes=(node,), category="gpu", source="watch")
    return EventRecord(id=id, at=at, event=raised)


class Cluster:
    """An orchestrator that obeys, unless a saboteur has its way; and a keeper beside it."""

    def __init__(self, nodes=8, policy=ORDERING):
        names = [f"n{i}" for i in range(nodes)]
        self.shown = {node: SeenNode(sku="h100") for node in names}
        lives = [Life(node=node, sku="h100") for node in names]
        self.keeper = Keeper(policy, lives, remedy_of={"xid-79": CYCLE, "GEMM.TFLOPS": SWAPPED}.get)
        self.now = 0.0
        self.commands = []
        self.obeys = True
        self.taken_cordons = set()  # nodes whose owner carried a cordon of ours out
        self.held = frozenset()

    def hear(self, event):
        commands = self.keeper.handle(event)
        self.commands += commands
        for command in commands:
            if self.obeys and getattr(command, "mode", None) is Mode.ACT:
                self._obey(command)
        return commands

    def _obey(self, command):
        if not isinstance(command, Cordon | Release):
            return
        seen = self.shown.get(command.node)
        if seen is None or (seen.cordon and not seen.is_cordoned_by_anubis):
            return
        is_cordon = isinstance(command, Cordon)
        shown = reason(command.code, command.reason) if is_cordon else ""
        self.shown[command.node] = replace(seen, cordon=shown)
        if is_cordon:
            self.taken_cordons.add(command.node)
            self.keeper.was_obeyed(command)

    def later(self, seconds=1000.0):
        self.now += seconds
        return self.now

    def look(self):
        return self.hear(FleetSeen(at=self.later(100), nodes=dict(self.shown)))

    def conclude(self, verdict=HEALTHY, *nodes, campaign="c"):
        began = self.later(10)
        verdicts = dict.fromkeys(nodes, verdict)
        return self.hear(
            VerdictReached(at=self.later(10), campaign=campaign, began=began, verdicts=verdicts)
        )

    def answer(self, test, verdict=HEALTHY, **otherwise):
        """Answer by node; the nodes that are not named get `verdict`."""
        began = self.later(10)
        verdicts = {node: otherwise.get(node, verdict) for node in test.owed}
        return self.hear(
            VerdictReached(
                at=self.later(10), campaign="c", began=began, verdicts=verdicts, test=test.id
            )
        )

    def tick(self, **risk):
        held = {"unreachable": self.held, "held": self.held}
        return self.hear(Waited(at=self.later(), risk=risk, **held))

    def state(self, node="n0"):
        return self.keeper.lives[node].state


@pytest.fixture
def cluster():
    return Cluster()


def only(commands, kind):
    (command,) = [command for command in commands if isinstance(command, kind)]
    return command


# --- jobs of a node that is taken out ---------------------------------------------------------

XID = IncidentReported(nodes=("n0",), category="xid-79")


def requeued(commands):
    return [(c.job, c.node, c.mode) for c in commands if isinstance(c, Requeue)]


def test_a_job_is_put_back_once_for_a_node_that_is_taken_out_if_the_policy_says_so():
    cluster = Cluster(policy=replace(ACTING, requeue=Mode.ACT))
    cluster.shown["n0"] = replace(cluster.shown["n0"], jobs=("7", "8"))
    cluster.shown["n1"] = replace(cluster.shown["n1"], jobs=("7",))
    cluster.look()
    commands = cluster.hear(noticed(cluster.later(), XID))
    assert requeued(commands) == [("7", "n0", Mode.ACT), ("8", "n0", Mode.ACT)]
    later = [*cluster.look(), *cluster.tick(), *cluster.hear(noticed(cluster.later(), XID))]
    again = Keeper(cluster.keeper._policy, cluster.keeper.lives.values(), seen_at=cluster.now)
    later += again.handle(FleetSeen(at=cluster.later(), nodes=dict(cluster.shown)))
    ended_at = cluster.later() + 150  # by a report with another clock: the next look comes before
    later += cluster.hear(noticed(ended_at, JobEnded(nodes=("n0",), job="8")))
    later += [*cluster.look(), *cluster.look()]
    assert requeued(later) == []
    cluster.shown["n0"] = replace(cluster.shown["n0"], jobs=())
    cluster.look()
    cluster.shown["n0"] = replace(cluster.shown["n0"], jobs=("8",))  # it began there anew
    assert requeued(cluster.look()) == [("8", "n0", Mode.ACT)]


@pytest.mark.parametrize("policy", [replace(ACTING, requeue=mode) for mode in (None, Mode.PROPOSE)])
def test_a_job_goes_on_unless_a_policy_or_a_person_puts_it_back(policy):
    cluster = Cluster(policy=policy)
    cluster.shown["n0"] = replace(cluster.shown["n0"], jobs=("7",))
    cluster.look()
    commands = cluster.hear(noticed(cluster.later(), XID))
    proposals = [("7", "n0", Mode.PROPOSE)] if policy.requeue else []
    assert requeued(commands) == proposals
    for command in filter(lambda c: isinstance(c, Requeue), commands):
        assert not is_moot(command, cluster.keeper.lives)
        cluster.shown["n0"] = replace(cluster.shown["n0"], jobs=())
        cluster.look()
        assert is_moot(command, cluster.keeper.lives)


def test_a_job_goes_on_if_a_breaker_keeps_its_node_in_service():
    cluster = Cluster(policy=replace(ACTING, requeue=Mode.ACT, out_of_fleet=0.1))
    cluster.shown["n0"] = replace(cluster.shown["n0"], jobs=("7",))
    cluster.look()
    cluster.conclude(DEFECTIVE, "n1")
    assert requeued(cluster.hear(noticed(cluster.later(), XID))) == []


# --- repairs by commands of the site ----------------------------------------------------------


def repairs(commands):
    return [(c.node, *c.words) for c in commands if isinstance(c, TryRepair)]


def ran(cluster, node="n0", trouble="", **more):
    at, words = cluster.later(10), cluster.keeper.lives[node].repair.words
    done = [] if trouble else [noticed(at, RepairDone(nodes=(node,)))]
    ended = RepairRan(at=at, node=node, words=words, trouble=trouble, **more)
    return cluster.keeper.handle(*done, ended)


def test_a_node_that_is_out_and_empty_is_repaired_by_the_remedy_and_tested_before_the_next():
    cluster = Cluster(policy=replace(ACTING, repair=Mode.ACT))
    cluster.shown["n0"] = replace(cluster.shown["n0"], jobs=("7",))
    cluster.look()
    cluster.hear(noticed(cluster.later(), XID))
    cluster.look()
    assert repairs(cluster.tick()) == [], "a job runs there"
    cluster.shown["n0"] = replace(cluster.shown["n0"], jobs=())
    cluster.look()
    commands = cluster.tick()
    assert repairs(commands) == [("n0", "reset", "n0")]
    assert cluster.state() is State.REPAIRING
    assert not any(isinstance(c, Prove | TryRepair) for c in [*commands, *cluster.tick()][1:])
    ran(cluster)
    test = only(cluster.tick(), Prove)
    assert test.proof is Proof.FULL
    cluster.answer(test)
    cluster.look()
    assert cluster.state() is State.IN_SERVICE


def test_a_node_that_no_command_repairs_waits_for_a_person_untested():
    cluster = Cluster(policy=replace(ACTING, repair=Mode.ACT))
    cluster.hear(noticed(cluster.later(), XID))
    assert not any(isinstance(c, Prove) for c in cluster.tick()), "its cordon was not shown yet"
    cluster.look()
    assert repairs(cluster.tick()) == [("n0", "reset", "n0")]
    assert only(ran(cluster, trouble="exit 3"), Notify).sentence == "its repair failed: exit 3"
    assert repairs(cluster.tick()) == [("n0", "cycle", "--node=n0")]
    ran(cluster)
    cluster.answer(only(cluster.tick(), Prove), DEFECTIVE)
    cluster.look()
    assert repairs(cluster.tick()) == [("n0", "replace", "n0")], "the defect has its own remedy"
    ran(cluster)
    told = cluster.answer(only(cluster.tick(), Prove), DEFECTIVE)
    sentence = "3 commands did not repair it (GEMM.TFLOPS): it waits for a person"
    assert only(told, Notify).sentence == sentence
    later = [*cluster.tick(), *cluster.look(), *cluster.tick()]
    assert not any(isinstance(c, Prove | TryRepair) for c in later)
    assert cluster.state() is State.OUT
    cluster.later(7 * 86400)
    assert repairs(cluster.tick()) == [("n0", "replace", "n0")], "a week later it may be worth it"


def test_a_repaired_node_that_fails_again_is_not_tested_before_the_next_repair(cluster):
    cluster.conclude(DEFECTIVE, "n0")
    cluster.look()
    cluster.hear(noticed(cluster.later(), RepairDone(nodes=("n0",))))
    cluster.answer(only(cluster.tick(), Prove), DEFECTIVE)
    assert not any(isinstance(c, Prove) for _ in range(3) for c in cluster.tick())
    cluster.hear(noticed(cluster.later(), RepairDone(nodes=("n0",))))
    assert only(cluster.tick(), Prove).proof is Proof.FULL


def test_a_node_after_an_incident_is_tested_if_no_command_is_left():
    cluster = Cluster(policy=replace(ACTING, repair=Mode.ACT, repairs=1))
    cluster.hear(noticed(cluster.later(), XID))
    cluster.look()
    assert repairs(cluster.tick()) == [("n0", "reset", "n0")]
    assert only(ran(cluster, trouble="exit 3"), Notify).sentence == "its repair failed: exit 3"
    assert only(cluster.tick(), Prove).proof is Proof.OF_CATEGORY


REVIVE = Remedy(codes=("NODE-LOST",), action="", commands=(("power", "cycle", "{node}"),))


def lose(cluster, *nodes):
    """These nodes go down, for longer than a moment."""
    cluster.keeper = Keeper(
        replace(ACTING, locate=None),
        cluster.keeper.lives.values(),
        remedy_of=lambda code: REVIVE if code == "NODE-LOST" else None,
    )
    cluster.look()
    for node in nodes:
        cluster.shown[node] = replace(cluster.shown[node], is_up=False)
    cluster.look()


def test_a_lost_node_is_missed_and_so_is_one_that_must_be_out_unless_it_is_left_alone():
    gone = Life(node="n1", present=False, incidents=(OpenIncident(category="gpu", at=1.0),))
    away = Life(node="n1", present=False)
    window = Window(name="swap", begin=0.0, end=9.0)
    assert [gone.is_missed, replace(away, is_down=True).is_missed, away.is_missed] == [
        True,
        True,
        False,
    ]
    assert not replace(gone, retired=True).is_missed
    assert not replace(gone, maintained=window).is_missed


def test_a_lost_node_is_restarted_by_its_remedy_once_and_tested_when_it_is_back(cluster):
    lose(cluster, "n0")
    assert repairs(cluster.hear(Waited(at=cluster.later(100)))) == [], "it may only be slow"
    assert repairs(cluster.tick()) == [("n0", "power", "cycle", "n0")]
    assert repairs(cluster.tick()) == []
    done = noticed(cluster.later(1), RepairDone(nodes=("n0",)))
    cluster.hear(done)
    cluster.hear(RepairRan(at=cluster.now, node="n0", words=("power", "cycle", "n0")))
    assert repairs(cluster.tick()) == [], "once"
    cluster.shown["n0"] = replace(cluster.shown["n0"], is_up=True)
    assert only(cluster.look(), Cordon).node == "n0", "its repair is not proven"
    cluster.look()
    assert only(cluster.tick(), Prove).proof is Proof.FULL


def stay_lost(cluster):
    lose(cluster, "n0")


def lose_most(cluster):
    lose(cluster, "n0", "n1", "n2", "n3", "n4")


def remove(cluster):
    lose(cluster)
    cluster.hear(noticed(cluster.later(1), NodeRemoved(nodes=("n0",))))
    cluster.shown["n0"] = replace(cluster.shown["n0"], is_up=False)
    cluster.look()


def hide(cluster):
    lose(cluster, "n0")
    del cluster.shown["n0"]
    cluster.look()


def work_on(cluster):
    lose(cluster, "n0")
    cluster.shown["n0"] = replace(cluster.shown["n0"], cordon="Jo: mainboard")
    cluster.look()


def power_off(cluster):
    lose(cluster, "n0")
    cluster.shown["n0"] = replace(cluster.shown["n0"], is_free=False, meaning="powered down")
    cluster.look()


def retire(cluster):
    lose(cluster, "n0")
    retired = OperatorSaid(order=Order.RETIRE, nodes=("n0",))
    cluster.hear(noticed(cluster.later(1), retired))


def bring_back(cluster):
    lose(cluster, "n0")
    cluster.shown["n0"] = replace(cluster.shown["n0"], is_up=True)
    cluster.look()


@pytest.mark.parametrize(
    ("trouble", "is_restarted"),
    [(stay_lost, True)]
    + [(one, False) for one in (lose_most, remove, hide, work_on, power_off, retire, bring_back)],
)
def test_only_a_few_lost_nodes_that_their_owner_shows_and_did_not_turn_off_are_restarted(
    cluster, trouble, is_restarted
):
    trouble(cluster)
    assert bool(repairs(cluster.tick())) == is_restarted


def test_no_more_nodes_are_repaired_at_once_than_the_policy_says_and_none_without_it():
    for policy, expected in (
        (replace(ACTING, repair=None), 0),
        (replace(ACTING, repair=Mode.ACT, repaired_at_once=2), 2),
        (replace(ACTING, repair=Mode.PROPOSE, repaired_at_once=2, test=Mode.PROPOSE), 4),
    ):
        cluster = Cluster(policy=policy)
        all_of_them = IncidentReported(nodes=("n0", "n1", "n2", "n3"), category="xid-79")
        cluster.hear(noticed(cluster.later(), all_of_them))
        cluster.look()
        commands = cluster.tick()
        assert len(repairs(commands)) == expected
        for command in filter(lambda c: isinstance(c, TryRepair), commands):
            assert is_moot(command, cluster.keeper.lives) is (policy.repair is Mode.ACT)
    *approved, third, _ = [c for c in commands if isinstance(c, TryRepair)]
    for command in approved:
        assert cluster.keeper.repairs.reason_against(command, cluster.now) == ""
        cluster.keeper.approve(command, cluster.now)
    assert "as many as the policy allows" in cluster.keeper.repairs.reason_against(
        third, cluster.now
    )


def test_a_command_that_was_refused_is_asked_for_again_and_one_that_ran_is_not():
    cluster = Cluster(policy=replace(ACTING, repair=Mode.ACT))
    cluster.hear(noticed(cluster.later(), XID))
    cluster.look()
    assert repairs(cluster.tick()) == [("n0", "reset", "n0")]
    assert ran(cluster, trouble="job 7 runs there", has_begun=False) == []
    assert repairs(cluster.tick()) == [("n0", "reset", "n0")]
    ran(cluster, trouble="exit 3")
    other = IncidentReported(nodes=("n0",), category="xid-154")
    cluster.hear(noticed(cluster.later(), other))
    assert repairs(cluster.tick()) == [("n0", "cycle", "--node=n0")]


def test_a_strongly_suspected_node_is_kept_from_new_jobs_until_it_is_tested_within_the_shares():
    cluster = Cluster(policy=replace(ACTING, hold_from=0.8, out_of_fleet=0.25, tested_at_once=1))
    for node, confidence in (("n0", 0.9), ("n1", 0.5), ("n2", 0.8), ("n3", 1.0)):
        raised = SuspicionRaised(
            nodes=(node,), category="gpu", source="watch", confidence=confidence
        )
        cluster.hear(replace(noticed(cluster.later(), raised), id=node))
    cordons = [c for c in cluster.commands if isinstance(c, Cordon)]
    assert [(c.node, c.code) for c in cordons] == [("n0", "SUSPECTED"), ("n2", "SUSPECTED")]
    assert cordons[0].reason == 'suspected of "gpu", not tested'
    assert not [c for c in cluster.commands if isinstance(c, Notify)], "no breaker opens"
    cluster.look()
    test = only(cluster.tick(), Prove)
    assert {*test.owed} == {"n0", "n1", "n2", "n3"}
    commands = cluster.answer(test, replace(HEALTHY, proof=test.proof, about=test.about))
    assert {c.node for c in commands if isinstance(c, Release)} == {"n0", "n2"}


# --- the life of a node --------------------------------------------------------------------


# --- trouble of a job that nothing explained -----------------------------------------------------

LOCATING = replace(ORDERING, locate=LocatePolicy(mode=Mode.ACT, nodes=4))


def unexplained(at, job, *nodes):
    return noticed(at, JobUnexplained(nodes=nodes, job=job))


def searches(commands):
    tests = [c for c in commands if isinstance(c, Prove) and c.proof is Proof.TOGETHER]
    return [(test.about, sorted(test.owed)) for test in tests]


def test_after_unexplained_trouble_the_free_nodes_of_the_job_are_searched_once_together():
    cluster = Cluster(policy=LOCATING)
    cluster.shown["n2"] = replace(cluster.shown["n2"], jobs=("8",))
    cluster.shown["n3"] = replace(cluster.shown["n3"], cordon="Jo: fans")
    cluster.look()
    cluster.hear(unexplained(cluster.later(1), "7", "n0", "n1", "n2", "n3"))
    assert cluster.state("n0") is State.IN_SERVICE, "the trouble of a job is no sign against it"
    assert searches(cluster.tick()) == [], "a job runs on n2"
    cluster.shown["n2"] = replace(cluster.shown["n2"], jobs=())
    cluster.look()
    search = only(cluster.tick(), Prove)
    assert searches([search]) == [("7", ["n0", "n1", "n2"])]
    cluster.hear(unexplained(cluster.later(1), "6", "n4", "n5"))
    assert searches(cluster.tick()) == [], "one at a time"
    found = cluster.answer(search, replace(HEALTHY, proof=Proof.TOGETHER, about="7"), n1=DEFECTIVE)
    assert only(found, OpenTicket).node == only(found, Cordon).node == "n1"
    assert only(found, Notify).sentence.endswith("campaign c: n1 (GEMM.TFLOPS: it is slow)")
    assert searches(cluster.tick()) == [("6", ["n4", "n5"])]
    cluster.hear(unexplained(cluster.later(1), "9", "n0", "n2"))
    assert [searches(cluster.tick()) for _ in range(3)] == [[]] * 3, "these were searched lately"


@pytest.mark.parametrize(
    ("policy", "nodes"),
    [
        (ORDERING, ("n0", "n1")),
        (LOCATING, ("n0",)),
    ],
    ids=["not by the policy", "one node"],
)
def test_no_search_begins(policy, nodes):
    cluster = Cluster(policy=policy)
    cluster.hear(unexplained(cluster.later(1), "7", *nodes))
    assert searches(cluster.tick()) == []


def test_the_nodes_of_a_job_that_are_too_many_for_one_search_are_searched_in_parts():
    cluster = Cluster(policy=LOCATING)
    cluster.held = frozenset({"n1"})
    cluster.hear(unexplained(cluster.later(1), "7", "n0", "n1", "n2", "n3", "n4"))
    search = only(cluster.tick(), Prove)
    assert sorted(search.owed) == ["n3", "n4"], "n1 is measured by others"
    cluster.held = frozenset()
    cluster.answer(search, replace(HEALTHY, proof=Proof.TOGETHER, about="7"))
    assert searches(cluster.tick()) == [("7", ["n0", "n1", "n2"])]


def test_a_search_that_cannot_begin_within_a_day_is_reported_once_and_given_up_as_one_that_fails():
    cluster = Cluster(policy=LOCATING)
    cluster.held = frozenset({"n1"})
    cluster.hear(unexplained(cluster.later(1), "7", "n0", "n1"))
    assert searches(cluster.tick()) == []
    cluster.later(DAY_S)
    told = only(cluster.tick(), Notify)
    assert told.subject == "job 7"
    assert "no search for the cause began within a day on n0 and 1 more" in told.sentence
    cluster.held = frozenset()
    assert searches(cluster.tick()) == []
    cluster.hear(unexplained(cluster.later(1), "8", "n0", "n1"))
    refused = TestRefused(
        at=cluster.later(1), test=only(cluster.tick(), Prove).id, reason="no suite"
    )
    assert cluster.hear(refused) == []
    assert [searches(cluster.tick()) for _ in range(3)] == [[]] * 3


def test_a_proposed_search_and_the_check_of_its_nodes_stay_beside_each_other():
    """After a failed job both are proposed, and neither replaces the other."""
    cluster = Cluster(policy=KeepingPolicy(locate=LocatePolicy(), tested_at_once=1.0))
    cluster.look()
    cluster.hear(noticed(cluster.later(1), JobEnded(nodes=("n0", "n1"), job="7", failed=True)))
    cluster.hear(unexplained(cluster.now, "7", "n0", "n1"))
    check, search = sorted(cluster.tick(), key=lambda test: test.proof)
    assert (check.proof, search.proof) == (Proof.CHECK, Proof.TOGETHER)
    action = LifeAction(id=1, at=0.0, command=search, stage=Stage.PROPOSED, changed_at=0.0)
    assert Docket([action]).outdated_proposals(check) == []
    assert cluster.keeper.proofs.reason_against_search(search, cluster.now) == ""
    cluster.hear(noticed(cluster.later(1), JobAllocated(nodes=("n0",), job="9", duration_s=60)))
    assert cluster.keeper.proofs.reason_against_search(search, cluster.now)
    assert not is_moot(search, cluster.keeper.lives)


def test_a_new_node_is_tested_before_it_is_trusted(cluster):
    cluster.shown["n9"] = SeenNode(sku="h100")
    cluster.hear(noticed(cluster.later(), NodeAdded(nodes=("n9",))))
    assert cluster.state("n9") is State.NEW
    test = only(cluster.tick(), Prove)
    assert set(test.owed) == {"n9"}
    assert cluster.state("n9") is State.TESTING
    cluster.answer(test)
    assert cluster.state("n9") is State.IN_SERVICE


def test_from_a_defect_to_the_proof_of_its_repair(cluster):
    cluster.hear(noticed(cluster.later(), JobAllocated(nodes=("n0",), job="7", duration_s=60)))
    commands = cluster.conclude(DEFECTIVE, "n0")
    assert only(commands, Cordon).code == "GEMM.TFLOPS"
    ticket = only(commands, OpenTicket).ticket
    assert cluster.state() is State.DRAINING  # its job may end
    cluster.hear(noticed(cluster.later(), JobEnded(nodes=("n0",), job="7")))
    cluster.look()
    assert cluster.state() is State.OUT
    assert not cluster.tick()  # nothing has changed on it, so no test would tell more
    cluster.hear(noticed(cluster.later(), RepairBegun(nodes=("n0",))))
    assert cluster.state() is State.REPAIRING
    cluster.hear(noticed(cluster.later(), RepairDone(nodes=("n0",))))
    assert cluster.state() is State.OUT
    cluster.hear(noticed(cluster.later(), FleetUpgraded(nodes=("n1",))))
    tests = {tuple(c.owed): c for c in cluster.tick() if isinstance(c, Prove)}
    assert {nodes: (test.proof, test.follows_repair) for nodes, test in tests.items()} == {
        ("n0",): (Proof.FULL, True),
        ("n1",): (Proof.FULL, False),
    }
    commands = cluster.answer(tests["n0",])
    assert only(commands, CloseTicket).ticket == ticket
    assert only(commands, Release).node == "n0"
    cluster.look()
    assert cluster.state() is State.IN_SERVICE
    assert not cluster.shown["n0"].cordon


def test_a_node_that_does_not_answer_is_lost_and_proves_itself_when_it_is_back(cluster):
    cluster.look()
    cluster.shown["n0"] = replace(cluster.shown["n0"], is_up=False)
    cluster.look()
    assert cluster.state() is State.LOST
    cluster.shown["n0"] = replace(cluster.shown["n0"], is_up=True)
    cluster.look()
    assert cluster.state() is State.IN_SERVICE  # 100 s later
    cluster.shown["n0"] = replace(cluster.shown["n0"], is_up=False)
    cluster.look()
    (hold,) = cluster.tick()
    assert (hold.node, hold.code) == ("n0", "NODE-LOST")
    cluster.shown["n0"] = replace(cluster.shown["n0"], is_up=True)
    assert cluster.shown["n0"].cordon, "no job begins on it before the keeper looks"
    cluster.look()
    assert cluster.state() is State.NEW
    proof = only(cluster.tick(), Prove)
    assert set(proof.owed) == {"n0"}
    cluster.answer(proof)
    cluster.look()
    assert not cluster.shown["n0"].cordon


@pytest.mark.parametrize(
    ("trouble", "are_held"),
    [(stay_lost, {"n0"})]
    + [(one, set()) for one in (lose_most, remove, hide, work_on, power_off, retire, bring_back)],
)
def test_only_few_lost_nodes_are_held_and_none_that_its_owner_took_away(trouble, are_held):
    cluster = Cluster()
    trouble(cluster)
    held = {c.node for c in cluster.tick() if isinstance(c, Cordon) and c.code == "NODE-LOST"}
    assert held == are_held
    assert not [c for c in cluster.tick() if isinstance(c, Cordon) and c.code == "NODE-LOST"]


def test_news_about_a_node_cause_a_test_at_once_after_any_number_of_failed_ones(cluster):
    cluster.hear(noticed(cluster.later(), NodeAdded(nodes=("n0",))))
    cluster.answer(only(cluster.tick(), Prove), UNKNOWN)
    assert not cluster.hear(Waited(at=cluster.later(1)))
    cluster.hear(noticed(cluster.later(1), NodeAdded(nodes=("n0",))))
    assert only(cluster.hear(Waited(at=cluster.later(1))), Prove)


def test_a_node_that_is_away_is_away_since_it_left_after_any_number_of_looks(cluster):
    cluster.look()
    shown = cluster.shown.pop("n0")
    for _ in range(10):
        cluster.look()  # every 100 s
    cluster.hear(noticed(cluster.now - 50, NodeAdded(nodes=("n0",))))
    assert cluster.state() is State.LOST, "it was seen to be away since"
    cluster.shown["n0"] = shown
    cluster.look()
    assert cluster.state() is State.NEW


def test_a_repair_that_did_not_help_is_no_way_back(cluster):
    cluster.conclude(DEFECTIVE, "n0")
    cluster.hear(noticed(cluster.later(), RepairDone(nodes=("n0",))))
    cluster.look()
    commands = cluster.answer(only(cluster.tick(), Prove), DEFECTIVE)
    assert not [c for c in commands if isinstance(c, OpenTicket | Release)]  # the ticket goes on
    assert cluster.state() is State.OUT


def test_a_test_that_began_before_the_repair_was_done_proves_nothing(cluster):
    cluster.conclude(DEFECTIVE, "n0")
    cluster.look()
    began = cluster.later()
    cluster.hear(noticed(cluster.later(), RepairDone(nodes=("n0",))))
    at = cluster.later()
    cluster.hear(VerdictReached(at=at, campaign="c", began=began, verdicts={"n0": HEALTHY}))
    assert cluster.state() is State.OUT


def test_a_defect_reported_after_the_repair_that_followed_it_stays_until_it_is_disproved(cluster):
    found_at = cluster.later()
    cluster.hear(noticed(cluster.later(), RepairDone(nodes=("n0",))))
    late = VerdictReached(at=found_at, campaign="c", began=1.0, verdicts={"n0": DEFECTIVE})
    cluster.hear(late)
    cluster.look()
    told = only(cluster.answer(only(cluster.tick(), Prove), IN_PART), Notify)
    assert told.subject == "n0"
    assert DEFECTIVE.code in told.sentence
    cluster.look()
    assert cluster.state() is State.OUT
    assert not cluster.tick()  # nothing more is begun, so it is said once
    cluster.conclude(HEALTHY, "n0")
    cluster.look()
    assert cluster.state() is State.IN_SERVICE


def test_a_healthy_verdict_with_too_few_measurements_is_no_proof(cluster):
    cluster.hear(noticed(cluster.later(), IncidentReported(nodes=("n0",), category="gpu")))
    assert cluster.state() is State.DRAINING
    cluster.conclude(UNPROVEN, "n0")
    assert cluster.state() is State.DRAINING
    cluster.conclude(HEALTHY, "n0")
    assert cluster.state() is State.IN_SERVICE


def test_no_node_is_tested_while_a_job_a_campaign_or_a_person_uses_it(cluster):
    for node in ("n0", "n1", "n2", "n3"):
        cluster.hear(noticed(cluster.later(), IncidentReported(nodes=(node,), category="gpu")))
    cluster.shown["n0"] = replace(cluster.shown["n0"], jobs=("7",))
    cluster.held = frozenset({"n1"})
    cluster.shown["n2"] = replace(cluster.shown["n2"], cordon="memory swap, Jo")
    cluster.look()
    assert set(only(cluster.tick(), Prove).owed) == {"n3"}


def test_an_old_hold_is_ignored_also_after_a_restart(cluster):
    free = Waited(at=cluster.later())
    cluster.hear(free)
    cluster.hear(noticed(cluster.later(), FleetUpgraded(nodes=("n1",))))
    cluster.held = frozenset({"n1"})
    assert cluster.tick() == []
    keeper = cluster.keeper
    times = keeper.seen_at, keeper.waited_at
    for again in (keeper, Keeper(ACTING, keeper.lives.values(), keeper.breakers, *times)):
        assert again.handle(free) == []


def test_an_unknown_node_is_retried_at_growing_intervals_and_a_person_is_notified(cluster):
    cluster.hear(suspected(cluster.later(), "s1", "n0"))
    tries, ended = [], []
    for _ in range(200):
        for command in cluster.tick():
            if isinstance(command, Prove):
                tries.append(cluster.now)
                ended += cluster.answer(command, UNKNOWN)
    pauses = [after - before for before, after in pairwise(tries)]
    assert pauses == sorted(pauses)
    assert pauses[-1] > 10 * pauses[0]
    end, told = ended[1], ended[0]
    assert (only(ended, EndSuspicion), end.outcome) == (end, Outcome.GIVEN_UP)
    assert told.sentence.startswith("3 tests in a row gave no result")
    assert cluster.state() is State.SUSPECT  # it owes an answer still


def test_a_later_test_confirms_or_refutes_a_suspicion(cluster):
    for node, id in (("n0", "bad"), ("n1", "good")):
        cluster.hear(suspected(cluster.later(), id, node))
    ended = cluster.answer(only(cluster.tick(), Prove), n0=DEFECTIVE)
    assert {c.id: c.outcome for c in ended if isinstance(c, EndSuspicion)} == {
        "bad": Outcome.CONFIRMED,
        "good": Outcome.REFUTED,
    }


def test_a_node_that_is_suspected_again_after_a_test_of_a_category_has_to_pass_all_tests(cluster):
    """As a host with half a processor: the test that had found the last defect found nothing."""
    proofs = []
    for number, pause_s in enumerate((0, 0, 0, ACTING.unsettled_s)):
        cluster.hear(suspected(cluster.later(pause_s + 1000), f"s{number}", "n0"))
        test = only(cluster.tick(), Prove)
        proofs.append(test.proof)
        passed = Concluded(
            judgement=Judgement.HEALTHY, proof=test.proof, about=test.about, reason="", is_fit=True
        )
        assert only(cluster.answer(test, passed), EndSuspicion).outcome is Outcome.REFUTED
    of_category, full = Proof.OF_CATEGORY, Proof.FULL
    assert proofs == [of_category, full, of_category, of_category]


def test_a_suspicion_that_no_test_was_worth_is_given_up_and_its_source_neither_right_nor_wrong(
    cluster,
):
    cluster.hear(suspected(cluster.later(), "s", "n0"))
    test = only(cluster.tick(), Prove)
    untested = Concluded(
        judgement=Judgement.HEALTHY, proof=test.proof, about="gpu", reason="no test is worth it"
    )
    at = cluster.later()
    answer = VerdictReached(at=at, began=at, campaign="", verdicts={"n0": untested}, test=test.id)
    end = only(cluster.hear(answer), EndSuspicion)
    assert (end.outcome, end.reason) == (Outcome.GIVEN_UP, "no test is worth it")


def test_after_a_job_its_nodes_are_checked_lightly_and_serve_on(cluster):
    cluster.hear(noticed(cluster.later(), JobAllocated(nodes=("n0",), job="7", duration_s=60)))
    assert not cluster.tick()
    cluster.hear(noticed(cluster.later(), JobEnded(nodes=("n0",), job="7")))
    assert cluster.state() is State.IN_SERVICE
    test = only(cluster.tick(), Prove)
    assert test.proof is Proof.LIGHT
    cluster.answer(test, CHECKED)
    assert not cluster.tick()


def test_after_a_failed_job_its_node_owes_the_whole_check_and_is_no_suspect(cluster):
    ended = JobEnded(nodes=("n0",), job="7", failed=True)
    cluster.hear(noticed(cluster.later(), ended))
    assert cluster.state() is State.IN_SERVICE
    test = only(cluster.tick(), Prove)
    assert test.proof is Proof.CHECK
    cluster.answer(test, CHECKED)  # what alone was worth its time is not all of it
    again = only(cluster.tick(), Prove)
    cluster.answer(again, replace(CHECKED, proof=Proof.CHECK))
    assert not cluster.tick()


def test_a_light_check_settles_no_incident_and_proves_no_repair(cluster):
    cluster.hear(noticed(cluster.later(), IncidentReported(nodes=("n0",), category="gpu")))
    cluster.conclude(DEFECTIVE, "n1")
    cluster.hear(noticed(cluster.later(), RepairDone(nodes=("n1",))))
    cluster.conclude(CHECKED, "n0", "n1")
    assert cluster.state("n0") is State.DRAINING
    assert cluster.state("n1") is State.DRAINING


def test_proof_of_one_category_says_nothing_of_another(cluster):
    cluster.hear(noticed(cluster.later(), IncidentReported(nodes=("n0",), category="gpu")))
    of_network = Concluded(judgement=Judgement.HEALTHY, proof=Proof.OF_CATEGORY, about="network")
    cluster.conclude(of_network, "n0")
    assert cluster.state() is State.DRAINING
    cluster.conclude(replace(of_network, about="gpu"), "n0")
    assert cluster.state() is State.IN_SERVICE


def test_a_node_that_owes_proof_of_two_categories_gets_the_full_test(cluster):
    for category in ("gpu", "network"):
        cluster.hear(noticed(cluster.later(), IncidentReported(nodes=("n0",), category=category)))
    cluster.hear(noticed(cluster.later(), IncidentReported(nodes=("n1",), category="gpu")))
    proofs = {tuple(test.owed): test.proof for test in cluster.tick() if isinstance(test, Prove)}
    assert proofs == {("n0",): Proof.FULL, ("n1",): Proof.OF_CATEGORY}


def test_a_test_that_could_not_begin_is_reported_with_the_reason_and_asked_for_again(cluster):
    cluster.hear(noticed(cluster.later(), FleetUpgraded(nodes=("n0",))))
    test = only(cluster.tick(), Prove)
    refused = cluster.hear(TestRefused(at=cluster.later(1), test=test.id, reason="held by c7"))
    assert only(refused, Notify).sentence == "held by c7"
    assert only(cluster.tick() + cluster.tick(), Prove).owed.keys() == {"n0"}


def test_a_test_that_never_can_begin_is_asked_for_less_and_less_often_and_at_last_once_a_day(
    cluster,
):
    cluster.hear(noticed(cluster.later(), FleetUpgraded(nodes=("n0",))))
    asked = []
    for _ in range(400):
        for command in cluster.tick():
            if isinstance(command, Prove):
                asked.append(cluster.now)
                refused = TestRefused(at=cluster.now, test=command.id, reason="no benchmark runs")
                cluster.hear(refused)
    pauses = [after - before for before, after in pairwise(asked)]
    assert pauses == sorted(pauses)
    assert pauses[0] < 3_000
    assert 86_400 <= pauses[-1] <= 86_400 + 1_000


def test_a_busy_node_is_asked_for_again_and_again_after_the_same_pause(cluster):
    cluster.hear(noticed(cluster.later(), FleetUpgraded(nodes=("n0",))))
    asked = []
    for _ in range(40):
        for test in cluster.tick():
            asked.append(cluster.now)
            busy = TestRefused(at=cluster.now, test=test.id, reason="held", are_nodes_busy=True)
            assert not cluster.hear(busy)  # people need do nothing
    assert {after - before for before, after in pairwise(asked)} == {1000.0}


def test_a_test_that_could_not_begin_is_none_that_came_to_nothing(cluster):
    """The default policy gives a suspicion up after three tests without a result."""
    cluster.hear(suspected(cluster.later(), "s1", "n0"))
    for _ in range(20):
        for test in cluster.tick():
            cluster.hear(TestRefused(at=cluster.now, test=test.id, reason="no benchmark runs"))
    test = next(command for _ in range(99) for command in cluster.tick())
    assert not [c for c in cluster.answer(test, UNKNOWN) if isinstance(c, EndSuspicion | Notify)]
    assert cluster.keeper.lives["n0"].owed


def test_a_suspicion_that_a_later_test_has_refuted_already_ends_at_once(cluster):
    noticed = cluster.later()
    cluster.conclude(HEALTHY, "n0")
    raised = suspected(noticed, "s1", "n0")
    assert only(cluster.hear(raised), EndSuspicion).outcome is Outcome.REFUTED


def test_a_suspicion_untested_for_a_week_is_given_up_with_the_reason(cluster):
    raised = cluster.later()
    cluster.hear(suspected(raised, "s1", "n0"))
    cluster.hear(noticed(cluster.later(), JobAllocated(nodes=("n0",), job="7", duration_s=60)))
    cluster.now = raised + 6.9 * 86_400
    assert not cluster.tick()
    cluster.now = raised + 7 * 86_400
    ended = only(cluster.tick(), EndSuspicion)
    assert ended.outcome is Outcome.GIVEN_UP
    assert "7 days" in ended.reason


# --- what was not answered -----------------------------------------------------------------


def test_an_answer_that_any_test_left_open_is_owed_until_a_later_test_gives_it(cluster):
    cluster.conclude(UNKNOWN, "n0")
    assert cluster.state() is State.SUSPECT
    cluster.conclude(CHECKED, "n0")  # says nothing of it
    assert cluster.state() is State.SUSPECT
    test = only(cluster.hear(Waited(at=cluster.later(1))), Prove)  # at once
    assert (test.proof, {*test.owed}) == (Proof.FULL, {"n0"})
    cluster.answer(test)
    assert cluster.state() is State.IN_SERVICE


def test_the_history_opens_and_closes_debts_of_answers(cluster):
    cluster.hear(Waited(at=cluster.later(), owes=frozenset({"n0"})))
    assert cluster.keeper.lives["n0"].owes(Debt.ANSWER)
    cluster.tick()  # without a look
    assert cluster.keeper.lives["n0"].owes(Debt.ANSWER)
    cluster.hear(Waited(at=cluster.later(), owes=frozenset()))
    assert not cluster.keeper.lives["n0"].owed


def test_a_node_that_passes_but_still_owes_an_answer_is_asked_at_growing_intervals(cluster):
    cluster.conclude(UNKNOWN, "n0")
    asked = []
    for _ in range(100):
        for command in cluster.hear(Waited(at=cluster.later(), owes=frozenset({"n0"}))):
            if isinstance(command, Prove):
                asked.append(cluster.now)
                cluster.answer(command, replace(HEALTHY, owes=True))
    pauses = [after - before for before, after in pairwise(asked)]
    assert pauses == sorted(pauses)
    assert pauses[-1] > 10 * pauses[0]
    assert any("not every test" in c.sentence for c in cluster.commands if isinstance(c, Notify))


def test_a_node_that_owes_an_answer_is_no_spare_and_replaces_no_other():
    cluster = Cluster(policy=with_spares(1))
    cluster.answer(only(cluster.tick(n3=-1.0), Prove))
    cluster.look()
    cluster.conclude(UNKNOWN, "n3", "n4")
    assert cluster.state("n3") is State.SUSPECT
    assert not [c for c in cluster.conclude(DEFECTIVE, "n0") if isinstance(c, Swap)]
    lives = cluster.keeper.lives.values()
    assert {"n3", "n4"}.isdisjoint(life.node for life in next_in_line("h100", lives, {}))


# --- incidents -----------------------------------------------------------------------------


def alert(cluster, *nodes, ended=None):
    """Report a GPUXid on these nodes, which the history has when the turn is taken."""
    began = cluster.now
    incidents = {node: (OpenIncident(category="GPUXid", at=began),) for node in nodes}
    return Waited(at=cluster.later(), incidents=incidents, ended=ended or {})


def test_a_node_in_an_incident_is_out_and_stays_out_until_it_has_passed_since(cluster):
    cordon = only(cluster.hear(alert(cluster, "n0")), Cordon)
    assert (cordon.node, cordon.code, cordon.mode) == ("n0", "INCIDENT", Mode.ACT)
    assert cordon.reason == 'its incident "GPUXid" is not over'
    cluster.look()
    assert cluster.state() is State.OUT
    cluster.conclude(HEALTHY, "n0")  # while it goes on, nothing is proven
    assert not cluster.hear(alert(cluster, "n0"))
    over = alert(cluster, ended={"n0": frozenset({"GPUXid"})})
    test = only(cluster.hear(over), Prove)
    assert (test.proof, test.about, {*test.owed}) == (Proof.OF_CATEGORY, "GPUXid", {"n0"})
    assert not [c for c in cluster.commands if isinstance(c, Release)]
    passed = Concluded(judgement=Judgement.HEALTHY, proof=test.proof, about=test.about)
    assert only(cluster.answer(test, passed), Release).node == "n0"
    cluster.look()
    assert cluster.state() is State.IN_SERVICE


def test_an_incident_whose_report_was_withdrawn_leaves_nothing_to_prove(cluster):
    cluster.hear(alert(cluster, "n0"))
    cluster.look()
    assert only(cluster.tick(), Release).node == "n0"


def test_a_spare_with_an_incident_replaces_no_node():
    cluster = Cluster(policy=with_spares(1))
    cluster.answer(only(cluster.tick(n3=-1.0), Prove))
    cluster.look()
    at = cluster.later()
    bad = VerdictReached(at=at, began=at, campaign="c", verdicts={"n0": DEFECTIVE})
    commands = cluster.keeper.handle(bad, alert(cluster, "n3"))  # the same turn hears of both
    assert not [c for c in commands if isinstance(c, Swap | Release)]
    assert {c.node: c.code for c in commands if isinstance(c, Cordon)}["n3"] == "INCIDENT"
    assert not cluster.keeper.lives["n3"].is_reserve  # and another one is chosen
    assert "n3" not in [life.node for life in reserve_of("h100", cluster.keeper.lives.values())]


def test_a_node_with_an_incident_is_not_next_in_line():
    cluster = Cluster(policy=with_spares(1))
    waited = replace(alert(cluster, "n3"), risk={"n3": -1.0, "n4": -0.5})
    assert [c.code for c in cluster.hear(waited) if isinstance(c, Cordon) and c.node == "n3"] == [
        "INCIDENT"
    ]
    assert cluster.keeper.lives["n4"].is_reserve


def test_incidents_take_out_no_more_than_the_share():
    cluster = Cluster(nodes=100, policy=replace(ACTING, out_of_fleet=0.05))
    commands = cluster.hear(alert(cluster, *(f"n{i}" for i in range(40))))
    assert sum(isinstance(c, Cordon) for c in commands) == 5
    assert only(commands, Notify).subject == "fleet"
    assert cluster.state("n39") is State.DRAINING


# --- new nodes -----------------------------------------------------------------------------


def added(cluster, *names):
    """Nodes that a person adds, and the commands that follow."""
    cluster.shown |= {name: SeenNode(sku="h100") for name in names}
    commands = cluster.hear(noticed(cluster.later(), NodeAdded(nodes=names)))
    return commands + cluster.look() + cluster.tick()


def test_a_new_node_is_kept_from_jobs_until_it_is_proven(cluster):
    cluster.look()
    commands = added(cluster, "n9")
    cordon = only(commands, Cordon)
    assert (cordon.node, cordon.code, cordon.mode) == ("n9", "UNPROVEN", Mode.ACT)
    assert cluster.shown["n9"].cordon == "anubis[UNPROVEN]: new, not yet proven"
    cluster.look()
    assert cluster.state("n9") is State.TESTING
    commands = cluster.answer(only(commands, Prove))
    assert only(commands, Release).node == "n9"
    cluster.look()
    assert cluster.state("n9") is State.IN_SERVICE
    assert not cluster.shown["n9"].cordon


def test_a_new_node_that_only_its_orchestrator_shows_is_kept_from_jobs_as_well(cluster):
    cluster.look()
    cluster.shown["n9"] = SeenNode(sku="h100")
    assert only(cluster.look() + cluster.tick(), Cordon).node == "n9"


def test_a_new_node_that_fails_is_out_by_its_defect_and_not_let_in_between(cluster):
    commands = added(cluster, "n9")
    commands = cluster.answer(only(commands, Prove), DEFECTIVE)
    assert only(commands, Cordon).code == "GEMM.TFLOPS"
    cluster.look()
    assert cluster.state("n9") is State.OUT
    assert not [c for c in cluster.commands if isinstance(c, Release)]


@pytest.mark.parametrize("code", ["UNPROVEN", "SPARE"])
def test_a_defect_of_a_node_that_is_already_out_does_not_open_the_breaker(code):
    limits = {"out_of_fleet": 0.05, "out_of_sku": 0.05}  # one node may be
    cluster = Cluster(policy=replace(ACTING, **limits, spares={"h100": int(code == "SPARE")}))
    (kept_out,) = [c for c in added(cluster, "n0") + cluster.tick() if isinstance(c, Cordon)][:1]
    node = kept_out.node
    if code == "SPARE":
        cluster.conclude(HEALTHY, *cluster.shown)
        node = only(cluster.tick(), Cordon).node
    cluster.look()
    commands = cluster.conclude(DEFECTIVE, node)
    assert only(commands, Cordon).code == "GEMM.TFLOPS"
    assert not [c for c in commands if isinstance(c, Notify)]


def test_a_fleet_that_is_seen_for_the_first_time_is_in_service():
    cluster = Cluster(nodes=100)
    cluster.keeper = Keeper(ACTING)
    commands = cluster.look() + cluster.tick() + cluster.look() + cluster.tick()
    assert not [c for c in commands if isinstance(c, Cordon)]
    assert {cluster.state(node) for node in cluster.shown} <= {State.SUSPECT, State.TESTING}
    assert len(only(commands, Prove).owed) == 100  # it has something to prove all the same


def test_nodes_that_only_the_history_knows_are_in_service():
    keeper = Keeper(ACTING)
    nodes = frozenset({"n0", "n1"})
    commands = keeper.handle(Waited(at=1000.0, watched=nodes, unproven=nodes))
    assert not [c for c in commands if isinstance(c, Cordon)]
    assert only(commands, Prove).owed.keys() == nodes


def test_new_nodes_are_kept_out_within_the_share_and_take_no_room_from_defective_ones():
    limits = {"out_of_fleet": 0.05, "out_of_sku": 1.0, "tested_at_once": 0.0}
    cluster = Cluster(nodes=60, policy=replace(ACTING, **limits))
    cluster.look()
    commands = added(cluster, *(f"new{i:02}" for i in range(40)))
    kept_out = [c.node for c in commands if isinstance(c, Cordon)]
    assert kept_out == [f"new{i:02}" for i in range(5)]
    assert not [c for c in commands if isinstance(c, Notify)]  # nothing is wrong with them
    assert not any(breaker.is_open for breaker in cluster.keeper.breakers.values())
    assert cluster.state("new39") is State.NEW
    commands = cluster.conclude(DEFECTIVE, "n0")
    assert only(commands, Cordon).node == "n0"
    cluster.conclude(HEALTHY, "new00", "new01")
    cluster.look()
    assert only(cluster.tick(), Cordon).node == "new05"


def test_nothing_new_is_kept_out_while_a_breaker_waits_for_a_person():
    cluster = Cluster(nodes=8, policy=replace(ACTING, out_of_fleet=0.25, tested_at_once=0.0))
    cluster.conclude(DEFECTIVE, "n0", "n1", "n2")
    assert cluster.keeper.breakers["fleet"].is_open
    cluster.conclude(HEALTHY, "n0", "n1")  # now there would be room
    assert not [c for c in added(cluster, "n9") if isinstance(c, Cordon)]


def test_keeping_a_new_node_out_is_only_proposed_if_cordons_are():
    cluster = Cluster(policy=KeepingPolicy())
    cluster.look()
    commands = added(cluster, "n9")
    cordon = only(commands, Cordon)
    assert (cordon.node, cordon.mode) == ("n9", Mode.PROPOSE)
    assert not is_moot(cordon, cluster.keeper.lives)
    cluster.conclude(HEALTHY, "n9")
    assert is_moot(cordon, cluster.keeper.lives)


# --- whose cordon it is, and what is news --------------------------------------------------


def test_a_cordon_of_a_person_and_its_reason_stay(cluster):
    by_hand = replace(cluster.shown["n0"], cordon="memory swap, Jo")
    cluster.shown["n0"] = by_hand
    cluster.look()
    commands = cluster.conclude(DEFECTIVE, "n0") + cluster.tick()
    commands += cluster.hear(noticed(cluster.later(), RepairDone(nodes=("n0",))))
    commands += cluster.conclude(HEALTHY, "n0") + cluster.tick() + cluster.look()
    assert not [c for c in commands if isinstance(c, Cordon | Release)]
    assert cluster.shown["n0"] == by_hand


def test_only_a_cordon_that_the_owner_took_from_us_is_taken_back(cluster):
    cluster.obeys = False
    cluster.conclude(DEFECTIVE, "n0")
    foreign = "anubis[GEMM.TFLOPS]: as another Anubis says"
    cluster.shown["n0"] = replace(cluster.shown["n0"], cordon=foreign)
    repaired = [RepairBegun(nodes=("n0",)), RepairDone(nodes=("n0",))]
    commands = cluster.look()
    for event in repaired:
        commands += cluster.hear(noticed(cluster.later(), event))
    commands += cluster.conclude(HEALTHY, "n0") + cluster.look() + cluster.tick()
    assert not [c for c in commands if isinstance(c, Release)]
    assert cluster.shown["n0"].cordon == foreign
    cluster.obeys = True
    cluster.conclude(DEFECTIVE, "n0")  # now the owner says so in our name
    cluster.look()
    for event in repaired:
        cluster.hear(noticed(cluster.later(), event))
    cluster.conclude(HEALTHY, "n0")
    cluster.look()
    assert cluster.shown["n0"].cordon == ""


def test_an_old_state_of_the_orchestrator_is_ignored_also_after_a_restart(cluster):
    early = FleetSeen(at=cluster.later(), nodes={})
    cluster.look()
    keeper = cluster.keeper
    for again in (keeper, Keeper(ACTING, keeper.lives.values(), keeper.breakers, keeper.seen_at)):
        assert again.handle(early) == []
        assert {life.state for life in again.lives.values()} == {State.IN_SERVICE}


def test_a_job_that_began_after_the_orchestrator_looked_is_not_forgotten(cluster):
    looked = FleetSeen(at=cluster.later(), nodes=dict(cluster.shown))
    cluster.hear(noticed(cluster.later(), JobAllocated(nodes=("n0",), job="7", duration_s=60)))
    cluster.hear(looked)
    cluster.hear(noticed(cluster.later(), FleetUpgraded(nodes=("n0", "n1"))))
    assert only(cluster.tick(), Prove).owed.keys() == {"n1"}


# --- spares --------------------------------------------------------------------------------


def with_spares(count, **changes):
    return replace(ACTING, spares={"h100": count}, **changes)


def test_spares_are_nodes_of_least_risk_that_are_proven_first():
    cluster = Cluster(policy=with_spares(2))
    risk = {f"n{i}": 0.5 for i in range(8)} | {"n3": 0.1, "n6": 0.2}
    commands = cluster.tick(**risk)
    assert {c.node for c in commands if isinstance(c, Cordon)} == {"n3", "n6"}
    cluster.answer(only(commands, Prove))
    cluster.look()
    assert Counter(cluster.state(node) for node in cluster.shown) == {
        State.SPARE: 2,
        State.IN_SERVICE: 6,
    }


def test_a_spare_takes_the_place_of_a_bad_node_and_is_replaced_itself():
    cluster = Cluster(policy=with_spares(1))
    cluster.answer(only(cluster.tick(n3=-1.0), Prove))
    cluster.look()
    commands = cluster.conclude(DEFECTIVE, "n0")
    swap = only(commands, Swap)
    assert (swap.node, swap.spare) == ("n0", "n3")
    assert only(commands, Release).node == "n3"
    cluster.look()
    assert cluster.state("n3") is State.IN_SERVICE
    assert only(cluster.tick(n5=-1.0), Cordon).node == "n5"


def test_a_spare_found_bad_by_the_same_campaign_replaces_no_node():
    cluster = Cluster(policy=with_spares(1))
    cluster.answer(only(cluster.tick(n3=-1.0), Prove))
    cluster.look()
    commands = cluster.conclude(DEFECTIVE, "n0", "n3")
    assert not [c for c in commands if isinstance(c, Swap | Release)]
    assert cluster.state("n3") is State.OUT


def test_a_spare_that_a_closed_breaker_brings_into_service_is_a_spare_no_more():
    cluster = Cluster(policy=with_spares(1, out_of_fleet=0.1, out_of_sku=0.1))
    cluster.answer(only(cluster.tick(n3=-1.0), Prove))
    cluster.look()
    cluster.conclude(DEFECTIVE, "n0")
    cluster.look()
    cluster.answer(only(cluster.tick(n4=-1.0), Prove))  # takes the place of n3
    cluster.look()
    cluster.conclude(DEFECTIVE, "n1")
    for scope in ("fleet", "sku h100"):
        close = OperatorSaid(order=Order.CLOSE, scope=scope)
        commands = cluster.hear(noticed(cluster.later(), close))
    assert only(commands, Swap).spare == "n4"
    assert not cluster.keeper.lives["n4"].is_reserve
    cluster.look()
    assert cluster.state("n4") is State.IN_SERVICE


def test_a_spare_that_replaces_a_node_is_not_cordoned_as_a_spare():
    cluster = Cluster(policy=with_spares(1))
    cluster.answer(only(cluster.tick(n0=-1.0), Prove))
    cluster.shown["n0"] = replace(cluster.shown["n0"], cordon=reason("X", "so it says"))
    cluster.look()
    at = cluster.later()  # the order to stay is overdue
    bad = VerdictReached(at=at, began=at, campaign="c", verdicts={"n4": DEFECTIVE})
    close = noticed(at, OperatorSaid(order=Order.CLOSE, scope="fleet"))  # is about all nodes
    commands = cluster.keeper.handle(close, bad, Waited(at=at))
    orders = [c for c in commands if isinstance(c, Cordon | Release) and c.node == "n0"]
    assert [type(order) for order in orders] == [Release]


def test_a_spare_that_a_person_cordoned_replaces_no_node():
    cluster = Cluster(policy=with_spares(1))
    cluster.answer(only(cluster.tick(n3=-1.0), Prove))
    cluster.shown["n3"] = replace(cluster.shown["n3"], cordon="memory swap, Jo")
    cluster.look()
    assert not [c for c in cluster.conclude(DEFECTIVE, "n0") if isinstance(c, Swap)]


@pytest.mark.parametrize("mode", [Mode.ACT, Mode.PROPOSE])
def test_a_spare_with_something_to_prove_takes_the_place_vacant_longest_once_it_has(mode):
    cluster = Cluster(policy=with_spares(1, swap=mode, hold_from=0.2))
    cluster.answer(only(cluster.tick(n3=-1.0), Prove))
    cluster.look()
    cluster.hear(noticed(cluster.later(), FleetUpgraded(nodes=("n3",))))
    assert cluster.state("n3") is State.SUSPECT
    cluster.hear(suspected(cluster.later(), "s", "n1"))
    cluster.look()
    commands = cluster.conclude(DEFECTIVE, "n1")
    by_wrong_clock = noticed(cluster.later() - 30 * DAY_S, RepairBegun(nodes=("n0",)))
    commands += cluster.hear(by_wrong_clock)
    assert cluster.state("n0") is State.REPAIRING
    assert not [c for c in [*commands, *cluster.look()] if isinstance(c, Swap)]
    swap = only(cluster.conclude(HEALTHY, "n3"), Swap)
    assert swap == Swap(mode=mode, node="n1", spare="n3")
    if mode is Mode.PROPOSE:
        assert only(cluster.look(), Swap) == swap  # until a person approves it
        assert not is_moot(swap, cluster.keeper.lives)
        _, commands = cluster.keeper.approve(swap, cluster.later())
        assert only(commands, Release).node == "n3"
    assert is_moot(swap, cluster.keeper.lives)
    assert not [c for c in [*cluster.look(), *cluster.tick()] if isinstance(c, Swap)]


# --- the breaker ---------------------------------------------------------------------------


def test_when_40_of_100_fail_at_once_a_share_is_taken_out_and_a_person_asked_once():
    cluster = Cluster(nodes=100, policy=replace(ACTING, out_of_fleet=0.05))
    commands = cluster.conclude(DEFECTIVE, *(f"n{i}" for i in range(40)))
    assert sum(isinstance(c, Cordon) for c in commands) == 5
    assert only(commands, Notify).sentence.startswith("5 of 100 nodes are out")
    for _ in range(5):
        cluster.look()
        assert not [c for c in cluster.tick() if isinstance(c, Cordon | Notify)]
    assert cluster.state("n39") is State.DRAINING  # wanted out, and never called in service
    close = noticed(cluster.later(), OperatorSaid(order=Order.CLOSE, scope="fleet"))
    assert sum(isinstance(c, Cordon) for c in cluster.hear(close)) == 5


def test_the_number_accepted_by_a_person_falls_with_the_number_of_nodes_out():
    cluster = Cluster(nodes=100, policy=replace(ACTING, out_of_fleet=0.05))
    bad = [f"n{i}" for i in range(40)]
    close = OperatorSaid(order=Order.CLOSE, scope="fleet")
    cluster.conclude(DEFECTIVE, *bad)
    for _ in range(8):
        cluster.hear(noticed(cluster.later(), close))
    cluster.look()
    assert len([node for node, seen in cluster.shown.items() if seen.cordon]) == 40
    cluster.conclude(HEALTHY, *bad[:30])
    assert cluster.keeper.breakers["fleet"].accepted == 10
    cluster.conclude(HEALTHY, *bad[30:])
    cluster.look()
    assert cluster.keeper.breakers["fleet"] == Breaker(accepted=0, is_open=False)
    assert sum(isinstance(c, Cordon) for c in cluster.conclude(DEFECTIVE, *bad)) == 5


def test_the_breaker_of_a_job_ends_with_the_job():
    cluster = Cluster(policy=replace(ACTING, out_of_job=0.1))
    job = JobAllocated(nodes=("n0", "n1"), job="7", duration_s=60)
    cluster.hear(noticed(cluster.later(), job))
    cluster.conclude(DEFECTIVE, "n0", "n1")
    assert cluster.keeper.breakers["job 7"].is_open
    cluster.hear(noticed(cluster.later(), JobEnded(nodes=("n0", "n1"), job="7")))
    cluster.tick()
    assert cluster.keeper.breakers == {}


def test_a_node_that_returns_with_our_cordon_counts_before_another_is_taken_out():
    cluster = Cluster(policy=replace(ACTING, out_of_fleet=0.1, out_of_sku=0.1))
    cluster.hear(noticed(cluster.later(), RepairBegun(nodes=("n1",))))
    cluster.look()
    cluster.hear(noticed(cluster.later(), NodeRemoved(nodes=("n0", "n1"))))
    cluster.conclude(DEFECTIVE, "n0")
    cluster.look()
    assert not cluster.shown["n0"].cordon
    assert cluster.keeper.breakers["fleet"].is_open


def test_only_a_sku_that_is_known_has_a_breaker():
    assert [*scopes(Life(node="n0", sku="h100", jobs={"7": 1.0}))] == ["fleet", "sku h100", "job 7"]
    assert [*scopes(Life(node="n0"))] == ["fleet"]


def test_one_node_of_a_small_fleet_may_always_be_taken_out():
    cluster = Cluster(nodes=2, policy=replace(ACTING, out_of_fleet=0.05, out_of_sku=0.05))
    assert only(cluster.conclude(DEFECTIVE, "n0"), Cordon).node == "n0"
    commands = cluster.conclude(DEFECTIVE, "n1")
    assert not [c for c in commands if isinstance(c, Cordon)]
    assert {c.subject for c in commands if isinstance(c, Notify)} == {"fleet", "sku h100"}


# --- maintenance ---------------------------------------------------------------------------


def maintain(cluster, *nodes):
    window = Window(name="fans", begin=0.0, end=math.inf, reason="new fans")
    maintained = dict.fromkeys(nodes, window)
    return cluster.hear(Waited(at=cluster.later(), maintained=maintained))


def test_under_maintenance_a_node_is_left_alone_and_counted_nowhere(cluster):
    assert not maintain(cluster, "n0", "n1")
    cluster.conclude(DEFECTIVE, "n0")
    cluster.hear(noticed(cluster.later(), FleetUpgraded(nodes=("n1",))))
    assert not [c for c in maintain(cluster, "n0", "n1") if isinstance(c, Cordon | Prove)]
    assert cluster.state("n0") is State.MAINTENANCE
    assert cluster.keeper.lives.count("fleet") == ScopeCount(among=6)
    commands = cluster.tick()
    assert only([c for c in commands if isinstance(c, Cordon)], Cordon).node == "n0"
    assert list(only([c for c in commands if isinstance(c, Prove)], Prove).owed) == ["n1"]


def test_a_node_that_was_away_in_a_maintenance_has_to_prove_itself(cluster):
    gone = {node: seen for node, seen in cluster.shown.items() if node != "n0"}
    maintain(cluster, "n0", "n1")
    cluster.hear(FleetSeen(at=cluster.later(1), nodes=gone))
    assert cluster.state("n0") is State.MAINTENANCE, "and not lost"
    cluster.hear(FleetSeen(at=cluster.later(1), nodes=dict(cluster.shown)))
    cluster.hear(Waited(at=cluster.later(1)))
    assert cluster.keeper.lives["n0"].is_new
    assert cluster.state("n1") is State.IN_SERVICE, "it answered all the time"


def test_a_spare_under_maintenance_is_none_and_another_one_comes_next():
    cluster = Cluster(policy=with_spares(1))
    cluster.answer(only([c for c in cluster.tick() if isinstance(c, Prove)], Prove))
    cluster.look()
    assert cluster.state() is State.SPARE
    maintain(cluster, "n0")
    assert cluster.keeper.lives["n1"].is_reserve
    assert not [c for c in cluster.conclude(DEFECTIVE, "n3") if isinstance(c, Swap)]


def test_a_node_that_others_keep_for_themselves_is_not_tested_nor_a_spare():
    cluster = Cluster(nodes=2, policy=with_spares(1))
    kept = SeenNode(sku="h100", is_free=False, meaning="reserved for others")
    cluster.shown["n0"] = kept
    cluster.look()
    assert list(only([c for c in cluster.tick() if isinstance(c, Prove)], Prove).owed) == ["n1"]
    cluster.hear(noticed(cluster.later(), FleetUpgraded(nodes=("n0",))))
    assert not [c for c in cluster.tick() if isinstance(c, Prove) and "n0" in c.owed]
    cordon = only([c for c in cluster.conclude(DEFECTIVE, "n0") if isinstance(c, Cordon)], Cordon)
    assert cordon.node == "n0", "what is bad is taken out all the same"


# --- whatever comes in whatever order ------------------------------------------------------


@pytest.mark.long
def test_the_invariants_of_the_keeper_hold_in_random_lives():
    """`scripts/studies/show-lives` plays more of them."""
    for seed in range(LIVES):
        with blaming(seed):
            live_by(seed)


# --- what an orchestrator shows again ------------------------------------------------------


class LookingAtAll(Keeper):
    """Takes all that is shown for news."""

    @staticmethod
    def shows_nothing_new(life, seen):
        return False


def known(keeper):
    return {node: life.confirm_at(keeper.seen_at) for node, life in keeper.lives.items()}


def random_news(rng, at, seen):
    """Random news, and what the orchestrator shows from then on."""
    shown = rng.choice([seen, seen, {}, {"n1": SeenNode()}, {"n1": SeenNode(jobs=("7",))}])
    told = at - rng.randint(-250, 250)  # a clock may be ahead
    events = [
        *[FleetSeen(at=at, nodes=shown)] * 4,
        noticed(told, JobAllocated(nodes=("n1",), job="7", duration_s=60.0)),
        noticed(told, JobEnded(nodes=("n1",), job="7")),
        noticed(told, NodeRemoved(nodes=("n1",))),
        noticed(told, NodeAdded(nodes=("n1",))),
    ]
    return rng.choice(events), shown


@pytest.mark.parametrize("seed", range(50))
def test_looks_at_changed_nodes_only_give_the_lives_of_looks_at_all_nodes(seed):
    rng, seen = random.Random(seed), {}
    quick, whole = Keeper(ACTING), LookingAtAll(ACTING)
    for at in range(100, 4000, 100):
        event, seen = random_news(rng, float(at), seen)
        assert quick.handle(event) == whole.handle(event)
        assert known(quick) == known(whole)
        lives, times = quick.lives.values(), (quick.seen_at, quick.waited_at)
        quick = Keeper(ACTING, lives, quick.breakers, *times)


def test_a_life_of_which_nothing_new_is_shown_stays_the_same():
    cluster = Cluster()
    cluster.shown["n1"] = SeenNode(sku="h100", jobs=("7",))
    cluster.look()
    before = dict(cluster.keeper.lives)
    cluster.look()
    cluster.tick()
    assert all(cluster.keeper.lives[node] is life for node, life in before.items())


# --- the reason that a node shows ----------------------------------------------------------


@pytest.mark.parametrize(
    "wrong", [{"tries": 0}, {"pause_s": -1}, {"resent_s": -1}, {"spares": {"h100": -1}}]
)
def test_a_policy_that_cannot_be_meant_is_refused(wrong):
    (name,) = wrong
    with pytest.raises(ValueError, match=name):
        KeepingPolicy(**wrong)


def test_a_reason_is_one_line_of_at_most_200_characters_and_known_again():
    text = reason("GEMM.TFLOPS", "slow:\n" + "12 % below normal, " * 30)
    assert text.startswith("anubis[GEMM.TFLOPS]: slow: 12 % below normal")
    assert len(text) == 200
    assert "\n" not in text
    assert is_ours(text)
    assert not is_ours("memory swap, Jo: see anubis[GEMM.TFLOPS]: slow")
    assert not reason("INCIDENT", 'since "gpu"').endswith('"'), "scontrol takes that away"


def test_a_cordon_is_obeyed_when_its_own_code_is_shown():
    order = Cordon(mode=Mode.ACT, node="n1", code="GEMM.SLOW", reason="slow")
    spare = Life(node="n1", cordon=reason("SPARE", "ready"), cordoned_by_anubis=True)
    assert not has_shown(order, spare)
    assert has_shown(order, replace(spare, cordon=reason("GEMM.SLOW", "slow")))
    by_hand = replace(spare, cordon="memory swap, Jo", cordoned_by_anubis=False)
    assert has_shown(order, by_hand)  # it is left as it is
