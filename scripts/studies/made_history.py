"""Writes campaigns of made nodes into a history, for the benches of turns, gates and services."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from anubis.core.records import (
    Assessment,
    Campaign,
    CampaignKind,
    Ended,
    Execution,
    Judgement,
    Layout,
    Node,
    NodeVerdict,
    Plan,
    Policy,
    Readings,
    Result,
    Step,
    Workload,
)
from anubis.store.history import History

BENCHMARKS = ("gemm", "memory_bandwidth", "disk_io")
ONE_SAMPLE = Readings(Layout((("rate", "cpu", 1),)), np.array([1.0]))


def write_campaign(
    history: History,
    name: str,
    kind: CampaignKind,
    names: Sequence[str],
    at: float,
    bad_share: float,
    rng: random.Random,
) -> None:
    begin_campaign(history, name, kind, names, at)
    for benchmark in BENCHMARKS:
        load = Workload.make(benchmark, "1", {})
        history.executions.record(name, [execution(load, node, at) for node in names])
    verdicts = [verdict(node, is_bad=rng.random() < bad_share) for node in names]
    assessment = Assessment(alone=(), nodes=tuple(verdicts))
    history.assessments.conclude(name, assessment, (), finished_at=at + 3600)


def begin_campaign(
    history: History, name: str, kind: CampaignKind, names: Sequence[str], at: float
) -> None:
    nodes = tuple(Node(name=node, sku="x") for node in names)
    plan = Plan(suite="quick", nodes=nodes, phases=(), specs=())
    campaign = Campaign(
        id=name, kind=kind, plan=plan, policy=Policy(), executor="ray", created_at=at
    )
    history.campaigns.begin(campaign)


def execution(load: Workload, node: str, at: float, readings: Readings = ONE_SAMPLE) -> Execution:
    return Execution(
        step=Step(
            id=f"0.0.0/{load.benchmark}/{node}",
            workload=load,
            participants=(node,),
            phase=0,
            repeat=0,
            timeout_s=60.0,
            exclusive=True,
        ),
        attempt=1,
        ended=Ended.MEASURED,
        final=True,
        started_at=at,
        duration_s=5.0,
        result=Result(series=readings, environment={"driver": "570"}),
    )


def verdict(node: str, *, is_bad: bool) -> NodeVerdict:
    judgement = Judgement.DEFECTIVE if is_bad else Judgement.HEALTHY
    code = "GEMM.RATE" if is_bad else "OK"
    return NodeVerdict(node=node, judgement=judgement, code=code, reason="")
