"""By which policy the keeper keeps a cluster, as whoever acts said last."""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"


def upgrade() -> None:
    op.create_table(
        "kept_by",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("policy", sa.Text, nullable=False),
        sa.Column("said_by", sa.Text, nullable=False),
        sa.Column("since", sa.Double, nullable=False),
        sa.Column("cluster", sa.Text, primary_key=True),
        sa.Column("checksum", sa.BigInteger),
    )
