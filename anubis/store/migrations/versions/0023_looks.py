"""The last look at each job that was watched."""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"


def upgrade() -> None:
    op.create_table(
        "looks",
        sa.Column("job", sa.Text, primary_key=True),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("nodes", sa.Integer, nullable=False),
        sa.Column("suspects", sa.Integer, nullable=False),
        sa.Column("oddities", sa.Integer, nullable=False),
        sa.Column("job_ended", sa.Boolean, nullable=False),
        sa.Column("trouble", sa.Text, nullable=False),
        sa.Column("cluster", sa.Text, primary_key=True),
    )
