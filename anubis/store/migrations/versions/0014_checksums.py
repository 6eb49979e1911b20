"""A checksum beside each row that decides a verdict, and at each campaign how many there are. NULL:
written before, and not checked."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"

CHECKED = (
    *("campaigns", "demands", "executions"),
    *("verdicts", "rulings", "node_verdicts", "part_verdicts"),
)


def upgrade() -> None:
    op.add_column("campaigns", sa.Column("counts", sa.Text))
    for table in CHECKED:
        op.add_column(table, sa.Column("checksum", sa.BigInteger))
