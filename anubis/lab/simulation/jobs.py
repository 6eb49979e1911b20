"""Simulated telemetry of jobs with known faults: **synthetic**, by published signatures and shares.

There are no public recordings of jobs of a thousand nodes with faults, so these replace them: for
training, and for figures that are always called synthetic. A job is the series of its lives: each
ends with one fault, and the next begins after a restart. Everything follows from the seed: seeds
below 10,000 are for development, the others for figures.

It was written from published descriptions of faults and tuned to no detector, but not blindly: its
author had seen parts of the detector's code (candidates, silences, default settings).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from anubis.core.amounts import DAY_S
from anubis.core.arrays import Floats, Floats32, Ints
from anubis.core.errors import UsageError, did_you_mean
from anubis.core.watch.telemetry import Telemetry, WatchedMetric
from anubis.lab.simulation.job_marks import (
    EVALUATION_MIX,
    KINDS,
    OTHER_MIX,
    PlantedFault,
    draw_families,
    draw_gaps,
    draw_jitters,
    draw_kind,
    draw_rows,
    draw_until_halt,
    lose_samples,
    mark_fault,
    mark_gap,
    mark_jitter,
    mark_spikes,
    offsets,
)
from anubis.lab.simulation.job_rhythm import (
    FINE,
    LEVELS,
    MetricLevel,
    course,
    draw_rhythm,
    enter,
    instants,
    noise,
    pauses,
    progress,
    sample,
    shares,
)

FIRST_INSTANT = 1_790_000_000.0  # any instant: only differences count
LOST_SAMPLES = 0.001  # assumed share of single samples that an agent loses
FEWEST, LARGE, MOST = 4, 600, 1536  # nodes of a job; Minder's were of 4 to more than 1,500
DRAWN = "drawn"
HEALTHY = "none"


@dataclass(frozen=True, kw_only=True)
class FleetProfile:
    """Mix of faults and noise of a fleet: another fleet has another mix, and nodes that differ
    more."""

    name: str
    mix: Mapping[str, float]
    noise: float = 1.0
    apart: float = 1.0


PUBLISHED_FLEET = FleetProfile(name="published", mix=EVALUATION_MIX)
OTHER_FLEET = FleetProfile(name="other", mix=OTHER_MIX, noise=1.7, apart=1.4)


@dataclass(frozen=True, kw_only=True)
class JobProfile:
    """Properties of a job in all its lives."""

    nodes: int
    faults: int  # number of its lives
    stages: int  # of its pipeline
    groups_known: bool  # the telemetry has the stage of each node
    long_last_stage: float  # factor by which it computes longer than the others
    uneven: float  # spread of the load of nodes with the lengths of sequences


@dataclass(frozen=True, kw_only=True, eq=False)
class GeneratedJob:
    """One life of a job: its telemetry in physical units, and the planted faults."""

    seed: int
    life: int
    attributes: JobProfile
    telemetry: Telemetry
    faults: tuple[PlantedFault, ...]

    @property
    def has_ended(self) -> bool:
        return bool(self.faults)


def attributes_of(seed: int, *, nodes: int | None = None) -> JobProfile:
    rng = np.random.default_rng([seed, 0])
    size = _size(rng)
    faults = _faults_of_a_job(rng)
    stages = int(rng.choice([1, 1, 2, 4, 8]))
    size = size if nodes is None else nodes
    stages = stages if size >= 4 * stages else 1
    grouped, long, uneven = rng.random(3)
    return JobProfile(
        nodes=size,
        faults=faults,
        stages=stages,
        groups_known=stages > 1 and bool(grouped < 0.5),
        long_last_stage=float(rng.uniform(1.05, 1.3)) if stages > 1 and long < 0.4 else 1.0,
        uneven=float(rng.uniform(0.01, 0.04)) if uneven < 0.25 else 0.0,
    )


def _size(rng: np.random.Generator) -> int:
    """Number of nodes: three jobs in ten have 600 nodes and more."""
    if rng.random() < 0.3:
        return int(rng.integers(LARGE, MOST + 1))
    return int(np.exp(rng.uniform(np.log(FEWEST), np.log(LARGE))))


def _faults_of_a_job(rng: np.random.Generator) -> int:
    """Number of faults: seven jobs in ten have up to five, and more than 15 % have more than
    eight."""
    part = rng.random()
    low, high = (1, 6) if part < 0.7 else (6, 9) if part < 0.84 else (9, 16)
    return int(rng.integers(low, high))


def generate(
    seed: int,
    metrics: Sequence[WatchedMetric],
    *,
    life: int = 0,
    fleet: FleetProfile = PUBLISHED_FLEET,
    nodes: int | None = None,
    fault: str = DRAWN,
    minutes: float | None = None,
) -> GeneratedJob:
    """Life of a generated job. `fault`: a kind, none, or drawn by the mix; `minutes`: before the
    fault, or of a sound life.

    The same seed and life give the same course, whichever metrics are asked for.
    """
    _check(metrics, fault)
    attributes = attributes_of(seed, nodes=nodes)
    rng = np.random.default_rng([seed, 1 + life, 0])
    begin = FIRST_INSTANT + DAY_S * life
    lead = rng.uniform(600, 1500) if minutes is None else 60 * minutes
    planted = _fault(rng, attributes, fleet, fault, begin + lead)
    end = lead if planted is None else planted.halt - begin + rng.uniform(5, 60)
    story = _Story.draw(rng, attributes, fleet, int(end), begin, planted)
    values = np.empty((len(metrics), attributes.nodes, story.seconds), dtype=np.float32)
    for row, metric in enumerate(metrics):
        values[row] = _metric(story, metric, (seed, life))
    telemetry = Telemetry(
        metrics=tuple(metrics),
        nodes=tuple(f"node{row:04d}" for row in range(attributes.nodes)),
        start=begin,
        step_s=1.0,
        values=values,
        groups=tuple(f"stage{stage}" for stage in story.stage) if attributes.groups_known else (),
    )
    return GeneratedJob(
        seed=seed,
        life=life,
        attributes=attributes,
        telemetry=telemetry,
        faults=() if planted is None else (planted,),
    )


def _check(metrics: Sequence[WatchedMetric], fault: str) -> None:
    for name in (metric.name for metric in metrics):
        if name not in LEVELS:
            raise UsageError(f'no metric "{name}" can be made{did_you_mean(name, LEVELS)}')
    if fault not in (*KINDS, DRAWN, HEALTHY):
        raise UsageError(f'no kind of fault "{fault}"{did_you_mean(fault, KINDS)}')


def _fault(
    rng: np.random.Generator, attributes: JobProfile, fleet: FleetProfile, kind: str, onset: float
) -> PlantedFault | None:
    if kind == HEALTHY:
        return None
    kind = draw_kind(rng, fleet.mix) if kind == DRAWN else kind
    rows, spread = draw_rows(rng, kind, attributes.nodes)
    return PlantedFault(
        kind=kind,
        rows=rows,
        onset=onset,
        halt=onset + draw_until_halt(rng),
        families=draw_families(rng, kind),
        spread=spread,
        manner=float(rng.random()),
    )


# --- one life ------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class _Story:
    """Draws made once for a life, independent of the metrics."""

    attributes: JobProfile
    fleet: FleetProfile
    seconds: int
    begin: float
    fault: PlantedFault | None
    states: tuple[Floats, ...]  # of each stage: states x instants
    times: Floats
    stage: Ints  # of each node
    skews: Ints  # in instants
    slowdown: Mapping[str, float]  # factors for all nodes from the onset on
    jitters: Sequence[tuple[str, int, int, int, float]]
    gaps: Sequence[tuple[slice, int, int]]
    spikes_per_hour: float

    @classmethod
    def draw(
        cls,
        rng: np.random.Generator,
        attributes: JobProfile,
        fleet: FleetProfile,
        seconds: int,
        begin: float,
        fault: PlantedFault | None,
    ) -> _Story:
        times = instants(seconds)
        return cls(
            attributes=attributes,
            fleet=fleet,
            seconds=seconds,
            begin=begin,
            fault=fault,
            states=_states(rng, attributes, times, begin, fault),
            times=times,
            stage=np.arange(attributes.nodes) * attributes.stages // attributes.nodes,
            skews=_skews(rng, attributes.nodes),
            slowdown=_slowdown(rng, fault),
            jitters=draw_jitters(rng, attributes.nodes, seconds),
            gaps=draw_gaps(rng, attributes.nodes, seconds),
            spikes_per_hour=float(rng.uniform(0.002, 0.01)),
        )


def _states(
    rng: np.random.Generator,
    attributes: JobProfile,
    times: Floats,
    begin: float,
    fault: PlantedFault | None,
) -> tuple[Floats, ...]:
    rhythm = draw_rhythm(rng)
    paused = pauses(rng, len(times) // FINE)
    worked = progress(rng, times, paused)
    lag = rng.uniform(0, 0.03)
    until_seen = rng.uniform(0.5, rhythm.period_s + 2)
    loading = rng.uniform(20, 90)
    stages = []
    for stage in range(attributes.stages):
        own = rhythm
        if stage == attributes.stages - 1:
            own = rhythm.lengthen(attributes.long_last_stage)
        states = shares(own, worked, times, paused, lag=lag * stage)
        _load(states, times, loading)
        if fault is not None:
            if KINDS[fault.kind].course == "stall":
                enter(states, times, "wait", fault.onset - begin + until_seen)
            enter(states, times, "off", fault.halt - begin)
        stages.append(states)
    return tuple(stages)


def _load(states: Floats, times: Floats, until: float) -> None:
    """Set the begin of a life to reading a checkpoint."""
    states[:, times < until] = 0
    states[4, times < until] = 1


def _skews(rng: np.random.Generator, nodes: int) -> Ints:
    """Skews of the nodes in instants: each node is read at its own part of the second; some clocks
    are 1 to 3 s wrong."""
    skews = rng.integers(0, FINE, nodes)
    wrong = rng.random(nodes) < (0.02 if rng.random() < 0.5 else 0.0)
    sign = rng.choice([-1, 1], nodes)
    return np.where(wrong, sign * rng.integers(FINE, 3 * FINE + 1, nodes), skews)


def _slowdown(rng: np.random.Generator, fault: PlantedFault | None) -> Mapping[str, float]:
    """Factors for all nodes if one node is slow."""
    tensor, marks = rng.uniform(0.75, 0.9), rng.uniform(2, 6)
    if fault is None or KINDS[fault.kind].course != "slow":
        return {}
    slower = dict.fromkeys(("gpu_tensor", "gpu_fp", "gpu_memory_bandwidth"), tensor)
    return {
        **slower,
        "throughput": 0.75,
        "nvlink_throughput": tensor,
        "gpu_sm": 0.95,
        "gpu_power": 0.96,
        "ecn": marks,
        "cnp": marks,
    }


def _metric(story: _Story, metric: WatchedMetric, seeds: tuple[int, int]) -> Floats32:
    """Nodes x seconds of one metric, from draws of its own."""
    seed, life = seeds
    number = 1 + list(LEVELS).index(metric.name)
    of_job = np.random.default_rng([seed, 0, number])
    rng = np.random.default_rng([seed, 1 + life, number])
    level = LEVELS[metric.name]
    factor = 1 + level.varies * of_job.uniform(-1, 1)
    lines = [_line(story, metric.name, states, level.levels * factor) for states in story.states]
    values = sample(lines, story.stage, story.skews, story.seconds)
    _differ(of_job, rng, story, metric, values)
    for jitter in story.jitters:
        mark_jitter(values, metric.name, jitter)
    mark_spikes(rng, values, story.spikes_per_hour)
    if story.fault is not None:
        mark_fault(rng, values, metric.name, metric.family, story.fault, story.begin)
    np.clip(values, 0, level.most, out=values)
    lose_samples(rng, values, LOST_SAMPLES)
    for gap in story.gaps:
        mark_gap(values, gap)
    return values


def _line(story: _Story, metric: str, states: Floats, levels: Floats) -> Floats32:
    line = course(metric, states, levels)
    if story.fault is not None and metric in story.slowdown:
        line[story.times >= story.fault.onset - story.begin] *= np.float32(story.slowdown[metric])
    return line


def _differ(
    of_job: np.random.Generator,
    rng: np.random.Generator,
    story: _Story,
    metric: WatchedMetric,
    values: Floats32,
) -> None:
    """Make nodes differ from their course: by offsets, by noise, and by their role."""
    level, nodes = LEVELS[metric.name], story.attributes.nodes
    gains = 1 + offsets(of_job, level.apart * story.fleet.apart, nodes)
    added = offsets(of_job, level.offset * story.fleet.apart, nodes)
    lead_cpu, lead_bytes = of_job.uniform(3, 8), of_job.uniform(2e6, 2e7)
    added[0] += {"cpu_use": lead_cpu, "tcp_throughput": lead_bytes}.get(metric.name, 0.0)
    small = np.where(values < 0.2 * level.compute, np.float32(0.2), np.float32(1))
    wander = noise(rng, nodes, story.seconds)
    if level.bursts:
        share = np.exp(level.bursts * wander)
    else:
        share = gains[:, None].astype(np.float32) + story.fleet.noise * level.noise * wander
    if story.attributes.uneven and metric.family == "gpu":
        share += story.attributes.uneven * _load_of_nodes(rng, nodes, story.seconds)
    values *= share
    values += added[:, None].astype(np.float32) * small
    values += _least_noise(level, story) * wander


def _load_of_nodes(rng: np.random.Generator, nodes: int, seconds: int) -> Floats32:
    """Load of nodes by the lengths of sequences: another draw every 30 s."""
    draws = rng.standard_normal((nodes, seconds // 30 + 1), dtype=np.float32)
    return np.repeat(draws, 30, axis=1)[:, :seconds]


def _least_noise(level: MetricLevel, story: _Story) -> np.float32:
    return np.float32(level.least_noise * story.fleet.noise)
