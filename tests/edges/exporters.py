"""A real Prometheus with the metrics of some nodes, back-filled by promtool."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import contextmanager

import numpy as np
import pytest

from tests.edges import prometheus_server
from tests.patience import LIMIT_S

needs_prometheus = pytest.mark.skipif(
    not (shutil.which("prometheus") and shutil.which("promtool")), reason="no prometheus here"
)


def exported(telemetry, *, node_port=9100, gpus=2, cores=2, without=(), cumulative=np.cumsum):
    """Metrics as node_exporter and dcgm-exporter write it: processor time and pause frames as
    counters, GPUs one by one, around the mean of their node. `without`: pairs of a metric and a
    node."""
    lines = []
    for metric, values in zip(telemetry.metrics, telemetry.values.astype(float), strict=True):
        family, write = FAMILIES[metric.name]
        lines.append(f"# TYPE {family} {'counter' if write is _cpu else 'unknown'}")
        for node, row in zip(telemetry.nodes, values, strict=True):
            if (metric.name, node) not in without:
                lines += write(
                    metric.name, node, row, telemetry, node_port, (gpus, cores), cumulative
                )
    return "\n".join([*lines, "# EOF", ""])


def _cpu(_name, node, row, telemetry, port, devices, cumulative):
    idle = cumulative(np.nan_to_num(1 - row / 100) * telemetry.step_s)
    for core in range(devices[1]):
        where = f'node_cpu_seconds_total{{cpu="{core}",mode="idle",instance="{node}:{port}"}}'
        yield from _lines(where, idle, row, telemetry)


def _pfc(_name, node, row, telemetry, port, _devices, cumulative):
    total = cumulative(np.nan_to_num(row) * telemetry.step_s)
    where = f'node_ethtool_transmitted_prio3_pause{{device="eth0",instance="{node}:{port}"}}'
    yield from _lines(where, total, row, telemetry)


def _gpu(name, node, row, telemetry, _port, devices, _cumulative):
    field, scale = GAUGES[name]
    for gpu in range(devices[0]):
        apart = gpu - (devices[0] - 1) / 2  # the mean stays the node's
        where = f'{field}{{gpu="{gpu}",instance="10.0.0.1:9400",Hostname="{node}"}}'
        yield from _lines(where, (row + apart) / scale, row, telemetry)


def _lines(where, told, row, telemetry):
    for time_s, value, known in zip(telemetry.times, told, row, strict=True):
        if not np.isnan(known):
            yield f"{where} {float(value)!r} {time_s:.3f}"


GAUGES = {
    "gpu_duty": ("DCGM_FI_DEV_GPU_UTIL", 1),
    "gpu_power": ("DCGM_FI_DEV_POWER_USAGE", 1),
    "gpu_graphics": ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 100),
    "gpu_tensor": ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", 100),
    "nvlink_throughput": ("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", 1e6),
}
FAMILIES = {
    "cpu_use": ("node_cpu_seconds", _cpu),
    "pfc_tx": ("node_ethtool_transmitted_prio3_pause", _pfc),
    **{name: (field, _gpu) for name, (field, _) in GAUGES.items()},
}


@contextmanager
def prometheus(folder, text):
    """Its address, once it answers."""
    (folder / "told.om").write_text(text)
    words = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "told.om", "tsdb"]
    filled = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S)
    assert filled.returncode == 0, filled.stdout + filled.stderr
    with started(folder) as url:
        yield url


def started(folder):
    """Start a server on the blocks in a folder."""
    settings = {"global": {"scrape_interval": "1m"}}
    options = ["--storage.tsdb.retention.time=10y"]
    return prometheus_server.running(folder, settings, options=options)
