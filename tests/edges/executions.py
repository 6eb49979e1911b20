"""A campaign and its executions, made up: for tests of the history and for what they start."""

from __future__ import annotations

from typing import Any

import numpy as np

from anubis.core.records import (
    Campaign,
    CampaignKind,
    Ended,
    Execution,
    Node,
    Plan,
    Policy,
    Readings,
    Result,
    Series,
    Step,
    Workload,
)

GEMM = Workload.make("gemm", "1", {"size": 512})


def campaign(name: str = "c1", **changes: Any) -> Campaign:
    plan = Plan(suite="quick", nodes=(Node(name="n1", sku="x"),), phases=(), specs=())
    given = {"kind": CampaignKind.ACCEPT, "plan": plan, "policy": Policy(), "executor": "local"}
    return Campaign(**{"id": name, "created_at": 1.0, **given, **changes})


def execution(step: str = "gemm@1/n1", *numbers: float, attempt: int = 1) -> Execution:
    return Execution(
        step=Step(
            id=step,
            workload=GEMM,
            participants=("n1",),
            phase=0,
            repeat=0,
            timeout_s=60.0,
            exclusive=True,
        ),
        attempt=attempt,
        ended=Ended.MEASURED,
        final=True,
        result=Result(
            series=Readings.pack(
                [Series(metric="tflops", device="cpu", samples=np.array(numbers))]
            ),
            environment={"driver": "570.1", "gpus": 8},
        ),
    )
