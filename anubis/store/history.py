"""The history: what was planned, measured, judged, decided and reported, cluster by cluster.

When a verb returns, its data is on disk. It decides nothing: no retries, no verdicts of its own.
Facts about nodes are read from one cluster, so that nodes of the same name are never mixed up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, ParamSpec, Self, TypeVar

from anubis.core.errors import UsageError
from anubis.core.records import UNNAMED
from anubis.store.assessments import Assessments
from anubis.store.campaigns import Campaigns
from anubis.store.claims import ProcessLock, acting_lock
from anubis.store.clusters import Clusters, NodeNames
from anubis.store.conclusions import Experience
from anubis.store.database import Database
from anubis.store.decisions import Decisions
from anubis.store.diagnoses import Diagnoses
from anubis.store.event_records import EventRecords
from anubis.store.executions import EarlierRuns, Executions
from anubis.store.holds import Holds
from anubis.store.imports import Imports
from anubis.store.integrity import Examination, Soundness
from anubis.store.keeping import KeeperState
from anubis.store.looks import Looks
from anubis.store.messages import Messages
from anubis.store.node_events import INCIDENTS, REPAIRS, Happenings, JobRows, Watches
from anubis.store.periodic_tasks import PeriodicTasks
from anubis.store.tokens import Audit, Tokens

P = ParamSpec("P")
T = TypeVar("T")


class Memory:
    """The last result of each function."""

    def __init__(self) -> None:
        self._made: dict[Callable[..., Any], tuple[tuple[Any, ...], Any]] = {}

    def recall(self, make: Callable[P, T], *parts: P.args, **_: P.kwargs) -> T:
        """Return `make(*parts)`. Parts are the same if they are the same objects, or equal
        tuples."""
        before = self._made.get(make)
        if before is None or not _same(before[0], parts):
            before = self._made[make] = (parts, make(*parts))  # type: ignore[call-arg] # no keywords
        result: T = before[1]
        return result


def _same(before: tuple[Any, ...], parts: tuple[Any, ...]) -> bool:
    return len(before) == len(parts) and all(
        old is new or (isinstance(new, tuple) and old == new)
        for old, new in zip(before, parts, strict=True)
    )


class History:
    def __init__(self, database: Database) -> None:
        self._database = database
        self.clusters = Clusters(database)
        self.campaigns = Campaigns(database)
        self.executions = Executions(database)
        self.assessments = Assessments(database)
        self.imports = Imports(database)
        self.tokens = Tokens(database)
        self.audit = Audit(database)

    def cluster(self, cluster: str) -> ClusterHistory:
        return ClusterHistory(self._database, cluster)

    def together(self) -> AbstractContextManager[None]:
        """Make what this thread reads and writes in the block one transaction."""
        return self._database.together()

    def every(self) -> list[ClusterHistory]:
        return [self.cluster(name) for name in self.clusters.names()]

    def only(self, names: Sequence[str] = ()) -> ClusterHistory:
        """Return the history of the only cluster; of the unnamed one while no cluster is known.
        `names` of the clusters, if they have just been read."""
        names = names or self.clusters.names() or [UNNAMED]
        if len(names) > 1:
            listed = '", "'.join(names)
            raise UsageError(f'the history knows clusters "{listed}": name one with --cluster')
        return self.cluster(names[0])

    def acting_lock(self) -> ProcessLock:
        """Return the lock of the one service on this history that does the periodic tasks."""
        return acting_lock(self._database)

    def examine(self, tell: Callable[[str], None] = lambda sentence: None) -> Soundness:
        """Check that all of the history is still what was written."""
        return Examination(self._database, tell).examine()

    @classmethod
    def open(cls, url: str, *, begins: bool = True) -> Self:
        """Open a file or URL; what is absent is created, unless nothing may begin there, and an
        older schema is upgraded."""
        return cls(Database.open(url, begins=begins))

    @property
    def new_place(self) -> str:
        """The place at which this history has just begun; empty: it was there."""
        return self._database.place if self._database.is_new else ""

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ClusterHistory:
    """The known facts about the nodes of one cluster."""

    def __init__(self, database: Database, cluster: str) -> None:
        self.cluster = cluster
        self.memory = Memory()
        self.node_names = NodeNames(database, cluster)
        self.experience = Experience(database, cluster)
        self.decisions = Decisions(database, cluster)
        self.incidents = Happenings(database, INCIDENTS, cluster)
        self.repairs = Happenings(database, REPAIRS, cluster)
        self.watches = Watches(database, cluster)
        self.jobs = JobRows(database, cluster)
        self.event_records = EventRecords(database, cluster)
        self.keeping = KeeperState(database, cluster)
        self.messages = Messages(database, cluster)
        self.periodic_tasks = PeriodicTasks(database, cluster)
        self.looks = Looks(database, cluster)
        self.diagnoses = Diagnoses(database, cluster)
        self.holds = Holds(database, cluster)
        self.earlier_runs = EarlierRuns(database, cluster)
        self.assessments = Assessments(database)
        self.campaigns = Campaigns(database)
