"""The agent beside other programs: Prometheus reads its metrics, and its values agree with a real
load."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from string import Template

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from anubis.readers.telemetry.config import MetricSettings, shipped_settings
from anubis.text import places
from tests.edges import prometheus_server
from tests.edges.prometheus_server import free_port
from tests.edges.test_prometheus import answers
from tests.gpus.node import GpuNode, build_libraries
from tests.patience import LIMIT_S, eventually

AGENT = places.shipped_folder("benchmarks") / "telemetry"
# of node_exporter and dcgm-exporter, whose dashboards read them
FOREIGN_NAMES = re.compile(
    r'node_memory_\w+ metric names should be written in "?\'snake_case'
    r"|DCGM_FI_\w+ metric name should not include type"
)
PLANTED = {
    "NVML_duty_3": 60,
    **{f"NVML_gpm{number}": number for number in (1, 2, 5, 10, 11, 12, 13, 20, 21, 60, 61)},
}
ALIKE = {"cpu_use": 30, "memory_use": 2, "disk_use": 1}  # by so much they move between readings
MOVING = {"tcp_throughput", "throughput", "send_queue", "send_queue:worst"}


@contextmanager
def running(words, log: Path, **how):
    with log.open("wb") as file:
        process = subprocess.Popen(list(map(str, words)), stdout=file, stderr=file, **how)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(LIMIT_S)


def until(ready, process, log: Path) -> None:
    def is_ready() -> bool:
        with suppress(OSError):  # it does not listen yet
            return ready()
        return process.poll() is not None

    assert eventually(is_ready), log.read_text()[-2000:]
    assert process.poll() is None, log.read_text()[-2000:]


@pytest.fixture
def agent(tmp_path) -> Iterator[str]:
    """An agent on a node with eight GPUs and eight HCAs, none of which is there."""
    libraries, root = tmp_path / "driver", tmp_path / "node"
    libraries.mkdir()
    root.mkdir()
    if not build_libraries(libraries):
        pytest.skip("no compiler for the stand-in of NVML")
    node = GpuNode(root, libraries)
    node.plant_hcas()
    for port in root.glob("sys/devices/*/*/infiniband/*/ports/1"):
        (port / "hw_counters").mkdir()
        for name in ("np_ecn_marked_roce_packets", "np_cnp_sent", "rp_cnp_handled"):
            (port / "hw_counters" / name).write_text("0\n")
    (root / "proc/self").mkdir()
    (root / "proc/self/mounts").symlink_to("/proc/1/mounts")
    url, log = f"http://127.0.0.1:{free_port()}", tmp_path / "agent.log"
    words = [sys.executable, AGENT, f"--listen={url[7:]}", "--node=node7", "--proc=/proc"]
    with running(words, log, env=node.environment(**PLANTED)) as process:
        until(lambda: len(read(url, "/samples").splitlines()) > 2, process, log)
        yield url


def read(url: str, path: str, accept: str = "text/plain") -> str:
    request = urllib.request.Request(url + path, headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
        text: str = answer.read().decode()
    return text


def last_row(url: str) -> dict[str, float]:
    heading, *rows = (json.loads(line) for line in read(url, "/samples").split("\n") if line)
    values = dict(zip(heading["metrics"], rows[-1][1:], strict=True))
    return {metric: value for metric, value in values.items() if value is not None}


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not there")
def test_metrics_of_the_agent_are_valid_for_prometheus_and_openmetrics(agent):
    page = read(agent, "/metrics")
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=page, capture_output=True, text=True
    )
    complaints = (checked.stdout + checked.stderr).splitlines()
    assert not [line for line in complaints if not FOREIGN_NAMES.match(line)]
    families = text_string_to_metric_families(
        read(agent, "/metrics", "application/openmetrics-text")
    )
    kinds = {family.name: family.type for family in families}
    assert kinds["node_cpu_seconds"] == "counter"
    assert kinds["DCGM_FI_DEV_GPU_UTIL"] == "gauge"


def what_differs(url: str, agent: str) -> dict[str, tuple[float, object]]:
    """Series that do not change, and differ in the answers of Prometheus."""
    ours = {metric: value for metric, value in last_row(agent).items() if metric not in MOVING}
    theirs = {metric: asked(url, agent[7:], metric) for metric in ours}
    return {
        metric: (value, theirs[metric])
        for metric, value in ours.items()
        if theirs[metric] != pytest.approx(value, rel=1e-6, abs=ALIKE.get(metric, 0))
    }


@pytest.mark.long
@pytest.mark.skipif(not shutil.which("prometheus"), reason="no prometheus here")
def test_a_prometheus_that_scrapes_it_answers_the_shipped_queries_with_the_same_values(
    agent, tmp_path
):
    scrape = {"job_name": "agents", "static_configs": [{"targets": [agent[7:]]}]}
    settings = {"global": {"scrape_interval": "500ms"}, "scrape_configs": [scrape]}
    with prometheus_server.running(tmp_path, settings) as url:
        assert eventually(lambda: answers(url, "rate(node_cpu_seconds_total[4s])"))
        assert eventually(lambda: not what_differs(url, agent)), what_differs(url, agent)
        ours = last_row(agent)
    assert len(ours) >= 35
    assert ours["gpu_duty:worst"] == 0 < ours["gpu_duty"] == 7.5


def asked(url: str, instance: str, name: str) -> float | None:
    metric, _, worst = name.partition(":")
    settings = shipped_settings().settings_of(metric)
    values = [sample["value"] for sample in answers(url, filled(settings, instance, worst))]
    return float(values[0][1]) if len(values) == 1 else None


def filled(settings: MetricSettings, instance: str, worst: str) -> str:
    label = settings.node_label or "instance"
    return Template(settings.query).substitute(
        nodes=f'{label}="{"node7" if label == "Hostname" else instance}"',
        by=label,
        of=settings.aggregate_of_worst if worst else "avg",
        recent="15s",
        rate="4s",
    )
