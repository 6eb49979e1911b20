"""The one collector that would settle a diagnosis: the first that is missing of those that usually
show what is not known yet."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from anubis.core.diagnose.analyst import JobTrouble
from anubis.core.diagnose.evidence import Collector
from anubis.core.diagnose.facts import FactKind

# that show who it is, the surest first
WHO: Mapping[JobTrouble, tuple[Collector, ...]] = {
    JobTrouble.HUNG: (Collector.STACKS, Collector.CALLS, Collector.KERNEL_LOG),
    JobTrouble.FAILED: (Collector.TRAINING_LOG, Collector.KERNEL_LOG, Collector.CALLS),
    JobTrouble.SLOW: (Collector.STEPS, Collector.TELEMETRY, Collector.KERNEL_LOG),
    JobTrouble.UNEVEN: (Collector.STEPS, Collector.KERNEL_LOG),
}
# that show why, for causes that are only what was seen of a culprit
WHY: Mapping[FactKind, tuple[Collector, ...]] = {
    FactKind.ABSENT: (Collector.STACKS, Collector.KERNEL_LOG),
    FactKind.UNFINISHED: (Collector.KERNEL_LOG, Collector.TELEMETRY),
    FactKind.ELSEWHERE: (Collector.KERNEL_LOG,),
    FactKind.STOPPED: (Collector.KERNEL_LOG,),
    FactKind.GONE: (Collector.TRAINING_LOG, Collector.KERNEL_LOG),
    FactKind.DIED: (Collector.KERNEL_LOG,),
    FactKind.DISTRIBUTED_ERROR: (Collector.KERNEL_LOG,),
    FactKind.SLOW_COMPUTE: (Collector.TELEMETRY, Collector.KERNEL_LOG),
    FactKind.SLOW_NETWORK: (Collector.KERNEL_LOG,),
    FactKind.SLOWED: (Collector.TELEMETRY, Collector.KERNEL_LOG),
}


def settling_collector(
    trouble: JobTrouble,
    cause: FactKind | None,
    collectors: Collection[Collector],
    *,
    is_named: bool,
) -> Collector | None:
    """Return the collector that would show who it is, or else why; None if no one would."""
    needed = WHO.get(trouble, ()) if not is_named else ()
    needed += WHY.get(cause, ()) if cause else ()
    return next((name for name in needed if name not in collectors), None)
