"""The history of a fleet: what was planned, measured, judged, decided and reported.

When a verb returns, its data is on disk. It decides nothing: no retries, no verdicts of its own.
"""

from __future__ import annotations

from typing import Self

from anubis.store.assessments import Assessments
from anubis.store.campaigns import Campaigns
from anubis.store.database import Database
from anubis.store.decisions import Decisions
from anubis.store.executions import Executions
from anubis.store.experience import Experience
from anubis.store.happenings import INCIDENTS, JOBS, REPAIRS, Happenings, Watches
from anubis.store.holds import Holds
from anubis.store.imports import Imports
from anubis.store.notices import Notices


class History:
    def __init__(self, database: Database) -> None:
        self._database = database
        self.campaigns = Campaigns(database)
        self.executions = Executions(database)
        self.assessments = Assessments(database)
        self.experience = Experience(database)
        self.decisions = Decisions(database)
        self.incidents = Happenings(database, INCIDENTS)
        self.repairs = Happenings(database, REPAIRS)
        self.watches = Watches(database)
        self.jobs = Happenings(database, JOBS)
        self.imports = Imports(database)
        self.notices = Notices(database)
        self.holds = Holds(database)

    @classmethod
    def open(cls, url: str) -> Self:
        """Open a file or URL; what is absent is created, an older schema is upgraded."""
        return cls(Database.open(url))

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
