"""What the Selector decided; and how long benchmarks take, without a look at their samples."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_table(
        "decisions",
        sa.Column("key", sa.Integer, primary_key=True),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("event", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
    )
    op.create_index(
        "executions_how_long",
        "executions",
        ["ended", "benchmark", "parameters", "duration_s"],
    )
