"""Kernel logs in the forms in which people save them."""

from __future__ import annotations

import json

import pytest

from anubis.config import configs
from anubis.core.errors import EvidenceError
from anubis.readers.jobs.kernel_logs import read_kernel
from anubis.readers.jobs.ranks import number_ranks

CLASSES = configs.error_classes()
TWO = number_ranks(["n1", "n2"], 1)
FALLEN = "NVRM: Xid (PCI:0000:3b:00): 79, pid=17, GPU has fallen off the bus."
AT = 1_771_045_421.0  # 2026-02-14 05:03:41
JOURNAL = json.dumps(
    {"__REALTIME_TIMESTAMP": f"{AT * 1e6:.0f}", "_HOSTNAME": "n1", "MESSAGE": FALLEN}
)


@pytest.mark.parametrize(
    ("line", "at"),
    [
        (f"[ 1843.308145] {FALLEN}", None),
        (f"4,1234,5678901,-;{FALLEN}", None),
        (f"[<    0.000005>] {FALLEN}", None),
        (f"[ 1843.308145 <    0.000005>] {FALLEN}", None),
        (f"[  +0.000005] {FALLEN}", None),
        (f"[Feb14 05:03] {FALLEN}", None),
        (FALLEN, None),
        (f"[Sat Feb 14 05:03:41 2026] {FALLEN}", AT),
        (f"[Sat Feb 14 05:03:41 2026 <    0.000005>] {FALLEN}", AT),
        (f"kern  :err   : [Sat Feb 14 05:03:41 2026] {FALLEN}", AT),
        (f"2026-02-14T05:03:41,000000+00:00 {FALLEN}", AT),
        (f"2026-02-14T06:03:41+0100 n1 kernel: {FALLEN}", AT),
        (JOURNAL, AT),
    ],
)
def test_each_form_tells_the_code_the_device_and_the_time_where_it_has_one(tmp_path, line, at):
    (tmp_path / "n1.log").write_text(line + "\n")
    (event,) = read_kernel(tmp_path, TWO, CLASSES).log
    assert (event.code, event.node, event.device) == ("xid-79", "n1", "0000:3b:00")
    assert event.at == at


def test_a_gpu_that_fell_off_without_an_xid_is_named_by_the_line_before(tmp_path):
    (tmp_path / "n2.log").write_text(
        "[ 1843.30] NVRM: The NVIDIA GPU 0000:b3:00.0\n"
        "               NVRM: (PCI ID: 10de:26b5) installed in this system has\n"
        "               NVRM: fallen off the bus and is not responding to commands.\n"
    )
    evidence = read_kernel(tmp_path, TWO, CLASSES)
    (event,) = evidence.log
    assert (event.code, event.node, event.device) == ("gpu-fallen-off", "n2", "0000:b3:00")
    assert evidence.unread == {"n1"}


def test_lines_without_the_mark_of_a_kernel_log_are_counted_and_told(tmp_path):
    unmarked = "amdgpu 0000:c1:00.0: amdgpu: GPU reset begin!"
    (tmp_path / "n1.log").write_text(f"[1.0] a\nepoch 3\n{unmarked}\nepoch 4\n")
    evidence = read_kernel(tmp_path, TWO, CLASSES)
    (event,) = evidence.log
    assert (event.code, event.device) == ("amdgpu-reset", "0000:c1:00.0")
    (why,) = evidence.gaps.values()
    assert why.startswith("2 of 4 lines of kernel logs were left out")


def test_a_flood_is_cut_in_the_middle(tmp_path):
    lines = "".join(f"[{n}.0] {FALLEN.replace('17', str(n))}\n" for n in range(1000))
    (tmp_path / "n1.log").write_text(lines)
    log = read_kernel(tmp_path, TWO, CLASSES).log
    assert len(log) == 100
    assert "pid=999" in log[-1].text


def test_what_is_no_kernel_log_is_refused_in_one_sentence(tmp_path):
    (tmp_path / "n1.log").write_bytes(b"\x00\xff\n{]\nepoch 3\n")
    with pytest.raises(EvidenceError, match="no line of a kernel log"):
        read_kernel(tmp_path, TWO, CLASSES)
