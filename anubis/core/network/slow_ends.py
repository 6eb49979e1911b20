"""NICs below a leaf that explain its bad flows as well as the leaf does.

Every flow of a NIC crosses its leaf. So a faulty leaf leaves no good flow, and each NIC below it
falls short with NICs of other leaves that are good elsewhere. If some of its flows are good, there
may as well be several slow nodes below a sound leaf. The same holds if half of its NICs explain all
flows, other leaves have slow nodes too, and no other rail shows these nodes to be good.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from anubis.core.fabric import Fabric, RailNic
from anubis.core.network.localization import Cause
from anubis.core.network.posterior import Observation
from anubis.core.network.traffic import LIMIT, Traffic


def rival_ends(fabric: Fabric, cause: Cause, traffic: Traffic) -> list[RailNic]:
    """NICs that explain the bad flows of a leaf in its place; none if it is the better cause."""
    part = cause.parts[0]
    on_leaf = {nic.rail_nic for nic in fabric.nics_on.get(part.name, ())}
    if not on_leaf or len(cause.parts) > 1 or (part.kind, cause.way) != ("switch", "both"):
        return []
    well = _ends(seen for seen in traffic.observations if _is_good(seen))
    ends = _cover([_ends([seen]) - well for seen in cause.bad])
    measured = on_leaf & _ends(traffic.observations)
    half = 2 * len(ends) <= len(measured) and not _are_well(ends, well)
    return ends if cause.good or (half and _is_bad_elsewhere(traffic, on_leaf)) else []


def _are_well(ends: Iterable[RailNic], well: set[RailNic]) -> bool:
    nodes = {end.node for end in well}
    return any(end.node in nodes for end in ends)


def _is_bad_elsewhere(traffic: Traffic, on_leaf: set[RailNic]) -> bool:
    bad = (seen for seen in traffic.observations if seen.shortfall > LIMIT)
    return any(on_leaf.isdisjoint(_ends([seen])) for seen in bad)


def _ends(observations: Iterable[Observation]) -> set[RailNic]:
    return {end for seen in observations for end in (seen.flow.source, seen.flow.target)}


def _is_good(seen: Observation) -> bool:
    return seen.shortfall <= LIMIT and not seen.flow.gone


def _cover(suspects: list[set[RailNic]]) -> list[RailNic]:
    """A few NICs, one or both of each flow; none if the ends of a flow are good elsewhere."""
    chosen: list[RailNic] = []
    if not all(suspects):
        return chosen
    while suspects:
        counts = Counter(end for ends in suspects for end in ends)
        chosen.append(min(counts, key=lambda end: (-counts[end], end)))
        suspects = [ends for ends in suspects if chosen[-1] not in ends]
    return sorted(chosen)
