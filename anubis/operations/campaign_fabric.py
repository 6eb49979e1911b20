"""Read the fabric that a campaign crosses: its topology, and the errors that its ports counted."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from anubis.config import configs
from anubis.core.errors import TopologyError
from anubis.core.fabric import place
from anubis.core.records import Counters
from anubis.operations.caller import Caller
from anubis.operations.requests import CampaignRequest
from anubis.operations.topology import count_errors, routes_known, survey
from anubis.readers.topology.draft import Survey
from anubis.text import hostlist

if TYPE_CHECKING:
    from anubis.lab.simulation.simulated_fleet import SimulatedFleet

# remarks on a topology that are about cables and names, and how many of them are shown
OF_CABLES = frozenset(
    {
        "one-sided",
        "contradiction",
        "two-neighbours",
        "same-description",
        "same-device",
        "same-name",
        "twice",
        "node-twice",
    }
)
TOLD = 4
ON_ONE_SWITCH = "until then all nodes count as being on one switch"


def read_fabric(
    request: CampaignRequest, cluster: configs.Cluster, caller: Caller
) -> tuple[Survey | None, Counters]:
    """Topology of the nodes, and the errors that the ports of their fabric counted before."""
    surveyed = _survey(request, cluster, caller)
    if surveyed is None:
        return None, Counters()
    _remark_on(surveyed, request, caller)
    if isinstance(cluster, configs.SimulatedCluster) and request.topology == cluster.topology:
        from anubis.lab.simulation.simulated_fabric import (
            number_ports,  # its switches number their ports
        )

        surveyed = replace(surveyed, fabric=number_ports(surveyed.fabric))
        if request.crosses_fabric and not request.counters:
            return surveyed, _simulated_counters(request, cluster.fleet, surveyed)
    if not request.crosses_fabric:
        return surveyed, Counters()
    counted, remarks = count_errors(request.topology, request.counters, request.over_s, caller)
    for remark in remarks:
        caller.remark(str(remark))
    return surveyed, counted


def _survey(request: CampaignRequest, cluster: configs.Cluster, caller: Caller) -> Survey | None:
    """Read the topology; None if none was named and the fabric does not answer."""
    if request.topology is None:
        if not request.crosses_fabric:
            return None
        if isinstance(cluster, configs.SimulatedCluster):
            caller.remark(f"the cluster's file names no topology; {ON_ONE_SWITCH}")
            return None
    try:
        return survey(request.topology, request.hcas)
    except TopologyError as error:
        if request.topology is not None:
            raise
        caller.remark(f"{error}; {ON_ONE_SWITCH}")
        return None


def _remark_on(surveyed: Survey, request: CampaignRequest, caller: Caller) -> None:
    """Remark what is odd about the cables, and which routes are known."""
    cabling = [finding for finding in surveyed.findings if finding.kind in OF_CABLES]
    for finding in cabling[:TOLD]:
        caller.remark(f"topology: {finding}")
    if len(surveyed.findings) > len(cabling[:TOLD]):
        caller.remark(
            f"{len(surveyed.findings):,} remarks on the topology: anubis scan --draw lists them"
        )
    # wall clock: shown to a person, decides nothing
    routes = routes_known(surveyed.fabric, time.time())
    if routes and request.crosses_fabric:
        caller.remark(f"routes: {routes}")


def _simulated_counters(
    request: CampaignRequest, fleet: SimulatedFleet, surveyed: Survey
) -> Counters:
    from anubis.lab.simulation.reckoning import network_of
    from anubis.lab.simulation.simulated_network import count_errors as count_simulated_errors

    names = request.nodes or hostlist.expand(fleet.nodes)
    placement = place(surveyed.fabric, names)
    if not placement.nodes:  # strangers are refused later
        return Counters()
    return count_simulated_errors(network_of(fleet, placement.fabric, names))
