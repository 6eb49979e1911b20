"""Rules, and the chain of reasoning that they form over the evidence at hand.

A rule declares what it needs and what it gives, and runs as soon as its needs are met. So each job
gets the chain that its data allow. Rules run again while any gives a new fact, each at most once
for the same facts; a fact is never added twice, and no chain is longer than `DEPTH`: reasoning
always ends. No rule may conclude from the absence of a fact: the fact could be added a round later.
The analyst decides at the end which fact outweighs which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from anubis.core.diagnose.evidence import Collector, JobEvidence
from anubis.core.diagnose.facts import FactKind, JobFact

DEPTH = 16  # rounds: a bound for rules that feed each other


@dataclass(frozen=True)
class Hearing:
    """The evidence on a job, and all facts concluded so far."""

    evidence: JobEvidence
    facts: tuple[JobFact, ...] = ()

    def facts_of(self, *kinds: FactKind) -> list[JobFact]:
        return [fact for fact in self.facts if fact.kind in kinds]


@dataclass(frozen=True, kw_only=True)
class InferenceRule:
    name: str
    needs: frozenset[Collector | FactKind]
    gives: frozenset[FactKind]
    hears: frozenset[FactKind] = frozenset()  # facts that it also uses if they are there
    infer: Callable[[Hearing], Iterable[JobFact]] = field(compare=False)


@dataclass(frozen=True, kw_only=True)
class Reasoning:
    """Facts in the order of their conclusion, and rules that lacked something."""

    facts: tuple[JobFact, ...]
    fired: tuple[str, ...]  # rules that gave a fact
    unmet: dict[str, tuple[str, ...]]  # rule → what it lacked


def reason(evidence: JobEvidence, rules: Sequence[InferenceRule]) -> Reasoning:
    """Apply the rules in rounds until no round adds a fact. A round sees only the facts of earlier
    rounds."""
    hearing = Hearing(evidence)
    asked_about: dict[str, list[JobFact]] = {}  # by rule: the facts of its last run
    fired: dict[str, None] = {}
    for _ in range(DEPTH):
        fresh: dict[tuple[object, ...], JobFact] = {}
        present = {_identity(fact) for fact in hearing.facts}
        for rule in rules:
            about = hearing.facts_of(*_kinds(rule.needs), *rule.hears)
            if _lacking(rule, hearing) or asked_about.get(rule.name) == about:
                continue
            asked_about[rule.name] = about
            for fact in rule.infer(hearing):
                if fact.kind not in rule.gives:
                    raise ValueError(
                        f"rule {rule.name} gives {fact.kind}, which it does not declare"
                    )
                if _identity(fact) not in present:
                    fresh.setdefault(_identity(fact), fact)
                    fired[rule.name] = None
        if not fresh:
            break
        hearing = Hearing(evidence, (*hearing.facts, *fresh.values()))
    unmet = {rule.name: lacking for rule in rules if (lacking := _lacking(rule, hearing))}
    return Reasoning(facts=hearing.facts, fired=tuple(fired), unmet=unmet)


def _kinds(needs: Iterable[Collector | FactKind]) -> list[FactKind]:
    return [need for need in needs if isinstance(need, FactKind)]


def _lacking(rule: InferenceRule, hearing: Hearing) -> tuple[str, ...]:
    kinds = {fact.kind for fact in hearing.facts}
    return tuple(sorted(rule.needs - hearing.evidence.collectors - kinds))


def _identity(fact: JobFact) -> tuple[object, ...]:
    """Key of a fact: facts with the same key say the same."""
    return fact.kind, fact.whom, fact.code, fact.peer
