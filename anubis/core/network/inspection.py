"""What in a fabric is not as it should be, seen without any traffic: in the whole, or in one part.

Uplinks that are missing, cables slower than their like, ports that count errors.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from anubis.core.fabric import Cable, Fabric, Link, Part, Remark, cable_name
from anubis.core.network import counters as counting
from anubis.core.network import redundancy
from anubis.core.network.counters import PortCount, broken, most_telling, on_ports
from anubis.core.network.redundancy import Shortage
from anubis.core.records import Count, Counters

DEFECTS = frozenset({"degraded", "fatal"})  # kinds of findings that are more than odd


@dataclass(frozen=True, kw_only=True)
class Inspection:
    fabric: Fabric
    counters: Counters = Counters(counts=())

    @cached_property
    def shortages(self) -> tuple[Shortage, ...]:
        """Who lacks uplinks; one that counts fatal errors is as good as none."""
        failing = {
            (each.link, each.cable)
            for each in self.counted
            if each.link and each.cable and broken(self.counters, each.count)
        }
        return redundancy.shortages(self.fabric, failing)

    @property
    def counted(self) -> list[PortCount]:
        return self._on_ports[0]

    @property
    def counted_elsewhere(self) -> list[Count]:
        """By ports that the fabric does not know."""
        return self._on_ports[1]

    @cached_property
    def findings(self) -> tuple[Remark, ...]:
        return (*self._short(), *_slow_cables(self.fabric), *self._errors())

    @property
    def has_defects(self) -> bool:
        return any(each.kind in DEFECTS for each in self.findings)

    def about(self, part: Part) -> tuple[str, ...]:
        """What speaks for this part being at fault, the most telling first."""
        short = [each for each in self.shortages if _is_short(part, each)]
        counted = [each for each in self.counted if _is_of(part, each, self.fabric)]
        return (
            *(redundancy.sentence(self.fabric, each) for each in short),
            *(counting.sentence(each, self.counters) for each in self._sorted(counted)),
        )

    def _short(self) -> Iterator[Remark]:
        for each in self.shortages:
            kind = "degraded" if each.is_degraded else "uplinks"
            said = redundancy.sentence(self.fabric, each)
            yield Remark(kind=kind, sentence=said, switches=(each.switch,))

    def _errors(self) -> Iterator[Remark]:
        """A kind for each counter, so that thousands of one do not hide the others."""
        for each in self._sorted(self.counted):
            said = counting.sentence(each, self.counters)
            if broken(self.counters, each.count):
                where = (each.link.a, each.link.b) if each.link else (each.switch,)
                yield Remark(kind="fatal", sentence=said, switches=where)
            else:
                yield Remark(kind=f"counter {each.count.counter}", sentence=said)
        for each in on_ports(self.counters.stuck, self.fabric)[0]:
            said = f"{each.count.counter} at {each.place} shows {each.count.value}, the most it can"
            yield Remark(kind="stuck", sentence=f"{said}: whether it rises is unknown until reset")
        for name in dict.fromkeys(count.name or count.guid for count in self.counted_elsewhere):
            said = f'"{name}" counts errors and is not in the fabric'
            yield Remark(kind="elsewhere", sentence=said)

    def _sorted(self, counted: list[PortCount]) -> list[PortCount]:
        return most_telling(counted, self.counters)

    @cached_property
    def _on_ports(self) -> tuple[list[PortCount], list[Count]]:
        return on_ports(self.counters.counts, self.fabric)


def _is_short(part: Part, short: Shortage) -> bool:
    if part.kind == "link":
        return any({part.name, part.other} == {gap.lower, gap.upper} for gap in short.gaps)
    return part.kind in ("uplinks", "switch") and part.name == short.switch


def _is_of(part: Part, found: PortCount, fabric: Fabric) -> bool:
    ends = {found.link.a, found.link.b} if found.link else set()
    node, rail = (found.nic.node, found.nic.rail) if found.nic else ("", "")
    match part.kind:
        case "node":
            return node == part.name
        case "nic":
            return (node, rail) == (part.name, part.other)
        case "link":
            return ends == {part.name, part.other}
        case "uplinks":
            return found.link in fabric.uplinks(part.name)
        case "switch":
            return part.name in {found.switch, *ends}
        case "path":
            return False  # there is one only where no fabric is known


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
                said = f"{cable_name(fabric, link, cable)} runs at {cable.gbit_s:g} Gbit/s, "
                said += f"most do at {usual:g}"
                yield Remark(kind="speed", sentence=said, switches=(link.a, link.b))
