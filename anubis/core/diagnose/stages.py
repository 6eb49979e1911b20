"""The stage of each rank in a pipeline, by the names of its groups: ranks of different stages do
different work, so one is no measure for another."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

# as DeviceMesh, Megatron and DeepSpeed name them: mesh_pp, PIPELINE_MODEL_PARALLEL_GROUP, pipe
_PIPELINE = re.compile(r"(?:^|[^a-z])(?:pp|pipe|pipeline)(?:[^a-z]|$)", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class NamedGroup:
    """A group of ranks as one of its members has it."""

    rank: int
    name: str
    members: tuple[int, ...]  # in their order


def pipeline_stages(groups: Iterable[NamedGroup]) -> Mapping[int, int]:
    """Return the stage of each rank: its place in the group of its pipeline. Empty if a rank is in
    no such group or in several that disagree, as nobody knows its stage then."""
    stages: dict[int, set[int]] = {}
    for group in groups:
        of_rank = stages.setdefault(group.rank, set())
        if _PIPELINE.search(group.name) and group.rank in group.members:
            of_rank.add(group.members.index(group.rank))
    if any(len(of_rank) != 1 for of_rank in stages.values()):
        return {}
    return {rank: min(of_rank) for rank, of_rank in stages.items()}
