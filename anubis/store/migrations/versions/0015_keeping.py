"""The keeper of a fleet: lives of nodes, breakers, what was heard, what was proposed or done."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    op.create_table(
        "keepers",
        sa.Column("cluster", sa.Text, primary_key=True),
        sa.Column("seen_at", sa.Double),
        sa.Column("turned_at", sa.Double, nullable=False),
        sa.Column("breakers", sa.Text, nullable=False),
    )
    op.create_table(
        "lives",
        sa.Column("document", sa.Text, nullable=False),
        sa.Column("cluster", sa.Text, primary_key=True),
        sa.Column("node", sa.Text, primary_key=True),
        sa.Column("state", sa.Text, nullable=False),
    )
    op.create_table(
        "actions",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
        sa.Column("stage", sa.Text, nullable=False),
        sa.Column("changed_at", sa.Double, nullable=False),
        sa.Column("campaign", sa.Text, nullable=False),
        sa.Column("note", sa.Text, nullable=False),
        sa.Column("cluster", sa.Text, nullable=False),
    )
    op.create_index("actions_by_cluster", "actions", ["cluster", "stage"])
    op.create_table(
        "heard",
        sa.Column("cluster", sa.Text, primary_key=True),
        sa.Column("kind", sa.Text, primary_key=True),
        sa.Column("id", sa.Text, primary_key=True),
    )
