"""Diagnoses of jobs, and what they advised."""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"


def upgrade() -> None:
    op.create_table(
        "diagnoses",
        sa.Column("job", sa.Text, primary_key=True),
        sa.Column("at", sa.Double, primary_key=True),
        sa.Column("level", sa.Integer, nullable=False),
        sa.Column("code", sa.Text, nullable=False),
        sa.Column("nodes", sa.Text, nullable=False),
        sa.Column("headline", sa.Text, nullable=False),
        sa.Column("cluster", sa.Text, primary_key=True),
    )
