"""The table of classes: shipped, of a site, and in step with the counts of a test
of a node; and published lines of logs, whose class comes from their thread, not from a parser."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import yaml

from anubis.config import configs
from anubis.core.diagnose.evidence import Gravity, RankMap
from anubis.core.diagnose.facts import FactKind, JobFact, Whom, fault_of
from anubis.core.errors import ConfigError
from anubis.readers.jobs.kernel_logs import kernel_lines, parse_kernel, read_kernel
from anubis.readers.jobs.training_logs import read_training

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
TABLE = configs.error_classes()
XIDS = [row for row in TABLE.classes if row.xid is not None]
# the deeds of RUNTIME's section 5.2, as numbers: who is to be replaced, restarted, left alone
CRITICAL = {48, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 143}
APPLICATION = {13, 31, 43, 45, 94}
NOTES = {63, 92}
WORDS = {  # what a driver writes behind a number of which the number alone does not say how grave
    74: ("NVLink: fatal error detected on link 6(0x10000, 0x0)", "NVLink: link training error"),
    **{
        number: (f"{unit}_EVT Fatal XC0 i0 Link -1", f"{unit}_EVT Nonfatal XC1 i0 Link 09")
        for number, unit in zip(
            range(144, 151), ("SAW", "RLW", "TLW", "TREX", "NVLPW", "NETIR", "MSE"), strict=True
        )
    },
}

VERDICTS = {  # rows of which the line itself says what is to be done
    "xid-149-peer": "NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x025001c6 0x00000000)",
    "xid-154-none": "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)",
    "xid-154-drain": "GPU recovery action changed from 0x0 (None) to 0x3 (Drain P2P)",
    "xid-154": "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
}


def event_of(line):
    (event,) = parse_kernel(kernel_lines([line], 0.0), TABLE, 0.0)
    return event


@pytest.mark.parametrize("row", XIDS, ids=lambda row: row.code)
def test_each_xid_is_recognised_in_a_line_and_has_the_gravity_of_its_row(row):
    severe, mild = WORDS.get(row.xid, ("GPU says something", ""))
    words = severe if row.gravity == "critical" else mild if "nonfatal" in row.code else severe
    words = "an event without a word on it" if row.code.endswith("unknown") else words
    words = VERDICTS.get(row.code, words)
    event = event_of(f"[ 12.5] NVRM: Xid (PCI:0000:3b:00): {row.xid}, pid=17, name=python, {words}")
    assert (event.code, event.gravity, event.device) == (row.code, row.gravity, "0000:3b:00")


@pytest.mark.parametrize(
    ("numbers", "gravity"),
    [
        (CRITICAL, Gravity.CRITICAL),
        (APPLICATION, Gravity.APPLICATION),
        (NOTES, Gravity.NOTE),
    ],
)
def test_the_xids_that_the_sources_agree_on_have_their_gravity(numbers, gravity):
    for number in numbers:
        words = WORDS.get(number, ("",))[0]
        assert event_of(f"[1.0] NVRM: Xid (PCI:0000:3b:00): {number}, {words}").gravity is gravity


def test_a_number_that_the_table_lacks_is_a_note():
    event = event_of("[1.0] NVRM: Xid (PCI:0000:3b:00): 9999, something new")
    assert (event.code, event.gravity) == ("xid-9999", Gravity.NOTE)


def test_critical_xids_of_the_limits_are_faults_here_under_the_same_name():
    """Two readers of XIDs cannot share code: what runs on nodes imports nothing. They share this
    table instead: the limits on XIDs say what to do about its critical ones."""
    limits = {
        int(limit.metric.partition(":")[2]): limit
        for limit in configs.limits("node_health")
        if limit.metric.startswith("xids:")
    }
    rows = {}
    for row in XIDS:
        if row.xid not in rows or row.gravity == "critical":
            rows[row.xid] = row
    assert {number for number, row in rows.items() if row.gravity == "critical"} <= limits.keys()
    del limits[154]  # its line says what is needed
    for number, limit in limits.items():
        assert rows[number].gravity in ("critical", "application")
        assert limit.action.startswith(f"{rows[number].means}:")


@pytest.mark.parametrize(
    "message",
    [
        "NVRM: Xid (PCI:0000:3b:00): 79, pid=17, name=python, GPU has fallen off the bus.",
        "NVRM: Xid (0000:03:00): 31, Ch 0000000b, engmask 00000120",
        "NVRM: Xid (PCI:0000:3B:00 GPU-I:05): 43, pid=9",
        "NVRM: Xid (PCI:0019:01:00): 149, NETIR_LINK_EVT Fatal",
        "usb 1-1: Xid is no error here",
    ],
)
def test_both_readers_of_kernel_logs_see_the_same_xids(message):
    from kit.health.kernel_log import xids

    events = parse_kernel(kernel_lines([f"[1.0] {message}"], 0.0), TABLE, 0.0)
    seen = {(re.sub(r"\D.*", "", event.code[4:]), event.device) for event in events}
    assert seen == set(xids([message]))


def test_a_site_changes_single_rows(tmp_path):
    file = tmp_path / "ours.yaml"
    file.write_text(
        "based_on: default\n"
        "classes:\n"
        "  - {code: xid-94, xid: 94, gravity: critical, means: as Aegis says, source: us}\n"
        "  - {code: our-daemon, mark: gpu-guard, gravity: note, means: ours, source: us}\n"
    )
    table = configs.error_classes(str(file))
    assert table.match_xid(94, "").gravity is Gravity.CRITICAL
    assert table.match_kernel("gpu-guard: BUG: soft lockup - CPU#3 stuck").kind.code == "our-daemon"
    assert table.match_xid(79, "").kind == TABLE.match_xid(79, "").kind


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("{code: a, mark: x, gravity: fatal, means: m, source: s}", "'critical'"),
        ("{code: a, gravity: note, means: m, source: s}", '"mark" or a "xid"'),
        ("{code: a, mark: x, pattern: '(', gravity: note, means: m, source: s}", "pattern"),
        ("{code: A b, mark: x, gravity: note, means: m, source: s}", "letters, digits"),
        ("{code: a, mark: x, pattern: '(?P<who>x)', gravity: note, means: m, source: s}", '"who"'),
    ],
)
def test_a_bad_row_is_refused_in_one_sentence(tmp_path, row, words):
    file = tmp_path / "ours.yaml"
    file.write_text(f"classes:\n  - {row}\n")
    with pytest.raises(ConfigError) as refused:
        configs.error_classes(str(file))
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_levels_of_classes_are_listed_for_policies():
    assert TABLE.levels["nccl-version"] == 4
    assert "xid-79" not in TABLE.levels


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        ("gpu-fallen-off", "gpu-drop"),
        ("xid-149", "nvlink"),
        ("xid-74-nonfatal", "nvlink"),
        ("gsp-timeout", "gpu-error"),
        ("mlx5-link-down", "nic-dropout"),
        ("read-only-remount", "storage"),
    ],
)
def test_codes_of_the_table_speak_for_the_kind_of_fault_that_a_test_is_chosen_by(code, fault):
    assert code in {row.code for row in TABLE.classes}
    fact = JobFact(kind=FactKind.CRITICAL_ERROR, whom=Whom(node="n"), evidence="", code=code)
    assert fault_of(fact) == fault


EXCERPTS = yaml.safe_load((Path(__file__).parent / "excerpts.yaml").read_text())
CLASSES = configs.error_classes()
READERS = {"kernel": read_kernel, "training": read_training}
CASES = [(log, entry) for log, entries in EXCERPTS.items() for entry in entries]


def test_there_are_a_hundred_and_fifty_and_each_names_its_source():
    assert len(CASES) >= 150
    assert all(entry["from"] for _, entry in CASES)


@pytest.mark.parametrize(("log", "entry"), CASES, ids=[entry["from"] for _, entry in CASES])
def test_a_published_line_gets_its_class(log, entry, tmp_path):
    file = tmp_path / "n1.log"
    file.write_text(f"[1.0] a line before\n{entry['line']}\n")
    events = READERS[log](file, RankMap(), CLASSES).log
    assert [event.gravity for event in events] == (
        [] if entry["is"] == "nothing" else [entry["is"]]
    )


REFUSED = "socket.cpp:759] [c10d] The client socket has failed to connect to"
RESET = "ConnectionResetError(104, 'Connection reset by peer')"


@pytest.mark.parametrize(
    ("line", "gravity"),
    [
        (f"[W1130 11:05:54.12 {REFUSED} [n1]:29500 (errno: 111 - refused).", Gravity.NOTE),
        (f"[E1130 11:05:54.12 {REFUSED} any network address of (n1, 29500).", Gravity.DISTRIBUTED),
        (f"Retrying (Retry(total=4)) after connection broken by '{RESET}': /api", Gravity.NOTE),
        (f"ConnectionError: ('Connection aborted.', {RESET})", Gravity.APPLICATION),
        ("global_step: 50 | reduced_train_loss: nan | lr: 1e-05", Gravity.LOSS),
        ("Train loss/train/total: nan", Gravity.LOSS),
        ("Schritt 5 Verlust nan", Gravity.LOSS),
        ("第 5 步 损失 nan", Gravity.LOSS),
        ("best_val_loss: inf", None),
        ("best loss = inf, patience 3", None),
        ("loss_scale: inf", None),
    ],
)
def test_repeated_attempts_and_best_losses_are_no_trouble_and_lost_losses_are(line, gravity):
    recognised = configs.error_classes().match_training(line)
    assert (recognised and recognised.gravity) == gravity
