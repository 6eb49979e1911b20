"""Prepare a demonstration: a home of its own, recordings of two made jobs, and the commands to
play. All of it is synthetic; the commands are the same as on a real cluster."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from anubis.core.errors import UsageError
from anubis.core.text import escape_line
from anubis.text import hostlist

MARK = ".anubis-demo"  # only a folder that has it is cleared
SLOW_JOB_NODES = "node[0001-0032]"
HANGING_JOB_NODES = "node[0033-0048]"
STOPPED_RANK, STOPPED_AT = 11, 9  # the rank that stops, and before which of its operations


@dataclass(frozen=True, kw_only=True)
class DemoStep:
    """A command of the demonstration, and what it has to answer."""

    title: str
    command: str
    exit_code: int
    shown: int  # lines of its answer
    since: str = ""  # show the answer from the line that begins with this

    @property
    def words(self) -> list[str]:
        return shlex.split(self.command)


STEPS = (
    DemoStep(
        title="Accept 256 simulated nodes: learn what is normal, and name the nodes that are not",
        command="accept --cluster simulated",
        exit_code=1,
        shown=9,
    ),
    DemoStep(
        title="Scan the network between them: one uplink is bad",
        command="scan --cluster simulated",
        exit_code=1,
        shown=4,
        since="✗ defective",
    ),
    DemoStep(
        title="Ask the gate about 16 nodes for a job of 24 hours: one of them is out of service",
        command="gate 'node[0097-0112]' --duration 24h",
        exit_code=1,
        shown=3,
    ),
    DemoStep(
        title="Ask again without it: history and a few tests suffice",
        command="gate 'node[0097-0102],node[0104-0112]' --duration 24h",
        exit_code=0,
        shown=2,
    ),
    DemoStep(
        title="Report a GPU error on a node",
        command="tell incident-reported node0042 --category gpu",
        exit_code=0,
        shown=2,
    ),
    DemoStep(
        title="Sweep: test the nodes most at risk, within 8 node-hours",
        command="sweep --budget 8nh --cluster simulated",
        exit_code=2,
        shown=8,
    ),
    DemoStep(
        title="Find the node that was unlike its peers in a job that became slow and failed",
        command="watch --file slow-job.csv --ended --html slow-job.html",
        exit_code=1,
        shown=9,
    ),
    DemoStep(
        title="Diagnose a job of 16 ranks that hangs, from its Flight Recorder dumps",
        command=f"diagnose 4711 --dumps hanging-job --nodes '{HANGING_JOB_NODES}' "
        "--ranks-per-node 1 --html hanging-job.html",
        exit_code=1,
        shown=6,
    ),
    DemoStep(
        title="Let the keeper look: it proposes, and does nothing that its policy has not allowed",
        command="keep --cluster simulated",
        exit_code=1,
        shown=8,
    ),
)


def prepare_demo(home: Path) -> None:
    """Make an empty home with the recordings of the jobs. An earlier demonstration there is
    removed; any other folder is refused."""
    if home.exists():
        _remove_earlier(home)
    try:
        home.mkdir(mode=0o700, parents=True)
    except FileNotFoundError as cause:  # as below /proc
        raise UsageError(f'cannot make "{home}": {cause.strerror}') from None
    (home / MARK).touch()
    _write_slow_job(home / "slow-job.csv")
    _write_hanging_job(home / "hanging-job")


def environment(around: Mapping[str, str], home: Path) -> dict[str, str]:
    """Environment of the commands: nothing of this user's own history is touched."""
    return {
        **{name: value for name, value in around.items() if not name.startswith("ANUBIS_")},
        "ANUBIS_HOME": str(home),
    }


def _remove_earlier(home: Path) -> None:
    if not home.is_dir() or (any(home.iterdir()) and not (home / MARK).is_file()):
        raise UsageError(
            f'"{escape_line(str(home))}" exists and is no demonstration: name a folder'
            " that does not exist yet"
        )
    shutil.rmtree(home)


def _write_slow_job(path: Path) -> None:
    from anubis.lab.simulation.job_rhythm import LEVELS
    from anubis.lab.simulation.jobs import generate
    from anubis.readers.telemetry.config import ORDER, shipped_settings
    from anubis.readers.telemetry.recorded import write_recording

    nodes = hostlist.expand(SLOW_JOB_NODES)
    metrics = shipped_settings().watched_metrics([name for name in ORDER if name in LEVELS])
    job = generate(8, metrics, fault="pcie-downgrade", minutes=15, nodes=len(nodes))
    write_recording(replace(job.telemetry, nodes=tuple(nodes)), path)


def _write_hanging_job(folder: Path) -> None:
    from anubis.lab.simulation.hangs import HangFault, HangingJob, JobLayout, dump_bytes

    folder.mkdir()
    job = HangingJob(JobLayout(tp=4, pp=2, dp=2), [HangFault(STOPPED_RANK, STOPPED_AT)]).run()
    for rank, dump in job.dumps().items():
        (folder / f"dump_{rank}").write_bytes(dump_bytes(dump, as_json=True))
