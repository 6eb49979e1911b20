"""What pairs of nodes would measure on a fabric with faults: seeded rates, and the ways they take.

Every flow takes one path. Hashed, each measurement draws one at every fork (ECMP); routed, the
target decides (static routes by destination), and then the path is known to whoever asks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, get_args

import numpy as np

from anubis.core.fabric import Fabric, Nic, Part
from anubis.core.network.crossing import Flow, Way, link_part, nic_part
from anubis.core.records import BenchmarkSpec, MetricSpec, Readings, Series, Step

FaultKind = Literal["slow node", "slow NIC", "bad cable", "lossy uplink", "slow leaf", "dead leaf"]
FAULT_KINDS: tuple[FaultKind, ...] = get_args(FaultKind)

DEPTH = 16  # forks on a way


@dataclass(frozen=True, kw_only=True)
class Fault:
    kind: str
    part: Part
    way: Way = "both"
    loss: float = 0.3  # of the rate of whatever crosses it


@dataclass(frozen=True, kw_only=True)
class SimulatedNetwork:
    fabric: Fabric
    faults: tuple[Fault, ...] = ()
    noise: float = 0.01  # standard deviation of a rate
    seed: int = 0
    routed: bool = False
    gbytes_s: float = 49.0  # on one leaf; each tier above takes one percent

    def measure(
        self, pairs: Iterable[tuple[str, str, str]], turn: int = 0
    ) -> list[tuple[Flow, float]]:
        """Both directions of each (node, node, rail); another turn hashes other paths."""
        flows = [way for a, b, rail in pairs for way in ((a, b, rail), (b, a, rail))]
        rng = np.random.default_rng([self.seed, turn])
        noise = rng.normal(1, self.noise, len(flows))
        forks = rng.random((len(flows), DEPTH))
        return [
            self._measured(flow, float(scatter), draws)
            for flow, scatter, draws in zip(flows, noise, forks.tolist(), strict=True)
        ]

    def route(self, a: Nic, b: Nic) -> tuple[str, ...]:
        """The switches on the static route from one NIC to another."""
        return self._walk(a, b, self._by_target(b))[0]

    def _measured(
        self, flow: tuple[str, str, str], scatter: float, draws: Sequence[float]
    ) -> tuple[Flow, float]:
        source, target, rail = flow
        a, b = self._nic(source, rail), self._nic(target, rail)

        def by_hash(depth: int, fork: int) -> int:
            return int(draws[depth] * fork)

        via, cables = self._walk(a, b, self._by_target(b) if self.routed else by_hash)
        loss = self._loss(source, target, rail, via, cables)
        rate = self.gbytes_s * (1 - 0.01 * (len(via) - 1)) * (1 - loss) * max(scatter, 0.01)
        return Flow(source, target, rail, via if self.routed else ()), rate

    def _by_target(self, b: Nic) -> Callable[[int, int], int]:
        turns = self._turns[b.id]
        return lambda depth, fork: turns[depth] % fork

    def _walk(
        self, a: Nic, b: Nic, choose: Callable[[int, int], int]
    ) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """The switches from one NIC to another, and which cable of each link was taken."""
        here, passed = a.switch, [a.switch]
        cables: list[int] = []
        while here != b.switch:
            ways = self._ways(here, b.switch)
            here, cable = ways[choose(len(cables), len(ways))]
            passed.append(here)
            cables.append(cable)
        return tuple(passed), tuple(cables)

    def _ways(self, here: str, goal: str) -> list[tuple[str, int]]:
        """Every cable that leads nearer."""
        if (here, goal) not in self._forks:
            fabric = self.fabric
            away = fabric.steps_between(here, goal)
            self._forks[here, goal] = [
                (there, cable)
                for link in fabric.links_of[here]
                for there in [link.b if link.a == here else link.a]
                if fabric.steps_between(there, goal) + 1 == away
                for cable in range(len(link.cables))
            ]
        return self._forks[here, goal]

    def _loss(
        self, source: str, target: str, rail: str, via: Sequence[str], cables: Sequence[int]
    ) -> float:
        """The worst fault on the way; of a link, the first cable is the bad one."""
        worst = 0.0
        ends = {("node", source, ""): "out", ("node", target, ""): "in"}
        ends |= {("nic", source, rail): "out", ("nic", target, rail): "in"}
        for fault in self.faults:
            part = fault.part
            if part.kind in ("node", "nic"):
                way = ends.get((part.kind, part.name, part.other))
            elif part.kind == "switch":
                way = "both" if part.name in via else None
            elif part.kind == "uplinks":
                up, down = via[0] == part.name, via[-1] == part.name
                way = None if up == down else "out" if up else "in"
            else:
                way = _way_over(part, via, cables)
            if way and (fault.way == "both" or fault.way == way):
                worst = max(worst, fault.loss)
        return worst

    def _nic(self, node: str, rail: str) -> Nic:
        nic = self.fabric.nic(node, rail)
        if nic is None:
            raise ValueError(f'node "{node}" has no NIC on rail "{rail}"')
        return nic

    @cached_property
    def _turns(self) -> dict[str, list[int]]:
        """What every NIC's routes choose by: at the first fork in turn, at later ones at random."""
        turns: dict[str, list[int]] = {}
        draws = np.random.default_rng(0).integers(1 << 30, size=(len(self.fabric.nics), DEPTH))
        for rail in self.fabric.rails:
            on = [place for place, nic in enumerate(self.fabric.nics) if nic.rail == rail]
            draws[on, 0] = np.arange(len(on))
        for nic, row in zip(self.fabric.nics, draws.tolist(), strict=True):
            turns[nic.id] = row
        return turns

    @cached_property
    def _forks(self) -> dict[tuple[str, str], list[tuple[str, int]]]:
        return {}


def _way_over(part: Part, via: Sequence[str], cables: Sequence[int]) -> Way | None:
    for here, there, cable in zip(via, via[1:], cables, strict=False):
        if cable == 0 and {here, there} == {part.name, part.other}:
            return "out" if here == part.name else "in"
    return None


def readings(network: SimulatedNetwork, step: Step, spec: BenchmarkSpec, samples: int) -> Readings:
    """What a pair program would measure: each direction on each rail; paths are drawn by step."""
    first, second = step.participants
    draw = int.from_bytes(hashlib.blake2b(step.id.encode(), digest_size=4).digest(), "little")
    scatter = np.random.default_rng([network.seed, draw]).normal(1, 0.002, samples)
    series = []
    for rail in network.fabric.rails:
        a, b = network.fabric.nic(first, rail), network.fabric.nic(second, rail)
        if a is None or b is None:
            continue
        rates = [max(rate, 0.01) for _, rate in network.measure([(first, second, rail)], draw)]
        for metric in spec.metrics:
            if metric.judged_by != "fleet":
                continue
            for name, value in _values(metric, rates):
                device = f"{a.device}-{b.device}"
                series.append(Series(metric=name, device=device, samples=value * scatter))
    return Readings.of(series)


def _values(metric: MetricSpec, rates: Sequence[float]) -> list[tuple[str, float]]:
    if metric.unit == "1":
        return [(metric.name, 1.0)]
    if metric.direction == "lower":
        return [(metric.name, 100 / min(rates))]
    return [
        (f"{metric.name}:{way}", rate) for way, rate in zip(("forth", "back"), rates, strict=True)
    ]


def faulty(
    fabric: Fabric, nodes: Collection[str], faults: Sequence[str], seed: int
) -> SimulatedNetwork:
    """A network with a fault of each of these kinds somewhere about these nodes."""
    rng = np.random.default_rng(seed)
    here = replace(fabric, nics=tuple(nic for nic in fabric.nics if nic.node in nodes))
    planted = [plant(here, kind, rng) for kind in FAULT_KINDS for _ in range(faults.count(kind))]
    return SimulatedNetwork(fabric=fabric, faults=tuple(planted), seed=seed)


def plant(fabric: Fabric, kind: FaultKind, rng: np.random.Generator) -> Fault:
    """A fault of this kind somewhere in the fabric, of 12 to 60 % (a dead leaf: of all)."""
    loss = float(rng.uniform(0.12, 0.6))
    node = str(rng.choice(fabric.nodes))
    rails = [rail for rail in fabric.rails if fabric.nic(node, rail)]
    rail = rails[int(rng.integers(len(rails)))]
    if kind == "slow node":
        return Fault(kind=kind, part=Part("node", node), loss=loss)
    if kind == "slow NIC":
        return Fault(kind=kind, part=nic_part(fabric, node, rail), loss=loss)
    if kind == "bad cable":
        way: Way = "out" if rng.random() < 0.5 else "in"
        return Fault(kind=kind, part=nic_part(fabric, node, rail), way=way, loss=loss)
    if kind == "lossy uplink":
        uplinks = [link for leaf in fabric.leaves for link in fabric.uplinks(leaf)]
        return Fault(kind=kind, part=link_part(uplinks[int(rng.integers(len(uplinks)))]), loss=loss)
    leaf = Part("switch", str(rng.choice(fabric.leaves)))
    return Fault(kind=kind, part=leaf, loss=1.0 if kind == "dead leaf" else loss)
