"""Defects of a fabric, or of one of its parts, that show without traffic.

They are missing uplinks, NICs at the wrong leaf, cables slower than others of their kind, and ports
that count errors.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from anubis.core.fabric import Cable, Fabric, Link, Part, Placement, Remark, cable_name
from anubis.core.network import counters as counting
from anubis.core.network import redundancy, wiring
from anubis.core.network.counters import PortCount, exceeded_limit, place_counts, sort_by_severity
from anubis.core.network.hints import symptom_of
from anubis.core.network.redundancy import Shortage
from anubis.core.records import Count, Counters, Judgement, PartVerdict

DEFECTS = frozenset({"degraded", "fatal"})  # the kinds of remarks that are defects


@dataclass(frozen=True, kw_only=True)
class Inspection:
    fabric: Fabric
    counters: Counters = Counters(counts=())

    @cached_property
    def shortages(self) -> tuple[Shortage, ...]:
        """The switches that lack uplinks; an uplink with fatal errors counts as missing."""
        failing = {
            (port_count.link.a, port_count.link.b, port_count.cable)
            for port_count in self.counted
            if port_count.link
            and port_count.cable
            and exceeded_limit(self.counters, port_count.count)
        }
        return redundancy.shortages(self.fabric, failing)

    @cached_property
    def miscabled(self) -> tuple[PartVerdict, ...]:
        """Verdicts on NICs whose cabling differs from that of the nodes beside them."""
        return wiring.audit(self.fabric)

    @property
    def counted(self) -> list[PortCount]:
        return self._counts_by_place[0]

    @property
    def unplaced_counts(self) -> list[Count]:
        """The counts of ports that the fabric does not have."""
        return self._counts_by_place[1]

    @cached_property
    def findings(self) -> tuple[Remark, ...]:
        return (
            *self._uplink_remarks(),
            *(Remark(kind=verdict.code, sentence=verdict.reason) for verdict in self.miscabled),
            *_slow_cables(self.fabric),
            *self._counter_remarks(),
        )

    @property
    def has_defects(self) -> bool:
        miscabled = any(verdict.judgement is Judgement.DEFECTIVE for verdict in self.miscabled)
        return miscabled or any(remark.kind in DEFECTS for remark in self.findings)

    def judge(self, placement: Placement | None) -> Judgement:
        """The judgement on the fabric: healthy only if it has every node that was asked for."""
        if self.has_defects:
            return Judgement.DEFECTIVE
        unplaced = placement.unplaced if placement else ()
        return Judgement.HEALTHY if self.fabric.nodes and not unplaced else Judgement.UNKNOWN

    def sentences_about(self, part: Part) -> tuple[str, ...]:
        """Sentences that speak for a fault of this part, the strongest first."""
        short = [shortage for shortage in self.shortages if _is_short(part, shortage)]
        counted = [
            port_count for port_count in self.counted if _belongs_to(part, port_count, self.fabric)
        ]
        return (
            *(redundancy.sentence(self.fabric, shortage) for shortage in short),
            *self._most_erring_switch(part, counted),
            *(counting.sentence(port_count, self.counters) for port_count in self._sort(counted)),
        )

    def _most_erring_switch(self, part: Part, counted: list[PortCount]) -> Iterator[str]:
        """Yield a sentence on the NVLink switch of a domain that counts most errors: pairs cannot
        tell the switches of a domain apart."""
        if part.kind != "switch" or not self.fabric.is_nvlink:
            return
        errors: Tally[str] = Tally()
        for port_count in counted:
            if symptom_of(port_count.count.counter) == "errors":
                errors[port_count.count.name] += port_count.count.value
        for name, value in errors.most_common(1):
            switches = f"the NVLink switches of {part.name}"
            yield f"{name} counts {value:,} of {errors.total():,} errors of {switches}"

    def _uplink_remarks(self) -> Iterator[Remark]:
        for shortage in self.shortages:
            kind = "degraded" if shortage.is_degraded else "uplinks"
            text = redundancy.sentence(self.fabric, shortage)
            yield Remark(kind=kind, sentence=text, switches=(shortage.switch,))

    def _counter_remarks(self) -> Iterator[Remark]:
        """Yield remarks on counters; each counter is a kind of its own, so that thousands of one do
        not hide the rest."""
        for port_count in self._sort(self.counted):
            text = counting.sentence(port_count, self.counters)
            if exceeded_limit(self.counters, port_count.count):
                switches = (
                    (port_count.link.a, port_count.link.b)
                    if port_count.link
                    else (port_count.switch,)
                )
                yield Remark(kind="fatal", sentence=text, switches=switches)
            else:
                yield Remark(kind=f"counter {port_count.count.counter}", sentence=text)
        for port_count in place_counts(self.counters.stuck, self.fabric)[0]:
            counter, largest = port_count.count.counter, port_count.count.value
            text = f"{counter} at {port_count.place} shows {largest}, the most it can"
            yield Remark(kind="stuck", sentence=f"{text}: whether it rises is unknown until reset")
        for name in dict.fromkeys(count.name or count.guid for count in self.unplaced_counts):
            text = f'"{name}" counts errors and is not in the fabric'
            yield Remark(kind="elsewhere", sentence=text)

    def _sort(self, counted: list[PortCount]) -> list[PortCount]:
        return sort_by_severity(counted, self.counters)

    @cached_property
    def _counts_by_place(self) -> tuple[list[PortCount], list[Count]]:
        rises = [count for count in self.counters.counts if count.value]
        return place_counts(rises, self.fabric)


def _is_short(part: Part, short: Shortage) -> bool:
    if part.kind == "link":
        return any({part.name, part.other} == {gap.lower, gap.upper} for gap in short.gaps)
    return part.kind in ("uplinks", "switch") and part.name == short.switch


def _belongs_to(part: Part, port_count: PortCount, fabric: Fabric) -> bool:
    ends = {port_count.link.a, port_count.link.b} if port_count.link else set()
    node, rail = (port_count.nic.node, port_count.nic.rail) if port_count.nic else ("", "")
    match part.kind:
        case "node":
            return node == part.name
        case "nic":
            return (node, rail) == (part.name, part.other)
        case "link":
            return ends == {part.name, part.other}
        case "uplinks":
            return port_count.link in fabric.uplinks(part.name)
        case "switch":
            return part.name in {port_count.switch, *ends}


def _slow_cables(fabric: Fabric) -> Iterator[Remark]:
    kinds: dict[tuple[int, int], list[tuple[Link, Cable]]] = {}
    for link in fabric.links:
        low, high = sorted((fabric.tier[link.a], fabric.tier[link.b]))
        kinds.setdefault((low, high), []).extend((link, cable) for cable in link.cables)
    for cables in kinds.values():
        speeds = Tally(cable.gbit_s for _, cable in cables if cable.gbit_s is not None)
        if not speeds:
            continue
        usual, share = speeds.most_common(1)[0]
        for link, cable in cables:
            if cable.gbit_s is not None and cable.gbit_s < usual and 2 * share > len(cables):
                text = f"{cable_name(fabric, link, cable)} runs at {cable.gbit_s:g} Gbit/s, "
                text += f"most do at {usual:g}"
                yield Remark(kind="speed", sentence=text, switches=(link.a, link.b))
