"""When a token ends, and who ordered an action of the keeper."""

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"


def upgrade() -> None:
    op.add_column("tokens", sa.Column("expires_at", sa.Double))
    op.add_column("actions", sa.Column("ordered_by", sa.Text, nullable=False, server_default=""))
