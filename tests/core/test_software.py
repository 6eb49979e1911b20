"""Versions of drivers and libraries: kept with what is learned, and told where they moved."""

from __future__ import annotations

from anubis.core.judge.equality import differences, versions
from anubis.core.records import (
    CriteriaSet,
    Ended,
    Execution,
    Node,
    Plan,
    Provenance,
    Result,
    Step,
    Workload,
)

PLAN = Plan(
    suite="s",
    nodes=tuple(Node(name=name, sku=name[0]) for name in ("a1", "a2", "b1")),
    phases=(),
    specs=(),
)


def ran(node: str, **environment: str) -> Execution:
    step = Step(
        id=node, workload=Workload.make("gemm", "1", {}), participants=(node,), phase=0, repeat=0,
        timeout_s=1.0, exclusive=True,
    )  # fmt: skip
    result = Result(environment=environment)
    return Execution(step=step, attempt=1, ended=Ended.MEASURED, final=True, result=result)


def learned(sku: str, **known: str) -> CriteriaSet:
    origin = Provenance(suite="s", anubis="1", digest="", created_at="", versions=known)
    return CriteriaSet(sku=sku, criteria=(), provenance=origin)


def test_each_kind_of_node_has_the_versions_that_its_nodes_reported():
    executions = [
        ran("a1", driver="550", cuda="12.4", cpu="any"),
        ran("a2", driver="560", nccl="2.21", cudnn="9.1.0"),
        ran("b1"),
    ]
    assert versions(executions, PLAN) == {
        "a": {"driver": "550, 560", "cuda": "12.4", "nccl": "2.21", "cudnn": "9.1.0"}
    }


def test_only_a_version_that_moved_since_learning_is_told():
    now = versions([ran("a1", driver="560", cuda="12.4", nccl="2.21")], PLAN)
    (sentence,) = differences([learned("a", driver="550", cuda="12.4")], now)
    assert sentence.startswith('driver of a is "560", its criteria were learned with "550"')
    assert not list(differences([learned("a"), learned("b", driver="1")], now))
