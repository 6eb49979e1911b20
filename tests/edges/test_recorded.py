"""Recorded telemetry: tables and OpenMetrics, good, odd and hostile."""

from __future__ import annotations

import csv
import gzip
import io
import math

import numpy as np
import pytest

from anubis.core.errors import TelemetryError, UsageError
from anubis.core.watch.telemetry import Telemetry
from anubis.readers.telemetry.config import shipped_settings
from anubis.readers.telemetry.recorded import read_recording, write_recording

SETTINGS = shipped_settings()
NAMES = ("gpu_duty", "pfc_tx")
START = 1_700_000_000
LONG = "time,node,metric,value\n"


def made(nodes=5, points=60):
    random = np.random.default_rng(3)
    values = random.normal(50, 5, size=(2, nodes, points)).astype(np.float32)
    values[0, 1, 20:50] = np.nan  # a gap
    values[1, 2, 40:] = np.nan  # a series that ended
    return Telemetry(
        metrics=SETTINGS.watched_metrics(NAMES),
        nodes=tuple(f"node{n}" for n in range(nodes)),
        start=float(START),
        step_s=1.0,
        values=values,
    )


@pytest.fixture
def read(tmp_path):
    def recording(content, name="r.csv", **how):
        file = tmp_path / name
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return read_recording(file, SETTINGS, NAMES, **how)

    return recording


@pytest.mark.parametrize("name", ["r.parquet", "r.csv", "r.csv.gz"])
def test_a_written_recording_is_read_back_equal(tmp_path, name):
    telemetry, file = made(), tmp_path / name
    write_recording(telemetry, file)
    again = read_recording(file, SETTINGS, NAMES).telemetry
    assert again.nodes == telemetry.nodes
    assert (again.start, again.step_s) == (telemetry.start, 1.0)
    np.testing.assert_array_equal(again.values, telemetry.values)


def long_lines(telemetry):
    """Lines by Python's own csv module, in the order of time."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["time", "node", "metric", "value"])
    for point, time in enumerate(telemetry.times):
        for row, node in enumerate(telemetry.nodes):
            for place, metric in enumerate(telemetry.metrics):
                value = float(telemetry.values[place, row, point])
                if not math.isnan(value):
                    writer.writerow([time, node, metric.name, repr(value)])
    return text.getvalue()


def openmetrics(telemetry, label="instance", port=":9100"):
    lines = [
        f'{metric.name}{{{label}="{node}{port}"}} {float(value)!r} {time:.3f}'
        for place, metric in enumerate(telemetry.metrics)
        for row, node in enumerate(telemetry.nodes)
        for time, value in zip(telemetry.times, telemetry.values[place, row], strict=True)
    ]
    return "\n".join(["# TYPE gpu_duty gauge", *lines, "# EOF", ""])


@pytest.mark.parametrize(("form", "name"), [(long_lines, "r.csv"), (openmetrics, "r.prom")])
def test_each_form_of_recording_has_the_same_telemetry(read, form, name):
    telemetry = made()
    again = read(form(telemetry), name).telemetry
    np.testing.assert_array_equal(again.only(telemetry.nodes).values, telemetry.values)


def test_only_the_requested_nodes_of_a_recording_are_read(read):
    telemetry = made()
    again = read(long_lines(telemetry), nodes=["node3", "node0"]).telemetry
    assert again.nodes == ("node3", "node0")
    np.testing.assert_array_equal(again.values, telemetry.only(again.nodes).values)


def test_times_may_be_milliseconds_or_dates(read):
    line = "{},n1,gpu_duty,5\n{},n1,gpu_duty,6\n"
    for first, second in (
        (START, START + 1),
        (START * 1000, START * 1000 + 1000),
        ("2023-11-14T22:13:20Z", "2023-11-14T22:13:21Z"),
        ("2023-11-14 22:13:20", "2023-11-14 22:13:21"),
        ("2023-11-14T23:13:20+01:00", "2023-11-14T23:13:21+01:00"),
    ):
        assert read(LONG + line.format(first, second)).telemetry.start == START


def test_a_counter_in_openmetrics_is_read_as_its_rate(read):
    counts = [100, 160, 220, 30, 90]
    text = "# TYPE pfc_tx counter\n" + "".join(
        f'pfc_tx_total{{node="n1"}} {count} {START + 10 * time}\n'
        for time, count in enumerate(counts)
    )
    assert read(text, "r.prom").telemetry.series("pfc_tx")[0].tolist() == [6, 6, 3, 6]


def test_samples_every_15_seconds_make_a_grid_of_15_seconds(read):
    lines = "".join(f"{START + 15 * i + i % 3 / 10},n1,gpu_duty,{i}\n" for i in range(20))
    telemetry = read(LONG + lines).telemetry
    assert telemetry.step_s == 15
    assert not np.isnan(telemetry.series("gpu_duty")).any()


def test_missing_rows_and_metrics_are_remarked(read):
    remarks = read(LONG + f"{START},n1,gpu_duty,5\n{START + 1},n1,gpu_duty,5\n,n1,gpu_duty,5\n")
    rows, pfc = remarks.remarks
    assert rows == "1 of 3 rows name no node or no time, and are left out"
    assert pfc.startswith("no node reports pfc_tx; it needs node_exporter with --collector.ethtool")


def test_one_wrong_time_does_not_stretch_the_grid(read):
    lines = "".join(f"{START + i},n1,gpu_duty,5\n" for i in range(9))
    assert read(LONG + lines + "1e300,n1,gpu_duty,9\n").telemetry.points == 9


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is empty, expected a table"),
        (LONG, "holds no samples"),
        (LONG + f"{START},n1,gpu_duty,5\n", "one sample of a node at most"),
        (LONG + "1,n1,gpu_duty,5\n2,n1,gpu_duty,five\n", 'line 3: expected a number, found "five"'),
        (LONG + "1,n1,gpu_duty,5\n2,n1,gpu_duty\n", "line 3: expected 4 columns, found 3"),
        (LONG + "noon,n1,gpu_duty,5\n", 'line 2: expected a time, found "noon"'),
        ("time,nod,gpu_duty\n1,n1,5\n", 'did you mean "nod"'),
        ("time,node,gpu_dutty\n1,n1,5\n", 'did you mean "gpu_dutty"'),
        ("time,node,node,gpu_duty\n", 'two columns "node"'),
        ("time,node,gpu_duty\n1,n1," + "9" * (9 << 20) + "\n", "is it a table"),
        ('gpu_duty{node="n1"} 5\n', "line 1: expected a series, its value and its time"),
        ("gpu_duty{} 5 1\n", "no label names the node"),
        ('gpu_duty{node="n1"} five 1\n', 'expected a number, found "five"'),
        ('node_load1{node="n1"} 5 1\n', "by a Prometheus only"),
        (b"\x7fELF\x02\x01\xff\xfe", "neither Parquet nor text"),
        (b"PAR1" + b"x" * 99, "as Parquet"),
        (LONG + '1,n1,gpu_duty,"5\n2,n1"\n', 'line 2: expected a number, found "5 2,n1"'),
        (b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff" + b"\x07" * 99, "not a complete gzip file"),
        (gzip.compress(LONG.encode(), mtime=0)[:20], "not a complete gzip file"),
        (
            gzip.compress(LONG.encode() + b"1,n1,gpu_duty,5\n" * 1_200_000, mtime=0),
            "150 times its size",
        ),
        (LONG + f"{START},n1,gpu_duty,5\n1,n1,gpu_duty,5\n", "is a time wrong?"),
        (LONG + "".join(f"{t},n1,gpu_duty,5\n" for t in (1, *range(START, START + 9))), "too much"),
    ],
)
def test_an_unreadable_recording_is_one_sentence_that_names_the_file(read, text, sentence):
    with pytest.raises(TelemetryError, match=sentence) as raised:
        read(text)
    assert "r.csv" in str(raised.value)
    assert len(str(raised.value)) < 400


def test_nodes_that_a_recording_has_not_are_refused_or_said(read):
    lines = LONG + f"{START},n1,gpu_duty,5\n{START + 1},n1,gpu_duty,5\n"
    with pytest.raises(UsageError, match='did you mean "n1"'):
        read(lines, nodes=["n11"])
    pulled = read(lines, nodes=["n1", "n2"])
    assert pulled.remarks[0] == '1 of 2 nodes ("n2") reported nothing at all'
    assert np.isnan(pulled.telemetry.series("gpu_duty")[1]).all()


def test_a_missing_file_and_an_unwritable_place_are_reported(tmp_path):
    with pytest.raises(TelemetryError, match="cannot read"):
        read_recording(tmp_path / "none.csv", SETTINGS, NAMES)
    (tmp_path / "file").touch()
    with pytest.raises(TelemetryError, match="cannot write"):
        write_recording(made(), tmp_path / "file" / "recording.parquet")
