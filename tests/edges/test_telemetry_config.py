"""The watched metrics and their sources: facts of metrics, declared once."""

from __future__ import annotations

import pytest

from anubis.config import configs
from anubis.core.errors import ConfigError, UsageError
from anubis.core.watch.telemetry import Side
from anubis.readers.telemetry.config import ORDER, shipped_settings

OWN = """summary: ours
based_on: default
node_label: nodename
prometheus: {url: "https://mimir.site/prometheus", headers: {X-Scope-OrgID: training}}
metrics:
"""


@pytest.fixture
def read(tmp_path):
    def settings(metrics, head=OWN):
        file = tmp_path / "own.yaml"
        file.write_text(head + metrics)
        return configs.telemetry(str(file))

    return settings


def test_the_seven_metrics_of_the_paper_come_first():
    watched = shipped_settings().watched_metrics()
    names = [metric.name for metric in watched]
    assert names[:3] == ["pfc_tx", "cpu_use", "gpu_duty"]
    assert names[3:7] == ["gpu_power", "gpu_graphics", "gpu_tensor", "nvlink_throughput"]
    assert tuple(names) == ORDER
    families = {metric.family for metric in watched}
    assert families == {"cpu", "gpu", "pfc", "throughput", "memory", "disk"}


def test_all_21_metrics_of_the_paper_and_one_more_are_declared_with_the_side_of_a_fault():
    sides = {entry.metric: entry.facts().fault for entry in shipped_settings().metrics}
    assert len(sides) == 21 + len(["send_queue"])
    high = {name for name, side in sides.items() if side is Side.HIGH}
    assert high == {"pfc_tx", "ecn", "cnp", "send_queue"}
    either = {name for name, side in sides.items() if side is Side.EITHER}
    assert either == {"disk_use", "gpu_temperature", "pcie_use"}


def test_a_share_cannot_leave_0_to_100_and_a_rate_has_no_limit_above():
    shipped = shipped_settings()
    limits = {metric.name: (metric.low, metric.high) for metric in shipped.watched_metrics()}
    assert limits["gpu_duty"] == (0, 100)
    assert limits["nvlink_throughput"] == (0, None)


@pytest.mark.parametrize(
    ("name", "aggregate"), [("gpu_duty", "min"), ("pfc_tx", "max"), ("gpu_temperature", "max")]
)
def test_the_worst_device_is_the_least_busy_one_or_the_one_with_most_errors(name, aggregate):
    shipped = shipped_settings()
    assert shipped.settings_of(f"{name}:worst").aggregate_of_worst == aggregate
    assert shipped.watched_metrics([f"{name}:worst"])[0].name == f"{name}:worst"


def test_a_metric_with_one_value_per_node_has_no_worst():
    with pytest.raises(UsageError, match='"cpu_use" is one value for a node'):
        shipped_settings().watched_metrics(["cpu_use:worst"])
    with pytest.raises(UsageError, match='did you mean "gpu_duty"'):
        shipped_settings().watched_metrics(["gpu_dutty"])


def test_a_site_states_only_its_differences(read):
    own = read("  - {metric: gpu_power, high: 700}\n")
    assert own.settings_of("gpu_power").high == 700
    assert own.settings_of("gpu_power").query == shipped_settings().settings_of("gpu_power").query
    assert own.node_label == "nodename"
    assert len(own.metrics) == len(shipped_settings().metrics)


def test_a_site_may_add_a_metric_of_its_own(read):
    own = read(
        "  - {metric: fan_speed, unit: rpm, fault: low, query: 'avg by ($by) (fan{$nodes})'}\n"
    )
    assert own.watched_metrics(["fan_speed"])[0].unit == "rpm"


@pytest.mark.parametrize(
    ("metrics", "sentence"),
    [
        ("  - {metric: gpu_dty, high: 99}\n", 'did you mean "gpu_duty"'),
        ("  - {metric: gpu_duty, hihg: 99}\n", 'did you mean "high"'),
        ("  - {metric: gpu_duty, query: 'up{$node}'}\n", 'did you mean "nodes"'),
        ("  - {metric: gpu_duty, query: up}\n", "would ask for the whole site"),
        ("  - {metric: gpu_duty, low: 200}\n", '"low" is 200'),
        ("  - gpu_duty\n", "expected a list of tables"),
        ("  - {metric: gpu_duty, fault: down}\n", "fault"),
    ],
)
def test_a_mistake_in_a_telemetry_file_is_one_sentence(read, metrics, sentence):
    with pytest.raises(ConfigError, match=sentence) as raised:
        read(metrics)
    assert "own.yaml" in str(raised.value)


def test_a_file_cannot_be_based_on_itself_or_on_nothing(read, tmp_path):
    (tmp_path / "other.yaml").write_text("based_on: own\nmetrics: []\n")
    with pytest.raises(ConfigError, match="based on itself"):
        read("  []\n", "based_on: other\nmetrics:\n")
    with pytest.raises(ConfigError, match='did you mean "default"'):
        read("  []\n", "based_on: defualt\nmetrics:\n")


def test_an_address_needs_its_scheme(read):
    with pytest.raises(ConfigError, match='expected one like "http://'):
        read("  []\n", "based_on: default\nprometheus: {url: 'mimir:9090'}\nmetrics:\n")
