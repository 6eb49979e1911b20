"""What the last look at each job saw, and what the next one goes on from."""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"


def upgrade() -> None:
    op.create_table(
        "look_details",
        sa.Column("job", sa.Text, primary_key=True),
        sa.Column("lines", sa.Text, nullable=False),
        sa.Column("page", sa.LargeBinary, nullable=False),
        sa.Column("stream", sa.LargeBinary, nullable=False),
        sa.Column("cluster", sa.Text, primary_key=True),
    )
