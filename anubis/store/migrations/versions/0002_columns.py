"""All samples of an execution in its own row; one row for the same verdict on many units."""

import json
import zlib
from hashlib import sha256

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "layouts",
        sa.Column("digest", sa.String(32), primary_key=True),
        sa.Column("document", sa.Text, nullable=False),
    )
    layout = sa.Column("layout", sa.String(32), sa.ForeignKey("layouts.digest"))
    op.add_column("executions", layout, inline_references=True)
    op.add_column("executions", sa.Column("packing", sa.String(4)))
    op.add_column("executions", sa.Column("samples", sa.LargeBinary))
    _move_series(op.get_bind())
    op.drop_table("series")
    op.create_table(
        "rosters",
        sa.Column("digest", sa.String(32), primary_key=True),
        sa.Column("document", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "rulings",
        sa.Column("campaign", sa.Integer, sa.ForeignKey("campaigns.key"), primary_key=True),
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("benchmark", sa.Text, nullable=False),
        sa.Column("parameters", sa.Text, nullable=False),
        sa.Column("metric", sa.Text, nullable=False),
        sa.Column("judgement", sa.Text, nullable=False),
        sa.Column("code", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("alpha", sa.Double),
        sa.Column("roster", sa.String(32), sa.ForeignKey("rosters.digest"), nullable=False),
        sa.Column("packing", sa.String(4)),
        sa.Column("similarities", sa.LargeBinary),
    )


def _move_series(connection: sa.Connection) -> None:
    series, executions, layouts = (
        sa.table(name, *map(sa.column, columns.split()))
        for name, columns in {
            "series": "campaign execution position metric device packing samples",
            "executions": "campaign number layout packing samples",
            "layouts": "digest document",
        }.items()
    )
    digests: set[str] = set()
    measured = sa.select(series.c.campaign, series.c.execution).distinct()
    for campaign, number in connection.execute(measured).all():
        of_execution = (series.c.campaign == campaign) & (series.c.execution == number)
        rows = connection.execute(
            sa.select(series).where(of_execution).order_by(series.c.position)
        ).all()
        raw = [
            zlib.decompress(row.samples) if row.packing == "zlib" else bytes(row.samples)
            for row in rows
        ]
        layout = [
            [row.metric, row.device, len(part) // 8] for row, part in zip(rows, raw, strict=True)
        ]
        document = json.dumps(layout, separators=(",", ":"))
        digest = sha256(document.encode()).hexdigest()[:32]
        if digest not in digests:
            connection.execute(layouts.insert().values(digest=digest, document=document))
            digests.add(digest)
        connection.execute(
            executions.update()
            .where((executions.c.campaign == campaign) & (executions.c.number == number))
            .values(layout=digest, packing="raw", samples=b"".join(raw))
        )
