"""A whole site on one machine, for show-loop: hosts as network namespaces under a real Slurm, a
PostgreSQL, a Prometheus that scrapes an agent on each host, `anubis serve` with all commands on
`act`, and a receiver of its messages. It asserts nothing.

What a site adds of its own is here as well, because a site has to write it: an answer to a
suspicion (the job on that node is put back into the queue), and one to a job that stands still (its
ranks are looked at on their hosts, and the service is told).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from study import PYTHON, ROOT, SMOKE

from anubis.core.keep.commands import Swap
from anubis.operations.caller import Caller
from anubis.operations.tokens import make_token
from anubis.readers.jobs.live import add_hook
from anubis.store.history import ClusterHistory, History
from tests.edges import postgresql, prometheus_server
from tests.edges.slurm_bed import SlurmBed, SlurmHost
from tests.edges.ssh_hosts import SshBed
from tests.edges.watched_job import AGENT_PORT, agents
from tests.edges.webhook_receiver import Receiver
from tests.patience import LIMIT_S, eventually

NODES = tuple(f"node{number}" for number in range(1, 3 if SMOKE else 9))
RANKS = 2 if SMOKE else 4  # of each job: half of the hosts
SERVICE, PROMETHEUS, RECEIVER = 8750, 9090, 9999  # ports of the driver's own network
PROGRAM = Path(__file__).with_name("live_jobs.py")
SUITE = """summary: what a test bed can show
benchmarks:
  - {benchmark: gemm, repeats: 3, parameters: {dtypes: fp32, size: 512, samples: 30}}
  - {benchmark: pair_torch, rounds: 1, parameters: {sizes: "4194304"}}
"""
KEEPING = """summary: a site that lets Anubis act
cordon: act
release: act
test: act
swap: act
ticket: act
out_of_fleet: 0.5
out_of_sku: 0.5
out_of_job: 0.5
tested_at_once: 1.0
spares: {bed: 1}
check_limit_s: 0
pause_s: 40
resent_s: 15
watch: loop
diagnose: loop
notify: plain
"""
# other work on the machine slows what is measured: only what is far off is a defect
POLICY = """alpha: 0.7
alphas: [{benchmark: pair_torch, metric: "*", alpha: 0.3}]
distance: {tail: 1}
"""
FILES = {
    "watching": """summary: a node must be unlike its peers for 20 seconds instead of four minutes
telemetry: TELEMETRY
model: synthetic
pull_s: 120
interval_s: 30
continuity_s: 20
stalled_s: 0
""",
    "telemetry": """summary: a Prometheus that scrapes the agent of each host
based_on: default
prometheus: {url: "http://127.0.0.1:9090"}
""",
    "diagnosis": """summary: where this site's jobs leave their traces
places: {logs: "JOBS/{job}/logs", live: "JOBS/{job}/looks"}
silent_s: 0
ranks_per_node: 1
""",
}
CLOCK = """import time
_right = time.time
def _shown():
    try:
        with open({file!r}) as file:
            return _right() + float(file.read())
    except (OSError, ValueError):
        return _right()
time.time = _shown
"""


def written(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


@dataclass(frozen=True, kw_only=True)
class Message:
    """What the receiver was sent, and when."""

    at: float
    facts: Mapping[str, str]

    def is_about(self, topic: str, subject: str = "", begins: str = "yes") -> bool:
        about = {"topic": topic, "subject": subject or self.facts["subject"], "begins": begins}
        return about.items() <= self.facts.items()


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A change that Slurm showed."""

    at: float
    subject: str  # a node, or a job
    shown: str


class Witness(threading.Thread):
    """What Slurm shows of nodes and jobs, each second: who was where when, without Anubis."""

    def __init__(self, slurm: SlurmBed) -> None:
        super().__init__(daemon=True)
        self._slurm = slurm
        self._last: dict[str, str] = {}
        self.changes: list[Seen] = []
        self.ends = threading.Event()

    def run(self) -> None:
        while not self.ends.wait(1.0):
            with suppress(AssertionError, subprocess.TimeoutExpired, OSError):
                self._look()

    def _look(self) -> None:
        nodes = self._slurm.run("sinfo", "-h", "-N", "-o", "%N|%T|%E").stdout
        jobs = self._slurm.run("squeue", "-h", "-o", "job %A %j|%T|%N").stdout
        now, shown = time.time(), {}
        for line in [*nodes.splitlines(), *jobs.splitlines()]:
            subject, _, state = line.partition("|")
            shown[subject.strip()] = state.removesuffix("|none")
        for subject in self._last.keys() - shown.keys():
            self.changes.append(Seen(at=now, subject=subject, shown="gone"))
        for subject, state in shown.items():
            if self._last.get(subject) != state:
                self.changes.append(Seen(at=now, subject=subject, shown=state))
        self._last = shown

    def first(self, subject: str, pattern: str, since: float = 0.0) -> Seen | None:
        """The first change of a node or job since then whose text matches."""
        of_it = (seen for seen in list(self.changes) if seen.subject.startswith(subject))
        return next((s for s in of_it if s.at >= since and re.search(pattern, s.shown)), None)


class Service:
    """`anubis serve` in the driver's network, as a service manager keeps it."""

    def __init__(self, site: LoopSite) -> None:
        self._site = site
        self.start()

    def start(self) -> None:
        words = ["serve", "--port", str(SERVICE), "--cluster", str(self._site.cluster)]
        words += ["--keeping", str(self._site.keeping), "--every", "10s"]
        command = self._site.command(*words, clock=True)
        with (self._site.folder / "serve.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        eventually(self.answers)

    def answers(self) -> bool:
        with suppress(OSError):
            return bool(self._site.fetch(SERVICE, "/readyz"))
        return False

    def kill(self) -> None:
        """SIGKILL of the process itself; turns and tests that it began go on."""
        self._process.kill()  # the words before the command became it
        self._process.wait(LIMIT_S)

    def end(self) -> None:
        self._process.terminate()
        self._process.wait(LIMIT_S)


@dataclass
class LoopSite:
    """Everything that runs, and an operator's hands."""

    folder: Path
    until_down: ExitStack
    nodes: tuple[str, ...] = NODES
    messages: list[Message] = field(default_factory=list)
    reflexes: list[str] = field(default_factory=list)  # what the site's own automation did

    def __post_init__(self) -> None:
        enter = self.until_down.enter_context
        self.jobs = self.folder / "jobs"
        self.jobs.mkdir()
        self.home = self.folder / "home"
        self.clock_file = self.folder / "clock"
        self.bed = enter(SshBed(self.folder, len(self.nodes), "--proc"))
        self.server = enter(postgresql.running())
        self.url = self.server.new_database()
        self._write_files()
        self.slurm = enter(self._slurm())
        self._connect_prolog()
        enter(agents(self.bed))
        self.witness = Witness(self.slurm)
        self.witness.start()
        self.until_down.callback(self.witness.ends.set)
        enter(self._receiving())

    def serve(self) -> None:
        """Start the service; from here on Anubis acts."""
        self.service = Service(self)
        self.until_down.callback(self.service.end)
        self.token = make_token("site", ("read", "report", "operate"), Caller(history_url=self.url))
        self._scrape()

    # --- files and daemons ---

    def _write_files(self) -> None:
        configs = self.home / "configs"
        suite = written(self.folder / "loop.yaml", SUITE)
        for kind, text in FILES.items():
            text = text.replace("TELEMETRY", str(configs / "telemetry" / "loop.yaml"))
            written(configs / kind / "loop.yaml", text.replace("JOBS", str(self.jobs)))
        self.suite = suite
        self.policy = written(self.folder / "policy.yaml", POLICY)
        keeping = f"{KEEPING}suite: {suite}\nselection: {self.policy}\n"
        self.keeping = written(self.folder / "keeping.yaml", keeping)
        about = {"executor": "ray", "name": "bed", "sku": "bed", "parallel_nodes": 2}
        reach = ["ssh", "-F", str(self.bed.ssh_config)]
        under = {"orchestrator": {"kind": "slurm"}, "start": "slurm", "drained_by": reach}
        self.cluster = written(self.folder / "bed.yaml", json.dumps({**about, **under}))
        clock = CLOCK.format(file=str(self.clock_file))
        written(self.folder / "clocked" / "sitecustomize.py", clock)

    def _slurm(self) -> SlurmBed:
        etc = self.folder / "etc"
        etc.mkdir()
        for file in (ROOT / "configs" / "slurm").iterdir():
            shutil.copy(file, etc)
        hosts = {
            host: SlurmHost(
                address=self.bed.address_of(host), inside=self.bed.words_into(host), hostname=host
            )
            for host in ("driver", *self.nodes)
        }
        settings = [
            f"PrologSlurmctld={etc / 'prolog.sh'}",
            f"EpilogSlurmctld={etc / 'epilog.sh'}",
            "PrologEpilogTimeout=120",
            "MessageTimeout=30",  # two cores answer for ten daemons
            "JobRequeue=1",
            "MinJobAge=7200",
            "JobCompType=jobcomp/filetxt",
            f"JobCompLoc={self.folder / 'completions'}",
        ]
        made = SlurmBed(
            self.nodes, settings, hosts=hosts, controller=hosts["driver"], requeued_after_s=20
        )
        self._etc = etc
        return made

    def _connect_prolog(self) -> None:
        """settings.sh, as an operator changes it."""
        command = f'#!/bin/sh\nexport PYTHONPATH={ROOT}\nexec {PYTHON} -m anubis "$@"\n'
        program = written(self._etc / "anubis", command)
        program.chmod(0o755)
        own = {"ANUBIS": program, "CLUSTER": self.cluster, "WHEN_UNKNOWN": "wait"}
        own |= {"DEADLINE_S": 60, "SLURM_CONF": self.slurm.conf, **self._variables()}
        lines = [f"export {name}='{text}'" for name, text in own.items()]
        settings = self._etc / "settings.sh"
        settings.write_text("\n".join([settings.read_text(), *lines, ""]))

    def _variables(self) -> dict[str, str]:
        return {
            "ANUBIS_HOME": str(self.home),
            "ANUBIS_HISTORY": self.url,
            "SLURM_CONF": str(self.slurm.conf),
            "ANUBIS_WEBHOOK_URL": f"http://127.0.0.1:{RECEIVER}/hook",
        }

    def _scrape(self) -> None:
        """A Prometheus in the driver's network, which calls hosts by their names."""
        agents_of = [
            {
                "targets": [f"{self.bed.address_of(node)}:{AGENT_PORT}"],
                "labels": {"instance": node},
            }
            for node in self.nodes
        ]
        service = [{"targets": [f"127.0.0.1:{SERVICE}"]}]
        secret = {"credentials": self.token}
        settings = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
            "rule_files": [str(ROOT / "configs" / "prometheus" / "anubis.rules.yaml")],
            "scrape_configs": [
                {"job_name": "agents", "static_configs": agents_of},
                {"job_name": "anubis", "static_configs": service, "authorization": secret},
            ],
        }
        with self.bed.network_of("driver"):
            started = prometheus_server.running(self.folder, settings, port=PROMETHEUS)
            self.until_down.enter_context(started)

    @contextmanager
    def _receiving(self) -> Iterator[None]:
        receiver = Receiver(hear=self._hear)
        with self.bed.network_of("driver"):
            until_down = ExitStack()
            until_down.enter_context(receiver.listening(RECEIVER))
        with until_down:
            yield

    def _hear(self, body: bytes) -> None:
        message = Message(at=time.time(), facts=json.loads(body))
        self.messages.append(message)
        print(
            f"    message: {message.facts['topic']}: {message.facts['sentence']}", file=sys.stderr
        )
        if message.is_about("suspect"):
            threading.Thread(target=self._requeue, args=(message.facts["subject"],)).start()

    # --- what the site does by itself ---

    def _requeue(self, node: str) -> None:
        for job in self.slurm.run("squeue", "-h", "-w", node, "-o", "%A %j").stdout.splitlines():
            id, _, name = job.partition(" ")
            if name != "anubis-test":
                self.slurm.run("scontrol", "requeue", id, check=False)
                self.reflexes.append(f"job {id} put back into the queue, as {node} is suspected")

    def look_at_ranks(self, job: str) -> None:
        """Look on each node, as docs/diagnose.md says for several, then tell the service."""
        looks = self.jobs / job / "looks"
        nodes = self.nodes_of(job)
        diagnose = ["env", f"ANUBIS_HOME={self.home}", PYTHON, "-m", "anubis", "diagnose"]
        places = {node: f"--live={self.live_of(job, node)}" for node in nodes}
        looking = [
            self.bed.start(node, [*diagnose, places[node], f"--live-to={looks}"]) for node in nodes
        ]
        for look in looking:
            _, remarks = look.communicate(timeout=LIMIT_S)
            if look.returncode not in (0, 1, 2):
                print(remarks, file=sys.stderr)
        stall = {"event": "job-stalled", "job": job, "nodes": nodes, "reason": "no step"}
        self.post("/v1/events", {**stall, "id": f"{job} stands still", "cluster": "bed"})

    # --- ways in ---

    def command(self, *words: str, clock: bool = False) -> list[str]:
        """`anubis` where the operator sits; `clock`: with the clock that may jump."""
        variables = self._variables()
        paths = [str(self.folder / "clocked")] if clock else []
        variables["PYTHONPATH"] = os.pathsep.join([*paths, str(ROOT)])
        settings = [f"{name}={text}" for name, text in variables.items()]
        into = self.bed.words_into("driver")
        return [*into, "env", *settings, PYTHON, "-m", "anubis", *words]

    def anubis(self, *words: str) -> list[dict[str, Any]]:
        """Run a verb, and return its JSON."""
        command = self.command(*words, "--cluster", str(self.cluster), "--json")
        ran = subprocess.run(command, capture_output=True, text=True, timeout=900)
        sys.stderr.write(ran.stderr)
        return [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]

    def fetch(self, port: int, path: str, body: bytes | None = None) -> bytes:
        headers = {"Content-Type": "application/json"}
        if port == SERVICE and hasattr(self, "token"):
            headers["Authorization"] = f"Bearer {self.token}"
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body, headers)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with self.bed.network_of("driver"), opener.open(request, timeout=10) as answer:
            return bytes(answer.read())

    def post(self, path: str, document: Mapping[str, object]) -> None:
        self.fetch(SERVICE, path, json.dumps(document).encode())

    def figure(self, question: str) -> list[dict[str, Any]]:
        """Ask Prometheus, and return its answer."""
        query = urllib.parse.urlencode({"query": question})
        answer = json.loads(self.fetch(PROMETHEUS, f"/api/v1/query?{query}"))
        result: list[dict[str, Any]] = answer["data"]["result"]
        return result

    @contextmanager
    def history(self) -> Iterator[ClusterHistory]:
        with History.open(self.url) as history:
            yield history.cluster("bed")

    def message(
        self, topic: str, subject: str = "", *, since: float = 0.0, begins: str = "yes"
    ) -> Message | None:
        """The first that people were sent since then."""
        about = (m for m in list(self.messages) if m.is_about(topic, subject, begins))
        return next((message for message in about if message.at >= since), None)

    def value(self, question: str) -> float | None:
        """The one figure that Prometheus answers."""
        with suppress(OSError, IndexError):
            return float(self.figure(question)[0]["value"][1])
        return None

    def swapped(self, node: str, since: float) -> str:
        """The spare that took its place."""
        with self.history() as part:
            actions = part.keeping.newest_actions()
        commands = [action.command for action in actions if action.at >= since]
        return next((c.spare for c in commands if isinstance(c, Swap) and c.node == node), "")

    def damages(self) -> int:
        with History.open(self.url) as history:
            return len(history.examine().damages)

    def states(self) -> dict[str, str]:
        with self.history() as part:
            return {life.node: life.state.value for life in part.keeping.lives()}

    def shown(self, node: str) -> str:
        return f"{self.slurm.state(node)}: {self.slurm.reason(node)}"

    def processes(self, host: str, mark: str) -> list[int]:
        """Those of a host whose command line has this in it."""
        pids = []
        for pid in self.bed.pids_of(host):
            with suppress(OSError):
                words = Path("/proc", pid, "cmdline").read_text().replace("\0", " ")
                if mark in words:
                    pids.append(int(pid))
        return pids

    # --- jobs ---

    def submit(self, name: str, job: str, fault: str, *options: str, step: int = 40) -> str:
        """A job of a rank on each of four hosts, begun by srun; its id."""
        place = self.jobs / "$SLURM_JOB_ID"
        words = [job, fault, "1", str(step), str(place), *options]
        hook = add_hook({}, Path("$LIVE"))
        rank = (
            f"LIVE={place}/live/$(hostname); mkdir -p -m 700 $LIVE; exec env "
            + " ".join(f"{key}={text}" for key, text in hook.items())
            + f" OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=eth0 {PYTHON} {PROGRAM} "
            + " ".join(words)
        )
        script = (
            f"mkdir -p {place}/logs; "
            "export MASTER_ADDR=$(getent hosts $SLURMD_NODENAME | cut -d ' ' -f 1)"
            " MASTER_PORT=$((20000 + SLURM_JOB_ID % 1000)); "
            f"srun --mpi=none --output={place}/logs/rank_%t.log sh -c '{rank}'"
        )
        options_of_slurm = [f"--nodes={RANKS}", "--ntasks-per-node=1", "--exclusive", "--requeue"]
        return self.slurm.submit(
            *options_of_slurm, "--time=30", f"--job-name={name}", script=script
        )

    def live_of(self, job: str, node: str) -> Path:
        return self.jobs / job / "live" / node

    def steps(self, job: str) -> list[tuple[int, float]]:
        """The steps of a job, with the time of each."""
        noted = self.jobs / job / "steps"
        lines = noted.read_text().splitlines() if noted.exists() else []
        pairs = (line.split() for line in lines)
        return [(int(step), float(at)) for step, at in pairs]

    def shown_of(self, job: str, name: str) -> str:
        """A field of a job, as Slurm shows it."""
        shown = self.slurm.run("scontrol", "show", "job", job, check=False).stdout
        match = re.search(rf"^\s*(?:.* )?{name}=(.*?)(?: \w+=.*)?$", shown, re.MULTILINE)
        return match[1].strip() if match else ""

    def job_state(self, job: str) -> str:
        return self.shown_of(job, "JobState")

    def comment(self, job: str) -> str:
        """The answer of the gate when Slurm last asked about it."""
        return self.shown_of(job, "AdminComment")

    def await_stall(self, job: str) -> None:
        """Wait until the job made no step for ten seconds, as a site's own watchdog would."""
        noted = self.jobs / job / "steps"
        eventually(lambda: time.time() - noted.stat().st_mtime > 10.0)

    def completed(self, job: str) -> str:
        """The job as sacct shows it after its end."""
        columns = "--format=jobid,jobname,state,nodelist,elapsed"
        shown = self.slurm.run("sacct", "-c", "-n", "-P", columns).stdout.splitlines()
        return next((row for row in reversed(shown) if row.startswith(f"{job}|")), "")

    def nodes_of(self, job: str) -> list[str]:
        named = self.slurm.run("squeue", "-h", "-j", job, "-o", "%N", check=False).stdout.strip()
        if not named:
            return []
        return self.slurm.run("scontrol", "show", "hostnames", named).stdout.split()
