"""Lines of logs of any size, and their times."""

from __future__ import annotations

import gzip
import io
import json
import os
import tracemalloc
from datetime import UTC, datetime, timedelta, timezone

import pytest

from anubis.config import configs
from anubis.core.diagnose.evidence import RankMap
from anubis.core.errors import EvidenceError
from anubis.readers.jobs import log_lines
from anubis.readers.jobs.inspector import read_inspector
from anubis.readers.jobs.kernel_logs import read_kernel
from anubis.readers.jobs.log_lines import (
    LONGEST,
    log_files,
    node_of_file,
    read_lines,
    split_lines,
    split_stamp,
    time_of,
)
from anubis.readers.jobs.training_logs import read_training
from anubis.readers.jobs.xpu_timer import read_xpu_timer

ABOUT = datetime(2026, 3, 1, tzinfo=UTC).timestamp()


def moment(*parts):
    return datetime(*parts, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("line", "at"),
    [
        ("[2024-07-03 19:15:16,379] [INFO] x", moment(2024, 7, 3, 19, 15, 16, 379000)),
        ("2024-07-03T19:15:16+02:00 x", moment(2024, 7, 3, 17, 15, 16)),
        ("2024-07-03T19:15:16.5Z x", moment(2024, 7, 3, 19, 15, 16, 500000)),
        ("  time      : 2024-05-01_10:00:00", moment(2024, 5, 1, 10, 0, 0)),
        (
            "[rank0]:[E321 02:07:08.5 ProcessGroupNCCL.cpp:607]",
            moment(2025, 3, 21, 2, 7, 8, 500000),
        ),
        ("[E1206 18:44:12.7 x.cpp:1]", moment(2025, 12, 6, 18, 44, 12, 700000)),
        ("Feb 14 05:03:41 gpu-1 kernel: x", moment(2026, 2, 14, 5, 3, 41)),
        ("[Sat Feb 14 05:03:41 2026] x", moment(2026, 2, 14, 5, 3, 41)),
        ("02/14/2026 05:03:41 - INFO - __main__ - x", moment(2026, 2, 14, 5, 3, 41)),
        ("[02/14/26 05:03:41] INFO x", moment(2026, 2, 14, 5, 3, 41)),
        ("14/02/2026 05:03:41 x", moment(2026, 2, 14, 5, 3, 41)),
        ("03/02/2026 05:03:41 x", moment(2026, 2, 3, 5, 3, 41)),  # the other would be in March
        ('[rank0]: {"ts": 1771045421.5, "step": 3}', moment(2026, 2, 14, 5, 3, 41, 500000)),
        ('{"timestamp":1771045421500,"msg":"x"}', moment(2026, 2, 14, 5, 3, 41, 500000)),
        ('{"ts": 1771045421500250, "m": "x"}', moment(2026, 2, 14, 5, 3, 41, 500250)),
        ('{"time": 1771045421500250000}', moment(2026, 2, 14, 5, 3, 41, 500250)),
        (
            "[1771045421.500250] [n1:17 :0] ucp_ep.c:9 UCX ERROR",
            moment(2026, 2, 14, 5, 3, 41, 500250),
        ),
        ("ts=1771045421.5 level=info", moment(2026, 2, 14, 5, 3, 41, 500000)),
        ("2026-02-14T07:03:41+02 x", moment(2026, 2, 14, 5, 3, 41)),
        ("2026-02-14 05:03:41 -2 x", moment(2026, 2, 14, 5, 3, 41)),
        ("20260214T050341.5Z x", moment(2026, 2, 14, 5, 3, 41, 500000)),
        ("I20260214 05:03:41.5 17 main.cc:1] x", moment(2026, 2, 14, 5, 3, 41, 500000)),
        ("INFO 02-14 05:03:41 [engine.py:1] x", moment(2026, 2, 14, 5, 3, 41)),
        ("Feb 14 05:03:41.500250 gpu-1 kernel: x", moment(2026, 2, 14, 5, 3, 41, 500250)),
        ("Sat Feb 14 05:03:41 UTC 2026", moment(2026, 2, 14, 5, 3, 41)),
        ("14.02.2026 05:03:41 Schritt 3", moment(2026, 2, 14, 5, 3, 41)),
        ("02.01.2026 05:03:41 Schritt 3", moment(2026, 1, 2, 5, 3, 41)),
        ("26/02/14 05:03:41 INFO Spark: x", moment(2026, 2, 14, 5, 3, 41)),
        ("seed 1771045421", None),
        ("2024-13-45 99:99:99 x", None),
        ("no time at all 12:30", None),
    ],
)
def test_a_line_says_when_it_was_written(line, at):
    assert time_of(line, ABOUT) == (None if at is None else pytest.approx(at))


@pytest.mark.parametrize("engine", ["{at} {line}", "{at} stderr F {line}", "docker"])
@pytest.mark.parametrize("text", ['  File "t.py", line 7', "[rank3]: ValueError: x", "step 3"])
def test_the_stamp_of_a_container_engine_is_the_time_of_a_line_and_no_text(engine, text):
    at = "2026-02-14T05:03:41.123456789Z"
    line = engine.format(at=at, line=text)
    if engine == "docker":
        line = json.dumps({"log": f"{text}\n", "stream": "stderr", "time": at})
    assert split_stamp(line) == (at, text)
    assert split_stamp(text) == ("", text)


def test_a_time_without_a_zone_is_one_of_the_zone_that_is_named():
    plus_two = timezone(timedelta(hours=2))
    assert time_of("2024-07-03 19:15:16 x", ABOUT, plus_two) == moment(2024, 7, 3, 17, 15, 16)


def test_lines_come_cut_and_clean_with_any_content(monkeypatch):
    monkeypatch.setattr(log_lines, "CHUNK", 1000)
    text = b"a\0b\r 3%|##\rtail\n" + b"x" * 50_000 + b"\n\xff\xfe\n\x1b[31mred\x1b[0m"
    lines = list(split_lines(io.BytesIO(text)))
    assert lines == ["ab", " 3%|##", "tail", "x" * LONGEST, "\ufffd\ufffd", "red"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_only_the_end_of_a_huge_file_is_read_and_no_half_of_a_line(tmp_path, monkeypatch, encoding):
    file = tmp_path / "a.log"
    file.write_text("[rank3]: 早い\n" * 100 + "[rank1]: 最後\n", encoding=encoding)
    assert list(read_lines(file))[::100] == ["[rank3]: 早い", "[rank1]: 最後"]
    for most_bytes in range(60, 120):
        monkeypatch.setattr(log_lines, "MOST_BYTES", most_bytes)
        *lines, last = read_lines(file)
        assert (set(lines), last) == ({"[rank3]: 早い"}, "[rank1]: 最後")


@pytest.mark.parametrize("reader", ["kernel", "training", "inspector", "xpu_timer"])
def test_a_line_without_end_is_one_sentence_and_takes_little_memory(tmp_path, reader):
    """`scripts/studies/fuzz-files --line 2147483648` does so with 2 GiB, and with all readers."""
    classes = configs.error_classes()
    readers = {
        "kernel": lambda: read_kernel(file, RankMap(), classes),
        "training": lambda: read_training(file, RankMap(), classes),
        "inspector": lambda: read_inspector(file),
        "xpu_timer": lambda: read_xpu_timer(file),
    }
    file = tmp_path / "a.log"
    file.touch()
    os.truncate(file, 48 << 20)
    tracemalloc.start()
    try:
        with pytest.raises(EvidenceError, match="has no "):
            readers[reader]()
        assert tracemalloc.get_traced_memory()[1] < 12 << 20
    finally:
        tracemalloc.stop()


def test_gzipped_logs_are_read_as_far_as_they_go_and_broken_ones_are_one_sentence(tmp_path):
    whole, cut, broken = (tmp_path / f"{name}.log.gz" for name in "acb")
    text = "".join(f"line {number}\n" for number in range(9999)).encode()
    whole.write_bytes(gzip.compress(text))
    cut.write_bytes(gzip.compress(text)[:-900])
    broken.write_bytes(gzip.compress(text)[:12])
    lines, read = text.decode().splitlines(), list(read_lines(cut))
    assert list(read_lines(whole)) == lines
    assert len(read) > 1000
    assert read == lines[: len(read)]  # no part of a line: it could mean something else
    with pytest.raises(EvidenceError, match=r"b\.log\.gz"):
        list(read_lines(broken))


def test_other_files_beside_logs_are_left_out_and_a_folder_without_logs_is_refused(tmp_path):
    (tmp_path / "a.json").write_text("{}")
    with pytest.raises(EvidenceError, match="no logs"):
        log_files(tmp_path)
    with pytest.raises(EvidenceError, match="no file or folder"):
        log_files(tmp_path / "nowhere")
    (tmp_path / "out.log").write_text("x")
    assert log_files(tmp_path) == [tmp_path / "out.log"]


def test_a_log_belongs_to_the_node_in_its_name_or_folder(tmp_path):
    nodes = ["node1", "node11", "gpu-2"]
    assert node_of_file(tmp_path / "node11.log", tmp_path, nodes) == "node11"
    assert node_of_file(tmp_path / "dmesg-node1-late.txt", tmp_path, nodes) == "node1"
    assert node_of_file(tmp_path / "gpu-2" / "dmesg", tmp_path, nodes) == "gpu-2"
    assert node_of_file(tmp_path / "gpu-22" / "dmesg", tmp_path, nodes) == ""
