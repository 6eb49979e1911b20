"""Telemetry of jobs made by a fourth hand: an event for each step, and counters that are sampled.

The other generators draw values of metrics. This one draws what a job does and lets all values
follow: each node's GPUs compute for a while, the node waits for the last one, data are exchanged,
and the next step begins. So a slow node changes what all others do, and in the same step all send
the same. Experts get more or fewer tokens as training goes on, stages have more or less to do,
batches become longer in the middle of a job, and checkpoints are written by all or by few.
Counters are read as their differences over one or four samples, gauges as the mean of one second,
each by a clock of its own. A stranger's program, an exporter that starts again, a node that joins
late and a role are no faults.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from anubis.core.watch.telemetry import Telemetry
from anubis.readers.telemetry.config import shipped_settings

Floats = npt.NDArray[np.float64]
Dice = np.random.Generator
LIVES_S = 1750.0
GPUS = 8
FINE_S = 0.25  # of the grid on which a job is kept before it is sampled
# what a node shows in each of its phases, as means of its GPUs
PHASES: Mapping[str, Mapping[str, float]] = {
    "computes": {"duty": 98, "tensor": 47, "power": 610, "nvlink": 2.1e11, "wire": 3e8, "cpu": 24},
    "waits": {"duty": 99, "tensor": 0, "power": 255, "nvlink": 0, "wire": 0, "cpu": 21},
    "sends": {"duty": 99, "tensor": 1, "power": 340, "nvlink": 4e10, "wire": 3.2e10, "cpu": 26},
    "starves": {"duty": 0, "tensor": 0, "power": 110, "nvlink": 0, "wire": 0, "cpu": 9},
    "saves": {"duty": 4, "tensor": 0, "power": 125, "nvlink": 0, "wire": 9e8, "cpu": 33},
    "rests": {"duty": 0, "tensor": 0, "power": 115, "nvlink": 0, "wire": 0, "cpu": 3},
    "is stuck": {"duty": 99, "tensor": 0, "power": 165, "nvlink": 0, "wire": 0, "cpu": 20},
    "is gone": {"duty": 0, "tensor": 0, "power": 70, "nvlink": 0, "wire": 0, "cpu": 1},
}
NAMES = tuple(PHASES)
COMPUTES, SENDS = NAMES.index("computes"), NAMES.index("sends")
PHASES_CHANGED = {"power": COMPUTES, "tensor": COMPUTES, "nvlink": COMPUTES, "wire": SENDS}
METRICS: Mapping[str, str] = {  # and what they are made of
    "gpu_duty": "duty",
    "gpu_graphics": "duty",
    "gpu_power": "power",
    "gpu_tensor": "tensor",
    "nvlink_throughput": "nvlink",
    "cpu_use": "cpu",
    "throughput": "wire",
    "pfc_tx": "pauses",
    "memory_use": "memory",
    "gpu_memory": "of GPUs",
    "disk_use": "disk",
}
COUNTERS = ("nvlink_throughput", "cpu_use", "throughput", "pfc_tx")
WHOLE = ("gpu_duty", "gpu_graphics")  # told in whole percents
SLOW = ("one GPU slow", "throttled", "processors taken", "input starved", "PCIe")
NETWORK = ("half a NIC", "NIC flaps")
HALTING: Mapping[str, tuple[str, str]] = {  # phases of the faulty node and of the rest
    "hang": ("rests", "waits"),
    "GPU hangs busy": ("is stuck", "waits"),
    "process dead": ("is gone", "waits"),
    "stuck in a checkpoint": ("rests", "saves"),
}
FAULTS = (*SLOW, *NETWORK, *HALTING)


@dataclass(frozen=True, kw_only=True)
class FourthJob:
    telemetry: Telemetry
    kind: str  # of its fault; empty: none
    row: int
    onset: float  # point of time

    @property
    def has_ended(self) -> bool:
        return self.kind in HALTING


@dataclass
class _Course:
    """What each node does at each quarter of a second, and what adds to it."""

    phase: npt.NDArray[np.int8]  # nodes x times
    factors: Mapping[str, Floats]  # on what GPUs do while they compute, and on what wires carry
    cpu: Floats  # points of a percent more
    pauses: Floats  # frames a second


def make_fourth_job(seed: int, *, is_faulty: bool = True) -> FourthJob:
    dice = np.random.default_rng([4_447, seed, is_faulty])
    nodes = int(dice.choice([4, 6, 8, 12, 16, 24, 40, 64]))
    kind = str(dice.choice(FAULTS)) if is_faulty else ""
    row = int(dice.integers(nodes))
    onset_s = float(dice.uniform(650, 1000)) if kind else LIVES_S
    until_s = min(LIVES_S, onset_s + dice.uniform(300, 650)) if kind else LIVES_S
    stages = np.arange(nodes) * int(dice.choice([1, 1, 2, 4]) if nodes >= 12 else 1) // nodes
    course = _course(dice, stages, kind, row, onset_s)
    step_s = float(dice.choice([1.0, 1.0, 1.0, 5.0, 10.0, 15.0]))
    values = _sampled(dice, course, step_s, int(until_s / step_s))
    _spoil(dice, values, step_s, (row + 1 + int(dice.integers(nodes - 1))) % nodes)
    metrics = shipped_settings().watched_metrics(tuple(METRICS))
    for rows, metric in zip(values, metrics, strict=True):
        np.clip(rows, metric.low, metric.high, out=rows)
    telemetry = Telemetry(
        metrics=metrics,
        nodes=tuple(f"gpu-{node:02d}" for node in range(nodes)),
        start=1.82e9,
        step_s=step_s,
        values=values.astype(np.float32),
        groups=tuple(f"stage {s}" for s in stages) if dice.random() < 0.6 else (),
    )
    return FourthJob(telemetry=telemetry, kind=kind, row=row, onset=onset_s / step_s)


def _course(
    dice: Dice, stages: npt.NDArray[np.int64], kind: str, row: int, onset_s: float
) -> _Course:
    """Step after step, until the job halts."""
    nodes, times = len(stages), int(LIVES_S / FINE_S)
    course = _Course(
        phase=np.full((nodes, times), NAMES.index("rests"), dtype=np.int8),
        factors={name: np.ones((nodes, times)) for name in ("power", "tensor", "nvlink", "wire")},
        cpu=np.zeros((nodes, times)),
        pauses=np.abs(dice.standard_t(3, (nodes, times))) * 25,
    )
    compute_s, share = dice.uniform(1.2, 9), dice.uniform(0.08, 0.4)
    every_s, lasts_s = dice.uniform(200, 600), dice.uniform(6, 40)
    judged_s, judges_s = dice.uniform(300, 900), dice.uniform(15, 70)
    few_write, half_judge = dice.random() < 0.4, dice.random() < 0.3
    longer_s = dice.uniform(300, 1500) if dice.random() < 0.3 else LIVES_S
    has_experts, tokens = dice.random() < 0.4, np.zeros(nodes)
    severity, period_s = dice.uniform(0, 1), dice.uniform(15, 45)
    load = 1 + 0.08 * stages * int(dice.choice([0, 1])) + dice.normal(0, 0.01, nodes)
    at, saved, judged, flap = float(dice.uniform(0, 20)), 0.0, 0.0, 0.0
    all_nodes = np.arange(nodes)

    def enter(name: str, rows: npt.ArrayLike, begin: npt.ArrayLike, end: npt.ArrayLike) -> None:
        for node, a, b in zip(*np.broadcast_arrays(rows, begin, end), strict=True):
            course.phase[node, int(a / FINE_S) : int(b / FINE_S)] = NAMES.index(name)

    while at < LIVES_S:
        is_bad = kind and at >= onset_s
        if at - saved > every_s:
            writers = np.unique(stages, return_index=True)[1] if few_write else all_nodes
            end = at + lasts_s * dice.uniform(0.8, 1.2)
            enter("waits", all_nodes, at, end)
            enter("saves", writers, at, end)
            at = saved = end
            if kind == "stuck in a checkpoint" and is_bad:
                break
            continue
        if kind in HALTING and is_bad and kind != "stuck in a checkpoint":
            break
        if kind == "stuck in a checkpoint" and at >= onset_s:
            break
        judging = at - judged > judged_s
        scale = compute_s * (1.35 if at > longer_s else 1.0)
        if has_experts:
            pull = min(1.0, scale / 200)  # experts stay popular for minutes
            tokens += -pull * tokens + dice.normal(0, 0.11 * np.sqrt(2 * pull), nodes)
        work = scale * load * np.clip(1 + tokens, 0.5, 2.0)
        gpus = work[:, None] * (1 + 0.012 * np.abs(dice.standard_t(4, (nodes, GPUS))))
        starved = np.abs(dice.normal(0, 0.01, nodes)) * scale
        exchange = scale * share * (1 + 0.05 * abs(dice.standard_t(4)))
        usual, rate = exchange, 0.45 + 0.3 * severity
        if is_bad and kind == "one GPU slow":
            gpus[row, 0] /= rate
        elif is_bad and kind in ("throttled", "PCIe"):
            gpus[row] /= rate
        elif is_bad and kind == "processors taken":
            starved[row] += (0.2 + 0.4 * severity) * scale
        elif is_bad and kind == "input starved":
            starved[row] += (0.4 + severity) * scale
        elif is_bad and kind == "half a NIC":
            exchange *= 2
        elif is_bad and kind == "NIC flaps" and at > flap:
            exchange += 3 + 5 * severity
            flap = at + period_s
        if judging:
            idle = all_nodes % 2 == 1 if half_judge else np.zeros(nodes, dtype=bool)
            end = at + judges_s
            enter("computes", all_nodes[~idle], at, end)
            enter("waits", all_nodes[idle], at, end)
            course.factors["tensor"][:, int(at / FINE_S) : int(end / FINE_S)] *= 0.6
            at = judged = end
            continue
        own = gpus.mean(axis=1)
        ready_s = float((starved + gpus.max(axis=1)).max())
        end = at + ready_s + exchange
        enter("starves", all_nodes, at, at + starved)
        enter("computes", all_nodes, at + starved, at + starved + own)
        enter("waits", all_nodes, at + starved + own, at + ready_s)
        enter("sends", all_nodes, at + ready_s, end)
        if is_bad:
            now = slice(int(at / FINE_S), int(end / FINE_S))
            exchanged = slice(int((at + ready_s) / FINE_S), int(end / FINE_S))
            course.factors["wire"][:, exchanged] = usual / exchange  # the same bytes
            if kind in ("throttled", "PCIe"):
                for name in ("tensor", "nvlink"):
                    course.factors[name][row, now] = rate
                course.factors["power"][row, now] = 0.6 if kind == "throttled" else 0.75
            elif kind == "one GPU slow":
                course.factors["power"][row, now] = 1 - 0.4 / GPUS
            if kind == "processors taken":
                course.cpu[row, now] = 25 + 35 * severity
            if kind == "PCIe" or kind in NETWORK:
                course.pauses[row, exchanged] += 7000
        at = end
    if kind in HALTING:
        halted, rest = HALTING[kind]
        course.phase[:, int(at / FINE_S) :] = NAMES.index(rest)
        course.phase[row, int(at / FINE_S) :] = NAMES.index(halted)
    return course


def _sampled(dice: Dice, course: _Course, step_s: float, points: int) -> Floats:
    """Values as an agent (a sample a second) or a server that asks less often has them."""
    nodes = len(course.phase)
    apart_s = dice.normal(0, dice.choice([0.3, 3.0]), (nodes, 1))
    at = np.arange(points)[None, :] * step_s + apart_s + dice.normal(0, 0.03, (nodes, points))
    gone = course.phase == NAMES.index("is gone")
    values = np.empty((len(METRICS), nodes, points))
    for number, (metric, source) in enumerate(METRICS.items()):
        if source in ("memory", "of GPUs", "disk"):
            values[number] = _kept(dice, source, at, gone)
            continue
        levels = np.array([PHASES[name].get(source, 0.0) for name in NAMES])
        fine = course.pauses if source == "pauses" else levels[course.phase]
        if source in course.factors:
            changed = PHASES_CHANGED[source] == course.phase
            fine = np.where(changed, fine * course.factors[source], fine)
        elif source == "cpu":
            fine = fine + course.cpu
        fine = fine * dice.normal(1, 0.015, (nodes, 1))
        over_s = (step_s if step_s == 1 else 4 * step_s) if metric in COUNTERS else 1.0
        values[number] = _means(fine, at, over_s)
        values[number] *= np.exp(0.012 * dice.standard_t(4, (nodes, points)))
        if metric in WHOLE:
            values[number] = np.round(values[number])
    return values


def _means(fine: Floats, at: Floats, over_s: float) -> Floats:
    """Means over the time before each sample."""
    sums = np.pad(np.cumsum(fine, axis=1), ((0, 0), (1, 0))) * FINE_S
    grid = np.arange(sums.shape[1]) * FINE_S
    late = np.array([np.interp(t, grid, s) for t, s in zip(at, sums, strict=True)])
    early = np.array([np.interp(t - over_s, grid, s) for t, s in zip(at, sums, strict=True)])
    known_s = np.clip(at, 0, None) - np.clip(at - over_s, 0, None)
    return np.asarray((late - early) / np.maximum(known_s, FINE_S))


def _kept(dice: Dice, source: str, at: Floats, gone: npt.NDArray[np.bool_]) -> Floats:
    """Memory and disks: what grows and is freed again."""
    nodes = len(at)
    here = np.clip((at / FINE_S).astype(np.int64), 0, gone.shape[1] - 1)
    ended = np.take_along_axis(gone, here, axis=1)
    own = dice.normal(1, 0.02, (nodes, 1))
    if source == "memory":
        tooth = ((at + dice.uniform(0, 300, (nodes, 1))) % dice.uniform(100, 400)) / 400
        return np.asarray(np.where(ended, 7.0, (31 + 4 * tooth) * own))
    if source == "of GPUs":
        return np.asarray(np.where(ended, 5e8, 6.6e10 * own))
    return np.asarray((44 + at / 900) * own)


def _spoil(dice: Dice, values: Floats, step_s: float, odd: int) -> None:
    """Do to the recording, and to a sound node, what happens beside any fault."""
    _, nodes, points = values.shape
    names = list(METRICS)
    cpu, begin = names.index("cpu_use"), int(dice.integers(points // 5, points // 2))
    minutes = round(60 / step_s)
    match str(dice.choice(["", "program", "role", "joins", "exporter", "agent", "skew"])):
        case "program":  # of a stranger, on processors that the job does not need
            values[cpu, odd, begin : begin + int(dice.uniform(3, 9) * minutes)] += 30
        case "role":
            values[[cpu, names.index("memory_use")], odd] *= 1.7
        case "joins":
            values[:, odd, :begin] = np.nan
        case "exporter":  # of its GPUs starts again
            rows = [place for place, name in enumerate(names) if name.startswith(("gpu", "nvl"))]
            values[rows, odd, begin : begin + 2 * minutes] = np.nan
        case "agent":  # ends, and the node works on
            values[:, odd, points // 2 + begin // 2 :] = np.nan
        case "skew":
            late = round(25 / step_s)
            values[:, odd, late:] = values[:, odd, : points - late].copy()
    values[:, dice.random((nodes, points)) < 0.003] = np.nan
    for _ in range(int(dice.integers(0, 4))):
        begin = int(dice.integers(points))
        values[:, int(dice.integers(nodes)), begin : begin + int(dice.integers(1, 30))] = np.nan
    if dice.random() < 0.25:
        begin = int(dice.integers(points))
        values[:, :, begin : begin + max(1, minutes // 3)] = np.nan
