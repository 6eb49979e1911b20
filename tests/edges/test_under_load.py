"""What the service does once, however many ask."""

from __future__ import annotations

from jinja2 import Environment

from anubis.report.service import campaigns
from anubis.service.board import Snapshot
from anubis.service.gauges import Gauges


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
