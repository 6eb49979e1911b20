"""Ranks of the job for processes, from recorders that give only the rank in each communicator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from anubis.core.errors import EvidenceError

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
