"""How many nodes may be out at once, of a fleet, a sku or a job. Beyond it a person decides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

from anubis.core.keep.life import Life
from anubis.core.keep.policy import KeepingPolicy, allowed

FLEET = "fleet"
OF_JOB = "job"


@dataclass(frozen=True, kw_only=True)
class Breaker:
    """Of one scope: how many a person has accepted to be out, and whether it waits for one."""

    accepted: int = 0
    is_open: bool = False

    def after(self, out: int) -> Self:
        """What a person accepted falls with the nodes that are out: it was about these."""
        return self if self.accepted <= out else replace(self, accepted=out)


@dataclass(frozen=True, kw_only=True)
class ScopeCount:
    """Of the nodes of a scope that are there."""

    among: int = 0
    out: int = 0  # that were taken out for something that is held against them
    new: int = 0  # that are kept out until they are proven


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """How many more nodes of a scope may be taken out."""

    count: ScopeCount
    limit: int

    @property
    def is_full(self) -> bool:
        """New nodes have never served, so they take no room from those that have to go."""
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
    limit = breaker.accepted + allowed(share[scope.partition(" ")[0]], count.among)
    return Allowance(count=count, limit=limit)
