"""Which nodes participants are stands in their own row, which has a digest: the table that said it
again had none."""

from alembic import op

revision = "0033"
down_revision = "0031"


def upgrade() -> None:
    op.drop_table("participant_nodes")
