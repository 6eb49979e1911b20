"""Reasoning ends, names missing evidence, and concludes the same with rules in any order."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anubis.core.diagnose.evidence import Collector, JobEvidence
from anubis.core.diagnose.facts import (
    DEPTH,
    FactKind,
    Hearing,
    InferenceRule,
    JobFact,
    Whom,
    reason,
)

KINDS = list(FactKind)


def evidence(*sources: Collector) -> JobEvidence:
    return JobEvidence(job="llama", at=0.0, collectors=frozenset(sources))


def giving(
    kind: FactKind, *needs: Collector | FactKind, name: str = "", node: str = "n1"
) -> InferenceRule:
    def infer(hearing: Hearing) -> Iterable[JobFact]:
        yield JobFact(kind=kind, whom=Whom(node=node), evidence=f"{kind} of {node}")

    return InferenceRule(
        name=name or kind, needs=frozenset(needs), gives=frozenset({kind}), infer=infer
    )


def test_a_rule_fires_once_the_facts_that_it_needs_are_concluded():
    dead = giving(FactKind.UNREACHABLE, Collector.REACH)
    silent = giving(FactKind.SILENT, FactKind.UNREACHABLE)
    reasoning = reason(evidence(Collector.REACH), [silent, dead])
    assert [fact.kind for fact in reasoning.facts] == [FactKind.UNREACHABLE, FactKind.SILENT]
    assert reasoning.unmet == {}


def test_a_rule_without_its_evidence_does_not_fire_and_its_missing_collectors_are_listed():
    reasoning = reason(evidence(), [giving(FactKind.DIED, Collector.EXITS, Collector.REACH)])
    assert reasoning.facts == ()
    assert reasoning.unmet == {"died": ("exits", "reach")}


def test_rules_that_feed_each_other_come_to_an_end():
    rounds = itertools.count()

    def more(hearing: Hearing) -> Iterable[JobFact]:
        yield JobFact(kind=FactKind.SILENT, whom=Whom(rank=next(rounds)), evidence="")

    endless = InferenceRule(
        name="endless",
        needs=frozenset({Collector.REACH, FactKind.SILENT}),
        gives=frozenset({FactKind.SILENT}),
        infer=more,
    )
    first = giving(FactKind.SILENT, Collector.REACH)
    reason(evidence(Collector.REACH), [first, endless])
    assert next(rounds) < DEPTH


def test_a_rule_that_gives_an_undeclared_fact_is_refused():
    rule = InferenceRule(
        name="liar",
        needs=frozenset({Collector.REACH}),
        gives=frozenset({FactKind.DIED}),
        infer=giving(FactKind.SILENT).infer,
    )
    with pytest.raises(ValueError, match="liar gives silent"):
        reason(evidence(Collector.REACH), [rule])


@settings(deadline=None)
@given(st.data())
def test_the_order_of_rules_changes_nothing(data: st.DataObject):
    """The same as by asking every rule whose needs are met until nothing changes."""
    anything: list[Collector | FactKind] = [*KINDS[:6], Collector.REACH, Collector.EXITS]
    needs = st.lists(st.sampled_from(anything), max_size=2)
    rules = [giving(kind, *data.draw(needs), name=f"to {kind}") for kind in KINDS[:6]]
    there: set[Collector | FactKind] = {Collector.REACH}
    while added := {
        kind for rule in rules if rule.needs <= there for kind in rule.gives if kind not in there
    }:
        there |= added
    shuffled = data.draw(st.permutations(rules))
    kinds = {fact.kind for fact in reason(evidence(Collector.REACH), shuffled).facts}
    assert kinds == there - {Collector.REACH}
