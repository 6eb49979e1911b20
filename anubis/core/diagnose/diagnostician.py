"""Find the cause of what the analyst concluded, its confidence, and the lightest cure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from anubis.core.diagnose.analyst import Analysis, JobTrouble, analyse
from anubis.core.diagnose.cures import Advice, CureLevel, CurePolicy, PastDiagnosis, escalate
from anubis.core.diagnose.evidence import Collector, JobEvidence, Rise
from anubis.core.diagnose.facts import FactKind, InferenceRule, JobFact, Reasoning, Whom, reason
from anubis.core.diagnose.live_progress import proof

# an earlier kind of fact about a culprit is the reason for a later one
CAUSES = (
    FactKind.CRITICAL_ERROR,
    FactKind.OUT_OF_MEMORY,
    FactKind.UNREACHABLE,
    FactKind.APPLICATION_ERROR,
    FactKind.DIED,
    FactKind.STOPPED,
    FactKind.GONE,
    FactKind.COMMON_PART,
    FactKind.SILENT,
    FactKind.SETTINGS_DIFFER,
    FactKind.NETWORK_FAULT,
    FactKind.SLOW_NETWORK,
    FactKind.SLOW_COMPUTE,
    FactKind.UNLIKE_PEERS,
    FactKind.OUTLIER,
    FactKind.UNFINISHED,
    FactKind.ABSENT,
    FactKind.ELSEWHERE,
    FactKind.DISTRIBUTED_ERROR,
    FactKind.LIKELY_PART,
    FactKind.MISSING,
    FactKind.STANDSTILL,
    FactKind.SLOWED,
    FactKind.MAY_BE_SLOW,
    FactKind.MISMATCH,
    FactKind.SAME_ERROR,
    FactKind.BAD_LOSS,
)


# the lightest and the heaviest cure for each trouble: a job that hangs is not left running,
# and a job that runs is not failed
FITTING: Mapping[JobTrouble, tuple[CureLevel, CureLevel]] = {
    JobTrouble.FAILED: (CureLevel.RETRY, CureLevel.FAIL),
    JobTrouble.HUNG: (CureLevel.RETRY, CureLevel.FAIL),
    JobTrouble.SLOW: (CureLevel.LEAVE, CureLevel.REPLACE),
    JobTrouble.UNEVEN: (CureLevel.LEAVE, CureLevel.REPLACE),
    JobTrouble.NOTHING: (CureLevel.LEAVE, CureLevel.LEAVE),
    JobTrouble.UNKNOWN: (CureLevel.NONE, CureLevel.NONE),
}


class DiagnosisAnswer(StrEnum):
    NAMED = "named"  # nodes or ranks, or the job itself
    NOTHING = "nothing"  # is visibly wrong, and the job moves
    UNKNOWN = "unknown"  # something is wrong with no culprit, or the state is unknown


@dataclass(frozen=True, kw_only=True)
class Cure:
    level: CureLevel
    why: str = ""  # reason for a level other than that of the facts alone
    replaced: tuple[str, ...] = ()  # nodes
    tested: tuple[str, ...] = ()  # suspected nodes, which a test will prove bad or clear


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    job: str
    at: float
    trouble: JobTrouble
    culprits: tuple[Whom, ...]
    cause: JobFact | None  # None: unknown
    confidence: float
    cure: Cure
    facts: tuple[JobFact, ...]  # all, in the order of their conclusion
    decisive: tuple[JobFact, ...]
    is_the_job_itself: bool
    collectors: frozenset[Collector]  # that brought something
    gaps: Mapping[Collector, str]  # collector → why it brought nothing
    unmet: Mapping[str, tuple[str, ...]]  # rule that could not run → what it lacked
    progress: tuple[Rise, ...] = ()  # what shows that it moves

    @property
    def answer(self) -> DiagnosisAnswer:
        if self.culprits or self.is_the_job_itself:
            return DiagnosisAnswer.NAMED
        is_well = self.trouble is JobTrouble.NOTHING
        return DiagnosisAnswer.NOTHING if is_well else DiagnosisAnswer.UNKNOWN

    @property
    def code(self) -> str:
        """Code by which the same trouble is recognised; empty: the cause is unknown."""
        return (self.cause.code or self.cause.kind) if self.cause else ""

    @property
    def likeliest(self) -> tuple[JobFact, ...]:
        """The parts to test first, each with its chance; none if there is a culprit."""
        if self.culprits or self.is_the_job_itself:
            return ()
        return tuple(fact for fact in self.facts if fact.kind is FactKind.LIKELY_PART)

    @property
    def nodes(self) -> tuple[str, ...]:
        """Suspected nodes, each once."""
        return tuple(dict.fromkeys(whom.node for whom in self.culprits if whom.node))


def diagnose(
    evidence: JobEvidence,
    rules: Sequence[InferenceRule],
    policy: CurePolicy,
    *,
    past: Iterable[PastDiagnosis] = (),
) -> Diagnosis:
    reasoning = reason(evidence, rules)
    analysis = analyse(reasoning, evidence)
    about = _facts_about(analysis, reasoning)
    cause = min(about, key=_depth, default=None)
    diagnosis = Diagnosis(
        job=evidence.job,
        at=evidence.at,
        trouble=analysis.trouble,
        culprits=analysis.culprits,
        cause=cause,
        confidence=_confidence(analysis.decisive, about),
        cure=_cure(analysis, cause, evidence, policy, tuple(past)),
        facts=reasoning.facts,
        decisive=analysis.decisive,
        is_the_job_itself=analysis.is_the_job_itself,
        collectors=evidence.collectors,
        gaps={**unexplained_gaps(evidence), **evidence.gaps},
        unmet=reasoning.unmet,
        progress=proof(evidence),
    )
    likeliest = tuple(dict.fromkeys(fact.whom.node for fact in diagnosis.likeliest))
    if any(likeliest):
        tested = tuple(node for node in likeliest if node)
        return replace(diagnosis, cure=replace(diagnosis.cure, tested=tested))
    return diagnosis


def unexplained_gaps(evidence: JobEvidence) -> dict[Collector, str]:
    """Sentences for the collectors that brought nothing and gave no reason."""
    missing = [name for name in Collector if name not in evidence.collectors]
    return {name: f"no {name.words}" for name in missing if name not in evidence.gaps}


def _facts_about(analysis: Analysis, reasoning: Reasoning) -> list[JobFact]:
    """Facts about the culprits. A node's include those of its ranks and devices; a rank's only its
    own, its node's, and those of shared devices."""
    if not analysis.culprits:
        return list(analysis.decisive)
    return [
        fact for fact in reasoning.facts if any(_concerns(fact, whom) for whom in analysis.culprits)
    ]


def _concerns(fact: JobFact, culprit: Whom) -> bool:
    whom = fact.whom
    if fact.kind is FactKind.DISTRIBUTED_ERROR and fact.peer:
        return culprit.node in (whom.node, fact.peer.node)
    if culprit.part or whom.part:
        return culprit.part == whom.part
    if culprit.rank is not None and whom.rank is not None:
        return culprit.rank == whom.rank
    return bool(culprit.node) and culprit.node == whom.node


def _depth(fact: JobFact) -> tuple[int, float]:
    return CAUSES.index(fact.kind), -fact.confidence


def _confidence(decisive: Sequence[JobFact], about: Sequence[JobFact]) -> float:
    """Chance that not all facts against the culprits are wrong. Of each kind only the surest
    counts, because facts of a kind rest on the same evidence."""
    surest: dict[FactKind, float] = {}
    for fact in (*decisive, *about):
        surest[fact.kind] = max(surest.get(fact.kind, 0.0), fact.confidence)
    wrong = 1.0
    for confidence in surest.values():
        wrong *= 1 - confidence
    return 1 - wrong if surest else 0.0


def _cure(
    analysis: Analysis,
    cause: JobFact | None,
    evidence: JobEvidence,
    policy: CurePolicy,
    past: Sequence[PastDiagnosis],
) -> Cure:
    if cause is None:
        return Cure(level=_fitting(CureLevel.RETRY, analysis))
    nodes = analysis.nodes
    advice = escalate(
        policy.level_of(cause.kind, cause.code),
        job=evidence.job,
        nodes=nodes,
        code=cause.code or cause.kind,
        past=past,
        at=evidence.at,
        policy=policy,
    )
    advice = replace(advice, level=_fitting(advice.level, analysis))
    if advice.level is CureLevel.REPLACE and nodes:
        return _replacement(analysis, cause, advice, evidence, policy)
    tested = nodes if advice.level in (CureLevel.LEAVE, CureLevel.REPLACE) or advice.why else ()
    return Cure(level=advice.level, why=advice.why, tested=tested)


def _fitting(level: CureLevel, analysis: Analysis) -> CureLevel:
    """Nearest level that fits the trouble."""
    lightest, heaviest = FITTING[analysis.trouble]
    return CureLevel(min(max(level, lightest), heaviest))


def _replacement(
    analysis: Analysis,
    cause: JobFact,
    advice: Advice,
    evidence: JobEvidence,
    policy: CurePolicy,
) -> Cure:
    """Replace no more nodes than the policy allows; else test first.
    Nothing is restarted on hardware that its kernel calls broken."""
    nodes = analysis.nodes
    count = len(set(evidence.ranks.nodes.values()))
    limit = policy.replaced_at_once(count, is_either=analysis.is_either)
    if len(nodes) > limit:
        is_broken = cause.kind is FactKind.CRITICAL_ERROR
        level = CureLevel.FAIL if is_broken else CureLevel.RESTART
        sure = "broken" if is_broken else "suspected"
        why = f"{len(nodes)} nodes are {sure} and {limit} may be replaced: test them first"
        return Cure(level=_fitting(level, analysis), why=why, tested=nodes)
    return Cure(level=CureLevel.REPLACE, why=advice.why, replaced=nodes, tested=nodes)
