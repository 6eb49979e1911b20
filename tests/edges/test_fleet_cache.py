"""What the service does once, however many ask."""

from __future__ import annotations

import sqlalchemy as sa
from jinja2 import Environment

from anubis.core.history.events import EventRecord, JobAllocated, JobEnded, RepairBegun, RepairDone
from anubis.operations.tell import note
from anubis.report.service_pages import campaigns
from anubis.service.fleet_cache import Snapshot
from anubis.service.metrics import Gauges
from anubis.store.history import History


def test_the_template_of_a_page_is_compiled_once(monkeypatch):
    campaigns((), 1.0)
    monkeypatch.delattr(Environment, "compile")
    assert "No campaign yet" in campaigns((), 2.0)


class Counted(dict[str, object]):
    looks = 0

    def items(self):
        self.looks += 1
        return super().items()


def test_nodes_are_counted_for_figures_once_for_each_snapshot():
    clusters = Counted()
    snapshot = Snapshot(at=1.0, clusters=clusters, campaigns=(), decisions=())
    gauges = Gauges(lambda: snapshot)
    first, looks = gauges.text(), clusters.looks
    assert gauges.text() == first
    assert clusters.looks == looks
    assert b"anubis_history_read_timestamp_seconds 1.0" in first
    snapshot = Snapshot(at=2.0, clusters=clusters, campaigns=(), decisions=())
    assert b"anubis_history_read_timestamp_seconds 2.0" in gauges.text()


def test_an_event_asks_for_its_own_job_and_repairs_and_for_no_other_row(tmp_path):
    statements = []
    with History.open(str(tmp_path / "history.db")) as history:
        part = history.cluster("c")
        sa.event.listen(
            history._database.engine,
            "before_cursor_execute",
            lambda connection, cursor, statement, *_: statements.append(statement),
        )
        events = [
            JobAllocated(nodes=("n1",), duration_s=60.0, job="j1"),
            JobEnded(nodes=(), job="j1"),
            RepairBegun(nodes=("n1",)),
            RepairDone(nodes=("n1",)),
        ]
        note(
            [EventRecord(id=str(at), at=at, event=event) for at, event in enumerate(events, 1)],
            part,
        )
        kinds = ("jobs", "repairs", "event_records")
        asked = [s for s in statements if any(f"FROM {kind}" in s for kind in kinds)]
        assert asked
        assert all(" IN (" in statement for statement in asked)
        (job,), (repair,) = part.jobs.all(), part.repairs.all()
        assert (job.nodes, job.end, repair.end) == (("n1",), 2, 4)
