"""Messages of the keeper to people."""

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0034"


def upgrade() -> None:
    op.create_table(
        "messages",
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("topic", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("sentence", sa.Text, nullable=False),
        sa.Column("step", sa.Text, nullable=False),
        sa.Column("ends", sa.Boolean, nullable=False),
        sa.Column("delivery", sa.Text, nullable=False),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("due", sa.Double, nullable=False),
        sa.Column("note", sa.Text, nullable=False),
        sa.Column("cluster", sa.Text, primary_key=True),
    )
    op.create_index("messages_by_delivery", "messages", ["cluster", "delivery"])
