"""Faults of simulated jobs: their kinds, their shares, the metrics that move with them, and the
marks that they, and things that look like faults, leave in the series of nodes.

The shares are those that Minder published (NSDI '25, Table 1). They give for each kind how often
each family of metrics moved, not how families move together: here each family is drawn by itself,
so that sometimes none moves at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from anubis.core.amounts import HOUR_S
from anubis.core.arrays import Floats, Floats32
from anubis.core.watch.likelihood import FAMILIES, FAULTS
from anubis.lab.simulation.job_rhythm import LEVELS, POWER_CAP

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


NEAREST_S = 15  # a reader takes the nearest sample up to here; a longer gap stays unknown
COUNTS = ("pfc_tx", "ecn", "cnp")
BUSY = ("gpu_duty", "gpu_graphics")  # high on a GPU that hangs
SETTLES_S = 40.0  # time constant of a GPU that cools, assumed

# metrics that move together for a while on a sound node: range of factors, or of added points
JITTERS: Mapping[str, Mapping[str, tuple[float, float]]] = {
    "another process": {"cpu_use": (1.3, 2.2)},
    "starved process": {"cpu_use": (0.3, 0.8)},
    "heat": {
        "gpu_power": (0.65, 0.9),
        "gpu_clock": (0.65, 0.9),
        "gpu_tensor": (0.65, 0.9),
        "gpu_temperature": (1.1, 1.2),
    },
    "congestion": {"throughput": (0.4, 0.85), "pfc_tx": (20, 200), "ecn": (5, 40), "cnp": (5, 40)},
    "slow kernels": {
        "gpu_duty": (0.4, 0.85),
        "gpu_graphics": (0.4, 0.85),
        "gpu_tensor": (0.4, 0.85),
    },
}


# --- faults --------------------------------------------------------------------------------


def mark_fault(
    rng: np.random.Generator,
    values: Floats32,
    metric: str,
    family: str,
    fault: PlantedFault,
    start: float,
) -> None:
    """Change `values`, nodes x seconds of one metric, where the fault shows."""
    if not (family in fault.families or _is_always_marked(fault.kind, metric)):
        return
    last = int(np.ceil(fault.halt - start))
    for row in (*fault.rows, *fault.spread):
        delay = rng.uniform(0, 1) if row in fault.spread else 0.0
        first = int(np.ceil(fault.onset - start + delay))
        series = values[row, first:last]
        if len(series) == 0:
            continue
        shown = _fault_series(rng, series, metric, family, fault)
        if shown is None:  # also after the job has halted
            values[row, first:] = _dead_series(rng, values[row, first:], metric)
        else:
            series[:] = shown


def _is_always_marked(kind: str, metric: str) -> bool:
    return kind == "pcie-downgrade" and metric in ("pcie_throughput", "pcie_use")


def _fault_series(
    rng: np.random.Generator, series: Floats32, metric: str, family: str, fault: PlantedFault
) -> Floats32 | None:
    """Series from the onset until the halt; None if the process is dead."""
    kind = fault.kind
    if kind == "unreachable":
        return np.full_like(series, np.nan)
    if metric in COUNTS:
        return _pause_counts(rng, series, metric, kind)
    if family == "disk":
        return _shift(series, float(rng.choice([-1, 1]) * rng.uniform(5, 20)))
    if KINDS[kind].course == "slow":
        return _slow_series(rng, series, metric, kind)
    if kind == "gpu-execution" and family == "gpu" and fault.manner < 0.5:
        return _hanging_series(rng, series, metric)
    if kind == "hdfs-error" and metric == "cpu_use" and fault.manner < 0.5:  # it waits for disks
        return _shift(series, rng.uniform(20, 40))
    if kind == "others" and fault.manner < 0.5:
        return series * np.float32(rng.uniform(0.2, 0.7))
    return None


def _shift(series: Floats32, points: float) -> Floats32:
    return np.asarray(np.clip(series + points, 0, 100), dtype=np.float32)


def _pause_counts(rng: np.random.Generator, series: Floats32, metric: str, kind: str) -> Floats32:
    usual = (LEVELS[metric].compute + LEVELS[metric].communicate) / 2
    factor = rng.uniform(50, 1000) if kind == "pcie-downgrade" else rng.uniform(20, 200)
    bursts = np.exp(0.3 * rng.standard_normal(len(series)))
    return np.asarray(usual * factor * bursts, dtype=np.float32)


def _slow_series(rng: np.random.Generator, series: Floats32, metric: str, kind: str) -> Floats32:
    if kind == "cpu-contention" and metric == "cpu_use":
        return _shift(series, 30)
    if kind == "thermal-throttle" and metric in ("gpu_duty", "gpu_graphics", "gpu_memory"):
        return series
    if metric == "gpu_temperature":
        return series + np.float32(rng.uniform(6, 15)) if kind == "thermal-throttle" else series
    if kind in ("aoc-error", "cpu-contention"):  # now and then
        down = np.repeat(rng.random(len(series) // 5 + 1) < 0.6, 5)[: len(series)]
        return np.where(down, series * np.float32(rng.uniform(0.1, 0.6)), series)
    return series * np.float32(rng.uniform(0.4, 0.8))


def _hanging_series(rng: np.random.Generator, series: Floats32, metric: str) -> Floats32:
    jitter = rng.standard_normal(len(series)).astype(np.float32)
    if metric in BUSY:
        return np.full_like(series, 100)
    if metric == "gpu_power":
        return np.float32(POWER_CAP * rng.uniform(0.25, 0.35)) + 2 * jitter
    if metric in ("gpu_memory", "gpu_temperature", "gpu_clock"):
        return series
    return np.asarray(np.abs(0.01 * LEVELS[metric].compute * jitter), dtype=np.float32)


def _dead_series(rng: np.random.Generator, series: Floats32, metric: str) -> Floats32:
    level = LEVELS[metric]
    off = rng.uniform(2, 5) if metric in ("cpu_use", "memory_use") else level.off
    if metric == "gpu_power":
        off = rng.uniform(70, 90)
    settles = SETTLES_S if metric == "gpu_temperature" else rng.uniform(0.3, 1.2)
    left = np.exp(-np.arange(1, len(series) + 1) / settles)
    around = 1 + level.noise * rng.standard_normal(len(series))
    return np.asarray(off * around * (1 - left) + series[0] * left, dtype=np.float32)


# --- sound nodes ---------------------------------------------------------------------------


def draw_jitters(
    rng: np.random.Generator, nodes: int, seconds: int
) -> list[tuple[str, int, int, int, float]]:
    """Jitters: kind, row, first and last second, and strength."""
    hours = seconds / HOUR_S
    jitters = []
    for _ in range(rng.poisson((0.15 + 0.003 * nodes) * hours)):
        first, length = int(rng.integers(seconds)), rng.uniform(20, 200)
        kind = list(JITTERS)[int(rng.integers(len(JITTERS)))]
        jitters.append(
            (kind, int(rng.integers(nodes)), first, int(first + length), float(rng.random()))
        )
    return jitters


def mark_jitter(values: Floats32, metric: str, jitter: tuple[str, int, int, int, float]) -> None:
    kind, row, first, last, strength = jitter
    factors = JITTERS[kind].get(metric)
    if factors is not None:
        low, high = factors
        values[row, first:last] *= np.float32(low + (high - low) * strength)


def mark_spikes(rng: np.random.Generator, values: Floats32, per_hour: float) -> None:
    """Add isolated spikes of 1 to 20 seconds: a series has few of them in a day."""
    nodes, seconds = values.shape
    for _ in range(rng.poisson(per_hour * nodes * seconds / HOUR_S)):
        row, first = int(rng.integers(nodes)), int(rng.integers(seconds))
        length = int(rng.integers(1, 21))
        values[row, first : first + length] *= np.float32(rng.choice([0.1, 0.5, 1.5, 3.0]))


# --- gaps of the monitoring -----------------------------------------------------------------


def draw_gaps(rng: np.random.Generator, nodes: int, seconds: int) -> list[tuple[slice, int, int]]:
    """Gaps: rows, first second and the one after the last. Most are of one node, a few of the whole
    job."""
    hours = seconds / HOUR_S
    gaps = []
    for _ in range(rng.poisson(0.01 * nodes * hours)):
        row, first = int(rng.integers(nodes)), int(rng.integers(seconds))
        gaps.append((slice(row, row + 1), first, first + int(rng.integers(3, 60))))
    for _ in range(rng.poisson(0.1 * hours)):
        first = int(rng.integers(seconds))
        gaps.append((slice(None), first, first + int(rng.integers(3, 40))))
    return gaps


def mark_gap(values: Floats32, gap: tuple[slice, int, int]) -> None:
    """Fill a gap as readers do: up to 15 s with the nearest sample, beyond that with nothing."""
    rows, first, after = gap
    seconds = values.shape[1]
    after = min(after, seconds)
    if after - first > NEAREST_S or first == 0 or after == seconds:
        values[rows, first:after] = np.nan
        return
    middle = (first + after) // 2
    values[rows, first:middle] = values[rows, first - 1 : first]
    values[rows, middle:after] = values[rows, after : after + 1]


def lose_samples(rng: np.random.Generator, values: Floats32, share: float) -> None:
    """Replace lost samples with the one before, which is the nearest."""
    nodes, seconds = values.shape
    count = rng.binomial(nodes * seconds, share)
    rows, times = rng.integers(nodes, size=count), rng.integers(1, seconds, size=count)
    values[rows, times] = values[rows, times - 1]


def offsets(rng: np.random.Generator, spread: float, count: int) -> Floats:
    """Constant offsets of nodes: normal, clipped at two deviations."""
    return np.asarray(np.clip(rng.normal(0, 1, count), -2, 2) * spread)
