"""Find the GPU, or its place in the host, behind "one of them computes other numbers".

GPUs of a kind give the same bits for the same numbers, so a digest that most of them have is right.
A wrong digest has two suspects: the GPU, and the place that fed it: processors and memory of the
host. A GPU that is wrong at two places takes its fault along, so it is the GPU. If most GPUs that a
place fed were wrong there, it is the place. What fits both or neither stays open: swap, or repeat.

Faults of GPUs do not agree with each other. If most GPUs of a node, or its only one, have the same
digest and none has the right one, other libraries or the host explain it: these are not accused.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

from anubis.core.judge.verdicts import spelled_code
from anubis.core.records import Ended, Execution, Judgement, Verdict, Workload

FEWEST = 3  # GPUs of a kind: of two that differ, it is unknown which is right
DOUBT = 0.05  # the chance at which what still comes and goes may be missed
METRIC = "digest"
MOST_AMOUNT = 1e9  # seconds, or errors, that a program may note
SEEN_ONCE, NO_MAJORITY = "SEEN-ONCE", "NO-MAJORITY"


class GpuRun(NamedTuple):
    """A run of a GPU at a place of its node."""

    node: str
    gpu: str
    place: str
    run: int


@dataclass(frozen=True, kw_only=True)
class Answers:
    """The digests of one run of a GPU, by question: kind of GPU, software, size and operation."""

    gpu_run: GpuRun
    workload: Workload
    digests: Mapping[str, str]


@dataclass(frozen=True)
class Culprit:
    """A suspect to which wrong digests lead: a GPU, a place, or either of the two."""

    node: str
    gpu: str
    place: str
    gpu_runs: tuple[GpuRun, ...]

    @property
    def is_open(self) -> bool:
        return bool(self.gpu and self.place)


def answers_of(executions: Iterable[Execution]) -> list[Answers]:
    """The digests that programs noted, of runs that measured."""
    return [
        answers
        for number, run in enumerate(executions)
        if run.ended is Ended.MEASURED and len(run.step.participants) == 1
        for answers in _answers_of_run(run, number)
    ]


def _answers_of_run(run: Execution, number: int) -> Iterator[Answers]:
    notes = run.result.environment
    kinds, places = _texts(notes.get("computed_by")), _texts(notes.get("places"))
    digests = notes.get("digests")
    for gpu, of_gpu in digests.items() if isinstance(digests, dict) else ():
        gpu_run = GpuRun(run.step.participants[0], gpu, places.get(gpu, ""), number)
        by_question = {f"{kinds.get(gpu, '')}: {name}": d for name, d in _texts(of_gpu).items()}
        yield Answers(gpu_run=gpu_run, workload=run.step.workload, digests=by_question)


def _texts(table: object) -> dict[str, str]:
    if not isinstance(table, dict):
        return {}
    return {key: text for key, text in table.items() if isinstance(text, str)}


def right_digests(answers: Iterable[Answers]) -> dict[str, str | None]:
    """The digest that most GPUs have, of each question to which several differ or enough answered;
    None if there is none. Each GPU has one vote, however often it ran."""
    votes: defaultdict[str, defaultdict[tuple[str, str], Counter[str]]] = defaultdict(
        lambda: defaultdict(Counter)
    )
    for each_run in answers:
        for question, digest in each_run.digests.items():
            votes[question][each_run.gpu_run[:2]][digest] += 1
    return {
        question: right
        for question, of_gpus in votes.items()
        if (right := _majority(of_gpus)) is not None or len(set().union(*of_gpus.values())) > 1
    }


def _majority(of_gpus: Mapping[tuple[str, str], Counter[str]]) -> str | None:
    usual = Counter(filter(None, map(_usual, of_gpus.values())))
    (digest, votes), *_ = usual.most_common(1) or [("", 0)]
    return digest if len(of_gpus) >= FEWEST and 2 * votes > len(of_gpus) else None


def explained_digests(
    answers: Iterable[Answers], right: Mapping[str, str | None]
) -> dict[tuple[str, str], str]:
    """The digest that most GPUs of a node usually have and none of the right ones, by node and
    question: one of its GPUs that is right shows that the node has the libraries of the others."""
    of_nodes: defaultdict[tuple[str, str], defaultdict[str, Counter[str]]] = defaultdict(
        lambda: defaultdict(Counter)
    )
    for each_run in answers:
        node, gpu = each_run.gpu_run[:2]
        for question, digest in each_run.digests.items():
            if right.get(question) is not None:
                of_nodes[node, question][gpu][digest] += 1
    explained = {}
    for (node, question), of_gpus in of_nodes.items():
        usual = Counter(map(_usual, of_gpus.values()))
        (digest, votes), *_ = usual.most_common(1)
        if digest and 2 * votes > usual.total() and right[question] not in usual:
            explained[node, question] = digest
    return explained


def _usual(digests: Counter[str]) -> str:
    """The most frequent answer of one GPU; empty if two are equally frequent."""
    (digest, count), *next_ones = digests.most_common(2)
    return "" if next_ones and next_ones[0][1] == count else digest


def find_culprits(met: Iterable[GpuRun], wrong: Iterable[GpuRun]) -> list[Culprit]:
    """The suspects to which the wrong runs lead, among all that were compared."""
    gpus_at: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for gpu_run in met:
        gpus_at[gpu_run.node, gpu_run.place].add(gpu_run.gpu)
    wrong_at: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    wrong_places: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    wrong = sorted(set(wrong))
    for gpu_run in wrong:
        wrong_at[gpu_run.node, gpu_run.place].add(gpu_run.gpu)
        wrong_places[gpu_run.node, gpu_run.gpu].add(gpu_run.place)

    led_to: defaultdict[tuple[str, str, str], list[GpuRun]] = defaultdict(list)
    for gpu_run in wrong:
        at = gpu_run.node, gpu_run.place
        is_gpu = len(wrong_places[gpu_run.node, gpu_run.gpu]) > 1
        is_place = len(wrong_at[at]) > 1 and 2 * len(wrong_at[at]) > len(gpus_at[at])
        gpu = gpu_run.gpu if is_gpu or not is_place else ""
        place = gpu_run.place if is_place or not is_gpu else ""
        led_to[gpu_run.node, gpu, place].append(gpu_run)
    return [Culprit(*suspects, tuple(gpu_runs)) for suspects, gpu_runs in led_to.items()]


def runs_to_see_again(seen: int, runs: int) -> int:
    """The number of runs that show with 95 % again what was seen in some of these.

    If it is as frequent as before, all of it falls into the first n of n + m runs with the chance
    (n / (n + m)) ** seen. The rule of three (3 n / seen) would take its frequency for known: of
    what was seen once it asks a sixth of the runs.
    """
    more: float = runs * (DOUBT ** (-1 / seen) - 1)
    return math.ceil(round(more, 6))


# --- verdicts --------------------------------------------------------------------------------


def judge_wrong_numbers(executions: Iterable[Execution]) -> list[Verdict]:
    """A verdict on each node at which wrong numbers lead, and on those without a majority."""
    answers = answers_of(executions)
    right = right_digests(answers)
    explained = explained_digests(answers, right)
    of_gpu_run = {each_run.gpu_run: each_run for each_run in answers}
    wrong = {
        gpu_run: names
        for gpu_run, each_run in of_gpu_run.items()
        if (names := _wrong_operations(each_run, right, explained))
    }
    culprits = find_culprits(of_gpu_run, wrong)
    verdicts = [_verdict_on(culprit, of_gpu_run, wrong) for culprit in culprits]
    return [*verdicts, *_judge_undecided(answers, right, explained)]


def _wrong_operations(
    answers: Answers, right: Mapping[str, str | None], explained: Mapping[tuple[str, str], str]
) -> list[str]:
    return [
        question.rpartition(": ")[2]
        for question, digest in answers.digests.items()
        if explained.get((answers.gpu_run.node, question), right.get(question, digest))
        not in (digest, None)
    ]


def _verdict_on(
    culprit: Culprit, met: Mapping[GpuRun, Answers], wrong: Mapping[GpuRun, Sequence[str]]
) -> Verdict:
    seen = len(culprit.gpu_runs)
    runs = sum(
        gpu_run.node == culprit.node
        and (not culprit.gpu or gpu_run.gpu == culprit.gpu)
        and (not culprit.place or gpu_run.place == culprit.place)
        for gpu_run in met
    )
    operations = sorted({name for gpu_run in culprit.gpu_runs for name in wrong[gpu_run]})
    shown = ", ".join(operations[:3]) + (", …" if len(operations) > 3 else "")
    judgement, code, sentence = _conclusion(culprit, seen, runs)
    workload = met[culprit.gpu_runs[0]].workload
    return Verdict(
        participants=(culprit.node,),
        benchmark=workload.benchmark,
        parameters=workload.parameters,
        metric=METRIC,
        device=culprit.gpu or "node",
        judgement=judgement,
        code=code if judgement is Judgement.UNKNOWN else spelled_code(workload.benchmark, code),
        reason=f"{sentence} ({shown})",
        cause="other numbers than most GPUs of its kind",
    )


# --- wrong bits ------------------------------------------------------------------------------

CAME_ONCE, CAME_BACK = "seen_once", "agreement"  # metrics of what was repeated
WrongPlace = tuple[str, str, str]  # node, GPU, and metric with its operation
GpuKey = tuple[str, str]  # node, and UUID or, if the program notes none, device
NotesOfNode = tuple[str, Mapping[str, object]]


@dataclass(frozen=True, kw_only=True)
class Screens:
    """How long GPUs were screened for wrong numbers, and how often one came that did not return."""

    seconds: Counter[GpuKey] = field(default_factory=Counter)
    came_once: Counter[GpuKey] = field(default_factory=Counter)
    gpu_at: Mapping[tuple[str, str], str] = field(default_factory=dict)  # last, by node and device

    @classmethod
    def from_notes(cls, latest_first: Iterable[NotesOfNode]) -> Self:
        seconds, came_once = Counter[GpuKey](), Counter[GpuKey]()
        gpu_at: dict[tuple[str, str], str] = {}
        for node, notes in latest_first:
            uuids = _texts(notes.get("uuids"))
            for device, amount in _amounts(notes.get("screened_s")):
                gpu = uuids.get(device) or device
                gpu_at.setdefault((node, device), gpu)
                seconds[node, gpu] += amount  # type: ignore[assignment]
            for device, times in _amounts(notes.get("came_once")):
                came_once[node, uuids.get(device) or device] += int(times)
        return cls(seconds=seconds, came_once=came_once, gpu_at=gpu_at)

    def add(self, earlier: Screens) -> Screens:
        """Add earlier ones, without GPUs that are no longer there: what replaced them begins
        anew."""
        gpu_at = {**earlier.gpu_at, **self.gpu_at}
        there = {(node, gpu) for (node, _), gpu in gpu_at.items()}
        seconds, came_once = (
            Counter({gpu: counts[gpu] for gpu in there & counts.keys()})
            for counts in (self.seconds + earlier.seconds, self.came_once + earlier.came_once)
        )
        return Screens(seconds=seconds, came_once=came_once, gpu_at=gpu_at)


NO_SCREENS = Screens()


def name_wrong_bits(
    verdicts: Iterable[Verdict], executions: Iterable[Execution], before: Screens = NO_SCREENS
) -> list[Verdict]:
    """The verdicts, with the evidence for wrong numbers that a program noted. What came once is
    first, as it takes the longest to disprove; how often it came counts with what came `before`."""
    notes = list(_notes_of(executions))
    wheres: dict[WrongPlace, str] = {
        (node, *place): where for node, of_node in notes for place, where in _wrong_places(of_node)
    }
    here = Screens.from_notes(reversed(notes))
    ever = here.add(before)
    first, rest = list[Verdict](), list[Verdict]()
    for verdict in verdicts:
        where = wheres.get((verdict.participants[0], verdict.device, verdict.metric))
        if where is None or verdict.judgement is not Judgement.DEFECTIVE:
            rest.append(verdict)
            continue
        family, _, operation = verdict.metric.partition(":")
        wrong = f"{verdict.device} computed {operation} wrong ({where})"
        if family == CAME_BACK:
            reason = f"{wrong}, and again when it was repeated"
        else:
            node, device = verdict.participants[0], verdict.device
            of_gpu = node, here.gpu_at.get((node, device), device)
            often = _frequency_of_errors(ever, of_gpu)
            often += " with earlier runs" if before.seconds else ""
            clean_s = math.ceil(here.seconds[of_gpu] * (1 / DOUBT - 1))
            reason = f"{wrong} {often}; it counts as gone after {clean_s} s without"
        named = replace(verdict, reason=reason, cause=f"wrong bits in {operation}")
        (rest if family == CAME_BACK else first).append(named)
    return [*first, *rest]


def _notes_of(executions: Iterable[Execution]) -> Iterator[NotesOfNode]:
    for run in executions:
        if run.ended is Ended.MEASURED and len(run.step.participants) == 1:
            yield run.step.participants[0], run.result.environment


def _frequency_of_errors(screens: Screens, gpu: GpuKey) -> str:
    """Say how often a GPU erred, beside the others, by the time that each was screened."""
    times, seconds = max(1, screens.came_once[gpu]), float(screens.seconds[gpu])
    often = f"{'once' if times == 1 else f'{times} times'} in {seconds:.0f} s"
    siblings = [sibling for sibling in screens.seconds if sibling != gpu]
    if not siblings or not seconds:
        return often
    of_others = sum(screens.came_once[sibling] for sibling in siblings)
    others_s = float(sum(screens.seconds[sibling] for sibling in siblings))
    beside = f"{often}, the others {of_others} in {others_s:.0f} s"
    gpus = 1 + len(siblings)
    chance = chance_of_one(times, seconds, of_others, others_s, gpus)
    return f"{beside}: too often for chance in {gpus} GPUs" if chance < DOUBT else beside


def chance_of_one(times: int, seconds: float, of_others: int, others_s: float, gpus: int) -> float:
    """Return at most how likely it is that one of so many GPUs errs so often, if all err alike.

    Events by chance are Poisson's. Of all that came, each then falls to a GPU by its share of the
    time, so that the unknown rate itself drops out (a binomial tail, times the GPUs).
    """
    from scipy.special import bdtrc

    tail = bdtrc(times - 1, times + of_others, seconds / (seconds + others_s))
    return min(1.0, gpus * float(tail))


def _wrong_places(notes: Mapping[str, object]) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield GPU and metric, with the first wrong bits that were noted there."""
    for gpu, of_gpu in _table(notes.get("wrong")).items():
        for operation, seen in _table(of_gpu).items():
            for place in reversed(seen):
                metric = f"{CAME_BACK if place.get('returns') else CAME_ONCE}:{operation}"
                tile = ",".join(map(str, place.get("tile", ())))
                where = f"bits {place.get('bits')}, tile {tile}, lane {place.get('lane')}"
                yield (gpu, metric), where


def _table(words: object) -> dict[str, Any]:
    return words if isinstance(words, dict) else {}


def _amounts(words: object) -> Iterator[tuple[str, float]]:
    """Yield what can be an amount: a program on a node may write anything there."""
    for name, amount in _table(words).items():
        if isinstance(amount, int | float) and 0 <= amount < MOST_AMOUNT:
            yield name, amount


def _conclusion(culprit: Culprit, seen: int, runs: int) -> tuple[Judgement, str, str]:
    often = f"in {seen} of {_quantity(runs, 'run')}"
    numbers = "other numbers than most GPUs of its kind"
    if not culprit.is_open and culprit.gpu:
        places = _quantity(len({gpu_run.place for gpu_run in culprit.gpu_runs}), "place")
        return (
            Judgement.DEFECTIVE,
            "digest:gpu",
            (f"{culprit.gpu} computes {numbers} {often}, at {places} of its host"),
        )
    if not culprit.is_open:
        gpus = _quantity(len({gpu_run.gpu for gpu_run in culprit.gpu_runs}), "GPU")
        return (
            Judgement.DEFECTIVE,
            "digest:host",
            (f"processors or memory at {culprit.place}: {gpus} compute {numbers} there, {often}"),
        )
    sentence = f"{culprit.gpu} at {culprit.place or 'its place'} computes {numbers} {often}"
    if seen > 1:
        return (
            Judgement.DEFECTIVE,
            "digest:gpu_or_host",
            (f"{sentence}; feed it from another NUMA node to see whether its host is at fault"),
        )
    more = _quantity(runs_to_see_again(seen, runs), "more run")
    return Judgement.UNKNOWN, SEEN_ONCE, f"{sentence}; {more} show it again with 95 %"


def _quantity(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _judge_undecided(
    answers: Sequence[Answers],
    right: Mapping[str, str | None],
    explained: Mapping[tuple[str, str], str],
) -> Iterator[Verdict]:
    """Yield a verdict for each node with an operation of which no digest has a majority, and for
    each whose GPUs agree on another digest than most."""
    workloads = {each_run.gpu_run.node: each_run.workload for each_run in answers}
    open_at, others_at = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
    for each_run in answers:
        for question in each_run.digests:
            if question in right and right[question] is None:
                open_at[each_run.gpu_run.node].add(question.rpartition(": ")[2])
    for node, question in explained:
        others_at[node].add(question.rpartition(": ")[2])
    for node, operations in open_at.items():
        counted = _quantity(len(operations), "operation")
        reason = f"GPUs differ in {counted}, and most have no digest in common: it is unknown which"
        yield _undecided(node, workloads[node], f"{reason} are right")
    for node, operations in others_at.items():
        counted = _quantity(len(operations), "operation")
        reason = f"its GPUs agree, and differ from most in {counted}: compare its libraries and"
        yield _undecided(
            node, workloads[node], f"{reason} settings with theirs, then test its host"
        )


def _undecided(node: str, workload: Workload, reason: str) -> Verdict:
    return Verdict(
        participants=(node,),
        benchmark=workload.benchmark,
        parameters=workload.parameters,
        metric=METRIC,
        device="node",
        judgement=Judgement.UNKNOWN,
        code=NO_MAJORITY,
        reason=reason,
        cause="GPUs that differ without a majority",
    )
