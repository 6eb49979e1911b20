"""The shipped configs: all load, all have their described values, and the examples show every
key."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
import yaml
from fleets import SPECS

from anubis.config import catalog, configs
from anubis.core.campaign import planning
from anubis.core.diagnose.cures import DiagnosisPolicy
from anubis.core.diagnose.error_classes import ErrorClass, ErrorClasses
from anubis.core.errors import ConfigError
from anubis.core.judge.equality import NodeSettings, judge_settings
from anubis.core.judge.sentences import metric_words
from anubis.core.keep.keeping_policy import CriteriaTask, KeepingPolicy, RiskTask, SweepTask
from anubis.core.records import (
    Expectation,
    Limit,
    Node,
    Policy,
    Remedy,
    SelectionPolicy,
    Step,
    SuiteEntry,
    Workload,
    canonical,
)
from anubis.core.watch.watch_settings import WatchPolicy
from anubis.lab.simulation import simulated_fleet
from anubis.lab.simulation.simulated_fleet import SimulatedFleet
from anubis.lab.study.incidents import Category
from anubis.lab.study.scenario import Jobs, RepairTimes, Scenario, Variations
from anubis.operations.campaign_files import Setting, read_setting
from anubis.operations.topology import survey
from anubis.reach.executors.start_settings import PodSettings
from anubis.reach.notifiers.webhook import WebhookSettings
from anubis.reach.orchestrators.hosts import HostsSettings
from anubis.reach.orchestrators.kubernetes_settings import KubernetesSettings
from anubis.reach.orchestrators.pod_gate import PodGate
from anubis.reach.orchestrators.slurm import SlurmSettings
from anubis.readers.incidents.incident_mapping import EventMapping, IntervalMapping
from anubis.readers.telemetry.config import (
    AgentSettings,
    MetricSettings,
    PrometheusSettings,
    TelemetrySettings,
)
from anubis.readers.topology.written import Links, Rack, Written, WrittenDomain

ROOT = Path(__file__).parents[1]
LOADERS = {
    "clusters": configs.cluster,
    "incidents": configs.incident_mapping,
    "orchestrators": configs.orchestrator,
    "suites": configs.suite,
    "policies": configs.policy,
    "expectations": configs.expectations,
    "remedies": configs.remedies,
    "limits": configs.limits,
    "keeping": configs.keeping,
    "simulations": configs.simulation,
    "telemetry": configs.telemetry,
    "watching": configs.watching,
    "pod-gates": configs.pod_gate,
    "diagnosis": configs.diagnosis,
    "notifiers": configs.notifier,
    "classes": configs.error_classes,
    "topologies": lambda name: survey(name, None),
}
FOREIGN = {"kubernetes", "prometheus"}  # what others read: tests of their own
FILES = sorted(
    file for file in (ROOT / "configs").rglob("*.yaml") if file.parent.name not in FOREIGN
)
EXAMPLES = {  # the commented one of each kind of file, and the records whose keys it shows
    "clusters/local.yaml": [configs.LocalCluster],
    "clusters/ray.yaml": [configs.RayCluster],
    "clusters/ssh.yaml": [],
    "clusters/slurm.yaml": [],
    "clusters/kubernetes.yaml": [PodSettings],
    "clusters/simulated.yaml": [configs.SimulatedCluster, SimulatedFleet],
    "orchestrators/hosts.yaml": [HostsSettings],
    "orchestrators/slurm.yaml": [SlurmSettings],
    "orchestrators/kubernetes.yaml": [KubernetesSettings],
    "suites/quick.yaml": [SuiteEntry],
    "incidents/lanl.yaml": [IntervalMapping],
    "incidents/events.yaml": [EventMapping],
    "policies/default.yaml": [Policy, SelectionPolicy],
    "policies/limits/node_health.yaml": [Limit],
    "policies/expectations/node_config.yaml": [Expectation],
    "policies/remedies/default.yaml": [Remedy],
    "keeping/default.yaml": [KeepingPolicy, SweepTask, CriteriaTask, RiskTask],
    "simulations/example.yaml": [Scenario, Jobs, RepairTimes, Variations, Category],
    "telemetry/default.yaml": [
        TelemetrySettings,
        MetricSettings,
        PrometheusSettings,
        AgentSettings,
    ],
    "watching/default.yaml": [WatchPolicy],
    "diagnosis/default.yaml": [DiagnosisPolicy],
    "pod-gates/default.yaml": [PodGate],
    "notifiers/plain.yaml": [WebhookSettings],
    "classes/default.yaml": [ErrorClasses, ErrorClass],
    "topologies/example.yaml": [Written, Rack, Links, WrittenDomain],
}
SISTERS = {  # with other keys
    "clusters/ray.yaml": [f"clusters/{way}.yaml" for way in ("ssh", "slurm", "kubernetes")]
}
NOT_KEYS = {"table"}  # of a limit: it follows from the file it stands in
SETTING = re.compile(r"^# ([a-z_]+: \S.*)$", re.MULTILINE)  # a key that is commented out


@pytest.fixture(scope="module")
def specs():
    return catalog.load(catalog.folders()).specs


def test_each_metric_of_our_programs_has_words(specs):
    told_otherwise = {"agreement", "settings", "settings_unread"}  # by sentences of their own
    metrics = {(spec.name, metric.name) for spec in specs.values() for metric in spec.metrics}
    raw = {pair for pair in metrics if not metric_words(*pair) and pair[1] not in told_otherwise}
    assert not raw


def test_trouble_planted_in_a_program_shows_in_its_report(specs):
    fleet = SimulatedFleet(nodes="n1")

    def report(spec, planted):
        workload = Workload(benchmark=spec.name, version=spec.version, parameters="{}")
        step = Step(
            id="0.0.0", workload=workload, participants=("n1",), phase=0, repeat=0,
            timeout_s=60.0, exclusive=True,
        )  # fmt: skip
        measured = simulated_fleet.measure(fleet, planted, step, spec)
        return measured.values.tolist(), simulated_fleet.settings(planted, step, spec)

    alone = [spec for spec in specs.values() if spec.scope == "node"]
    silent = [
        spec.name
        for spec in alone
        if report(spec, {}) == report(spec, {"n1": simulated_fleet.Plant("slow", spec.name)})
    ]
    assert alone
    assert not silent


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_every_shipped_file_loads_by_its_path_and_by_its_name(file):
    load = LOADERS[file.parent.name]
    assert load(str(file)) == load(file.stem)


def test_every_kind_of_file_is_shipped():
    assert {file.parent.name for file in FILES} == set(LOADERS)


@pytest.mark.parametrize(("name", "records"), EXAMPLES.items(), ids=EXAMPLES.keys())
def test_each_example_shows_every_key_there_is(name, records):
    text = "".join(
        (ROOT / "configs" / shown).read_text() for shown in (name, *SISTERS.get(name, []))
    )
    for record in records:
        for field in dataclasses.fields(record):
            if field.name in NOT_KEYS:
                continue
            assert re.search(rf"^[#\s-]*{field.name}:|[{{,] ?{field.name}:", text, re.MULTILINE), (
                field.name
            )


@pytest.mark.parametrize("name", EXAMPLES)
def test_each_example_is_commented_and_its_commented_settings_load(name, tmp_path):
    text = (ROOT / "configs" / name).read_text()
    assert text.startswith("# ")
    assert text.count("#") >= 3
    file = tmp_path / "uncommented.yaml"
    file.write_text(SETTING.sub(r"\1", text))
    LOADERS[Path(name).parent.name](str(file))


def test_the_default_policy_is_the_default():
    assert configs.policy("default") == Policy(
        limits=configs.limits("node_health")
        + configs.limits("dcgm_diag")
        + configs.limits("answers")
        + configs.limits("under_load")
        + configs.limits("sdc_screen"),
        expectations=configs.expectations("node_config"),
        remedies=configs.remedies("default"),
    )


@pytest.mark.parametrize(
    ("suite", "limit_s"),
    [
        ("light", 60),
        ("quick", 2 * 60),
        ("delivery", 10 * 60),
        ("medium", 15 * 60),
        ("stress", 6.5 * 3600),
    ],
)
def test_a_suite_keeps_its_promise_of_time_on_one_node(specs, suite, limit_s):
    entries = configs.suite(suite).leave_out(repaired=False)
    plan = planning.plan(entries, [Node(name="n1", sku="any")], specs)
    costs = [planning.estimate(plan, phase, None) for phase in range(len(plan.phases))]
    assert 0 < sum(cost.duration_s for cost in costs) <= limit_s


@pytest.mark.parametrize("suite", [file.stem for file in FILES if file.parent.name == "suites"])
def test_every_suite_fits_the_shipped_programs(specs, suite):
    nodes = [Node(name=f"n{number}", sku="any") for number in range(4)]
    plan = planning.plan(configs.suite(suite), nodes, specs)
    assert not plan.left_out


def test_the_papers_scenario_has_the_published_set_up():
    paper = configs.simulation("paper")
    assert (paper.nodes, paper.days) == (1000, 4 * 30)
    assert (paper.repair.incident_h, paper.repair.defect_h) == (1.5 * 24, 1)
    assert paper.incident_costs_h == paper.repair.incident_h


def test_nothing_in_a_file_is_hidden_from_a_reader_of_plain_yaml():
    """No merge keys, anchors or tags: the text means exactly what it says."""
    for file in FILES:
        for token in yaml.scan(file.read_text()):
            assert not isinstance(token, yaml.AnchorToken | yaml.AliasToken | yaml.TagToken)


def test_variables_of_a_suite_apply_to_its_entries_and_are_part_of_their_workload(tmp_path):
    file = tmp_path / "own.yaml"
    file.write_text(
        "summary: NCCL in two ways\n"
        "env: {NCCL_ALGO: Ring, NCCL_DEBUG: WARN}\n"
        "benchmarks: [{benchmark: compute}, {benchmark: compute, env: {NCCL_ALGO: Tree}}]\n"
    )
    (phase,) = planning.plan(configs.suite(str(file)), [Node(name="n0", sku="x")], SPECS).phases
    ring, tree = (entry.workload.arguments for entry in phase.entries)
    assert (ring["env.NCCL_ALGO"], ring["env.NCCL_DEBUG"]) == ("Ring", "WARN")
    assert tree == {**ring, "env.NCCL_ALGO": "Tree"}
    file.write_text("summary: x\nenv: {NCCL ALGO: Ring}\nbenchmarks: [{benchmark: compute}]\n")
    with pytest.raises(ConfigError, match='env has "NCCL ALGO"'):
        configs.suite(str(file))


@pytest.mark.parametrize("name", [file.stem for file in FILES if file.parent.name == "clusters"])
@pytest.mark.parametrize("owner", ["", "hosts", "kubernetes", "slurm"])
def test_a_campaign_reads_back_the_cluster_that_it_kept(name, owner):
    cluster = configs.cluster(name)
    if owner and not isinstance(cluster, configs.SimulatedCluster):
        cluster = dataclasses.replace(cluster, orchestrator=configs.orchestrator(owner))
    setting = Setting(cluster=cluster, folders=("/programs",), by="Jo")
    assert read_setting(canonical(dataclasses.asdict(setting))) == setting


@pytest.mark.parametrize(
    ("mode", "kind", "is_told"),
    [
        ("off", "data centre", True),
        ("off", "workstation", False),
        ("off, nvidia-persistenced runs", "data centre", False),
        ("on", "data centre", False),
    ],
)
def test_persistence_switched_off_is_advised_against_on_gpus_of_data_centres_and_no_defect(
    mode, kind, is_told
):
    votes = [
        NodeSettings(
            node=f"n{number}",
            sku="h100-8x",
            workload=Workload.make("node_config", "1", {}),
            texts={"persistence_mode": {"cuda:0": mode}, "gpu_kind": {"cuda:0": kind}},
        )
        for number in range(4)
    ]
    batches, alone = judge_settings(votes, configs.expectations("node_config"))
    assert not alone
    assert ("ADVISED" in {batch.code for batch in batches}) == is_told
