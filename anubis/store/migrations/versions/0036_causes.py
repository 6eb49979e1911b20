"""What is wrong with a node, without name, place and amount. NULL: the reason says it."""

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0035"


def upgrade() -> None:
    for table in ("verdicts", "node_verdicts"):
        op.add_column(table, sa.Column("cause", sa.Text))
