"""One periodic task with all that it needs. The function that carries it out returns its record,
ended."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from anubis.core.keep.chores import ChoreEnd, ChoreRecord
from anubis.core.keep.commands import DoChore
from anubis.core.keep.policy import KeepingPolicy
from anubis.operations.caller import Caller
from anubis.operations.clusters import time_in
from anubis.operations.keep import Keeping
from anubis.store.history import ClusterHistory, History


@dataclass(frozen=True, kw_only=True)
class ChoreTask:
    keeping: Keeping
    history: History
    part: ClusterHistory
    caller: Caller
    record: ChoreRecord
    agreed: DoChore | None = None  # a person agreed to it

    @property
    def policy(self) -> KeepingPolicy:
        return self.keeping.policy

    def note(self, **changes: Any) -> ChoreRecord:
        """Write to the history what a successor would need to take the task over."""
        record = replace(self.record, **changes)
        self.part.chores.write(record)
        return record

    def end_done(self, sentence: str, **more: Any) -> ChoreRecord:
        return self._end(ChoreEnd.DONE, sentence, **more)

    def end_unchanged(self, sentence: str, **more: Any) -> ChoreRecord:
        return self._end(ChoreEnd.UNCHANGED, sentence, **more)

    def end_proposed(self, sentence: str, **more: Any) -> ChoreRecord:
        return self._end(ChoreEnd.PROPOSED, sentence, **more)

    def end_failed(self, sentence: str, **more: Any) -> ChoreRecord:
        return self._end(ChoreEnd.FAILED, sentence, **more)

    def _end(self, end: ChoreEnd, sentence: str, **more: Any) -> ChoreRecord:
        at = time_in(self.part, self.caller).now
        return replace(self.record, ended=at, end=end, sentence=sentence, **more)
