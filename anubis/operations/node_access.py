"""How each node is reached to start Ray: by the cluster's file, or by ssh if Slurm starts no job
there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from anubis.core.keep.keeper_events import SeenNode
from anubis.reach.executors.start_settings import RayStart
from anubis.reach.orchestrators.orchestrator_settings import SlurmSettings
from anubis.reach.orchestrators.slurm import SlurmOrchestrator
from anubis.reach.orchestrators.slurm_states import read_state


def ways_to(names: Sequence[str], way: RayStart) -> dict[str, RayStart]:
    """Settings for reaching each node. A drained node without a job is nobody's and stays so: ssh
    disturbs nobody there."""
    if not way.drained_by:
        return dict.fromkeys(names, way)
    seen = SlurmOrchestrator(SlurmSettings(kind="slurm")).observe()
    past_slurm = replace(way, by="ssh", options=way.drained_by[1:])
    return {name: past_slurm if is_drained(seen.nodes.get(name)) else way for name in names}


def is_drained(node: SeenNode | None) -> bool:
    """True if a node is drained, has no job, and is not in a maintenance."""
    if node is None or node.jobs or not node.is_up:
        return False
    shown = read_state(node.state)
    return "drain" in shown.words and not shown.is_in_maintenance
