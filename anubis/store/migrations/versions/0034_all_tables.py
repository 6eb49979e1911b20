"""All tables."""

import sqlalchemy as sa
from alembic import op

revision = "0034"  # where the histories of before 1.0 end
down_revision = None


def upgrade() -> None:
    op.create_table(
        "actions",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
        sa.Column("stage", sa.Text, nullable=False),
        sa.Column("changed_at", sa.Double, nullable=False),
        sa.Column("campaign", sa.Text, nullable=False),
        sa.Column("note", sa.Text, nullable=False),
        sa.Column("ordered_by", sa.Text, nullable=False),
        sa.Column("cluster", sa.Text, nullable=False),
        sa.Column("checksum", sa.BigInteger, nullable=False),
    )
    op.create_index("actions_by_cluster", "actions", ["cluster", "stage"])
    op.create_table(
        "audit",
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("who", sa.Text, nullable=False),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("method", sa.Text, nullable=False),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("status", sa.Integer, nullable=False),
        sa.Column("key", sa.Integer, primary_key=True),
    )
    op.create_table(
        "campaigns",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("cluster", sa.Text, nullable=False),
        sa.Column("verb", sa.Text, nullable=False),
        sa.Column("plan", sa.Text, nullable=False),
        sa.Column("policy", sa.Text, nullable=False),
        sa.Column("executor", sa.Text, nullable=False),
        sa.Column("setting", sa.Text, nullable=False),
        sa.Column("criteria", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("finished_at", sa.Double),
        sa.Column("key", sa.Integer, primary_key=True),
        sa.Column("suite", sa.Text, nullable=False),
        sa.Column("nodes", sa.Integer, nullable=False),
        sa.Column("judgement", sa.Text),
        sa.Column("counts", sa.Text),
        sa.Column("checksum", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("id"),
    )
    op.create_index("campaigns_by_cluster", "campaigns", ["cluster", "finished_at"])
    op.create_table(
        "periodic_tasks",
        sa.Column("task", sa.Text, primary_key=True),
        sa.Column("due", sa.Double, primary_key=True),
        sa.Column("began", sa.Double, nullable=False),
        sa.Column("ended", sa.Double),
        sa.Column("end", sa.Text),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("sentence", sa.Text, nullable=False),
        sa.Column("campaign", sa.Text, nullable=False),
        sa.Column("proposal", sa.Text, nullable=False),
        sa.Column("cluster", sa.Text, primary_key=True),
    )
    op.create_table(
        "clocks",
        sa.Column("kept", sa.Text, nullable=False),
        sa.Column("cluster", sa.Text, primary_key=True),
        sa.Column("checksum", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "clusters",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("executor", sa.Text, nullable=False),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("since", sa.Double, nullable=False),
    )
    op.create_table(
        "decisions",
        sa.Column("document", sa.Text, nullable=False),
        sa.Column("cluster", sa.Text, nullable=False),
        sa.Column("key", sa.Integer, primary_key=True),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("event", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("checksum", sa.BigInteger, nullable=False),
    )
    op.create_index("decisions_by_cluster", "decisions", ["cluster"])
    op.create_table(
        "diagnoses",
        sa.Column("job", sa.Text, primary_key=True),
        sa.Column("at", sa.Double, primary_key=True),
        sa.Column("level", sa.Integer, nullable=False),
        sa.Column("code", sa.Text, nullable=False),
        sa.Column("nodes", sa.Text, nullable=False),
        sa.Column("headline", sa.Text, nullable=False),
        sa.Column("cluster", sa.Text, primary_key=True),
    )
    op.create_table(
        "diagnosis_details",
        sa.Column("job", sa.Text, primary_key=True),
        sa.Column("at", sa.Double, primary_key=True),
        sa.Column("lines", sa.LargeBinary, nullable=False),
        sa.Column("page", sa.LargeBinary, nullable=False),
        sa.Column("cluster", sa.Text, primary_key=True),
    )
    op.create_table(
        "environments",
        sa.Column("digest", sa.String(32), primary_key=True),
        sa.Column("document", sa.Text, nullable=False),
    )
    op.create_table(
        "heard",
        sa.Column("cluster", sa.Text, primary_key=True),
        sa.Column("kind", sa.Text, primary_key=True),
        sa.Column("id", sa.Text, primary_key=True),
    )
    op.create_table(
        "holds",
        sa.Column("node", sa.Text, primary_key=True),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("since", sa.Double, nullable=False),
        sa.Column("until", sa.Double, nullable=False),
        sa.Column("cluster", sa.Text, primary_key=True),
        sa.Column("checksum", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "imports",
        sa.Column("key", sa.Integer, primary_key=True),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("file", sa.Text, nullable=False),
        sa.Column("cluster", sa.Text, nullable=False),
        sa.Column("what", sa.Text, nullable=False),
        sa.Column("campaign", sa.Text, nullable=False),
        sa.Column("new", sa.Integer, nullable=False),
        sa.Column("completed", sa.Integer, nullable=False),
        sa.Column("known", sa.Integer, nullable=False),
    )
    op.create_table(
        "incidents",
        sa.Column("node", sa.Text, primary_key=True),
        sa.Column("category", sa.Text, primary_key=True),
        sa.Column("started_at", sa.Double, primary_key=True),
        sa.Column("ended_at", sa.Double),
        sa.Column("told_by", sa.Integer),
        sa.Column("ended_by", sa.Integer),
        sa.Column("cluster", sa.Text, primary_key=True),
        sa.Column("checksum", sa.BigInteger, nullable=False),
    )
    op.create_index("incidents_by_cluster", "incidents", ["cluster"])
    op.create_table(
        "keepers",
        sa.Column("seen_at", sa.Double),
        sa.Column("turned_at", sa.Double, nullable=False),
        sa.Column("turned_by", sa.Text, nullable=False),
        sa.Column("breakers", sa.Text, nullable=False),
        sa.Column("cluster", sa.Text, primary_key=True),
        sa.Column("checksum", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "kept_by",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("policy", sa.Text, nullable=False),
        sa.Column("said_by", sa.Text, nullable=False),
        sa.Column("since", sa.Double, nullable=False),
        sa.Column("cluster", sa.Text, primary_key=True),
        sa.Column("checksum", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "layouts",
        sa.Column("digest", sa.String(32), primary_key=True),
        sa.Column("document", sa.Text, nullable=False),
    )
    op.create_table(
        "lives",
        sa.Column("document", sa.Text, nullable=False),
        sa.Column("cluster", sa.Text, primary_key=True),
        sa.Column("node", sa.Text, primary_key=True),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("checksum", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "look_details",
        sa.Column("job", sa.Text, primary_key=True),
        sa.Column("lines", sa.Text, nullable=False),
        sa.Column("page", sa.LargeBinary, nullable=False),
        sa.Column("stream", sa.LargeBinary, nullable=False),
        sa.Column("cluster", sa.Text, primary_key=True),
    )
    op.create_table(
        "looks",
        sa.Column("job", sa.Text, primary_key=True),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("nodes", sa.Integer, nullable=False),
        sa.Column("suspects", sa.Integer, nullable=False),
        sa.Column("anomalies", sa.Integer, nullable=False),
        sa.Column("job_ended", sa.Boolean, nullable=False),
        sa.Column("trouble", sa.Text, nullable=False),
        sa.Column("cluster", sa.Text, primary_key=True),
    )
    op.create_table(
        "event_records",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("event", sa.Text, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
        sa.Column("cluster", sa.Text, primary_key=True),
        sa.Column("checksum", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "participants",
        sa.Column("digest", sa.String(32), primary_key=True),
        sa.Column("nodes", sa.Text, nullable=False),
    )
    op.create_table(
        "repairs",
        sa.Column("node", sa.Text, primary_key=True),
        sa.Column("started_at", sa.Double, primary_key=True),
        sa.Column("ended_at", sa.Double),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("cluster", sa.Text, primary_key=True),
        sa.Column("checksum", sa.BigInteger, nullable=False),
    )
    op.create_index("repairs_by_cluster", "repairs", ["cluster"])
    op.create_table(
        "rosters",
        sa.Column("digest", sa.String(32), primary_key=True),
        sa.Column("document", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "row_counts",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("cluster", sa.Text, primary_key=True),
        sa.Column("rows", sa.Integer, nullable=False),
        sa.Column("total", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "tokens",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("scopes", sa.Text, nullable=False),
        sa.Column("made_at", sa.Double, nullable=False),
        sa.Column("made_by", sa.Text, nullable=False),
        sa.Column("revoked_at", sa.Double),
        sa.Column("expires_at", sa.Double),
    )
    op.create_table(
        "attributes",
        sa.Column("node", sa.Text, primary_key=True),
        sa.Column("installed_at", sa.Double),
        sa.Column("rack", sa.Text, nullable=False),
        sa.Column("cage", sa.Text, nullable=False),
        sa.Column("sku", sa.Text, nullable=False),
        sa.Column("told_by", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("cluster", sa.Text, primary_key=True),
        sa.Column("checksum", sa.BigInteger, nullable=False),
    )
    op.create_index("attributes_by_cluster", "attributes", ["cluster"])
    op.create_table(
        "watches",
        sa.Column("node", sa.Text, primary_key=True),
        sa.Column("since", sa.Double, primary_key=True),
        sa.Column("until", sa.Double),
        sa.Column("told_by", sa.Integer),
        sa.Column("cluster", sa.Text, primary_key=True),
        sa.Column("checksum", sa.BigInteger, nullable=False),
    )
    op.create_index("watches_by_cluster", "watches", ["cluster"])
    op.create_table(
        "demands",
        sa.Column("benchmark", sa.Text, nullable=False),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("parameters", sa.Text, nullable=False),
        sa.Column("stronger_with", sa.Text, nullable=False),
        sa.Column("campaign", sa.Integer, sa.ForeignKey("campaigns.key"), primary_key=True),
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("checksum", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "executions",
        sa.Column("step", sa.Text, nullable=False),
        sa.Column("benchmark", sa.Text, nullable=False),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("parameters", sa.Text, nullable=False),
        sa.Column(
            "participants", sa.String(32), sa.ForeignKey("participants.digest"), nullable=False
        ),
        sa.Column("phase", sa.Integer, nullable=False),
        sa.Column("repeat", sa.Integer, nullable=False),
        sa.Column("timeout_s", sa.Double, nullable=False),
        sa.Column("exclusive", sa.Boolean, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("ended", sa.Text, nullable=False),
        sa.Column("final", sa.Boolean, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("lost", sa.Text, nullable=False),
        sa.Column("started_at", sa.Double),
        sa.Column("duration_s", sa.Double, nullable=False),
        sa.Column("layout", sa.String(32), sa.ForeignKey("layouts.digest")),
        sa.Column("packing", sa.String(4)),
        sa.Column("samples", sa.LargeBinary),
        sa.Column(
            "environment", sa.String(32), sa.ForeignKey("environments.digest"), nullable=False
        ),
        sa.Column("not_applicable", sa.Text, nullable=False),
        sa.Column("campaign", sa.Integer, sa.ForeignKey("campaigns.key"), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("checksum", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("campaign", "step", "attempt", name="executions_once"),
    )
    op.create_index("executions_by_benchmark", "executions", ["benchmark", "version", "started_at"])
    op.create_index("executions_by_participants", "executions", ["participants"])
    if op.get_context().dialect.name == "sqlite":  # PostgreSQL refuses long parameters in an index
        op.create_index(
            "executions_how_long", "executions", ["ended", "benchmark", "parameters", "duration_s"]
        )
    op.create_index(
        "executions_who_and_what", "executions", ["campaign", "ended", "participants", "benchmark"]
    )
    op.create_table(
        "jobs",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column(
            "participants", sa.String(32), sa.ForeignKey("participants.digest"), nullable=False
        ),
        sa.Column("started_at", sa.Double, nullable=False),
        sa.Column("ended_at", sa.Double),
        sa.Column("planned_s", sa.Double),
        sa.Column("cluster", sa.Text, primary_key=True),
        sa.Column("checksum", sa.BigInteger, nullable=False),
    )
    op.create_index("jobs_by_cluster", "jobs", ["cluster"])
    op.create_table(
        "node_verdicts",
        sa.Column("node", sa.Text, nullable=False),
        sa.Column("judgement", sa.Text, nullable=False),
        sa.Column("code", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("owes", sa.Text),
        sa.Column("campaign", sa.Integer, sa.ForeignKey("campaigns.key"), primary_key=True),
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("checksum", sa.BigInteger, nullable=False),
    )
    op.create_index("node_verdicts_by_node", "node_verdicts", ["node"])
    op.create_table(
        "part_verdicts",
        sa.Column("parts", sa.Text, nullable=False),
        sa.Column("nodes", sa.Text, nullable=False),
        sa.Column("benchmarks", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("judgement", sa.Text, nullable=False),
        sa.Column("code", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("confidence", sa.Double),
        sa.Column("evidence", sa.Text, nullable=False),
        sa.Column("campaign", sa.Integer, sa.ForeignKey("campaigns.key"), primary_key=True),
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("checksum", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "batch_verdicts",
        sa.Column("roster", sa.String(32), sa.ForeignKey("rosters.digest"), nullable=False),
        sa.Column("benchmark", sa.Text, nullable=False),
        sa.Column("parameters", sa.Text, nullable=False),
        sa.Column("metric", sa.Text, nullable=False),
        sa.Column("judgement", sa.Text, nullable=False),
        sa.Column("code", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("alpha", sa.Double),
        sa.Column("packing", sa.String(4)),
        sa.Column("similarities", sa.LargeBinary),
        sa.Column("campaign", sa.Integer, sa.ForeignKey("campaigns.key"), primary_key=True),
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("checksum", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "verdicts",
        sa.Column(
            "participants", sa.String(32), sa.ForeignKey("participants.digest"), nullable=False
        ),
        sa.Column("benchmark", sa.Text, nullable=False),
        sa.Column("parameters", sa.Text, nullable=False),
        sa.Column("metric", sa.Text, nullable=False),
        sa.Column("device", sa.Text, nullable=False),
        sa.Column("judgement", sa.Text, nullable=False),
        sa.Column("code", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("similarity", sa.Double),
        sa.Column("alpha", sa.Double),
        sa.Column("campaign", sa.Integer, sa.ForeignKey("campaigns.key"), primary_key=True),
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("checksum", sa.BigInteger, nullable=False),
    )
    op.create_index("verdicts_by_participants", "verdicts", ["participants"])
