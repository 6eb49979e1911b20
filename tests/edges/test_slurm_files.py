"""The files under configs/slurm/ that an operator copies, with a real Slurm."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from anubis.store.history import History
from tests.edges import slurm_bed
from tests.edges.desk import Desk, eventually
from tests.edges.slurm_bed import SlurmBed

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "configs" / "slurm"
GO = "#!/bin/sh\necho 'cluster is new' >&2\necho 'go: node1 (cluster prod)'\n"
UNKNOWN = "#!/bin/sh\necho 'unknown: the budget leaves too much untested: node1'\nexit 2\n"
SILENT = "#!/bin/sh\nsleep 600\n"
BROKEN = "#!/bin/sh\necho \"No module named 'anubis'\" >&2\nexit 1\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As an operator has copied it, with a command that each test puts there."""
    folder = tmp_path_factory.mktemp("etc")
    for file in SCRIPTS.iterdir():
        shutil.copy(file, folder)
    return folder


@pytest.fixture(scope="module")
def slurm(folder: Path) -> Iterator[SlurmBed]:
    if reason := slurm_bed.why_not():
        pytest.skip(reason)
    names = {"PrologSlurmctld": "prolog.sh", "EpilogSlurmctld": "epilog.sh"}
    settings = [f"{key}={folder / name}" for key, name in names.items()]
    with SlurmBed(["node1"], [*settings, "PrologEpilogTimeout=60"]) as bed:
        yield bed


class Site:
    """Who changes settings.sh and the command of Anubis."""

    def __init__(self, folder: Path, slurm: SlurmBed, desk: Desk) -> None:
        self.folder, self.slurm, self.desk = folder, slurm, desk
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
        self.settle(f'#!/bin/sh\n{where}\nexec {sys.executable} -m anubis "$@"\n', **settings)

    def comment(self, job: str) -> str:
        shown = self.slurm.run("scontrol", "show", "job", job).stdout
        return next((line for line in shown.splitlines() if "AdminComment" in line), "").strip()

    def ask(self, job: str) -> tuple[int, str]:
        """The prolog, as slurmctld calls it: with next to no environment."""
        environment = {"SLURM_JOB_ID": job, "SLURM_JOB_NODELIST": "node1"}
        prolog = str(self.folder / "prolog.sh")
        done = subprocess.run([prolog], env=environment, capture_output=True, timeout=60)
        return done.returncode, self.comment(job)


@pytest.fixture
def site(folder: Path, slurm: SlurmBed, desk: Desk) -> Iterator[Site]:
    yield Site(folder, slurm, desk)
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


def test_the_gate_hears_how_long_the_job_may_run(site):
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
    desk.run("import", "incidents", str(incidents), "--cluster", "prod")
    site.real(DEADLINE_S=60)
    job = site.slurm.submit()
    assert shows(site, job, "PENDING BeginTime")
    assert (
        'wait: no-go, and nothing was run: node1: its incident "gpu" is not over'
        in site.comment(job)
    )
    incidents.write_text("node,category,start,end\nnode1,gpu,2026-11-01T08:00,2026-11-01T09:00\n")
    desk.run("import", "incidents", str(incidents), "--cluster", "prod")
    site.slurm.run("scontrol", "update", f"jobid={job}", "starttime=now")
    assert shows(site, job, "RUNNING None")
    assert "run: unknown" in site.comment(job)


@pytest.mark.long
def test_the_end_of_a_job_is_told_once(site, desk):
    site.real(DEADLINE_S=60)
    desk.write("prod.yaml", {"executor": "local", "name": "prod"})
    assert desk.run("tell", "node-added", "node1", "--cluster", "prod.yaml", "--later").code == 0
    job = site.slurm.submit(script="true")
    ended = f"job {job} ended"

    def notices() -> list[str]:
        with History.open(f"sqlite:///{desk.history}") as history:
            return [notice.id for notice in history.of("prod").notices.all()]

    queue = ("squeue", "-h", "-j", job, "-o", "%T")  # the job stays until its epilog is over
    assert eventually(lambda: not site.slurm.run(*queue, check=False).stdout)
    assert notices().count(ended) == 1
    environment = {"SLURM_JOB_ID": job, "SLURM_JOB_NODELIST": "node1"}
    again = subprocess.run([str(site.folder / "epilog.sh")], env=environment, capture_output=True)
    assert again.returncode == 0
    assert notices().count(ended) == 1
    assert f"job {job}" in desk.run("history", "show", "node1", "--json").out
