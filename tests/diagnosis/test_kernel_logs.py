"""Kernel logs in the forms in which people save them."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anubis.config import configs
from anubis.core.diagnose import crash
from anubis.core.diagnose.evidence import Collector, JobEvidence
from anubis.core.diagnose.facts import reason
from anubis.core.errors import EvidenceError
from anubis.readers.jobs.kernel_logs import read_kernel
from anubis.readers.jobs.ranks import number_ranks

CLASSES = configs.error_classes()
TWO = number_ranks(["n1", "n2"], 1)
FALLEN = "NVRM: Xid (PCI:0000:3b:00): 79, pid=17, GPU has fallen off the bus."
AT = 1_771_045_421.0  # 2026-02-14 05:03:41
ISO, LOG = "%Y-%m-%dT%H:%M:%S", "%b %d %H:%M:%S"
BOOT = AT - 3 * 86400
LATER = "2026-02-14T05:04:00.000000000Z"  # when a container printed an old line


def stamp(at, form):
    return datetime.fromtimestamp(at, UTC).strftime(form)


def journal(at, message, **json_style):
    fields = {"__REALTIME_TIMESTAMP": f"{at * 1e6:.0f}", "_HOSTNAME": "n1", "_TRANSPORT": "kernel"}
    return json.dumps({**fields, "MESSAGE": message}, **json_style)


DATED = {  # as each program writes the same message
    "dmesg -T": lambda at, say: f"[{stamp(at, '%a %b %d %H:%M:%S %Y')}] {say}",
    "dmesg -T -d": lambda at, say: f"[{stamp(at, '%a %b %d %H:%M:%S %Y')} <    0.000005>] {say}",
    "dmesg -T -x": lambda at, say: f"kern  :err   : [{stamp(at, '%a %b %d %H:%M:%S %Y')}] {say}",
    "dmesg iso": lambda at, say: f"{stamp(at, ISO)},000000+00:00 {say}",
    "dmesg iso -x": lambda at, say: f"kern  :warn  : {stamp(at, ISO)},000000+00:00 {say}",
    "short": lambda at, say: f"{stamp(at, LOG)} n1 kernel: {say}",
    "short-precise": lambda at, say: f"{stamp(at, LOG)}.000000 n1 kernel: {say}",
    "short-iso": lambda at, say: f"{stamp(at + 3600, ISO)}+0100 n1 kernel: {say}",
    "short-iso-precise": lambda at, say: f"{stamp(at, ISO)}.000000+00:00 n1 kernel: {say}",
    "short-full": lambda at, say: f"{stamp(at, '%a %Y-%m-%d %H:%M:%S')} UTC n1 kernel: {say}",
    "short-unix": lambda at, say: f"{at:.6f} n1 kernel: {say}",
    "json": journal,
    "json-seq": lambda at, say: f"\x1e{journal(at, say)}",
    "json-sse": lambda at, say: f"data: {journal(at, say)}\n",
    "json-pretty": lambda at, say: journal(at, say, indent=8, separators=(",", " : ")),
    "json of bytes": lambda at, say: journal(at, [*say.encode()]),
    "export": lambda at, say: (
        f"__CURSOR=s=1\n__REALTIME_TIMESTAMP={at * 1e6:.0f}\n_HOSTNAME=n1\nMESSAGE={say}\n"
    ),
    "verbose": lambda at, say: (
        f"{stamp(at, '%a %Y-%m-%d %H:%M:%S')}.000000 UTC [s=1;i=2]\n    _HOSTNAME=n1\n"
        f"    MESSAGE={say}"
    ),
    "RFC 3164": lambda at, say: f"<3>{stamp(at, LOG)} n1 kernel: [{at - BOOT:.6f}] {say}",
    "RFC 5424": lambda at, say: f"<3>1 {stamp(at, ISO)}.000Z n1 kernel - - - {say}",
    "CRI": lambda at, say: f"{LATER} stdout F [{stamp(at, '%a %b %d %H:%M:%S %Y')}] {say}",
    "CRI, of a journal": lambda at, say: f"{LATER} stderr F {stamp(at, LOG)} n1 kernel: {say}",
    "CRI, no other time": lambda at, say: f"{stamp(at, ISO)}.000000000Z stdout F {say}",
    "pdsh": lambda at, say: f"n1: [{stamp(at, '%a %b %d %H:%M:%S %Y')}] {say}",
}
SINCE_START = {
    "dmesg": lambda at, say: f"[{at - BOOT:12.6f}] {say}",
    "dmesg -d": lambda at, say: f"[{at - BOOT:12.6f} <    0.000005>] {say}",
    "dmesg -r": lambda at, say: f"<3>[{at - BOOT:12.6f}] {say}",
    "callers": lambda at, say: f"[{at - BOOT:12.6f}][T1234] {say}",
    "CRI, since the start": lambda at, say: f"{LATER} stdout F [{at - BOOT:12.6f}] {say}",
    "kubectl logs --timestamps": lambda at, say: f"{LATER} [{at - BOOT:12.6f}] {say}",
    "docker": lambda at, say: json.dumps({"log": f"[{at - BOOT:12.6f}] {say}\n", "time": LATER}),
    "pdsh, since the start": lambda at, say: f"n1: [{at - BOOT:12.6f}] {say}",
    "kmsg": lambda at, say: f"4,1234,{(at - BOOT) * 1e6:.0f},-;{say}",
    "short-monotonic": lambda at, say: f"[{at - BOOT:12.6f}] n1 kernel: {say}",
    "dmesg --json": lambda at, say: (
        json.dumps({"pri": "err", "time": at - BOOT, "msg": say}, indent=3) + ","
    ),
}
UNDATED = {
    "alone": lambda _, say: say,
    "since the line before": lambda _, say: f"[<    0.000005>] {say}",
    "reltime": lambda _, say: f"[  +0.000005] {say}",
    "of an hour": lambda _, say: f"[Feb14 05:03] {say}",
}
MESSAGES = (  # some begin as if with a host and a program
    FALLEN,
    "mlx5_core 0000:5e:00.0: poll_health:804:(pid 0): device's health compromised",
    "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1)",
    "nvme nvme0: Removing after probe failure status: -19",
    "amdgpu 0000:c1:00.0: amdgpu: GPU reset(2) failed",
    "pcieport 0000:16:01.0: AER: Uncorrected (Fatal) error received: 0000:17:00.0",
)
WRITTEN = AT + 50.0
LAST = "e1000e: eth0 NIC Link is Up"  # written 20 s before the file was


def events_of(folder, form, message, *more):
    file = folder / "n1.log"
    entries = ((AT, message), *more, (WRITTEN - 20, LAST))
    file.write_text("\n".join(form(at, say) for at, say in entries) + "\n")
    os.utime(file, (WRITTEN, WRITTEN))
    return read_kernel(folder, TWO, CLASSES).log


@pytest.mark.parametrize("form", [*DATED, *SINCE_START, *UNDATED])
def test_each_form_of_a_kernel_log_gives_its_messages_and_their_times(form, tmp_path):
    write = {**DATED, **SINCE_START, **UNDATED}[form]
    for message in MESSAGES:
        (alone,) = events_of(tmp_path, UNDATED["alone"], message)
        (event,) = events_of(tmp_path, write, message)
        assert replace(event, at=None, by=None) == alone
        assert event.at == (AT if form in DATED else None)
        # the file is not older than its last line, which was written 30 s after the error
        assert event.by == (pytest.approx(WRITTEN - 30) if form in SINCE_START else None)


@pytest.mark.parametrize("form", SINCE_START)
@pytest.mark.parametrize("clue", ["audit: type=1400 audit({:.3f}:9): x", "rtc_cmos 00:01: {}"])
def test_a_line_with_both_times_dates_those_with_the_time_since_the_start(form, clue, tmp_path):
    rtc = f"setting system clock to {stamp(AT + 9, ISO)} UTC ({AT + 9:.0f})"
    clue = clue.format(AT + 9 if "audit" in clue else rtc)
    (event,) = events_of(tmp_path, SINCE_START[form], FALLEN, (AT + 9, clue))
    assert event.at == pytest.approx(AT, abs=0.01)


def test_the_time_since_the_start_of_another_node_dates_nothing(tmp_path):
    """`pdsh dmesg` in one file: n2 started long before n1, of which a line says when."""
    known = f"n1: [{AT + 9 - BOOT:12.6f}] audit: type=1400 audit({AT + 9:.3f}:9): x"
    (tmp_path / "all.log").write_text(f"{known}\nn2: [{9e6:12.6f}] {FALLEN}\n")
    os.utime(tmp_path / "all.log", (WRITTEN, WRITTEN))
    (event,) = read_kernel(tmp_path, TWO, CLASSES).log
    assert (event.node, event.at, event.by) == ("n2", None, WRITTEN)


def test_the_time_since_another_start_of_the_node_dates_nothing(tmp_path):
    """Three days of the start before are in the same file: they do not make the error old."""
    form = SINCE_START["dmesg"]
    (tmp_path / "n1.log").write_text(f"{form(AT + 9e5, LAST)}\n{form(AT, FALLEN)}\n")
    os.utime(tmp_path / "n1.log", (WRITTEN, WRITTEN))
    (event,) = read_kernel(tmp_path, TWO, CLASSES).log
    assert event.by == WRITTEN


@settings(max_examples=20)
@given(ago_s=st.floats(0, 1e6), form=st.sampled_from(sorted({**DATED, **SINCE_START})))
def test_an_error_of_long_before_the_trouble_breaks_no_node(ago_s, form, tmp_path_factory):
    file, now = tmp_path_factory.mktemp("kernel") / "n1.log", AT + ago_s
    write = {**DATED, **SINCE_START}[form]
    file.write_text(f"{write(AT, FALLEN)}\n{write(now, LAST)}\n")
    os.utime(file, (now, now))
    log = read_kernel(file.parent, TWO, CLASSES).log
    evidence = JobEvidence(job="", at=now, collectors=frozenset({Collector.KERNEL_LOG}), log=log)
    is_recent = ago_s <= crash.WAITED_S + crash.AROUND_S
    assert bool(reason(evidence, crash.RULES).facts) == is_recent


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


def test_lines_without_the_mark_of_a_kernel_log_are_counted_and_remarked(tmp_path):
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


def test_a_file_without_kernel_lines_is_refused_in_one_sentence(tmp_path):
    (tmp_path / "n1.log").write_bytes(b"\x00\xff\n{]\nepoch 3\n")
    with pytest.raises(EvidenceError, match="no line of a kernel log"):
        read_kernel(tmp_path, TWO, CLASSES)
