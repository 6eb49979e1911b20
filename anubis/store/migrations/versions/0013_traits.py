"""What nodes are by themselves; and imports of any kind, so that each can be taken back."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"

IMPORTED = ("import",)


def upgrade() -> None:
    op.create_table(
        "traits",
        sa.Column("node", sa.Text, primary_key=True),
        sa.Column("installed_at", sa.Double),
        sa.Column("rack", sa.Text, nullable=False),
        sa.Column("cage", sa.Text, nullable=False),
        sa.Column("sku", sa.Text, nullable=False),
        sa.Column("told_by", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("cluster", sa.Text, primary_key=True),
    )
    op.create_index("traits_by_cluster", "traits", ["cluster"])
    op.add_column("imports", sa.Column("what", sa.Text, nullable=False, server_default="incidents"))
    op.add_column("imports", sa.Column("campaign", sa.Text, nullable=False, server_default=""))
    _list_campaigns(op.get_bind())


def _list_campaigns(connection: sa.Connection) -> None:
    """Those that were imported before; nobody knows from which file."""
    names = ("id", "cluster", "created_at", "verb", "key")
    campaigns = sa.table("campaigns", *map(sa.column, names))
    columns = ("at", "file", "cluster", "what", "campaign", "new", "completed", "known")
    imports = sa.table("imports", *map(sa.column, columns))
    imported = sa.select(campaigns).where(campaigns.c.verb.in_(IMPORTED)).order_by(campaigns.c.key)
    for row in connection.execute(imported).all():
        values = (row.created_at, "", row.cluster, "measurements", row.id, 1, 0, 0)
        connection.execute(imports.insert().values(dict(zip(columns, values, strict=True))))
