"""What to do about a verdict: for every code there is, and by the most specific rule."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from anubis.config import catalog, configs
from anubis.core.judge.limits import remedy_of
from anubis.core.records import Limit, Policy, Remedy

ROOT = Path(__file__).parents[2]
NOTHING_TO_DO = {"OK", "NOT-APPLICABLE"}


def codes_of_programs() -> set[str]:
    shipped = catalog.load(catalog.folders()).specs.values()
    metrics = {f"{spec.name}.{metric.name}" for spec in shipped for metric in spec.metrics}
    failures = {f"{spec.name}.{failure}" for spec in shipped for failure in ("crash", "hang")}
    return {code.upper() for code in metrics | failures}


def codes_in_the_documentation() -> set[str]:
    table = (ROOT / "docs" / "output.md").read_text().partition("## Codes")[2]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    codes = set()
    for row in rows:
        first, *others = re.findall(r"`([A-Z.-]+)`", row)
        family = first.partition(".")[0]
        codes |= {first, *(family + code if code.startswith(".") else code for code in others)}
    return {code for code in codes if not code.startswith("BENCHMARK.")} - NOTHING_TO_DO


def test_shipped_remedies_say_what_to_do_about_every_code():
    policy = configs.policy("default")
    codes = codes_in_the_documentation() | codes_of_programs()
    assert {"NETWORK.UPLINKS", "WIRING.SLOW", "NODE-LOST", "GEMM.HANG"} <= codes
    assert sorted(code for code in codes if remedy_of(code, policy) is None) == []


def test_of_several_remedies_that_fit_the_last_counts():
    site = Remedy(codes=("GEMM.*",), action="call the hall team")
    policy = Policy(remedies=(Remedy(codes=("GEMM.TFLOPS", "*"), action="reset it"), site))
    assert remedy_of("GEMM.TFLOPS", policy) == site
    assert remedy_of("DISK_IO.READ", policy).action == "reset it"
    assert remedy_of("DISK_IO.READ", Policy()) is None


@pytest.mark.parametrize(
    ("code", "action"),
    [
        ("NODE_HEALTH.XIDS.79", "restart"),
        ("NODE_HEALTH.XIDS.48", "look it up"),
        ("NODE_HEALTH.XIDS_SEEN", "compare"),  # a name that begins alike is another metric
        ("GEMM.AGREEMENT", "take it out"),  # of every program
        ("TRAIN_CNN.AGREEMENT.BF16", "train again"),  # its own goes before that of every program
    ],
)
def test_the_action_of_the_limit_goes_first_the_nearest_one_before_its_family(code, action):
    def limit(benchmark: str, metric: str, action: str) -> Limit:
        return Limit(benchmark=benchmark, metric=metric, at_most=0, source="us", action=action)

    policy = Policy(
        limits=(
            limit("node_health", "xids:79", "restart"),
            limit("node_health", "xids", "look it up"),
            limit("*", "agreement", "take it out"),
            limit("*", "agreement:bf16", "take it out by all means"),
            limit("train_cnn", "agreement", "train again"),
        ),
        remedies=(Remedy(codes=("*",), action="compare", evidence="the kernel log"),),
    )
    remedy = remedy_of(code, policy)
    assert (remedy.action, remedy.evidence) == (action, "the kernel log")
