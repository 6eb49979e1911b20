"""Who took a keeper's last turn."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    op.add_column("keepers", sa.Column("turned_by", sa.Text, nullable=False, server_default=""))
