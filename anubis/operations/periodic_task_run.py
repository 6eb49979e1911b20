"""One periodic task with all that it needs. The function that carries it out returns its record,
ended."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from anubis.core.keep.commands import DoPeriodicTask
from anubis.core.keep.keeping_policy import KeepingPolicy
from anubis.core.keep.periodic_tasks import PeriodicTaskEnd, PeriodicTaskRecord
from anubis.operations.caller import Caller
from anubis.operations.clusters import time_in
from anubis.operations.keeping import Keeping
from anubis.store.history import ClusterHistory, History


@dataclass(frozen=True, kw_only=True)
class PeriodicTaskRun:
    keeping: Keeping
    history: History
    part: ClusterHistory
    caller: Caller
    record: PeriodicTaskRecord
    agreed: DoPeriodicTask | None = None  # a person agreed to it

    @property
    def policy(self) -> KeepingPolicy:
        return self.keeping.policy

    def note(self, **changes: Any) -> PeriodicTaskRecord:
        """Write to the history what a successor would need to take the task over."""
        record = replace(self.record, **changes)
        self.part.periodic_tasks.write(record)
        return record

    def end_done(self, sentence: str, **more: Any) -> PeriodicTaskRecord:
        return self._end(PeriodicTaskEnd.DONE, sentence, **more)

    def end_unchanged(self, sentence: str, **more: Any) -> PeriodicTaskRecord:
        return self._end(PeriodicTaskEnd.UNCHANGED, sentence, **more)

    def end_proposed(self, sentence: str, **more: Any) -> PeriodicTaskRecord:
        return self._end(PeriodicTaskEnd.PROPOSED, sentence, **more)

    def end_failed(self, sentence: str, **more: Any) -> PeriodicTaskRecord:
        return self._end(PeriodicTaskEnd.FAILED, sentence, **more)

    def _end(self, end: PeriodicTaskEnd, sentence: str, **more: Any) -> PeriodicTaskRecord:
        at = time_in(self.part, self.caller).now
        return replace(self.record, ended=at, end=end, sentence=sentence, **more)
