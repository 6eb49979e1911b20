"""Limit how many nodes of a fleet, a sku or a job may be out at once. Beyond the limit a person
decides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

from anubis.core.keep.keeping_policy import KeepingPolicy, allowed_count
from anubis.core.keep.life import Life

FLEET = "fleet"
OF_JOB = "job"


@dataclass(frozen=True, kw_only=True)
class Breaker:
    """State of one scope: how many nodes out a person has accepted, and whether it waits for a
    person."""

    accepted: int = 0
    is_open: bool = False

    def cap_accepted(self, out: int) -> Self:
        """Breaker with no more accepted than are out now: the acceptance was about those nodes."""
        return self if self.accepted <= out else replace(self, accepted=out)


@dataclass(frozen=True, kw_only=True)
class ScopeCount:
    """Counts of the nodes of a scope that are present."""

    among: int = 0
    out: int = 0  # taken out because of a known problem
    new: int = 0  # kept out until they are proven, those included that are lost


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """How many more nodes of a scope may be taken out."""

    count: ScopeCount
    limit: int

    @property
    def is_full(self) -> bool:
        """Return whether no more nodes may go out. New nodes have never served, so they do not
        count."""
        return self.count.out >= self.limit

    @property
    def left_for_new(self) -> int:
        return self.limit - self.count.out - self.count.new


def scopes(life: Life) -> Iterator[str]:
    yield FLEET
    if life.sku:
        yield f"sku {life.sku}"
    for job in life.jobs:
        yield f"{OF_JOB} {job}"


def room(scope: str, count: ScopeCount, policy: KeepingPolicy, breaker: Breaker) -> Allowance:
    share = {FLEET: policy.out_of_fleet, "sku": policy.out_of_sku, OF_JOB: policy.out_of_job}
    limit = breaker.accepted + allowed_count(share[scope.partition(" ")[0]], count.among)
    return Allowance(count=count, limit=limit)
