"""What would settle a diagnosis: stated for each story before it was asked."""

from __future__ import annotations

import pytest

from anubis.core.diagnose import slow
from anubis.core.diagnose.analyst import WHO, WHY, JobTrouble, settling_collector
from anubis.core.diagnose.cures import CurePolicy
from anubis.core.diagnose.diagnostician import diagnose
from anubis.core.diagnose.evidence import Collector, JobEvidence, ProcessState, Pulse, Rise
from anubis.core.diagnose.facts import FactKind
from anubis.readers.jobs.trace_reader import trace_readers
from anubis.report.diagnose import DiagnosisView, settling_options

ALL = frozenset(Collector)


@pytest.mark.parametrize(
    ("trouble", "cause", "missing", "is_named", "wanted"),
    [
        # it hangs, and the places of its programs are unknown
        (JobTrouble.HUNG, FactKind.STANDSTILL, {Collector.STACKS}, False, Collector.STACKS),
        (JobTrouble.HUNG, FactKind.STANDSTILL, {Collector.CALLS}, False, Collector.CALLS),
        # a rank is absent: its stack shows what it does instead, then its kernel log why
        (JobTrouble.HUNG, FactKind.ABSENT, {Collector.STACKS}, True, Collector.STACKS),
        (JobTrouble.HUNG, FactKind.ABSENT, {Collector.KERNEL_LOG}, True, Collector.KERNEL_LOG),
        # it failed without a word
        (JobTrouble.FAILED, FactKind.GONE, {Collector.TRAINING_LOG}, True, Collector.TRAINING_LOG),
        # broken hardware needs no more words
        (JobTrouble.FAILED, FactKind.CRITICAL_ERROR, ALL, True, None),
        # as a whole: telemetry shows whether clocks or the network fell
        (JobTrouble.SLOW, FactKind.SLOWED, {Collector.TELEMETRY}, False, Collector.TELEMETRY),
        (JobTrouble.NOTHING, None, ALL, False, None),
        (JobTrouble.HUNG, FactKind.ABSENT, set(), True, None),
    ],
)
def test_the_first_missing_collector_that_shows_more_is_named(
    trouble, cause, missing, is_named, wanted
):
    assert settling_collector(trouble, cause, ALL - set(missing), is_named=is_named) is wanted


@pytest.mark.parametrize(
    ("brought", "option"),
    [(frozenset(), "traces"), ({Collector.STEPS}, "telemetry"), (ALL, None)],
)
def test_a_rank_that_may_be_slow_is_settled_by_its_steps_and_then_by_its_node(brought, option):
    states = tuple(
        ProcessState(rank=rank, pulse=Pulse.ANSWERS, times_seen=20, times_at_work=count)
        for rank, count in enumerate((4, 5, 19, 4))
    )
    collectors = frozenset({Collector.PROCESSES, *brought})
    moves = Rise(what="turns", before=1, after=9, since=1.0, until=9.0, vouches_s=60.0)
    evidence = JobEvidence(at=10.0, collectors=collectors, processes=states, progress=(moves,))
    diagnosis = diagnose(evidence, slow.RULES, CurePolicy())
    assert (diagnosis.trouble, len(diagnosis.facts)) == (JobTrouble.UNKNOWN, 1)
    options = settling_options(DiagnosisView(diagnosis=diagnosis, evidence=evidence))
    assert options == ([f"--{option} FOLDER"] if option else [])


def test_an_option_brings_each_of_them():
    brought = {name for reader in trace_readers().values() for name in reader.brings}
    assert {name for row in (*WHO.values(), *WHY.values()) for name in row} <= brought
