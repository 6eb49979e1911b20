"""What happened to nodes: incidents, watches, repairs, jobs; and who was measured by what."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "incidents",
        sa.Column("node", sa.Text, primary_key=True),
        sa.Column("started_at", sa.Double, primary_key=True),
        sa.Column("category", sa.Text, primary_key=True),
        sa.Column("ended_at", sa.Double),
    )
    op.create_table(
        "watches",
        sa.Column("node", sa.Text, primary_key=True),
        sa.Column("since", sa.Double, primary_key=True),
        sa.Column("until", sa.Double),
    )
    op.execute(  # nodes that were validated belong to the fleet from then on
        "INSERT INTO watches SELECT node, min(finished_at), NULL FROM node_verdicts"
        " JOIN campaigns ON key = campaign WHERE verb <> 'import' AND finished_at IS NOT NULL"
        " GROUP BY node"
    )
    op.create_table(
        "repairs",
        sa.Column("node", sa.Text, primary_key=True),
        sa.Column("started_at", sa.Double, primary_key=True),
        sa.Column("ended_at", sa.Double),
        sa.Column("action", sa.Text, nullable=False),
    )
    op.create_table(
        "jobs",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column(
            "participants", sa.String(32), sa.ForeignKey("participants.digest"), nullable=False
        ),
        sa.Column("started_at", sa.Double, nullable=False),
        sa.Column("ended_at", sa.Double),
        sa.Column("planned_s", sa.Double),
    )
    # The samples stand in the same rows, and nobody wants to read them to learn who was measured.
    op.create_index(
        "executions_who_and_what", "executions", ["campaign", "ended", "participants", "benchmark"]
    )
    op.create_index("participant_nodes_back", "participant_nodes", ["participants"])
