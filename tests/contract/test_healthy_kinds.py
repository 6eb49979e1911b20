"""No suite calls a healthy node defective, for each kind of NVIDIA's GPUs.

Each kind is four nodes that report the same, judged by the shipped policy. What a planted fault
comes to is in test_node_health.py and test_gpus.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from anubis.config import configs
from anubis.config.catalog import parse_description, parse_result
from anubis.core.campaign.planning import plan, steps
from anubis.core.judge.equality import ADVISED
from anubis.core.judge.judgement import assess
from anubis.core.judge.learning import learn_criteria
from anubis.core.judge.units import units
from anubis.core.records import Assessment, Ended, Execution, Judgement, Node, Suite, SuiteEntry
from tests.contract.conftest import BENCHMARKS
from tests.gpus import healthy_kinds
from tests.gpus.healthy_kinds import KINDS
from tests.gpus.node import GpuNode
from tests.patience import LIMIT_S

Reports = dict[str, dict[str, Any]]  # by program
ASLEEP = {kind for kind, planted in KINDS.items() if planted.get("persistence") == 0}
OF_DATA_CENTRES = {
    *("H200, persistence off", "Tesla T4", "A10", "L4, at its power cap"),
    "a GPU that is lent whole",
}


@pytest.fixture(scope="module")
def reported(tmp_path_factory, nvml_library) -> dict[str, Reports]:
    node = GpuNode(tmp_path_factory.mktemp("node"), nvml_library.parent, gpus=2)
    done = subprocess.run(
        [sys.executable, healthy_kinds.__file__],
        env=node.environment(PATH="/nowhere"),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=True,
    )
    answers: dict[str, Reports] = json.loads(done.stdout)
    return answers


@pytest.fixture(scope="module")
def specs():
    import gemm
    import node_config
    import node_health

    return {
        program.BENCHMARK.name: parse_description(
            json.dumps(program.BENCHMARK.describe()), BENCHMARKS / f"{program.__name__}.py"
        )
        for program in (node_config, node_health, gemm)
    }


def judged(reports: Reports, specs) -> Assessment:
    policy = configs.policy("default")
    entries = tuple(SuiteEntry(benchmark=name) for name in specs)
    nodes = [Node(name=f"n{number}", sku="kind") for number in range(4)]
    planned = plan(Suite(name="s", summary="", benchmarks=entries), nodes, specs)
    done = [
        Execution(
            step=step,
            attempt=1,
            ended=Ended.MEASURED,
            final=True,
            result=result_of(reports, specs[step.workload.benchmark]),
        )
        for phase in range(len(planned.phases))
        for step in steps(planned, phase, {node.name for node in nodes})
    ]
    found = units(done, planned)
    criteria = learn_criteria(found, policy, suite="s", anubis="0", created_at="now")
    rules = {"limits": policy.limits, "expectations": policy.expectations}
    return assess(found, done, planned, criteria, {}, **rules)


def result_of(reports: Reports, spec):
    document = {
        "schema": "anubis.result/1",
        "benchmark": spec.name,
        "version": spec.version,
        "parameters": {parameter.name: parameter.default for parameter in spec.parameters},
        "started_at": 0.0,
        "duration_s": 1.0,
        "not_applicable": None,
    }
    return parse_result(json.dumps(document | reports[spec.name]), spec)


@pytest.mark.parametrize("kind", KINDS)
def test_a_healthy_node_of_each_kind_is_healthy_with_its_advice(reported, specs, kind):
    found = judged(reported[kind], specs)
    assert [v.reason for v in found.alone if v.judgement is not Judgement.NOT_APPLICABLE] == []
    assert {node.judgement for node in found.nodes} == {Judgement.HEALTHY}
    advised = {batch.metric for batch in found.batch_verdicts if batch.code == ADVISED}
    assert advised == ({"persistence_mode"} if kind in OF_DATA_CENTRES else set())


def test_the_kinds_that_sleep_are_of_several_makes():
    assert OF_DATA_CENTRES < ASLEEP
    assert len(ASLEEP - OF_DATA_CENTRES) > 3
