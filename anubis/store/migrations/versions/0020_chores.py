"""Periodic work on the nodes of a cluster: what was due, and what became of it."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0018"


def upgrade() -> None:
    op.create_table(
        "chores",
        sa.Column("chore", sa.Text, primary_key=True),
        sa.Column("due", sa.Double, primary_key=True),
        sa.Column("began", sa.Double, nullable=False),
        sa.Column("ended", sa.Double),
        sa.Column("end", sa.Text),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("sentence", sa.Text, nullable=False),
        sa.Column("campaign", sa.Text, nullable=False),
        sa.Column("proposal", sa.Text, nullable=False),
        sa.Column("cluster", sa.Text, primary_key=True),
    )
