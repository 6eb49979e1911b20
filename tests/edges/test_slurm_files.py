"""The files under configs/slurm/ that an operator copies, with a real Slurm."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from anubis.store.history import History
from tests.edges import slurm_bed
from tests.edges.desk import Desk
from tests.edges.slurm_bed import SlurmBed
from tests.forked import ForkServer
from tests.patience import LIMIT_S, eventually

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "configs" / "slurm"
GO = "#!/bin/sh\necho 'cluster is new' >&2\necho 'go: node1 (cluster prod)'\n"
UNKNOWN = "#!/bin/sh\necho 'unknown: the budget leaves too much untested: node1'\nexit 2\n"
SILENT = "#!/bin/sh\nsleep 600\n"
BROKEN = "#!/bin/sh\necho \"No module named 'anubis'\" >&2\nexit 1\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as an operator has copied it, with a command that each test puts there."""
    folder = tmp_path_factory.mktemp("etc")
    for file in SCRIPTS.iterdir():
        shutil.copy(file, folder)
    return folder


@pytest.fixture(scope="module")
def slurm(folder: Path) -> Iterator[SlurmBed]:
    if reason := slurm_bed.why_not():
        pytest.skip(reason)
    names = {
        "PrologSlurmctld": "prolog.sh",
        "EpilogSlurmctld": "epilog.sh",
        "HealthCheckProgram": "check",
    }
    settings = [f"{key}={folder / name}" for key, name in names.items()]
    (folder / "check").write_text(f"#!/bin/sh\n[ ! -e {folder}/on ] || exec {folder}/health.sh\n")
    (folder / "check").chmod(0o755)
    more = ["PrologEpilogTimeout=60", "HealthCheckInterval=1", "HealthCheckNodeState=ANY"]
    with SlurmBed(["node1"], [*settings, *more]) as bed:
        yield bed


class Site:
    """Changes settings.sh and the command of Anubis."""

    def __init__(self, folder: Path, slurm: SlurmBed, desk: Desk, python: str) -> None:
        self.folder, self.slurm, self.desk, self._python = folder, slurm, desk, python
        self.command = folder / "anubis"

    def settle(self, command: str, **settings: object) -> None:
        self.command.write_text(command)
        self.command.chmod(0o755)
        own = {"ANUBIS": self.command, "SLURM_CONF": self.slurm.conf, "ANUBIS_HOME": self.desk.home}
        lines = [f"export {name}='{value}'" for name, value in {**own, **settings}.items()]
        shipped = (SCRIPTS / "settings.sh").read_text()
        (self.folder / "settings.sh").write_text("\n".join([shipped, *lines, ""]))

    def real(self, **settings: object) -> None:
        where = f"cd {self.desk.folder}; export PYTHONPATH={ROOT}"
        self.settle(f'#!/bin/sh\n{where}\nexec {self._python} -m anubis "$@"\n', **settings)

    def comment(self, job: str) -> str:
        shown = self.slurm.run("scontrol", "show", "job", job).stdout
        return next((line for line in shown.splitlines() if "AdminComment" in line), "").strip()

    def ask(self, job: str) -> tuple[int, str]:
        """The prolog, as slurmctld calls it: with next to no environment."""
        environment = {"SLURM_JOB_ID": job, "SLURM_JOB_NODELIST": "node1"}
        prolog = str(self.folder / "prolog.sh")
        done = subprocess.run([prolog], env=environment, capture_output=True, timeout=LIMIT_S)
        return done.returncode, self.comment(job)


@pytest.fixture
def site(folder: Path, slurm: SlurmBed, desk: Desk, verbs: ForkServer) -> Iterator[Site]:
    yield Site(folder, slurm, desk, verbs.python)
    slurm.run("scancel", "--full", "--user=root")


def shows(site: Site, job: str, state: str) -> bool:
    return eventually(
        lambda: site.slurm.run("squeue", "-h", "-j", job, "-o", "%T %r").stdout.strip() == state
    )


@pytest.mark.parametrize(
    ("command", "when_unknown", "code", "comment"),
    [
        (GO, "wait", 0, "anubis, run: go: node1 (cluster prod)"),
        (UNKNOWN, "run", 0, "anubis, run: unknown: the budget leaves too much untested: node1"),
        (UNKNOWN, "wait", 1, "anubis, wait: unknown: the budget leaves too much untested: node1"),
        (SILENT, "run", 0, "anubis, run: no answer within 0.3 s"),
        (SILENT, "wait", 1, "anubis, wait: no answer within 0.3 s"),
        (BROKEN, "run", 0, "anubis, run: No module named 'anubis'"),
        (BROKEN, "wait", 1, "anubis, wait: No module named 'anubis'"),
    ],
)
def test_a_job_begins_or_waits_as_the_answer_and_the_setting_say(
    site, command, when_unknown, code, comment
):
    site.settle(GO)
    job = site.slurm.submit("--hold")
    site.settle(command, WHEN_UNKNOWN=when_unknown, DEADLINE_S=0.3 if command == SILENT else 30)
    assert site.ask(job) == (code, f"AdminComment={comment}")


def test_the_gate_gets_the_time_limit_of_the_job(site):
    site.settle(GO)
    for limit, duration in {"2-03:00:00": "183600s", "90": "5400s", "UNLIMITED": "24h"}.items():
        job = site.slurm.submit("--hold", f"--time={limit}")
        site.settle(f'#!/bin/sh\necho "$@" > {site.folder}/words\n')
        site.ask(job)
        words = (site.folder / "words").read_text().split()
        assert words[:4] == ["gate", "node1", "--duration", duration]


@pytest.mark.long
def test_a_job_on_a_node_in_an_incident_is_put_back_and_begins_once_that_is_over(site, desk):
    incidents = desk.write(
        "incidents.csv", "node,category,start,end\nnode1,gpu,2026-11-01T08:00,\n"
    )
    desk.run("tell", "node-added", "node1", "--cluster", "prod", "--later")
    desk.run("history", "import", "incidents", str(incidents), "--cluster", "prod")
    site.real(DEADLINE_S=60)
    job = site.slurm.submit()
    assert shows(site, job, "PENDING BeginTime")
    assert (
        'wait: no-go, and nothing was run: node1: its incident "gpu" is not over'
        in site.comment(job)
    )
    incidents.write_text("node,category,start,end\nnode1,gpu,2026-11-01T08:00,2026-11-01T09:00\n")
    desk.run("history", "import", "incidents", str(incidents), "--cluster", "prod")
    site.slurm.run("scontrol", "update", f"jobid={job}", "starttime=now")
    assert shows(site, job, "RUNNING None")
    assert "run: unknown" in site.comment(job)


def test_a_test_by_anubis_needs_no_gate_and_its_end_is_no_event(site):
    """Else no node could be tested that a gate would refuse, and every check would ask for one."""
    asked, queue = site.folder / "asked", ("squeue", "-h", "-o", "%A")
    assert eventually(lambda: not site.slurm.run(*queue).stdout)  # the ends of earlier jobs
    asked.unlink(missing_ok=True)
    site.settle(f"#!/bin/sh\necho \"$@\" >> {asked}\necho 'no-go: node1'\nexit 1\n")
    test = site.slurm.submit("--job-name=anubis-test", script="true")
    assert eventually(lambda: test not in site.slurm.run(*queue).stdout)
    assert not asked.exists()
    site.settle(asked.with_name("anubis").read_text(), KEEPER="somebody-else")
    strangers = site.slurm.submit("--job-name=anubis-test", script="true")
    assert shows(site, strangers, "PENDING BeginTime")
    assert "gate node1" in asked.read_text()


@pytest.mark.long
def test_the_end_of_a_job_is_reported_once(site, desk):
    site.real(DEADLINE_S=60)
    desk.write("prod.yaml", {"executor": "local", "name": "prod"})
    assert desk.run("tell", "node-added", "node1", "--cluster", "prod.yaml", "--later").code == 0
    job = site.slurm.submit(script="true")
    ended = f"job {job} ended"

    def event_records() -> list[str]:
        with History.open(f"sqlite:///{desk.history}") as history:
            return [event_record.id for event_record in history.cluster("prod").event_records.all()]

    queue = ("squeue", "-h", "-j", job, "-o", "%T")  # the job stays until its epilog is over
    assert eventually(lambda: not site.slurm.run(*queue, check=False).stdout)
    assert event_records().count(ended) == 1
    environment = {"SLURM_JOB_ID": job, "SLURM_JOB_NODELIST": "node1"}
    again = subprocess.run([str(site.folder / "epilog.sh")], env=environment, capture_output=True)
    assert again.returncode == 0
    assert event_records().count(ended) == 1
    assert f"job {job}" in desk.run("history", "show", "node1", "--json").out


# --- the health check of a node ------------------------------------------------------------


OUTSIDE = "XID errors (79) on pci:0000:3b:00: {} instead of at most 0 (NVIDIA Xid catalog)"


class Service:
    """Answers which campaign measures on a node, takes events, and remembers both."""

    def __init__(self) -> None:
        self.holder: str | None = None
        self.knows_nodes = self.takes_events = True
        self.events: dict[str, dict[str, object]] = {}
        self.asked: list[str] = []
        self.tokens = set[str]()

    def answer(self, path: str, body: bytes, token: str) -> tuple[int, object]:
        self.asked.append(path)
        self.tokens.add(token)
        if not body:
            return (200, {"holder": self.holder}) if self.knows_nodes else (404, {})
        event = json.loads(body)
        if self.takes_events:
            self.events[event.pop("id")] = event
        return (201 if self.takes_events else 503), {}


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()

    class Desk(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, document = service.answer(self.path, body, self.headers["Authorization"])
            text = json.dumps(document, separators=(",", ":")).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST

        def log_message(self, *_: object) -> None:
            """It is never read."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Desk) as server:
        service.url = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield service
        server.shutdown()
        thread.join()


class Node:
    """Changes health-settings.sh and has the node look at itself, as slurmd does."""

    def __init__(self, folder: Path, service: Service, state: Path) -> None:
        self.folder, self.service, self.state = folder, service, state
        self.looks = state / "looks"
        self.looks.write_text("")
        (state / "token").write_text("anubis_secret\n")
        self.settle()

    def settle(self, **settings: object) -> None:
        own = {"ANUBIS": self.folder / "looker", "SERVICE": self.service.url, "NODE": "node1"}
        own |= {"STATE": self.state, "TOKEN_FILE": self.state / "token"}
        lines = [f"{name}='{value}'" for name, value in {**own, **settings}.items()]
        shipped = (SCRIPTS / "health-settings.sh").read_text()
        (self.folder / "health-settings.sh").write_text("\n".join([shipped, *lines, ""]))

    def finds(self, *sentences: str, code: int = 1) -> None:
        program = "\n".join(
            ["#!/bin/sh", f'echo "$@" >>{self.looks}', *map("echo '{}'".format, sentences)]
        )
        (self.folder / "looker").write_text(f"{program}\nexit {code}\n")
        (self.folder / "looker").chmod(0o755)

    def look(self) -> list[str]:
        """All files that were looked at."""
        words = str(self.folder / "health.sh")
        done = subprocess.run([words], env={}, capture_output=True, text=True, timeout=LIMIT_S)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        return self.looks.read_text().splitlines()


@pytest.fixture
def node(folder: Path, service: Service, tmp_path: Path) -> Node:
    return Node(folder, service, tmp_path)


def test_a_value_outside_a_limit_is_reported_once_as_a_suspicion(node, service):
    node.finds(OUTSIDE.format(1), 'GPUs: NVML says "no"')
    assert node.look() == ["bench run node_health --limits default --seconds=0.5"]
    node.finds(OUTSIDE.format(2), 'GPUs: NVML says "no"')
    assert len(node.look()) == 2
    ((id, event),) = service.events.items()
    assert id.startswith("health node1 ")
    assert event == {
        "event": "suspicion-raised",
        "nodes": ["node1"],
        "category": "health",
        "source": "HealthCheckProgram",
        "reason": f'{OUTSIDE.format(1)};GPUs: NVML says "no"',
        "cluster": "prod",
    }
    assert service.asked == ["/v1/nodes/prod/node1", "/v1/events", "/v1/nodes/prod/node1"]
    assert service.tokens == {"Bearer anubis_secret"}


def test_a_finding_that_returns_and_a_new_one_are_reported_again(node, service):
    node.finds(OUTSIDE.format(1))
    node.look()
    node.finds(OUTSIDE.format(1), "machine checks (uncorrected): 1 instead of at most 0 (Intel)")
    node.look()
    node.finds(code=0)
    node.look()
    assert not list(node.state.glob("anubis-health*"))
    assert len({event["reason"] for event in service.events.values()}) == 2


def test_a_node_is_not_examined_during_a_campaign_or_without_the_service(node, service):
    node.finds(OUTSIDE.format(1))
    service.holder = "validate-20261122-1"
    assert node.look() == []
    node.settle(SERVICE="http://127.0.0.1:1")
    assert node.look() == []
    node.settle()
    service.holder, service.knows_nodes = None, False
    assert len(node.look()) == 1
    assert len(service.events) == 1


@pytest.mark.parametrize("code", [1, 2, 124])
def test_a_broken_installation_raises_no_suspicion(node, service, code):
    node.finds(code=code)
    assert len(node.look()) == 1
    assert not service.events


def test_an_event_that_the_service_refused_is_sent_again_under_the_same_id(node, service):
    node.finds(OUTSIDE.format(1))
    service.takes_events = False
    node.look()
    (kept,) = node.state.glob("anubis-health-node1")
    service.takes_events = True
    node.look()
    assert list(service.events) == kept.read_text().splitlines()[:1]


def test_slurmd_has_its_node_look_at_itself(slurm, node, service):
    node.finds(OUTSIDE.format(1))
    on = node.folder / "on"
    on.touch()
    try:
        assert eventually(lambda: service.events), slurm.logs()
        assert eventually(lambda: len(service.asked) > 3)
    finally:
        on.unlink()
    assert len(service.events) == 1
    assert slurm.state("node1") == "idle"


@pytest.mark.long
def test_a_mount_that_is_missing_makes_a_suspect_by_a_real_service(node, desk, verbs):
    desk.write("prod.yaml", {"executor": "local", "name": "prod"})
    desk.run("tell", "node-added", "node1", "--cluster", "prod.yaml", "--later")
    made = desk.run("token", "make", "nodes", "--scope", "read,report")
    (node.state / "token").write_text(made.out)
    command = node.folder / "anubis-of-nodes"
    command.write_text(f'#!/bin/sh\nexport PYTHONPATH={ROOT}\nexec {verbs.python} -m anubis "$@"\n')
    command.chmod(0o755)
    serving = desk.start("serve", "--port", "0", "--every", "0s")
    try:
        assert serving.stderr
        port = serving.stderr.readline().rsplit(":", 1)[1].strip()
        node.settle(
            ANUBIS=command,
            SERVICE=f"http://127.0.0.1:{port}",
            FACTS="--seconds=0.05 --mounts=/not-there",
            ANUBIS_HOME=desk.home,
        )
        node.look()
    finally:
        serving.terminate()
        serving.communicate(timeout=LIMIT_S)
    with History.open(f"sqlite:///{desk.history}") as history:
        (raised,) = [
            n
            for n in history.cluster("prod").event_records.all()
            if n.id.startswith("health node1")
        ]
    assert raised.event.reason.startswith("nothing is mounted on /not-there (")
