"""A reader that keeps a history open reads only changed rows again. Its answers equal those of a
reader that opens the history anew and reads everything."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import sqlalchemy as sa

from anubis.core.clock import ClockReading, tell_time
from anubis.core.history.attributes import NodeAttributes
from anubis.core.history.events import (
    EventRecord,
    IncidentReported,
    JobAllocated,
    JobEnded,
    NodeAdded,
    SuspicionRaised,
)
from anubis.core.history.status import Incident, Repair, Watch
from anubis.core.records import UNNAMED, SelectionPolicy
from anubis.operations.fleet import glance_at
from anubis.operations.selector import LOOKED_BACK_S, Selector, read_past
from anubis.service.requester import OpenHistory
from anubis.store.database import upsert
from anubis.store.history import History
from anubis.store.holds import HOLDS, Hold
from tests.edges.test_selector import BOTH, DAY_S, MENU, NODES, NOW, carry_out

HAPPENED = ("repairs", "watches", "event_records", "validations", "attributes")
QUESTIONS = ("failed_tests", "demands", "part_verdicts", "durations_s")


class Teller:
    """Writes random events of nodes into a history, sometimes late or of the future."""

    def __init__(self, history: History, seed: int) -> None:
        self.history, self.rng, self.at, self.count = history, random.Random(seed), NOW, 0

    def tell(self) -> None:
        self.at += self.rng.choice((1.0, 60.0, DAY_S, 20 * DAY_S))
        self.count += 1
        happen = (self.event, self.event, self.event, self.incident, self.repair, self.watch)
        self.rng.choice((*happen, self.attributes, self.campaign, self.forget, self.hold))()

    def nodes(self) -> tuple[str, ...]:
        return tuple(self.rng.sample((*NODES, "n4"), self.rng.randrange(1, 3)))

    def when(self) -> float:
        return self.at + self.rng.choice((0.0, 0.0, -5.0, -30 * DAY_S, 2 * DAY_S))

    def event(self) -> None:
        nodes, job = self.nodes(), f"j{self.count}"
        event = self.rng.choice(
            (
                NodeAdded(nodes=nodes),
                IncidentReported(nodes=nodes, category="gpu"),
                SuspicionRaised(nodes=nodes, category="gpu", source="x"),
                JobAllocated(nodes=nodes, duration_s=60.0, job=job),
                JobEnded(nodes=nodes, job=job),
            )
        )
        event_record = EventRecord(id=f"e{self.rng.randrange(60)}", at=self.when(), event=event)
        self.history.cluster(UNNAMED).event_records.add(event_record)

    def incident(self) -> None:
        start = self.when()
        end = self.rng.choice((None, start + 1.0, start + 3 * DAY_S))
        told = [Incident(node=n, category="fan", start=start, end=end) for n in self.nodes()]
        watches = [Watch(node=node, since=start) for node in self.nodes()]
        self.history.imports.add("day.csv", self.at, UNNAMED, told, watches)

    def repair(self) -> None:
        start = self.when()
        end = self.rng.choice((None, start + 2 * DAY_S))
        self.history.cluster(UNNAMED).repairs.add(
            Repair(node=n, start=start, end=end) for n in self.nodes()
        )

    def watch(self) -> None:
        self.history.cluster(UNNAMED).watches.add(
            Watch(node=n, since=self.at) for n in self.nodes()
        )

    def attributes(self) -> None:
        rack = self.rng.choice("ab")
        told = [NodeAttributes(node=node, rack=rack) for node in self.nodes()]
        self.history.imports.add_attributes("racks.csv", self.at, UNNAMED, told)

    def campaign(self) -> None:
        bad = [(node, self.rng.choice(("gemm", "disk"))) for node in self.nodes()]
        name = f"v{self.count}"
        carry_out(self.history, name, self.at / DAY_S, bad=bad[: self.rng.randrange(2)])

    def forget(self) -> None:
        if imports := self.history.imports.newest():
            self.history.imports.forget(self.rng.choice(imports).key)

    def hold(self) -> None:
        node = self.nodes()[0]
        row = HOLDS.row(
            Hold(node=node, holder="me", owner="p", since=self.at, until=self.at + DAY_S),
            cluster=UNNAMED,
        )
        with self.history._database.writing() as connection:
            upsert(connection, HOLDS.table, [row], replace=True)


def said(history: History, now: float) -> dict[str, object]:
    """All that is read of a cluster, in a form that can be compared."""
    experience = history.cluster(UNNAMED).experience
    happened = experience.happenings(now - LOOKED_BACK_S)
    answers = {question: getattr(experience, question)() for question in QUESTIONS}
    told = {name: list(getattr(happened, name)) for name in HAPPENED}
    return {**answers, **told, "incidents": sorted(happened.incidents, key=str)}


def seen(glance) -> dict[str, object]:
    lives = {node: glance.life(node, 99) for node in glance.by_name}
    return {"nodes": glance.nodes, "lives": lives, "holds": glance.holds, "kept": glance.kept}


def test_the_remembered_past_equals_a_fresh_reading(tmp_path):
    seed = 0
    url = str(tmp_path / "history.db")
    with OpenHistory.open(url) as kept, OpenHistory.open(url) as writer:
        teller, glance = Teller(writer, seed), None
        for _ in range(25):
            for _ in range(teller.rng.randrange(5)):
                teller.tell()
            teller.at += teller.rng.choice((0.0, 3 * DAY_S))
            now, part = teller.at, kept.cluster(UNNAMED)
            with History.open(url) as anew:
                assert said(kept, now) == said(anew, now), f"seed {seed}"
                fresh = glance_at(anew.cluster(UNNAMED), at(now))
                glance = glance_at(part, at(now), glance)
                assert seen(glance) == seen(fresh), f"seed {seed}"
                assert list(glance.by_name) == list(fresh.by_name)
                assert decided(part, now, {"n1"}) == decided(anew.cluster(UNNAMED), now, None)
        kept.close_at_last()
        writer.close_at_last()


def at(now):
    return tell_time(None, ClockReading(at=now))


def decided(part, now, nodes):
    """A decision on one node, by what is read of that one or of all."""
    past = read_past(part, now, None, (), nodes)
    job = JobAllocated(nodes=("n1",), duration_s=3600.0)
    decision = Selector(past, SelectionPolicy()).weigh(job, MENU, at=now)
    return decision, past.links_among({"n1"}), past.standing.unfit.get("n1")


def test_only_changed_rows_are_read_again(tmp_path):
    with OpenHistory.open(str(tmp_path / "history.db")) as history:
        part, statements = history.cluster(UNNAMED), []
        carry_out(history, "v1", 399.0)
        part.incidents.add([Incident(node="n1", category="fan", start=1.0, end=2.0)])
        part.repairs.add([Repair(node="n1", start=1.0, end=2.0)])
        history.imports.add_attributes("r", 1.0, UNNAMED, [NodeAttributes(node="n1", rack="a")])
        part.event_records.add(EventRecord(id="e1", at=1.0, event=NodeAdded(nodes=("n1",))))
        read_past(part, NOW)
        sa.event.listen(
            history._database.engine,
            "before_cursor_execute",
            lambda connection, cursor, statement, *_: statements.append(
                " ".join(statement.split())
            ),
        )
        read_past(part, NOW + 1)
        wide = (
            "incidents",
            "repairs",
            "watches",
            "attributes",
            "event_records",
            "verdicts",
            "demands",
        )
        wide = (*wide, "node_verdicts", "participant_nodes")
        assert not read_of(statements, wide)
        part.event_records.add(EventRecord(id="e2", at=NOW, event=NodeAdded(nodes=("n2",))))
        statements.clear()
        read_past(part, NOW + 2)
        assert read_of(statements, wide) == {"event_records"}
        assert any("event_records.id IN (" in statement for statement in statements)
        history.close_at_last()


def read_of(statements, tables):
    return {t for t in tables for s in statements if f"FROM {t}" in s or f"JOIN {t}" in s}


@pytest.mark.parametrize("run", [BOTH, replace(BOTH, phases=())], ids=["measured", "not-measured"])
def test_year_old_results_expire_without_any_new_event(tmp_path, run):
    url, later = str(tmp_path / "history.db"), NOW + 366 * DAY_S
    with OpenHistory.open(url) as kept, History.open(url) as anew:
        carry_out(kept, "v1", 399.0, bad=[("n1", "gemm")], run=run)
        glance = glance_at(kept.cluster(UNNAMED), at(NOW))
        said(kept, NOW)
        assert said(kept, later) == said(anew, later)
        then = glance_at(kept.cluster(UNNAMED), at(later), glance)
        assert seen(then) == seen(glance_at(anew.cluster(UNNAMED), at(later)))
        assert (glance.by_name["n1"].why != "", then.by_name["n1"].why) == (True, "")
        kept.close_at_last()
