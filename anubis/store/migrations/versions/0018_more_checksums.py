"""A checksum beside each row about what happened to nodes, and beside each decision; and how many
of them there are. NULL: written before, and not checked."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"

CHECKED = ("incidents", "repairs", "watches", "jobs", "notices", "traits", "decisions", "holds")


def upgrade() -> None:
    for table in CHECKED:
        op.add_column(table, sa.Column("checksum", sa.BigInteger))
    op.create_table(
        "tallies",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("cluster", sa.Text, primary_key=True),
        sa.Column("rows", sa.Integer, nullable=False),
        sa.Column("total", sa.BigInteger, nullable=False),
    )
