"""Records that can no longer be read are unknown, and defects found stay defects."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from anubis.core.campaign.planning import is_planned, steps
from anubis.core.judge.damaged_measurements import CODE, leave_out_damaged
from anubis.core.records import (
    Assessment,
    BatchVerdict,
    Judgement,
    Node,
    NodeVerdict,
    Phase,
    Plan,
    PlannedEntry,
    Step,
    Verdict,
    Workload,
)

GEMM, NCCL = Workload.make("gemm", "1", {"n": 8}), Workload.make("all_reduce", "1", {})


def step(workload: Workload, *nodes: str) -> Step:
    return Step(
        id="any",
        workload=workload,
        participants=nodes,
        phase=0,
        repeat=0,
        timeout_s=1.0,
        exclusive=True,
    )


def batch_verdict(workload: Workload, *groups: tuple[str, ...]) -> BatchVerdict:
    return BatchVerdict(
        benchmark=workload.benchmark,
        parameters=workload.parameters,
        metric="speed",
        judgement=Judgement.HEALTHY,
        code="OK",
        reason="like the fleet's",
        alpha=0.9,
        participants=groups,
        devices=("",) * len(groups),
        similarities=np.linspace(0.91, 0.99, len(groups)),
    )


def verdict(workload: Workload, node: str, judgement: Judgement, code: str) -> Verdict:
    return Verdict(
        participants=(node,),
        benchmark=workload.benchmark,
        parameters=workload.parameters,
        metric="speed",
        judgement=judgement,
        code=code,
        reason="",
    )


def assessed(*alone: Verdict, bad: str = "") -> Assessment:
    """Three nodes that were measured alone and in pairs."""
    names = ("n1", "n2", "n3")
    pairs = (("n1", "n2"), ("n1", "n3"), ("n2", "n3"))
    nodes = tuple(
        NodeVerdict(
            node=name,
            judgement=Judgement.DEFECTIVE if name == bad else Judgement.HEALTHY,
            code="GEMM" if name == bad else "OK",
            reason="",
        )
        for name in names
    )
    batch_verdicts = (
        batch_verdict(GEMM, *((name,) for name in names)),
        batch_verdict(NCCL, *pairs),
    )
    return Assessment(alone=alone, batch_verdicts=batch_verdicts, nodes=nodes)


def codes(assessment: Assessment) -> dict[str, str]:
    return {node.node: node.code for node in assessment.nodes}


def test_an_assessment_without_damaged_records_stays_as_it_is():
    whole = assessed()
    assert leave_out_damaged(whole, []) is whole


def test_only_the_unit_and_the_node_of_a_damaged_step_become_unknown():
    left = leave_out_damaged(assessed(), [step(GEMM, "n2"), step(GEMM, "n2")])
    assert codes(left) == {"n1": "OK", "n2": CODE, "n3": "OK"}
    assert left.judgement is Judgement.UNKNOWN
    alone, together = left.batch_verdicts
    assert [*zip(alone.participants, alone.similarities.tolist(), strict=True)] == [
        (("n1",), 0.91),
        (("n3",), 0.99),
    ]
    assert len(together) == 3
    assert [(v.participants, v.judgement) for v in left.alone] == [(("n2",), Judgement.UNKNOWN)]
    assert left.parts == ()


def test_other_parameters_of_the_same_program_are_another_unit():
    left = leave_out_damaged(assessed(), [step(Workload.make("gemm", "1", {"n": 9}), "n2")])
    assert len(left.batch_verdicts[0]) == 3
    assert codes(left)["n2"] == CODE


def test_a_damaged_group_leaves_the_path_between_its_nodes_unknown_and_the_nodes_as_they_are():
    left = leave_out_damaged(assessed(), [step(NCCL, "n1", "n3")])
    assert codes(left) == {"n1": "OK", "n2": "OK", "n3": "OK"}
    assert [(part.nodes, part.judgement) for part in left.parts] == [
        (("n1", "n3"), Judgement.UNKNOWN)
    ]
    assert left.judgement is Judgement.UNKNOWN


@pytest.mark.parametrize("is_in_a_batch_verdict", [False, True])
def test_a_defect_found_stays_a_defect_though_other_records_are_damaged(is_in_a_batch_verdict):
    bad = verdict(GEMM, "n2", Judgement.DEFECTIVE, "GEMM.SPEED")
    unsure = verdict(GEMM, "n1", Judgement.UNKNOWN, "UNSTABLE")
    whole = assessed(bad, unsure, bad="n2")
    if is_in_a_batch_verdict:
        found = replace(whole.batch_verdicts[0], judgement=Judgement.DEFECTIVE)
        whole = replace(whole, batch_verdicts=(found,), alone=(unsure,))
    left = leave_out_damaged(whole, [step(GEMM, "n1"), step(GEMM, "n2")])
    assert codes(left) == {"n1": CODE, "n2": "GEMM", "n3": "OK"}
    assert left.judgement is Judgement.DEFECTIVE
    verdicts = [(v.participants, v.code) for v in left.alone]
    assert (("n1",), "UNSTABLE") not in verdicts
    assert (verdicts[0] == (("n2",), "GEMM.SPEED")) is not is_in_a_batch_verdict
    if is_in_a_batch_verdict:
        assert len(left.batch_verdicts[0]) == 3


def test_a_damaged_step_names_its_nodes_only_if_all_its_fields_fit_the_plan():
    entries = tuple(
        PlannedEntry(
            workload=workload,
            scope=scope,
            repeats=2,
            duration_s=1.0,
            timeout_s=1.0,
            exclusive=True,
            groups="pairs",
            rounds=None,
            min_nodes=1,
        )
        for workload, scope in ((GEMM, "node"), (NCCL, "pair"))
    )
    nodes = tuple(Node(name=f"n{i}", sku="x") for i in (1, 2, 3))
    phases = (Phase(name="both", entries=entries),)
    plan = Plan(suite="q", nodes=nodes, phases=phases, specs=())
    planned = list(steps(plan, 0, [node.name for node in nodes]))
    assert len(planned) == 2 * 3 + 2 * 3
    for right in planned:
        assert is_planned(plan, right)
        wrong = (
            replace(right, participants=("n9",)),
            replace(right, participants=("n3", "n1", "n2")),
            replace(right, workload=Workload.make("gemm", "1", {})),
            replace(right, phase=1),
            replace(right, repeat=3),
            replace(right, id=right.id.replace("n", "m")),
            replace(right, id=right.id.replace("0.", "7.", 1)),
            replace(right, id="n1"),
            replace(right, id="0.9.0/gemm/n1"),
        )
        assert not any(is_planned(plan, step) for step in wrong)
