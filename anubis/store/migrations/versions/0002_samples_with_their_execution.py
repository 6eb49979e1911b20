"""All samples of an execution in its own row, and which series they are kept once for all."""

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


def _move_series(connection: sa.Connection) -> None:
    series, executions, layouts = (
        sa.table(name, *map(sa.column, columns.split()))
        for name, columns in {
            "series": "campaign execution position metric device packing samples",
            "executions": "campaign number layout packing samples",
            "layouts": "digest document",
        }.items()
    )
    known: set[str] = set()
    whole = sa.select(series.c.campaign, series.c.execution).distinct()
    for campaign, number in connection.execute(whole).all():
        mine = (series.c.campaign == campaign) & (series.c.execution == number)
        rows = connection.execute(sa.select(series).where(mine).order_by(series.c.position)).all()
        raw = [
            zlib.decompress(row.samples) if row.packing == "zlib" else bytes(row.samples)
            for row in rows
        ]
        layout = [
            [row.metric, row.device, len(part) // 8] for row, part in zip(rows, raw, strict=True)
        ]
        document = json.dumps(layout, separators=(",", ":"))
        digest = sha256(document.encode()).hexdigest()[:32]
        if digest not in known:
            connection.execute(layouts.insert().values(digest=digest, document=document))
            known.add(digest)
        connection.execute(
            executions.update()
            .where((executions.c.campaign == campaign) & (executions.c.number == number))
            .values(layout=digest, packing="raw", samples=b"".join(raw))
        )
