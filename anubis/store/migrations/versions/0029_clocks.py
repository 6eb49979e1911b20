"""The clock by which the keeper of a cluster tells ages."""

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0027"


def upgrade() -> None:
    op.create_table(
        "clocks",
        sa.Column("kept", sa.Text, nullable=False),
        sa.Column("cluster", sa.Text, primary_key=True),
        sa.Column("checksum", sa.BigInteger, nullable=True),
    )
