"""A checksum beside what the keeper of a fleet knows and has done. NULL: written before, and not
checked."""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"


def upgrade() -> None:
    for table in ("lives", "actions", "keepers"):
        op.add_column(table, sa.Column("checksum", sa.BigInteger))
