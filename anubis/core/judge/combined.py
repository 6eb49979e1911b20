"""One score of all metrics of a program, for each node or each of its devices.

A capped or hot GPU is a little slower in everything it does. If many metrics share the rate of
false alarms, none of them shows it, but their geometric mean does: what differs from metric to
metric averages out. It is judged like one more metric, with a small share of the rate, and its
verdict names the worst metric. It only adds defects: what it cannot judge is judged by the metrics.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from anubis.core.judge.criteria import shortfalls, to_similarity
from anubis.core.judge.second_measurements import judge_by_both_times
from anubis.core.judge.sentences import Finding, metric_words, place_clause
from anubis.core.judge.siblings import number_nodes
from anubis.core.judge.units import Unit, Units
from anubis.core.judge.verdicts import code_of, verdict_on
from anubis.core.records import Criterion, CriterionKey, Judgement, MetricSpec, Samples, Verdict

SHARE = 0.1  # of the rate of false alarms; with 0.2 or a half no more is found
FEWEST = 3  # metrics; two average out little
NAME = "together:"  # and the number of metrics


@dataclass(frozen=True)
class Combined:
    """The score of each unit, and the metrics that it is made of."""

    scores: Units
    metrics: Sequence[Units]


def is_combined(key: CriterionKey) -> bool:
    return key.metric.startswith(NAME)


def combine(measured: Iterable[Units]) -> Iterator[Combined]:
    """Yield the score of each program that measures single nodes by several metrics."""
    programs: defaultdict[CriterionKey, list[Units]] = defaultdict(list)
    for alike in measured:
        metric = alike.metric
        is_level = metric.judged_by == "fleet" and metric.direction != "either"
        if is_level and not metric.is_count and len(alike.participants[0]) == 1:
            programs[replace(alike.key, metric="")].append(alike)
    for metrics in programs.values():
        shared = _share_units(metrics) if len(metrics) >= FEWEST else []
        if len(shared) >= FEWEST:
            yield Combined(_score(shared), shared)


def _share_units(metrics: Sequence[Units]) -> list[Units]:
    """The metrics that most units have, of the units that have all of them, with as many runs."""
    if len(set(map(_column, metrics))) > 1:
        largest = max(map(len, metrics))
        metrics = [alike for alike in metrics if 2 * len(alike) > largest]
        names = [set(zip(a.participants, a.devices, strict=True)) for a in metrics]
        common = set.intersection(*names)
        metrics = [
            alike.subset(
                np.array([i for i, unit in enumerate(_names(alike)) if unit in common], dtype=int)
            )
            for alike in metrics
        ]
        first = _names(metrics[0])
        metrics = [alike for alike in metrics if len(alike) and _names(alike) == first]
    return [a for a in metrics if np.array_equal(a.firsts, metrics[0].firsts)]


def _column(alike: Units) -> tuple[int, int]:
    """The same for metrics that share the names of their units, as most of a program do."""
    return id(alike.participants), id(alike.devices)


def _names(alike: Units) -> list[tuple[tuple[str, ...], str]]:
    return list(zip(alike.participants, alike.devices, strict=True))


def _score(metrics: Sequence[Units]) -> Units:
    logarithms = np.mean([_levels_of_runs(alike) for alike in metrics], axis=0)
    first = metrics[0]
    name = f"{NAME}{len(metrics)}"
    return replace(
        first,
        key=replace(first.key, metric=name),
        metric=MetricSpec(name=name, unit="", direction="higher"),
        values=np.exp(logarithms),
        edges=np.arange(first.edges.size),
    )


def _levels_of_runs(alike: Units) -> Samples:
    """The logarithm of the typical sample of each run, the larger the better."""
    sizes = np.diff(alike.edges)
    if np.all(sizes == sizes[0]):
        medians = np.median(alike.values.reshape(sizes.size, -1), axis=1)
    else:
        medians = np.array([np.median(run) for run in alike.repeats])
    logarithms: Samples = np.log(medians)
    return -logarithms if alike.metric.direction == "lower" else logarithms


def judge_combined(
    scores: Units,
    criterion: Criterion,
    planned_runs: int,
    metrics: Sequence[tuple[Units, Criterion | None]],
) -> Iterator[tuple[Verdict, bool]]:
    """Yield a verdict on each unit that falls short, in the name of its worst metric, and whether
    one more measurement may tell it from chance."""
    short = shortfalls(scores.samples, criterion, number_nodes(scores.participants))
    similarity = to_similarity(short.shortfall(criterion), criterion)
    both = judge_by_both_times(scores, criterion, planned_runs, similarity, None)
    beyond = np.flatnonzero(similarity <= criterion.alpha).tolist()
    columns = {_column(alike): alike for alike, _ in metrics} if beyond else {}
    places = {
        column: {name: place for place, name in enumerate(_names(alike))}
        for column, alike in columns.items()
    }
    for i in beyond:
        unit = scores[i]
        worst, left = _worst_metric(unit, metrics, places)
        if worst is None:
            continue
        loss = 1 - float(np.median(unit.samples)) / float(np.median(criterion.reference))
        finding = _find_loss(unit, loss, worst.key.metric, 1 - left)
        judgement, code = Judgement.DEFECTIVE, code_of(worst.key)
        if i in both.reasons:
            judgement, code = Judgement.UNKNOWN, "UNSTABLE"
            finding = finding.cast_doubt(both.reasons[i])
        share = float(similarity[i])
        verdict = verdict_on(worst, judgement, code, finding, share, criterion.alpha)
        yield verdict, bool(both.to_repeat[i])


def _worst_metric(
    unit: Unit,
    metrics: Iterable[tuple[Units, Criterion | None]],
    places: Mapping[tuple[int, int], Mapping[tuple[tuple[str, ...], str], int]],
) -> tuple[Unit | None, float]:
    """The metric in which the least is left of normal, and how much; None if none has a
    criterion."""
    worst: tuple[Unit | None, float] = None, np.inf
    for alike, criterion in metrics:
        place = places[_column(alike)].get((unit.participants, unit.device))
        if criterion is None or place is None:
            continue
        part = alike[place]
        left = float(np.median(part.samples) / np.median(criterion.reference))
        left = 1 / left if criterion.direction == "lower" else left
        worst = min(worst, (part, left), key=lambda of_metric: of_metric[1])
    return worst


def _find_loss(unit: Unit, loss: float, metric: str, of_metric: float) -> Finding:
    program = unit.key.workload.benchmark
    number = unit.key.metric.removeprefix(NAME)
    words = metric_words(program, metric) or metric
    together = f"worse than normal in all {number} metrics together"
    return Finding(
        reason=f"{program} {loss:.0%} {together}{place_clause(unit.device)}, "
        f"most in {words}: {of_metric:.0%}",
        cause=f"{program} {together}",
    )
