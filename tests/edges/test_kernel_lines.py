"""Lines of kernel logs on their way: from the log to the service, and what follows from them."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from telemetry.kernel_lines import KernelLines, LogLine
from telemetry.line_sender import LineSender

from anubis.config import configs
from anubis.core.history.events import IncidentReported, SuspicionRaised
from anubis.operations.caller import Caller
from anubis.operations.tokens import make_token
from anubis.readers.jobs.kernel_logs import recognise

TABLE = configs.error_classes()
OFF_THE_BUS = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus."
NVLINK = "NVRM: Xid (PCI:0000:3b:00): 74, pid=1234, name=python, NVLink: error detected on link 3"
LINK_DOWN = "mlx5_core 0000:5e:00.0 eth4: Link down"
UP_S = 86_400.0
KERNEL, USER = 0 << 3, 1 << 3  # facilities, in the priority of a record


def record(seq, text, priority=KERNEL | 6, up_s=UP_S):
    return f"{priority},{seq},{int(up_s * 1e6)},-;{text}\n"


@pytest.fixture
def follow(tmp_path):
    """Return a way to write records as the kernel does; it returns what was passed on."""
    log = tmp_path / "kmsg"
    log.write_text("")
    passed = []
    kernel = KernelLines(log, passed.append, lambda: 1e9, lambda: UP_S + 1)

    def write(*records):
        with log.open("a") as file:
            file.writelines(records)
        while kernel.read():
            pass
        return passed

    return write


def test_a_line_of_the_kernel_is_passed_on_with_its_time_and_a_name_that_stays(follow):
    follow(record(7, OFF_THE_BUS), " SUBSYSTEM=pci\n", record(8, "usb 1-1: new device", 6))
    assert follow() == [LogLine("kmsg-7", 1e9 - 1, UP_S, OFF_THE_BUS)]


def test_records_that_a_user_writes_to_the_kernel_log_are_not_passed_on(follow):
    assert follow(record(1, OFF_THE_BUS, USER | 2), record(2, OFF_THE_BUS, (3 << 3) | 0)) == []


def test_a_line_feed_in_a_record_begins_no_line(follow):
    (line,) = follow(record(1, f"odd driver: name x\\x0a{OFF_THE_BUS}", 4))
    assert line.text == "odd driver: name x"


def test_a_storm_of_lines_passes_on_a_few_and_hides_no_xid(follow):
    storm = [record(n, f"foo 0000:3b:00.0: error {n} at 0x{n:x}", 3) for n in range(20_000)]
    storm[15_000] = record(15_000, OFF_THE_BUS)
    odd = "".join(chr(97 + n % 26) for n in range(40))
    storm += [
        record(n, f"{odd[: n % 40]}{'x' * (n // 40)}: failed", 3) for n in range(20_000, 40_000)
    ]
    storm.append(record(70_000, OFF_THE_BUS.replace("79", "95")))
    passed = follow(*storm)
    assert [line.text[28:30] for line in passed if "Xid" in line.text] == ["79", "95"]
    assert len(passed) < 1100


# --- sending ----------------------------------------------------------------------------------


def test_a_line_is_sent_again_with_its_name_until_it_is_taken_and_then_never(tmp_path):
    answers, bodies = [503, 401, 200, 400, 200], []

    class Service(BaseHTTPRequestHandler):
        def do_POST(self):
            bodies.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(answers[len(bodies) - 1])
            self.end_headers()

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    said = []
    sender = LineSender(
        f"http://127.0.0.1:{server.server_port}", "t", {"node": "n1", "boot": "b"}, said.append
    )
    sender.add(LogLine("kmsg-1", 1.0, 1.0, OFF_THE_BUS))
    done = [sender.send(), sender.send(), sender.send(), sender.send()]
    sender.add(LogLine("kmsg-2", 2.0, 2.0, NVLINK))
    done.append(sender.send())
    sender.add(LogLine("kmsg-3", 3.0, 3.0, NVLINK))
    done.append(sender.send())
    server.shutdown()
    server.server_close()
    assert done == [False, False, True, True, True, True]
    ids = [[line["id"] for line in body["lines"]] for body in bodies]
    assert ids == [["kmsg-1"], ["kmsg-1"], ["kmsg-1"], ["kmsg-2"], ["kmsg-3"]]
    assert len(said) == 3, "each trouble is said once"


# --- what follows -----------------------------------------------------------------------------


@pytest.fixture
def told(visitor):
    """Return a way to send lines of a node; it returns the events that the history has."""
    token = make_token("agents", ("report",), Caller(history_url=visitor.house.history_url))

    def tell(*texts, node="n1", first=0, up_s=UP_S, status=200):
        lines = [
            {"id": f"kmsg-{first + n}", "at": 4.0, "up_s": up_s, "text": text}
            for n, text in enumerate(texts)
        ]
        body = {"node": node, "boot": "b", "sent_at": 5.0, "lines": lines}
        answer = visitor.ask("/v1/lines", "POST", token=token, json=body)
        assert answer.status_code == status, answer.text
        part = visitor.house.history.cluster("fleet")
        return [
            (type(record.event), record.event.category, record.at)
            for kind in (IncidentReported, SuspicionRaised)
            for record in part.event_records.read_kind(kind)
        ]

    return tell


def test_a_line_that_is_proof_is_an_incident_of_its_node_once_by_the_clock_of_the_service(told):
    for _ in range(2):
        ((kind, category, at),) = told(OFF_THE_BUS)
    assert (kind, category) == (IncidentReported, "xid-79")
    assert at == pytest.approx(time.time(), abs=3600), "by whatever clock the node has"


def test_a_sign_is_one_suspicion_while_that_is_open_and_a_remark_is_nothing(told):
    remark = "NVRM: Xid (PCI:0000:3b:00): 31, pid=9, MMU Fault"
    events = told(NVLINK, NVLINK, LINK_DOWN, remark)
    assert [event[:2] for event in events] == [
        (SuspicionRaised, "xid-74-nonfatal"),
        (SuspicionRaised, "mlx5-link-down"),
    ]
    assert told(NVLINK, first=9) == events


def test_a_link_that_comes_up_with_its_node_is_no_sign(told):
    assert told(LINK_DOWN, up_s=40.0) == []


# lines that drivers write, each of another row of the table
GENUINE = {
    OFF_THE_BUS: "proof",
    "NVRM: fallen off the bus and is not responding to commands.": "proof",
    "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.": "proof",
    "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Fatal, Link 32": "proof",
    "mce: [Hardware Error]: CPU 5: Machine Check: 0 Bank 7: be00000000800400": "proof",
    "EDAC MC0: 1 UE memory read error on CPU_SrcID#0": "proof",
    "amdgpu 0000:03:00.0: amdgpu: device lost from bus!": "proof",
    LINK_DOWN: "suspicion",
    "ice 0000:5e:00.1 eth1: NIC Link is Down": "suspicion",
    "pcieport 0000:00:01.0: pciehp: Slot(1): Link Down": "suspicion",
    "bond0: (slave eth1): link status definitely down": "suspicion",
    "nvme nvme0: Removing after probe failure status: -19": "suspicion",
    "EXT4-fs (sda1): Remounting filesystem read-only": "suspicion",
    "XFS (dm-0): Corruption detected. Shutting down filesystem": "suspicion",
    "watchdog: Watchdog detected hard LOCKUP on cpu 1": "suspicion",
    "NVML: GPU 0000:3b:00.0: recovery action: reset the GPU": "proof",
}
# lines of the kernel with the name of a process or of a file
ABOUT_PROGRAMS = (
    "{name}[77]: segfault at 0 ip 0 sp 0 error 4 in {file}[1000+2000]",
    "{name}[77]: bad frame in signal deliver frame:0 ip:0 sp:0 in {file}",
    "traps: {name}[77] general protection fault ip:0 sp:0 error:0 in {file}[0+1]",
    "process '{file}' started with executable stack",
    "{name}: page allocation failure: order:0, mode:0x0, cpuset={file},mems_allowed=0",
    "{name} invoked oom-killer: gfp_mask=0x0, order=0, oom_score_adj=0",
    "oom-kill:constraint=CONSTRAINT_NONE,task_memcg=/{file},task={name},pid=77",
    "Out of memory: Killed process 77 ({name}) total-vm:1kB",
    "{name} (77): drop_caches: 3",
    "{name} (77) used greatest stack depth: 1 bytes left",
    "{name}/77: potentially unexpected fatal signal 11.",
    "cgroup: fork rejected by pids controller in /{file}",
    "usb 1-1: Product: {file}",
)


@pytest.mark.parametrize("line", GENUINE)
def test_a_driver_is_believed_and_no_name_that_copies_it(line):
    def weight(text):
        recognised, _ = recognise(text, TABLE)
        return recognised.kind.weigh_alone(text) if recognised else "remark"

    assert weight(line) == GENUINE[line]
    names = [line[begin : begin + 15] for begin in range(len(line))]
    for form in ABOUT_PROGRAMS:
        for name in [*names, "x", "EDAC MC0: 1 UE", "XFS (a): ", "NVRM: GPU"]:
            for file in (line, line[15:], name):
                text = form.format(name=name, file=file)
                assert weight(text) == "remark", text


def test_lines_reach_their_node_by_its_name_with_a_domain_too(told):
    assert told(OFF_THE_BUS, node="n1") == told(OFF_THE_BUS, node="N1.example.org")


def test_lines_of_an_unknown_node_are_refused_and_leave_no_row(told):
    assert told(OFF_THE_BUS, node="n77", status=400) == []


def test_lines_that_are_proof_by_themselves_name_a_limit_of_node_health():
    limits = {limit.metric for limit in configs.limits("node_health")}
    proof = [row for row in TABLE.classes if row.alone == "proof"]
    assert {f"xids:{row.xid}" for row in proof if row.xid is not None} <= limits
    assert len(proof) > 10


def test_the_states_that_nvml_reports_are_recognised():
    weights = {
        "NVML: GPU 0000:3b:00.0: recovery action: reset the GPU": "proof",
        "NVML: GPU 0000:3b:00.0: recovery action: restart the node": "proof",
        "NVML: GPU 0000:3b:00.0: recovery action: drain its peers": "suspicion",
        "NVML: GPU 0000:3b:00.0: row remap failure: 1": "proof",
    }
    for line, weight in weights.items():
        assert TABLE.match_kernel(line).kind.weigh_alone(line) == weight
