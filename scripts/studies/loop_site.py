"""A whole site on one machine, for show-loop: hosts as network namespaces under an owner (a real
Slurm, or a real API server of Kubernetes), a PostgreSQL, a Prometheus that scrapes an agent on each
host, `anubis serve` with all commands on `act`, and a receiver of its messages. It asserts nothing.

What a site adds of its own is here as well, because a site has to write it: an answer to a
suspicion (the job on that node is put back into the queue), and one to a job that stands still (its
ranks are looked at on their hosts, and the service is told).
"""

from __future__ import annotations

import json
import os
import re
import ssl
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from study import PYTHON, ROOT, SMOKE

from anubis.core.keep.commands import Swap
from anubis.operations.caller import Caller
from anubis.operations.tokens import make_token
from anubis.readers.jobs.live import add_hook
from anubis.store.history import ClusterHistory, History
from tests.edges import postgresql, prometheus_server
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
    """A change that the owner showed."""

    at: float
    subject: str  # a node, or a job
    shown: str


@dataclass(frozen=True, kw_only=True)
class ServiceSettings:
    """How the service is begun, and how it is reached."""

    options: Sequence[str] = ()
    authority: Path | None = None
    """The certificate of the authority that signed its own. None: no TLS."""

    @property
    def scheme(self) -> str:
        return "https" if self.authority else "http"


class Owner(Protocol):
    """The owner of the hosts, which starts jobs on them if the gate lets them."""

    name: str
    parts: Sequence[str]
    """What of it is real, and what is played."""
    source: str
    """The commands, or the like, by which it shows nodes and jobs."""
    cluster: Mapping[str, object]
    """Lines of the cluster's file."""
    variables: Mapping[str, str]
    service: ServiceSettings

    def ask_gate(self, site: LoopSite) -> None:
        """Have it ask the gate before each job."""

    def look(self) -> Mapping[str, str]:
        """Return what it shows of each node (`state|reason`) and job (`state|node`) now."""

    def shown(self, node: str) -> str: ...

    def reason(self, node: str) -> str: ...

    def drain(self, node: str, reason: str) -> None:
        """Keep it from jobs, as a person does."""

    def submit(self, name: str, rank: str) -> str:
        """Submit a job of ranks; its id. `rank`: a line of shell that knows $PLACE."""

    def nodes_of(self, job: str) -> list[str]: ...

    def jobs_on(self, node: str) -> list[str]:
        """Jobs there, without tests."""

    def put_back(self, job: str) -> None:
        """Put it back into the queue."""

    def cancel(self, job: str) -> None: ...

    def state_of(self, job: str) -> str: ...

    def gate_answer(self, job: str) -> str:
        """The last answer of the gate about the job."""

    def outcome(self, job: str) -> str:
        """Its state at its end, and how often it was begun again."""


class Witness(threading.Thread):
    """What the owner shows of nodes and jobs, each second, without Anubis."""

    def __init__(self, owner: Owner) -> None:
        super().__init__(daemon=True)
        self._owner = owner
        self._last: Mapping[str, str] = {}
        self.changes: list[Seen] = []
        self.ends = threading.Event()

    def run(self) -> None:
        while not self.ends.wait(1.0):
            with suppress(Exception):  # the next second has another look
                self._look()

    def _look(self) -> None:
        shown, now = self._owner.look(), time.time()
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
        words += self._site.owner.service.options
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
    owned_by: Callable[[LoopSite], AbstractContextManager[Owner]]
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
        self.owner = enter(self.owned_by(self))
        self._write_files()
        self.token = self.new_token("site", "read", "report", "operate")
        self.owner.ask_gate(self)
        enter(agents(self.bed))
        self.witness = Witness(self.owner)
        self.witness.start()
        self.until_down.callback(self.witness.ends.set)
        enter(self._receiving())

    def serve(self) -> None:
        """Start the service; from here on Anubis acts."""
        self.service = Service(self)
        self.until_down.callback(self.service.end)
        self._scrape()

    def new_token(self, name: str, *scopes: str) -> str:
        return make_token(name, scopes, Caller(history_url=self.url))

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
        about |= self.owner.cluster
        self.cluster = written(self.folder / "bed.yaml", json.dumps(about))
        clock = CLOCK.format(file=str(self.clock_file))
        written(self.folder / "clocked" / "sitecustomize.py", clock)

    def variables(self) -> dict[str, str]:
        return {
            "ANUBIS_HOME": str(self.home),
            "ANUBIS_HISTORY": self.url,
            "ANUBIS_WEBHOOK_URL": f"http://127.0.0.1:{RECEIVER}/hook",
            **self.owner.variables,
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
        service: dict[str, object] = {"scheme": self.owner.service.scheme}
        service["static_configs"] = [{"targets": [f"127.0.0.1:{SERVICE}"]}]
        service["authorization"] = {"credentials": self.token}
        if authority := self.owner.service.authority:
            service["tls_config"] = {"ca_file": str(authority)}
        settings = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
            "rule_files": [str(ROOT / "configs" / "prometheus" / "anubis.rules.yaml")],
            "scrape_configs": [
                {"job_name": "agents", "static_configs": agents_of},
                {"job_name": "anubis", **service},
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
        for job in self.owner.jobs_on(node):
            self.owner.put_back(job)
            self.reflexes.append(f"job {job} put back into the queue, as {node} is suspected")

    def look_at_ranks(self, job: str) -> None:
        """Look on each node, as docs/running-jobs.md says for several, then tell the service."""
        looks = self.jobs / job / "looks"
        nodes = self.owner.nodes_of(job)
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
        variables = self.variables()
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
        scheme = "http"
        handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
        if port == SERVICE:
            headers["Authorization"] = f"Bearer {self.token}"
            scheme, authority = self.owner.service.scheme, self.owner.service.authority
            trusting = ssl.create_default_context(cafile=authority)
            handlers.append(urllib.request.HTTPSHandler(context=trusting))
        request = urllib.request.Request(f"{scheme}://127.0.0.1:{port}{path}", body, headers)
        opener = urllib.request.build_opener(*handlers)
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
        """A job of a rank on each of four hosts; its id."""
        words = [job, fault, "1", str(step), "$PLACE", *options]
        hook = add_hook({}, Path("$LIVE"))
        rank = (
            "LIVE=$PLACE/live/$(hostname); mkdir -p -m 700 $LIVE; exec env "
            + " ".join(f"{key}={text}" for key, text in hook.items())
            + f" OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=eth0 {PYTHON} {PROGRAM} "
            + " ".join(words)
        )
        return self.owner.submit(name, rank)

    def live_of(self, job: str, node: str) -> Path:
        return self.jobs / job / "live" / node

    def steps(self, job: str) -> list[tuple[int, float]]:
        """The steps of a job, with the time of each."""
        noted = self.jobs / job / "steps"
        lines = noted.read_text().splitlines() if noted.exists() else []
        pairs = (line.split() for line in lines)
        return [(int(step), float(at)) for step, at in pairs]

    def await_stall(self, job: str) -> None:
        """Wait until the job made no step for ten seconds, as a site's own watchdog would."""
        noted = self.jobs / job / "steps"
        eventually(lambda: time.time() - noted.stat().st_mtime > 10.0)
