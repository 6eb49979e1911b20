"""Find the host, NIC, cable or switch behind the reports of many hosts on each other (RootDiag).

At a crash every host reports another one, and most of them are victims. Each part has a chance by
the likelihood of all reports (crash_likelihood.py). A part that is almost sure is a cause; of less
sure ones the likeliest are named as the parts to test first. Parts that explain the reports equally
well are returned together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from anubis.core.diagnose.crash import CrashScene, scene_of
from anubis.core.diagnose.crash_likelihood import RankedPart, rank_parts
from anubis.core.diagnose.facts import FactKind, Hearing, InferenceRule, JobFact, Whom
from anubis.core.diagnose.pair_paces import pair_paces
from anubis.core.fabric import Fabric, Part
from anubis.core.network.localization import describe

SILENCE = "silent"
EXPLAINS = "common-part"
FEW = 2  # hosts: both go to validation, and no cause is searched for
SURE = 0.9  # the least chance of a cause that is named
LEAST = 0.005  # chance of a part that is worth a test, if one part or two explain the reports
FIRST = 3  # parts, or classes of parts, that are tested first
ALIKE = 1e-6  # such chances that differ by less are equal
FEWEST = 2  # pairs that a cause explains
MOST_SILENT = 0.05  # of a job's hosts; more silent ones have a common cause
MOST_HOSTS = 4  # named together
MOST_NAMED = 4  # parts that a sentence lists
FIRST_CLOCKS = 3  # hosts whose clocks may be off by more than crashes take
MOST_DOUBTED = 0.5  # share of such a chance that is left
LIKELY = 0.5  # the least chance of a named cause without the times of one of them


@dataclass(frozen=True, kw_only=True)
class RootCause:
    """One cause. If `whom` has several entries, the evidence does not distinguish them."""

    whom: tuple[Whom, ...]
    parts: tuple[Part, ...] = ()
    confidence: float
    sentence: str
    code: str
    is_sure: bool  # else it is to be tested first


def root_causes(scene: CrashScene) -> tuple[RootCause, ...]:
    """The likeliest causes of the reports, the likeliest first, or none. If only two hosts are
    involved, both are suspects already and no cause is searched for."""
    if len(frozenset[str]().union(*scene.pairs)) <= FEW:
        return ()
    if dead := _many_silent(scene):
        return tuple(_silent_cause(scene, host) for host in dead)
    causes = [_doubt_clocks(scene, _cause(scene, c)) for c in _classes(rank_parts(scene))]
    sure = [cause for cause in causes if cause.is_sure]
    likely = [cause for cause in causes if not cause.is_sure]
    return tuple([*sure, *likely][: max(FIRST, len(sure))])


def _many_silent(scene: CrashScene) -> list[str]:
    """Hosts that several name and that log nothing, if they are more than the two that are tried
    together, and so few that each may be dead by itself."""
    named = {report.peer for report in scene.reports}
    silent = named - scene.first_words.keys() - scene.unread
    few = int(MOST_SILENT * len(scene.hosts))
    several = sorted(host for host in silent if len(_reporters(scene, host)) >= FEWEST)
    return several if len(several) > FEW and len(silent) <= few else []


def _silent_cause(scene: CrashScene, host: str) -> RootCause:
    count = len(_reporters(scene, host))
    return RootCause(
        whom=(Whom(node=host),),
        parts=(Part("node", host),),
        confidence=1 - 1 / (1 + count * count),
        sentence=f"{host}: {_silence(scene, host)}",
        code=SILENCE,
        is_sure=True,
    )


def _reporters(scene: CrashScene, host: str) -> set[str]:
    return {report.reporter for report in scene.reports if report.peer == host}


def _silence(scene: CrashScene, host: str) -> str:
    count = len(_reporters(scene, host))
    return f"{count:,} {'host reports' if count == 1 else 'hosts report'} it, and it logs nothing"


def _classes(ranked_parts: list[RankedPart]) -> Iterator[list[RankedPart]]:
    """Parts with equal chances that the same reports are about."""
    worth = [part for part in ranked_parts if part.among_parts >= LEAST]
    for _, alike in groupby(worth, key=lambda of: (round(of.among_parts / ALIKE), of.pairs)):
        yield list(alike)


def _cause(scene: CrashScene, alike: list[RankedPart]) -> RootCause:
    first, chance = alike[0], min(1.0, sum(ranked.chance for ranked in alike))
    parts = tuple(ranked.part for ranked in alike)
    whom = tuple(dict.fromkeys(part_subject(scene.fabric, part) for part in parts))
    is_silent = first.is_dead and first.part.name not in scene.first_words
    names = [part_name(scene.fabric, part) for part in parts[:MOST_NAMED]]
    more = f" and {len(parts) - MOST_NAMED} more" if len(parts) > MOST_NAMED else ""
    place = names[0] if len(parts) == 1 else f"one of {', '.join(names)}{more}"
    evidence = f"{first.pairs} of {len(scene.pairs)} pairs that errors name may cross it"
    if is_silent:
        evidence = _silence(scene, first.part.name)
    hosts = sum(bool(subject.node) for subject in whom)
    return RootCause(
        whom=whom,
        parts=parts,
        confidence=chance,
        sentence=f"{place}: {evidence} ({_chance_words(chance, alike)})",
        code=SILENCE if is_silent else EXPLAINS,
        is_sure=chance >= SURE and first.pairs >= FEWEST and hosts <= MOST_HOSTS,
    )


def _chance_words(chance: float, alike: list[RankedPart]) -> str:
    """The chance of parts. If reports fit no part well, also how these compare with other parts."""
    among_parts = min(1.0, sum(ranked.among_parts for ranked in alike))
    if chance >= MOST_DOUBTED * among_parts:
        return f"chance {chance:.0%}"
    small = f"{chance:.0%}" if chance >= LEAST else f"below {LEAST:.1%}"
    return f"chance {small}; {among_parts:.0%} if one part or two explain the errors"


def _doubt_clocks(scene: CrashScene, cause: RootCause) -> RootCause:
    """The cause, which is not sure if it hangs on the clock of a single host: without the times of
    any one of the hosts that reported first, it would be unlikely. A silence needs no clock."""
    dates = [(at, host) for host, at in scene.first_words.items() if at is not None]
    first = [host for _, host in sorted(dates)[:FIRST_CLOCKS]]
    hangs = (
        cause.is_sure
        and cause.code != SILENCE
        and any(_chance_of(cause.parts, scene.forget_times(host)) < LIKELY for host in first)
    )
    return replace(cause, is_sure=cause.is_sure and not hangs)


def _chance_of(parts: Sequence[Part], scene: CrashScene) -> float:
    return sum(ranked.chance for ranked in rank_parts(scene) if ranked.part in parts)


def part_name(fabric: Fabric | None, part: Part) -> str:
    """Name of a part, also if no fabric is known."""
    if fabric is not None:
        return describe(fabric, part)
    if part.kind == "switch":
        return f"{part.other} {part.name}"
    return f"NIC {part.other} of {part.name}" if part.kind == "nic" else part.name


def part_subject(fabric: Fabric | None, part: Part) -> Whom:
    """Subject of facts about a part: its node, its NIC, or its name in the fabric."""
    if part.kind == "node":
        return Whom(node=part.name)
    if part.kind == "nic":
        nic = fabric.nic(part.name, part.other) if fabric else None
        return Whom(node=part.name, device=nic.device if nic else part.other)
    return Whom(part=part_name(fabric, part))


# --- as a rule -------------------------------------------------------------------------------


def _infer(hearing: Hearing) -> Iterator[JobFact]:
    errors = hearing.facts_of(FactKind.DISTRIBUTED_ERROR)
    began = min((fact.at for fact in errors if fact.at is not None), default=None)
    scene = replace(scene_of(hearing.evidence, errors), paces=pair_paces(hearing.evidence))
    for cause in root_causes(scene):
        for whom in cause.whom:
            yield JobFact(
                kind=_fact_kind(cause),
                whom=whom,
                evidence=cause.sentence,
                confidence=cause.confidence / len(cause.whom),
                code=cause.code,
                at=began,
                because=tuple(errors),
            )


def _fact_kind(cause: RootCause) -> FactKind:
    if not cause.is_sure:
        return FactKind.LIKELY_PART
    return FactKind.SILENT if cause.code == SILENCE else FactKind.COMMON_PART


RULES = (
    InferenceRule(
        name="what is behind many reports",
        needs=frozenset({FactKind.DISTRIBUTED_ERROR}),
        gives=frozenset({FactKind.COMMON_PART, FactKind.SILENT, FactKind.LIKELY_PART}),
        infer=_infer,
    ),
)
