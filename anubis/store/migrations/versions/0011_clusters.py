"""Every node belongs to a cluster; those of before to the unnamed one, until a cluster is named."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"

UNNAMED = "unnamed"


def upgrade() -> None:
    op.create_table(
        "clusters",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("executor", sa.Text, nullable=False),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("since", sa.Double, nullable=False),
    )
    for table in ("campaigns", "decisions", "imports"):
        cluster = sa.Column("cluster", sa.Text, nullable=False, server_default=UNNAMED)
        op.add_column(table, cluster)
    op.create_index("campaigns_by_cluster", "campaigns", ["cluster", "finished_at"])
    op.create_index("decisions_by_cluster", "decisions", ["cluster"])
    for table, columns in _with_cluster_in_key().items():
        _make_again(table, columns)
    for table in ("incidents", "repairs", "watches", "jobs"):
        op.create_index(f"{table}_by_cluster", table, ["cluster"])


def _with_cluster_in_key() -> dict[str, tuple[sa.Column[Any], ...]]:
    """Two clusters may have a node, a job or an event of one name."""
    participants = sa.ForeignKey("participants.digest")
    return {
        "incidents": (
            sa.Column("node", sa.Text, primary_key=True),
            sa.Column("category", sa.Text, primary_key=True),
            sa.Column("started_at", sa.Double, primary_key=True),
            sa.Column("ended_at", sa.Double),
            sa.Column("told_by", sa.Integer),
            sa.Column("ended_by", sa.Integer),
        ),
        "repairs": (
            sa.Column("node", sa.Text, primary_key=True),
            sa.Column("started_at", sa.Double, primary_key=True),
            sa.Column("ended_at", sa.Double),
            sa.Column("action", sa.Text, nullable=False),
        ),
        "watches": (
            sa.Column("node", sa.Text, primary_key=True),
            sa.Column("since", sa.Double, primary_key=True),
            sa.Column("until", sa.Double),
            sa.Column("told_by", sa.Integer),
        ),
        "jobs": (
            sa.Column("id", sa.Text, primary_key=True),
            sa.Column("participants", sa.String(32), participants, nullable=False),
            sa.Column("started_at", sa.Double, nullable=False),
            sa.Column("ended_at", sa.Double),
            sa.Column("planned_s", sa.Double),
        ),
        "notices": (
            sa.Column("id", sa.Text, primary_key=True),
            sa.Column("at", sa.Double, nullable=False),
            sa.Column("event", sa.Text, nullable=False),
            sa.Column("document", sa.Text, nullable=False),
        ),
        "holds": (
            sa.Column("node", sa.Text, primary_key=True),
            sa.Column("holder", sa.Text, nullable=False),
            sa.Column("owner", sa.Text, nullable=False),
            sa.Column("since", sa.Double, nullable=False),
            sa.Column("until", sa.Double, nullable=False),
        ),
    }


def _make_again(name: str, columns: tuple[sa.Column[Any], ...]) -> None:
    """SQLite cannot change a primary key."""
    before, names = f"{name}_before", ", ".join(column.name for column in columns)
    op.rename_table(name, before)
    op.create_table(name, *columns, sa.Column("cluster", sa.Text, primary_key=True))
    op.execute(f"INSERT INTO {name} ({names}, cluster) SELECT {names}, '{UNNAMED}' FROM {before}")
    op.drop_table(before)
