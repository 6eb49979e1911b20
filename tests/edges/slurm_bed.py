"""A real Slurm of one's own: munged, slurmctld and a slurmd for each node. It asserts nothing.

`with SlurmBed(["node1", "node2"]) as slurm: slurm.run("sinfo")`. All on this machine, at ports of
its own; or each slurmd on a host of a test bed, by the words that lead there and its address.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.patience import LIMIT_S, eventually

GRACE_S = 5.0  # what has not ended by then is killed
READY = {"idle", "mixed", "allocated"}


def why_not() -> str:
    """The reason why this machine can have no Slurm; "" if it can."""
    if os.geteuid() != 0:
        return "a Slurm of one's own needs root"
    missing = [
        tool for tool in ("munged", "slurmctld", "slurmd", "sinfo") if not shutil.which(tool)
    ]
    return f"absent: {', '.join(missing)} (scripts/tools installs them)" if missing else ""


@dataclass(frozen=True, kw_only=True)
class SlurmHost:
    """The place of a daemon."""

    address: str = "127.0.0.1"
    inside: tuple[str, ...] = ()  # words before its command, such as those that enter a namespace
    hostname: str = socket.gethostname()


HERE = SlurmHost()


class SlurmBed:
    def __init__(
        self,
        nodes: Sequence[str],
        settings: Sequence[str] = (),
        *,
        hosts: Mapping[str, SlurmHost] | None = None,
        controller: SlurmHost = HERE,
        features: str = "",
        requeued_after_s: int = 120,
    ) -> None:
        """`settings`: further lines of slurm.conf. `requeued_after_s`: a job that is put back waits
        for so long at least."""
        self.nodes = tuple(nodes)
        self._settings = settings
        self._hosts = hosts or {}
        self._controller = controller
        self._features = features
        self._requeued_after_s = requeued_after_s
        self._until_down = ExitStack()
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> SlurmBed:
        # a socket's path is short, and munged wants others to reach it
        self.folder = Path(tempfile.mkdtemp(prefix="anubis-slurm-", dir="/tmp"))
        self._until_down.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self.folder.chmod(0o755)
        self.conf = self.folder / "slurm.conf"
        self.environment = {**os.environ, "SLURM_CONF": str(self.conf)}
        try:
            self._start_munge()
            self._write_conf()
            self.start_controller()
            for node in self.nodes:
                self.start_node(node)
            if not eventually(self._is_settled) or not self.is_up():
                raise AssertionError(f"Slurm was not up in {LIMIT_S:g} s:\n{self.logs()}")
        except BaseException:
            self._until_down.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._daemons["slurmctld"].poll() is None:
            self.run("scancel", "--full", "--user=root", check=False)
            eventually(lambda: not self.run("squeue", "-h", check=False).stdout, limit_s=10)
        self._until_down.close()

    def run(
        self, *words: str, check: bool = True, timeout_s: float = LIMIT_S
    ) -> subprocess.CompletedProcess[str]:
        """A command of Slurm, or any that finds this Slurm by its environment."""
        done = subprocess.run(
            [*self._controller.inside, *words],
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        if check and done.returncode:
            raise AssertionError(f"{words} exited with {done.returncode}: {done.stderr}")
        return done

    def submit(self, *options: str, script: str = "sleep 600") -> str:
        """A batch job; its id."""
        return self.run(
            "sbatch", "--parsable", "-o", "/dev/null", *options, "--wrap", script
        ).stdout.strip()

    def state(self, node: str) -> str:
        """State of a node, as `idle+drain`."""
        return self.run("sinfo", "-h", "-n", node, "-O", "StateComplete:100").stdout.strip()

    def reason(self, node: str) -> str:
        return self.run("sinfo", "-h", "-n", node, "-o", "%E").stdout.strip()

    def start_controller(self) -> None:
        self.start("slurmctld", *self._controller.inside, "slurmctld", "-D", "-f", str(self.conf))

    def start_node(self, node: str) -> None:
        inside = self._hosts.get(node, HERE).inside
        self.start(node, *inside, "slurmd", "-D", "-N", node, "-f", str(self.conf))

    def start(self, name: str, *command: str) -> None:
        with (self.folder / f"{name}.out").open("ab") as output:
            daemon = subprocess.Popen(
                command, cwd=self.folder, env=self.environment, stdout=output, stderr=output
            )
        self._daemons[name] = daemon
        self._until_down.callback(_end, daemon)

    def stop(self, name: str) -> None:
        """A node by its name, or "slurmctld"."""
        _end(self._daemons[name])

    def logs(self) -> str:
        files = sorted([*self.folder.glob("*.out"), *self.folder.glob("*.log")])
        return "\n".join(f"--- {file.name}\n{file.read_text()[-2000:]}" for file in files)

    def _is_settled(self) -> bool:
        return any(d.poll() is not None for d in self._daemons.values()) or self.is_up()

    def is_up(self) -> bool:
        """Every node, for jobs."""
        shown = self.run("sinfo", "-h", "-N", "-o", "%T", check=False).stdout.split()
        return len(shown) == len(self.nodes) and set(shown) <= READY

    def _start_munge(self) -> None:
        key, end = self.folder / "munge.key", self.folder / "munge"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        files = {"key-file": key, "socket": f"{end}.sock", "pid-file": f"{end}.pid"}
        files |= {"log-file": f"{end}.log", "seed-file": f"{end}.seed"}
        options = [f"--{option}={file}" for option, file in files.items()]
        self.start("munge", "munged", "--force", "--foreground", *options)
        if not eventually(Path(f"{end}.sock").exists):
            raise AssertionError(f"munged was not up in {LIMIT_S:g} s:\n{self.logs()}")

    def _write_conf(self) -> None:
        ports = iter(_free_ports(1 + len(self.nodes)))
        lines = [
            "ClusterName=bed",
            f"SlurmctldHost={self._controller.hostname}({self._controller.address})",
            f"SlurmctldPort={next(ports)}",
            f"AuthInfo=socket={self.folder}/munge.sock,cred_expire={self._requeued_after_s}",
            "SlurmUser=root",
            "SlurmdUser=root",
            f"StateSaveLocation={self.folder}/state",
            f"SlurmdSpoolDir={self.folder}/spool-%n",
            f"SlurmctldPidFile={self.folder}/slurmctld.pid",
            f"SlurmdPidFile={self.folder}/%n.pid",
            f"SlurmctldLogFile={self.folder}/slurmctld.log",
            f"SlurmdLogFile={self.folder}/%n.log",
            "ProctrackType=proctrack/linuxproc",
            "TaskPlugin=task/none",
            "MpiDefault=none",
            "ReturnToService=1",
            "SlurmdParameters=config_overrides",
            "SelectType=select/cons_tres",
            "SchedulerParameters=batch_sched_delay=0,sched_interval=1",
            "KillWait=2",
            "MessageTimeout=5",
            *(f"{self._node(node)} Port={next(ports)}" for node in self.nodes),
            f"PartitionName=gpu Nodes={','.join(self.nodes)} Default=YES",
            *self._settings,
        ]
        self.conf.write_text("\n".join(lines) + "\n")

    def _node(self, node: str) -> str:
        host = self._hosts.get(node, HERE)
        features = f" Features={self._features}" if self._features else ""
        where = f"NodeHostname={host.hostname} NodeAddr={host.address}"
        return f"NodeName={node} {where} CPUs=4{features}"


def _free_ports(number: int) -> list[int]:
    with ExitStack() as until_all_are_known:
        sockets = [until_all_are_known.enter_context(socket.socket()) for _ in range(number)]
        for free in sockets:
            free.bind(("127.0.0.1", 0))
        return [free.getsockname()[1] for free in sockets]


def _end(daemon: subprocess.Popen[bytes]) -> None:
    daemon.terminate()
    try:
        daemon.wait(timeout=GRACE_S)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()
