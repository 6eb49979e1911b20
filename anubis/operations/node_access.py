"""How each node is reached to start Ray: by the cluster's file, or by ssh if Slurm starts no job
there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from anubis.reach.executors.start_settings import RayStart
from anubis.reach.orchestrators.slurm import nodes_without_jobs


def ways_to(names: Sequence[str], way: RayStart) -> dict[str, RayStart]:
    """Settings for reaching each node. A drained node without a job is nobody's and stays so: ssh
    disturbs nobody there."""
    if not way.drained_by:
        return dict.fromkeys(names, way)
    drained = nodes_without_jobs()
    past_slurm = replace(way, by="ssh", options=way.drained_by[1:])
    return {name: past_slurm if name in drained else way for name in names}
