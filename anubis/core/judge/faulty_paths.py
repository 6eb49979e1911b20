"""Verdicts on paths between nodes if there is no topology: faulty paths, and unmeasured ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from anubis.core.fabric import natural_key
from anubis.core.records import Judgement, NodeVerdict, PartVerdict, Verdict

MOST_NAMED = 4  # nodes of a group
PATH = "NETWORK.PATH"


def faulty_paths(
    verdicts: Iterable[Verdict], nodes: Iterable[NodeVerdict]
) -> tuple[PartVerdict, ...]:
    """The bad groups in which no node is to blame.

    A group around a faulty pair is slow because of the pair, and is not named as well.
    """
    judged = {node.node: node.judgement for node in nodes}
    blamed = {name for name, judgement in judged.items() if judgement is Judgement.DEFECTIVE}
    well = {name for name, judgement in judged.items() if judgement is Judgement.HEALTHY}
    bad: dict[frozenset[str], list[Verdict]] = {}
    for verdict in verdicts:
        together = frozenset(verdict.participants)
        defective = verdict.judgement is Judgement.DEFECTIVE
        if defective and len(together) > 1 and blamed.isdisjoint(together):
            bad.setdefault(together, []).append(verdict)
    return tuple(
        _faulty_path(shortcomings, cleared=together <= well)
        for together, shortcomings in bad.items()
        if not any(smaller < together for smaller in bad)
    )


def unmeasured_paths(
    verdicts: Sequence[Verdict], nodes: Iterable[NodeVerdict]
) -> tuple[PartVerdict, ...]:
    """Paths in groups whose nodes do well elsewhere, but in which a program ended without an
    answer."""
    well = {node.node for node in nodes if node.judgement is Judgement.HEALTHY}
    answered = {_group(verdict) for verdict in verdicts if verdict.metric}
    silent = {
        _group(verdict): verdict
        for verdict in verdicts
        if verdict.judgement is Judgement.UNKNOWN
        and not verdict.metric
        and len(verdict.participants) > 1
        and well.issuperset(verdict.participants)
    }
    return tuple(
        PartVerdict(
            nodes=tuple(sorted(verdict.participants, key=natural_key)),
            benchmarks=(verdict.benchmark,),
            subject=f"path between {list_names(verdict.participants)}",
            judgement=Judgement.UNKNOWN,
            code=verdict.code,
            reason=f"{verdict.benchmark} gave no answer there: {verdict.reason}",
        )
        for group, verdict in silent.items()
        if group not in answered
    )


def _group(verdict: Verdict) -> tuple[frozenset[str], str, str]:
    return frozenset(verdict.participants), verdict.benchmark, verdict.parameters


def _faulty_path(shortcomings: Sequence[Verdict], *, cleared: bool) -> PartVerdict:
    """The verdict on one bad group. Unless other groups clear its nodes, one of them may be at
    fault instead of the path."""
    worst, *further = sorted(shortcomings, key=lambda verdict: verdict.similarity or 0.0)
    nodes = tuple(sorted(worst.participants, key=natural_key))
    names = list_names(nodes)
    subject = f"path between {names}" if cleared else f"{names} or the path between them"
    return PartVerdict(
        nodes=nodes,
        benchmarks=tuple(dict.fromkeys(verdict.benchmark for verdict in (worst, *further))),
        subject=subject,
        judgement=Judgement.DEFECTIVE,
        code=PATH,
        reason=f"{subject}: {worst.benchmark}: {worst.reason}",
        evidence=tuple(f"{verdict.benchmark}: {verdict.reason}" for verdict in further),
    )


def list_names(names: Sequence[str]) -> str:
    if len(names) > MOST_NAMED:
        return f"{', '.join(names[:MOST_NAMED])} and {len(names) - MOST_NAMED:,} more nodes"
    return f"{', '.join(names[:-1])} and {names[-1]}"
