"""Keys to the service, and what it was asked to do."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0015"


def upgrade() -> None:
    op.create_table(
        "tokens",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("scopes", sa.Text, nullable=False),
        sa.Column("made_at", sa.Double, nullable=False),
        sa.Column("made_by", sa.Text, nullable=False),
        sa.Column("revoked_at", sa.Double),
    )
    op.create_table(
        "audit",
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("who", sa.Text, nullable=False),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("method", sa.Text, nullable=False),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("status", sa.Integer, nullable=False),
        sa.Column("key", sa.Integer, primary_key=True),
    )
