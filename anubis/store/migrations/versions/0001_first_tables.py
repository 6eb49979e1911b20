"""Campaigns, executions with their series, verdicts."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "campaigns",
        sa.Column("key", sa.Integer, primary_key=True),
        sa.Column("id", sa.Text, nullable=False, unique=True),
        sa.Column("verb", sa.Text, nullable=False),
        sa.Column("suite", sa.Text, nullable=False),
        sa.Column("nodes", sa.Integer, nullable=False),
        sa.Column("executor", sa.Text, nullable=False),
        sa.Column("setting", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("finished_at", sa.Double),
        sa.Column("plan", sa.Text, nullable=False),
        sa.Column("policy", sa.Text, nullable=False),
        sa.Column("criteria", sa.Text, nullable=False),
    )
    op.create_table(
        "environments",
        sa.Column("digest", sa.String(32), primary_key=True),
        sa.Column("document", sa.Text, nullable=False),
    )
    op.create_table(
        "participants",
        sa.Column("digest", sa.String(32), primary_key=True),
        sa.Column("nodes", sa.Text, nullable=False),
    )
    op.create_table(
        "participant_nodes",
        sa.Column("node", sa.Text, primary_key=True),
        sa.Column(
            "participants", sa.String(32), sa.ForeignKey("participants.digest"), primary_key=True
        ),
    )
    op.create_table(
        "executions",
        sa.Column("campaign", sa.Integer, sa.ForeignKey("campaigns.key"), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("step", sa.Text, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("benchmark", sa.Text, nullable=False),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("parameters", sa.Text, nullable=False),
        sa.Column(
            "participants", sa.String(32), sa.ForeignKey("participants.digest"), nullable=False
        ),
        sa.Column("phase", sa.Integer, nullable=False),
        sa.Column("repeat", sa.Integer, nullable=False),
        sa.Column("timeout_s", sa.Double, nullable=False),
        sa.Column("exclusive", sa.Boolean, nullable=False),
        sa.Column("ended", sa.Text, nullable=False),
        sa.Column("final", sa.Boolean, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("lost", sa.Text, nullable=False),
        sa.Column("started_at", sa.Double),
        sa.Column("duration_s", sa.Double, nullable=False),
        sa.Column(
            "environment", sa.String(32), sa.ForeignKey("environments.digest"), nullable=False
        ),
        sa.Column("not_applicable", sa.Text, nullable=False),
        sa.UniqueConstraint("campaign", "step", "attempt", name="executions_once"),
    )
    op.create_index("executions_by_benchmark", "executions", ["benchmark", "version", "started_at"])
    op.create_index("executions_by_participants", "executions", ["participants"])
    op.create_table(
        "series",
        sa.Column("campaign", sa.Integer, primary_key=True),
        sa.Column("execution", sa.Integer, primary_key=True),
        sa.Column("position", sa.Integer, primary_key=True),
        sa.Column("metric", sa.Text, nullable=False),
        sa.Column("device", sa.Text, nullable=False),
        sa.Column("packing", sa.String(4), nullable=False),
        sa.Column("samples", sa.LargeBinary, nullable=False),
        sa.ForeignKeyConstraint(
            ["campaign", "execution"], ["executions.campaign", "executions.number"]
        ),
    )
    op.create_table(
        "verdicts",
        sa.Column("campaign", sa.Integer, sa.ForeignKey("campaigns.key"), primary_key=True),
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column(
            "participants", sa.String(32), sa.ForeignKey("participants.digest"), nullable=False
        ),
        sa.Column("benchmark", sa.Text, nullable=False),
        sa.Column("parameters", sa.Text, nullable=False),
        sa.Column("metric", sa.Text, nullable=False),
        sa.Column("device", sa.Text, nullable=False),
        sa.Column("judgement", sa.Text, nullable=False),
        sa.Column("code", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("similarity", sa.Double),
        sa.Column("alpha", sa.Double),
    )
    op.create_index("verdicts_by_participants", "verdicts", ["participants"])
    op.create_table(
        "node_verdicts",
        sa.Column("campaign", sa.Integer, sa.ForeignKey("campaigns.key"), primary_key=True),
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("node", sa.Text, nullable=False),
        sa.Column("judgement", sa.Text, nullable=False),
        sa.Column("code", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
    )
    op.create_index("node_verdicts_by_node", "node_verdicts", ["node"])
