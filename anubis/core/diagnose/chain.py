"""Rules, and the chain of reasoning that they form over whatever evidence there is.

A rule declares what it needs and what it gives, and is asked as soon as its needs are met. So the
chain is made anew for each job, of the data that the job has. Rules are asked again while any
gives something new, each at most once for the same facts; a fact never comes twice, and no chain
is longer than `DEPTH`: reasoning always ends. No rule may conclude from a fact that is not there:
it could come a round later. Which fact outweighs which is decided at the end, by the analyst.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from anubis.core.diagnose.evidence import Collector, JobEvidence
from anubis.core.diagnose.facts import FactKind, JobFact

DEPTH = 16


@dataclass(frozen=True)
class Hearing:
    """The evidence on a job, and all that was concluded from it so far."""

    evidence: JobEvidence
    facts: tuple[JobFact, ...] = ()

    def of(self, *kinds: FactKind) -> list[JobFact]:
        return [fact for fact in self.facts if fact.kind in kinds]


@dataclass(frozen=True, kw_only=True)
class InferenceRule:
    name: str
    needs: frozenset[Collector | FactKind]
    gives: frozenset[FactKind]
    hears: frozenset[FactKind] = frozenset()  # what else it takes into account, where it is there
    infer: Callable[[Hearing], Iterable[JobFact]] = field(compare=False)


@dataclass(frozen=True, kw_only=True)
class Reasoning:
    """What was concluded, in the order in which it was, and which rules could not be asked."""

    facts: tuple[JobFact, ...]
    fired: tuple[str, ...]  # rules that gave something
    unmet: dict[str, tuple[str, ...]]  # rules, and what they lacked


def reason(evidence: JobEvidence, rules: Sequence[InferenceRule]) -> Reasoning:
    """To the fixed point, in rounds: each round hears only what the rounds before concluded."""
    hearing = Hearing(evidence)
    asked_about: dict[str, list[JobFact]] = {}  # of each rule: the facts it was asked about last
    fired: dict[str, None] = {}
    for _ in range(DEPTH):
        fresh: dict[tuple[object, ...], JobFact] = {}
        present = {_identity(fact) for fact in hearing.facts}
        for rule in rules:
            about = hearing.of(*_kinds(rule.needs), *rule.hears)
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
    """Two facts that agree in this say the same."""
    return fact.kind, fact.whom, fact.code, fact.peer
