"""Faults of simulated jobs: their kinds, their shares, and the metrics that move with them.

The shares are those that Minder published (NSDI '25, Table 1). They give for each kind how often
each family of metrics moved, not how families move together: here each family is drawn by itself,
so that sometimes none moves at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from anubis.core.watch.likelihood import FAMILIES, FAULTS

Course = Literal["stall", "slow", "none"]  # what the other nodes of the job do from then on


@dataclass(frozen=True)
class FaultFacts:
    share: float  # of all faults, in percent
    moves: tuple[float, ...]  # of FAMILIES, in percent
    course: Course = "stall"


NAMES: Mapping[str, str] = {  # kind in the table of the watch → its name here
    "ecc": "ecc-error",
    "pcie-downgrade": "pcie-downgrade",
    "nic-dropout": "nic-dropout",
    "gpu-drop": "gpu-card-drop",
    "nvlink": "nvlink-error",
    "optical-cable": "aoc-error",
    "cuda-error": "cuda-execution",
    "gpu-error": "gpu-execution",
    "storage": "hdfs-error",
    "unreachable": "unreachable",
}
COURSES: Mapping[str, Course] = {"pcie-downgrade": "slow", "aoc-error": "slow"}
TABLE: Mapping[str, FaultFacts] = {
    name: FaultFacts(FAULTS[row].share, FAULTS[row].fires, COURSES.get(name, "stall"))
    for row, name in NAMES.items()
}
_ALL = np.array([kind.moves for kind in TABLE.values()])
_SHARES = np.array([kind.share for kind in TABLE.values()])
# "others" has no row of its own: it has the average of the other rows
OTHERS = FaultFacts(10.3, tuple(np.average(_ALL, axis=0, weights=_SHARES)))
# kinds that sites report and the table lacks
BESIDE: Mapping[str, FaultFacts] = {
    "thermal-throttle": FaultFacts(0.0, (0.0, 100.0, 0.0, 20.0, 0.0, 0.0), "slow"),
    "cpu-contention": FaultFacts(0.0, (100.0, 40.0, 0.0, 20.0, 0.0, 20.0), "slow"),
    "packet-loss": FaultFacts(0.0, (0.0, 10.0, 0.0, 100.0, 0.0, 0.0), "slow"),
    "silent-corruption": FaultFacts(0.0, (0.0,) * 6, "none"),
    "switch-reboot": FaultFacts(0.0, (0.0,) * 6),
}
KINDS: Mapping[str, FaultFacts] = {**TABLE, "others": OTHERS, **BESIDE}

MONTHS_MIX: Mapping[str, float] = {
    kind: facts.share for kind, facts in KINDS.items() if facts.share
}  # Table 1: seven months of a site


def _evaluation_mix() -> Mapping[str, float]:
    """Mix of the 150 instances that Minder was measured on: four published shares, the rest by
    Table 1, and one in two hundred a reboot of a switch."""
    stated = {
        "ecc-error": 25.7,
        "cuda-execution": 15.0,
        "gpu-execution": 10.0,
        "pcie-downgrade": 8.6,
    }
    rest = {kind: share for kind, share in MONTHS_MIX.items() if kind not in stated}
    factor = (100 - sum(stated.values()) - 0.5) / sum(rest.values())
    return {
        **stated,
        **{kind: share * factor for kind, share in rest.items()},
        "switch-reboot": 0.5,
    }


EVALUATION_MIX = _evaluation_mix()
OTHER_MIX: Mapping[str, float] = {  # a fleet in which nodes get slow rather than die
    "ecc-error": 15.0,
    "pcie-downgrade": 14.0,
    "nic-dropout": 9.0,
    "gpu-card-drop": 6.0,
    "nvlink-error": 7.0,
    "aoc-error": 4.0,
    "cuda-execution": 10.0,
    "gpu-execution": 8.0,
    "hdfs-error": 5.0,
    "unreachable": 5.0,
    "thermal-throttle": 7.0,
    "cpu-contention": 6.0,
    "packet-loss": 4.0,
}

MEDIAN_UNTIL_HALT_S = 480.0  # assumed, as no distribution is published
SPREAD_UNTIL_HALT = float(np.log(2) / 1.0364)  # of the logarithm: 15 % halt within half the median
MOST_UNTIL_HALT_S = 2400.0  # assumed: longer than any usual time-out, 1800 s
SPREADS = ("gpu-execution", "pcie-downgrade")  # within a second to a group's peers
SPREADING = 0.2  # assumed share of such faults that spread
TWO_AT_ONCE = 0.007  # assumed share of faults with a second faulty node


@dataclass(frozen=True, kw_only=True)
class PlantedFault:
    """The truth about one fault. Rows are of the job's nodes, instants in seconds of its grid."""

    kind: str
    rows: tuple[int, ...]  # the faulty nodes
    onset: float
    halt: float  # when all had stopped
    families: tuple[str, ...]  # those drawn to move on the faulty nodes
    spread: tuple[int, ...] = ()  # sound peers that showed the same within a second
    manner: float = 0.0  # from 0 to 1: selects one of the ways in which some kinds show


def draw_kind(rng: np.random.Generator, mix: Mapping[str, float]) -> str:
    shares = np.array(list(mix.values()))
    return list(mix)[int(rng.choice(len(shares), p=shares / shares.sum()))]


def draw_families(rng: np.random.Generator, kind: str) -> tuple[str, ...]:
    chances = np.array(KINDS[kind].moves) / 100
    return tuple(np.array(FAMILIES)[rng.random(len(FAMILIES)) < chances].tolist())


def draw_until_halt(rng: np.random.Generator) -> float:
    seconds = rng.lognormal(np.log(MEDIAN_UNTIL_HALT_S), SPREAD_UNTIL_HALT)
    return float(min(max(seconds, 5.0), MOST_UNTIL_HALT_S))


def draw_rows(
    rng: np.random.Generator, kind: str, nodes: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Rows of the faulty nodes, and of sound ones that show the same."""
    first = int(rng.integers(nodes))
    if kind == "switch-reboot":
        touched = min(nodes, 32)
        start = int(rng.integers(nodes - touched + 1))
        return tuple(range(start, start + touched)), ()
    if kind == "aoc-error" and rng.random() < 0.5 and nodes >= 16:  # at the side of the switch
        return tuple(sorted({first, (first + 1) % nodes, (first + 2) % nodes})), ()
    if rng.random() < TWO_AT_ONCE:
        return tuple(sorted({first, (first + 1 + int(rng.integers(nodes - 1))) % nodes})), ()
    if kind in SPREADS and rng.random() < SPREADING:
        group = min(int(rng.choice([2, 4, 8])), max(2, nodes // 4))
        start = first - first % group
        peers = range(start, min(start + group, nodes))
        return (first,), tuple(row for row in peers if row != first)
    return (first,), ()
