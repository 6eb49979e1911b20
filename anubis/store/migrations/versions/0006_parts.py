"""Verdicts on parts of the fabric, and what a whole campaign came to."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.add_column("campaigns", sa.Column("judgement", sa.Text))
    op.create_table(
        "part_verdicts",
        sa.Column("campaign", sa.Integer, sa.ForeignKey("campaigns.key"), primary_key=True),
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("parts", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("judgement", sa.Text, nullable=False),
        sa.Column("code", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("confidence", sa.Double),
        sa.Column("evidence", sa.Text, nullable=False),
    )
