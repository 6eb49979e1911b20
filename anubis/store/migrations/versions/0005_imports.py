"""Which import told of what, so that a wrong one can be taken back; and rows of any length."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.create_table(
        "imports",
        sa.Column("key", sa.Integer, primary_key=True),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("file", sa.Text, nullable=False),
        sa.Column("new", sa.Integer, nullable=False),
        sa.Column("completed", sa.Integer, nullable=False),
        sa.Column("known", sa.Integer, nullable=False),
    )
    op.add_column("incidents", sa.Column("told_by", sa.Integer))
    op.add_column("incidents", sa.Column("ended_by", sa.Integer))
    op.add_column("watches", sa.Column("told_by", sa.Integer))
    if op.get_context().dialect.name == "postgresql":
        # It refuses rows whose parameters do not fit into a third of an index page.
        op.drop_index("executions_how_long", "executions")
