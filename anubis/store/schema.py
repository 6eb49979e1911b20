"""The tables as they are now. What led here stands in migrations/; a test keeps the two alike.

Whole documents (plan, policy, criteria) are JSON in the row of their campaign. What is asked
for across campaigns has rows: executions with their samples, verdicts. What thousands of
executions share (an environment, a set of participants, which series they measured) is kept
once, named by its digest.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import (
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
)

MIGRATIONS = Path(__file__).parent / "migrations"
REVISIONS = tuple(sorted(file.name[:4] for file in (MIGRATIONS / "versions").glob("[0-9]*.py")))
HEAD = REVISIONS[-1]

Row = dict[str, Any]  # of a table, by the names of its columns


class Prose(TypeDecorator[str]):
    """A sentence that may quote what a program printed: bytes that are no text are replaced."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Any) -> str | None:
        if value is None:
            return None
        return value.replace("\0", "\ufffd").encode(errors="replace").decode()


metadata = MetaData()

campaigns = Table(
    "campaigns",
    metadata,
    Column("key", Integer, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("verb", Text, nullable=False),
    Column("suite", Text, nullable=False),
    Column("nodes", Integer, nullable=False),
    Column("executor", Text, nullable=False),
    Column("setting", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("finished_at", Double),
    Column("plan", Text, nullable=False),
    Column("policy", Text, nullable=False),
    Column("criteria", Text, nullable=False),
)

environments = Table(
    "environments",
    metadata,
    Column("digest", String(32), primary_key=True),
    Column("document", Text, nullable=False),
)

participants = Table(
    "participants",
    metadata,
    Column("digest", String(32), primary_key=True),
    Column("nodes", Text, nullable=False),  # a JSON list: the order is the order of the ranks
)

# Which series an execution measured: a JSON list of [metric, device, number of samples].
layouts = Table(
    "layouts",
    metadata,
    Column("digest", String(32), primary_key=True),
    Column("document", Text, nullable=False),
)

# The way from a node to everything it took part in, and back.
participant_nodes = Table(
    "participant_nodes",
    metadata,
    Column("node", Text, primary_key=True),
    Column("participants", String(32), ForeignKey(participants.c.digest), primary_key=True),
    Index("participant_nodes_back", "participants"),
)

executions = Table(
    "executions",
    metadata,
    Column("campaign", Integer, ForeignKey(campaigns.c.key), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),  # in order of arrival
    Column("step", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("benchmark", Text, nullable=False),
    Column("version", Text, nullable=False),
    Column("parameters", Text, nullable=False),
    Column("participants", String(32), ForeignKey(participants.c.digest), nullable=False),
    Column("phase", Integer, nullable=False),
    Column("repeat", Integer, nullable=False),
    Column("timeout_s", Double, nullable=False),
    Column("exclusive", Boolean, nullable=False),
    Column("ended", Text, nullable=False),
    Column("final", Boolean, nullable=False),
    Column("reason", Prose, nullable=False),
    Column("lost", Text, nullable=False),
    Column("started_at", Double),
    Column("duration_s", Double, nullable=False),
    Column("environment", String(32), ForeignKey(environments.c.digest), nullable=False),
    Column("not_applicable", Prose, nullable=False),
    Column("layout", String(32), ForeignKey(layouts.c.digest)),  # NULL: nothing was measured
    Column("packing", String(4)),
    Column("samples", LargeBinary),
    UniqueConstraint("campaign", "step", "attempt", name="executions_once"),
    Index("executions_by_benchmark", "benchmark", "version", "started_at"),
    Index("executions_by_participants", "participants"),
    # The samples stand in the same rows, and nobody wants to read them to learn who was measured.
    Index("executions_who_and_what", "campaign", "ended", "participants", "benchmark"),
    # PostgreSQL keeps long samples elsewhere, and refuses long parameters in an index.
    Index("executions_how_long", "ended", "benchmark", "parameters", "duration_s").ddl_if(
        dialect="sqlite"
    ),
)

verdicts = Table(
    "verdicts",
    metadata,
    Column("campaign", Integer, ForeignKey(campaigns.c.key), primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),  # worst first
    Column("participants", String(32), ForeignKey(participants.c.digest), nullable=False),
    Column("benchmark", Text, nullable=False),
    Column("parameters", Text, nullable=False),
    Column("metric", Text, nullable=False),
    Column("device", Text, nullable=False),
    Column("judgement", Text, nullable=False),
    Column("code", Text, nullable=False),
    Column("reason", Prose, nullable=False),
    Column("similarity", Double),
    Column("alpha", Double),
    Index("verdicts_by_participants", "participants"),
)

# Of which units a ruling speaks: a JSON list of [participants, device], compressed.
rosters = Table(
    "rosters",
    metadata,
    Column("digest", String(32), primary_key=True),
    Column("document", LargeBinary, nullable=False),
)

# One verdict on many units of one metric, and the similarity of each.
rulings = Table(
    "rulings",
    metadata,
    Column("campaign", Integer, ForeignKey(campaigns.c.key), primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("benchmark", Text, nullable=False),
    Column("parameters", Text, nullable=False),
    Column("metric", Text, nullable=False),
    Column("judgement", Text, nullable=False),
    Column("code", Text, nullable=False),
    Column("reason", Prose, nullable=False),
    Column("alpha", Double),
    Column("roster", String(32), ForeignKey(rosters.c.digest), nullable=False),
    Column("packing", String(4)),  # NULL: they were compared with nothing
    Column("similarities", LargeBinary),
)

node_verdicts = Table(
    "node_verdicts",
    metadata,
    Column("campaign", Integer, ForeignKey(campaigns.c.key), primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("node", Text, nullable=False),
    Column("judgement", Text, nullable=False),
    Column("code", Text, nullable=False),
    Column("reason", Prose, nullable=False),
    Index("node_verdicts_by_node", "node"),
)

# Files with incidents that were taken over, and what became of these.
imports = Table(
    "imports",
    metadata,
    Column("key", Integer, primary_key=True),
    Column("at", Double, nullable=False),
    Column("file", Text, nullable=False),
    Column("new", Integer, nullable=False),
    Column("completed", Integer, nullable=False),
    Column("known", Integer, nullable=False),
)

incidents = Table(
    "incidents",
    metadata,
    Column("node", Text, primary_key=True),
    Column("started_at", Double, primary_key=True),
    Column("category", Text, primary_key=True),
    Column("ended_at", Double),  # NULL: not over, as far as anybody told
    Column("told_by", Integer),  # the import that told of it first; NULL: no import
    Column("ended_by", Integer),  # the import that told its end
)

# When a node belonged to the fleet: its addition and its removal.
watches = Table(
    "watches",
    metadata,
    Column("node", Text, primary_key=True),
    Column("since", Double, primary_key=True),
    Column("until", Double),
    Column("told_by", Integer),  # the import that told of it first; NULL: no import
)

repairs = Table(
    "repairs",
    metadata,
    Column("node", Text, primary_key=True),
    Column("started_at", Double, primary_key=True),
    Column("ended_at", Double),
    Column("action", Prose, nullable=False),
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("participants", String(32), ForeignKey(participants.c.digest), nullable=False),
    Column("started_at", Double, nullable=False),
    Column("ended_at", Double),
    Column("planned_s", Double),
)

decisions = Table(
    "decisions",
    metadata,
    Column("key", Integer, primary_key=True),
    Column("at", Double, nullable=False),
    Column("event", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("document", Text, nullable=False),
)
