"""Ranks of a job: their nodes, from a table or from the job's nodes in the order of ranks, their
processes, and their stages of a pipeline."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from anubis.core.diagnose.evidence import RankMap
from anubis.core.errors import EvidenceError
from anubis.readers.jobs.trace_reader import MOST_RANKS
from anubis.text.tables import Table, open_table, parse_table

COLUMNS = ("rank", "node", "stage", "address")


def number_ranks(nodes: Sequence[str], per_node: int) -> RankMap:
    """Number ranks as launchers do: the first so many are the first node's."""
    ranks = (node for node in nodes for _ in range(per_node))
    return RankMap(nodes=dict(enumerate(ranks)), addresses={node: node for node in nodes})


def read_ranks(path: Path) -> RankMap:
    """Read a table with a heading: rank and node and, if they are known, stage and address."""
    with open_table(path, EvidenceError) as table:
        return _ranks(table)


def parse_ranks(text: str, where: str) -> RankMap:
    return _ranks(parse_table(text, where, EvidenceError))


def _ranks(table: Table) -> RankMap:
    table.require(*COLUMNS[:2], columns=COLUMNS)
    nodes: dict[int, str] = {}
    stages: dict[int, int] = {}
    addresses: dict[str, str] = {}
    for row in table:
        rank, node = table.whole(row, "rank", MOST_RANKS), table.name(row, "node")
        if nodes.setdefault(rank, node) != node:
            raise EvidenceError(f"{table.at}: rank {rank} is on {nodes[rank]} and on {node}")
        if table.cell(row, "stage"):
            stages[rank] = table.whole(row, "stage", MOST_RANKS)
        addresses[node] = node
        if address := table.cell(row, "address"):
            addresses[address] = node
    if not nodes:
        raise EvidenceError(f"{table.where}: no ranks")
    return RankMap(nodes=nodes, stages=stages, addresses=addresses)


# --- ranks of processes, if a recorder gives only the rank in each communicator ----------------

JobProcess = tuple[str, int]  # its host, and its number there


@dataclass(frozen=True, kw_only=True)
class Membership:
    """A process is a rank of a communicator of this size."""

    communicator: str
    size: int
    rank: int
    process: JobProcess


def job_ranks(memberships: Iterable[Membership]) -> Mapping[JobProcess, int]:
    """Map processes to ranks. The largest communicators have all ranks, in the order of the job. A
    process in none of them has no rank, nor has a process that is several ranks because it drives
    several GPUs."""
    kept = list(memberships)
    size = max((membership.size for membership in kept), default=0)
    ranks: dict[JobProcess, set[int]] = {}
    owners: dict[tuple[str, int], JobProcess] = {}
    for membership in kept:
        if membership.size != size:
            continue
        place = membership.communicator, membership.rank
        if owners.setdefault(place, membership.process) != membership.process:
            raise EvidenceError(
                f"two processes are rank {membership.rank} of communicator"
                f" {membership.communicator}"
            )
        ranks.setdefault(membership.process, set()).add(membership.rank)
    return {process: min(own) for process, own in ranks.items() if len(own) == 1}


# --- stages of a pipeline ----------------------------------------------------------------------
# Ranks of different stages do different work, so one is no measure for another.

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
    no such group or in several that disagree, as its stage is unknown then."""
    stages: dict[int, set[int]] = {}
    for group in groups:
        of_rank = stages.setdefault(group.rank, set())
        if _PIPELINE.search(group.name) and group.rank in group.members:
            of_rank.add(group.members.index(group.rank))
    if any(len(of_rank) != 1 for of_rank in stages.values()):
        return {}
    return {rank: min(of_rank) for rank, of_rank in stages.items()}
