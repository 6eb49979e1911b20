"""What the page of a diagnosis shows, and the lines behind it."""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"


def upgrade() -> None:
    op.create_table(
        "diagnosis_details",
        sa.Column("job", sa.Text, primary_key=True),
        sa.Column("at", sa.Double, primary_key=True),
        sa.Column("lines", sa.LargeBinary, nullable=False),
        sa.Column("page", sa.LargeBinary, nullable=False),
        sa.Column("cluster", sa.Text, primary_key=True),
    )
