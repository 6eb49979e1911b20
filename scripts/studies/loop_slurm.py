"""A real Slurm that owns the hosts of show-loop, and whose prolog asks the gate, by the files of
configs/slurm/. It asserts nothing."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from loop_site import RANKS, LoopSite, ServiceSettings, written
from study import PYTHON, ROOT

from tests.edges.slurm_bed import SlurmBed, SlurmHost

DAEMONS = ("slurmctld", "slurmd", "munged")
TEST = "anubis-test"  # the name of the jobs in which nodes are tested


class LoopSlurm:
    name = "Slurm"
    source = "`sinfo`, `squeue` and `sacct`"
    service = ServiceSettings()

    def __init__(self, slurm: SlurmBed, etc: Path, site: LoopSite) -> None:
        self._slurm, self._etc, self._jobs = slurm, etc, site.jobs
        reach = ["ssh", "-F", str(site.bed.ssh_config)]
        self.cluster: Mapping[str, object] = {
            "orchestrator": {"kind": "slurm"},
            "start": "slurm",
            "drained_by": reach,
        }
        self.variables: Mapping[str, str] = {"SLURM_CONF": str(slurm.conf)}
        version = slurm.run("sinfo", "--version").stdout.strip()
        self.parts: Sequence[str] = (
            f"a real Slurm ({version}) whose prolog asks the gate",
            "Ray, brought up in jobs of Slurm for each test",
        )

    def ask_gate(self, site: LoopSite) -> None:
        """Write settings.sh, as an operator changes it."""
        command = f'#!/bin/sh\nexport PYTHONPATH={ROOT}\nexec {PYTHON} -m anubis "$@"\n'
        program = written(self._etc / "anubis", command)
        program.chmod(0o755)
        own = {"ANUBIS": program, "CLUSTER": site.cluster, "WHEN_UNKNOWN": "wait"}
        own |= {"DEADLINE_S": 60, **site.variables()}
        lines = [f"export {name}='{text}'" for name, text in own.items()]
        settings = self._etc / "settings.sh"
        settings.write_text("\n".join([settings.read_text(), *lines, ""]))

    def look(self) -> Mapping[str, str]:
        nodes = self._slurm.run("sinfo", "-h", "-N", "-o", "%N|%T|%E").stdout
        jobs = self._slurm.run("squeue", "-h", "-o", "job %A %j|%T|%N").stdout
        lines = [*nodes.splitlines(), *jobs.splitlines()]
        pairs = (line.partition("|") for line in lines)
        return {subject.strip(): state.removesuffix("|none") for subject, _, state in pairs}

    def shown(self, node: str) -> str:
        return f"{self._slurm.state(node)}: {self.reason(node)}"

    def reason(self, node: str) -> str:
        return self._slurm.reason(node)

    def drain(self, node: str, reason: str) -> None:
        words = ("scontrol", "update", f"nodename={node}", "state=drain", f"reason={reason}")
        self._slurm.run(*words)

    def submit(self, name: str, rank: str) -> str:
        script = (
            f"export PLACE={self._jobs}/$SLURM_JOB_ID; mkdir -p $PLACE/logs; "
            "export MASTER_ADDR=$(getent hosts $SLURMD_NODENAME | cut -d ' ' -f 1)"
            " MASTER_PORT=$((20000 + SLURM_JOB_ID % 1000)); "
            f"srun --mpi=none --output=$PLACE/logs/rank_%t.log sh -c '{rank}'"
        )
        options = [f"--nodes={RANKS}", "--ntasks-per-node=1", "--exclusive", "--requeue"]
        return self._slurm.submit(*options, "--time=30", f"--job-name={name}", script=script)

    def nodes_of(self, job: str) -> list[str]:
        named = self._field(job, "NodeList")  # also of a job that has ended
        if named in ("", "(null)"):
            return []
        return self._slurm.run("scontrol", "show", "hostnames", named).stdout.split()

    def jobs_on(self, node: str) -> list[str]:
        shown = self._slurm.run("squeue", "-h", "-w", node, "-o", "%A %j").stdout.splitlines()
        pairs = (line.split(maxsplit=1) for line in shown)
        return [id for id, name in pairs if name != TEST]

    def put_back(self, job: str) -> None:
        self._slurm.run("scontrol", "requeue", job, check=False)

    def cancel(self, job: str) -> None:
        self._slurm.run("scancel", job)

    def state_of(self, job: str) -> str:
        return self._field(job, "JobState")

    def gate_answer(self, job: str) -> str:
        return self._field(job, "AdminComment")

    def outcome(self, job: str) -> str:
        columns = "--format=jobid,jobname,state,nodelist,elapsed"
        shown = self._slurm.run("sacct", "-c", "-n", "-P", columns).stdout.splitlines()
        row = next((row for row in reversed(shown) if row.startswith(f"{job}|")), "")
        return f"sacct: {row}; restarts {self._field(job, 'Restarts')}"

    def _field(self, job: str, name: str) -> str:
        """A field of a job, as Slurm shows it."""
        shown = self._slurm.run("scontrol", "show", "job", job, check=False).stdout
        match = re.search(rf"^\s*(?:.* )?{name}=(.*?)(?: \w+=.*)?$", shown, re.MULTILINE)
        return match[1].strip() if match else ""


@contextmanager
def slurm_owner(site: LoopSite) -> Iterator[LoopSlurm]:
    etc = site.folder / "etc"
    shutil.copytree(ROOT / "configs" / "slurm", etc)
    bed = site.bed
    hosts = {
        host: SlurmHost(address=bed.address_of(host), inside=bed.words_into(host), hostname=host)
        for host in ("driver", *site.nodes)
    }
    settings = [
        f"PrologSlurmctld={etc / 'prolog.sh'}",
        f"EpilogSlurmctld={etc / 'epilog.sh'}",
        "PrologEpilogTimeout=120",
        "MessageTimeout=30",  # two cores answer for ten daemons
        "JobRequeue=1",
        "MinJobAge=7200",
        "JobCompType=jobcomp/filetxt",
        f"JobCompLoc={site.folder / 'completions'}",
    ]
    made = SlurmBed(
        site.nodes, settings, hosts=hosts, controller=hosts["driver"], requeued_after_s=20
    )
    with made:
        yield LoopSlurm(made, etc, site)
