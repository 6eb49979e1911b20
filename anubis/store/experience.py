"""What was learned by running benchmarks: who was defective in which, how long each takes, and what
was decided. Behind the verbs of `History`; it reads no samples."""

from __future__ import annotations

import json
from collections.abc import Iterator

from sqlalchemy import ColumnElement, Connection, func, select

from anubis.core.choosing.decision import Decision
from anubis.core.past.defects import BadGroup, FailedTest
from anubis.core.records import CampaignKind, Ended, Judgement
from anubis.store import codec
from anubis.store.schema import Row, campaigns, decisions, executions, participants, verdicts

LOCATING = [kind.value for kind in CampaignKind if kind.names_parts]

Durations = dict[tuple[str, str], float]  # by benchmark and parameters


def read_findings(connection: Connection) -> list[FailedTest]:
    """What single nodes were defective in; a bad group speaks for a node where that is blamed."""
    return [
        FailedTest(campaign=campaign, node=nodes[0], benchmark=benchmark)
        for campaign, nodes, benchmark in _defective(connection)
        if len(nodes) == 1
    ]


def read_bad_groups(connection: Connection) -> list[BadGroup]:
    """Without those of scans, which say themselves what of the fabric is behind their pairs."""
    return [
        BadGroup(campaign=campaign, nodes=nodes, benchmark=benchmark)
        for campaign, nodes, benchmark in _defective(connection, campaigns.c.verb.not_in(LOCATING))
        if len(nodes) > 1
    ]


def _defective(
    connection: Connection, *which: ColumnElement[bool]
) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """Campaign, participants and benchmark, each once."""
    query = (
        select(campaigns.c.id, participants.c.nodes, verdicts.c.benchmark)
        .join(campaigns, campaigns.c.key == verdicts.c.campaign)
        .join(participants, participants.c.digest == verdicts.c.participants)
        .where(verdicts.c.judgement == Judgement.DEFECTIVE.value, *which)
        .distinct()
        .order_by(campaigns.c.id, participants.c.nodes, verdicts.c.benchmark)
    )
    for row in connection.execute(query):
        yield row.id, tuple(json.loads(row.nodes)), row.benchmark


def read_durations(connection: Connection) -> Durations:
    """The mean time in seconds that each workload took when it could measure."""
    which = (executions.c.benchmark, executions.c.parameters)
    query = (
        select(*which, func.avg(executions.c.duration_s))
        .where(executions.c.ended == Ended.MEASURED.value)
        .group_by(*which)
    )
    return {(name, parameters): mean for name, parameters, mean in connection.execute(query)}


def decision_row(decision: Decision) -> Row:
    return {
        "at": decision.at,
        "event": decision.event,
        "action": decision.action.value,
        "document": codec.dump(decision),
    }


def read_decisions(connection: Connection, limit: int) -> list[Decision]:
    query = select(decisions.c.document).order_by(decisions.c.key.desc()).limit(limit)
    return [codec.load(Decision, document) for document in connection.scalars(query)]
