"""What a node left unanswered, beside the verdict on it. NULL: written before, and nobody noted."""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"


def upgrade() -> None:
    op.add_column("node_verdicts", sa.Column("owes", sa.Text))
