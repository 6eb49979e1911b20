"""How many nodes may be out at once, of a fleet, a sku or a job. Beyond it a person decides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from anubis.core.lifecycle.life import Life
from anubis.core.lifecycle.policy import KeepingPolicy, allowed
from anubis.core.lifecycle.reasons import NO_DEFECT, UNPROVEN

FLEET = "fleet"


@dataclass(frozen=True, kw_only=True)
class Breaker:
    """Of one scope: how many a person has accepted to be out, and whether it waits for one."""

    accepted: int = 0
    is_open: bool = False


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """How many more nodes of a scope may be taken out."""

    scope: str
    out: int
    new: int  # that are kept out until they are proven
    among: int
    limit: int

    @property
    def is_full(self) -> bool:
        """New nodes have never served, so they take no room from those that have to go."""
        return self.out >= self.limit

    @property
    def left_for_new(self) -> int:
        return self.limit - self.out - self.new


def scopes(life: Life) -> Iterator[str]:
    yield FLEET
    if life.sku:
        yield f"sku {life.sku}"
    for job in life.jobs:
        yield f"job {job}"


def room(
    scope: str, lives: Iterable[Life], policy: KeepingPolicy, breakers: Mapping[str, Breaker]
) -> Allowance:
    among = out = new = 0
    for life in lives:
        if life.is_there and scope in scopes(life):
            among += 1
            out += life.must_be_out and life.out_code not in ("", *NO_DEFECT)
            new += life.out_code == UNPROVEN
    share = {FLEET: policy.out_of_fleet, "sku": policy.out_of_sku, "job": policy.out_of_job}
    accepted = breakers.get(scope, Breaker()).accepted
    limit = accepted + allowed(share[scope.partition(" ")[0]], among)
    return Allowance(scope=scope, out=out, new=new, among=among, limit=limit)
