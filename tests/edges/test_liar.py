"""A GPU that computes a wrong number now and then, from `accept` to the gate that it passes again.

The fleet is in memory. What `sdc_screen` reports of each GPU is written by the program itself, from
what a screen has counted.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

from anubis.core.campaign.state_machine import Measured
from anubis.core.records import Readings, Result, Series
from anubis.reach.executors.simulated import SimulatedExecutor

NODES, GPUS = 3, 2
LIAR = ("node2", "cuda:1")
SEEN = {"check": "exact", "tile": [1, 2], "lane": 2, "bits": "0x10"}
CLUSTER = {
    "executor": "simulated",
    "fleet": {"nodes": f"node[1-{NODES}]", "devices": GPUS, "sku": "liars"}
    | dict.fromkeys(("slow_share", "crash_share", "hang_share", "lost_share"), 0.0),
}


@pytest.fixture
def errors(monkeypatch) -> list[dict[str, object]]:
    """List of errors of the liar, one for each of its next screens."""
    monkeypatch.syspath_prepend("benchmarks")
    contract, screening, sdc_screen = map(
        pytest.importorskip, ("contract", "kit.screening", "sdc_screen")
    )
    errors: list[dict[str, object]] = []

    def measurement(executor, step, spec, **about):
        report = contract.Report(frozenset({"agreement", "seen_once"}), frozenset({"seen_once"}))
        for gpu in (f"cuda:{number}" for number in range(GPUS)):
            ledger = screening.Ledger(seconds=step.workload.arguments["seconds"])
            ledger.compared["fp32/nn"], ledger.digests["fp32/nn"] = 1 << 22, "usual"
            if (*step.participants, gpu) == LIAR and errors:
                ledger.add("fp32/nn", [errors.pop()], returns=False)
            sdc_screen.show(report, gpu, ledger)
        sdc_screen.compare_siblings(report)
        series = [
            Series(metric=row["metric"], device=row["device"], samples=np.array(row["samples"]))
            for row in report.series
        ]
        return Measured(
            result=Result(series=Readings.pack(series), environment=report.notes), **about
        )

    monkeypatch.setattr(SimulatedExecutor, "_measurement", measurement)
    return errors


def test_a_gpu_that_erred_once_is_named_and_passes_only_after_19_times_as_long(near, errors):
    cluster = str(near.write("liars.yaml", CLUSTER))
    suites = {
        seconds: near.suite(
            {"benchmark": "sdc_screen", "parameters": {"seconds": float(seconds)}},
            name=f"screen{seconds}.yaml",
        )
        for seconds in (30, 540)
    }

    def run(verb, seconds, *words):
        done = near.run(verb, *words, "--cluster", cluster, "--suite", suites[seconds], "--json")
        return done.code, [json.loads(line) for line in done.out.splitlines()]

    errors.append(SEEN)
    _, lines = run("accept", 30)
    verdict = next(line for line in lines if line["type"] == "verdict")
    assert (lines[-1]["defective"], lines[-1]["unknown"]) == ([LIAR[0]], [])
    assert (verdict["node"], verdict["device"]) == LIAR
    assert verdict["code"] == "SDC_SCREEN.SEEN_ONCE.FP32/NN"
    for words in ("fp32/nn wrong (bits 0x10, tile 1,2, lane 2)", "gone after 570 s without"):
        assert words in verdict["reason"]

    for seconds, code in ((30, 1), (540, 0)):  # without an error: once as long, and 18 times
        assert run("accept", seconds)[0] == 0
        assert run("gate", 30, f"node[1-{NODES}]", "--duration", "24h", "--no-tests")[0] == code

    often = "2 times in 630 s, the others 0 in 3150 s with earlier runs"
    for words in (often, "too often for chance in 6 GPUs"):
        errors.append(SEEN)  # once in a campaign, and again in the next
        _, lines = run("accept", 30)
        assert words in next(line["reason"] for line in lines if line["type"] == "verdict")
