"""A site's policy for the diagnosis of jobs: where jobs leave their traces, and what may be done
about the jobs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from anubis.core.diagnose.cures import CurePolicy
from anubis.core.watch.likelihood import FAULTS


@dataclass(frozen=True, kw_only=True)
class DiagnosisPolicy(CurePolicy):
    summary: str = ""
    """What it is for, in one line."""
    places: Mapping[str, str] = field(default_factory=dict)
    """Paths of the traces of a job: for the name of an option of `anubis diagnose`, such as logs or
    dumps, a path in which {job} is the job's id. The command line goes before it."""
    telemetry: str = "default"
    """The file under configs/telemetry/ with the addresses of the nodes' agents. If it has `agents`
    with a `token_file`, those on the nodes of a running job are asked to look at its ranks."""
    classes: str = "default"
    """What lines of logs mean: a table under configs/classes/."""
    categories: Mapping[str, str] = field(default_factory=dict)
    """What each kind of fault is called in this site's incidents, as in configs/watching/."""
    topology: str = ""
    """The fabric between its nodes: a file, or an example under configs/topologies/. Default: that
    of the last campaign that measured it, if the history is asked."""
    silent_s: float = 600.0
    """A running job is stalled, and is diagnosed, if its logs (of {job}) are silent for so long,
    or for twice as long after an earlier silence that ended. 0: silence is no sign of a stall."""
    zone: str = "UTC"
    """The time zone of log lines that name none, such as Europe/Berlin. A zone that a line names is
    believed."""
    ranks_per_node: int = 8
    """How many processes of a job run on each node."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if unknown := sorted(self.categories.keys() - FAULTS.keys()):
            kinds = ", ".join(FAULTS)
            raise ValueError(f'categories has "{unknown[0]}", expected kinds of faults: {kinds}')
        if not 0 <= self.silent_s < math.inf:
            raise ValueError(f"silent_s is {self.silent_s:g}, expected seconds from 0")
        if self.ranks_per_node < 1:
            raise ValueError(f"ranks_per_node is {self.ranks_per_node}, expected 1 or more")

    def place_of(self, trace: str, job: str) -> str:
        """Path of a job's trace. Empty: the site does not name one, or the path needs the id of a
        job and there is none."""
        place = self.places.get(trace, "")
        return "" if "{job}" in place and not job else place.replace("{job}", job)
