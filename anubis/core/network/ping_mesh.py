"""The standing mesh of light pings: which NIC pings which other, and how often.

The pairs are those of a scan that covers every link, and more if causes of losses are to be told
apart. However a hash chooses cables, no NIC and no cable spends more than a ten-thousandth of its
capacity on pings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from anubis.core.fabric import Fabric, RailNics, Shares
from anubis.core.network.coverage import scan_rounds
from anubis.core.network.pairing import joined_nics

MOST_SHARE = 1e-4  # of what a NIC or a cable carries
PING_BITS = 1200  # of a ping with all headers, on the wire; its answer is as long
EVERY_S = 1.0  # between two pings of one flow, if capacity allows
LEAST_GBIT_S = 1.0  # assumed of a NIC or a cable whose speed is unknown
WINDOW_PINGS = 30  # of a flow, which are counted together
MOST_MORE = 96  # flows that are added while something is in doubt


@dataclass(frozen=True, kw_only=True)
class PingMesh:
    flows: tuple[RailNics, ...]  # the first NIC of each pings, the second answers
    every_s: float  # between two pings of one flow
    share: float  # the largest that pings take of a NIC or cable, if all that may cross it do

    @property
    def window_s(self) -> float:
        return WINDOW_PINGS * self.every_s


def ping_mesh(fabric: Fabric, nodes: Sequence[str]) -> PingMesh:
    """The flows that cross every link that pairs of these nodes can cross, at a bounded rate."""
    rounds = scan_rounds(fabric, nodes, covering=True, across=True)
    pair_tests = dict.fromkeys(test for hop_round in rounds for test in hop_round.pair_tests)
    ends = (joined_nics(fabric, pair_test) for pair_test in pair_tests)
    return _paced(
        fabric, dict.fromkeys((a.rail_nic, b.rail_nic) for pairs in ends for a, b in pairs)
    )


def add_flows(fabric: Fabric, mesh: PingMesh, more: Iterable[RailNics]) -> PingMesh:
    """The mesh with further flows, unless that slows all the others: their windows would change,
    and agents would forget their counts."""
    wider = _paced(fabric, dict.fromkeys([*mesh.flows, *islice(more, MOST_MORE)]))
    return wider if wider.every_s == mesh.every_s else mesh


def _paced(fabric: Fabric, flows: Collection[RailNics]) -> PingMesh:
    flows = tuple(flows)
    if not flows:
        return PingMesh(flows=(), every_s=EVERY_S, share=0.0)
    at_once = max(_nic_share(fabric, flows), _link_share(fabric, flows))
    every_s = max(EVERY_S, at_once / MOST_SHARE)
    return PingMesh(flows=flows, every_s=every_s, share=at_once / every_s)


def _nic_share(fabric: Fabric, flows: Sequence[RailNics]) -> float:
    """The largest share of a NIC, with one ping of each flow in a second."""
    pinged = Counter(rail_nic for ends in flows for rail_nic in ends)
    speeds = {nic.rail_nic: nic.gbit_s for nic in fabric.nics}
    return max(_share(count, speeds[rail_nic]) for rail_nic, count in pinged.items())


def _link_share(fabric: Fabric, flows: Sequence[RailNics]) -> float:
    """The largest share of a cable, with one ping of each flow in a second: a hash may put all
    flows that can cross its link on it."""
    leaves: Counter[tuple[str, str]] = Counter()
    for near, far in flows:
        a, b = fabric.nic(*near), fabric.nic(*far)
        if a and b and a.switch != b.switch:
            leaves[a.switch, b.switch] += 1
    times: Shares = np.array(list(leaves.values()), dtype=np.float64)
    crossing = np.zeros(len(fabric.links))
    for part in fabric.spread(list(leaves)) if leaves else ():
        crossing += np.bincount(part.link, times[part.link_pair], len(crossing))
    slowest = (min(cable.gbit_s or LEAST_GBIT_S for cable in link.cables) for link in fabric.links)
    return max(map(_share, crossing.tolist(), slowest), default=0.0)


def _share(pings: float, gbit_s: float | None) -> float:
    return pings * PING_BITS / ((gbit_s or LEAST_GBIT_S) * 1e9)
