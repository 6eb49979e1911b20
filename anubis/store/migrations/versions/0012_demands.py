"""What each campaign asked of its nodes, beside its plan; with what it is stronger, nobody knew."""

import json

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.create_table(
        "demands",
        sa.Column("campaign", sa.Integer, sa.ForeignKey("campaigns.key"), primary_key=True),
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("benchmark", sa.Text, nullable=False),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("parameters", sa.Text, nullable=False),
        sa.Column("stronger_with", sa.Text, nullable=False),
    )
    _read_plans(op.get_bind())


def _read_plans(connection: sa.Connection) -> None:
    campaigns = sa.table("campaigns", sa.column("key"), sa.column("plan"))
    names = ("campaign", "position", "benchmark", "version", "parameters", "stronger_with")
    demands = sa.table("demands", *map(sa.column, names))
    for key in connection.execute(sa.select(campaigns.c.key)).scalars().all():
        text = sa.select(campaigns.c.plan).where(campaigns.c.key == key)
        plan = json.loads(connection.execute(text).scalar_one())
        workloads = {
            (workload["benchmark"], workload["version"], workload["parameters"]): None
            for phase in plan.get("phases", ())
            for workload in (entry["workload"] for entry in phase["entries"])
        }
        for position, workload in enumerate(workloads):
            row = dict(zip(names, (key, position, *workload, "[]"), strict=True))
            connection.execute(demands.insert().values(row))
