"""Jobs whose trouble no diagnosis explained, and the nodes among which its cause must be."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from anubis.core.amounts import DAY_S
from anubis.core.diagnose.cures import PastDiagnosis
from anubis.core.diagnose.facts import FactKind

UNEXPLAINED_S = DAY_S  # in which failures of several jobs are compared
LASTED = (FactKind.STANDSTILL, FactKind.MISSING, FactKind.SLOWED)  # codes of hangs and slowness


def unexplained(
    job: str,
    diagnoses: Iterable[PastDiagnosis],
    nodes_of: Mapping[str, Sequence[str]],
    *,
    has_stalled: bool,
) -> tuple[tuple[str, ...], str] | None:
    """Nodes among which the fault must be that troubled a job, and its last diagnosis; None if a
    culprit is known. A failure may come from the job itself, so it takes two: then the fault is at
    nodes that both jobs had."""
    by_job: defaultdict[str, list[PastDiagnosis]] = defaultdict(list)
    for diagnosis in diagnoses:
        by_job[diagnosis.job].append(diagnosis)
    if not (troubles := _unexplained(by_job.pop(job, []))):
        return None
    nodes = tuple(nodes_of[job])
    if not has_stalled and all(trouble.code not in LASTED for trouble in troubles):
        failed = [name for name, of_job in by_job.items() if _unexplained(of_job)]
        shared = [tuple(n for n in nodes if n in nodes_of.get(name, ())) for name in failed]
        nodes = max(shared, key=len, default=())
    return (nodes, troubles[-1].headline) if len(nodes) > 1 else None


def _unexplained(of_job: Sequence[PastDiagnosis]) -> list[PastDiagnosis]:
    """Diagnoses of one job with trouble and no culprit; none if another one knows a culprit."""
    if any(diagnosis.is_explained for diagnosis in of_job):
        return []
    return [diagnosis for diagnosis in of_job if diagnosis.is_unexplained]
