"""Find ranks of a slow job that compute slowly, by the times of steps (Aegis' phase 2), ranks
whose program waits for a processor, jobs that became slower than they were, and ranks that others
wait for without proof that they are slow.

Collectives end on all ranks at once, so the last rank to launch waits least: a rank whose time in
the collectives of its group stays below `ALPHA` of the group's mean holds the group up. That alone
blames a whole pipeline for one slow stage. So the time that the rank worked must also be
`OWN_RATIO` times that of ranks that do the same work: at the median, in `MOST` of its steps, and by
`NOISE` times the chance error of a median of so many steps. Ranks without recorded working times
are not named. If the kernels of computation are recorded, they decide, as they show whether a rank
is slow or has more to do: nearly all of them, by their number and by their time, must take
`KERNEL_RATIO` times as long as the same kernels of its peers.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean, median

from anubis.core.diagnose.evidence import (
    Collector,
    JobEvidence,
    KernelStep,
    ProcessState,
    StepTime,
)
from anubis.core.diagnose.facts import FactKind, Hearing, InferenceRule, JobFact, Whom
from anubis.core.diagnose.hang import rank_subject
from anubis.core.diagnose.live_progress import pace_of_messages, proof

ALPHA = 0.8  # as in Aegis: of the group's mean time in collectives
OWN_RATIO = 1.2  # less costs the job too little to name a rank
MOST = 0.8  # of its steps
KERNEL_RATIO = 1.15  # sound GPUs of one model differ by less
ALIKE_RATIO = 1.1  # of all kernels together: who works longer with less has more to do
KERNELS = 0.7  # share of a rank's kernels: those of a mixture's experts depend on its data
COMPARED = 0.5  # share of a rank's time in kernels that half of its peers have as well
OTHER_SIZES = 0.3  # share of its kernels with another grid than theirs: it got other data
NOISE = 4.0  # chance errors: one of 30,000 sound ranks is beyond them
MEDIAN_ERROR = 1.2533  # standard error of a median over that of a mean
DEVIATION = 1.4826  # standard over median absolute deviation, for normal values
FEWEST_STEPS = 3  # the fewest with a median that one odd step cannot move
WANTS_NONE_S = 15.0  # a program that has rested for so long
WAITS = 0.25  # share of the time that a program waits for a processor more than its peers
LEAST_RAN = 0.001  # share of the time, of a program that works
WAITS_TIMES = 2.0  # and so many times as long as its peers
FEWEST_LOOKS = 8  # at a program, that show for how much of the time it works
MOSTLY = 0.6  # share of them in which it waits for no other rank
MORE_WORK = 0.4  # share of them, by which it works more than its peers
LEAST_EFFECT = 0.05  # of the step: the least excess of a rank's own time over its peers'
ALPHA_CONFIDENCE = 0.85  # two independent signs agree: it is waited for, and works longer
LIKELY_CONFIDENCE = 0.5  # it is waited for: it may be slow, starved, or have more to do
WAITS_CONFIDENCE = 0.8  # the processor may be taken by another job, not by a fault here
PROCESSOR_RATIO = 2.0  # of processor time, which shows it if all programs wait for processors
MOST_WAITED = 0.9  # share of the time: threads that wait side by side count more than once
SLOWED_RATIO = 1.5  # of the pace lately over the pace before
DOUBTED_RATIO = 2.5  # the same without waits before and lately, some of which cost the job nothing
JUST_BEGUN_S = 3.0  # after the first look: what was recorded later is no pace of before
SLOWED_CONFIDENCE = 0.8  # the program may have changed its batch, or entered another phase


@dataclass(frozen=True)
class StepPace:
    """A rank's medians over its steps, and its working time in each step."""

    rank: int
    duration_s: float
    own_s: float | None
    share: float | None  # its time in collectives over the mean of its group
    steps: int
    work: Mapping[int, float]


def paces(steps: Iterable[StepTime]) -> Mapping[int, StepPace]:
    """Paces of the ranks with enough steps. A step recorded in several communicators counts with
    the one in which the rank waited least relative to its group."""
    of_rank: dict[int, dict[int, list[StepTime]]] = {}
    for step in steps:
        of_rank.setdefault(step.rank, {}).setdefault(step.step, []).append(step)
    return {
        rank: _pace(rank, [min(at_once, key=_least) for at_once in by_step.values()])
        for rank, by_step in of_rank.items()
        if len(by_step) >= FEWEST_STEPS
    }


def _least(step: StepTime) -> float:
    share = _share(step)
    return float("inf") if share is None else share


def _share(step: StepTime) -> float | None:
    if step.collective_s is None or not step.group_s:
        return None
    return step.collective_s / step.group_s


def _pace(rank: int, steps: list[StepTime]) -> StepPace:
    shares = [share for step in steps if (share := _share(step)) is not None]
    work = {step.step: step.own_s for step in steps if step.own_s is not None}
    return StepPace(
        rank=rank,
        duration_s=median(step.duration_s for step in steps),
        own_s=median(work.values()) if len(work) >= FEWEST_STEPS else None,
        share=median(shares) if len(shares) >= FEWEST_STEPS else None,
        steps=len(steps),
        work=work,
    )


@dataclass(frozen=True)
class _Peers:
    """Ordered working times of ranks that do the same work: all, or all of one stage of the
    pipeline. Ordered once, they give the median of a rank's peers at once."""

    own_s: Mapping[int | None, Sequence[float]]  # by stage
    of_step: Mapping[tuple[int | None, int], Sequence[float]]

    @classmethod
    def grouped(cls, measured: Mapping[int, StepPace], evidence: JobEvidence) -> _Peers:
        own_s: dict[int | None, list[float]] = {}
        of_step: dict[tuple[int | None, int], list[float]] = {}
        for rank, pace in measured.items():
            stage = evidence.ranks.stages.get(rank)
            if pace.own_s is not None:
                own_s.setdefault(stage, []).append(pace.own_s)
            for step, work_s in pace.work.items():
                of_step.setdefault((stage, step), []).append(work_s)
        return cls(
            {stage: sorted(times) for stage, times in own_s.items()},
            {place: sorted(times) for place, times in of_step.items()},
        )


def _median_without(ordered: Sequence[float], left_out: float) -> float | None:
    """Return the median of the other values; None if there are none."""
    at, count = bisect_left(ordered, left_out), len(ordered) - 1
    middle = {(count - 1) // 2, count // 2}
    return fmean(ordered[k + (k >= at)] for k in middle) if count else None


def _slow_compute(hearing: Hearing) -> Iterator[JobFact]:
    """Yield ranks that compute slowly, if they are a minority. Ranks that others wait for without
    such proof may be slow: a job that has some is not called well."""
    evidence = hearing.evidence
    load = _Load.measured(evidence)
    measured = paces(evidence.steps)
    peers = _Peers.grouped(measured, evidence)
    stages = evidence.ranks.stages
    excesses = {rank: _excesses(pace, stages.get(rank), peers) for rank, pace in measured.items()}
    noise = _noise(excesses.values())
    by_kernel = _kernel_paces(evidence)
    kernel_noise = _noise(kernels.excesses for kernels in by_kernel.values())
    proven: list[JobFact] = []
    likely: list[JobFact] = []
    for rank, pace in measured.items():
        if pace.own_s is None or pace.share is None or pace.share >= ALPHA:
            continue
        times = peers.own_s[stages.get(rank)]
        typical = _median_without(times, pace.own_s)
        if typical is None:
            continue
        kernels = by_kernel.get(rank)
        is_much = pace.own_s - typical > LEAST_EFFECT * pace.duration_s
        if kernels:
            is_slow = _lasts(kernels.excesses, kernel_noise, KERNEL_RATIO)
            has_more = kernels.typical < ALIKE_RATIO
        else:
            left_s = load.own_left_s(pace)
            is_slow = left_s >= OWN_RATIO * typical or load.takes_processors(rank)
            is_slow, has_more = is_slow and _lasts(excesses[rank], noise), False
        is_longer = pace.own_s >= (KERNEL_RATIO if kernels and is_slow else OWN_RATIO) * typical
        if not is_much or not is_longer or has_more:
            continue
        of_kernels = kernels.words if kernels else ""
        fact = JobFact(
            kind=FactKind.SLOW_COMPUTE,
            whom=rank_subject(evidence, pace.rank),
            evidence=(
                f"rank {pace.rank} works {pace.own_s:.3g} s of a step, its"
                f" {len(times) - 1} peers {typical:.3g} s, and waits {pace.share:.2f} times as"
                f" long as its group (median of {pace.steps} steps){of_kernels}"
            ),
            confidence=ALPHA_CONFIDENCE,
            code="alpha",
        )
        (proven if is_slow else likely).append(fact)
    if 2 * len(proven) >= max(len(measured), 3):  # half of the ranks have more to do
        proven, likely = [], proven + likely
    yield from proven
    doubt = f"; all programs wait for processors {load.usual:.0%} of the time"
    for fact in likely:
        yield replace(
            fact,
            kind=FactKind.MAY_BE_SLOW,
            evidence=fact.evidence + (doubt if load.all_starve else ""),
            confidence=LIKELY_CONFIDENCE,
            code="waited-for",
        )


def _excesses(pace: StepPace, stage: int | None, peers: _Peers) -> list[float]:
    """Logarithms of a rank's working time over its peers' median, step by step."""
    excesses = []
    for step, own_s in sorted(pace.work.items()):
        typical = _median_without(peers.of_step[stage, step], own_s)
        if own_s > 0 and typical:
            excesses.append(math.log(own_s / typical))
    return excesses


def _noise(excesses: Iterable[Sequence[float]]) -> float:
    """Spread of a rank's excess from step to step. A slow rank is slow in both steps, so that does
    not count."""
    changes = [abs(after - before) for own in excesses for before, after in pairwise(own)]
    return DEVIATION * median(changes) / math.sqrt(2) if changes else math.inf


def _lasts(excesses: Sequence[float], noise: float, ratio: float = OWN_RATIO) -> bool:
    """Return whether the excess exists in most steps and is larger than chance."""
    if len(excesses) < FEWEST_STEPS:
        return False
    often = sum(excess >= math.log(ratio) for excess in excesses) >= MOST * len(excesses)
    by_chance = MEDIAN_ERROR * noise / math.sqrt(len(excesses))
    return often and median(excesses) >= NOISE * by_chance


@dataclass(frozen=True)
class _KernelPace:
    """Kernels of a rank beside the same kernels of ranks of its stage."""

    excesses: Sequence[float]  # of each comparable step: logarithm of what most kernels exceed
    typical: float  # all of them over its peers' together; not a number: none can be compared

    @property
    def words(self) -> str:
        if not self.excesses:
            return "; its kernels have other sizes than theirs"
        return f"; its kernels take {self.typical:.2f} times as long as theirs"


def _kernel_paces(evidence: JobEvidence) -> Mapping[int, _KernelPace]:
    """Return the paces of the ranks whose kernels were recorded."""
    stages = evidence.ranks.stages
    of_step: dict[tuple[int, int], list[KernelStep]] = {}
    ordered: dict[tuple[int | None, int, str, str], list[float]] = {}
    having: dict[tuple[int | None, int, str], set[int]] = {}
    for kernel in evidence.kernels:
        stage, rank, step = stages.get(kernel.rank), kernel.rank, kernel.step
        of_step.setdefault((rank, step), []).append(kernel)
        ordered.setdefault((stage, step, kernel.name, kernel.grid), []).append(kernel.typical_s)
        having.setdefault((stage, step, kernel.name), set()).add(rank)
    for times in ordered.values():
        times.sort()
    peers = Counter((stages.get(rank), step) for rank, step in of_step)
    excesses: dict[int, list[float]] = {rank: [] for rank, _ in of_step}
    sums: dict[int, list[tuple[float, float]]] = {rank: [] for rank, _ in of_step}
    for (rank, step), kernels in sorted(of_step.items()):
        stage, fewest = stages.get(rank), (peers[stages.get(rank), step] - 1) / 2
        ratios, weights, resized = [], [], 0
        for kernel in kernels:
            times = ordered[stage, step, kernel.name, kernel.grid]
            typical = _median_without(times, kernel.typical_s)
            if typical and kernel.typical_s and len(times) - 1 >= fewest:
                ratios.append(kernel.typical_s / typical)
                weights.append(kernel.total_s / ratios[-1])
            else:
                resized += len(having[stage, step, kernel.name]) - 1 >= fewest
        compared_s = sum(ratio * weight for ratio, weight in zip(ratios, weights, strict=True))
        is_alike = resized <= OTHER_SIZES * len(kernels)
        if ratios and is_alike and compared_s >= COMPARED * sum(k.total_s for k in kernels):
            excesses[rank].append(math.log(_exceeded(ratios, weights)))
            sums[rank].append((compared_s, sum(weights)))
    return {rank: _KernelPace(own, _ratio_of_sums(sums[rank])) for rank, own in excesses.items()}


def _ratio_of_sums(sums: Sequence[tuple[float, float]]) -> float:
    own_s, peers_s = (sum(column) for column in zip(*sums, strict=True)) if sums else (1.0, 0.0)
    return own_s / peers_s if peers_s else math.nan


def _exceeded(ratios: Sequence[float], weights: Sequence[float]) -> float:
    """Return the ratio that `KERNELS` of the kernels have at least, by number and by time."""
    total_s, count, time_s = sum(weights), 0, 0.0
    for ratio, weight in sorted(zip(ratios, weights, strict=True), reverse=True):
        count, time_s = count + 1, time_s + weight
        if count >= KERNELS * len(ratios) and time_s >= KERNELS * total_s:
            return ratio
    return min(ratios)


@dataclass(frozen=True)
class _Load:
    """Time that other work on the machines of a job takes from its programs."""

    states: Mapping[int, ProcessState]
    usual: float  # share of the time that a program waits for a processor
    stages: Mapping[int, int]
    ran: Mapping[int | None, Sequence[float]]  # by stage: shares of the time, ordered

    @classmethod
    def measured(cls, evidence: JobEvidence) -> _Load:
        states = {state.rank: state for state in evidence.processes}
        waits = [state.waits for state in states.values() if state.waits is not None]
        stages = evidence.ranks.stages
        ran: dict[int | None, list[float]] = {}
        for rank, state in states.items():
            if state.work_ran is not None:
                ran.setdefault(stages.get(rank), []).append(state.work_ran)
        ordered = {stage: sorted(shares) for stage, shares in ran.items()}
        return cls(states, median(waits) if waits else 0.0, stages, ordered)

    @property
    def all_starve(self) -> bool:
        """Return whether most programs wait for a processor: then a rank that is a little late is
        not slow."""
        return self.usual >= WAITS

    def own_left_s(self, pace: StepPace) -> float:
        """Return a rank's own time without what it waited for a processor: more than the others, or
        at all if all starve. What the others waited stays in theirs, so a sound rank has no more
        than they."""
        own_s, state = pace.own_s or 0.0, self.states.get(pace.rank)
        if state is None or state.waits is None:
            return own_s
        if not self.all_starve:
            return own_s - max(0.0, state.waits - self.usual) * pace.duration_s
        waits = state.waits if state.work_waits is None else state.work_waits
        return own_s - waits * pace.duration_s

    def takes_processors(self, rank: int) -> bool:
        """Return whether a rank takes much more processor time than its peers, if all starve: other
        work does not change that."""
        state = self.states.get(rank)
        if not self.all_starve or state is None or state.work_ran is None:
            return False
        typical = _median_without(self.ran[self.stages.get(rank)], state.work_ran)
        return typical is not None and state.work_ran >= PROCESSOR_RATIO * max(typical, LEAST_RAN)


def _kept_waiting(hearing: Hearing) -> Iterator[JobFact]:
    """Programs that wait for a processor, more than those that want one: of a job that stands
    still, or that waits for a checkpoint, most want none."""
    evidence = hearing.evidence
    if evidence.stall:
        return
    stages = evidence.ranks.stages
    waits = {
        state.rank: state.waits
        for state in evidence.processes
        if state.waits is not None and (state.rests_s or 0.0) < WANTS_NONE_S
    }
    for rank, share in waits.items():
        peers = [
            of_peer
            for peer, of_peer in waits.items()
            if peer != rank and stages.get(peer) == stages.get(rank)
        ]
        typical = median(peers) if peers else share
        if typical < WAITS <= share - typical and share >= WAITS_TIMES * typical:
            yield JobFact(
                kind=FactKind.SLOW_COMPUTE,
                whom=rank_subject(evidence, rank),
                evidence=(
                    f"the program of rank {rank} waits for a processor {share:.0%} of the time,"
                    f" those of its {len(peers)} peers {typical:.0%}"
                ),
                confidence=WAITS_CONFIDENCE,
                code="waits-for-processor",
            )


def _waited_for(hearing: Hearing) -> Iterator[JobFact]:
    """Yield ranks whose work is not recorded, as in a pipeline, that are at work most of the time
    while the others mostly wait: they may be slow, or have more to do. If a rank's own notes of
    its past show that it became so, it is slow."""
    evidence = hearing.evidence
    measured = {rank for rank, pace in paces(evidence.steps).items() if pace.own_s is not None}
    seen = {s.rank: s for s in evidence.processes if s.times_seen and s.rank not in measured}
    if evidence.stall or len(seen) < 2:
        return
    shares = {rank: state.times_at_work / state.times_seen for rank, state in seen.items()}
    stages = evidence.ranks.stages
    facts = []
    for rank, state in seen.items():
        rest = [peer for peer in seen if peer != rank]
        peers = [peer for peer in rest if stages.get(peer) == stages.get(rank)] or rest
        typical = median(shares[peer] for peer in peers)
        by_chance = math.sqrt(typical * (1 - typical) / state.times_seen)
        is_more = shares[rank] - typical >= max(NOISE * by_chance, MORE_WORK)
        if state.times_seen >= FEWEST_LOOKS and shares[rank] >= MOSTLY and is_more:
            fact = JobFact(
                kind=FactKind.MAY_BE_SLOW,
                whom=rank_subject(evidence, rank),
                evidence=(
                    f"rank {rank} was at work in {state.times_at_work} of"
                    f" {state.times_seen} looks, its {len(peers)} peers in"
                    f" {typical:.0%} of theirs: they wait for it, as it is slow or has more to do"
                ),
                confidence=LIKELY_CONFIDENCE,
                code="waited-for",
            )
            excess = shares[rank] - typical
            facts.append(_slowed_alone(fact, state, [seen[peer] for peer in peers], excess))
    if 2 * len(facts) < max(len(seen), 3):
        yield from facts


def _slowed_alone(
    fact: JobFact, state: ProcessState, peers: Sequence[ProcessState], excess: float
) -> JobFact:
    """Return the fact that a rank became slow, or the fact as it is. The rank's own notes must show
    that its messages followed each other faster before, by more than it waits for a processor now,
    and that it did not work so much more than its peers then."""
    pace = pace_of_messages(state.past)
    if (
        pace is None
        or pace.lately_s * (1 - (state.work_waits or 0.0)) < SLOWED_RATIO * pace.earlier_s
    ):
        return fact
    before = _share_before(state, pace.since)
    of_peers = [share for peer in peers if (share := _share_before(peer, pace.since)) is not None]
    if before is None or not of_peers or excess - (before - median(of_peers)) < MORE_WORK:
        return fact
    return replace(
        fact,
        kind=FactKind.SLOW_COMPUTE,
        evidence=(
            f"{fact.evidence.partition(': ')[0]}; before, its messages followed each other every"
            f" {1000 * pace.earlier_s:.3g} ms at most, now every {1000 * pace.lately_s:.3g} ms and"
            f" more, and it was at work in {before:.0%}, its peers in {median(of_peers):.0%}"
        ),
        confidence=SLOWED_CONFIDENCE,
        code="own-past",
        at=pace.since,
    )


def _share_before(state: ProcessState, moment: float) -> float | None:
    """Return the share of looks before a moment in which a rank was at work; None: too few."""
    past = [part for part in state.past if part.until <= moment]
    looks = sum(part.looks for part in past)
    return sum(part.at_work for part in past) / looks if looks >= FEWEST_LOOKS else None


def _slower_as_a_whole(hearing: Hearing) -> Iterator[JobFact]:
    """A job that became slower against its own pace, by more than its programs wait for processors:
    that time is taken by other work on its machines. If they waited more before, its pace was no
    measure: without these waits it may be slower now, and is not called well."""
    pace, states = hearing.evidence.pace, hearing.evidence.processes
    if pace is None or not pace.ratio:
        return
    if pace.what == "steps" and not proof(hearing.evidence):
        return  # of a job that stands still now its pace says nothing
    before = _usual_share(state.waited_before for state in states)
    waited = _usual_share(state.waits for state in states)
    at_work = _usual_share(
        state.waits if state.work_waits is None else state.work_waits for state in states
    )
    first_look = max((rise.since for rise in hearing.evidence.progress), default=-math.inf)
    ratio = pace.ratio
    if ratio * (1 - waited) >= SLOWED_RATIO:
        yield JobFact(
            kind=FactKind.SLOWED,
            whom=Whom(),
            evidence=(
                f"{pace.what} follow each other {ratio:.1f} times slower than before: every"
                f" {_time(pace.lately_s)} and more, before at most every {_time(pace.earlier_s)}"
            ),
            confidence=SLOWED_CONFIDENCE,
            code="own-pace",
            at=pace.since,
        )
    elif (
        pace.since <= first_look + JUST_BEGUN_S
        and before > at_work
        and ratio * (1 - at_work) >= DOUBTED_RATIO * (1 - before)
    ):
        yield JobFact(
            kind=FactKind.MAY_BE_SLOW,
            whom=Whom(),
            evidence=(
                f"its programs waited for processors {before:.0%} of the time before and"
                f" {at_work:.0%} lately, and collectives follow each other every"
                f" {_time(pace.lately_s)} and more, before at most every {_time(pace.earlier_s)}:"
                " it is hardly faster for that"
            ),
            confidence=LIKELY_CONFIDENCE,
            code="own-pace",
        )


def _time(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def _usual_share(shares: Iterable[float | None]) -> float:
    numbers = [share for share in shares if share is not None]
    return min(median(numbers), MOST_WAITED) if numbers else 0.0


RULES = (
    InferenceRule(
        name="ranks that compute slowly",
        needs=frozenset({Collector.STEPS}),
        gives=frozenset({FactKind.SLOW_COMPUTE, FactKind.MAY_BE_SLOW}),
        infer=_slow_compute,
    ),
    InferenceRule(
        name="ranks whose program waits for a processor",
        needs=frozenset({Collector.PROCESSES}),
        gives=frozenset({FactKind.SLOW_COMPUTE}),
        infer=_kept_waiting,
    ),
    InferenceRule(
        name="ranks that others wait for",
        needs=frozenset({Collector.PROCESSES}),
        gives=frozenset({FactKind.MAY_BE_SLOW, FactKind.SLOW_COMPUTE}),
        infer=_waited_for,
    ),
    *(
        InferenceRule(
            name=f"a job slower than it was{words}",
            needs=frozenset({collector}),
            gives=frozenset({FactKind.SLOWED, FactKind.MAY_BE_SLOW}),
            infer=_slower_as_a_whole,
        )
        for collector, words in (
            (Collector.STEPS, ""),
            (Collector.TRAINING_LOG, ", by the training log"),
        )
    ),
)
