"""A path names its nodes one by one, and the benchmarks in which they did badly."""

import json

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    for name in ("nodes", "benchmarks"):
        op.add_column(
            "part_verdicts", sa.Column(name, sa.Text, nullable=False, server_default="[]")
        )
    _name_ends(op.get_bind())


def _name_ends(connection: sa.Connection) -> None:
    """They stood in the one part of the path, and the benchmarks at the head of its sentences."""
    key, content = ("campaign", "position"), ("parts", "nodes", "benchmarks")
    sentences = ("code", "subject", "reason", "evidence")
    verdicts = sa.table("part_verdicts", *map(sa.column, (*key, *content, *sentences)))
    paths = sa.select(verdicts).where(verdicts.c.code == "NETWORK.PATH")
    for row in connection.execute(paths).all():
        (part,) = json.loads(row.parts)
        reasons = [row.reason.removeprefix(f"{row.subject}: "), *json.loads(row.evidence)]
        benchmarks = dict.fromkeys(reason.partition(": ")[0] for reason in reasons)
        connection.execute(
            verdicts.update()
            .where((verdicts.c.campaign == row.campaign) & (verdicts.c.position == row.position))
            .values(
                parts="[]",
                nodes=_spelled([part["name"], *part["other"].split(",")]),
                benchmarks=_spelled(list(benchmarks)),
            )
        )


def _spelled(names: list[str]) -> str:
    return json.dumps(names, separators=(",", ":"))
