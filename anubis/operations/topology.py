"""Inspect a fabric before anything is scheduled on it: its topology, and its error counters."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from anubis.config import configs
from anubis.core.errors import TopologyError, UsageError, named_by_request
from anubis.core.fabric import Fabric, Placement, Remark, place
from anubis.core.network.inspection import Inspection
from anubis.core.records import Counters, Judgement
from anubis.operations.caller import NO_CALLER, Caller
from anubis.operations.requests import FabricRequest
from anubis.readers.topology import fabric_sources, infiniband_counters
from anubis.readers.topology.draft import Survey
from anubis.readers.topology.infiniband_counters import CounterReading
from anubis.text.wording import moment, quantity, time_span


@dataclass(frozen=True, kw_only=True)
class InspectedFabric:
    """A fabric, its anomalies, and where the requested nodes are attached."""

    inspection: Inspection
    remarks: tuple[Remark, ...]  # on the source
    placement: Placement | None
    routes: str  # a sentence on those that are known; "" if there is only one way

    @property
    def judgement(self) -> Judgement:
        return self.inspection.judge(self.placement)


def inspect_fabric(request: FabricRequest, caller: Caller = NO_CALLER) -> InspectedFabric:
    """Inspect a fabric. If `nodes` are named, it uses their names, and missing ones are
    reported."""
    surveyed = survey(request.topology, request.hcas)
    counted, remarks = count_errors(request.topology, request.counters, request.over_s, caller)
    placement = place(surveyed.fabric, list(request.nodes)) if request.nodes else None
    fabric = placement.fabric if placement else surveyed.fabric
    return InspectedFabric(
        inspection=Inspection(fabric=fabric, counters=counted),
        remarks=(*surveyed.findings, *remarks),
        placement=placement,
        routes=routes_known(fabric, time.time()),  # wall clock: shown to a person, decides nothing
    )


def routes_known(fabric: Fabric, now: float) -> str:
    """A sentence on the known routes, their source and age, or on the cost of not knowing them."""
    if not any(len(fabric.uplinks(leaf)) > 1 for leaf in fabric.leaves):
        return ""
    routes = fabric.routes
    if routes:
        tables = quantity(len(routes.switches), "switch", "switches")
        age = ""
        if routes.as_of is not None:
            age = f" of {moment(routes.as_of)}, {time_span(max(now - routes.as_of, 0))} ago"
        return f"those of {tables}, from {routes.source}{age}"
    if any(switch.guid for switch in fabric.switches):
        return (
            "unknown, so a bad uplink cannot be singled out: "
            "ibnetdiscover > FILE; dump_fts >> FILE keeps them with the topology"
        )
    return (
        "unknown: switches choose the way of each connection by a hash (ECMP) that they do not"
        " report, so only counters can single out a bad uplink"
    )


def survey(topology: str | None, hcas: Path | None) -> Survey:
    """Read the named file, an example under configs/topologies/, or else the fabric itself."""
    if topology is None:
        return fabric_sources.live(hcas)
    path = Path(topology)
    with named_by_request():
        return fabric_sources.load(
            path if path.exists() else configs.find("topologies", topology), hcas
        )


def count_errors(
    topology: str | None,
    files: Sequence[Path],
    over_s: float | None,
    caller: Caller = NO_CALLER,
    wait: Callable[[float], None] = time.sleep,
) -> tuple[Counters, tuple[Remark, ...]]:
    """Errors that the ports count, from files or from the fabric itself; and remarks on them.

    If the fabric reports its topology but not its counters, that is a remark.
    """
    if len(files) > 2 or (len(files) == 2 and over_s is None):
        raise UsageError(
            f"{len(files)} files of counters: expected one reading, or an earlier and a later one "
            "with --over SECONDS between them"
        )
    if not files and topology is not None:
        if over_s is not None:
            raise UsageError("--over without counters: give --counters FILE as well")
        return Counters(counts=()), ()
    try:
        with named_by_request():
            readings = [fabric_sources.load_counters(file) for file in files]
        readings = readings or _ask_for_counters(over_s, caller, wait)
        counted = _judge_readings(readings, over_s)
    except TopologyError as error:
        if files:
            raise
        return Counters(counts=()), (Remark(kind="no-counters", sentence=str(error)),)
    return counted, tuple(remark for reading in readings for remark in reading.findings)


def _judge_readings(readings: Sequence[CounterReading], over_s: float | None) -> Counters:
    """Counters as they can be judged: only a rise over a known time can be compared with a
    limit."""
    limits = configs.limits("node_health") + configs.limits("switch_ports")
    if over_s is None:
        latest = readings[-1]
        return Counters(
            counts=latest.counts,
            limits=limits,
            is_whole=latest.is_whole and not latest.shows_zeros,
            unread=tuple(sorted(latest.unread)),
        )
    before = readings[0] if len(readings) > 1 else infiniband_counters.NONE
    return infiniband_counters.compare(before, readings[-1], over_s, limits)


def _ask_for_counters(
    over_s: float | None, caller: Caller, wait: Callable[[float], None]
) -> list[CounterReading]:
    """Read the counters of the fabric once; or twice, `over_s` apart."""
    first = infiniband_counters.live()
    if over_s is None:
        return [first]
    caller.remark(f"reading the counters again in {over_s:g} s")
    wait(over_s)
    return [first, infiniband_counters.live()]
