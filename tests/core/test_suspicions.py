"""Suspicions: the hit rates of their sources, and the tests that they ask for."""

import math
from dataclasses import replace

import numpy as np
import pytest

from anubis.core.history.defects import Defect
from anubis.core.history.events import Debt, NodesSuspected, SuspicionRaised
from anubis.core.keep.commands import EndSuspicion, Mode, Outcome, Prove
from anubis.core.keep.life import Owed, Proof
from anubis.core.keep.suspicions import (
    HitRate,
    hit_rates,
    kept_suspicions,
    nodes_suspected,
    owed_for,
)
from anubis.core.records import SelectionPolicy
from anubis.core.select.decision import Outlook, decide
from anubis.core.select.selection import learn_detection

POLICY = SelectionPolicy(p0=0.01, prior=0.01, category_prior=0.01)


def ended(*outcomes, source="watch", category="gpu"):
    """Suspicions with the hit rate that follows from how they ended."""
    raised = [
        (
            f"s{i}",
            float(i),
            SuspicionRaised(nodes=("n1",), category=category, source=source),
        )
        for i in range(len(outcomes) + 1)
    ]
    ends = [
        (i + 0.5, EndSuspicion(id=f"s{i}", node="n1", outcome=outcome, reason=""))
        for i, outcome in enumerate(outcomes)
    ]
    return kept_suspicions(raised, ends)


HIT, MISS, NEITHER = Outcome.CONFIRMED, Outcome.REFUTED, Outcome.GIVEN_UP


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ([], 1 / 2),
        ([MISS], 1 / 3),
        ([MISS, MISS], 1 / 4),
        ([HIT], 2 / 3),
        ([HIT, MISS], 1 / 2),
        ([HIT, HIT, HIT, MISS], 4 / 6),
        ([NEITHER, NEITHER], 1 / 2),
    ],
)
def test_outcomes_of_suspicions_give_the_confidence_of_the_next(outcomes, expected):
    assert hit_rates(ended(*outcomes))["watch", "gpu"].confidence() == pytest.approx(expected)


def test_a_source_is_judged_by_each_kind_of_suspicion_for_itself():
    both = [*ended(MISS, MISS), *ended(HIT, category="network"), *ended(HIT, source="operator")]
    rates = hit_rates(both)
    assert rates["watch", "gpu"] == HitRate(misses=2)
    assert rates["watch", "network"] == HitRate(hits=1)
    assert rates["operator", "gpu"] == HitRate(hits=1)


def test_the_hit_rate_of_a_source_outweighs_its_own_confidence():
    assert HitRate().confidence(1.0) == 1
    assert HitRate(misses=2).confidence(1.0) == 1 / 2
    assert HitRate(misses=98).confidence(1.0) == pytest.approx(0.02)


def test_one_suspicion_of_two_nodes_is_two_that_end_each_for_itself():
    raised = SuspicionRaised(nodes=("n1", "n2"), category="gpu", source="watch")
    end = EndSuspicion(id="s", node="n2", outcome=HIT, reason="")
    first, second = kept_suspicions([("s", 1.0, raised)], [(2.0, end)])
    assert (first.outcome, second.outcome, second.ended_at) == (None, HIT, 2.0)


def test_a_suspicion_with_impossible_figures_is_refused():
    with pytest.raises(ValueError, match="outside 0 to 1"):
        SuspicionRaised(nodes=("n1",), category="gpu", source="x", mix={"gpu": -1.0})
    with pytest.raises(ValueError, match="a confidence of 2"):
        SuspicionRaised(nodes=("n1",), category="gpu", source="x", confidence=2.0)
    with pytest.raises(ValueError, match="or only zeros"):
        SuspicionRaised(nodes=("n1",), category="gpu", source="x", mix={"gpu": 0.0})


# --- which tests -----------------------------------------------------------------------------

FOUND = [  # gemm finds what is behind gpu, and so on; ten of each
    *(Defect(category="gpu", found_by=frozenset({"gemm"})) for _ in range(10)),
    *(Defect(category="network", found_by=frozenset({"loopback"})) for _ in range(10)),
    *(Defect(category="host", found_by=frozenset({"disk_io"})) for _ in range(10)),
]


def outlook(nodes=1, p=0.0):
    names = ("gemm", "loopback", "disk_io")
    return Outlook(
        probabilities=np.full(nodes, p),
        proven=np.zeros(nodes, dtype=bool),  # a suspicion lets no pass count
        mixes=[{}] * nodes,
        ages_s=np.full((nodes, 3), math.inf),
        detection=learn_detection(FOUND, names, prior=0.01, category_prior=0.01),
        durations_s=(60.0, 60.0, 60.0),
    )


def suspected(*mixes, confidence=0.5):
    nodes = tuple(f"n{i}" for i in range(len(mixes)))
    return NodesSuspected(
        nodes=nodes,
        mixes=dict(zip(nodes, mixes, strict=True)),
        confidences=dict.fromkeys(nodes, confidence),
    )


def test_each_node_is_tested_for_the_categories_of_its_suspicion():
    event = suspected({"gpu": 1.0}, {"network": 0.9, "host": 0.1})
    decision = decide(event, outlook(2), POLICY, at=0)
    tests = {test.benchmark: test.nodes for test in decision.tests}
    assert tests["gemm"] == ("n0",)
    assert tests["loopback"] == tests["disk_io"] == ("n1",)
    assert decision.category == "gpu"


def test_the_likeliest_is_looked_for_first():
    decision = decide(suspected({"host": 0.6, "gpu": 0.4}), outlook(), POLICY, at=0)
    assert [test.benchmark for test in decision.tests][:2] == ["disk_io", "gemm"]


@pytest.mark.parametrize(("p", "source"), [(0.0, 0.5), (0.2, 0.5), (0.3, 0.9), (1.0, 0.1)])
def test_the_risk_of_a_node_and_a_suspicion_of_it_add_up_as_independent_chances(p, source):
    decision = decide(suspected({"gpu": 1.0}, confidence=source), outlook(p=p), POLICY, at=0)
    assert decision.p == pytest.approx(1 - (1 - p) * (1 - source))


def test_a_source_that_was_hardly_ever_right_costs_a_node_no_test():
    unheard_of = decide(suspected({"gpu": 1.0}, confidence=0.005), outlook(), POLICY, at=0)
    assert unheard_of.tests == ()


# --- what a node owes ------------------------------------------------------------------------


def proving(*owed):
    return Prove(
        mode=Mode.ACT, id="t", proof=Proof.OF_CATEGORY, about="gpu", owed={"n1": tuple(owed)}
    )


def doubt(confidence, **mix):
    raised = SuspicionRaised(
        nodes=("n1",), category="gpu", source="watch", mix=mix, confidence=confidence
    )
    return owed_for(raised, "s", 1.0)


def test_several_suspicions_of_a_node_combine_as_if_one_may_be_right():
    event = nodes_suspected(proving(doubt(0.5, gpu=0.75, host=0.25), doubt(0.25, gpu=1.0)))
    assert event.confidences["n1"] == pytest.approx(1 - 0.5 * 0.75)
    assert event.mixes["n1"] == pytest.approx({"gpu": (0.375 + 0.25) / 0.75, "host": 0.125 / 0.75})


def test_beside_an_incident_a_suspicion_makes_no_defect_less_likely():
    incident = Owed(debt=Debt.INCIDENT, at=1.0, about="gpu")
    event = nodes_suspected(proving(doubt(0.1, host=1.0), incident))
    assert event.confidences["n1"] == 1
    assert event.mixes["n1"]["gpu"] == pytest.approx(1 / 1.1)


def test_a_suspicion_that_was_kept_before_there_was_a_confidence_presumes_a_defect():
    old = owed_for(SuspicionRaised(nodes=("n1",), category="gpu", source="watch"), "s", 1.0)
    event = nodes_suspected(proving(old))
    assert (event.confidences["n1"], event.mixes["n1"]) == (1.0, {"gpu": 1.0})


def test_debts_beside_suspicions_are_handled_as_before():
    assert nodes_suspected(proving(Owed(debt=Debt.INCIDENT, at=1.0, about="gpu"))) is None
    mixed = proving(doubt(0.5, gpu=1.0), Owed(debt=Debt.WORK, at=1.0))
    assert nodes_suspected(mixed).confidences == {"n1": 0.5}
    assert nodes_suspected(replace(mixed, owed={})) is None
