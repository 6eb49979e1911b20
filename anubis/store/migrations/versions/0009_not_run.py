"""What the infrastructure failed is told apart from programs that failed by themselves."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

SENTENCES = (  # of the executors until then
    "%could not be run: %",
    "%ended without a report%",
    "%no guardian could be started%",
    "%no port to meet at: %",
)


def upgrade() -> None:
    executions = sa.table(
        "executions", sa.column("ended"), sa.column("final", sa.Boolean), sa.column("reason")
    )
    tried_again = sa.not_(executions.c.final)
    infrastructure = sa.or_(tried_again, *map(executions.c.reason.like, SENTENCES))
    op.execute(
        executions.update()
        .where((executions.c.ended == "failed") & infrastructure)
        .values(ended="not-run")
    )
